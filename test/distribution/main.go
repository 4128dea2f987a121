// Command distribution runs make demo in the root file system of another Debian release, with that release's compiler and libraries:
//
//	go run ./test/distribution trixie
//	go run ./test/distribution -remove
//
// With -remove it removes what an interrupted run left, for make cluster-down.
//
// The root file system has only make and apt; the demo installs what it needs, as on a new machine. The checkout, Go, its caches and
// the cache of the local cluster are those of this machine, at the same paths. It runs in a mount namespace, with this machine's
// kernel and network, and takes the cluster down at the end. Root is needed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

// inside is the argument with which this program calls itself in the mount namespace.
const inside = "inside"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "distribution:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 2 && args[0] == inside {
		return enter(args[1], args[2:])
	}
	if len(args) != 1 || args[0] == "" {
		return errors.New("usage: distribution SUITE, or distribution -remove")
	}
	if os.Geteuid() != 0 {
		return errors.New("root is needed, for the mounts of another root file system")
	}
	if args[0] == "-remove" {
		return removeAll()
	}
	checkout, err := images.RepositoryRoot()
	if err != nil {
		return err
	}
	release, err := localcluster.Use(ctx, os.Stderr, "make demo-debian13")
	if err != nil {
		return err
	}
	defer release()
	// Every run begins on a new machine, without packages of an earlier one.
	root := roots + args[0]
	if err := removeAll(); err != nil {
		return err
	}
	defer func() {
		if left := removeAll(); left != nil {
			fmt.Fprintf(os.Stderr, "distribution: %v; make cluster-down removes what is left\n", left)
		}
	}()
	// Of all processes of this run, the environment shows which belong to it.
	if err := errors.Join(os.Mkdir(root, 0o755), os.Setenv(mark, root)); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s\nunpacking Debian %s in %s\n", localcluster.Killed, args[0], root)
	o := images.Options{Root: checkout, Log: os.Stderr}
	if err := images.Mmdebstrap(ctx, o, "--variant=apt", "--include=make,ca-certificates", "--format=directory", args[0], root); err != nil {
		return fmt.Errorf("unpacking Debian %s: %w", args[0], err)
	}
	shared, err := sharedFolders(ctx, checkout)
	if err != nil {
		return err
	}
	return errors.Join(inRoot(ctx, root, checkout, shared, "demo"),
		inRoot(context.WithoutCancel(ctx), root, checkout, shared, "cluster-down"))
}

const (
	// roots is the beginning of the names of the root file systems.
	roots = "/var/lib/tailgate-distribution-"
	// mark is the environment variable of the processes of a run. It has the root.
	mark = "TAILGATE_DISTRIBUTION"
)

// removeAll ends the processes of all root file systems that are left, and removes these with what clusters in them left on this machine.
func removeAll() error {
	left, err := filepath.Glob(roots + "*")
	for _, root := range left {
		err = errors.Join(err, localcluster.RemoveIn(context.Background(), root, mark+"="+root))
	}
	return err
}

// sharedFolders returns the folders of this machine that the other root file system shows at the same paths.
func sharedFolders(ctx context.Context, checkout string) ([]string, error) {
	folders, err := environment.GoFolders(ctx)
	if err != nil {
		return nil, err
	}
	cache, err := cached.Dir()
	if err != nil {
		return nil, err
	}
	shared := slices.Concat(folders, []string{cache, checkout, "/proc", "/sys", "/dev"})
	for _, dir := range shared {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return shared, nil
}

// inRoot runs a target of the Makefile in the root file system. A child does, because its mount namespace ends with it.
func inRoot(ctx context.Context, root, checkout string, shared []string, target string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{inside, root, target}, shared...)...)
	cmd.Dir = checkout
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make %s in %s: %w", target, root, err)
	}
	return nil
}

// enter makes the folder the root of a new mount namespace, and becomes make. args are the target and the shared folders.
func enter(root string, args []string) error {
	runtime.LockOSThread()
	checkout, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cutting it off from this machine: %w", err)
	}
	for _, dir := range append([]string{""}, args[1:]...) {
		source, target := dir, filepath.Join(root, dir)
		if dir == "" {
			source = root
		}
		if err := errors.Join(os.MkdirAll(target, 0o755), unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
			return fmt.Errorf("mounting %s in %s: %w", source, root, err)
		}
	}
	if err := copyText("/etc/resolv.conf", filepath.Join(root, "etc/resolv.conf")); err != nil {
		return err
	}
	// The old root is mounted on the new one, and then released.
	err = errors.Join(unix.Chdir(root), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), unix.Chdir("/"), unix.Chdir(checkout))
	if err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	for _, name := range []string{"TMPDIR", "GOTMPDIR"} { // The folders may not exist in the other root.
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	return unix.Exec("/usr/bin/make", []string{"make", args[0]}, os.Environ())
}

// copyText copies a file of this machine, which may be a link to a path that the other root does not have.
func copyText(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
