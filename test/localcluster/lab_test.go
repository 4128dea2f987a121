//go:build e2e

package localcluster

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// otherClusters matches traces of local clusters, which run beside the lab.
var otherClusters = regexp.MustCompile(`tailgate[0-3]?-(node|cp|fabric|a\b|b\b)|tailgate[0-3]\b|tailgate-localcluster(-[0-3])?(/|$|\s)|kubepods`)

// TestLabLeavesNothing starts `make lab`, kills it and all processes of the cluster at each of the moments in LAB_KILLS, such as
// 20s,3m,10m, and compares what is left after Down with what there was.
func TestLabLeavesNothing(t *testing.T) {
	moments := os.Getenv("LAB_KILLS")
	if moments == "" {
		t.Skip("LAB_KILLS names no moments, such as 20s,3m,10m")
	}
	o := Options{Log: t.Output(), Lab: true}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for moment := range strings.SplitSeq(moments, ",") {
		after, err := time.ParseDuration(moment)
		if err != nil {
			t.Fatal(err)
		}
		before := withoutOthers(observeMachine(t))
		lab := exec.Command("make", "lab")
		lab.Dir, lab.SysProcAttr = root, &syscall.SysProcAttr{Setpgid: true}
		var said strings.Builder
		lab.Stdout, lab.Stderr = &said, &said
		if err := lab.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		running, err := findProcesses(ours(o.paths()))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(-lab.Process.Pid, syscall.SIGKILL); err != nil {
			t.Errorf("make lab has ended: %v", err)
		}
		if err := killAll(t.Context(), ours(o.paths())); err != nil {
			t.Fatal(err)
		}
		_ = lab.Wait()
		t.Logf("killed after %s, with %d processes of the cluster; last lines:\n%s", after, len(running), tail(said.String(), 5))
		if err := Down(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		left, err := findProcesses(func(f found) bool { return f.State == o.paths().state })
		if err != nil || len(left) > 0 {
			t.Errorf("processes are left: %v, %v", left, err)
		}
		if diff := cmp.Diff(before, withoutOthers(observeMachine(t))); diff != "" {
			t.Errorf("killed after %s: left behind (-before +after):\n%s", after, diff)
		}
	}
}

func withoutOthers(m traces) traces {
	for _, lines := range []*[]string{&m.Mounts, &m.Netns, &m.Links, &m.Addresses, &m.Routes, &m.Cgroups, &m.Files} {
		*lines = slices.DeleteFunc(*lines, otherClusters.MatchString)
	}
	return m
}
