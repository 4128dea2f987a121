package localcluster

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// TestPlainMemoryAndInput starts a child from a thread as numactl, ionice, setarch and a service with another timer slack leave it.
func TestPlainMemoryAndInput(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root is needed")
	}
	err := thread.Run(func() error {
		first := uint64(1)
		for name, call := range map[string][4]uintptr{
			"numactl --membind=0": {unix.SYS_SET_MEMPOLICY, unix.MPOL_BIND, uintptr(unsafe.Pointer(&first)), 64},
			"ionice -c 3":         {unix.SYS_IOPRIO_SET, ioprioProcess, 0, 3 << 13},
			"setarch -R":          {unix.SYS_PERSONALITY, 0x0040000, 0, 0},
			"TimerSlackNSec=5ms":  {unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 5_000_000, 0},
		} {
			if _, _, errno := unix.Syscall(call[0], call[1], call[2], call[3]); errno != 0 {
				return fmt.Errorf("%s: %w", name, errno)
			}
		}
		plainPriority()
		priority, _, _ := unix.Syscall(unix.SYS_IOPRIO_GET, ioprioProcess, 0, 0)
		if class := priority >> 13; class == 3 {
			t.Errorf("the I/O priority is %d", priority)
		}
		out, err := exec.Command("sh", "-c", `cat /proc/self/timerslack_ns /proc/self/personality; ! grep bind: /proc/self/numa_maps`).CombinedOutput()
		if want := "50000\n00000000\n"; string(out) != want {
			t.Errorf("a child has %q (%v), want %q", out, err, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
