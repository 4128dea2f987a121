//go:build e2e

package localcluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestControllersOfOthers enables a controller as a cluster does, which another program then uses, or which an earlier boot had enabled.
func TestControllersOfOthers(t *testing.T) {
	trees, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(trees, func(h hierarchy) bool {
		available, err := os.ReadFile(filepath.Join(h.Dir, "cgroup.controllers"))
		return err == nil && slices.Contains(strings.Fields(string(available)), "hugetlb")
	})
	if i < 0 {
		t.Skip("this machine has no controller hugetlb of version 2")
	}
	root := filepath.Join(trees[i].Dir, "tailgate-test")
	top := filepath.Join(trees[i].Dir, "cgroup.subtree_control")
	enabled, err := os.ReadFile(top)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(enabled), "hugetlb") {
		if err := os.WriteFile(top, []byte("+hugetlb"), 0o644); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.WriteFile(top, []byte("-hugetlb"), 0o644) }()
	}
	control := filepath.Join(root, "cgroup.subtree_control")
	for name, tt := range map[string]struct {
		limit, boot string
		want        bool // it stays enabled
	}{
		"without programs":  {},
		"another's limit":   {limit: "4194304", want: true},
		"an earlier boot's": {boot: "0b3c6d9e ", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			other := filepath.Join(root, "other.slice")
			if err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(other, 0o755)); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = errors.Join(unix.Rmdir(other), unix.Rmdir(root)) }()
			p := paths{state: t.TempDir()}
			if err := errors.Join(noteController(p, control, "hugetlb"), os.WriteFile(control, []byte("+hugetlb"), 0o644)); err != nil {
				t.Fatal(err)
			}
			if tt.boot != "" {
				if err := os.WriteFile(controllerNotes(p), []byte(tt.boot+control+" hugetlb\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			limit := filepath.Join(other, "hugetlb.2MB.max")
			if tt.limit != "" {
				if err := os.WriteFile(limit, []byte(tt.limit), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := restoreControllers(p); err != nil {
				t.Error(err)
			}
			left, err := os.ReadFile(control)
			if got := strings.Contains(string(left), "hugetlb"); err != nil || got != tt.want {
				t.Errorf("enabled: %v, want %v (%v)", got, tt.want, err)
			}
			if set, _ := os.ReadFile(limit); tt.limit != "" && strings.TrimSpace(string(set)) != tt.limit {
				t.Errorf("the other program's limit is %q", set)
			}
		})
	}
}

// TestRemoveIn removes another root file system after its run was killed: a process that has it as its root, one of the run outside of it,
// and the cgroup of a cluster in it. Processes and cgroups of others stay.
func TestRemoveIn(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	if err := os.MkdirAll(filepath.Join(root, sitePaths(maxClusters-1).state), 0o755); err != nil {
		t.Fatal(err)
	}
	start := func(args ...string) *exec.Cmd {
		cmd := exec.Command(args[0], args[1:]...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	script := `cd "$1"; mkdir -p usr; mount --bind "$1" "$1"; cd "$1"; mount --bind /usr usr; ln -s usr/lib lib; ln -s usr/lib64 lib64; exec chroot . /usr/bin/sleep 1000`
	inside := start("unshare", "--mount", "sh", "-euc", script, "-", root)
	ofTheRun := start("env", "RUN="+root, "sleep", "1000")
	other := start("env", "RUN="+root+"-2", "sleep", "1000")
	defer func() { _ = errors.Join(other.Process.Kill(), other.Wait()) }()
	for deadline := time.Now().Add(time.Minute); identify(fmt.Sprintf("/proc/%d/root", inside.Process.Pid)) != identify(root); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process does not enter the root")
		}
	}
	trees, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	own, foreign := filepath.Join(trees[0].Dir, site(maxClusters - 1).cgroups()[0]), filepath.Join(trees[0].Dir, site(maxClusters - 1).cgroups()[0]+"gent")
	if err := errors.Join(os.Mkdir(own, 0o755), os.Mkdir(foreign, 0o755)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Rmdir(foreign) }()
	done := make(chan error, 2)
	for _, cmd := range []*exec.Cmd{inside, ofTheRun} {
		go func() { done <- cmd.Wait() }()
	}
	if err := RemoveIn(t.Context(), root, "RUN="+root); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("a process of the run ended with %v", err)
		}
	}
	if exists(root) || exists(own) || !exists(foreign) {
		t.Errorf("the root is there: %v, its cgroup: %v, another's: %v", exists(root), exists(own), exists(foreign))
	}
	if other.ProcessState != nil || !exists(fmt.Sprintf("/proc/%d", other.Process.Pid)) {
		t.Error("a process of another run has ended")
	}
}
