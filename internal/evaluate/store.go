// Package evaluate reads the stored results of benchmarks, and summarizes and judges them.
package evaluate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// mostRounds bounds the rounds in memory, of 1 KiB each. A larger benchmark is alone there.
const mostRounds = 20_000

// Store reads stored results and judges them. It keeps what it read, and reads only new ones.
type Store struct {
	Live     client.Reader
	keeping  sync.Mutex    // guards kept; nothing is read or computed meanwhile
	kept     []*collection // those used last, the latest at the end
	decoding sync.Mutex    // held while a result is decoded, which takes a hundred times its size
}

type collection struct {
	benchmark types.UID
	using     sync.Mutex // held by the worker that reads these results, or computes from them
	size      int        // rounds of cells when all planned runs are read
	rounds    *rounds.Collection
	read      []readResult // these results, in the order of the status
}

// readResult was read; valid: its content is what the status names.
type readResult struct {
	version version
	named   v1alpha1.StoredResult
	valid   bool
}

type version struct {
	uid             types.UID
	resourceVersion string
}

func versionOf(o metav1.Object) version { return version{o.GetUID(), o.GetResourceVersion()} }

// hold locks benchmarks' collections for a worker; all lock in one order, without a deadlock.
func (s *Store) hold(of ...*v1alpha1.LatencyBenchmark) (held map[types.UID]*collection, release func()) {
	held = map[types.UID]*collection{}
	s.keeping.Lock()
	for _, b := range of {
		held[b.UID] = s.keep(b)
	}
	s.keeping.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(held)) {
		held[uid].using.Lock()
	}
	return held, func() {
		for _, c := range held {
			c.using.Unlock()
		}
	}
}

// keep returns a benchmark's collection, maybe empty, and drops those that were unused longest.
func (s *Store) keep(b *v1alpha1.LatencyBenchmark) *collection {
	own := &collection{benchmark: b.UID}
	if i := slices.IndexFunc(s.kept, func(k *collection) bool { return k.benchmark == b.UID }); i >= 0 {
		own = s.kept[i]
		s.kept = slices.Delete(s.kept, i, i+1)
	}
	own.size = 0
	for _, run := range plan.Runs(b) {
		own.size += len(run.Cells)
		if run.Variant.Capture == v1alpha1.CaptureServer {
			own.size += len(run.Cells)
		}
	}
	total := own.size
	for _, k := range s.kept {
		total += k.size
	}
	for total > mostRounds && len(s.kept) > 0 {
		total -= s.kept[0].size
		s.kept = slices.Delete(s.kept, 0, 1)
	}
	s.kept = append(s.kept, own)
	return own
}

// gather reads a status's results into the collection, oldest first, and returns the unchanged.
func (s *Store) gather(
	ctx context.Context, own *collection, b *v1alpha1.LatencyBenchmark, merged bool,
) (*rounds.Collection, []v1alpha1.StoredResult, error) {
	versions, err := s.versions(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	exist := slices.DeleteFunc(slices.Clone(b.Status.Stored), func(named v1alpha1.StoredResult) bool {
		_, ok := versions[named.ConfigMap]
		return !ok
	})
	changed := len(own.read) > len(exist)
	for i, known := range own.read[:min(len(own.read), len(exist))] {
		changed = changed || known.named != exist[i] || known.version != versions[exist[i].ConfigMap]
	}
	if own.rounds == nil || changed || merged && !own.rounds.Merges {
		own.rounds, own.read = rounds.NewUnmerged(b.Spec), nil
		if merged {
			own.rounds = rounds.New(b.Spec)
		}
	}
	for _, named := range exist[len(own.read):] {
		if err := s.read(ctx, b, own, named); err != nil {
			own.rounds, own.read = nil, nil
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

func (s *Store) read(ctx context.Context, b *v1alpha1.LatencyBenchmark, into *collection, named v1alpha1.StoredResult) error {
	cm, err := observe.Get[corev1.ConfigMap](ctx, s.Live, b.Namespace, named.ConfigMap)
	if err != nil {
		return err
	}
	if cm == nil {
		into.read = append(into.read, readResult{named: named})
		return nil
	}
	s.decoding.Lock()
	defer s.decoding.Unlock()
	one := readResult{version: versionOf(cm), named: named}
	if run, err := result.Open(cm, named); err == nil {
		one.valid = true
		if err := into.rounds.Add(run); err != nil {
			return err
		}
	}
	into.read = append(into.read, one)
	return nil
}

func (s *Store) versions(ctx context.Context, b *v1alpha1.LatencyBenchmark) (map[string]version, error) {
	listed := make(map[string]bool, len(b.Status.Stored))
	for _, named := range b.Status.Stored {
		listed[named.ConfigMap] = true
	}
	versions := make(map[string]version, len(listed))
	if len(listed) == 0 {
		return versions, nil
	}
	err := observe.Each(ctx, s.Live, func() client.ObjectList {
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

// Any user may write an export: the criteria's digest decides, as trusted as their author.

const (
	fieldExport     = "spec.criteria.baseline.export"
	fieldExportName = fieldExport + ".configMapName"
	fieldExportSum  = fieldExport + ".sha256"
)

func (s *Store) lookExport(ctx context.Context, namespace string, c *compared) error {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	err := s.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: c.export.ConfigMapName}, found)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting ConfigMap %s: %w", c.export.ConfigMapName, err)
	}
	if found.UID == "" || !found.DeletionTimestamp.IsZero() {
		c.missing = noExport(c.export.ConfigMapName)
	} else {
		c.held = versionOf(found)
	}
	return nil
}

func noExport(name string) string {
	return fmt.Sprintf("%s: ConfigMap %s does not exist in this namespace; create it with kubectl tailgate export --configmap", fieldExportName, name)
}

func refuse(reason, format string, args ...any) *verdict.Blocker {
	return &verdict.Blocker{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Exported returns the results of the export with this digest, or why it cannot be compared with.
func Exported(ctx context.Context, b *v1alpha1.LatencyBenchmark, cm *corev1.ConfigMap, sha256 string) judge.Results {
	results, refused := judge.Results{}, (*verdict.Blocker)(nil)
	err := export.ReadConfigMap(ctx, cm, sha256, func(of *v1alpha1.LatencyBenchmark) error {
		results.Collection = rounds.NewUnmerged(of.Spec)
		return unlike(b, of)
	}, func(run result.Stored) error {
		if !hasEvidence(run.Client) || !hasEvidence(run.Server) {
			return refuse(v1alpha1.ReasonBaselineWithoutEvidence, "%s: run %s has no evidence of where it was measured, %s",
				fieldExport, run.Client.Run, onlyDescribed)
		}
		return results.Add(run)
	})
	switch {
	case err == nil:
		return results
	case errors.As(err, &refused):
	case errors.Is(err, export.ErrDigest):
		refused = refuse(v1alpha1.ReasonBaselineDigestDiffers, "%s: ConfigMap %s contains %s; create it again from the export of this digest, "+
			"or name the digest of an export that you trust", fieldExportSum, cm.Name, oneLine(err))
	default:
		refused = refuse(v1alpha1.ReasonBaselineUnreadable, "%s: ConfigMap %s: %s; "+
			"create it again with kubectl tailgate export --configmap of this version", fieldExportName, cm.Name, oneLine(err))
	}
	return judge.Results{Trouble: refused}
}

const onlyDescribed = "so that it can only be described; name an export of a benchmark, or one of tailgate-agent bare"

func unlike(b, exported *v1alpha1.LatencyBenchmark) error {
	missing, stored := plan.RoundNumbers(exported), exported.Status.Stored
	planned := len(missing)
	for _, s := range stored {
		delete(missing, s.Run)
	}
	own, other := b.Spec, exported.Spec
	switch {
	case own.Tool != other.Tool:
		return refuse(v1alpha1.ReasonBaselineUnlike, "%s: it was measured with tool %s, and this benchmark with %s; compare results of one tool", fieldExport, other.Tool, own.Tool)
	case own.LatencyType != other.LatencyType:
		return refuse(v1alpha1.ReasonBaselineUnlike, "%s: it is of latencyType %s, and this benchmark of %s; compare results of one latencyType",
			fieldExport, other.LatencyType, own.LatencyType)
	case len(stored) == 0:
		return refuse(v1alpha1.ReasonBaselineWithoutEvidence, "%s: it has no stored runs, %s", fieldExport, onlyDescribed)
	case exported.Succeeded() != metav1.ConditionTrue || len(stored) != planned || len(missing) > 0:
		return refuse(v1alpha1.ReasonBaselineNotComplete, "%s: it has %d of %d runs, and condition Succeeded %q; export a benchmark that is complete",
			fieldExport, len(stored), planned, exported.Succeeded())
	}
	return nil
}

func hasEvidence(d result.Document) bool {
	e := d.Evidence
	return e.Node != "" && e.Kernel != "" && e.CPUsAllowed != "" && e.Interface != "" && len(e.Paths) > 0
}
