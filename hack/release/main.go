// Command release builds everything that a release publishes, from the commit that is checked out, without publishing it:
//
//	go run ./hack/release -version v0.1.0-rc.1 [-out dist] [-key cosign.key]
//
// Two runs on one commit should give the same files, except for the signatures (*.sigstore.json).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

// registry is where the release workflow publishes the images.
const registry = "ghcr.io/tailgate-dev"

// source is the repository's address.
const source = "https://github.com/tailgate-dev/tailgate"

var architectures = []string{"amd64", "arm64"}

// semantic matches a version that can be a tag.
var semantic = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

// release is a release under construction.
type release struct {
	version, commit string
	// root is the checked out repository, clone a copy of its commit with the version as its tag, and out the folder of the
	// artifacts.
	root, clone, out string
	// key is the signing key; empty: the identity of the workflow that runs this (keyless), and without one nothing is signed.
	key     string
	keyless bool
	// digests are the digests of the images, by name.
	digests map[string]string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	root, err := images.RepositoryRoot()
	if err != nil {
		return err
	}
	r := release{root: root, digests: map[string]string{}}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "version to build, such as v0.1.0-rc.1")
	flags.StringVar(&r.out, "out", "dist", "folder for the artifacts, which is replaced")
	flags.StringVar(&r.key, "key", "", "cosign's private key; its password is in COSIGN_PASSWORD")
	flags.BoolVar(&r.keyless, "keyless", false, "sign with the identity of the workflow")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !semantic.MatchString(r.version) {
		return fmt.Errorf("%q is not a version such as v0.1.0 or v0.1.0-rc.1 (flag -version)", r.version)
	}
	for _, path := range []*string{&r.out, &r.key} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	tmp, err := os.MkdirTemp("", "tailgate-release-")
	if err != nil {
		return fmt.Errorf("making a folder to build in: %w", err)
	}
	defer os.RemoveAll(tmp)
	r.clone = filepath.Join(tmp, "tailgate")
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"cloning the commit", r.checkout}, {"the command", r.command}, {"the images", r.images}, {"the manifests", r.manifests},
		{"the krew manifest", r.krew}, {"the SBOMs", r.sboms}, {"the checksums and the provenance", r.provenance}, {"the signatures", r.sign},
	} {
		fmt.Fprintln(os.Stderr, "release:", step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// checkout clones the commit, so that uncommitted changes do not get into the release, and tags the clone: Go records the tag in
// the programs.
func (r *release) checkout(ctx context.Context) error {
	changed, err := r.output(ctx, r.root, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("commit or remove these first:\n%s", changed)
	}
	if r.commit, err = r.output(ctx, r.root, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	tagged, err := r.output(ctx, r.root, "git", "tag", "--list", r.version, "--format=%(objectname) %(*objectname)")
	if err != nil {
		return err
	}
	if tagged != "" && !strings.Contains(tagged, r.commit) {
		return fmt.Errorf("the tag %s exists and is not of the commit %s", r.version, r.commit)
	}
	if _, err := r.output(ctx, r.root, "git", "clone", "--quiet", "--shared", "--no-tags", ".", r.clone); err != nil {
		return err
	}
	if _, err := r.output(ctx, r.clone, "git", "checkout", "--quiet", "--detach", r.commit); err != nil {
		return err
	}
	if _, err := r.output(ctx, r.clone, "git", "tag", r.version); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755))
}

// command builds kubectl-tailgate with GoReleaser.
func (r *release) command(ctx context.Context) error {
	goreleaser, err := r.tool(ctx, "goreleaser")
	if err != nil {
		return err
	}
	_, err = r.output(ctx, r.clone, goreleaser, "release", "--clean", "--config=hack/release/goreleaser.yaml", "--skip=publish,announce,sbom,sign")
	if err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(r.clone, "dist", "*.tar.gz"))
	if err != nil {
		return err
	}
	if len(archives) == 0 {
		return errors.New("GoReleaser made no archive")
	}
	for _, archive := range archives {
		if err := os.Rename(archive, filepath.Join(r.out, filepath.Base(archive))); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(r.clone, "dist"))
}

// images builds the images for all architectures.
func (r *release) images(ctx context.Context) error {
	o, err := images.DefaultOptions(r.clone, os.Stderr)
	if err != nil {
		return err
	}
	o.Release = true
	o.Labels = map[string]string{
		"org.opencontainers.image.source": source, "org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit,
	}
	for recipe, name := range map[string]string{"manager": "tailgate", "bench": "tailgate-bench"} {
		digest, err := images.Release(ctx, o, recipe, registry+"/"+name+":"+r.version, filepath.Join(r.out, name+".oci.tar"), architectures...)
		if err != nil {
			return err
		}
		r.digests[name] = digest.String()
	}
	return nil
}

// manifests writes install.yaml, the chart and the OLM bundle, with the images referenced by digest.
func (r *release) manifests(ctx context.Context) error {
	values := filepath.Join(r.clone, "config", "helm", "values.yaml")
	content, err := os.ReadFile(values)
	if err != nil {
		return err
	}
	text := string(content)
	for name, digest := range r.digests {
		before := fmt.Sprintf("  registry: \"\"\n  repository: %s\n  tag: latest\n  digest: \"\"\n", name)
		if strings.Count(text, before) != 1 {
			return fmt.Errorf("config/helm/values.yaml does not name the image %s once", name)
		}
		text = strings.Replace(text, before, fmt.Sprintf("  registry: %s\n  repository: %s\n  tag: %s\n  digest: %s\n", registry, name, r.version, digest), 1)
	}
	if err := os.WriteFile(values, []byte(text), 0o644); err != nil {
		return err
	}
	_, err = r.output(ctx, r.clone, "make", "build-installer", "IMG="+r.reference("tailgate"), "BENCH_IMG="+r.reference("tailgate-bench"),
		"VERSION="+r.version,
		"CHART_FLAGS=--version "+strings.TrimPrefix(r.version, "v")+" --app-version "+r.version)
	if err != nil {
		return err
	}
	chart := "tailgate-" + strings.TrimPrefix(r.version, "v") + ".tgz"
	if err := os.Rename(filepath.Join(r.clone, "bin", "install.yaml"), filepath.Join(r.out, "install.yaml")); err != nil {
		return err
	}
	bundle := "olm-bundle-" + strings.TrimPrefix(r.version, "v") + ".tgz"
	_, err = r.output(ctx, r.clone, "tar", "--create", "--gzip", "--file=bin/"+bundle, "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX",
		"--directory=bin", "bundle")
	if err != nil {
		return err
	}
	return errors.Join(withoutTimes(filepath.Join(r.clone, "bin", chart), filepath.Join(r.out, chart)),
		withoutTimes(filepath.Join(r.clone, "bin", bundle), filepath.Join(r.out, bundle)))
}

func (r *release) reference(name string) string {
	return registry + "/" + name + ":" + r.version + "@" + r.digests[name]
}

// tool builds a tool that has its own module file, and returns its path.
func (r *release) tool(ctx context.Context, name string) (string, error) {
	return r.output(ctx, r.root, "go", "tool", "-n", "-modfile=hack/tools/"+name+".mod", name)
}

// output runs a program and returns its standard output.
func (r *release) output(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", filepath.Base(name), err, said.String(), out)
	}
	return strings.TrimSpace(string(out)), nil
}
