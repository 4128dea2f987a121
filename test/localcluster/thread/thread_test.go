package thread

import (
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFirstThreadStaysAsItIs changes the umask of threads, for many goroutines, some of which are on the first thread.
func TestFirstThreadStaysAsItIs(t *testing.T) {
	before := umask(t)
	var first atomic.Int32
	for range 300 {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if unix.Gettid() == os.Getpid() {
					first.Add(1)
				}
				err := Run(func() error {
					if err := unix.Unshare(unix.CLONE_FS); err != nil { // Its umask is its own from now on.
						return err
					}
					unix.Umask(0o757)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	if after := umask(t); after != before {
		t.Errorf("the first thread had %q, and has %q", before, after)
	}
	t.Logf("%d of 1200 goroutines began on the first thread", first.Load())
}

// umask returns the line about the umask of the first thread.
func umask(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Umask:") {
			return line
		}
	}
	t.Fatal("the kernel does not show the umask")
	return ""
}
