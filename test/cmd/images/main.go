// Command images builds the project's container images without a container engine or a registry and prints the paths of
// their archives, ready for `ctr images import`:
//
//	go run ./test/cmd/images [-out DIR] [manager] [bench] [pause] [labcomponents]
//
// Without names it builds all of them. SFNETTEST_BIN names a folder with prebuilt sfnt tools for the bench image.
//
// With -release VERSION, it builds the images of the manager and of the benchmarks for all architectures of a release instead, one
// OCI archive each, and prints the name and the digest of each.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root, err := images.RepositoryRoot()
	if err != nil {
		return err
	}
	o, err := images.DefaultOptions(root, stderr)
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.OutDir, "out", o.OutDir, "folder for the archives")
	version := flags.String("release", "", "version of the release to build")
	registry := flags.String("registry", "", "registry of the images of a release")
	revision := flags.String("revision", "", "commit of the release")
	source := flags.String("source", "", "address of the repository")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w (usage: images [-out DIR] %v)", err, images.Names())
	}
	if *version != "" {
		o.Release = true
		o.Labels = map[string]string{
			"org.opencontainers.image.source": *source, "org.opencontainers.image.version": *version, "org.opencontainers.image.revision": *revision,
		}
		return release(ctx, o, *registry, stdout)
	}
	names := flags.Args()
	if len(names) == 0 {
		names = images.Names()
	}
	built, err := images.Build(ctx, o, names...)
	if err != nil {
		return err
	}
	for _, image := range built {
		info, err := os.Stat(image.Path)
		if err != nil {
			return fmt.Errorf("looking at the archive: %w", err)
		}
		fmt.Fprintf(stderr, "%s %s, %.1f MB\n", image.Ref, image.ID, float64(info.Size())/1e6)
		fmt.Fprintln(stdout, image.Path)
	}
	return nil
}

// release builds the images of a release into the folder of the options.
func release(ctx context.Context, o images.Options, registry string, stdout io.Writer) error {
	version := o.Labels["org.opencontainers.image.version"]
	for _, image := range []struct{ recipe, name string }{{"manager", "tailgate"}, {"bench", "tailgate-bench"}} {
		path := filepath.Join(o.OutDir, image.name+".oci.tar")
		digest, err := images.Release(ctx, o, image.recipe, registry+"/"+image.name+":"+version, path, "amd64", "arm64")
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, image.name, digest)
	}
	return nil
}
