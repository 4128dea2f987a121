package benchmark

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
)

// A result is stored in three writes (docs/internals/runs.md): its digests, the ConfigMap, and its
// entry in the status. Only the first, which only the operator may write, determines its content. A
// manager that dies in between leaves a status from which the next one continues, by the logs if it
// must. A user who creates or replaces ConfigMaps can delay a result, but cannot insert one.

// storeGrace is how long the API server may refuse a result before the nodes are given back.
const storeGrace = time.Minute

type kept string

const (
	keptAbsent kept = ""      // it does not exist
	keptWhole  kept = "whole" // it has the digests of the status
	keptOther  kept = "other" // it has the name, but other content
)

// keptBy compares a ConfigMap, or nil, with a result's digests. It decodes nothing.
func keptBy(cm *corev1.ConfigMap, collected v1alpha1.StoredResult) kept {
	switch {
	case cm == nil:
		return keptAbsent
	case result.Verify(cm, collected) != nil:
		return keptOther
	}
	return keptWhole
}

func (w *world) cannotCollect(at *step, err error) {
	if w.sinceEnd() > peerGrace {
		w.fail(at, v1alpha1.OutcomeResultMissing, fmt.Sprintf("the result could not be read for %s: %s; check the kubelets of the nodes", peerGrace, oneLine(err.Error())))
		return
	}
	at.message, at.again = "the result cannot be read yet: "+oneLine(err.Error()), lookAgain
}

// randomPart returns an unforeseeable part of a name: no user can create that object first.
func randomPart() string { return strings.ToLower(rand.Text()[:10]) }

// collect verifies the results of both ends and records their digests. A defect is an outcome.
func (r *Reconciler) collect(ctx context.Context, w *world) error {
	active := w.benchmark.Status.Active
	name := active.Run + "-" + randomPart()
	stored, cm, err := r.verified(ctx, w, name, true)
	if err != nil {
		return w.unusable(err)
	}
	r.taken.Store(clientKey(w.benchmark), cm)
	active.MeasuredMilliseconds = stored.Client.MeasuredTime().Milliseconds()
	active.Collected, active.CollectionTime = new(stored.Named(name)), new(metav1.NewMicroTime(w.now))
	return nil
}

func (r *Reconciler) store(ctx context.Context, w *world, at *step) {
	active := w.benchmark.Status.Active
	var err error
	switch w.kept {
	case keptWhole:
		w.measured()
	case keptOther:
		err = fmt.Errorf("ConfigMap %s exists with other content", active.Collected.ConfigMap)
		active.Collected.ConfigMap = active.Run + "-" + randomPart()
	case keptAbsent:
		err = r.createResult(ctx, w)
	}
	switch {
	case err == nil: // The outcome of the attempt is known.
		at.continues = true
		at.reason, at.message = v1alpha1.ReasonEnding, removing(w)
	case w.now.Sub(active.CollectionTime.Time) > storeGrace:
		w.fail(at, v1alpha1.OutcomeStoreRefused, fmt.Sprintf(
			"the result was measured and could not be stored for %s: %s; change the quota, policy or webhook of namespace %s that it names",
			storeGrace, oneLine(err.Error()), w.benchmark.Namespace))
	default:
		at.reason, at.again = v1alpha1.OutcomeStoreRefused, lookAgain
		at.message = fmt.Sprintf("the result of %s cannot be stored yet: %s", active.Run, oneLine(err.Error()))
	}
}

// createResult creates the ConfigMap. A manager that did not collect it reads the results again.
func (r *Reconciler) createResult(ctx context.Context, w *world) error {
	collected := w.benchmark.Status.Active.Collected
	taken, _ := r.taken.LoadAndDelete(clientKey(w.benchmark))
	cm, _ := taken.(*corev1.ConfigMap)
	var err error
	if cm == nil || cm.Name != collected.ConfigMap || result.Verify(cm, *collected) != nil {
		if cm, err = r.readCollected(ctx, w); err != nil || cm == nil {
			return err
		}
	}
	err = r.Client.Create(ctx, cm)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("ConfigMap %s exists", cm.Name)
	}
	if err != nil {
		return fmt.Errorf("creating ConfigMap %s: %w", cm.Name, err)
	}
	if err := result.Verify(cm, *collected); err != nil {
		return fmt.Errorf("it was changed when it was created, for example by an admission webhook: %w", err)
	}
	w.measured()
	return nil
}

func (r *Reconciler) readCollected(ctx context.Context, w *world) (*corev1.ConfigMap, error) {
	collected := w.benchmark.Status.Active.Collected
	stored, cm, err := r.verified(ctx, w, collected.ConfigMap, false)
	if err != nil {
		return nil, w.unusable(err)
	}
	if stored.ClientDigest != collected.SHA256 || stored.ServerDigest != collected.ServerSHA256 {
		return nil, w.unusable(fmt.Errorf("%w: the logs do not have the result any more whose digests were noted", result.ErrCorrupt))
	}
	if stored.PodsDigest != collected.PodsSHA256 {
		// The API server's data about the pods changed since: the new digest is recorded first.
		*collected = stored.Named(collected.ConfigMap)
		return nil, errors.New("the pods have changed since the result was collected")
	}
	return cm, nil
}

func (w *world) measured() {
	status := &w.benchmark.Status
	status.Stored = append(status.Stored, *status.Active.Collected)
	w.setOutcome(v1alpha1.OutcomeMeasured, "")
}

// verified reads and verifies both results and, if they are new, that they can be summarized.
func (r *Reconciler) verified(ctx context.Context, w *world, name string, isNew bool) (result.Stored, *corev1.ConfigMap, error) {
	fail := func(err error) (result.Stored, *corev1.ConfigMap, error) { return result.Stored{}, nil, err }
	client, clientSeen, clientErr := r.takeEnd(ctx, w, w.ends()[1])
	server, serverSeen, serverErr := r.takeEnd(ctx, w, w.ends()[0])
	if err := errors.Join(clientErr, serverErr); err != nil {
		return fail(err)
	}
	stored, err := result.NewStored(client, server, clientSeen, serverSeen)
	if err != nil {
		return fail(err)
	}
	b := w.benchmark
	if isNew {
		if err := rounds.NewUnmerged(b.Spec).Add(stored); err != nil {
			return fail(err)
		}
	}
	labels := pods.Labels(b.Name)
	labels[v1alpha1.LabelRun] = b.Status.Active.Run
	cm, err := stored.ConfigMap(name, b.Namespace, labels, pods.Owner(b))
	return stored, cm, err
}

func (w *world) unusable(err error) error {
	switch {
	case errors.Is(err, result.ErrTooLarge):
		w.setOutcome(v1alpha1.OutcomeResultTooLarge, oneLine(err.Error())+"; measure fewer message sizes in one benchmark")
	case errors.Is(err, result.ErrMissing):
		w.setOutcome(v1alpha1.OutcomeResultMissing, oneLine(err.Error()))
	case errors.Is(err, result.ErrVersion):
		w.setOutcome(v1alpha1.OutcomeVersionMismatch, oneLine(err.Error()))
	case errors.Is(err, result.ErrCorrupt):
		w.setOutcome(v1alpha1.OutcomeResultCorrupt, oneLine(err.Error()))
	default:
		return err
	}
	return nil
}

func (r *Reconciler) takeEnd(ctx context.Context, w *world, e end) (result.Framed, result.Seen, error) {
	framed, err := r.takeResult(ctx, w, e.pod, e.role)
	if err != nil {
		return framed, result.Seen{}, err
	}
	seen, err := pods.Seen(w.endpoint(plan.Task{Role: e.role}), e.pod)
	if err != nil {
		return framed, seen, err
	}
	node := corev1.Node{}
	if err := r.Client.Get(ctx, types.NamespacedName{Name: e.pod.Spec.NodeName}, &node); err != nil && !apierrors.IsNotFound(err) {
		return framed, seen, fmt.Errorf("reading node %s: %w", e.pod.Spec.NodeName, err)
	}
	seen.ClaimedDevice, seen.NodeBootID = *e.device, node.Status.NodeInfo.BootID
	return framed, seen, nil
}

func (r *Reconciler) takeResult(ctx context.Context, w *world, p *corev1.Pod, role string) (result.Framed, error) {
	ctx, cancel := context.WithTimeout(ctx, r.LogTimeout) // A kubelet that hangs keeps its connections open and sends nothing.
	defer cancel()
	log, err := r.Logs(ctx, clientKey(p), false)
	if err != nil {
		return result.Framed{}, fmt.Errorf("reading the log of pod %s: %w", p.Name, err)
	}
	defer log.Close()
	framed, err := result.ReadFrame(log)
	if errors.Is(err, result.ErrMissing) && w.sinceEnd() <= peerGrace {
		// The kubelet wrote its runtime's error into the log; the agent succeeded.
		return result.Framed{}, fmt.Errorf("reading the log of pod %s: %s", p.Name, err) //nolint:errorlint // whether the result is missing is still open
	}
	if err != nil {
		return result.Framed{}, fmt.Errorf("%s: %w", role, err)
	}
	active := w.benchmark.Status.Active
	if d := framed.Document; d.Run != active.Run || d.Variant != w.activeRun().Variant.Name || d.Attempt != active.Attempt || d.Role != role {
		return result.Framed{}, fmt.Errorf("%w: pod %s handed over the result of %s of %s, attempt %d", result.ErrCorrupt, p.Name, d.Role, d.Run, d.Attempt)
	}
	return framed, nil
}
