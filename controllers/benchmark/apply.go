package benchmark

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

func (r *Reconciler) apply(ctx context.Context, w *world, s step) (step, error) {
	b, at := w.benchmark, s
	w.recordSeen()
	w.recordMissingPlugin(s)
	r.deletePods(ctx, b, &at, w.left...)
	switch s.kind {
	case stepReject, stepWait, stepWatch, stepRelease: // Only the conditions change.
	case stepHold:
		// Others may have started when it resumes: it gives up its place in the queue.
		b.Status.StartTime = nil
	case stepAccept:
		b.Status.Pair, b.Status.CPUs, at.continues = &s.pair, &s.cpus, true
	case stepClaim:
		at.continues = true
		now := metav1.NewMicroTime(w.now)
		b.Status.Active = &v1alpha1.ActiveAttempt{Run: s.run.Name, Variant: s.run.Variant.Name, Round: s.run.Round, Attempt: s.attempt, Pair: *b.Status.Pair, StartTime: now}
		if s.taken {
			b.Status.Active.PodSuffix = randomPart()
		}
		b.Status.StartTime = cmp.Or(b.Status.StartTime, &metav1.Time{Time: w.now})
	case stepWithdraw:
		// Nothing was attempted: the attempt is not listed, and its number is used again. If it was
		// the first claim, the benchmark has no precedence over others that wait.
		if b.Status.StartTime != nil && b.Status.StartTime.Unix() == b.Status.Active.StartTime.Unix() {
			b.Status.StartTime = nil
		}
		b.Status.Active, at.continues = nil, true
	case stepCreateServer, stepCreateClient:
		e := w.ends()[0]
		if s.kind == stepCreateClient {
			e = w.ends()[1]
		}
		if err := r.createEndpoint(ctx, w, &at, e, s.address); err != nil {
			return step{}, err
		}
	case stepFollow:
		r.follow(ctx, w)
	case stepCollect:
		if err := r.collect(ctx, w); err != nil {
			w.cannotCollect(&at, err)
		} else {
			at.continues = true
		}
	case stepStore:
		r.store(ctx, w, &at)
	case stepConclude:
		w.fail(&at, s.reason, s.message)
	case stepRemove:
		r.deletePods(ctx, b, &at, w.client, w.server)
	case stepExtend:
		b.Status.ExtendedRounds, at.continues = plan.MaxRounds(b.Spec)-b.Spec.Rounds, true
	case stepComplete, stepFail:
		b.Status.CompletionTime = &metav1.Time{Time: w.now}
	}

	return at, nil
}

// recordSeen records when this operator first saw an event: clocks of nodes may be wrong.
func (w *world) recordSeen() {
	now := metav1.NewMicroTime(w.now)
	if active := w.benchmark.Status.Active; active != nil {
		if active.EndTime == nil && (w.found || hasEnded(w.server) || hasEnded(w.client)) {
			active.EndTime = &now
		}
		if len(w.notReady) == 0 {
			active.NotReadyTime = nil
		} else if active.NotReadyTime == nil {
			active.NotReadyTime = &now
		}
		return
	}
	setLeft(w.benchmark, w.left)
}

// recordMissingPlugin records since when a plugin is missing. A result or other trouble clears it.
func (w *world) recordMissingPlugin(s step) {
	status := &w.benchmark.Status
	switch {
	case s.reason == v1alpha1.ReasonDevicePluginUnavailable:
		if now := metav1.NewMicroTime(w.now); status.DeviceWaitStartTime == nil {
			status.DeviceWaitStartTime = &now
		}
	case s.kind == stepCollect, s.kind == stepConclude, s.kind == stepReject, s.kind == stepHold:
		status.DeviceWaitStartTime = nil
	}
}

func setLeft(b *v1alpha1.LatencyBenchmark, left []*corev1.Pod) {
	b.Status.LeftPods = nil
	for _, p := range left {
		b.Status.LeftPods = append(b.Status.LeftPods, v1alpha1.LeftPod{Name: p.Name, UID: string(p.UID)})
	}
}

// release releases the nodes of an attempt, and records the pods that could not be removed.
func (w *world) release() {
	b := w.benchmark
	setLeft(b, slices.DeleteFunc([]*corev1.Pod{w.client, w.server}, func(p *corev1.Pod) bool { return !w.holds(p) }))
	a := b.Status.Active
	held := w.now.Sub(a.StartTime.Time)
	if w.driver != nil { // The clock may have been corrected.
		held = min(held, w.deadline()+removeTimeout)
	}
	b.Status.OccupiedSeconds += int64(math.Ceil(held.Seconds()))
	b.Status.Attempts = append(b.Status.Attempts, v1alpha1.Attempt{
		Run: a.Run, Attempt: a.Attempt, StartTime: a.StartTime, MeasuredMilliseconds: a.MeasuredMilliseconds, Outcome: *a.Outcome,
	})
	b.Status.Active = nil
}

func (w *world) setOutcome(reason, message string) {
	w.benchmark.Status.Active.Outcome = &v1alpha1.Outcome{Reason: reason, Message: message, CompletionTime: metav1.NewMicroTime(w.now)}
}

func (w *world) fail(at *step, reason, message string) {
	w.setOutcome(reason, message)
	active := w.benchmark.Status.Active
	at.continues = true
	at.reason, at.message = v1alpha1.ReasonEnding, fmt.Sprintf("attempt %d of %s failed (%s): %s", active.Attempt, active.Run, reason, message)
	if reason == v1alpha1.OutcomeSuspended {
		at.message = fmt.Sprintf("attempt %d of %s is ended, because spec.suspend is true", active.Attempt, active.Run)
	}
}

const (
	// createTimeout leaves time to write the outcome. A webhook may take 30 s.
	createTimeout = 45 * time.Second
	longestPause  = 30 * time.Second // between two creates that the API server refuses
)

type refusal struct {
	reason, message string
	passing         bool
}

func (r *refusal) Error() string { return r.message }

func refusef(reason, format string, args ...any) error {
	return &refusal{reason: reason, message: fmt.Sprintf(format, args...)}
}

// refusedBy returns the refusal for an error of a create. A denial of any code must not end the
// reconcile: the attempt would keep its nodes, and the status would not show why.
func refusedBy(err error, reason, what, namespace string) error {
	return &refusal{reason: reason, passing: passing(err), message: fmt.Sprintf(
		"the API server refuses %s: %s; change the quota, policy, webhook or label of namespace %s that it names, or the benchmark",
		what, oneLine(err.Error()), namespace)}
}

// fitsQuota reports whether a quota refuses an object only for what others use now.
func fitsQuota(refused string) bool {
	_, quota, exceeded := strings.Cut(refused, "exceeded quota: ")
	_, amounts, _ := strings.Cut(quota, ", requested: ")
	requested, others, _ := strings.Cut(amounts, ", used: ")
	_, limited, _ := strings.Cut(others, ", limited: ")
	limits := map[string]resource.Quantity{}
	for entry := range strings.SplitSeq(limited, ",") {
		name, limit, _ := strings.Cut(entry, "=")
		limits[name], _ = resource.ParseQuantity(limit) // 0 if it cannot be read
	}
	for entry := range strings.SplitSeq(requested, ",") {
		name, amount, _ := strings.Cut(entry, "=")
		if q, err := resource.ParseQuantity(amount); err != nil || q.Cmp(limits[name]) > 0 {
			return false
		}
	}
	return exceeded
}

// passing reports whether a retry may succeed. An error without a status is the connection's.
func passing(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return true
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError || code == http.StatusForbidden && fitsQuota(status.Status().Message)
	}
}

func refusedCreate(w *world) (step, bool) {
	r := w.benchmark.Status.Active.Refused
	switch {
	case r == nil:
		return step{}, false
	case w.now.Sub(r.StartTime.Time) > w.settings.StartTimeout:
		return conclude(r.Reason, "%s", r.Message), true
	case w.now.Before(r.RetryTime.Time) && r.RetryTime.Sub(w.now) <= longestPause:
		return watch(r.Reason, "%s", r.Message).after(r.RetryTime.Sub(w.now)), true
	}
	return step{}, false
}

// refuse records a refusal that may pass. Each pause is the sum of all before, up to longestPause.
func (w *world) refuse(at *step, r *refusal) {
	active := w.benchmark.Status.Active
	since := metav1.NewMicroTime(w.now)
	if active.Refused != nil {
		since = active.Refused.StartTime
	}
	pause := min(max(w.now.Sub(since.Time), lookAgain), longestPause)
	active.Refused = &v1alpha1.Refusal{Reason: r.reason, Message: r.message, StartTime: since, RetryTime: metav1.NewMicroTime(w.now.Add(pause))}
	at.reason, at.message, at.again = r.reason, r.message, pause
}

func (r *Reconciler) createEndpoint(ctx context.Context, w *world, at *step, e end, serverAddress string) error {
	limited, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	err := r.ensureNetwork(limited, w)
	if err == nil && e.role == v1alpha1.RoleServer {
		err = r.ensureSecret(limited, w.benchmark)
	}
	if err == nil {
		*e.uid, err = r.createPod(limited, w, e.role, serverAddress)
	}
	var refused *refusal
	switch {
	case err == nil:
		w.benchmark.Status.Active.Refused = nil
		r.made.add(types.UID(*e.uid))
	case !errors.As(err, &refused):
		return err
	case refused.passing:
		w.refuse(at, refused)
	default:
		w.fail(at, refused.reason, refused.message)
	}
	return nil
}

func (r *Reconciler) ensureNetwork(ctx context.Context, w *world) error {
	want := pods.Network(w.benchmark, w.activeRun().Variant)
	if want == nil {
		return nil
	}
	err := r.Client.Create(ctx, want.DeepCopy())
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return refusedBy(err, v1alpha1.OutcomeNetworkRefused, "NetworkAttachmentDefinition "+want.GetName(), want.GetNamespace())
	}
	found := want.DeepCopy()
	if err := r.Live.Get(ctx, clientKey(want), found); err != nil {
		return refusedBy(err, v1alpha1.OutcomeNetworkRefused, "to show NetworkAttachmentDefinition "+want.GetName(), want.GetNamespace())
	}
	switch {
	case !metav1.IsControlledBy(found, w.benchmark):
		return refusef(v1alpha1.OutcomeNameTaken, "NetworkAttachmentDefinition %s exists and does not belong to this benchmark; delete it if nothing uses it, or give the benchmark another name", want.GetName())
	case !equality.Semantic.DeepEqual(found.Object["spec"], want.Object["spec"]) || !equality.Semantic.DeepEqual(found.GetAnnotations(), want.GetAnnotations()):
		return refusef(v1alpha1.OutcomeNetworkChanged, "another client changed NetworkAttachmentDefinition %s, which the operator created; delete it, and the operator creates it again", want.GetName())
	}
	return nil
}

// ensureSecret creates the Secret of the benchmark's pods. The operator may not read it.
func (r *Reconciler) ensureSecret(ctx context.Context, b *v1alpha1.LatencyBenchmark) error {
	err := r.Client.Create(ctx, pods.Secret(b, rand.Text()))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return refusedBy(err, v1alpha1.OutcomePodRefused, "the Secret that its pods share", b.Namespace)
	}
	return nil
}

func (r *Reconciler) settings(ctx context.Context, w *world) (map[string]string, error) {
	b, v := w.benchmark, w.activeRun().Variant
	var profile map[string]string
	if ref := v.Acceleration.OnloadSettings().ProfileRef; ref != nil {
		cm, err := observe.Get[corev1.ConfigMap](ctx, r.Live, b.Namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		if cm == nil {
			return nil, refusef(v1alpha1.OutcomeProfileInvalid, "ConfigMap %s of acceleration.onload.profileRef does not exist any more; create it again", ref.Name)
		}
		profile = cm.Data
	}
	env, err := onload.Environment(v, profile)
	if err != nil {
		return nil, refusef(v1alpha1.OutcomeProfileInvalid, "acceleration.onload.profileRef: %v", err)
	}
	return env, nil
}

// parent reads the interface of the node below a variant's network; empty if there is none.
func (r *Reconciler) parent(ctx context.Context, b *v1alpha1.LatencyBenchmark, v v1alpha1.Variant) (string, error) {
	namespace, name := pods.NetworkName(b, v)
	definition := foreign.Object()
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, definition); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", refusedBy(err, v1alpha1.OutcomeNetworkRefused, "to show NetworkAttachmentDefinition "+name, namespace)
	}
	config, _, _ := unstructured.NestedString(definition.Object, "spec", "config")
	return foreign.Parent(config), nil
}

func (r *Reconciler) createPod(ctx context.Context, w *world, role, serverAddress string) (string, error) {
	b, active, run := w.benchmark, w.benchmark.Status.Active, w.activeRun()
	env, err := r.settings(ctx, w)
	if err != nil {
		return "", err
	}
	task := plan.Task{
		Run: run.Name, Variant: run.Variant.Name, Attempt: active.Attempt, Role: role, Tool: b.Spec.Tool, Cells: run.Cells,
		Acceleration: run.Variant.Acceleration.Type, Library: onload.Library(*run.Variant.Acceleration), Env: env,
		Deadline: plan.Deadline(w.driver, run.Cells), Linger: linger, Interface: run.Variant.Network.Interface(),
		Borrowed: run.Variant.Network.AlignWith() != "",
	}
	if role == v1alpha1.RoleServer {
		task.Deadline += w.settings.StartTimeout
		task.Capture = run.Variant.Capture == v1alpha1.CaptureServer
	} else {
		task.ServerAddress = serverAddress
	}
	if run.Variant.Network.Type.Attached() {
		task.Interface = pods.Interface
	}
	if run.Variant.Network.Type == v1alpha1.NetworkNAD {
		if task.Parent, err = r.parent(ctx, b, run.Variant); err != nil {
			return "", err
		}
	}
	pod, err := pods.Build(w.endpoint(task))
	if err != nil {
		return "", refusef(v1alpha1.OutcomePodRefused, "the %s's pod cannot be built: %v", role, err)
	}
	// The pod did not exist a moment ago. If it does now, the next observation shows its owner.
	if err := r.Client.Create(ctx, pod); err != nil {
		return "", refusedBy(err, v1alpha1.OutcomePodRefused, "the "+role+"'s pod", b.Namespace)
	}
	return string(pod.UID), nil
}

func (w *world) endpoint(task plan.Task) pods.Endpoint {
	active := w.benchmark.Status.Active
	node := active.Pair.ClientNode
	if task.Role == v1alpha1.RoleServer {
		node = active.Pair.ServerNode
	}
	var tools string
	if task.Tool.OfSfnettest() {
		tools = w.settings.SfnettestImage
	}
	limits := w.driver.Limits()
	e := pods.Endpoint{
		Benchmark: w.benchmark, Name: pods.NameOf(active, task.Role), Image: w.settings.BenchImage, ToolImage: tools, PullPolicy: w.settings.PullPolicy,
		ServiceAccount: w.settings.ServiceAccount, Node: node, Variant: w.activeRun().Variant, Task: task,
		Scratch: limits.RawFiles && (task.Role == v1alpha1.RoleClient || limits.Opaque),
	}
	if custom := w.benchmark.Spec.Custom; custom != nil {
		e.Image, e.AgentImage = custom.FullImage(), e.Image
	}
	return e
}

func (r *Reconciler) deletePods(ctx context.Context, b *v1alpha1.LatencyBenchmark, at *step, all ...*corev1.Pod) {
	for _, p := range all {
		if !ownsPod(b, p) {
			continue
		}
		if err := controllers.Delete(ctx, r.Client, p); err != nil {
			at.message += ": " + oneLine(err.Error())
		}
	}
}

func clientKey(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
