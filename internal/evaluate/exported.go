package evaluate

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// An export is a baseline that any user of the namespace may have written. The digest in the
// criteria decides which bytes count: it is trusted as far as the criteria's author trusts it.

// The paths of the fields that the messages about an export name.
const (
	fieldExport     = "spec.criteria.baseline.export"
	fieldExportName = fieldExport + ".configMapName"
	fieldExportSum  = fieldExport + ".sha256"
)

// lookExport reads whether the ConfigMap of an export exists, and its version, but not its content.
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
