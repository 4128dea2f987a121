package agent

import (
	"math"

	"golang.org/x/sys/unix"
)

const (
	// batch is the number of additions that are timed together: about 50 µs, in which few interrupts fall. batches is the number of
	// these, however long one of them is interrupted.
	batch   = 200_000
	batches = 20
	// mostMHz bounds what is believed.
	mostMHz = 20_000
)

// speed returns how many million dependent additions a CPU does in a second, which is its frequency in MHz, as the raw clock of the
// kernel measures it; 0 if that is unknown. The fastest batch counts, because an interrupt, the other thread of the core or a
// hypervisor can only make one slower. No privilege is needed, unlike for the CPU's own counters of cycles.
func speed(cpu int) int32 {
	fastest := int64(math.MaxInt64)
	err := onCPUs([]int{cpu}, func() error {
		now := nanoseconds(unix.CLOCK_MONOTONIC_RAW)
		for range batches {
			additions(batch)
			after := nanoseconds(unix.CLOCK_MONOTONIC_RAW)
			fastest, now = min(fastest, after-now), after
			if fastest <= 0 { // no clock
				return unix.ENOSYS
			}
		}
		return nil
	})
	if err != nil || batch*1000/fastest > mostMHz {
		return 0
	}
	return int32(batch * 1000 / fastest)
}
