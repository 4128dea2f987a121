package localcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// requirement is a program or library of the system that the local cluster calls or is built with.
type requirement struct {
	// Package is the package that contains it on Debian and Ubuntu.
	Package string
	Present func() bool
}

func requirements() []requirement {
	command := func(name string) func() bool {
		return func() bool { _, err := exec.LookPath(name); return err == nil }
	}
	return []requirement{
		// The kubelet calls mount and umount.
		{"mount", command("mount")},
		// runc is built with cgo, and with the library for its seccomp filters.
		{"gcc", command("gcc")},
		{"libc6-dev", func() bool { return fileExists("/usr/include/stdlib.h") }},
		{"pkg-config", command("pkg-config")},
		{"libseccomp-dev", func() bool { return exec.Command("pkg-config", "--exists", "libseccomp").Run() == nil }},
	}
}

// ensurePackages installs missing system packages if the system has apt-get.
func ensurePackages(ctx context.Context, o Options) error {
	var missing []string
	for _, r := range requirements() {
		if !r.Present() {
			missing = append(missing, r.Package)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	list := strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("these packages (by their Debian names) are needed, please install them: %s", list)
	}
	fmt.Fprintf(o.log(), "installing %s\n", list)
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, missing...)} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"--quiet"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s; please install these packages: %s", args[0], err, tail(string(output), 1), list)
		}
	}
	return nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
