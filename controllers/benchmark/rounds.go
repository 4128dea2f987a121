package benchmark

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
)

// pageOfConfigMaps is how many ConfigMaps are listed at once, their metadata only. Their authors may have given each
// labels and annotations of a megabyte.
const pageOfConfigMaps = 32

// mostRounds is how many rounds of cells are kept in memory in all, of the benchmarks that were read last: about 1 KiB
// each. A benchmark with more, and 40,000 are legal, is kept alone.
const mostRounds = 20_000

// collections keep what was read of stored results, so that after each run only the new result is read. Results are read
// one at a time in all of the manager: each takes a hundred times its size while it is decoded. Ready to use when zero.
type collections struct {
	reading sync.Mutex
	// kept are those read last, the latest at the end.
	kept []*collection
}

// collection is what was read of a benchmark's stored results.
type collection struct {
	benchmark types.UID
	rounds    *rounds.Collection
	// read are the results that were read, in the order of the status.
	read []readResult
}

// readResult is a stored result that was read, and whether it was the one that the status names.
type readResult struct {
	version version
	named   v1alpha1.StoredResult
	valid   bool
}

// version is that of a ConfigMap: as long as both are the same it holds what it held.
type version struct {
	uid             types.UID
	resourceVersion string
}

func versionOf(o metav1.Object) version { return version{o.GetUID(), o.GetResourceVersion()} }

// size is how many rounds of cells a benchmark of this plan has.
func (c *collection) size() int {
	n := 0
	for _, v := range c.rounds.Variants {
		n += len(v.Cells) * v.Runs
	}
	return n
}

// of finds what is kept of a benchmark, or begins, and makes room for it: the benchmarks that were not read for longest
// go first. One that is to be merged begins again when what is kept is not.
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

// forget forgets a benchmark, so that the next one who asks reads everything again.
func (c *collections) forget(uid types.UID) {
	c.kept = slices.DeleteFunc(c.kept, func(k *collection) bool { return k.benchmark == uid })
}

// gather reads the results that a benchmark's status lists, oldest first, as far as they still are what was stored, and
// returns which these are. Only what was not read before is read. The rounds of each cell are merged on request. The caller
// holds the lock, and does not use the rounds after it has given it up.
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

// versions are those of the ConfigMaps that a benchmark's status lists and that exist, by name.
func (r *Reconciler) versions(ctx context.Context, b *v1alpha1.LatencyBenchmark) (map[string]version, error) {
	listed := make(map[string]bool, len(b.Status.Stored))
	for _, s := range b.Status.Stored {
		listed[s.ConfigMap] = true
	}
	versions := make(map[string]version, len(listed))
	for next, more := "", len(listed) > 0; more; more = next != "" {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		err := r.Live.List(ctx, page, client.InNamespace(b.Namespace), client.MatchingLabels(pods.Labels(b.Name)),
			client.Limit(pageOfConfigMaps), client.Continue(next))
		if err != nil {
			return nil, fmt.Errorf("listing the stored results of %s: %w", b.Name, err)
		}
		for i := range page.Items {
			if cm := &page.Items[i]; listed[cm.Name] {
				versions[cm.Name] = versionOf(cm)
			}
		}
		next = page.Continue
	}
	return versions, nil
}
