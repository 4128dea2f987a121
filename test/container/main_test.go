//go:build e2e

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRemoveCgroup removes a cgroup with a process that goes on, as one of a container does for a moment whose command was killed.
func TestRemoveCgroup(t *testing.T) {
	trees, err := cgroupTrees()
	if err != nil {
		t.Fatal(err)
	}
	trees = slices.DeleteFunc(trees, func(t tree) bool { return strings.Contains(t.options, "cpuset") }) // whose new cgroups take no process
	dir := filepath.Join(filepath.Dir(trees[0].dir), "tailgate-test-"+strconv.Itoa(os.Getpid()))
	child := filepath.Join(dir, "child")
	if err := os.MkdirAll(child, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := os.WriteFile(filepath.Join(child, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		t.Fatal(err, cmd.Process.Kill())
	}
	if err := removeCgroup(dir, time.Now().Add(time.Minute)); err != nil {
		t.Error(err, cmd.Process.Kill())
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cgroup is left: %v", err)
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the process ended with %v", err)
	}
}
