// Package images builds container images without a container engine and without a registry, for the local cluster and for
// releases. Their content is the same as with the Dockerfiles. The same input gives the same archive, byte for byte.
package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/environment"
)

// References under which the images are imported into the nodes.
const (
	ManagerRef = "localhost/tailgate:dev"
	BenchRef   = "localhost/tailgate-bench:dev"
	PauseRef   = "localhost/pause:1"
	// ComponentsRef is the image with the local cluster's CNI and device plugins.
	ComponentsRef = "localhost/labcomponents:dev"
	// ProgramRef is the image with a user's program, for tool Custom.
	ProgramRef = "localhost/program/echo:dev"
)

// user is the user and group of the programs in the images.
const user = "65532:65532"

// Options configures the builds.
type Options struct {
	// Root is the root of this repository.
	Root string
	// OutDir is the folder for the images: tar archives in the format of docker save.
	OutDir string
	// CacheDir keeps the bench image's root file system.
	CacheDir string
	// SFNetTestDir is a folder with a prebuilt sfnt-pingpong, and optionally sfnt-stream, for the bench image.
	// Empty: the image does not contain them. The image of a release has those of their source instead.
	SFNetTestDir string
	// Log receives a line for each slow step.
	Log io.Writer
	// Arch is the CPU architecture of the images.
	Arch string
	// Release records the version of the repository in the Go programs, and adds the sfnt tools with their license and source.
	Release bool
	// Labels are added to the images.
	Labels map[string]string
}

// DefaultOptions returns the options for the repository at root: the cache is the user's ($XDG_CACHE_HOME or $HOME/.cache),
// the sfnt tools come from the folder in $SFNETTEST_BIN. It fails if there is no home folder.
func DefaultOptions(root string, log io.Writer) (Options, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Options{}, fmt.Errorf("looking for the cache folder: %w", err)
	}
	dir := filepath.Join(cache, "tailgate", "images")
	return Options{Root: root, OutDir: dir, CacheDir: dir, SFNetTestDir: os.Getenv("SFNETTEST_BIN"), Log: log, Arch: runtime.GOARCH}, nil
}

// Image describes an image that was written.
type Image struct {
	// Ref is the reference under which it is imported.
	Ref string
	// Path is the path of its archive.
	Path string
	// ID is the digest of its configuration, by which container runtimes know an image that came from no registry.
	ID v1.Hash
}

// recipe describes how to build an image.
type recipe struct {
	name, ref string
	config    v1.Config
	layers    func(context.Context, Options) ([]v1.Layer, error)
}

func recipes() []recipe {
	return []recipe{
		{"manager", ManagerRef, v1.Config{User: user, Entrypoint: []string{"/manager"}}, managerLayers},
		{"bench", BenchRef, v1.Config{
			User:       user,
			Entrypoint: []string{"/usr/local/bin/tailgate-agent"},
			Env: []string{
				"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
				"SFNT_AVOID_FORK=1",
			},
		}, benchLayers},
		{"pause", PauseRef, v1.Config{User: user, Entrypoint: []string{"/pause"}}, pauseLayers},
		{"labcomponents", ComponentsRef, v1.Config{Entrypoint: []string{"/labcomponents"}}, componentsLayers},
		{"program", ProgramRef, v1.Config{User: user}, programLayers},
	}
}

// Names returns the names of the images that Build can build.
func Names() []string {
	var names []string
	for _, r := range recipes() {
		names = append(names, r.name)
	}
	return names
}

// Build builds the named images, in that order. Only bench needs more than the Go toolchain: mmdebstrap, for Debian's
// packages and compiler.
func Build(ctx context.Context, o Options, names ...string) ([]Image, error) {
	var wanted []recipe
	for _, n := range names {
		r, err := recipeOf(n)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, r)
	}
	var built []Image
	for _, r := range wanted {
		image, err := r.image(ctx, o)
		if err != nil {
			return nil, err
		}
		written, err := write(r, image, filepath.Join(o.OutDir, r.name+".tar"))
		if err != nil {
			return nil, fmt.Errorf("making image %s: %w", r.name, err)
		}
		built = append(built, written)
	}
	return built, nil
}

func recipeOf(name string) (recipe, error) {
	for _, r := range recipes() {
		if r.name == name {
			return r, nil
		}
	}
	return recipe{}, fmt.Errorf("no image is called %q, only %q", name, Names())
}

// image builds an image.
func (r recipe) image(ctx context.Context, o Options) (v1.Image, error) {
	layers, err := r.layers(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("making image %s: %w", r.name, err)
	}
	image, err := r.assemble(o, layers)
	if err != nil {
		return nil, fmt.Errorf("making image %s: %w", r.name, err)
	}
	return image, nil
}

// assemble returns an image of layers and the recipe's configuration.
func (r recipe) assemble(o Options, layers []v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, layers...)
	if err != nil {
		return nil, fmt.Errorf("adding the layers: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", o.Arch
	config.Created = v1.Time{Time: epoch}
	config.Config = r.config
	config.Config.Labels = o.Labels
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("setting the configuration: %w", err)
	}
	return image, nil
}

// write writes an image to an archive.
func write(r recipe, image v1.Image, path string) (Image, error) {
	ref, err := name.NewTag(r.ref)
	if err != nil {
		return Image{}, fmt.Errorf("naming the image: %w", err)
	}
	id, err := image.ConfigName()
	if err != nil {
		return Image{}, fmt.Errorf("computing the image's id: %w", err)
	}
	var archive bytes.Buffer
	if err := tarball.Write(ref, image, &archive); err != nil {
		return Image{}, fmt.Errorf("writing the archive: %w", err)
	}
	if err := writeAtomically(path, archive.Bytes()); err != nil {
		return Image{}, err
	}
	return Image{Ref: r.ref, Path: path, ID: id}, nil
}

func managerLayers(ctx context.Context, o Options) ([]v1.Layer, error) {
	manager, err := goProgram(ctx, o, "./cmd/manager")
	if err != nil {
		return nil, err
	}
	cli, err := goProgram(ctx, o, "./cmd/kubectl-tailgate")
	if err != nil {
		return nil, err
	}
	layer, err := fileLayer(append(userFiles(), file{path: "/manager", mode: 0o755, data: manager}, file{path: "/tailgate", mode: 0o755, data: cli})...)
	return []v1.Layer{layer}, err
}

func componentsLayers(ctx context.Context, o Options) ([]v1.Layer, error) {
	var files []file
	for _, name := range []string{"labcomponents", "multinet", "sriov", "deviceplugin"} {
		program, err := goProgram(ctx, o, "./test/localcluster/cmd/"+name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: "/" + name, mode: 0o755, data: program})
	}
	layer, err := fileLayer(files...)
	return []v1.Layer{layer}, err
}

func programLayers(ctx context.Context, o Options) ([]v1.Layer, error) {
	program, err := goProgram(ctx, o, "./test/program")
	if err != nil {
		return nil, err
	}
	layer, err := fileLayer(append(userFiles(), file{path: "/app/program", mode: 0o755, data: program})...)
	return []v1.Layer{layer}, err
}

func pauseLayers(ctx context.Context, o Options) ([]v1.Layer, error) {
	pause, err := goProgram(ctx, o, "./test/localcluster/cmd/pause")
	if err != nil {
		return nil, err
	}
	layer, err := fileLayer(append(userFiles(), file{path: "/pause", mode: 0o755, data: pause})...)
	return []v1.Layer{layer}, err
}

// benchLayers returns the layers of the bench image. The layer that changes least is first: the packages, the sfnt tools if there
// are any, the pinger, the agent.
func benchLayers(ctx context.Context, o Options) ([]v1.Layer, error) {
	var sfnt []file
	var err error
	if o.Release {
		sfnt, err = sfnettest(ctx, o, sfnettestURL, sfnettestCommit)
	} else {
		sfnt, err = sfntTools(o.SFNetTestDir)
	}
	if err != nil {
		return nil, err
	}
	ping, err := pingerProgram(ctx, o)
	if err != nil {
		return nil, err
	}
	agent, err := goProgram(ctx, o, "./cmd/agent")
	if err != nil {
		return nil, err
	}
	entrypoint, err := goProgram(ctx, o, "./cmd/tailgate-exec")
	if err != nil {
		return nil, err
	}
	archive, err := benchRootfs(ctx, o)
	if err != nil {
		return nil, err
	}
	base, err := tarLayer(archive)
	if err != nil {
		return nil, err
	}
	inside, err := readContents(archive)
	if err != nil {
		return nil, err
	}
	programs := slices.DeleteFunc(slices.Concat(sfnt, ping), func(f file) bool { return f.mode != 0o755 })
	if err := requireRuns(inside, o.Arch, programs...); err != nil {
		return nil, err
	}
	layers := []v1.Layer{base}
	for _, files := range [][]file{sfnt, ping, {
		{path: "/usr/local/bin/tailgate-agent", mode: 0o755, data: agent}, {path: "/usr/local/bin/tailgate-exec", mode: 0o755, data: entrypoint},
	}} {
		if len(files) == 0 {
			continue
		}
		layer, err := fileLayer(files...)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

// RemoveTemporary removes the temporary folders of this project's commands that were killed, and what they did not complete in the cache.
func RemoveTemporary() error {
	cache, err := cached.Dir()
	if err != nil {
		return err
	}
	if err := cached.RemoveUnfinished(); err != nil {
		return err
	}
	toolchains, err := filepath.Glob(filepath.Join(cache, "toolchain-*", "tmp"))
	for _, dir := range append(toolchains, os.TempDir()) {
		err = errors.Join(err, cached.RemoveTemporary(dir))
	}
	return err
}

// Unpack unpacks the root file system of the bench image's packages into a folder. The programs run with this folder as their root.
func Unpack(ctx context.Context, o Options, dir string) error {
	archive, err := benchRootfs(ctx, o)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making a folder for the packages: %w", err)
	}
	var said bytes.Buffer
	tar := exec.CommandContext(ctx, "tar", "--extract", "--directory", dir)
	tar.Env, tar.Stdin, tar.Stderr = environment.Tool(), bytes.NewReader(archive), &said
	if err := tar.Run(); err != nil {
		return fmt.Errorf("unpacking the bench image's packages: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

func benchRootfs(ctx context.Context, o Options) ([]byte, error) {
	packages, err := loadPackages(filepath.Join(o.Root, "bench-image", "packages.txt"))
	if err != nil {
		return nil, err
	}
	return rootfs(ctx, o, packages)
}

// sfntTools reads the prebuilt sfnt tools in dir. It returns no files if dir is empty. A dir without sfnt-pingpong is an error.
func sfntTools(dir string) ([]file, error) {
	if dir == "" {
		return nil, nil
	}
	var files []file
	for _, tool := range []string{"sfnt-pingpong", "sfnt-stream"} {
		data, err := os.ReadFile(filepath.Join(dir, tool))
		if errors.Is(err, fs.ErrNotExist) && tool != "sfnt-pingpong" {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the sfnt tools that SFNETTEST_BIN promises: %w", err)
		}
		files = append(files, file{path: "/usr/local/bin/" + tool, mode: 0o755, data: data})
	}
	return files, nil
}

// NoDebug is a flag of go build. It omits, when packages are compiled, the debug information that -ldflags=-s removes when they are
// linked, which saves a seventh of the time. All builds for a local cluster and GOFLAGS of the Makefile use it, so that they share the
// compiled packages.
const NoDebug = "-gcflags=all=-dwarf=false"

// goProgram builds a static program of this repository and returns its content.
func goProgram(ctx context.Context, o Options, pkg string) ([]byte, error) {
	dir, remove, err := cached.Temporary(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("making a folder to build in: %w", err)
	}
	defer remove()
	program := filepath.Join(dir, "program")
	flags, env := []string{"-buildvcs=true"}, []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + o.Arch}
	if o.Release {
		env = append(env, "GOFLAGS=-trimpath")
	} else { // With the version in the program, every commit would change the image. Only a release needs the version.
		flags = []string{"-buildvcs=false", NoDebug}
	}
	// GOFLAGS may name a mode whose programs need a loader, as many distributions do for their packages: -buildmode=pie.
	build := slices.Concat([]string{"build", "-trimpath", "-buildmode=exe"}, flags, []string{"-ldflags", "-s -w", "-o", program, pkg})
	err = runCommand(ctx, o.Root, env, "go", build...)
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", pkg, err)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("reading what was built of %s: %w", pkg, err)
	}
	// The images other than bench have no loader and no libraries.
	return data, requireRuns(contents{}, o.Arch, file{path: pkg, data: data})
}
