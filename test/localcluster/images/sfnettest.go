package images

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/environment"
)

// The source of AMD's sfnt tools: the commit of the version in AMD's own image. bench-image/Dockerfile names the same.
const (
	sfnettestURL     = "https://github.com/Xilinx-CNS/cns-sfnettest"
	sfnettestVersion = "1.6.0-rc2"
	sfnettestCommit  = "f7c61384878f2f358ac061f5fe07e99652ff243a"
	// sfnettestDoc is the folder in the image with the license and the source.
	sfnettestDoc = "/usr/share/doc/sfnettest/"
)

// sfnettest fetches and compiles the sfnt tools. It returns them with their license, their complete source and the offer of it, as the
// license requires of who passes programs on.
func sfnettest(ctx context.Context, o Options, url, commit string) ([]file, error) {
	source, err := sfnettestSource(ctx, o, url, commit)
	if err != nil {
		return nil, fmt.Errorf("fetching the source of the sfnt tools: %w", err)
	}
	programs := []string{"sfnt-pingpong", "sfnt-stream"}
	built, err := compile(ctx, o, filepath.Join(source, "tree", "src"), func(inside, prefix string) []string {
		// Without its folder, the program does not depend on where it was compiled.
		return []string{"-C", inside, "CC=" + prefix + "gcc -ffile-prefix-map=" + inside + "=.", "AR=" + prefix + "ar",
			"SFNT_VERSION=" + sfnettestVersion, "RELEASE_VERSION_MK=true"}
	}, programs...)
	if err != nil {
		return nil, fmt.Errorf("compiling the sfnt tools: %w", err)
	}
	var files []file
	for i, program := range programs {
		files = append(files, file{path: "/usr/local/bin/" + program, mode: 0o755, data: built[i]})
	}
	for _, document := range []struct{ name, path string }{
		{"LICENSE", filepath.Join(source, "tree", "LICENSE")}, {"SOURCE", filepath.Join(o.Root, "bench-image", "sfnettest-SOURCE")},
		{"source.tar", filepath.Join(source, "source.tar")},
	} {
		data, err := os.ReadFile(document.path)
		if err != nil {
			return nil, fmt.Errorf("reading what belongs to the sfnt tools: %w", err)
		}
		files = append(files, file{path: sfnettestDoc + document.name, mode: 0o644, data: data})
	}
	return files, nil
}

// sfnettestSource returns a folder with the files of a commit (tree) and an archive of them (source.tar). The name of a commit is its
// digest, so that git accepts no other files.
func sfnettestSource(ctx context.Context, o Options, url, commit string) (string, error) {
	return cached.Folder(ctx, "sfnettest-"+commit, func(tmp string) error {
		fmt.Fprintf(o.Log, "fetching the source of the sfnt tools (once, 300 kB)\n")
		tree := filepath.Join(tmp, "tree")
		for _, args := range [][]string{
			{"init", "--quiet", tree},
			{"-C", tree, "fetch", "--quiet", "--depth=1", "--no-tags", url, commit},
			{"-C", tree, "-c", "core.autocrlf=false", "checkout", "--quiet", "--detach", commit},
			{"-C", tree, "archive", "--format=tar", "--output=" + filepath.Join(tmp, "source.tar"), commit},
		} {
			git := exec.CommandContext(ctx, "git", args...)
			git.Env = environment.Tool("GIT_TERMINAL_PROMPT=0")
			if said, err := git.CombinedOutput(); err != nil {
				return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said))
			}
		}
		return os.RemoveAll(filepath.Join(tree, ".git"))
	})
}
