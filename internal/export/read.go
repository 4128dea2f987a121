package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/admit"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

// ReadDir reads a directory's export, see Read, and no file outside, also by links.
func ReadDir(ctx context.Context, dir string) (Benchmark, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Benchmark{}, fmt.Errorf("%w: %w", ErrNone, err)
	}
	defer func() { _ = root.Close() }() // Only read.
	b, err := Read(ctx, root.FS())
	if err != nil {
		return Benchmark{}, fmt.Errorf("%s: %w", dir, err)
	}
	b.Dir = dir
	return b, nil
}

func IsExport(dir string) bool {
	info, err := os.Stat(path.Join(dir, manifestFile))
	return err == nil && info.Mode().IsRegular()
}

// Read verifies files by the manifest, the object by its kind's definition and results by its
// status. The error wraps ErrNone without a manifest, and ErrDamaged if a file differs from it.
func Read(ctx context.Context, fsys fs.FS) (Benchmark, error) {
	m, err := readManifest(fsys)
	if err != nil {
		return Benchmark{}, err
	}
	b, err := m.read(ctx, fsys)
	if err != nil {
		return Benchmark{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return b, nil
}

func readManifest(fsys fs.FS) (manifest, error) {
	content, err := from(fsys)(manifestFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return manifest{}, fmt.Errorf("%w: there is no %s", ErrNone, manifestFile)
	case err != nil:
		return manifest{}, fmt.Errorf("reading %s: %w", manifestFile, err)
	}
	return parseManifest(content)
}

func parseManifest(content []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(content, &m.Manifest); err != nil {
		return manifest{}, fmt.Errorf("%w: %s: %w", ErrDamaged, manifestFile, err)
	}
	switch {
	case m.Format != result.ExportFormat:
		return manifest{}, fmt.Errorf("%w: %s is of format %.40q, not %s; name a directory that kubectl tailgate export or import wrote", ErrNone, manifestFile, m.Format, result.ExportFormat)
	case m.Version != result.ExportVersion:
		return manifest{}, fmt.Errorf("%w: its format has version %d, and this version of Tailgate reads version %d; use the version that wrote it", ErrNone, m.Version, result.ExportVersion)
	case len(m.Files) > maxFiles:
		return manifest{}, fmt.Errorf("%w: %s lists %d files", ErrDamaged, manifestFile, len(m.Files))
	}
	m.paths = make(map[string]result.File, len(m.Files))
	total := int64(0)
	for _, f := range m.Files {
		if total += f.Bytes; f.Bytes < 0 || f.Bytes > maxFileBytes || total > maxTotalBytes {
			return manifest{}, fmt.Errorf("%w: %s lists %.80q with %d bytes; a file has at most %d, and all together %d",
				ErrDamaged, manifestFile, f.Path, f.Bytes, maxFileBytes, maxTotalBytes)
		}
		m.paths[f.Path] = f
	}
	if len(m.paths) < len(m.Files) || sets.New(m.Pairs...).Len() < len(m.Pairs) {
		return manifest{}, fmt.Errorf("%w: %s lists a file or a pair twice", ErrDamaged, manifestFile)
	}
	return m, nil
}

type source func(name string) ([]byte, error)

// from returns regular files of at most maxFileBytes: opening a FIFO would wait.
func from(fsys fs.FS) source {
	return func(name string) ([]byte, error) {
		info, err := fs.Stat(fsys, name)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, errors.New("not a regular file")
		}
		file, err := fsys.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // Only read.
		content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
		if err == nil && len(content) > maxFileBytes {
			err = fmt.Errorf("it has more than %d bytes", maxFileBytes)
		}
		return content, err
	}
}

func (m manifest) listed(from source, name string) ([]byte, error) {
	f, ok := m.paths[name]
	if !ok {
		return nil, fmt.Errorf("%s does not list %s", manifestFile, name)
	}
	content, err := from(name)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if got := result.NewFile(name, content); got != f {
		return nil, fmt.Errorf("%s was modified: its digest differs; it has %d bytes, and %s says %d", name, got.Bytes, manifestFile, f.Bytes)
	}
	return content, nil
}

// read verifies all files that the manifest lists, and reads those that are read again.
func (m manifest) read(ctx context.Context, fsys fs.FS) (Benchmark, error) {
	for _, f := range m.Files {
		if _, err := m.listed(from(fsys), f.Path); err != nil {
			return Benchmark{}, err
		}
	}
	b, err := m.object(ctx, from(fsys))
	if err != nil {
		return Benchmark{}, err
	}
	object := b.Object
	for _, s := range object.Status.Stored {
		run, err := m.run(from(fsys), s)
		if err != nil {
			return Benchmark{}, err
		}
		b.Runs = append(b.Runs, run)
	}
	// The agents of hosts without Kubernetes write only what they measured.
	if len(b.Runs) > 0 && b.Runs[0].ClientSeen.Bare && len(object.Status.Results) == 0 {
		collected, err := rounds.Of(object.Spec, b.Runs...)
		if err != nil {
			return Benchmark{}, err
		}
		all, status := summary.Summarize(collected), &object.Status
		status.Results, status.Warnings, status.Endpoints, status.Summary = all.Results, all.Warnings, all.Endpoints, all.Headline
	}
	if b.Matrix == nil && len(m.Pairs) > 0 {
		return Benchmark{}, fmt.Errorf("a LatencyBenchmark has no pairs, and %s lists some", manifestFile)
	}
	for _, name := range m.Pairs {
		p, err := m.pair(ctx, fsys, object, name)
		if err != nil {
			return Benchmark{}, fmt.Errorf("pair %.253s: %w", name, err)
		}
		b.Pairs = append(b.Pairs, p)
	}
	return b, nil
}

func (m manifest) object(ctx context.Context, from source) (Benchmark, error) {
	file, kind := benchmarkFile, "LatencyBenchmark"
	b := Benchmark{Object: &v1alpha1.LatencyBenchmark{}}
	into := client.Object(b.Object)
	if _, ok := m.paths[matrixFile]; ok {
		b.Matrix = &v1alpha1.LatencyMatrix{}
		file, kind, into = matrixFile, "LatencyMatrix", b.Matrix
	}
	content, err := m.listed(from, file)
	if err != nil {
		return Benchmark{}, err
	}
	if err := parse(ctx, content, kind, into); err != nil {
		return Benchmark{}, fmt.Errorf("%s: %w", file, err)
	}
	if b.Matrix != nil {
		b.Object = b.Matrix.Overview()
	}
	object := b.Object
	if object.Namespace != m.Namespace || object.Name != m.Name || string(object.UID) != m.UID {
		return Benchmark{}, fmt.Errorf("%s contains %s/%s, and %s is of %.253s/%.253s", file, object.Namespace, object.Name, manifestFile, m.Namespace, m.Name)
	}
	return b, nil
}

// parse checks the known fields before it decodes any: a quantity such as 1e99999999 takes minutes.
func parse(ctx context.Context, content []byte, kind string, into client.Object) error {
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(content, &u.Object); err != nil {
		return err
	}
	want := v1alpha1.GroupVersion.WithKind(kind)
	if got := u.GroupVersionKind(); got != want {
		return fmt.Errorf("it has apiVersion %.80q, kind %.80q, and is not a %s of %s", got.GroupVersion(), got.Kind, kind, want.GroupVersion())
	}
	if u.GetName() == "" {
		return fmt.Errorf("the %s has no name", kind)
	}
	if err := Admit(ctx, u); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

const Imported = "imported" // the UID of a benchmark that no agent measured

// Admit checks an object and drops unknown fields. Without an agent, the tool may have any name.
func Admit(ctx context.Context, u *unstructured.Unstructured) error {
	name, _, _ := unstructured.NestedString(u.Object, "spec", "tool")
	if u.GetUID() != Imported || slices.Contains(v1alpha1.Tools, v1alpha1.Tool(name)) {
		return admit.Known(ctx, u)
	}
	if !foreignTool.MatchString(name) {
		return fmt.Errorf("spec.tool: %.80q is no name of a tool: at most 63 letters, digits, dots, hyphens and underscores", name)
	}
	_ = unstructured.SetNestedField(u.Object, string(v1alpha1.Tools[0]), "spec", "tool") // the spec has a tool
	err := admit.Known(ctx, u)
	_ = unstructured.SetNestedField(u.Object, name, "spec", "tool")
	return err
}

var foreignTool = regexp.MustCompile(`^[A-Za-z0-9][-._A-Za-z0-9]{0,62}$`)

func (m manifest) run(from source, s v1alpha1.StoredResult) (result.Stored, error) {
	if strings.Contains(s.Run, "/") {
		return result.Stored{}, fmt.Errorf("%.253q is not a name of a run", s.Run)
	}
	kept := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: s.Run}, Data: map[string]string{}, BinaryData: map[string][]byte{},
	}
	for _, key := range []string{result.KeyClient, result.KeyServer, result.KeyPods} {
		content, err := m.listed(from, path.Join(runsDir, s.Run, key))
		if err != nil {
			return result.Stored{}, err
		}
		if key == result.KeyPods {
			kept.Data[key] = string(content)
		} else {
			kept.BinaryData[key] = content
		}
	}
	stored, err := result.Open(kept, s)
	if err != nil {
		return result.Stored{}, fmt.Errorf("the result of run %s: %w", s.Run, err)
	}
	return stored, nil
}

func (m manifest) pair(ctx context.Context, fsys fs.FS, parent *v1alpha1.LatencyBenchmark, name string) (Benchmark, error) {
	if !fs.ValidPath(name) || strings.Contains(name, "/") {
		return Benchmark{}, errors.New("this is not a name of a benchmark")
	}
	within, err := fs.Sub(fsys, path.Join(pairsDir, name))
	if err != nil {
		return Benchmark{}, err
	}
	own, err := readManifest(within)
	if err != nil {
		return Benchmark{}, err
	}
	if len(own.Pairs) > 0 {
		return Benchmark{}, errors.New("it has pairs itself")
	}
	// The parent's manifest must list, and so cover, the pair's manifest.
	if _, err := m.listed(from(fsys), path.Join(pairsDir, name, manifestFile)); err != nil {
		return Benchmark{}, err
	}
	b, err := own.read(ctx, within)
	if err != nil {
		return Benchmark{}, err
	}
	if !slices.ContainsFunc(b.Object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == parent.UID }) {
		return Benchmark{}, fmt.Errorf("%s is not a pair of %s", b.Object.Name, parent.Name)
	}
	return b, nil
}
