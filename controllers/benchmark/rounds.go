package benchmark

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
)

// mostRounds is the total number of rounds of cells that are kept in memory, for the benchmarks that were read last: about 1 KiB
// each. A benchmark with more rounds, up to the 40,000 that the API allows, is kept alone.
const mostRounds = 20_000

// collections keeps the stored results that were read, so that after each run only the new result is read. The manager reads
// one result at a time, because each takes a hundred times its size while it is decoded. The zero value is ready to use.
type collections struct {
	reading sync.Mutex
	// kept are the collections that were read last, the latest at the end.
	kept []*collection
}

// collection holds the stored results of a benchmark that were read.
type collection struct {
	benchmark types.UID
	rounds    *rounds.Collection
	// read lists these results, in the order of the status.
	read []readResult
}

// readResult is a stored result that was read; valid reports whether its content was the one that the status names.
type readResult struct {
	version version
	named   v1alpha1.StoredResult
	valid   bool
}

// version is the version of a ConfigMap: while both fields are the same, its content is the same.
type version struct {
	uid             types.UID
	resourceVersion string
}

func versionOf(o metav1.Object) version { return version{o.GetUID(), o.GetResourceVersion()} }

// size returns the number of rounds of cells of the plan.
func (c *collection) size() int {
	n := 0
	for _, v := range c.rounds.Variants {
		n += len(v.Cells) * v.Runs
	}
	return n
}

// of returns the collection of a benchmark, or a new one, and makes room for it: the benchmarks that have not been read for the
// longest time are dropped first. If merged is true and the kept collection is not merged, it returns a new one.
func (c *collections) of(b *v1alpha1.LatencyBenchmark, merged bool) *collection {
	var own *collection
	if i := slices.IndexFunc(c.kept, func(k *collection) bool { return k.benchmark == b.UID }); i >= 0 {
		own = c.kept[i]
		c.kept = slices.Delete(c.kept, i, i+1)
	}
	if own == nil || merged && !own.rounds.Merges {
		own = &collection{benchmark: b.UID, rounds: rounds.NewUnmerged(b.Spec)}
		if merged {
			own.rounds = rounds.New(b.Spec)
		}
	}
	planned := 0
	for _, run := range plan.Runs(b) {
		planned += len(run.Cells)
	}
	for _, k := range c.kept {
		planned += k.size()
	}
	for planned > mostRounds && len(c.kept) > 0 {
		planned -= c.kept[0].size()
		c.kept = slices.Delete(c.kept, 0, 1)
	}
	c.kept = append(c.kept, own)
	return own
}

// forget drops the collection of a benchmark, so that the next gather reads everything again.
func (c *collections) forget(uid types.UID) {
	c.kept = slices.DeleteFunc(c.kept, func(k *collection) bool { return k.benchmark == uid })
}

// gather reads the results that a benchmark's status lists, oldest first, if they are unchanged since they were stored, and
// returns which of them are. It reads only results that were not read before. If merged is true, it merges the rounds of each cell.
// The caller holds the lock, and does not use the rounds after it has released it.
func (r *Reconciler) gather(ctx context.Context, b *v1alpha1.LatencyBenchmark, merged bool) (*rounds.Collection, []v1alpha1.StoredResult, error) {
	versions, err := r.versions(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	var exist []v1alpha1.StoredResult
	for _, s := range b.Status.Stored {
		if _, ok := versions[s.ConfigMap]; ok {
			exist = append(exist, s)
		}
	}
	own := r.stored.of(b, merged)
	for i, known := range own.read {
		if i == len(exist) || known.named != exist[i] || known.version != versions[exist[i].ConfigMap] {
			r.stored.forget(b.UID)
			own = r.stored.of(b, merged)
			break
		}
	}
	for _, s := range exist[len(own.read):] {
		if err := r.read(ctx, b, own, s); err != nil {
			r.stored.forget(b.UID)
			return nil, nil, err
		}
	}
	var kept []v1alpha1.StoredResult
	for _, known := range own.read {
		if known.valid {
			kept = append(kept, known.named)
		}
	}
	return own.rounds, kept, nil
}

// read reads one stored result into a collection.
func (r *Reconciler) read(ctx context.Context, b *v1alpha1.LatencyBenchmark, into *collection, s v1alpha1.StoredResult) error {
	cm, err := controllers.Get[corev1.ConfigMap](ctx, r.Live, b.Namespace, s.ConfigMap)
	if err != nil {
		return err
	}
	if cm == nil {
		into.read = append(into.read, readResult{named: s})
		return nil
	}
	one := readResult{version: versionOf(cm), named: s}
	if run, err := result.Open(cm, s); err == nil {
		one.valid = true
		if err := into.rounds.Add(run); err != nil {
			return err
		}
	}
	into.read = append(into.read, one)
	return nil
}

// versions returns the versions of the existing ConfigMaps that a benchmark's status lists, by name.
func (r *Reconciler) versions(ctx context.Context, b *v1alpha1.LatencyBenchmark) (map[string]version, error) {
	listed := make(map[string]bool, len(b.Status.Stored))
	for _, s := range b.Status.Stored {
		listed[s.ConfigMap] = true
	}
	versions := make(map[string]version, len(listed))
	if len(listed) == 0 {
		return versions, nil
	}
	err := controllers.Each(ctx, r.Live, func() client.ObjectList {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		return page
	}, func(o runtime.Object) error {
		if cm := o.(*metav1.PartialObjectMetadata); listed[cm.Name] {
			versions[cm.Name] = versionOf(cm)
		}
		return nil
	}, client.InNamespace(b.Namespace), client.MatchingLabels(pods.Labels(b.Name)))
	if err != nil {
		return nil, fmt.Errorf("listing the stored results of %s: %w", b.Name, err)
	}
	return versions, nil
}
