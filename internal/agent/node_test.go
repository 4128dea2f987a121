package agent

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sleeper returns the process ID of a process with these namespaces of its own, which runs until the test ends.
func sleeper(t *testing.T, namespaces uintptr) int {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), helperVariable+"=sleep")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	return child.Process.Pid
}

// An inspection from the node enters a network only if all processes of the container have it.
func TestNetworkOfAContainer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making network namespaces takes root")
	}
	ours := []int{sleeper(t, 0), sleeper(t, 0)}
	theirs := []int{sleeper(t, syscall.CLONE_NEWNET), sleeper(t, syscall.CLONE_NEWNET)}
	const none = 1 << 30 // above any process ID
	for name, c := range map[string]struct {
		pids []int
		want string
	}{
		"one process":                         {ours[:1], ""},
		"all have one":                        {ours, ""},
		"one of another network":              {theirs[:1], ""},
		"one has ended":                       {[]int{ours[0], none, ours[1]}, ""},
		"the second has another":              {[]int{ours[0], theirs[0]}, "several network namespaces"},
		"the first has another":               {[]int{theirs[0], ours[0]}, "several network namespaces"},
		"only the last has another":           {[]int{ours[0], ours[1], theirs[0]}, "several network namespaces"},
		"another, then the first one's again": {[]int{ours[0], theirs[0], ours[1]}, "several network namespaces"},
		"each has its own":                    {theirs, "several network namespaces"},
		"the first has ended":                 {[]int{none, ours[0]}, "opening the network of the container"},
	} {
		t.Run(name, func(t *testing.T) {
			network, err := networkOf(c.pids)
			if network != nil {
				defer network.Close()
			}
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got, want unix.Stat_t
			if err := unix.Fstat(int(network.Fd()), &got); err != nil {
				t.Fatal(err)
			}
			if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", c.pids[0]), &want); err != nil || got.Ino != want.Ino || got.Dev != want.Dev {
				t.Errorf("namespace %d, want %d, %v", got.Ino, want.Ino, err)
			}
		})
	}
}

// After execve, an inspection from the node has the two capabilities that read processes, whatever the pod's runtime made
// inheritable, and can get no other.
func TestDropCapabilities(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("dropping capabilities takes root")
	}
	type sets struct{ inheritable, permitted, effective, bounding, ambient uint64 }
	parse := func(status string) (s sets) {
		for key, to := range map[string]*uint64{"CapInh": &s.inheritable, "CapPrm": &s.permitted, "CapEff": &s.effective, "CapBnd": &s.bounding, "CapAmb": &s.ambient} {
			_, rest, _ := strings.Cut(status, key+":\t")
			value, _, _ := strings.Cut(rest, "\n")
			var err error
			if *to, err = strconv.ParseUint(value, 16, 64); err != nil {
				t.Error(err)
			}
		}
		return s
	}
	const reads = uint64(1)<<unix.CAP_DAC_READ_SEARCH | uint64(1)<<unix.CAP_SYS_PTRACE
	var before, after, child sets
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- func() error {
			status, err := os.ReadFile("/proc/thread-self/status")
			if err != nil {
				return err
			}
			before = parse(string(status))
			all := [2]unix.CapUserData{}
			for i := range all {
				set := uint32(before.permitted >> (32 * i))
				all[i] = unix.CapUserData{Effective: set, Permitted: set, Inheritable: set}
			}
			if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &all[0]); err != nil {
				return err
			}
			if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_ADMIN, 0, 0); err != nil {
				t.Logf("no ambient capability: %v", err)
			}
			if err := dropCapabilities(); err != nil {
				return err
			}
			if status, err = os.ReadFile("/proc/thread-self/status"); err != nil {
				return err
			}
			after = parse(string(status))
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), helperVariable+"=capabilities")
			status, err = cmd.Output()
			child = parse(string(status))
			return err
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := (sets{bounding: before.bounding & reads}); after != want {
		t.Errorf("before execve: %+x, want %+x", after, want)
	}
	if both := before.bounding & reads; child != (sets{permitted: both, effective: both, bounding: both}) {
		t.Errorf("after execve: %+x, want %x", child, both)
	}
}
