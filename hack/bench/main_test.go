package main

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	cases := map[string]struct {
		tool benchTool
		out  string
		want latency
		ok   bool
	}{
		"pinger":            {pingerTool("p"), `{"cells":[{"rtt":{"count":4,"min_ns":8999,"buckets":[[8996,1],[9400,2],[9500,1]]}}]}`, latency{8999, 9400}, true},
		"pinger, no cell":   {pingerTool("p"), `{"cells":[]}`, latency{}, false},
		"pinger, too few":   {pingerTool("p"), `{"cells":[{"rtt":{"count":4,"min_ns":1,"buckets":[[1,1]]}}]}`, latency{}, false},
		"pinger, nothing":   {pingerTool("p"), ``, latency{}, false},
		"sfnt-pingpong":     {sfntTool("s"), "# cmdline: x\n#\tsize\tmean\tmin\tmedian\tmax\t%ile\tstddev\titer\n\t64\t9500\t9016\t9317\t70000\t12000\t500\t100000\n", latency{9016, 9317}, true},
		"sfnt, only a head": {sfntTool("s"), "# cmdline: x\n", latency{}, false},
		"sockperf": {sockperfTool(), "sockperf: ---> <MAX> observation = 1425.498\nsockperf: ---> percentile 50.000 =    9.517\nsockperf: ---> <MIN> observation =    9.157\n",
			latency{9157, 9517}, true},
		"sockperf, nothing": {sockperfTool(), "sockperf: No messages were received\n", latency{}, false},
		"netperf":           {netperfTool(), "MIGRATED TCP REQUEST/RESPONSE TEST\nMIN_LATENCY=29\nP50_LATENCY=54\n", latency{29000, 54000}, true},
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
		"even round":      {inTurns(a, b, 0), "abba", map[string]latency{"a": {2, math.Sqrt(32)}, "b": {4, math.Sqrt(32)}}},
		"odd round":       {inTurns(a, b, 1), "baab", map[string]latency{"a": {4, math.Sqrt(32)}, "b": {2, math.Sqrt(32)}}},
		"coarse":          {inTurns(a, coarse, 0), "c", map[string]latency{"c": {2, 2}}},
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
				return latency{slowness, slowness}, nil
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
		jumps = append(jumps, paired{latency{9000 * slow, 9494 * slow}, latency{9000 * slow, 9400 * slow}})
	}
	jumps[1].theirs = latency{9000, 9400}                        // fast when the pinger was slow
	jumps[2] = paired{latency{9900, 18000}, latency{9000, 9400}} // slow when the other tool was fast
	cases := map[string]struct {
		rounds []paired
		want   string
	}{
		"two values":    {jumps, "1.010, 95 % interval [1.010, 1.010], the median of 12 paired rounds; min 1.00, best p50 1.01"},
		"half as quick": {[]paired{{latency{20, 20}, latency{10, 10}}}, "2.000, too few rounds for an interval, the median of 1 paired rounds; min 2.00, best p50 2.00"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ratio(c.rounds); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	tools := []benchTool{pingerTool("p"), sfntTool("s"), sockperfTool(), netperfTool()}
	var out bytes.Buffer
	report(&out, modes, tools, map[contest][]paired{
		{"tcp-spin", "sockperf"}: {{latency{1000, 30000}, latency{2000, 30000}}, {latency{2000, 10000}, latency{3000, 10000}}, {latency{3000, 20000}, latency{4000, 20000}}},
		{"tcp-spin", "netperf"}:  {{theirs: latency{9000, 9400}}},
	})
	want := `mode       tool                  min   best p50  median of p50  (round trip, µs)
tcp-spin   pinger              1.000     10.000         20.000
tcp-spin   sockperf            2.000     10.000         20.000
tcp-spin   netperf             9.000      9.400          9.400
RATIO tcp-spin to sockperf: 1.000, too few rounds for an interval, the median of 3 paired rounds; min 0.50, best p50 1.00
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

func TestClients(t *testing.T) {
	for _, tool := range []benchTool{pingerTool("p"), sfntTool("s"), sockperfTool(), netperfTool().in("/unpacked")} {
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
