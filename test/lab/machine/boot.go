package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

const (
	// MaxBoots is the maximum number of starts of a guest that does not boot.
	MaxBoots = 3
	// IdleLimit is the maximum time for which a booting guest may be idle.
	IdleLimit = 20 * time.Second
	// bootLimit limits the time until a guest's first process answers. It is many times the usual duration on a busy machine.
	bootLimit = 10 * time.Minute
	// idle is the maximum CPU usage of an idle guest: the sum over its threads of the share of time in which they run or wait for a
	// CPU. A guest that hangs has 0.1 to 0.2, a booting guest 1 or more.
	idle = 0.5
)

// ErrNoBoot is the error of a guest that did not boot and can be started again: QEMU's emulation may lose a guest's access to a device
// while another of its CPUs changes the memory map, as a kernel does for each PCI device. If the lost access is the end of a timer
// interrupt, the guest hangs.
var ErrNoBoot = errors.New("the guest did not boot")

// Boot calls start, which starts a guest. It repeats the call if the guest does not boot, up to MaxBoots calls in total.
func Boot(log io.Writer, start func() error) error {
	for n := 1; ; n++ {
		err := start()
		if !errors.Is(err, ErrNoBoot) || n == MaxBoots {
			return err
		}
		fmt.Fprintf(log, "%v; it is started again\n", err)
	}
}

// Booting returns a context for the boot of a guest, which is a process. The context ends with the cause ErrNoBoot when the guest has
// been idle for idleLimit, or takes too long.
func Booting(ctx context.Context, pid int, idleLimit time.Duration) (context.Context, context.CancelFunc) {
	limited, stop := context.WithTimeoutCause(ctx, bootLimit, fmt.Errorf("%w within %s", ErrNoBoot, bootLimit))
	booting, cancel := context.WithCancelCause(limited)
	go func() {
		before := threads(pid)
		for ticker := time.Tick(idleLimit); ; {
			select {
			case <-booting.Done():
				return
			case <-ticker:
			}
			now := threads(pid)
			var active time.Duration
			for thread, t := range now {
				active += t - before[thread]
			}
			if len(now) > 0 && active < time.Duration(idle*float64(idleLimit)) {
				cancel(fmt.Errorf("%w: its threads ran, or waited for a CPU, for only %s of %s", ErrNoBoot, active.Round(time.Millisecond), idleLimit))
			}
			before = now
		}
	}()
	return booting, func() { cancel(nil); stop() }
}

// threads returns the time for which each thread of a process ran or waited for a CPU, by the thread's file. The result is empty if the
// process has ended, or if the kernel does not count these times: then the file is missing or contains zeros.
func threads(pid int) map[string]time.Duration {
	times := map[string]time.Duration{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is valid
	for _, file := range files {
		var ran, waited time.Duration
		if content, err := os.ReadFile(file); err == nil { // otherwise, the thread has ended meanwhile
			if _, err := fmt.Sscan(string(content), &ran, &waited); err == nil && ran > 0 {
				times[file] = ran + waited
			}
		}
	}
	return times
}
