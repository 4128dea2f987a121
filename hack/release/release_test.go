package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestManifestAndChecksumsNameEveryArchive(t *testing.T) {
	r := release{version: "v0.4.0", commit: "abc", clone: "../..", out: t.TempDir(), digests: map[string]string{"tailgate": "sha256:0d"}}
	sums := map[string]string{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range architectures {
			name := "kubectl-tailgate_" + system + "_" + arch + ".tar.gz"
			if err := os.WriteFile(filepath.Join(r.out, name), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
			sums[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
		}
	}
	if err := errors.Join(r.krew(t.Context()), r.provenance(t.Context())); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	manifest, checksums := read("krew.yaml"), read("checksums.txt")
	var statement struct{ Subject []artifact }
	if err := json.Unmarshal([]byte(read("provenance.intoto.json")), &statement); err != nil {
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
	// A platform of the manifest without an archive is an error.
	if err := os.Remove(filepath.Join(r.out, "kubectl-tailgate_darwin_arm64.tar.gz")); err != nil {
		t.Fatal(err)
	}
	if err := r.krew(t.Context()); err == nil {
		t.Error("a platform that was not built is in the manifest")
	}
}

func TestChartDoesNotDependOnTheTime(t *testing.T) {
	dir := t.TempDir()
	var results [][]byte
	for i, at := range []time.Time{time.Unix(1e9, 0), time.Unix(2e9, 5)} {
		var archive bytes.Buffer
		zipped := gzip.NewWriter(&archive)
		zipped.ModTime = at
		w := tar.NewWriter(zipped)
		err := w.WriteHeader(&tar.Header{Name: "tailgate/Chart.yaml", Mode: 0o644, Size: 1, ModTime: at, Format: tar.FormatPAX})
		_, writing := w.Write([]byte("x"))
		from, to := filepath.Join(dir, fmt.Sprint("from", i)), filepath.Join(dir, fmt.Sprint("to", i))
		if err := errors.Join(err, writing, w.Close(), zipped.Close(), os.WriteFile(from, archive.Bytes(), 0o600), withoutTimes(from, to)); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, data)
	}
	if !bytes.Equal(results[0], results[1]) {
		t.Error("the archives differ")
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{"v0.1.0": true, "v1.2.3-rc.1": true, "0.1.0": false, "v1.2": false, "v1.2.3-": false, "v1.2.3 x": false} {
		if semantic.MatchString(version) != want {
			t.Errorf("%q: %v", version, !want)
		}
	}
}
