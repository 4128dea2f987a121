package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// withoutTimes copies a compressed archive, and gives every file in it the same time.
func withoutTimes(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	plain, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	r, w := tar.NewReader(plain), tar.NewWriter(zipped)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", from, err)
		}
		h.ModTime, h.AccessTime, h.ChangeTime, h.PAXRecords, h.Format = time.Unix(0, 0), time.Time{}, time.Time{}, nil, tar.FormatUSTAR
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(w, r); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		return err
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}

// krew fills in the manifest of the plugin.
func (r *release) krew(context.Context) error {
	manifest, err := os.ReadFile(filepath.Join(r.clone, "hack", "krew", "tailgate.yaml"))
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(string(manifest), "VERSION", r.version)
	artifacts, err := r.artifacts()
	if err != nil {
		return err
	}
	for _, a := range artifacts {
		if platform, ok := strings.CutPrefix(strings.TrimSuffix(a.Name, ".tar.gz"), "kubectl-tailgate_"); ok {
			text = strings.ReplaceAll(text, "SHA256_"+strings.ToUpper(platform), a.Digest["sha256"])
		}
	}
	_, text, _ = strings.Cut(text, "\napiVersion:") // without the comment about the placeholders
	if strings.Contains(text, "SHA256_") {
		return errors.New("hack/krew/tailgate.yaml has a platform that was not built")
	}
	return os.WriteFile(filepath.Join(r.out, "krew.yaml"), []byte("apiVersion:"+text), 0o644)
}

// sboms writes the SBOMs of the archives and the images.
func (r *release) sboms(ctx context.Context) error {
	syft, err := r.tool(ctx, "syft")
	if err != nil {
		return err
	}
	artifacts, err := r.artifacts()
	if err != nil {
		return err
	}
	for _, a := range artifacts {
		path := filepath.Join(r.out, a.Name)
		switch {
		case strings.HasSuffix(a.Name, ".oci.tar"):
			for _, arch := range architectures {
				name := strings.TrimSuffix(a.Name, ".oci.tar") + "_linux_" + arch
				err = errors.Join(err, r.sbom(ctx, syft, name, "--platform=linux/"+arch, "oci-archive:"+path))
			}
		case strings.HasSuffix(a.Name, ".tar.gz"):
			err = r.sbom(ctx, syft, strings.TrimSuffix(a.Name, ".tar.gz"), "file:"+path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sbom writes one SBOM in SPDX format, without the time and the random number that syft adds.
func (r *release) sbom(ctx context.Context, syft, name string, args ...string) error {
	text, err := r.output(ctx, r.out, syft, append([]string{"scan", "--quiet", "--output=spdx-json", "--source-name=" + name, "--source-version=" + r.version}, args...)...)
	if err != nil {
		return err
	}
	var document map[string]any
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return fmt.Errorf("reading what syft wrote: %w", err)
	}
	info, ok := document["creationInfo"].(map[string]any)
	packages, _ := document["packages"].([]any)
	if !ok || len(packages) < 2 {
		return fmt.Errorf("syft found nothing in %s", name)
	}
	committed, err := r.output(ctx, r.clone, "git", "show", "--no-patch", "--format=%cI", r.commit)
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, committed)
	if err != nil {
		return err
	}
	info["created"] = at.UTC().Format(time.RFC3339)
	document["documentNamespace"] = fmt.Sprintf("%s/releases/download/%s/%s.spdx.json", source, r.version, name)
	data, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name+".spdx.json"), data, 0o644)
}

// artifact is a file of the release, in the form of in-toto's ResourceDescriptor.
type artifact struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

func (r *release) artifacts() ([]artifact, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	var all []artifact
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, artifact{Name: e.Name(), Digest: map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256(data))}})
	}
	return all, nil
}

// provenance writes the sources of the artifacts and the images, as an in-toto statement of SLSA's type, and the checksums of all
// files.
func (r *release) provenance(context.Context) error {
	subjects, err := r.artifacts()
	if err != nil {
		return err
	}
	for name, digest := range r.digests {
		subjects = append(subjects, artifact{Name: registry + "/" + name, Digest: map[string]string{"sha256": strings.TrimPrefix(digest, "sha256:")}})
	}
	slices.SortFunc(subjects, func(a, b artifact) int { return strings.Compare(a.Name, b.Name) })
	builder := "local" // a rehearsal on a developer's machine
	if r.keyless {
		builder = source + "/.github/workflows/release.yml@refs/tags/" + r.version
	}
	statement := map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":            source + "/blob/" + r.version + "/docs/releases.md",
				"externalParameters":   map[string]string{"version": r.version},
				"internalParameters":   map[string]string{"go": runtime.Version()},
				"resolvedDependencies": []artifact{{URI: "git+" + source + "@refs/tags/" + r.version, Digest: map[string]string{"gitCommit": r.commit}}},
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": builder}},
		},
	}
	data, err := json.MarshalIndent(statement, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, "provenance.intoto.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	all, err := r.artifacts()
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, a := range all {
		fmt.Fprintf(&sums, "%s  %s\n", a.Digest["sha256"], a.Name)
	}
	return os.WriteFile(filepath.Join(r.out, "checksums.txt"), []byte(sums.String()), 0o644)
}

// sign signs the checksums, which cover all files, and the provenance.
func (r *release) sign(ctx context.Context) error {
	if r.key == "" && !r.keyless {
		fmt.Fprintln(os.Stderr, "release: nothing is signed, because neither -key nor -keyless is set")
		return nil
	}
	cosign, err := r.tool(ctx, "cosign")
	if err != nil {
		return err
	}
	for _, name := range []string{"checksums.txt", "provenance.intoto.json"} {
		bundle := filepath.Join(r.out, name+".sigstore.json")
		args := []string{"sign-blob", "--yes", "--bundle=" + name + ".sigstore.json"}
		if r.key != "" {
			// Without a transparency log: a rehearsal must not be published.
			args = append(args, "--key="+r.key, "--use-signing-config=false", "--tlog-upload=false")
		}
		if _, err := r.output(ctx, r.out, cosign, append(args, name)...); err != nil {
			return err
		}
		if err := os.Chmod(bundle, 0o644); err != nil {
			return err
		}
	}
	return nil
}
