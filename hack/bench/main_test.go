package main

import (
	"bytes"
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

func TestRatio(t *testing.T) {
	tools := []benchTool{pingerTool("p"), sfntTool("s"), sockperfTool(), netperfTool()}
	of := func(least, median float64) best { return best{}.with(latency{least, median}) }
	ours := of(9000, 9400).with(latency{9100, 9300})
	cases := map[string]struct {
		results map[string]best
		want    string
	}{
		"one is the quickest": {map[string]best{"pinger": ours, "sfnt-pingpong": of(9000, 9300), "sockperf": of(9200, 9500)}, "RATIO tcp-spin min=1.00 p50=1.00 against sfnt-pingpong"},
		"two share it": {map[string]best{"pinger": ours, "sfnt-pingpong": of(9000, 9600), "sockperf": of(9200, 9500)},
			"RATIO tcp-spin min=1.00 p50=0.98 against sockperf (min: sfnt-pingpong)"},
		"netperf is too coarse": {map[string]best{"pinger": ours, "netperf": of(9000, 9000)}, "RATIO tcp-spin has nothing to compare with"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ratio(modes[0], tools, c.results); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTypical(t *testing.T) {
	b := best{}.with(latency{1, 30}).with(latency{2, 10}).with(latency{3, 20})
	if b.min != 1 || b.p50 != 10 || b.typical() != 20 {
		t.Errorf("got %+v, typically %g", b, b.typical())
	}
}

func TestClients(t *testing.T) {
	for _, tool := range []benchTool{pingerTool("p"), sfntTool("s"), sockperfTool(), netperfTool()} {
		for _, m := range modes {
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
	for _, args := range [][]string{{"-modes", "tcp"}, {"-rounds", "0"}, {"-duration", "10ms"}, {"-size", "1"}, {"extra"}, {"-no-such-flag"}} {
		var out, said bytes.Buffer
		if err := run(t.Context(), args, &out, &said); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
