package agent

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

type clocks struct {
	raw, monotonic, wall, boot, ticks int64
}

const apart, readings = 5_000, 20 // ns for a reading of all clocks, and how often to try

func readClocks() clocks {
	var best clocks
	fastest := int64(-1)
	for range readings {
		begin := nanoseconds(unix.CLOCK_MONOTONIC_RAW)
		now := clocks{
			ticks: ticks(), monotonic: nanoseconds(unix.CLOCK_MONOTONIC), wall: nanoseconds(unix.CLOCK_REALTIME), boot: nanoseconds(unix.CLOCK_BOOTTIME),
		}
		took := nanoseconds(unix.CLOCK_MONOTONIC_RAW) - begin
		if now.raw = begin + took/2; fastest < 0 || took < fastest {
			best, fastest = now, took
		}
		if fastest < apart {
			break
		}
	}
	return best
}

// nanoseconds returns the time of a clock, 0 if the kernel does not have it.
func nanoseconds(clock int32) int64 {
	var t unix.Timespec
	if unix.ClockGettime(clock, &t) != nil {
		return 0
	}
	return t.Nano()
}

func (c clocks) since(before clocks) tool.Clocks {
	return tool.Clocks{
		Raw: time.Duration(c.raw - before.raw), Monotonic: time.Duration(c.monotonic - before.monotonic),
		Wall: time.Duration(c.wall - before.wall), Ticks: c.ticks - before.ticks,
	}
}

const (
	batch   = 200_000 // additions timed together: about 50 µs, with few interrupts
	batches = 20
	mostMHz = 20_000
)

// speed returns MHz, by dependent additions; 0: unknown. Disturbances only make a batch slower.
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
