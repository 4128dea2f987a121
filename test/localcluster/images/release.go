package images

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tailgate-dev/tailgate/bench-image/pinger"
	"github.com/tailgate-dev/tailgate/test/cached"
)

// A target is how programs for an architecture are compiled on a machine of another architecture.
type target struct {
	compiler string
	packages []string
}

var targets = map[string]target{
	"amd64": {"x86_64-linux-gnu-gcc", []string{"gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"}},
	"arm64": {"aarch64-linux-gnu-gcc", []string{"gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user-static"}},
}

// Toolchain returns a folder that is the root file system of a compiler: make, and Debian's compiler and C library of the bench
// image's suite, for the architecture of the options. For another architecture than that of this machine, it also has an emulator.
func Toolchain(ctx context.Context, o Options) (string, error) {
	packages := []string{"gcc", "libc6-dev", "make", "dash"}
	if o.Arch != runtime.GOARCH {
		packages = append(packages, targets[o.Arch].packages...)
	}
	name := fmt.Sprintf("toolchain-%s-%s-for-%s-1", suite, runtime.GOARCH, o.Arch)
	return cached.Folder(ctx, name, func(tmp string) error {
		fmt.Fprintf(o.Log, "fetching the compiler of Debian %s (once, 50 to 150 MB)\n", suite)
		err := Mmdebstrap(ctx, o, "--variant=extract", "--architectures="+runtime.GOARCH, "--format=directory",
			"--include="+strings.Join(packages, ","), suite, tmp)
		if err != nil {
			return fmt.Errorf("unpacking the compiler: %w", err)
		}
		return nil
	})
}

// Compile compiles the target of the pinger's Makefile that is named like the file at path, for the architecture of the
// options, and writes it to path. The compiler runs with the toolchain as its root, so that nothing of this machine gets into the
// program: neither its C library nor the variables of its environment.
func Compile(ctx context.Context, o Options, path string) error {
	root, err := Toolchain(ctx, o)
	if err != nil {
		return err
	}
	compiler := "gcc"
	if o.Arch != runtime.GOARCH {
		compiler = targets[o.Arch].compiler
	}
	dir, err := os.MkdirTemp(filepath.Join(root, "tmp"), "pinger-")
	if err != nil {
		return fmt.Errorf("making a folder to compile in: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(filepath.Join(dir, "src"), os.DirFS(filepath.Join(o.Root, "bench-image", "pinger"))); err != nil {
		return fmt.Errorf("copying the pinger's sources: %w", err)
	}
	inside := "/tmp/" + filepath.Base(dir) + "/"
	make := exec.CommandContext(ctx, "/usr/bin/make", "-C", inside+"src", "CC="+compiler, "PROGRAM="+inside+pinger.Program, inside+filepath.Base(path))
	make.Dir, make.Env = "/", []string{"PATH=/usr/bin:/bin"}
	make.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		make.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		make.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		make.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	if output, err := make.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the pinger for %s in %s: %w: %s", o.Arch, root, err, bytes.TrimSpace(output))
	}
	program, err := os.ReadFile(filepath.Join(dir, filepath.Base(path)))
	if err != nil {
		return fmt.Errorf("reading the pinger: %w", err)
	}
	return os.WriteFile(path, program, 0o755)
}

// Release builds an image for each architecture and writes one archive with all of them, an OCI image layout, to path. ref is the
// image's name with its tag. Release returns the digest of the index, which identifies the image in a registry.
func Release(ctx context.Context, o Options, image, ref, path string, architectures ...string) (v1.Hash, error) {
	r, err := recipeOf(image)
	if err != nil {
		return v1.Hash{}, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		one := o
		one.Arch = arch
		if arch != "amd64" {
			one.SFNetTestDir = "" // the tools in it are for amd64
		}
		made, err := r.image(ctx, one)
		if err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: made, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	dir, err := os.MkdirTemp("", "tailgate-layout-")
	if err != nil {
		return v1.Hash{}, fmt.Errorf("making a folder for the image layout: %w", err)
	}
	defer os.RemoveAll(dir)
	top, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("writing the image layout: %w", err)
	}
	_, tag, _ := strings.Cut(filepath.Base(ref), ":")
	// The first name is from the OCI specification, the second from containerd.
	err = top.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": ref}))
	if err != nil {
		return v1.Hash{}, fmt.Errorf("writing the image layout: %w", err)
	}
	if err := archive(dir, path); err != nil {
		return v1.Hash{}, fmt.Errorf("writing %s: %w", path, err)
	}
	return index.Digest()
}

// archive writes the files of a folder to a tar archive that depends only on their paths and content.
func archive(dir, path string) error {
	var files []file
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		files = append(files, file{path: "/" + name, mode: 0o644, data: data})
		return err
	})
	if err != nil {
		return err
	}
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	if err := writeFiles(w, files); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return writeAtomically(path, buffer.Bytes())
}
