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

// A machine that becomes slower by the same factor from one measurement to the next does not favour the tool that is first.
func TestMeasure(t *testing.T) {
	tools := []benchTool{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}}
	var ran []string
	slowness := 1.0
	got, err := measure(tools, func(tool benchTool) (latency, error) {
		ran = append(ran, tool.name)
		slowness *= 2
		if tool.name == "c" || tool.name == "d" && slowness > 16 {
			return latency{}, errLeftOut
		}
		return latency{slowness, slowness}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := (map[string]latency{"a": {2, math.Sqrt(512)}, "b": {4, math.Sqrt(512)}}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if order := strings.Join(ran, ""); order != "abcddcba" {
		t.Errorf("they ran as %s", order)
	}
	if _, err := measure(tools, func(benchTool) (latency, error) { return latency{}, errors.New("failed") }); err == nil {
		t.Error("a failure is not reported")
	}
}

// A mode that jumps between two values gives bests by luck; the ratios of the same rounds hold.
func TestRatio(t *testing.T) {
	// Every tool is quick in some rounds and slow in others, mostly the same. The pinger takes 1 % more.
	ours, theirs := series{}, series{}
	for round := range 12 {
		slow := 1 + float64(round%2)/2
		ours[round], theirs[round] = latency{9000 * slow, 9494 * slow}, latency{9000 * slow, 9400 * slow}
	}
	theirs[1] = latency{9000, 9400} // quick when the pinger was slow
	ours[2] = latency{9900, 18000}  // the other way round
	cases := map[string]struct {
		ours, theirs series
		want         string
	}{
		"two values":    {ours, theirs, "1.010, 95 % interval [1.010, 1.010], the median of 12 paired rounds; min 1.00, best p50 1.01"},
		"half as quick": {series{0: {20, 20}}, series{0: {10, 10}}, "2.000, too few rounds for an interval, the median of 1 paired rounds; min 2.00, best p50 2.00"},
		"a round left out": {series{0: {10, 10}, 1: {10, 10}, 2: {10, 30}}, series{0: {10, 10}, 2: {10, 10}},
			"2.000, too few rounds for an interval, the median of 2 paired rounds; min 1.00, best p50 1.00"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ratio(c.ours, c.theirs); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	tools := []benchTool{pingerTool("p"), sfntTool("s"), sockperfTool(), netperfTool()}
	one := series{0: {9000, 9400}}
	var out bytes.Buffer
	report(&out, modes, tools, map[string]map[string]series{"tcp-spin": {"pinger": one, "sockperf": one, "netperf": one}})
	for want, found := range map[string]bool{"RATIO tcp-spin to sockperf: 1.000, ": true, "RATIO tcp-spin to netperf": false, "sfnt": false} {
		if strings.Contains(out.String(), want) != found {
			t.Errorf("%q: %t in\n%s", want, !found, &out)
		}
	}
}

func TestSeries(t *testing.T) {
	s := series{0: {1, 30}, 1: {2, 10}, 3: {3, 20}}
	if s.best() != (latency{1, 10}) || median(s.p50()) != 20 {
		t.Errorf("best %+v, medians %v", s.best(), s.p50())
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
	for _, args := range [][]string{{"-modes", "tcp"}, {"-rounds", "0"}, {"-duration", "10ms"}, {"-size", "1"}, {"extra"}, {"-no-such-flag"}} {
		var out, said bytes.Buffer
		if err := run(t.Context(), args, &out, &said); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
