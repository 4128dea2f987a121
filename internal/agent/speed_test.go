package agent

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The speed of a CPU is a frequency that CPUs have, measured in a few milliseconds, and the thread keeps its affinity.
func TestSpeed(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !before.IsSet(cpu) {
		cpu++
	}
	mhz := speed(cpu)
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		if mhz != 0 {
			t.Errorf("an architecture without additions: %d MHz", mhz)
		}
		return
	}
	if mhz < 100 || mhz > 10_000 {
		t.Errorf("the CPU runs at %d MHz", mhz)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || before != after {
		t.Errorf("the affinity changed from %v to %v: %v", before, after, err)
	}
}

// A CPU that the agent may not use has an unknown speed.
func TestSpeedOfAForeignCPU(t *testing.T) {
	if mhz := speed(1023); mhz != 0 {
		t.Errorf("CPU 1023 runs at %d MHz", mhz)
	}
}

// Each addition needs the one before, so that twice as many take twice as long.
func TestAdditions(t *testing.T) {
	fastest := func(n int64) time.Duration {
		best := time.Hour
		for range 200 {
			begin := time.Now()
			additions(n)
			best = min(best, time.Since(begin))
		}
		return best
	}
	one, four := fastest(batch), fastest(4*batch)
	if runtime.GOARCH == "amd64" && (four < 3*one || four > 5*one) {
		t.Errorf("%d additions took %s, and four times as many %s", batch, one, four)
	}
}
