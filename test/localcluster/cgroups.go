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
	// Root is the path of the cgroup at Dir in the reader's cgroup namespace.
	Root string
}

// hierarchies lists all cgroup trees of the host, or of the container.
func hierarchies() ([]hierarchy, error) {
	content, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	var visible []hierarchy
	for _, h := range findHierarchies(parseMountInfo(string(content))) {
		magic := int64(unix.CGROUP_SUPER_MAGIC)
		if h.V2 {
			magic = unix.CGROUP2_SUPER_MAGIC
		}
		same := func(other hierarchy) bool { return other.Dir == h.Dir }
		if isMountOf(h.Dir, magic) { // and not hidden by a later mount, as of a container
			visible = append(slices.DeleteFunc(visible, same), h)
		}
	}
	return visible, nil
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
			found = append(found, hierarchy{Dir: m.Point, Root: m.Root, CPUSet: slices.Contains(options, "cpuset")})
		case "cgroup2":
			found = append(found, hierarchy{Dir: m.Point, Root: m.Root, V2: true})
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
		if !slices.Contains(p.cgroups(), filepath.Base(dir)) {
			if err := noteController(p, control, name); err != nil {
				return err
			}
		}
		err := os.WriteFile(control, []byte("+"+name), 0o644)
		for range vacateAttempts {
			if !errors.Is(err, unix.EBUSY) {
				break
			}
			// The root of a container's tree is not the root of the machine's, and only that one may have both processes and controllers.
			if err := vacate(p, dir); err != nil {
				return err
			}
			err = os.WriteFile(control, []byte("+"+name), 0o644)
		}
		if err != nil {
			return fmt.Errorf("enabling controller %s in cgroup %s: %w", name, dir, err)
		}
	}
	return nil
}

const (
	// vacateAttempts is how often the processes of a cgroup are moved, because they start others meanwhile.
	vacateAttempts = 20
	// vacated is the name of the cgroup for the processes of the root of a container's tree.
	vacated = "tailgate-init"
)

// vacatedNote names the cgroup whose processes were moved.
func vacatedNote(p paths) string { return p.join("vacated-cgroup") }

// vacate moves all processes of a version 2 cgroup into a child, as kind and docker in docker do. Down moves them back.
func vacate(p paths, dir string) error {
	if err := os.WriteFile(vacatedNote(p), []byte(note(dir)), 0o644); err != nil {
		return fmt.Errorf("noting that processes leave cgroup %s: %w", dir, err)
	}
	child := filepath.Join(dir, vacated)
	if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making a cgroup for the processes of %s: %w", dir, err)
	}
	if err := moveProcesses(dir, child); err != nil {
		return fmt.Errorf("controllers can only be enabled in a cgroup without processes: %w", err)
	}
	return nil
}

// moveProcesses moves all processes of a version 2 cgroup to another one.
func moveProcesses(from, to string) error {
	content, err := os.ReadFile(filepath.Join(from, "cgroup.procs"))
	if err != nil {
		return fmt.Errorf("listing the processes of cgroup %s: %w", from, err)
	}
	for _, pid := range strings.Fields(string(content)) {
		if pid == "0" {
			return fmt.Errorf("cgroup %s has a process from outside of this container; start the container with --cgroupns=private, "+
				"and without --pid or with --pid=host", from)
		}
		if err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(pid), 0o644); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("moving process %s from cgroup %s to %s: %w", pid, from, to, err)
		}
	}
	return nil
}

// unvacate undoes vacate. If another program has enabled controllers meanwhile, the processes stay where they are.
func unvacate(p paths) error {
	text, err := os.ReadFile(vacatedNote(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading whose processes were moved: %w", err)
	}
	dir, valid := noted(string(text))
	if !valid {
		return nil
	}
	child := filepath.Join(dir, vacated)
	// The cgroup is busy until the kernel has removed the last of the cluster's killed processes.
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = moveProcesses(child, dir); err == nil {
			err = unix.Rmdir(child)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("moving processes back to cgroup %s: %w", dir, err)
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
	if _, err := fmt.Fprintln(f, note(control+" "+name)); err != nil {
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
		for _, name := range p.cgroups() {
			errs = append(errs, removeCgroup(filepath.Join(h.Dir, name)))
		}
	}
	return errors.Join(append(errs, restoreControllers(p), unvacate(p))...)
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
		if text, valid := noted(strings.TrimSpace(line)); valid {
			control, name, _ := strings.Cut(text, " ")
			errs = append(errs, DisableController(control, name))
		}
	}
	return errors.Join(errs...)
}

// DisableController disables a controller for the children of a version 2 cgroup, which its file cgroup.subtree_control names. It stays
// enabled if another program uses it meanwhile, because that program's settings would be lost.
func DisableController(control, name string) error {
	used, err := usesController(filepath.Dir(control), name)
	if err != nil || used {
		return err
	}
	if err := os.WriteFile(control, []byte("-"+name), 0o644); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("disabling controller %s: %w", name, err)
	}
	return nil
}

// usesController reports whether a child of a cgroup has other settings of a controller than a new child has.
func usesController(dir, name string) (bool, error) {
	fresh, err := os.MkdirTemp(dir, "tailgate-compare-")
	if err != nil {
		return false, fmt.Errorf("making a cgroup to compare with: %w", err)
	}
	defer func() { _ = unix.Rmdir(fresh) }()
	files, err := filepath.Glob(filepath.Join(fresh, name+".*"))
	if err != nil {
		return false, fmt.Errorf("listing the settings of controller %s: %w", name, err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		kind := filepath.Ext(file)
		if err != nil || info.Mode().Perm()&0o600 != 0o600 || kind == ".pressure" || kind == ".peak" { // These are no settings.
			continue
		}
		usual, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		others, err := filepath.Glob(filepath.Join(dir, "*", filepath.Base(file)))
		if err != nil {
			return false, fmt.Errorf("listing the settings of controller %s: %w", name, err)
		}
		for _, other := range others {
			if set, err := os.ReadFile(other); err == nil && string(set) != string(usual) {
				return true, nil
			}
		}
	}
	return false, nil
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
