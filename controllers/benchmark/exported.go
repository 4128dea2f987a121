package benchmark

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// An export is a baseline that any user of the namespace may have written. The digest in the criteria decides which bytes count, so
// that the export is trusted as far as the author of the criteria trusts it, and nothing that another user writes later is used.

// The paths of the fields that the messages about an export name.
const (
	fieldExport     = "spec.criteria.baseline.export"
	fieldExportName = fieldExport + ".configMapName"
	fieldExportSum  = fieldExport + ".sha256"
)

// lookExport reads whether the ConfigMap of an export exists, and its version, but not its content.
func (r *Reconciler) lookExport(ctx context.Context, namespace string, c *compared) error {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: c.export.ConfigMapName}, found)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting ConfigMap %s: %w", c.export.ConfigMapName, err)
	}
	if err != nil || !found.DeletionTimestamp.IsZero() {
		c.missing = noExport(c.export.ConfigMapName)
		return nil
	}
	c.held = versionOf(found)
	return nil
}

func noExport(name string) string {
	return fmt.Sprintf("%s: ConfigMap %s does not exist in this namespace; create it with kubectl tailgate export --configmap", fieldExportName, name)
}

// exportResults returns the results of an export, or the reason why a benchmark cannot be compared with it.
func (r *Reconciler) exportResults(ctx context.Context, b *v1alpha1.LatencyBenchmark, named *v1alpha1.ExportedBaseline) (judge.Results, error) {
	cm, err := controllers.Get[corev1.ConfigMap](ctx, r.Live, b.Namespace, named.ConfigMapName)
	if err != nil {
		return judge.Results{}, err
	}
	if cm == nil {
		return without(v1alpha1.ReasonBaselineMissing, "%s", noExport(named.ConfigMapName)), nil
	}
	held, err := export.ReadConfigMap(ctx, cm, named.SHA256)
	switch {
	case errors.Is(err, export.ErrDigest):
		return without(v1alpha1.ReasonBaselineDigestDiffers,
			"%s: ConfigMap %s contains %s; create it again from the export of this digest, or name the digest of an export that you trust", fieldExportSum, cm.Name, oneLine(err.Error())), nil
	case err != nil:
		return without(v1alpha1.ReasonBaselineUnreadable, "%s: ConfigMap %s: %s; create it again with kubectl tailgate export --configmap of this version",
			fieldExportName, cm.Name, oneLine(err.Error())), nil
	}
	if trouble := unlike(b, held.Object); trouble != nil {
		return judge.Results{Trouble: trouble}, nil
	}
	results := judge.Results{Collection: rounds.NewUnmerged(held.Object.Spec)}
	for run, err := range held.Runs() {
		if err == nil && !(hasEvidence(run.Client) && hasEvidence(run.Server)) {
			return without(v1alpha1.ReasonBaselineWithoutEvidence, "%s: run %s has no evidence of where it was measured, so that it can only be described; "+
				"name an export of a benchmark, or one of tailgate-agent bare", fieldExport, run.Client.Run), nil
		}
		if err == nil {
			err = results.Add(run)
		}
		if err != nil {
			return without(v1alpha1.ReasonBaselineUnreadable, "%s: %s; export it again", fieldExport, oneLine(err.Error())), nil
		}
	}
	return results, nil
}

// without returns the reason why there are no results.
func without(reason, format string, args ...any) judge.Results {
	return judge.Results{Trouble: &verdict.Blocker{Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

// unlike returns the reason why a benchmark cannot be compared with an exported benchmark, by their specs; nil if it can be.
func unlike(b, exported *v1alpha1.LatencyBenchmark) *verdict.Blocker {
	missing, stored := plan.RoundNumbers(exported), exported.Status.Stored
	planned := len(missing)
	for _, s := range stored {
		delete(missing, s.Run)
	}
	own, other := b.Spec, exported.Spec
	switch {
	case own.Tool != other.Tool:
		return without(v1alpha1.ReasonBaselineUnlike, "%s: it was measured with tool %s, and this benchmark with %s; compare results of one tool", fieldExport, other.Tool, own.Tool).Trouble
	case own.LatencyType != other.LatencyType:
		return without(v1alpha1.ReasonBaselineUnlike, "%s: it is of latencyType %s, and this benchmark of %s; compare results of one latencyType", fieldExport, other.LatencyType, own.LatencyType).Trouble
	case len(stored) == 0:
		return without(v1alpha1.ReasonBaselineWithoutEvidence, "%s: it has no stored runs, so that it can only be described; name an export of a benchmark, or one of tailgate-agent bare", fieldExport).Trouble
	case succeededStatus(exported) != metav1.ConditionTrue || len(stored) != planned || len(missing) > 0:
		return without(v1alpha1.ReasonBaselineNotComplete, "%s: it has %d of %d runs, and condition Succeeded %q; export a benchmark that is complete",
			fieldExport, len(stored), planned, succeededStatus(exported)).Trouble
	}
	return nil
}

// hasEvidence reports whether an end reported on what it ran, which the conditions of a comparison are read from.
func hasEvidence(d result.Document) bool {
	e := d.Evidence
	return e.Node != "" && e.Kernel != "" && e.CPUsAllowed != "" && e.Interface != "" && len(e.Paths) > 0
}
