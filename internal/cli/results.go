package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/imported"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

// load reads results of NAME or lmatrix/NAME in the cluster, or of a path (isPath).
func (c *cluster) load(ctx context.Context, arg string) (export.Benchmark, error) {
	if isPath(arg) {
		dir, err := exportDir(arg)
		if err != nil {
			return export.Benchmark{}, err
		}
		return export.ReadDir(ctx, dir)
	}
	if published, ok := strings.CutPrefix(arg, imported.Published+"/"); ok {
		return imported.Named(published)
	}
	of, err := parseMeasured(arg)
	if err != nil {
		return export.Benchmark{}, fmt.Errorf("%w; the path of an export begins with ./ or /", err)
	}
	api, namespace, err := c.client()
	if err != nil {
		return export.Benchmark{}, err
	}
	o := of.kind.object()
	if err := read(ctx, api, subject{of.kind, of.kind.key(namespace, of.key.Name)}, o); err != nil {
		return export.Benchmark{}, err
	}
	return measured(ctx, api, o)
}

func (c *cluster) loadWhole(ctx context.Context, arg string) (export.Benchmark, error) {
	m, err := c.load(ctx, arg)
	if err != nil || m.Dir != "" || len(m.Pairs) == 0 {
		return m, err
	}
	api, _, err := c.client()
	if err != nil {
		return export.Benchmark{}, err
	}
	for i := range m.Pairs {
		p := &m.Pairs[i]
		if len(p.Object.Status.Stored) == 0 {
			continue
		}
		if p.Runs, err = storedResults(ctx, api, p.Object); err != nil {
			return export.Benchmark{}, fmt.Errorf("pair %s: %w", p.Object.Name, err)
		}
	}
	return m, nil
}

// isPath reports whether an argument is a path: an object's name begins with a letter or digit.
func isPath(arg string) bool { return strings.HasPrefix(arg, ".") || filepath.IsAbs(arg) }

func exportDir(path string) (string, error) {
	if export.IsExport(path) {
		return path, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", fmt.Errorf("reading an export: %w", err)
	}
	var within []string
	for _, e := range entries {
		// An export whose name begins with a dot is not finished.
		if dir := filepath.Join(path, e.Name()); !strings.HasPrefix(e.Name(), ".") && export.IsExport(dir) {
			within = append(within, dir)
		}
	}
	switch len(within) {
	case 0:
		return "", fmt.Errorf("%s is not an export: it contains neither manifest.json nor an export", path)
	case 1:
		return within[0], nil
	}
	return "", fmt.Errorf("%s contains %d exports: name one of them, such as %s", path, len(within), asPath(within[0]))
}

func asPath(path string) string {
	if isPath(path) {
		return path
	}
	return "." + string(filepath.Separator) + path
}

// cutVariant splits NAME/VARIANT, and the path of an export with /VARIANT after it.
func cutVariant(arg string) (name, variant string, err error) {
	if isPath(arg) {
		if parent := filepath.Dir(filepath.Clean(arg)); !export.IsExport(arg) && export.IsExport(parent) {
			return asPath(parent), filepath.Base(arg), nil
		}
		return arg, "", nil
	}
	if published, ok := strings.CutPrefix(arg, imported.Published+"/"); ok {
		name, variant, _ := strings.Cut(published, "/")
		return imported.Published + "/" + name, variant, nil
	}
	name, variant, hasVariant := strings.Cut(arg, "/")
	if matrices.is(name) && variant != "" {
		return arg, "", nil
	}
	if name == "" || hasVariant && (variant == "" || strings.Contains(variant, "/")) {
		return "", "", fmt.Errorf("%q is neither NAME of a LatencyBenchmark nor NAME/VARIANT, nor the path of an export, which begins with ./ or /", arg)
	}
	return name, variant, nil
}

func onePair(doing string, m export.Benchmark) error {
	if m.Matrix == nil {
		return nil
	}
	list := fmt.Sprintf("`kubectl get %s -n %s -l %s=%s` lists them", benchmarks.resource(), m.Object.Namespace, v1alpha1.LabelMatrix, m.Object.Name)
	if m.Dir != "" {
		list = fmt.Sprintf("`ls %s` lists them", filepath.Join(m.Dir, "pairs"))
	}
	return fmt.Errorf("%s: LatencyMatrix %s/%s measures many pairs of nodes; name the benchmark of one pair: %s", doing, m.Object.Namespace, m.Object.Name, list)
}

// measured reads a benchmark's results, or a matrix's benchmarks of pairs; an error without any.
func measured(ctx context.Context, api client.Client, o client.Object) (export.Benchmark, error) {
	all := export.Benchmark{Object: overviewOf(o)}
	m, ok := o.(*v1alpha1.LatencyMatrix)
	if !ok {
		var err error
		all.Runs, err = storedResults(ctx, api, all.Object)
		return all, err
	}
	all.Matrix = m
	pairs, err := pairsOf(ctx, api, m)
	if err != nil {
		return export.Benchmark{}, err
	}
	for i := range pairs {
		all.Pairs = append(all.Pairs, export.Benchmark{Object: &pairs[i]})
	}
	return all, nil
}

func storedResults(ctx context.Context, api client.Client, b *v1alpha1.LatencyBenchmark) ([]result.Stored, error) {
	if len(b.Status.Stored) == 0 {
		return nil, noResults(b)
	}
	runs := make([]result.Stored, 0, len(b.Status.Stored))
	for _, s := range b.Status.Stored {
		cm := &corev1.ConfigMap{}
		if err := api.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: s.ConfigMap}, cm); apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("the result of run %s is missing: ConfigMap %s/%s was deleted", s.Run, b.Namespace, s.ConfigMap)
		} else if err != nil {
			return nil, fmt.Errorf("getting the result of run %s: %w", s.Run, err)
		}
		stored, err := result.Open(cm, s)
		if err != nil {
			return nil, fmt.Errorf("reading the result of run %s: %w", s.Run, err)
		}
		runs = append(runs, stored)
	}
	return runs, nil
}

func noResults(b *v1alpha1.LatencyBenchmark) error {
	return fmt.Errorf("LatencyBenchmark %s/%s has no results yet: %s", b.Namespace, b.Name, summary.Standing(b))
}

func pairsOf(ctx context.Context, api client.Client, m *v1alpha1.LatencyMatrix) ([]v1alpha1.LatencyBenchmark, error) {
	var pairs []v1alpha1.LatencyBenchmark
	err := observe.Each(ctx, api, func() client.ObjectList { return &v1alpha1.LatencyBenchmarkList{} }, func(o runtime.Object) error {
		p := o.(*v1alpha1.LatencyBenchmark)
		// Other objects may have the label: only the owner reference counts.
		if slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == m.UID }) {
			pairs = append(pairs, *p)
		}
		return nil
	}, client.InNamespace(m.Namespace), client.MatchingLabels{v1alpha1.LabelMatrix: m.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the pairs of LatencyMatrix %s/%s: %w", m.Namespace, m.Name, err)
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("LatencyMatrix %s/%s has no pairs yet: %s", m.Namespace, m.Name, summary.Standing(m.Overview()))
	}
	return pairs, nil
}
