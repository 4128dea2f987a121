package pinger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// The captured results, and the cells that they are of.
var captured = map[string]tool.Cell{
	"tcp.json": cellOf("TCP", 64, 300*time.Millisecond, 100*time.Millisecond),
	"udp.json": cellOf("UDP", 1, 200*time.Millisecond, 100*time.Millisecond),
}

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// plain is a result read without the parser's types.
type plain struct {
	Cells []struct {
		Received int64 `json:"received"`
		RTT      struct {
			Count   int64       `json:"count"`
			Min     int64       `json:"min_ns"`
			Max     int64       `json:"max_ns"`
			Sum     int64       `json:"sum_ns"`
			Squares json.Number `json:"sum_squares_ns2"`
			Buckets [][2]int64  `json:"buckets"`
		} `json:"rtt"`
	} `json:"cells"`
}

func TestParseCaptured(t *testing.T) {
	for name, c := range captured {
		t.Run(name, func(t *testing.T) {
			data := file(t, name)
			var want plain
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			r := result.NewRecorder()
			m, err := New().Parse(c, tool.Output{Stdout: data}, r.RecordN)
			if err != nil {
				t.Fatal(err)
			}
			r.SetSums(m.Sums.SumNs, m.Sums.SumOfSquaresNs2)
			h, err := r.Histogram()
			if err != nil {
				t.Fatal(err)
			}
			rtt := want.Cells[0].RTT
			if h.Count != rtt.Count || h.MinNs != rtt.Min || h.MaxNs != rtt.Max || h.SumNs != rtt.Sum || h.OverRange != 0 {
				t.Errorf("%d samples of %d to %d ns, sum %d; want %+v", h.Count, h.MinNs, h.MaxNs, h.SumNs, rtt)
			}
			if got := fmt.Sprintf("%.17g", h.SumOfSquaresNs2); got != rtt.Squares.String() {
				t.Errorf("sum of squares %s, want %s", got, rtt.Squares)
			}
			// Merge decodes the histogram and holds it against the sums.
			d, err := result.Merge(h)
			if err != nil {
				t.Fatal(err)
			}
			var got [][2]int64
			for _, b := range d.Buckets {
				got = append(got, [2]int64{b.Low, b.Count})
			}
			buckets := append([][2]int64{}, rtt.Buckets...)
			buckets[0][0] = rtt.Min
			if diff := cmp.Diff(buckets, got); diff != "" {
				t.Errorf("buckets, -want +got:\n%s", diff)
			}
			if m.Version != "1" || m.Lost != 0 || len(m.Warnings) > 0 {
				t.Errorf("version %q, %d lost, warnings %q", m.Version, m.Lost, m.Warnings)
			}
			figures := map[string]string{}
			for _, f := range m.Figures {
				figures[f.Name] = f.Value
			}
			if len(figures) != len(m.Figures) {
				t.Error("two figures have one name")
			}
			if figures["received"] != fmt.Sprint(want.Cells[0].Received) || figures["client: socket accelerated"] != "unknown" ||
				figures["clock"] != map[string]string{"tcp.json": "tsc", "udp.json": "monotonic"}[name] {
				t.Errorf("figures %v", figures)
			}
		})
	}
}

func text(t testing.TB, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// changed is a captured result with one change in its only cell.
func changed(t testing.TB, change func(cell map[string]any)) []byte {
	t.Helper()
	var d map[string]any
	decoder := json.NewDecoder(bytes.NewReader(file(t, "tcp.json")))
	decoder.UseNumber()
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	change(d["cells"].([]any)[0].(map[string]any))
	return text(t, d)
}

// rtt is a histogram as the tool writes it.
func rtt(count, over, least, most, sum int64, buckets ...[2]int64) map[string]any {
	return map[string]any{"count": count, "over_range": over, "min_ns": least, "max_ns": most, "sum_ns": sum, "sum_squares_ns2": 1.0, "buckets": buckets}
}

// answered sets the histogram and the counts that go with it.
func answered(h map[string]any) func(map[string]any) {
	return func(cell map[string]any) {
		n := h["count"].(int64) + h["over_range"].(int64)
		cell["rtt"], cell["received"], cell["sent"] = h, n, n
	}
}

func TestParseRecords(t *testing.T) {
	type pair struct{ RTT, Count int64 }
	cases := map[string]struct {
		change   func(map[string]any)
		want     []pair
		lost     int64
		warnings []string
	}{
		"one sample":                  {answered(rtt(1, 0, 5000, 5000, 5000, [2]int64{5000, 1})), []pair{{5000, 1}}, 0, nil},
		"two in one bucket":           {answered(rtt(2, 0, 5001, 5003, 10004, [2]int64{5000, 2})), []pair{{5003, 1}, {5001, 1}}, 0, nil},
		"three alike in one bucket":   {answered(rtt(3, 0, 5001, 5001, 15003, [2]int64{5000, 3})), []pair{{5001, 3}}, 0, nil},
		"extremes within two buckets": {answered(rtt(4, 0, 10, 5002, 10022, [2]int64{10, 2}, [2]int64{5000, 2})), []pair{{10, 2}, {5002, 1}, {5000, 1}}, 0, nil},
		"two out of range": {answered(rtt(1, 2, 10, 61_000_000_000, 10, [2]int64{10, 1})), []pair{{10, 1}, {61_000_000_000, 2}}, 0,
			[]string{"pinger: 2 round trips of more than 60 s"}},
		"all out of range": {func(cell map[string]any) {
			answered(rtt(0, 3, 61_000_000_000, 3_600_000_000_000, 0))(cell)
			cell["rtt"].(map[string]any)["sum_squares_ns2"] = 0
		}, []pair{{61_000_000_000, 1}, {3_600_000_000_000, 2}}, 0, []string{"pinger: 3 round trips of more than 60 s"}},
		"lost, late, doubled, throttled": {func(cell map[string]any) {
			answered(rtt(1, 0, 5000, 5000, 5000, [2]int64{5000, 1}))(cell)
			cell["lost"], cell["sent"], cell["late"], cell["duplicates"], cell["reordered"], cell["strays"] = 2, 3, 1, 4, 5, 6
			cell["client"].(map[string]any)["throttled_periods"] = 7
			cell["server"].(map[string]any)["tcp_retransmits"] = 8
			cell["server"].(map[string]any)["moved"] = true
		}, []pair{{5000, 1}}, 2, []string{
			"pinger: 1 datagrams counted as lost were answered after the deadline", "pinger: 4 duplicated datagrams", "pinger: 5 datagrams out of order",
			"pinger: 6 datagrams that were not of this measurement", "pinger: the client was throttled in 7 periods",
			"pinger: the server was moved to another CPU", "pinger: the server sent 8 segments again",
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []pair
			m, err := New().Parse(captured["tcp.json"], tool.Output{Stdout: changed(t, c.change)}, func(v, n int64) { got = append(got, pair{v, n}) })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("samples, -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(c.warnings, m.Warnings); diff != "" || m.Lost != c.lost {
				t.Errorf("%d lost; warnings, -want +got:\n%s", m.Lost, diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	good := captured["tcp.json"]
	with := func(change func(map[string]any)) tool.Output { return tool.Output{Stdout: changed(t, change)} }
	set := func(key string, value any) tool.Output {
		return with(func(cell map[string]any) { cell[key] = value })
	}
	cases := map[string]struct {
		cell tool.Cell
		out  tool.Output
		say  string
	}{
		"a failure":                    {good, tool.Output{ExitCode: 7, Stderr: []byte("tailgate-pinger: the hard deadline\n has passed\n")}, "exit code 7): tailgate-pinger: the hard deadline has passed"},
		"a failure that prints":        {good, tool.Output{ExitCode: 5, Stdout: file(t, "tcp.json")}, "exit code 5): it said nothing"},
		"nothing":                      {good, tool.Output{}, "decoding"},
		"half a result":                {good, tool.Output{Stdout: file(t, "tcp.json")[:2000]}, "decoding"},
		"two results":                  {good, tool.Output{Stdout: bytes.Repeat(file(t, "tcp.json"), 2)}, "something follows"},
		"another size":                 {cellOf("TCP", 65, good.Duration, good.Warmup), tool.Output{Stdout: file(t, "tcp.json")}, "messages of 64 bytes"},
		"another protocol":             {cellOf("UDP", 64, good.Duration, good.Warmup), tool.Output{Stdout: file(t, "tcp.json")}, "of tcp messages"},
		"another duration":             {cellOf("TCP", 64, time.Second, good.Warmup), tool.Output{Stdout: file(t, "tcp.json")}, "300000000 ns"},
		"an open loop":                 {good, set("loop", "open"), "open loop"},
		"messages that vanish":         {good, set("sent", 10), "of 10 messages"},
		"a negative count":             {good, set("late", -1), "-1 messages"},
		"more answers than samples":    {good, with(func(cell map[string]any) { cell["received"], cell["sent"] = 7, 7 }), "7 messages were answered"},
		"no sample":                    {good, with(answered(rtt(0, 0, 0, 0, 0))), "0 in range"},
		"a smallest above the largest": {good, with(answered(rtt(1, 0, 11, 10, 10, [2]int64{10, 1}))), "11 to 10 ns"},
		"one sample with two values":   {good, with(answered(rtt(1, 0, 5000, 5003, 5000, [2]int64{5000, 1}))), "one sample"},
		"an edge that is none":         {good, with(answered(rtt(1, 0, 5001, 5001, 5001, [2]int64{5001, 1}))), "no place"},
		"a bucket twice":               {good, with(answered(rtt(2, 0, 10, 10, 20, [2]int64{10, 1}, [2]int64{10, 1}))), "no place"},
		"an empty bucket":              {good, with(answered(rtt(1, 0, 10, 10, 10, [2]int64{9, 0}, [2]int64{10, 1}))), "no place"},
		"too few in the buckets":       {good, with(answered(rtt(2, 0, 10, 10, 20, [2]int64{10, 1}))), "1 of 2"},
		"a smallest elsewhere":         {good, with(answered(rtt(1, 0, 9, 10, 10, [2]int64{10, 1}))), "smallest"},
		"a largest elsewhere":          {good, with(answered(rtt(1, 0, 10, 11, 10, [2]int64{10, 1}))), "largest"},
		"a sum that cannot be":         {good, with(answered(rtt(1, 0, 10, 10, 12, [2]int64{10, 1}))), "sum is 12"},
		"out of range, but is not":     {good, with(answered(rtt(1, 1, 10, 10, 10, [2]int64{10, 1}))), "out of range"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := New().Parse(c.cell, c.out, func(int64, int64) {})
			var failure *tool.Failure
			if !errors.As(err, &failure) || !strings.Contains(failure.Message, c.say) || strings.Contains(failure.Message, "\n") {
				t.Errorf("got %v, want a failure of one line with %q", err, c.say)
			}
		})
	}
}

// FuzzParse: whatever is accepted can be stored and read again, with the numbers it came with.
func FuzzParse(f *testing.F) {
	// Short ones, for the fuzzer's sake: without what the parser does not read.
	for _, h := range []map[string]any{
		rtt(1, 2, 10, 61_000_000_000, 10, [2]int64{10, 1}), rtt(4, 0, 10, 5002, 10022, [2]int64{10, 2}, [2]int64{5000, 2}), rtt(0, 1, 0, 0, 0),
	} {
		f.Add([]byte(fmt.Sprintf(`{"tool":"tailgate-pinger","version":"1","cells":[{"protocol":"tcp","size":64,"loop":"closed","duration_ns":300000000,`+
			`"warmup_ns":100000000,"sent":%d,"received":%[1]d,"lost":0,"rtt":%s}]}`, h["count"].(int64)+h["over_range"].(int64), text(f, h))))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, c := range captured {
			if _, err := New().Parse(c, tool.Output{Stdout: data}, func(int64, int64) {}); err != nil {
				continue
			}
			r := result.NewRecorder()
			var recorded int64
			m, err := New().Parse(c, tool.Output{Stdout: data}, func(v, n int64) {
				if n < 1 {
					t.Errorf("%d samples of %d ns", n, v)
				}
				recorded += n
				r.RecordN(v, n)
			})
			if err != nil {
				t.Fatal(err)
			}
			r.SetSums(m.Sums.SumNs, m.Sums.SumOfSquaresNs2)
			h, err := r.Histogram()
			if err != nil {
				t.Fatal(err)
			}
			d, err := read(data)
			if err != nil {
				t.Fatal(err)
			}
			want := d.Cells[0].RTT
			if h.Count != want.Count || h.OverRange != want.OverRange || recorded != want.Count+want.OverRange || h.MinNs != want.MinNs || h.MaxNs != want.MaxNs {
				t.Errorf("recorded %+v of %+v", h, want)
			}
			if _, err := result.Merge(h); err != nil {
				t.Errorf("what was accepted cannot be read again: %v", err)
			}
		}
	})
}
