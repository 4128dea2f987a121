package localcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// wantedControllers lists the controllers that the kubelet uses for pods, if the kernel has them.
var wantedControllers = []string{"cpuset", "cpu", "io", "memory", "hugetlb", "pids"}

// hierarchy is a mounted cgroup tree.
type hierarchy struct {
	Dir string
	// V2 marks the unified hierarchy.
	V2 bool
	// CPUSet marks a version 1 hierarchy with the cpuset controller.
	CPUSet bool
}

// hierarchies lists all cgroup trees of the host.
func hierarchies() ([]hierarchy, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	return findHierarchies(parseMountInfo(string(content))), nil
}

func findHierarchies(mounts []mount) []hierarchy {
	var found []hierarchy
	for _, m := range mounts {
		// Other mounts, inside chroots and containers, are further views of the same trees.
		if m.Point != "/sys/fs/cgroup" && filepath.Dir(m.Point) != "/sys/fs/cgroup" {
			continue
		}
		switch m.FSType {
		case "cgroup":
			options := strings.Split(m.Super, ",")
			found = append(found, hierarchy{Dir: m.Point, CPUSet: slices.Contains(options, "cpuset")})
		case "cgroup2":
			found = append(found, hierarchy{Dir: m.Point, V2: true})
		}
	}
	return found
}

// ensureCgroups creates the parent cgroup of the node's pods in every hierarchy.
func ensureCgroups(p paths, n node) error {
	found, err := hierarchies()
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("no cgroup hierarchy is mounted under /sys/fs/cgroup")
	}
	for _, h := range found {
		dir := filepath.Join(h.Dir, n.cgroup())
		if h.V2 {
			if err := enableControllers(p, h.Dir); err != nil {
				return err
			}
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("creating cgroup %s: %w", dir, err)
		}
		if h.V2 {
			if err := enableControllers(p, dir); err != nil {
				return err
			}
		}
		if h.CPUSet { // A new version 1 cpuset is empty, and no process can enter it.
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				value, err := os.ReadFile(filepath.Join(h.Dir, file))
				if err != nil {
					return fmt.Errorf("reading what cgroup %s may use: %w", dir, err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
					return fmt.Errorf("setting what cgroup %s may use: %w", dir, err)
				}
			}
		}
	}
	return nil
}

// enableControllers enables the wanted controllers for the children of a version 2 cgroup. It notes controllers that it
// enabled in the root, so that Down disables them again.
func enableControllers(p paths, dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("reading the controllers of cgroup %s: %w", dir, err)
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	enabled, err := os.ReadFile(control)
	if err != nil {
		return fmt.Errorf("reading the controllers of cgroup %s: %w", dir, err)
	}
	for _, name := range missingControllers(string(available), string(enabled)) {
		if !strings.HasPrefix(filepath.Base(dir), p.cgroupPrefix()) {
			if err := noteController(p, control, name); err != nil {
				return err
			}
		}
		if err := os.WriteFile(control, []byte("+"+name), 0o644); err != nil {
			return fmt.Errorf("enabling controller %s in cgroup %s: %w", name, dir, err)
		}
	}
	return nil
}

// missingControllers returns the wanted controllers that are available and not enabled.
func missingControllers(available, enabled string) []string {
	var missing []string
	for _, name := range wantedControllers {
		if slices.Contains(strings.Fields(available), name) && !slices.Contains(strings.Fields(enabled), name) {
			missing = append(missing, name)
		}
	}
	return missing
}

func controllerNotes(p paths) string { return p.join("enabled-controllers") }

func noteController(p paths, control, name string) error {
	f, err := os.OpenFile(controllerNotes(p), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("noting an enabled controller: %w", err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, control, name); err != nil {
		return fmt.Errorf("noting an enabled controller: %w", err)
	}
	return nil
}

// removeCgroups removes the cgroups of all nodes, in which no process may be left, and restores the controllers of the
// root of a version 2 hierarchy.
func removeCgroups(p paths) error {
	found, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range found {
		tops, err := filepath.Glob(filepath.Join(h.Dir, p.cgroupPrefix()+"*"))
		if err != nil {
			return fmt.Errorf("looking for cgroups: %w", err)
		}
		for _, top := range tops {
			errs = append(errs, removeCgroup(top))
		}
	}
	return errors.Join(append(errs, restoreControllers(p))...)
}

// restoreControllers disables the controllers that enableControllers enabled in the root of a hierarchy.
func restoreControllers(p paths) error {
	notes, err := os.ReadFile(controllerNotes(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading which controllers were enabled: %w", err)
	}
	var errs []error
	for line := range strings.Lines(string(notes)) {
		control, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		// A controller that another process uses meanwhile stays enabled.
		if err := os.WriteFile(control, []byte("-"+name), 0o644); err != nil && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, fmt.Errorf("disabling controller %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// removeCgroup removes a cgroup with its children.
func removeCgroup(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("listing cgroup %s: %w", top, err)
	}
	for _, dir := range slices.Backward(dirs) {
		// A cgroup is busy until the kernel has removed the last of its killed processes.
		deadline := time.Now().Add(5 * time.Second)
		for {
			err := unix.Rmdir(dir)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				return fmt.Errorf("removing cgroup %s: %w", dir, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}
