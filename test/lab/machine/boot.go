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
	// MaxBoots is how often a guest that does not boot is started.
	MaxBoots = 3
	// IdleLimit is for how long a guest that boots may be idle.
	IdleLimit = 20 * time.Second
	// bootLimit is how long a guest may take in all until its first process answers, many times what it takes while this machine does
	// other work.
	bootLimit = 10 * time.Minute
	// idle is the most that the threads of an idle guest together run and wait for a CPU, as a share of the time. A guest that hangs
	// does so for 0.1 to 0.2 of the time, one that boots for 1 and more.
	idle = 0.5
)

// ErrNoBoot is why a guest is started again: QEMU's emulation may lose a guest's access to a device while another of its CPUs
// changes the memory map, as a kernel does for each PCI device. If the lost access is the end of a timer interrupt, the guest hangs.
var ErrNoBoot = errors.New("the guest did not boot")

// Boot calls start, which starts a guest, again if the guest does not boot.
func Boot(log io.Writer, start func() error) error {
	for n := 1; ; n++ {
		err := start()
		if !errors.Is(err, ErrNoBoot) || n == MaxBoots {
			return err
		}
		fmt.Fprintf(log, "%v; it is started again\n", err)
	}
}

// Booting returns a context for as long as a guest, which is a process, may boot. It ends with a cause that is ErrNoBoot when the guest
// has been idle for a while, or takes too long.
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

// threads has, by the thread's file, for how long each thread of a process ran or waited for a CPU. It has no thread of a process that has
// ended, and none if the kernel does not count these times, of which the file is then missing or zero.
func threads(pid int) map[string]time.Duration {
	times := map[string]time.Duration{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is valid
	for _, file := range files {
		var ran, waited time.Duration
		if content, err := os.ReadFile(file); err == nil { // else it has ended meanwhile
			if _, err := fmt.Sscan(string(content), &ran, &waited); err == nil && ran > 0 {
				times[file] = ran + waited
			}
		}
	}
	return times
}
