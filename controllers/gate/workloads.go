package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const (
	workloadsAgain    = time.Minute // between two looks at pods, which the cache does not have
	podPage           = 20          // pods that are in memory at once, of up to 1.5 MiB
	maxPodPages       = 25
	maxWorkloadOthers = 20
	maxInspections    = 50 // logs that one look reads; the next look reads the others
	unreadAgain       = 10 * time.Minute
	inspectionTimeout = 2 * time.Second // of a kubelet
	maxMessage        = 256             // bytes
)

// Workloads shows in the status of gates what inspections of pods found. It is apart from Gates, so
// that a kubelet that does not answer delays no measurement, and decides nothing, because users of
// the namespaces write what it reads.
type Workloads struct {
	controllers.API
	Namespaces controllers.Named
	Logs       func(ctx context.Context, pod types.NamespacedName, container string) (io.ReadCloser, error)
	read       sync.Map // by the name of a gate, what its inspections said; lost, they are read again
}

// inspection names a container that inspected another one, and what was required.
type inspection struct {
	pod                types.UID
	container, require string
}

// requirement is spec.require of a workload, and what it asks of a pod.
type requirement struct {
	text   string
	pod    proof.WorkloadPod
	checks []string
}

// known is what an inspection said, until it is read again; zero: for good.
type known struct {
	v1alpha1.WorkloadPod
	until time.Time
}

func (r *Workloads) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g := &v1alpha1.LatencyGate{}
	err := r.Live.Get(ctx, req.NamespacedName, g)
	if err != nil || !g.DeletionTimestamp.IsZero() || len(g.Spec.Workloads)+len(g.Status.Workloads) == 0 {
		r.read.Delete(req.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	l := &inspections{Workloads: r, gate: g.Name, read: map[inspection]known{}, left: maxInspections}
	if before, ok := r.read.Load(req.Name); ok {
		l.before = before.(map[inspection]known)
	}
	var all []v1alpha1.WorkloadStatus
	for _, w := range g.Spec.Workloads {
		status := v1alpha1.WorkloadStatus{Name: w.Name}
		if err := l.workload(ctx, w, &status); err != nil {
			status.Message = text.Shorten(text.Line(err.Error()), maxMessage)
		}
		all = append(all, status)
	}
	r.read.Store(req.Name, l.read)
	// Read again, because the other controller may have written meanwhile.
	if err := r.Live.Get(ctx, req.NamespacedName, g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	old := g.DeepCopy()
	g.Status.Workloads = all
	_, err = r.WriteStatus(ctx, old, g)
	return controllers.Written(workloadsAgain, err)
}

// inspections is one look at the pods of a gate's nodes.
type inspections struct {
	*Workloads
	gate         string
	before, read map[inspection]known // at the last look, and at this one
	left         int                  // logs that this look may still read
}

func (l *inspections) workload(ctx context.Context, w v1alpha1.GateWorkload, status *v1alpha1.WorkloadStatus) (err error) {
	required := requirement{text: w.Require}
	if required.checks, err = proof.ParseRequirements(w.Require, &required.pod); err != nil {
		return fmt.Errorf("require: %w", err)
	}
	selector, err := labels.Parse(w.Selector)
	if err == nil && selector.Empty() {
		err = errors.New("it must select by a label")
	}
	if err != nil {
		return fmt.Errorf("selector: %w", err)
	}
	if !l.Namespaces.Has(w.Namespace) {
		return fmt.Errorf("the operator has no rights in namespace %s", w.Namespace)
	}
	defer func() {
		slices.SortFunc(status.Others, func(a, b v1alpha1.WorkloadPod) int {
			return cmp.Or(cmp.Compare(min(1, len(b.Failed)), min(1, len(a.Failed))), strings.Compare(a.Name, b.Name))
		})
		status.Others = status.Others[:min(len(status.Others), maxWorkloadOthers)]
	}()
	var next string
	for range maxPodPages {
		list := &corev1.PodList{}
		if err := l.Live.List(ctx, list, client.InNamespace(w.Namespace), client.MatchingLabelsSelector{Selector: selector},
			client.Limit(podPage), client.Continue(next)); err != nil {
			return fmt.Errorf("listing the pods: %w", err)
		}
		for i := range list.Items {
			if err := l.pod(ctx, &list.Items[i], required, status); err != nil {
				return err
			}
		}
		if next = list.Continue; next == "" {
			break
		}
	}
	if next != "" {
		status.Message = fmt.Sprintf("only the first %d pods that it selects are shown", maxPodPages*podPage)
	}
	return nil
}

func (l *inspections) pod(ctx context.Context, p *corev1.Pod, required requirement, status *v1alpha1.WorkloadStatus) error {
	if pods.Ended(p) || p.DeletionTimestamp != nil {
		return nil
	}
	of := client.ObjectKey{Name: v1alpha1.VerificationName(l.gate, p.Spec.NodeName)}
	if err := l.Client.Get(ctx, of, &v1alpha1.LatencyVerification{}); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading whether node %s is the gate's: %w", p.Spec.NodeName, err)
	}
	status.Pods++
	one := v1alpha1.WorkloadPod{Name: p.Name, NodeName: p.Spec.NodeName}
	if l.found(ctx, p, required, &one); one.Message == "" && len(one.Failed)+len(one.Unknown) == 0 {
		status.Proved++
	} else {
		status.Others = append(status.Others, one)
	}
	return nil
}

// found fills in what the last inspection of a pod says of the requirements.
func (l *inspections) found(ctx context.Context, p *corev1.Pod, required requirement, one *v1alpha1.WorkloadPod) {
	target, container, at := lastInspection(p)
	if target == nil {
		one.Message = "no inspection since its container started; use kubectl tailgate inspect"
		return
	}
	key := inspection{p.UID, container, required.text}
	if before, ok := l.before[key]; ok && (before.until.IsZero() || l.Clock.Now().Before(before.until)) {
		*one, l.read[key] = before.WorkloadPod, before
		return
	}
	one.InspectionTime = &at
	if l.left--; l.left < 0 {
		one.Message = "its inspection is not read yet"
		return
	}
	found, err := l.inspection(ctx, p, container)
	asked, wrong := required.pod.Of(p, target)
	node := &corev1.Node{}
	if err = cmp.Or(err, wrong, l.Client.Get(ctx, client.ObjectKey{Name: p.Spec.NodeName}, node)); err != nil {
		one.Message = text.Shorten(text.Line(err.Error()), maxMessage)
		l.read[key] = known{*one, l.Clock.Now().Add(unreadAgain)}
		return
	}
	asked.NodeBootID = node.Status.NodeInfo.BootID
	lines := proof.Workload(asked, *found.Workload)
	for _, r := range required.checks {
		switch proof.Met([]string{r}, lines) {
		case v1alpha1.VerdictPass:
		case v1alpha1.VerdictFail:
			one.Failed = append(one.Failed, r)
		case v1alpha1.VerdictInconclusive:
			one.Unknown = append(one.Unknown, r)
		}
	}
	l.read[key] = known{WorkloadPod: *one}
}

// lastInspection returns the default container of a pod, the name of the container that inspected it and all
// interfaces last, and when that ended; nil, if the default container has started since.
func lastInspection(p *corev1.Pod) (target *corev1.Container, name string, at metav1.Time) {
	container, status, err := pods.ContainerOf(p, "")
	if err != nil || status.State.Running == nil {
		return nil, "", at
	}
	for _, s := range p.Status.EphemeralContainerStatuses {
		end := s.State.Terminated
		of := slices.IndexFunc(p.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == s.Name })
		if !strings.HasPrefix(s.Name, pods.InspectPrefix) || end == nil || end.ExitCode != 0 || of < 0 || end.FinishedAt.Before(&at) {
			continue
		}
		e := p.Spec.EphemeralContainers[of]
		ofOne := slices.ContainsFunc(e.Env, func(v corev1.EnvVar) bool { return v.Name == plan.EnvInterface && v.Value != "" })
		// A watch proves exclusive CPUs only at its start.
		if len(e.Command) > len(pods.InspectCommand) || ofOne || e.TargetContainerName != container.Name || end.StartedAt.Before(&status.State.Running.StartedAt) {
			continue
		}
		target, name, at = container, s.Name, end.FinishedAt
	}
	return target, name, at
}

func (r *Workloads) inspection(ctx context.Context, p *corev1.Pod, container string) (result.Inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectionTimeout)
	defer cancel()
	log, err := r.Logs(ctx, client.ObjectKeyFromObject(p), container)
	if err != nil {
		return result.Inspection{}, fmt.Errorf("reading the inspection: %w", err)
	}
	defer log.Close()
	found, err := result.ReadInspection(log)
	if err == nil && !found.OfWorkload() {
		err = errors.New("the inspection is not that of an agent")
	}
	return found, err
}

func (r *Workloads) SetupWithManager(mgr ctrl.Manager) error {
	r.Client = controllers.Logged(r.Client)
	return ctrl.NewControllerManagedBy(mgr).
		Named("latencygate-workloads").
		Watches(&v1alpha1.LatencyGate{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}
