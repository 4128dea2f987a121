// Package release holds the script that builds a release; this is its test.
package release

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script runs commands after the functions of the script.
func script(t *testing.T, commands string, variables ...string) error {
	t.Helper()
	c := exec.Command("bash", "-c", ". ./release.sh\n"+commands)
	c.Env = append(os.Environ(), variables...)
	output, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return err
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestManifestAndChecksumsNameEveryArchive(t *testing.T) {
	out := t.TempDir()
	sums := map[string]string{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			name := "kubectl-tailgate_" + system + "_" + arch + ".tar.gz"
			if err := os.WriteFile(filepath.Join(out, name), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
			sums[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
		}
	}
	digests := filepath.Join(t.TempDir(), "digests")
	if err := os.WriteFile(digests, []byte("tailgate sha256:0d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	variables := []string{"version=v0.4.0", "commit=abc", "clone=../..", "key=", "out=" + out, "digests=" + digests}
	if err := script(t, "krew; provenance", variables...); err != nil {
		t.Fatal(err)
	}
	manifest, checksums := read(t, filepath.Join(out, "krew.yaml")), read(t, filepath.Join(out, "checksums.txt"))
	var statement struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(out, "provenance.intoto.json"))), &statement); err != nil {
		t.Fatal(err)
	}
	subjects := map[string]string{}
	for _, s := range statement.Subject {
		subjects[s.Name] = s.Digest["sha256"]
	}
	for name, sum := range sums {
		uri := "uri: https://github.com/tailgate-dev/tailgate/releases/download/v0.4.0/" + name + "\n    sha256: " + sum + "\n"
		if !strings.Contains(manifest, uri) || !strings.Contains(checksums, sum+"  "+name+"\n") || subjects[name] != sum {
			t.Errorf("%s is missing in krew.yaml, checksums.txt or provenance.intoto.json", name)
		}
	}
	if subjects["ghcr.io/tailgate-dev/tailgate"] != "0d" || !strings.Contains(checksums, "  provenance.intoto.json\n") {
		t.Errorf("subjects are %v, checksums\n%s", subjects, checksums)
	}
	if !strings.HasPrefix(manifest, "apiVersion: krew.googlecontainertools.github.com/") {
		t.Errorf("krew.yaml begins with a comment:\n%s", manifest)
	}
	// A platform of the manifest without an archive is an error.
	if err := os.Remove(filepath.Join(out, "kubectl-tailgate_darwin_arm64.tar.gz")); err != nil {
		t.Fatal(err)
	}
	if err := script(t, "krew", variables...); err == nil {
		t.Error("a platform that was not built is in the manifest")
	}
}

func TestChartDependsOnItsFilesOnly(t *testing.T) {
	var results []string
	for i, at := range []time.Time{time.Unix(1e9, 0), time.Unix(2e9, 5)} {
		dir := t.TempDir()
		file := filepath.Join(dir, "tailgate", "Chart.yaml")
		err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("x"), os.FileMode(0o600+0o44*i)), os.Chtimes(file, at, at))
		if err != nil {
			t.Fatal(err)
		}
		if err := script(t, `archive "$dir" tailgate "$dir/to"`, "dir="+dir); err != nil {
			t.Fatal(err)
		}
		results = append(results, read(t, filepath.Join(dir, "to")))
	}
	if results[0] != results[1] {
		t.Error("the archives differ")
	}
	plain, err := gzip.NewReader(strings.NewReader(results[0]))
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	for files := tar.NewReader(plain); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found += h.Name + " "
	}
	if found != "tailgate/ tailgate/Chart.yaml " {
		t.Errorf("the archive has %s", found)
	}
}

func TestImagesOfManifests(t *testing.T) {
	clone, out := t.TempDir(), t.TempDir()
	if err := os.CopyFS(filepath.Join(clone, "config", "helm"), os.DirFS("../../config/helm")); err != nil {
		t.Fatal(err)
	}
	digests := filepath.Join(t.TempDir(), "digests")
	if err := os.WriteFile(digests, []byte("tailgate sha256:0d\ntailgate-bench sha256:0e\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// make writes what make build-installer writes.
	const made = `make() {
		echo "$@" > "$out/arguments"
		mkdir -p "$clone/bin/bundle" "$clone/tailgate"
		touch "$clone/bin/install.yaml" "$clone/tailgate/Chart.yaml"
		tar --create --gzip --file="$clone/bin/tailgate-0.4.0.tgz" --directory="$clone" tailgate
	}
	manifests`
	variables := []string{"version=v0.4.0", "clone=" + clone, "out=" + out, "digests=" + digests}
	if err := script(t, made, variables...); err != nil {
		t.Fatal(err)
	}
	values := read(t, filepath.Join(clone, "config", "helm", "values.yaml"))
	arguments := read(t, filepath.Join(out, "arguments"))
	for name, digest := range map[string]string{"tailgate": "sha256:0d", "tailgate-bench": "sha256:0e"} {
		image := "  registry: ghcr.io/tailgate-dev\n  repository: " + name + "\n  tag: v0.4.0\n  digest: " + digest + "\n"
		if strings.Count(values, image) != 1 || !strings.Contains(arguments, "IMG=ghcr.io/tailgate-dev/"+name+":v0.4.0@"+digest+" ") {
			t.Errorf("%s is not named by its digest: make %s\n%s", name, arguments, values)
		}
	}
	for _, name := range []string{"install.yaml", "tailgate-0.4.0.tgz", "olm-bundle-0.4.0.tgz"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	// Without the lines that name an image there is no release.
	if err := script(t, made, variables...); err == nil {
		t.Error("values.yaml without the image was accepted")
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{"v0.1.0": true, "v1.2.3-rc.1": true, "0.1.0": false, "v1.2": false, "v1.2.3-": false, "v1.2.3 x": false} {
		if (script(t, `valid "$version"`, "version="+version) == nil) != want {
			t.Errorf("%q: %v", version, !want)
		}
	}
}
