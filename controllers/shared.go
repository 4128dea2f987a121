package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

type API struct {
	Client   client.Client // writes, and reads from the cache
	Live     client.Reader // reads from the API server, past the cache
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
}

// WriteStatus writes a status if it differs from old, and reports whether it did.
func (a API) WriteStatus(ctx context.Context, old, o client.Object) (bool, error) {
	if equality.Semantic.DeepEqual(old, o) {
		return false, nil
	}
	stamp(conditionsOf(old), conditionsOf(o), a.Clock.Now())
	err := a.Client.Status().Update(ctx, o)
	if b, ok := o.(*v1alpha1.LatencyBenchmark); ok && apierrors.IsConflict(err) {
		err = a.patchStatus(ctx, old.(*v1alpha1.LatencyBenchmark), b, err)
	}
	if err != nil {
		return false, fmt.Errorf("writing the status: %w", err)
	}
	return true, nil
}

// patchStatus writes a status after a conflict if it is still that of old, which the API server
// tests in the same transaction. Else a user who keeps changing the spec would keep a pair's nodes.
func (a API) patchStatus(ctx context.Context, old, b *v1alpha1.LatencyBenchmark, conflict error) error {
	now, typed := &unstructured.Unstructured{}, &v1alpha1.LatencyBenchmark{}
	now.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("LatencyBenchmark"))
	if err := a.Live.Get(ctx, client.ObjectKeyFromObject(b), now); err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(now.Object, typed); err != nil {
		return err
	}
	if typed.UID != old.UID || !typed.DeletionTimestamp.IsZero() || !equality.Semantic.DeepEqual(typed.Status, old.Status) {
		return conflict
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch, err := json.Marshal([]operation{{"test", "/metadata/uid", old.UID}, {"test", "/status", now.Object["status"]}, {"add", "/status", b.Status}})
	if err != nil {
		return err
	}
	err = a.Client.Status().Patch(ctx, b, client.RawPatch(types.JSONPatchType, patch))
	if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) { // a test of the patch failed
		return conflict
	}
	return err
}

func stamp(before, after []metav1.Condition, now time.Time) {
	for i := range after {
		if was := meta.FindStatusCondition(before, after[i].Type); was == nil || was.Status != after[i].Status {
			after[i].LastTransitionTime = metav1.Time{Time: now}
		}
	}
}

func conditionsOf(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case *v1alpha1.LatencyBenchmark:
		return o.Status.Conditions
	case *v1alpha1.LatencyMatrix:
		return o.Status.Conditions
	case *v1alpha1.LatencyGate:
		return o.Status.Conditions
	case *v1alpha1.LatencyVerification:
		return o.Status.Conditions
	}
	return nil
}

const writtenAgain = 10 * time.Millisecond // after another client changed the object first

// Written returns the result after a write; a conflict is no error, and again the next reconcile.
func Written(again time.Duration, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{RequeueAfter: writtenAgain}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// Named are the namespaces in which the manager has rights; empty: all.
type Named []string

func (n Named) Has(namespace string) bool { return len(n) == 0 || slices.Contains(n, namespace) }

// Delete deletes exactly this object, if it lives, and shortens the grace period of a pod.
func Delete(ctx context.Context, c client.Writer, o client.Object, opts ...client.DeleteOption) error {
	if _, isPod := o.(*corev1.Pod); isPod {
		opts = append(opts, client.GracePeriodSeconds(pods.GracePeriodSeconds))
	}
	if !o.GetDeletionTimestamp().IsZero() && !Lingers(o) {
		return nil
	}
	uid := o.GetUID()
	if err := c.Delete(ctx, o, append(opts, client.Preconditions{UID: &uid})...); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", kindOf(o), o.GetName(), err)
	}
	return nil
}

const keptAgain = 10 * time.Minute // between two looks at an expired object that is a baseline

// Expire deletes an object as its own spec requests for the reason why, unless it has changed since
// it was read, or is the baseline of user, another object. It returns when to look again.
func (a API) Expire(ctx context.Context, o client.Object, why, user string) (time.Duration, error) {
	if user != "" {
		a.Recorder.Eventf(o, nil, corev1.EventTypeNormal, v1alpha1.ReasonKept, "Delete",
			"it is not deleted although %s: it is the baseline of %s %s; delete that one first, or give its criteria another baseline",
			why, kindOf(o), user)
		return keptAgain, nil
	}
	uid, version := o.GetUID(), o.GetResourceVersion()
	err := a.Client.Delete(With(ctx, "why", why), o, client.Preconditions{UID: &uid, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil {
		return 0, fmt.Errorf("deleting it: %w", err)
	}
	a.Recorder.Eventf(o, nil, corev1.EventTypeNormal, v1alpha1.ReasonExpired, "Delete", "deleted with its results: %s", why)
	return 0, nil
}

// Overdue returns why an object must be deleted, or the time until then; zero for never.
func Overdue(ttlSeconds *int32, created metav1.Time, completed *metav1.Time, now time.Time) (why string, again time.Duration) {
	if ttlSeconds == nil || completed == nil {
		return "", 0
	}
	// The manager's clock may be behind, but it was not finished before its creation.
	if created.After(completed.Time) {
		completed = &created
	}
	if left := completed.Add(time.Duration(*ttlSeconds) * time.Second).Sub(now); left > 0 {
		return "", left
	}
	return fmt.Sprintf("spec.ttlSecondsAfterFinished is %d, and it finished at %s", *ttlSeconds, completed.UTC().Format(time.RFC3339)), 0
}

func kindOf(o client.Object) string { return reflect.TypeOf(o).Elem().Name() }

// Requests returns those for objects that wake selects, nil for all. It logs an error.
func Requests[O client.Object](ctx context.Context, c client.Reader, list client.ObjectList, wake func(O) bool, opts ...client.ListOption) []reconcile.Request {
	if err := c.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "listing objects to reconcile", "list", fmt.Sprintf("%T", list))
		return nil
	}
	var all []reconcile.Request
	_ = meta.EachListItem(list, func(item runtime.Object) error { // The function returns no error.
		if o := item.(O); wake == nil || wake(o) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
		return nil
	})
	return all
}

// Updates passes the updates for which changed is true, and all creations and deletions.
func Updates[O client.Object](changed func(before, after O) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(O)
		after, ok2 := e.ObjectNew.(O)
		return ok && ok2 && changed(before, after)
	}}
}

// NodeChanges passes what changes the result of preflight.Accept; no heartbeats.
var NodeChanges = Updates(func(before, after *corev1.Node) bool { return nodeFacts(before) != nodeFacts(after) })

func nodeFacts(n *corev1.Node) string {
	return fmt.Sprint(n.Labels, n.Spec.Unschedulable, n.Spec.Taints, n.Status.Allocatable, preflight.NodeReady(*n))
}

var NotCreated = predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}

// Notice is an event to be sent. Good news is Normal.
type Notice struct {
	Type, Reason, Action, Message string
	// Related is another object of the event, or nil. The recorder takes two events about one
	// version of an object for one, unless type, reason, action or Related differs.
	Related runtime.Object
}

func (a API) Send(about runtime.Object, notices ...Notice) {
	for _, n := range notices {
		a.Recorder.Eventf(about, n.Related, n.Type, n.Reason, n.Action, "%s", n.Message)
	}
}

// ConditionNotices derives events from conditions: none from waiting, a warning if Inconclusive.
func ConditionNotices(old, now []metav1.Condition, conditionTypes ...string) []Notice {
	var all []Notice
	for _, conditionType := range conditionTypes {
		before, after := meta.FindStatusCondition(old, conditionType), meta.FindStatusCondition(now, conditionType)
		switch {
		case after == nil || before != nil && before.Status == after.Status && before.Reason == after.Reason:
			continue
		case after.Status == metav1.ConditionUnknown && (conditionType != v1alpha1.ConditionPassed || after.Reason == v1alpha1.ReasonNotJudged):
			continue
		}
		kind := corev1.EventTypeNormal
		if after.Status != metav1.ConditionTrue {
			kind = corev1.EventTypeWarning
		}
		all = append(all, Notice{Type: kind, Reason: after.Reason, Action: conditionType, Message: after.Message})
	}
	return all
}

// SettleTimes moves future times of a status, a pointer, to now: a clock was ahead. An EndTime
// keeps its distance from StartTime. It leaves out RetryTime, which has its own bound, and
// LastMeasurementTime, with which a schedule repeats a measurement.
func SettleTimes(status any, now time.Time) { settle(reflect.ValueOf(status), now) }

func settle(v reflect.Value, now time.Time) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			settle(v.Elem(), now)
		}
	case reflect.Slice:
		for i := range v.Len() {
			settle(v.Index(i), now)
		}
	case reflect.Struct:
		switch t := v.Addr().Interface().(type) {
		case *metav1.Time:
			if t.After(now) {
				t.Time = now
			}
			return
		case *metav1.MicroTime:
			if t.After(now) {
				t.Time = now
			}
			return
		}
		start, end := timeOf(v, "StartTime"), timeOf(v, "EndTime")
		if start != nil && end != nil && start.After(now) {
			end.Time = end.Add(now.Sub(start.Time))
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && f.Name != "RetryTime" && f.Name != "LastMeasurementTime" && (f.Name != "EndTime" || end == nil) {
				settle(v.Field(i), now)
			}
		}
	}
}

func timeOf(v reflect.Value, name string) *metav1.Time {
	if f := v.FieldByName(name); f.IsValid() && f.CanInterface() {
		t, _ := f.Addr().Interface().(*metav1.Time)
		return t
	}
	return nil
}

// Graces shortens the grace period of the operator's pods in deletion: a user can give them a year,
// in which a process that ignores SIGTERM holds a node's CPUs. It deletes pods without an owner, as
// a user's deletion that leaves dependents makes them.
type Graces struct {
	API
	Namespaces Named
	Made       func(types.UID) bool // whether the manager created a pod
}

func (g *Graces) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := g.Client.Get(ctx, req.NamespacedName, pod); err != nil || !Lingers(pod) && !g.disowned(pod) || !g.Namespaces.Has(pod.Namespace) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	why := "its owner was removed"
	if Lingers(pod) {
		why = "its grace period is too long"
	}
	err := Delete(With(ctx, "why", why), g.Client, pod)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return ctrl.Result{}, nil // A policy refuses the deletion of a pod that only has the operator's labels.
	}
	return Written(0, err)
}

func (g *Graces) SetupWithManager(mgr ctrl.Manager) error {
	g.Client = Logged(g.Client)
	lingers := predicate.NewPredicateFuncs(func(o client.Object) bool { return Lingers(o) || g.disowned(o) })
	return ctrl.NewControllerManagedBy(mgr).Named("graces").For(&corev1.Pod{}, builder.WithPredicates(lingers)).Complete(g)
}

func (g *Graces) disowned(o client.Object) bool {
	return metav1.GetControllerOf(o) == nil && o.GetDeletionTimestamp().IsZero() && g.Made(o.GetUID())
}

// Lingers reports whether a pod is being deleted with a longer grace period than its own.
func Lingers(o client.Object) bool {
	grace := o.GetDeletionGracePeriodSeconds()
	return !o.GetDeletionTimestamp().IsZero() && grace != nil && *grace > pods.GracePeriodSeconds
}

// The log has a line for each action when it is done: objects created and deleted, marks written,
// states of nodes that changed, and events; nothing that is only observed, awaited or tried again.

func With(ctx context.Context, keysAndValues ...any) context.Context {
	return log.IntoContext(ctx, log.FromContext(ctx).WithValues(keysAndValues...))
}

func Logged(c client.Client) client.Client { return logged{c} }

type logged struct{ client.Client }

func (l logged) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	err := l.Client.Create(ctx, o, opts...)
	if err == nil {
		log.FromContext(ctx).Info("created", keysOf(o)...)
	}
	return err
}

func (l logged) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	err := l.Client.Delete(ctx, o, opts...)
	if err == nil {
		log.FromContext(ctx).Info("deleted", keysOf(o)...)
	}
	return err
}

func keysOf(o client.Object) []any {
	keys := []any{"kind", kindOf(o), "object", strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/")}
	for _, label := range [][2]string{{"run", v1alpha1.LabelRun}, {"attempt", v1alpha1.LabelAttempt}, {"role", v1alpha1.LabelRole}} {
		if value := o.GetLabels()[label[1]]; value != "" {
			keys = append(keys, label[0], value)
		}
	}
	return keys
}

func (a API) Tell(ctx context.Context, about runtime.Object, notices ...Notice) {
	for _, n := range notices {
		log.FromContext(ctx).Info("event", "type", n.Type, "reason", n.Reason, "action", n.Action, "message", n.Message)
	}
	a.Send(about, notices...)
}
