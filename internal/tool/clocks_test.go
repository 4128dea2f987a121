package tool

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

func TestClocks(t *testing.T) {
	const ms = time.Millisecond
	ran := func(requested, said, raw, waited, spare time.Duration) error {
		return Clocks{Raw: raw, Waited: waited}.CheckRun("x", said, requested, spare)
	}
	of := Clocks{Raw: 4000 * ms, Monotonic: 4000 * ms, Wall: 4000 * ms, Ticks: 10_000_000_000}
	slewed, set, unknown := of, of, of
	slewed.Monotonic += 6 * ms
	set.Wall -= 6 * ms
	unknown.Monotonic, unknown.Wall, unknown.Ticks = 0, 0, 0
	for name, c := range map[string]struct {
		err    error
		reason string
		says   string
	}{
		"as requested":                        {ran(2000*ms, 2000*ms, 0, 0, 0), "", ""},
		"2 % early":                           {ran(2000*ms, 1960*ms, 2100*ms, 0, 0), v1alpha1.OutcomeClockWrong, "1.96s of 2s"},
		"1 % early":                           {ran(2000*ms, 1980*ms, 0, 0, 0), "", ""},
		"it really ended early":               {ran(2000*ms, 1500*ms, 1600*ms, 0, 0), v1alpha1.OutcomeToolFailed, "ended after 1.5s of 2s"},
		"late":                                {ran(2000*ms, 2050*ms, 0, 0, 0), "", ""},
		"too late":                            {ran(2000*ms, 2051*ms, 2500*ms, 0, 0), v1alpha1.OutcomeClockWrong, "2.051s of 2s"},
		"too late for it waited for its CPU":  {ran(2000*ms, 2150*ms, 2500*ms, 100*ms, 0), "", ""},
		"too late for its data were queued":   {ran(2000*ms, 2150*ms, 2500*ms, 0, 100*ms), "", ""},
		"for longer than the process existed": {ran(2000*ms, 2040*ms, 2030*ms, time.Second, 0), v1alpha1.OutcomeClockWrong, "existed for 2.03s"},
		"clocks that agree":                   {errors.Join(of.CheckSteady("x", of.Monotonic), of.CheckSteady("x", of.Wall), of.CheckTicks("x", 2_500_000_000)), "", ""},
		"a slewed clock":                      {slewed.CheckSteady("x", slewed.Monotonic), v1alpha1.OutcomeClockWrong, "advanced by 4.006s, by +1500 ppm"},
		"a clock that was set":                {set.CheckSteady("x", set.Wall), v1alpha1.OutcomeClockWrong, "advanced by 3.994s"},
		"the wall clock is not the other":     {set.CheckSteady("x", set.Monotonic), "", ""},
		"0.1 % off":                           {of.CheckTicks("x", 2_502_500_000), "", ""},
		"0.2 % too high":                      {of.CheckTicks("x", 2_505_000_000), v1alpha1.OutcomeClockWrong, "it made 2500000000"},
		"0.2 % too low":                       {of.CheckTicks("x", 2_495_000_000), v1alpha1.OutcomeClockWrong, "2495000000 ticks"},
		"clocks that are unknown":             {errors.Join(unknown.CheckSteady("x", unknown.Monotonic), unknown.CheckSteady("x", unknown.Wall), unknown.CheckTicks("x", 1)), "", ""},
		"few unknown latencies":               {CheckUnrecorded("x", 100, 900, "why"), "", ""},
		"too many":                            {CheckUnrecorded("x", 101, 900, "why"), v1alpha1.OutcomeSamplesMissing, "the latency of 101 others is unknown, more than 10 %: why"},
		"nothing but unknown latencies":       {CheckUnrecorded("x", 1, 0, "why"), v1alpha1.OutcomeSamplesMissing, "why"},
	} {
		t.Run(name, func(t *testing.T) {
			var f *Failure
			if !errors.As(c.err, &f) {
				f = &Failure{}
			}
			if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %s: %v; want %s, %q", f.Reason, c.err, c.reason, c.says)
			}
		})
	}
}
