package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster/look"
)

const (
	// suite is the Debian release of the bench image, the same as in its Dockerfile.
	suite = "bookworm"
	// components are the areas of the Debian archive with the packages, the same as in the Dockerfile.
	components = "main non-free"
	// rootfsVersion is part of the cache's key. Increment it with every change of the result for the same packages.
	rootfsVersion = "2"
	// listPackages is a hook of mmdebstrap. It writes the metadata and the digest of each package to the folder that scanners read
	// in an image without dpkg.
	listPackages = `mkdir -p "$1/var/lib/dpkg/status.d" && for deb in "$1"/var/cache/apt/archives/*.deb; do ` +
		`{ dpkg-deb -f "$deb"; echo "SHA256: $(sha256sum <"$deb" | cut -d" " -f1)"; } >"$1/var/lib/dpkg/status.d/$(dpkg-deb -f "$deb" Package)"; done`
)

// rootfs returns the archive of the bench image's root file system: the packages and their dependencies, unpacked but not
// configured, which is enough for programs and their libraries. The archive is cached.
func rootfs(ctx context.Context, o Options, packages []string) ([]byte, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%q", []any{rootfsVersion, suite, components, o.Arch, packages, unwanted}))
	kept := filepath.Join(o.CacheDir, fmt.Sprintf("rootfs-%s-%x.tar", suite, key[:6]))
	archive, err := os.ReadFile(kept)
	if err == nil {
		return archive, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the cached root file system: %w", err)
	}
	fmt.Fprintf(o.Log, "unpacking Debian packages: %s\n", strings.Join(packages, " "))
	dir, remove, err := cached.Temporary(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("making a folder for the root file system: %w", err)
	}
	defer remove()
	target := filepath.Join(dir, "rootfs.tar")
	// Without a mirror, mmdebstrap uses Debian's own with its security updates.
	err = Mmdebstrap(ctx, o, "--variant=extract", "--architectures="+o.Arch, "--components="+components, "--extract-hook="+listPackages,
		"--include="+strings.Join(packages, ","), "--format=tar", suite, target)
	if err != nil {
		return nil, fmt.Errorf("unpacking the bench image's packages: %w", err)
	}
	in, err := os.Open(target)
	if err != nil {
		return nil, fmt.Errorf("opening the root file system: %w", err)
	}
	defer in.Close()
	var out bytes.Buffer
	if err := filterRootfs(in, &out); err != nil {
		return nil, err
	}
	if err := writeAtomically(kept, out.Bytes()); err != nil {
		return nil, fmt.Errorf("caching the root file system: %w", err)
	}
	return out.Bytes(), nil
}

// Mmdebstrap runs mmdebstrap, after installing it and the keys of Debian's archive if necessary and possible without asking.
func Mmdebstrap(ctx context.Context, o Options, args ...string) error {
	root := o.Root
	if root == "" {
		var err error
		if root, err = RepositoryRoot(); err != nil {
			return err
		}
	}
	if err := look.Install(ctx, o.Log, root, "mmdebstrap", "debian-archive-keyring"); err != nil {
		return fmt.Errorf("unpacking packages of Debian: %w", err)
	}
	dir, remove, err := cached.Temporary(os.TempDir())
	if err != nil {
		return err
	}
	defer remove()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil { // Its processes have several users.
		return fmt.Errorf("preparing a folder for mmdebstrap: %w", err)
	}
	return runCommand(ctx, "", []string{"TMPDIR=" + dir}, "mmdebstrap", args...)
}

// runCommand runs a program. The error contains the last 10 lines of its output.
func runCommand(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = environment.Tool(env...)
	output, err := environment.Run(cmd)
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		return fmt.Errorf("%s: %w: %s", name, err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
	}
	return nil
}

// writeAtomically writes a file that other processes may be reading or writing.
func writeAtomically(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.new")
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("putting %s in its place: %w", path, err)
	}
	return nil
}
