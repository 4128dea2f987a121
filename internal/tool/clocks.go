package tool

import (
	"math"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Clocks are how far clocks of the client's machine advanced from before its process started until after it had ended; 0: unknown.
type Clocks struct {
	// Raw is the time by CLOCK_MONOTONIC_RAW, which nothing corrects while the machine is up.
	Raw time.Duration
	// Monotonic is the time by CLOCK_MONOTONIC, whose rate is corrected, and Wall that by CLOCK_REALTIME, which is also set.
	Monotonic, Wall time.Duration
	// Ticks is the number of ticks of the CPU's time stamp counter.
	Ticks int64
	// Waited is how long the client was ready to run without a CPU.
	Waited time.Duration
}

// The bounds of the checks. An NTP client corrects the rate of a clock by up to 0.05 % all the time, and by up to 10 % while it slews an
// offset; 100 calibrations of sfnt-pingpong on a busy machine differed by less than 0.0001 %. A timer of the kernel ends a measurement,
// never early, but late if the tool does not have its CPU: by up to 120 ms on a machine with twice as much to do as it can.
const (
	// steady is the largest share by which two clocks may differ, and reading how long the readings may be apart.
	steady  = 0.001
	reading = time.Millisecond
	// early is the share, and earlyBy the time, by which a run may seem too short; late and lateBy, too long besides Waited.
	early, earlyBy = 0.005, 10 * time.Millisecond
	late, lateBy   = 0.01, 30 * time.Millisecond
)

func share(d time.Duration, of float64) time.Duration { return time.Duration(of * float64(d)) }

// CheckSteady returns a Failure if the clock of a tool was set, or its rate was wrong; ran is how far it advanced.
func (c Clocks) CheckSteady(tool string, ran time.Duration) error {
	if c.Raw == 0 || ran == 0 || (ran-c.Raw).Abs() <= share(c.Raw, steady)+reading {
		return nil
	}
	return Fail(v1alpha1.OutcomeClockWrong, "%s ran for %s, but the clock by which it measures advanced by %s: it was set or slewed; "+
		"measure when NTP has synchronized the node's clock", tool, c.Raw.Round(time.Microsecond), ran.Round(time.Microsecond))
}

// CheckTicks returns a Failure if a tool calibrated the time stamp counter wrongly, to hz ticks a second: all its latencies are then off.
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

// CheckRun returns a Failure if the time for which a tool says that it measured is not the requested one, or does not fit into the life
// of its process. spare is how long it may have waited for data after its end.
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
