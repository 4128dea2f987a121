package localcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// keptFile lists what was in the state folder before the cluster. It exists if the folder did.
func (p paths) keptFile() string { return p.join("kept") }

// claimFolder makes the state folder. If there is one already, such as a disk that the user mounted or a link, it belongs to the user:
// claimFolder notes what is in it, and Down keeps both.
func claimFolder(p paths) error {
	err := os.Mkdir(p.state, 0o755)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the state folder: %w", err)
	}
	entries, err := os.ReadDir(p.state)
	if err != nil {
		return fmt.Errorf("looking into the state folder: %w", err)
	}
	kept := []string{}
	for _, e := range entries {
		kept = append(kept, e.Name())
	}
	for _, own := range []string{"bin", "etcd", "ipam", "logs", "node-a", "node-b", "ns", "pki", "worker-1", "worker-2"} {
		if slices.Contains(kept, own) {
			return fmt.Errorf("%s is not from this cluster, which needs the name: move it", p.join(own))
		}
	}
	text, err := json.Marshal(kept)
	if err == nil {
		err = os.WriteFile(p.keptFile(), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("noting what is in the state folder: %w", err)
	}
	return nil
}

// removeFolder removes the state folder, or the cluster's files in a folder of the user.
func removeFolder(p paths) error {
	kept, err := keptEntries(p)
	if err != nil {
		return err
	}
	if kept == nil {
		if foreign, err := linkOrMount(p.state); err != nil || foreign {
			return err // No cluster was here.
		}
		return os.RemoveAll(p.state)
	}
	entries, err := os.ReadDir(p.state)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if path := p.join(e.Name()); path != p.keptFile() && !slices.Contains(kept, e.Name()) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(p.keptFile()) // last, because a repetition needs it
}

// keptEntries returns what was in the state folder before the cluster, or nil if the folder is the cluster's.
func keptEntries(p paths) (kept []string, err error) {
	text, err := os.ReadFile(p.keptFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was in the state folder: %w", err)
	}
	return kept, nil
}

// note returns the text of a note about what the kernel has, such as a mount: it holds until the next boot, after which the same name
// can belong to another program.
func note(text string) string { return bootID() + " " + text }

// noted returns what a note says, and false if it is of an earlier boot.
func noted(note string) (text string, valid bool) {
	boot, text, _ := strings.Cut(note, " ")
	return text, boot == bootID()
}

// bootID returns the ID of the machine's boot.
func bootID() string {
	content, _ := os.ReadFile(bootPath) // look.sh requires the file.
	return strings.TrimSpace(string(content))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// linkOrMount reports whether a folder is a symbolic link or a mount point.
func linkOrMount(dir string) (bool, error) {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || info.Mode()&fs.ModeSymlink != 0 {
		return err == nil, err
	}
	points, err := mountsUnder(dir)
	return slices.Contains(points, filepath.Clean(dir)), err
}
