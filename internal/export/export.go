// Package export stores results in a directory, where they outlive a cluster, and reads them, all
// verified. docs/internals/formats.md lists the files.
package export

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
)

var (
	ErrNone    = errors.New("no export")
	ErrDamaged = errors.New("damaged export; copy it again, or export again")
	ErrExists  = errors.New("it already exists")
)

// Benchmark is a LatencyBenchmark or LatencyMatrix with its results, in a cluster or an export.
type Benchmark struct {
	Object *v1alpha1.LatencyBenchmark // the benchmark itself, or the overview of the matrix
	Runs   []result.Stored            // oldest first, each verified by the digests in the status
	Matrix *v1alpha1.LatencyMatrix    // nil for a LatencyBenchmark
	Pairs  []Benchmark                // of a matrix, in the order of their names
	Dir    string                     // the export's directory; empty for a cluster's
}

type manifest struct {
	result.Manifest
	paths map[string]result.File
}

const (
	manifestFile  = result.ExportManifest
	benchmarkFile = result.ExportBenchmark
	matrixFile    = "matrix.json"
	runsDir       = result.ExportRuns
	pairsDir      = "pairs"
	maxFileBytes  = 256 << 20
	maxTotalBytes = 16 << 30
	maxFiles      = 1_000_000
)

type Written struct {
	Files          int // with the manifest, as Bytes, their total size
	Bytes          int64
	ManifestSHA256 string // in hexadecimal; it covers all files
}

// Write creates a benchmark's directory, whole or not at all; equal results give equal bytes. The
// error wraps ErrExists if it exists, unless it is an export and replace is true.
func Write(dir string, b Benchmark, replace bool) (Written, error) {
	if err := MayWrite(dir, replace); err != nil {
		return Written{}, err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return Written{}, fmt.Errorf("making the directory of the export: %w", err)
	}
	// Written beside the destination, so that an atomic rename completes it.
	unfinished, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+"-")
	if err != nil {
		return Written{}, fmt.Errorf("making a directory for the export: %w", err)
	}
	defer os.RemoveAll(unfinished)
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return Written{}, fmt.Errorf("making a directory for the export: %w", err)
	}
	w := &writer{put: func(name string, content []byte) error {
		full := filepath.Join(unfinished, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		return os.WriteFile(full, content, 0o644)
	}}
	if err := w.benchmark("", b); err != nil {
		return Written{}, fmt.Errorf("writing the export of %s/%s: %w", b.Object.Namespace, b.Object.Name, err)
	}
	if err := putInPlace(unfinished, dir); err != nil {
		return Written{}, err
	}
	return w.written(), nil
}

// MayWrite returns the error with which Write would refuse to write to a directory.
func MayWrite(dir string, replace bool) error {
	_, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking for %s: %w", dir, err)
	case !replace:
		return fmt.Errorf("%s: %w", dir, ErrExists)
	}
	if _, err := os.Stat(filepath.Join(dir, manifestFile)); err != nil {
		return fmt.Errorf("%s: %w, and is not an export that could be replaced", dir, ErrExists)
	}
	return nil
}

// putInPlace renames a finished export; one that it replaces is restored if that fails.
func putInPlace(finished, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(finished, dir); err != nil {
			return fmt.Errorf("putting the export into its place: %w", err)
		}
		return nil
	}
	aside := finished + "-replaced"
	if err := os.Rename(dir, aside); err != nil {
		return fmt.Errorf("putting the old export aside: %w", err)
	}
	if err := os.Rename(finished, dir); err != nil {
		return errors.Join(fmt.Errorf("putting the export into its place: %w", err), os.Rename(aside, dir))
	}
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("removing the old export: %w", err)
	}
	return nil
}

type writer struct {
	put   func(name string, content []byte) error
	files []result.File
}

func (w *writer) file(name string, content []byte) error {
	if err := w.put(name, content); err != nil {
		return err
	}
	w.files = append(w.files, result.NewFile(name, content))
	return nil
}

func (w *writer) json(name string, v any) error {
	content, err := result.EncodeJSON(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return w.file(name, content)
}

// benchmark writes a benchmark into a directory below the writer's, the manifest last.
func (w *writer) benchmark(under string, b Benchmark) error {
	first := len(w.files)
	object := b.Object
	if err := w.object(under, b); err != nil {
		return err
	}
	m := result.Manifest{Format: result.ExportFormat, Version: result.ExportVersion, Namespace: object.Namespace, Name: object.Name, UID: string(object.UID)}
	for _, p := range b.Pairs {
		m.Pairs = append(m.Pairs, p.Object.Name)
		if err := w.benchmark(path.Join(under, pairsDir, p.Object.Name), p); err != nil {
			return err
		}
	}
	for _, write := range []func(string, Benchmark) error{w.runs, w.evidence, w.results, w.histograms, w.slowest} {
		if err := write(under, b); err != nil {
			return err
		}
	}
	for _, f := range w.files[first:] {
		f.Path = strings.TrimPrefix(f.Path, under+"/")
		m.Files = append(m.Files, f)
	}
	slices.SortFunc(m.Files, func(a, b result.File) int { return strings.Compare(a.Path, b.Path) })
	return w.json(path.Join(under, manifestFile), m)
}

func (w *writer) object(under string, b Benchmark) error {
	o, file, kind := client.Object(b.Object.DeepCopy()), benchmarkFile, "LatencyBenchmark"
	if b.Matrix != nil {
		o, file, kind = b.Matrix.DeepCopy(), matrixFile, "LatencyMatrix"
	}
	o.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetManagedFields(nil)
	return w.json(path.Join(under, file), o)
}

func (w *writer) runs(under string, b Benchmark) error {
	for _, r := range b.Runs {
		for name, content := range r.Files() {
			if err := w.file(path.Join(under, runsDir, r.Client.Run, name), content); err != nil {
				return err
			}
		}
	}
	return nil
}

type runEvidence struct {
	Run     string      `json:"run"`
	Variant string      `json:"variant"`
	Round   int32       `json:"round"`
	Attempt int32       `json:"attempt"`
	Client  endEvidence `json:"client"`
	Server  endEvidence `json:"server"`
}

type endEvidence struct {
	Observed result.Evidence `json:"observed"`
	Pod      result.Seen     `json:"pod"`
}

func (w *writer) evidence(under string, b Benchmark) error {
	if len(b.Runs) == 0 || result.Imported(b.Runs) != "" {
		return nil
	}
	rounds := plan.RoundNumbers(b.Object)
	var all []runEvidence
	for _, r := range b.Runs {
		all = append(all, runEvidence{
			Run: r.Client.Run, Variant: r.Client.Variant, Round: rounds[r.Client.Run], Attempt: r.Client.Attempt,
			Client: endEvidence{r.Client.Evidence, r.ClientSeen}, Server: endEvidence{r.Server.Evidence, r.ServerSeen},
		})
	}
	return w.json(path.Join(under, "evidence.json"), all)
}

func (w *writer) results(under string, b Benchmark) error {
	for _, form := range []string{"json", "csv"} {
		f, err := report.FormNamed(form)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if b.Matrix != nil {
			err = f.WritePairs(&out, b.Matrix, Objects(b.Pairs))
		} else {
			err = f.Write(&out, b.Object, b.Runs)
		}
		if err != nil {
			return err
		}
		if err := w.file(path.Join(under, "results."+form), out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func Objects(all []Benchmark) []*v1alpha1.LatencyBenchmark {
	var objects []*v1alpha1.LatencyBenchmark
	for _, b := range all {
		objects = append(objects, b.Object)
	}
	return objects
}

func (w *writer) written() Written {
	all := Written{Files: len(w.files)}
	for _, f := range w.files {
		all.Bytes += f.Bytes
		if f.Path == manifestFile {
			all.ManifestSHA256 = f.SHA256
		}
	}
	return all
}
