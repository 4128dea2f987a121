package tool

import (
	"math"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Clocks are how far clocks advanced around the client's process; 0: unknown.
type Clocks struct {
	// Raw is the time by CLOCK_MONOTONIC_RAW, which nothing corrects while the machine is up.
	Raw time.Duration
	// Monotonic is CLOCK_MONOTONIC, with a corrected rate; Wall CLOCK_REALTIME, also set.
	Monotonic, Wall time.Duration
	// Ticks is the number of ticks of the CPU's time stamp counter.
	Ticks int64
	// Waited is how long the client was ready to run without a CPU.
	Waited time.Duration
}

// The bounds of the checks. An NTP client corrects a clock's rate by up to 0.05 % always, and up to
// 10 % while it slews; 100 calibrations of sfnt-pingpong on a busy machine differed by less than
// 0.0001 %. A kernel timer ends a measurement, never early, but late without a CPU: by up to 120 ms
// on a machine with twice its work.
const (
	// steady is the largest share by which clocks may differ, reading the readings'.
	steady  = 0.001
	reading = time.Millisecond
	// early or earlyBy a run may seem too short; late and lateBy too long, besides Waited.
	early, earlyBy = 0.005, 10 * time.Millisecond
	late, lateBy   = 0.01, 30 * time.Millisecond
)

func share(d time.Duration, of float64) time.Duration { return time.Duration(of * float64(d)) }

// CheckSteady returns a Failure if a tool's clock was set, or its rate was wrong; it advanced ran.
func (c Clocks) CheckSteady(tool string, ran time.Duration) error {
	if c.Raw == 0 || ran == 0 || (ran-c.Raw).Abs() <= share(c.Raw, steady)+reading {
		return nil
	}
	// A container may not ask the kernel (adjtimex) how a rate is corrected.
	return Fail(v1alpha1.OutcomeClockWrong, "%s ran for %s, but the clock by which it measures advanced by %s, by %+.0f ppm: it was set or slewed, or NTP corrects "+
		"its rate for good, because the kernel calibrated its counter wrongly when it booted; measure when NTP has synchronized the node's clock, and if the difference "+
		"stays the same (adjtimex and chronyc tracking show it), boot the node again, or use pinger, which measures by the clock that is not corrected",
		tool, c.Raw.Round(time.Microsecond), ran.Round(time.Microsecond), 1e6*float64(ran-c.Raw)/float64(c.Raw))
}

// CheckTicks returns a Failure if a tool calibrated its counter wrongly, to hz: all is off.
func (c Clocks) CheckTicks(tool string, hz int64) error {
	if c.Raw == 0 || c.Ticks == 0 {
		return nil
	}
	right := float64(c.Ticks) / c.Raw.Seconds()
	if math.Abs(float64(hz)-right) <= steady*right+right*reading.Seconds()/c.Raw.Seconds() {
		return nil
	}
	return Fail(v1alpha1.OutcomeClockWrong, "%s calibrated the CPU's time stamp counter to %d ticks a second, but it made %.0f: "+
		"the tool lost its CPU during the calibration, or the counter is not constant", tool, hz, right)
}

// CheckRun returns a Failure if the time that a tool says it measured is not the requested one, or
// exceeds its process's life. spare is how long it may have waited for data afterwards.
func (c Clocks) CheckRun(tool string, said, requested, spare time.Duration) error {
	least := requested - share(requested, early) - earlyBy
	most := requested + share(requested, late) + lateBy + spare + c.Waited
	why := "its clock was set or slewed, or it lost its CPU while it calibrated the clock"
	switch {
	case said < least && c.Raw > 0 && c.Raw < least:
		return Failf("%s ended after %s of %s: did its server end?", tool, said, requested)
	case c.Raw > 0 && said > c.Raw+share(c.Raw, steady)+reading:
		return Fail(v1alpha1.OutcomeClockWrong, "%s says that it measured for %s, but its process existed for %s: %s", tool, said, c.Raw.Round(time.Millisecond), why)
	case said < least || said > most:
		return Fail(v1alpha1.OutcomeClockWrong, "%s says that it measured for %s of %s: %s", tool, said, requested, why)
	}
	return nil
}
