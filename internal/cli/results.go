package cli

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// benchmarkNamed reads a benchmark.
func benchmarkNamed(ctx context.Context, api client.Client, namespace, name string) (*v1alpha1.LatencyBenchmark, error) {
	b := &v1alpha1.LatencyBenchmark{}
	if err := read(ctx, api, subject{benchmarks, benchmarks.key(namespace, name)}, b); err != nil {
		return nil, err
	}
	return b, nil
}

// load reads what was measured of a benchmark. It is an error when that is nothing.
func (c *cluster) load(ctx context.Context, arg string) (export.Benchmark, error) {
	api, namespace, err := c.client()
	if err != nil {
		return export.Benchmark{}, err
	}
	b, err := benchmarkNamed(ctx, api, namespace, arg)
	if err != nil {
		return export.Benchmark{}, err
	}
	return measured(ctx, api, b)
}

// measured reads what was measured of a benchmark of the cluster; of many pairs the benchmark of each, without its stored
// results. It is an error when that is nothing.
func measured(ctx context.Context, api client.Client, b *v1alpha1.LatencyBenchmark) (export.Benchmark, error) {
	all := export.Benchmark{Object: b}
	if !b.ManyPairs() {
		var err error
		all.Runs, err = storedResults(ctx, api, b)
		return all, err
	}
	pairs, err := pairsOf(ctx, api, b)
	if err != nil {
		return export.Benchmark{}, err
	}
	for i := range pairs {
		all.Pairs = append(all.Pairs, export.Benchmark{Object: &pairs[i]})
	}
	return all, nil
}

// storedResults reads all results that a benchmark's status lists, oldest first. Each is verified: that it is what its
// agents sent, and that it is the one that the status means. It is an error when there is none.
func storedResults(ctx context.Context, api client.Client, b *v1alpha1.LatencyBenchmark) ([]result.Stored, error) {
	if len(b.Status.Stored) == 0 {
		return nil, fmt.Errorf("LatencyBenchmark %s/%s has no results yet: %s", b.Namespace, b.Name, report.Standing(b))
	}
	runs := make([]result.Stored, 0, len(b.Status.Stored))
	for _, s := range b.Status.Stored {
		cm := &corev1.ConfigMap{}
		if err := api.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: s.ConfigMap}, cm); apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("the result of run %s is gone: somebody deleted ConfigMap %s/%s", s.Run, b.Namespace, s.ConfigMap)
		} else if err != nil {
			return nil, fmt.Errorf("getting the result of run %s: %w", s.Run, err)
		}
		stored, err := result.FromStatus(cm, s)
		if err != nil {
			return nil, fmt.Errorf("reading the result of run %s: %w", s.Run, err)
		}
		runs = append(runs, stored)
	}
	return runs, nil
}

// pageOfPairs is how many benchmarks of pairs are asked for at once: a hundred nodes with each other are 4,950.
const pageOfPairs = 250

// pairsOf lists the benchmarks of the pairs of one, in the order of their names. It is an error when there is none.
func pairsOf(ctx context.Context, api client.Client, b *v1alpha1.LatencyBenchmark) ([]v1alpha1.LatencyBenchmark, error) {
	var pairs []v1alpha1.LatencyBenchmark
	for next, more := "", true; more; more = next != "" {
		page := &v1alpha1.LatencyBenchmarkList{}
		err := api.List(ctx, page, client.InNamespace(b.Namespace), client.MatchingLabels{v1alpha1.LabelParent: b.Name},
			client.Limit(pageOfPairs), client.Continue(next))
		if err != nil {
			return nil, fmt.Errorf("listing the pairs of LatencyBenchmark %s/%s: %w", b.Namespace, b.Name, err)
		}
		for _, p := range page.Items {
			// The label selects; the owner decides.
			if slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == b.UID }) {
				pairs = append(pairs, p)
			}
		}
		next = page.Continue
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("LatencyBenchmark %s/%s has no pairs yet: %s", b.Namespace, b.Name, report.Standing(b))
	}
	return pairs, nil
}
