package pinger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// captured maps the captured results to their cells.
var captured = map[string]tool.Cell{
	"tcp.json":       cellOf("TCP", 64, 300*time.Millisecond, 100*time.Millisecond),
	"udp.json":       spinning(cellOf("UDP", 1, 200*time.Millisecond, 100*time.Millisecond)),
	"multicast.json": cellOf("Multicast", 64, 200*time.Millisecond, 100*time.Millisecond),
	"rate.json":      at(500, cellOf("UDP", 64, 1500*time.Millisecond, 100*time.Millisecond)),
}

func spinning(c tool.Cell) tool.Cell {
	c.Wait = v1alpha1.WaitSpin
	return c
}

func at(rate int32, c tool.Cell) tool.Cell {
	c.RatePerSecond = rate
	return c
}

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// plain is a result, read without the parser's types.
type plain struct {
	Cells []struct {
		Received    int64           `json:"received"`
		RTT         plainHistogram  `json:"rtt"`
		Intended    *plainHistogram `json:"rtt_from_intended"`
		Attribution map[string]any  `json:"attribution"`
		Intervals   struct {
			Log [][]int64 `json:"log"`
		} `json:"intervals"`
	} `json:"cells"`
}

type plainHistogram struct {
	Count   int64       `json:"count"`
	Min     int64       `json:"min_ns"`
	Max     int64       `json:"max_ns"`
	Sum     int64       `json:"sum_ns"`
	Squares json.Number `json:"sum_squares_ns2"`
	Buckets [][2]int64  `json:"buckets"`
}

// wantHistogram checks that the recorded samples match the histogram bucket by bucket.
func wantHistogram(t *testing.T, r *result.Recorder, sums *tool.Sums, want plainHistogram) {
	t.Helper()
	r.SetSums(sums.SumNs, sums.SumOfSquaresNs2)
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	if h.Count != want.Count || h.MinNs != want.Min || h.MaxNs != want.Max || h.SumNs != want.Sum || h.OverRange != 0 {
		t.Errorf("%d samples of %d to %d ns, sum %d; want %+v", h.Count, h.MinNs, h.MaxNs, h.SumNs, want)
	}
	if got := fmt.Sprintf("%.17g", h.SumOfSquaresNs2); got != want.Squares.String() {
		t.Errorf("sum of squares %s, want %s", got, want.Squares)
	}
	// Merge decodes the histogram and checks it against the sums.
	d, err := resulttest.Merge(h)
	if err != nil {
		t.Fatal(err)
	}
	var got [][2]int64
	for _, b := range d.Buckets {
		got = append(got, [2]int64{b.Low, b.Count})
	}
	buckets := append([][2]int64{}, want.Buckets...)
	buckets[0][0] = want.Min
	if diff := cmp.Diff(buckets, got); diff != "" {
		t.Errorf("buckets, -want +got:\n%s", diff)
	}
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
			actual := result.NewRecorder()
			m, err := New().Parse(c, tool.Output{Stdout: data}, r.RecordN, actual.RecordN)
			if err != nil {
				t.Fatal(err)
			}
			one := want.Cells[0]
			if c.OpenLoop() {
				wantHistogram(t, r, m.Sums, *one.Intended)
				wantHistogram(t, actual, m.ActualSums, one.RTT)
			} else {
				wantHistogram(t, r, m.Sums, one.RTT)
			}
			if start := map[bool]tool.StartTime{true: tool.StartIntended}[c.OpenLoop()]; m.Start != start || (m.ActualSums != nil) != c.OpenLoop() {
				t.Errorf("counted from %q", m.Start)
			}
			var course [][]int64
			var until int64
			for _, in := range m.Intervals {
				course = append(course, []int64{in.Count, in.P50Ns, in.P99Ns, in.P999Ns, in.MaxNs, in.Lost})
				if in.StartNs != until || in.LengthNs < 1 {
					t.Errorf("an interval from %d to %d ns follows on %d ns", in.StartNs, in.StartNs+in.LengthNs, until)
				}
				until = in.StartNs + in.LengthNs
			}
			if diff := cmp.Diff(one.Intervals.Log, course); diff != "" || until != int64(c.Duration) {
				t.Errorf("intervals to %d ns, -want +got:\n%s", until, diff)
			}
			if a := m.Attribution; float64(a.Beyond) != one.Attribution["beyond"] || float64(a.Client) != one.Attribution["client"] ||
				float64(a.Neither) != one.Attribution["neither"] || len(a.Slowest) != len(one.Attribution["slowest"].([]any)) || a.ClientSeesGaps != c.Spins() || a.ServerSeesGaps != c.Spins() {
				t.Errorf("attribution %+v of %v", a, one.Attribution)
			}
			for i, o := range m.Attribution.Slowest {
				want := one.Attribution["slowest"].([]any)[i].(map[string]any)
				got := map[string]any{
					"atNs": float64(o.AtNs), "rttNs": float64(o.RTTNs), "samples": float64(o.Samples), "where": string(o.Where), "clientGapNs": float64(o.ClientGapNs),
				}
				if o.ServerGapNs != nil {
					got["serverGapNs"] = float64(*o.ServerGapNs)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("slow sample %d, -want +got:\n%s", i, diff)
				}
			}
			if want := (tool.Accelerated{Client: tool.AccelerationAbsent, Server: tool.AccelerationAbsent}); m.Accelerated != want {
				t.Errorf("accelerated: %+v", m.Accelerated)
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
			if clock := map[bool]string{false: "tsc", true: "monotonic"}[name == "udp.json"]; figures["received"] != fmt.Sprint(one.Received) || figures["clock"] != clock {
				t.Errorf("figures %v", figures)
			}
			if _, late := figures["the latest send after its time (ns)"]; late != c.OpenLoop() {
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

// changed returns a captured result with one change in its only cell.
func changed(t testing.TB, name string, change func(cell map[string]any)) []byte {
	t.Helper()
	var d map[string]any
	decoder := json.NewDecoder(bytes.NewReader(file(t, name)))
	decoder.UseNumber()
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	change(d["cells"].([]any)[0].(map[string]any))
	return text(t, d)
}

// rtt returns a histogram as the tool writes it.
func rtt(count, over, least, most, sum int64, buckets ...[2]int64) map[string]any {
	return map[string]any{"count": count, "over_range": over, "min_ns": least, "max_ns": most, "sum_ns": sum, "sum_squares_ns2": 1.0, "buckets": buckets}
}

// answered sets the histogram and the counts that depend on it.
func answered(h map[string]any) func(map[string]any) {
	return func(cell map[string]any) {
		n := h["count"].(int64) + h["over_range"].(int64)
		cell["rtt"], cell["received"], cell["sent"] = h, n, n
		cell["intervals"] = course(300_000_000, [6]int64{n, 1, 2, 3, 4, 0})
		cell["attribution"] = map[string]any{}
	}
}

// slowSample returns a slow sample as the tool writes it; the tool leaves out a gap that it does not know.
func slowSample(at, rtt, samples int64, where string, client int64, server any) map[string]any {
	o := map[string]any{"atNs": at, "rttNs": rtt, "samples": samples, "where": where, "clientGapNs": client}
	if server != nil {
		o["serverGapNs"] = server
	}
	return o
}

// course returns the log of intervals as the tool writes it.
func course(length int64, log ...[6]int64) map[string]any {
	return map[string]any{"length_ns": length, "log": log}
}

func TestParseRecords(t *testing.T) {
	type pair struct{ RTT, Count int64 }
	cases := map[string]struct {
		change   func(map[string]any)
		want     []pair
		lost     int64
		warnings []string
	}{
		"one sample":                        {answered(rtt(1, 0, 5000, 5000, 5000, [2]int64{5000, 1})), []pair{{5000, 1}}, 0, nil},
		"two in one bucket":                 {answered(rtt(2, 0, 5001, 5003, 10004, [2]int64{5000, 2})), []pair{{5003, 1}, {5001, 1}}, 0, nil},
		"three equal samples in one bucket": {answered(rtt(3, 0, 5001, 5001, 15003, [2]int64{5000, 3})), []pair{{5001, 3}}, 0, nil},
		"extremes within two buckets":       {answered(rtt(4, 0, 10, 5002, 10022, [2]int64{10, 2}, [2]int64{5000, 2})), []pair{{10, 2}, {5002, 1}, {5000, 1}}, 0, nil},
		"two out of range": {answered(rtt(1, 2, 10, 61_000_000_000, 10, [2]int64{10, 1})), []pair{{10, 1}, {61_000_000_000, 2}}, 0,
			[]string{"pinger: 2 round trips of more than 60 s"}},
		"all out of range": {func(cell map[string]any) {
			answered(rtt(0, 3, 61_000_000_000, 3_600_000_000_000, 0))(cell)
			cell["rtt"].(map[string]any)["sum_squares_ns2"] = 0
		}, []pair{{61_000_000_000, 1}, {3_600_000_000_000, 2}}, 0, []string{"pinger: 3 round trips of more than 60 s"}},
		"lost, late, doubled, throttled": {func(cell map[string]any) {
			answered(rtt(1, 0, 5000, 5000, 5000, [2]int64{5000, 1}))(cell)
			cell["lost"], cell["sent"], cell["late"], cell["duplicates"], cell["reordered"], cell["strays"] = 2, 3, 1, 4, 5, 6
			cell["intervals"] = course(150_000_000, [6]int64{1, 5000, 5000, 5000, 5000, 0}, [6]int64{0, 0, 0, 0, 0, 2})
			cell["client"].(map[string]any)["throttled_periods"] = 7
			cell["server"].(map[string]any)["tcp_retransmits"] = 8
			cell["server"].(map[string]any)["moved"] = true
		}, []pair{{5000, 1}}, 2, []string{
			"pinger: 1 datagrams counted as lost were answered after the deadline", "pinger: 4 duplicated datagrams", "pinger: 5 datagrams out of order",
			"pinger: 6 datagrams that were not of this measurement", "pinger: the client was throttled in 7 periods",
			"pinger: the server was moved to another CPU", "pinger: the server sent 8 segments again",
			"pinger: each of 2 lost datagrams cost 1s of the 300ms, in which nothing was measured: workload.lossAfter shortens it",
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []pair
			m, err := New().Parse(captured["tcp.json"], tool.Output{Stdout: changed(t, "tcp.json", c.change)}, func(v, n int64) { got = append(got, pair{v, n}) }, nil)
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
	with := func(change func(map[string]any)) tool.Output {
		return tool.Output{Stdout: changed(t, "tcp.json", change)}
	}
	set := func(key string, value any) tool.Output {
		return with(func(cell map[string]any) { cell[key] = value })
	}
	// five returns a result of five samples; the buckets do not matter here.
	five := func(key string, value any) tool.Output {
		return with(func(cell map[string]any) {
			answered(rtt(5, 0, 10, 10, 50, [2]int64{10, 5}))(cell)
			cell[key] = value
		})
	}
	// slow returns a result of five samples of 10 to 2000 ns, with two beyond 500 ns, listed as slowest.
	slow := func(slowest ...any) tool.Output {
		return with(func(cell map[string]any) {
			answered(rtt(5, 0, 10, 2000, 3030, [2]int64{10, 3}, [2]int64{1000, 1}, [2]int64{2000, 1}))(cell)
			cell["intervals"] = course(150_000_000, [6]int64{1, 1, 2, 3, 1000, 0}, [6]int64{4, 1, 2, 3, 2000, 0})
			cell["attribution"] = map[string]any{"p50Ns": 10, "thresholdNs": 500, "beyond": 2, "examined": 2, "client": 1, "undetermined": 1, "slowest": slowest}
		})
	}
	first, second := slowSample(200_000_000, 2000, 1, "undetermined", 0, nil), slowSample(100, 1000, 1, "client", 600, 5)
	rate := captured["rate.json"]
	rated := func(change func(map[string]any)) tool.Output {
		return tool.Output{Stdout: changed(t, "rate.json", change)}
	}
	cases := map[string]struct {
		cell tool.Cell
		out  tool.Output
		say  string
	}{
		"an answer of another":         {good, tool.Output{ExitCode: 4, Stderr: []byte("tailgate-pinger: something else than the server answered message 1\n")}, "something else than the server answered message 1; is a proxy"},
		"a failure":                    {good, tool.Output{ExitCode: 7, Stderr: []byte("tailgate-pinger: the hard deadline\n has passed\n")}, "exit code 7): tailgate-pinger: the hard deadline has passed"},
		"a failure that prints":        {good, tool.Output{ExitCode: 5, Stdout: file(t, "tcp.json")}, "exit code 5): it printed nothing"},
		"nothing":                      {good, tool.Output{}, "decoding"},
		"half a result":                {good, tool.Output{Stdout: file(t, "tcp.json")[:2000]}, "decoding"},
		"two results":                  {good, tool.Output{Stdout: bytes.Repeat(file(t, "tcp.json"), 2)}, "something follows"},
		"another size":                 {cellOf("TCP", 65, good.Duration, good.Warmup), tool.Output{Stdout: file(t, "tcp.json")}, "messages of 64 bytes"},
		"another protocol":             {cellOf("UDP", 64, good.Duration, good.Warmup), tool.Output{Stdout: file(t, "tcp.json")}, "of tcp messages"},
		"another duration":             {cellOf("TCP", 64, time.Second, good.Warmup), tool.Output{Stdout: file(t, "tcp.json")}, "300000000 ns"},
		"an open loop":                 {good, set("loop", "open"), "open loop"},
		"a closed loop":                {at(500, good), tool.Output{Stdout: file(t, "tcp.json")}, "closed loop"},
		"another rate":                 {at(501, rate), tool.Output{Stdout: file(t, "rate.json")}, "at 500 a second"},
		"ends that sleep":              {spinning(good), tool.Output{Stdout: file(t, "tcp.json")}, "the client polled: false"},
		"a server that polls":          {good, with(func(cell map[string]any) { cell["server"].(map[string]any)["spin"] = true }), "the server: true"},
		"no intended times":            {rate, rated(func(cell map[string]any) { delete(cell, "rtt_from_intended") }), "intended time: false"},
		"broken intended times":        {rate, rated(func(cell map[string]any) { cell["rtt_from_intended"] = rtt(1, 0, 5001, 5001, 5001, [2]int64{5001, 1}) }), "no place"},
		"few intended times":           {rate, rated(func(cell map[string]any) { cell["rtt_from_intended"] = rtt(1, 0, 5000, 5000, 5000, [2]int64{5000, 1}) }), "1 measured from the intended"},
		"no course":                    {good, set("intervals", course(1_000_000_000)), "0 intervals"},
		"a course that is too long":    {good, five("intervals", course(100_000_000, [6]int64{5}, [6]int64{}, [6]int64{}, [6]int64{})), "4 intervals"},
		"a course that is too short":   {good, five("intervals", course(100_000_000, [6]int64{5}, [6]int64{})), "2 intervals"},
		"too many intervals":           {good, five("intervals", course(2_000_000, make([][6]int64, 150)...)), "150 intervals"},
		"intervals of no time":         {good, five("intervals", course(0, [6]int64{5})), "intervals of 0 ns"},
		"intervals of ages":            {good, five("intervals", course(1<<62, [6]int64{5}, [6]int64{}, [6]int64{})), "3 intervals"},
		"an interval with too few":     {good, five("intervals", course(300_000_000, [6]int64{4})), "lack 1 answered"},
		"an interval with too many":    {good, five("intervals", course(300_000_000, [6]int64{6})), "more than 5"},
		"a loss in no interval":        {good, five("intervals", course(300_000_000, [6]int64{5, 0, 0, 0, 0, 1})), "0 lost"},
		"a negative interval":          {good, five("intervals", course(300_000_000, [6]int64{-5})), "a -5"},
		"percentiles that descend":     {good, five("intervals", course(300_000_000, [6]int64{5, 3, 2, 3, 4})), "descend"},
		"a largest of nothing":         {good, five("intervals", course(150_000_000, [6]int64{5}, [6]int64{0, 0, 0, 0, 4})), "descend"},
		"an attribution beyond all":    {good, five("attribution", map[string]any{"beyond": 6}), "divided"},
		"an attribution with a rest":   {good, five("attribution", map[string]any{"beyond": 5, "examined": 2, "client": 1}), "divided"},
		"an attribution of too many":   {good, five("attribution", map[string]any{"beyond": 5, "examined": 2, "client": 3}), "divided"},
		"slow samples untold":          {good, slow(), "of 2 slow samples 0 are listed"},
		"too many slow samples":        {good, slow(slices.Repeat([]any{first}, 65)...), "65 are listed"},
		"a slow sample of nothing":     {good, five("attribution", map[string]any{"slowest": []any{first}}), "of 0 slow samples 1"},
		"a negative median":            {good, five("attribution", map[string]any{"p50Ns": -1}), "median is -1"},
		"a median beyond the slowest":  {good, five("attribution", map[string]any{"p50Ns": 2, "thresholdNs": 1}), "median is 2"},
		"not the slowest first":        {good, slow(second, first), "the slowest sample took 1000 ns"},
		"a slow sample too late":       {good, slow(slowSample(300_000_000, 2000, 1, "undetermined", 0, nil), second), "at 300000000 ns, has no place"},
		"a slow sample too early":      {good, slow(first, slowSample(-1, 1000, 1, "client", 600, 5)), "has no place"},
		"a fast sample":                {good, slow(first, slowSample(100, 500, 1, "client", 500, 5)), "has no place"},
		"slow samples that ascend":     {good, slow(first, slowSample(100, 2001, 1, "client", 2000, 5)), "has no place"},
		"a slow sample at a fast time": {good, slow(slowSample(100, 2000, 1, "undetermined", 0, nil), second), "none at its time more than 1000"},
		"a place against its gaps":     {good, slow(first, slowSample(100, 1000, 1, "client", 494, 5)), `is not of "client"`},
		"an invalid place":             {good, slow(first, slowSample(100, 1000, 1, "moon", 0, 5)), `is not of "moon"`},
		"undetermined, but is known":   {good, slow(slowSample(200_000_000, 2000, 1, "undetermined", 0, 5), second), `is not of "undetermined"`},
		"a negative gap":               {good, slow(first, slowSample(100, 1000, 1, "client", 600, -5)), `is not of "client"`},
		"a slow sample for nothing":    {good, slow(slowSample(200_000_000, 2000, 0, "undetermined", 0, nil), second), "stands for 0"},
		"a slow sample for too many":   {good, slow(first, slowSample(100, 1000, 2, "client", 600, 5)), `stands for 2 of "client", of which 1`},
		"slow samples for too few":     {good, slow(first), "1 slow samples stand for 1 of 2"},
		"slow samples at one time": {good, with(func(cell map[string]any) {
			answered(rtt(5, 0, 10, 2000, 3030, [2]int64{10, 3}, [2]int64{1000, 1}, [2]int64{2000, 1}))(cell)
			cell["intervals"] = course(300_000_000, [6]int64{5, 1, 2, 3, 2000, 0})
			cell["attribution"] = map[string]any{"p50Ns": 10, "thresholdNs": 500, "beyond": 2, "examined": 2, "neither": 2,
				"slowest": []any{slowSample(1000, 2000, 1, "neither", 0, 0), slowSample(2999, 1000, 1, "neither", 0, 0)}}
		}), "stands for sample 1, which"},
		"another word of Onload":        {good, with(func(cell map[string]any) { cell["client"].(map[string]any)["accelerated"] = "perhaps" }), "perhaps"},
		"messages that vanish":          {good, set("sent", 10), "of 10 messages"},
		"a negative count":              {good, set("late", -1), "-1 messages"},
		"more answers than samples":     {good, with(func(cell map[string]any) { cell["received"], cell["sent"] = 7, 7 }), "7 messages were answered"},
		"no sample":                     {good, with(answered(rtt(0, 0, 0, 0, 0))), "0 in range"},
		"a smallest above the largest":  {good, with(answered(rtt(1, 0, 11, 10, 10, [2]int64{10, 1}))), "11 to 10 ns"},
		"one sample with two values":    {good, with(answered(rtt(1, 0, 5000, 5003, 5000, [2]int64{5000, 1}))), "one sample"},
		"an invalid edge":               {good, with(answered(rtt(1, 0, 5001, 5001, 5001, [2]int64{5001, 1}))), "no place"},
		"a bucket twice":                {good, with(answered(rtt(2, 0, 10, 10, 20, [2]int64{10, 1}, [2]int64{10, 1}))), "no place"},
		"an empty bucket":               {good, with(answered(rtt(1, 0, 10, 10, 10, [2]int64{9, 0}, [2]int64{10, 1}))), "no place"},
		"too few in the buckets":        {good, with(answered(rtt(2, 0, 10, 10, 20, [2]int64{10, 1}))), "1 of 2"},
		"a smallest elsewhere":          {good, with(answered(rtt(1, 0, 9, 10, 10, [2]int64{10, 1}))), "smallest"},
		"a largest elsewhere":           {good, with(answered(rtt(1, 0, 10, 11, 10, [2]int64{10, 1}))), "largest"},
		"a sum that cannot be":          {good, with(answered(rtt(1, 0, 10, 10, 12, [2]int64{10, 1}))), "sum is 12"},
		"one below and above the range": {good, with(answered(rtt(1, 1, 0, 61_000_000_000, 10, [2]int64{10, 1}))), "one sample out of range"},
		"out of range, but is not":      {good, with(answered(rtt(1, 1, 10, 10, 10, [2]int64{10, 1}))), "out of range"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := New().Parse(c.cell, c.out, func(int64, int64) {}, func(int64, int64) {})
			var failure *tool.Failure
			if !errors.As(err, &failure) || !strings.Contains(failure.Message, c.say) || strings.Contains(failure.Message, "\n") {
				t.Errorf("got %v, want a failure of one line with %q", err, c.say)
			}
		})
	}
}

// FuzzParse checks that every accepted result can be stored and read again with the same numbers.
func FuzzParse(f *testing.F) {
	// Short inputs for the fuzzer, without the fields that the parser ignores.
	for _, h := range []map[string]any{
		rtt(1, 2, 10, 61_000_000_000, 10, [2]int64{10, 1}), rtt(4, 0, 10, 5002, 10022, [2]int64{10, 2}, [2]int64{5000, 2}), rtt(0, 1, 0, 0, 0),
		rtt(1, 2, 0, 61_000_000_000, 10, [2]int64{10, 1}),
	} {
		n := h["count"].(int64) + h["over_range"].(int64)
		const one = `{"tool":"tailgate-pinger","version":"1","cells":[{"protocol":"%s","size":64,"loop":"%s","rate_per_s":%d,"duration_ns":%d,` +
			`"warmup_ns":100000000,"sent":%d,"received":%[5]d,"lost":0,"rtt":%s,%s"intervals":{"length_ns":1500000000,"log":[[%[5]d,1,2,3,4,0]]},` +
			`"client":{"accelerated":"yes"},"server":{"accelerated":"no"}}]}`
		f.Add(fmt.Appendf(nil, one, "tcp", "closed", 0, 300_000_000, n, text(f, h), ""))
		f.Add(fmt.Appendf(nil, one, "udp", "open", 500, 1_500_000_000, n, text(f, h), `"rtt_from_intended":`+string(text(f, h))+`,`))
	}
	f.Add([]byte(`{"tool":"tailgate-pinger","version":"1","cells":[{"protocol":"tcp","size":64,"loop":"closed","duration_ns":300000000,"warmup_ns":100000000,` +
		`"sent":3,"received":3,"lost":0,"rtt":{"count":3,"min_ns":10,"max_ns":2000,"sum_ns":3010,"sum_squares_ns2":1,"buckets":[[10,1],[1000,1],[2000,1]]},` +
		`"intervals":{"length_ns":1000000000,"log":[[3,1,2,3,2000,0]]},"client":{"accelerated":"yes"},"server":{"accelerated":"no"},` +
		`"attribution":{"p50Ns":10,"thresholdNs":500,"beyond":2,"examined":2,"client":1,"undetermined":1,"slowest":[` +
		`{"atNs":7,"rttNs":2000,"samples":1,"where":"undetermined","clientGapNs":0},` +
		`{"atNs":3000,"rttNs":1000,"samples":1,"where":"client","clientGapNs":600,"serverGapNs":5}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, c := range captured {
			if _, err := New().Parse(c, tool.Output{Stdout: data}, func(int64, int64) {}, func(int64, int64) {}); err != nil {
				continue
			}
			r, actual := result.NewRecorder(), result.NewRecorder()
			var recorded int64
			m, err := New().Parse(c, tool.Output{Stdout: data}, func(v, n int64) {
				if n < 1 {
					t.Errorf("%d samples of %d ns", n, v)
				}
				recorded += n
				r.RecordN(v, n)
			}, actual.RecordN)
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
			if m.ActualSums != nil {
				want = *d.Cells[0].Intended
				actual.SetSums(m.ActualSums.SumNs, m.ActualSums.SumOfSquaresNs2)
				if _, err := actual.Histogram(); err != nil {
					t.Errorf("what was accepted cannot be stored: %v", err)
				}
			}
			if a := m.Attribution; len(a.Slowest) > 64 || len(a.Slowest) > 0 && a.Slowest[0].RTTNs != h.MaxNs {
				t.Errorf("%d slow samples of %+v, the largest is of %d ns", len(a.Slowest), a, h.MaxNs)
			}
			var inIntervals int64
			for _, in := range m.Intervals {
				inIntervals += in.Count
			}
			if inIntervals != recorded || len(m.Intervals) > 128 {
				t.Errorf("%d intervals hold %d of %d", len(m.Intervals), inIntervals, recorded)
			}
			if h.Count != want.Count || h.OverRange != want.OverRange || recorded != want.Count+want.OverRange || h.MinNs != want.MinNs || h.MaxNs != want.MaxNs {
				t.Errorf("recorded %+v of %+v", h, want)
			}
			if _, err := resulttest.Merge(h); err != nil {
				t.Errorf("what was accepted cannot be read again: %v", err)
			}
		}
	})
}

// An outlier is explained by a gap of exactly half of its excess over the median, at one end or at both together.
func TestExplained(t *testing.T) {
	const p50, excess = 1000, 100
	for name, c := range map[string]struct {
		client, server int64
		where          tool.Where
	}{
		"the client, by exactly a half":        {50, 0, tool.WhereClient},
		"the client, by less":                  {49, 0, tool.WhereNeither},
		"the server, by exactly a half":        {0, 50, tool.WhereServer},
		"the server, by less":                  {0, 49, tool.WhereNeither},
		"both, by exactly a half":              {30, 20, tool.WhereBoth},
		"both, by less":                        {30, 19, tool.WhereNeither},
		"the client, as much as the server":    {60, 60, tool.WhereClient},
		"the server, more than the client":     {60, 61, tool.WhereServer},
		"gaps longer than the excess are cut":  {500, 400, tool.WhereClient},
		"a gap that is negative explains none": {-1, 50, ""},
	} {
		for _, where := range []tool.Where{tool.WhereClient, tool.WhereServer, tool.WhereBoth, tool.WhereNeither, tool.WhereUndetermined} {
			o := tool.Outlier{RTTNs: p50 + excess, ClientGapNs: c.client, ServerGapNs: new(c.server), Where: where}
			if got := explained(o, p50); got != (where == c.where) {
				t.Errorf("%s: explained by %s: %t", name, where, got)
			}
		}
	}
}

// The slowest sample of an open loop is the largest from when messages should have been sent, of a closed loop that from when they were.
func TestSlowestIsTheLargest(t *testing.T) {
	for name, c := range map[string]struct {
		intended *histogram
		slowest  int64
		fine     bool
	}{
		"a closed loop":                    {nil, 1000, true},
		"a closed loop, and another":       {nil, 2000, false},
		"an open loop":                     {&histogram{MaxNs: 2000}, 2000, true},
		"an open loop, from when it began": {&histogram{MaxNs: 2000}, 1000, false},
	} {
		m := cell{DurationNs: 1e9, RTT: histogram{MaxNs: 1000}, Intended: c.intended, Attribution: attribution{P50Ns: 100, ThresholdNs: 500}}
		m.Intervals.LengthNs, m.Intervals.Log = 1e9, append(m.Intervals.Log, [6]int64{4: 2000})
		m.Attribution.Beyond, m.Attribution.Examined, m.Attribution.Client = 1, 1, 1
		m.Attribution.Slowest = []tool.Outlier{{RTTNs: c.slowest, Samples: 1, Where: tool.WhereClient, ClientGapNs: c.slowest, ServerGapNs: new(int64(0))}}
		if err := m.checkSlowest(); (err == nil) != c.fine {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A document of another tool, or of no or several cells, is no result of the cell.
func TestDocumentsOfAnotherKind(t *testing.T) {
	for name, d := range map[string]document{
		"no tool": {Cells: make([]cell, 1)}, "another tool": {Tool: "sockperf", Cells: make([]cell, 1)}, "no cell": {Tool: program}, "two cells": {Tool: program, Cells: make([]cell, 2)},
	} {
		if err := d.check(tool.Cell{}); err == nil || !strings.Contains(err.Error(), "cells") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWrongPeer(t *testing.T) {
	_, err := New().Parse(captured["tcp.json"], tool.Output{ExitCode: 4}, nil, nil)
	if f, ok := errors.AsType[*tool.Failure](err); !ok || f.Reason != v1alpha1.OutcomeWrongPeer {
		t.Errorf("%v is not of the other end", err)
	}
}
