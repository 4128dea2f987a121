package environment

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFilesOfTheCaller starts a command while this process has a file that it inherited, such as a lock of flock(1).
func TestFilesOfTheCaller(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil { // as exec leaves it
		t.Fatal(err)
	}
	inherited := func() bool {
		return exec.Command("sh", "-c", `for fd in /proc/$$/fd/*; do [ "$(readlink "$fd")" != "$0" ] || exit 0; done; exit 1`, f.Name()).Run() == nil
	}
	if !inherited() {
		t.Fatal("the test does not show what a child inherits")
	}
	keepFiles()
	if inherited() {
		t.Error("a child inherits the caller's file")
	}
}
