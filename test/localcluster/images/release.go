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

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/pinger"
)

// A target is how programs for an architecture are compiled on a machine of another architecture.
type target struct {
	// prefix begins the names of the compiler's programs.
	prefix   string
	packages []string
}

var targets = map[string]target{
	"amd64": {"x86_64-linux-gnu-", []string{"gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"}},
	"arm64": {"aarch64-linux-gnu-", []string{"gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user-static"}},
}

// Toolchain returns a folder that is the root file system of a compiler: make, the programs that makefiles use, and Debian's compiler and C library of the bench
// image's suite, for the architecture of the options. For another architecture than that of this machine, it also has an emulator.
func Toolchain(ctx context.Context, o Options) (string, error) {
	packages := []string{"gcc", "libc6-dev", "make", "dash", "coreutils", "findutils", "sed"}
	if o.Arch != runtime.GOARCH {
		packages = append(packages, targets[o.Arch].packages...)
	}
	name := fmt.Sprintf("toolchain-%s-%s-for-%s-2", suite, runtime.GOARCH, o.Arch)
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
// options, and writes it to path.
func Compile(ctx context.Context, o Options, path string) error {
	name := filepath.Base(path)
	built, err := compile(ctx, o, filepath.Join(o.Root, "bench-image", "pinger"), func(inside, prefix string) []string {
		return []string{"-C", inside, "CC=" + prefix + "gcc", "PROGRAM=" + inside + "/" + pinger.Program, inside + "/" + name}
	}, name)
	if err != nil {
		return fmt.Errorf("compiling the pinger: %w", err)
	}
	return os.WriteFile(path, built[0], 0o755)
}

// compile runs make on a copy of a folder with sources and returns the contents of the named files there. arguments returns the
// arguments of make for the folder inside the toolchain and the prefix of the names of the compiler's programs. The compiler runs with
// the toolchain as its root, so that nothing of this machine gets into a program: neither its C library nor the variables of its
// environment.
func compile(ctx context.Context, o Options, source string, arguments func(inside, prefix string) []string, names ...string) ([][]byte, error) {
	root, err := Toolchain(ctx, o)
	if err != nil {
		return nil, err
	}
	prefix := ""
	if o.Arch != runtime.GOARCH {
		prefix = targets[o.Arch].prefix
	}
	dir, remove, err := cached.Temporary(filepath.Join(root, "tmp"))
	if err != nil {
		return nil, fmt.Errorf("making a folder to compile in: %w", err)
	}
	defer remove()
	if err := os.CopyFS(filepath.Join(dir, "src"), os.DirFS(source)); err != nil {
		return nil, fmt.Errorf("copying the sources: %w", err)
	}
	make := exec.CommandContext(ctx, "/usr/bin/make", arguments("/tmp/"+filepath.Base(dir)+"/src", prefix)...)
	make.Dir, make.Env = "/", []string{"PATH=/usr/bin:/bin", "TMPDIR=/tmp/" + filepath.Base(dir)}
	make.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		make.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		make.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		make.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	if output, err := environment.Run(make); err != nil {
		return nil, fmt.Errorf("for %s in %s: %w: %s", o.Arch, root, err, bytes.TrimSpace(output))
	}
	var built [][]byte
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, "src", name))
		if err != nil {
			return nil, fmt.Errorf("reading what was compiled: %w", err)
		}
		built = append(built, data)
	}
	return built, nil
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
		made, err := r.image(ctx, one)
		if err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: made, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	return writeIndex(index, ref, path)
}

// Tools writes an image that has only these programs, by the path in the image, like AMD's image of the sfnt tools or a user's image, for
// this machine's architecture, to path. It returns what Release returns.
func Tools(programs map[string][]byte, ref, path string) (v1.Hash, error) {
	var files []file
	for name, data := range programs {
		files = append(files, file{path: name, mode: 0o755, data: data})
	}
	layer, err := fileLayer(files...)
	if err != nil {
		return v1.Hash{}, err
	}
	image, err := recipe{config: v1.Config{User: user}}.assemble(Options{Arch: runtime.GOARCH}, []v1.Layer{layer})
	if err != nil {
		return v1.Hash{}, err
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	return writeIndex(index, ref, path)
}

// writeIndex writes the images of an index to path, as an archive of an OCI image layout, and returns the digest of the index.
func writeIndex(index v1.ImageIndex, ref, path string) (v1.Hash, error) {
	dir, remove, err := cached.Temporary(os.TempDir())
	if err != nil {
		return v1.Hash{}, fmt.Errorf("making a folder for the image layout: %w", err)
	}
	defer remove()
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
