package main

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// lasting returns a result with one value at each quantile.
func lasting(least, percentile float64) latency {
	return latency{least, [3]float64{percentile, percentile, percentile}}
}

func TestRead(t *testing.T) {
	written := func(samples string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "raw-64.dat"), []byte(samples), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cases := map[string]struct {
		tool benchTool
		out  string
		want latency
		ok   bool
	}{
		"pinger":            {pingerTool("p"), `{"cells":[{"rtt":{"count":4,"min_ns":8999,"buckets":[[8996,1],[9400,2],[9500,1]]}}]}`, latency{8999, [3]float64{9400, 9500, 9500}}, true},
		"pinger, no cell":   {pingerTool("p"), `{"cells":[]}`, latency{}, false},
		"pinger, too few":   {pingerTool("p"), `{"cells":[{"rtt":{"count":4,"min_ns":1,"buckets":[[1,1]]}}]}`, latency{}, false},
		"pinger, nothing":   {pingerTool("p"), ``, latency{}, false},
		"sfnt-pingpong":     {sfntTool("s", written("9317\n9016\n70000\n9100\n")), "", latency{9016, [3]float64{9100, 70000, 70000}}, true},
		"sfnt, no samples":  {sfntTool("s", written("")), "", latency{}, false},
		"sfnt, no number":   {sfntTool("s", written("9016\nx\n")), "", latency{}, false},
		"sfnt, only a head": {sfntTool("s", t.TempDir()), "# cmdline: x\n", latency{}, false},
		"sockperf": {sockperfTool(), "sockperf: ---> <MAX> observation = 1425.498\nsockperf: ---> percentile 99.999 = 1425.498\nsockperf: ---> percentile 99.990 = 1000.000\n" +
			"sockperf: ---> percentile 99.900 =   90.000\nsockperf: ---> percentile 99.000 =   20.000\nsockperf: ---> percentile 90.000 =   10.000\nsockperf: ---> percentile 50.000 =    9.517\nsockperf: ---> <MIN> observation =    9.157\n",
			latency{9157, [3]float64{9517, 20000, 90000}}, true},
		"sockperf, nothing": {sockperfTool(), "sockperf: No messages were received\n", latency{}, false},
		"netperf":           {netperfTool(), "MIGRATED TCP REQUEST/RESPONSE TEST\nMIN_LATENCY=29\nP50_LATENCY=54\nP99_LATENCY=80\n", latency{29000, [3]float64{54000, 80000, 0}}, true},
		"netperf, nothing":  {netperfTool(), "", latency{}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := c.tool.read(c.out)
			if (err == nil) != c.ok || (c.ok && got != c.want) {
				t.Errorf("got %v, %v; want %v", got, err, c.want)
			}
		})
	}
}

// TestMeasure checks that a machine that slows down by the same factor from one measurement to the next favours neither tool.
func TestMeasure(t *testing.T) {
	a, b, coarse := benchTool{name: "a"}, benchTool{name: "b"}, benchTool{name: "c", coarse: true}
	cases := map[string]struct {
		order []benchTool
		ran   string
		want  map[string]latency
	}{
		"even round":      {inTurns(a, b, 0), "abba", map[string]latency{"a": lasting(2, math.Sqrt(32)), "b": lasting(4, math.Sqrt(32))}},
		"odd round":       {inTurns(a, b, 1), "baab", map[string]latency{"a": lasting(4, math.Sqrt(32)), "b": lasting(2, math.Sqrt(32))}},
		"coarse":          {inTurns(a, coarse, 0), "c", map[string]latency{"c": lasting(2, 2)}},
		"one is left out": {inTurns(a, benchTool{name: "d"}, 0), "ad", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var ran strings.Builder
			slowness := 1.0
			got, err := measure(c.order, func(tool benchTool) (latency, error) {
				ran.WriteString(tool.name)
				slowness *= 2
				if tool.name == "d" {
					return latency{}, errLeftOut
				}
				return lasting(slowness, slowness), nil
			})
			if err != nil || ran.String() != c.ran || !maps.Equal(got, c.want) {
				t.Errorf("%s: got %v, %v; want %v of %s", &ran, got, err, c.want, c.ran)
			}
		})
	}
	if _, err := measure(inTurns(a, b, 0), func(benchTool) (latency, error) { return latency{}, errors.New("failed") }); err == nil {
		t.Error("a failure is not reported")
	}
}

// TestRatio checks a mode that jumps between two values: its best values depend on luck, but the ratios of the rounds remain
// valid.
func TestRatio(t *testing.T) {
	// Both tools are fast in some rounds and slow in others, mostly in the same ones. The pinger takes 1 % more.
	var jumps []paired
	for round := range 12 {
		slow := 1 + float64(round%2)/2
		jumps = append(jumps, paired{lasting(9000*slow, 9494*slow), lasting(9000*slow, 9400*slow)})
	}
	jumps[1].theirs = lasting(9000, 9400)                        // fast when the pinger was slow
	jumps[2] = paired{lasting(9900, 18000), lasting(9000, 9400)} // slow when the other tool was fast
	cases := map[string]struct {
		rounds []paired
		want   string
	}{
		"two values":    {jumps, "1.010, 95 % interval [1.010, 1.010], the median of 12 paired rounds; min 1.00, best p50 1.01"},
		"half as quick": {[]paired{{lasting(20, 20), lasting(10, 10)}}, "2.000, too few rounds for an interval, the median of 1 paired rounds; min 2.00, best p50 2.00"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ratio(c.rounds, 0); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	tools := []benchTool{pingerTool("p"), sfntTool("s", "d"), sockperfTool(), netperfTool()}
	var out bytes.Buffer
	report(&out, modes, tools, map[contest][]paired{
		{"tcp-spin", "sockperf"}: {{lasting(1000, 30000), lasting(2000, 30000)}, {lasting(2000, 10000), lasting(3000, 10000)}, {lasting(3000, 20000), lasting(4000, 20000)}},
		{"tcp-spin", "netperf"}:  {{theirs: lasting(9000, 9400)}},
	})
	want := `mode       tool                  min   best p50        p50        p99      p99.9  (round trip, µs; medians of the rounds)
tcp-spin   pinger              1.000     10.000     20.000     20.000     20.000
tcp-spin   sockperf            2.000     10.000     20.000     20.000     20.000
tcp-spin   netperf             9.000      9.400      9.400      9.400      9.400
RATIO tcp-spin to sockperf, p50: 1.000, too few rounds for an interval, the median of 3 paired rounds; min 0.50, best p50 1.00
RATIO tcp-spin to sockperf, p99: 1.000, too few rounds for an interval, the median of 3 paired rounds; min 0.50, best p99 1.00
RATIO tcp-spin to sockperf, p99.9: 1.000, too few rounds for an interval, the median of 3 paired rounds; min 0.50, best p99.9 1.00
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

func TestClients(t *testing.T) {
	for _, tool := range []benchTool{pingerTool("p"), sfntTool("s", "d"), sockperfTool(), netperfTool().in("/unpacked")} {
		for _, m := range modes {
			if tool.name == "netperf" && (tool.client(m, 64, time.Second)[2] != "netperf" || !slices.Equal(tool.server(m)[:3], []string{"chroot", "/unpacked", "netserver"})) {
				t.Errorf("netperf is not that of the packages: %v", tool.server(m))
			}
			if m.spin && !tool.spins {
				continue
			}
			line := strings.Join(tool.client(m, 64, 2*time.Second), " ")
			if spins := strings.Contains(line, "--spin") || strings.Contains(line, "--nonblocked"); spins != m.spin {
				t.Errorf("%s, %s: %s", tool.name, m.name, line)
			}
			if !strings.Contains(line, "64") || !strings.Contains(line, serverIP) {
				t.Errorf("%s, %s: %s", tool.name, m.name, line)
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, args := range [][]string{{"-modes", "tcp"}, {"-tools", "ping"}, {"-rounds", "0"}, {"-turns", "0"}, {"-duration", "10ms"}, {"-size", "1"}, {"extra"}, {"-no-such-flag"}} {
		var out, said bytes.Buffer
		if err := run(t.Context(), args, &out, &said); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
