package gate

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

func TestProbeOf(t *testing.T) {
	cases := map[string]struct {
		state    v1alpha1.VerificationState
		identity map[string]string
		want     []string
	}{
		"verified": {v1alpha1.VerificationVerified, map[string]string{"BootID": "b-1", "Kernel": "6.1.0", "Kubelet": "v1", "Label/onload": "9.0"},
			[]string{pods.Agent, "verified", "BootID=b-1", "Kernel=6.1.0"}},
		"verified, and boots do not count": {v1alpha1.VerificationVerified, map[string]string{"Kernel": "6.1.0"}, []string{pods.Agent, "verified", "Kernel=6.1.0"}},
		"failed":                           {v1alpha1.VerificationFailed, map[string]string{"BootID": "b-1"}, []string{pods.Agent, "unverified"}},
		"measured":                         {v1alpha1.VerificationMeasuring, map[string]string{"BootID": "b-1"}, []string{pods.Agent, "unverified"}},
		"never looked at":                  {"", nil, []string{pods.Agent, "unverified"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := makeVerification("a", func(v *v1alpha1.LatencyVerification) { v.Status.State, v.Status.Identity = c.state, c.identity })
			pod := holdPodOf(makeGate(), v, "bench", "", "")
			if got := probes(pod); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			// Kubernetes treats 0 as three failures: only a pod that was never ready may have it.
			if probe := pod.Spec.Containers[0].ReadinessProbe; c.state == v1alpha1.VerificationVerified && probe.FailureThreshold != 1 {
				t.Errorf("%d failures are needed to hold the node back", probe.FailureThreshold)
			}
		})
	}
}

// holding is a verified node of a gate with hold pods, and an API server that has a hold pod of it, which the gate created.
type holding struct {
	*testing.T
	w     *world
	v     *v1alpha1.LatencyVerification
	pod   *corev1.Pod
	clock *clocktesting.FakePassiveClock
	api   client.Client
	// verifications is nil before the first step.
	verifications *Verifications
}

func hold(t *testing.T, changes ...func(*holding)) *holding {
	t.Helper()
	h := &holding{T: t, w: makeWorld(func(w *world) { w.gate.Spec.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }), clock: clocktesting.NewFakePassiveClock(noon)}
	h.v = h.w.verification
	h.pod = holdPodOf(h.w.gate, h.v, "bench", "", "")
	h.pod.UID = "uid-hold"
	h.v.Status.HoldPod = &v1alpha1.HoldPod{UID: "uid-hold", Image: "bench"}
	for _, change := range changes {
		change(h)
	}
	h.api = fake.NewClientBuilder().WithStatusSubresource(h.pod).WithObjects(h.pod).Build()
	return h
}

// manager returns the manager, which is another one after restart.
func (h *holding) manager() *Verifications {
	if h.verifications == nil {
		h.verifications = &Verifications{Memory: &Memory{}, API: controllers.API{Clock: h.clock}, Image: "bench"}
	}
	h.verifications.Client, h.verifications.Live = h.api, h.api
	return h.verifications
}

// step reconciles the hold pod once. It returns the pod, which is nil if there is none, and when to look again.
func (h *holding) step() (*corev1.Pod, time.Duration) {
	h.Helper()
	h.w.now = h.clock.Now()
	again, err := h.manager().hold(h.Context(), h.w, h.v)
	if err != nil {
		h.Fatal(err)
	}
	list := &corev1.PodList{}
	if err := h.api.List(h.Context(), list); err != nil {
		h.Fatal(err)
	}
	if len(list.Items) == 0 {
		return nil, again
	}
	return &list.Items[0], again
}

// said returns the reason of the step failure, and how often it occurred.
func (h *holding) said() string {
	if s := h.v.Status.HoldPodFailure; s != nil {
		return fmt.Sprint(s.Reason, " ", s.Count)
	}
	return ""
}

func TestHoldPodOfAnotherClient(t *testing.T) {
	cases := map[string]struct {
		change func(*holding)
		said   string
		stays  bool
	}{
		"the one that the gate created": {func(*holding) {}, "", true},
		"one that any author of pods can make: its name, owner and probe": {func(h *holding) {
			h.pod.UID, h.pod.Spec.Containers[0].Image, h.pod.Spec.ReadinessGates = "uid-evil", "evil/always-ready", nil
		}, "HoldPodReplaced 1", false},
		"one that is the same in all but its UID":             {func(h *holding) { h.pod.UID = "uid-evil" }, "HoldPodReplaced 1", false},
		"one before any was recorded":                         {func(h *holding) { h.v.Status.HoldPod = nil }, "HoldPodReplaced 1", false},
		"the gate's with another image":                       {func(h *holding) { h.pod.Spec.Containers[0].Image = "evil/always-ready" }, "HoldPodReplaced 1", false},
		"the gate's with another image and name":              {func(h *holding) { h.pod.Spec.Containers[0].Name = "other" }, "HoldPodReplaced 1", false},
		"the gate's without its owner":                        {func(h *holding) { h.pod.OwnerReferences = nil }, "HoldPodReplaced 1", false},
		"the gate's without the label by which tools find it": {func(h *holding) { delete(h.pod.Labels, v1alpha1.LabelHold) }, "HoldPodReplaced 1", false},
		"the gate's with the label of another gate":           {func(h *holding) { h.pod.Labels[v1alpha1.LabelGate] = "down" }, "HoldPodReplaced 1", false},
		"the gate's with the label of another node":           {func(h *holding) { h.pod.Labels[v1alpha1.LabelNode] = "z" }, "HoldPodReplaced 1", false},
		"one of another owner": {func(h *holding) {
			h.pod.UID, h.pod.OwnerReferences = "uid-other", []metav1.OwnerReference{{Name: "x", UID: "x", Controller: new(true)}}
		}, "HoldPodRefused 1", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := hold(t, c.change)
			pod, _ := h.step()
			if stays := pod != nil; stays != c.stays || h.said() != c.said {
				t.Fatalf("stays %v, %q; want %v, %q", stays, h.said(), c.stays, c.said)
			}
			if c.said != "HoldPodReplaced 1" {
				return
			}
			if pod, again := h.step(); pod != nil || again != 10*time.Second {
				t.Errorf("created again without a pause: %v, %s", pod, again)
			}
			h.clock.SetTime(noon.Add(10 * time.Second))
			if pod, _ = h.step(); pod == nil || h.v.Status.HoldPod == nil || pod.Spec.Containers[0].Image != "bench" || h.v.Status.HoldPod.Image != "bench" {
				t.Errorf("the gate's own pod is not created, or not recorded: %v, %v", pod, h.v.Status.HoldPod)
			}
		})
	}
}

func TestHoldPodThatIsNotAskedFor(t *testing.T) {
	for name, stays := range map[string]bool{"uid-hold": false, "uid-other": true} {
		h := hold(t, func(h *holding) {
			h.pod.UID, h.pod.OwnerReferences, h.w.gate.Spec.Enforcement.HoldPod = types.UID(name), nil, nil
		})
		if pod, _ := h.step(); (pod != nil) != stays || h.v.Status.HoldPod != nil {
			t.Errorf("%s: stays %v, recorded %v", name, pod != nil, h.v.Status.HoldPod)
		}
	}
}

func TestHoldPodThatEndsAgainAndAgain(t *testing.T) {
	h := hold(t, func(h *holding) { h.pod.Status.Phase, h.pod.Status.Reason = corev1.PodFailed, "Evicted" })
	for i, rest := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, 10 * time.Minute, 10 * time.Minute} {
		pod, again := h.step()
		if want := fmt.Sprint("HoldPodEnded ", i+1); pod != nil || again != rest || h.said() != want {
			t.Fatalf("%v, again in %s, %q; want none, %s, %q", pod, again, h.said(), rest, want)
		}
		h.clock.SetTime(h.clock.Now().Add(rest - time.Second))
		if pod, again := h.step(); pod != nil || again != time.Second {
			t.Fatalf("created %v before its pause of %s ended, again in %s", pod, rest, again)
		}
		h.clock.SetTime(h.clock.Now().Add(time.Second))
		if pod, _ = h.step(); pod == nil {
			t.Fatalf("not created after %s", rest)
		}
		pod.UID, pod.ResourceVersion = types.UID(h.v.Status.HoldPod.UID), ""
		pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
		h.api = fake.NewClientBuilder().WithStatusSubresource(pod).WithObjects(pod).Build()
	}
	// It stays at last: its step failure is cleared when it has run for holdSettled.
	pod := holdPodOf(h.w.gate, h.v, "bench", "", "")
	pod.UID, pod.Status = types.UID(h.v.Status.HoldPod.UID), corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: h.clock.Now()}}
	h.api = fake.NewClientBuilder().WithStatusSubresource(pod).WithObjects(pod).Build()
	if pod, again := h.step(); pod == nil || again != holdSettled || h.said() != "HoldPodEnded 8" {
		t.Errorf("%v, again in %s, %q", pod, again, h.said())
	}
	h.clock.SetTime(h.clock.Now().Add(holdSettled))
	if pod, again := h.step(); pod == nil || again != 0 || h.said() != "" {
		t.Errorf("%v, again in %s, %q", pod, again, h.said())
	}
}

// A status that could not be written after the creation of the pod, for example because of a conflict, is written later. Only another manager
// does not know that the pod is the gate's.
func TestHoldPodThatWasNotRecorded(t *testing.T) {
	for restarted, said := range map[bool]string{false: "", true: "HoldPodReplaced 1"} {
		h := hold(t, func(h *holding) { h.v.Status.HoldPod, h.pod.Name = nil, "other" })
		h.api = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetUID("uid-new")
			return c.Create(ctx, o, opts...)
		}})
		h.step()
		if h.v.Status.HoldPod == nil || h.v.Status.HoldPod.UID != "uid-new" {
			t.Fatalf("recorded %v", h.v.Status.HoldPod)
		}
		h.v.Status.HoldPod = nil
		if restarted {
			h.verifications = nil
		}
		if pod, _ := h.step(); (pod == nil) != restarted || h.said() != said || (h.v.Status.HoldPod == nil) != restarted {
			t.Errorf("restarted %v: %v, %q, recorded %v", restarted, pod, h.said(), h.v.Status.HoldPod)
		}
	}
}

// A hold pod that is being deleted keeps showing the state of its node, is not given longer than its own grace period, and says what keeps it.
func TestHoldPodThatIsBeingDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		grace int64
		since time.Duration
		want  holdAction
		said  string
	}{
		"a year of grace":             {31536000, -31536000 * time.Second, holdReplace, ""},
		"its own":                     {2, -time.Second, holdShow, ""},
		"a finalizer, for a minute":   {2, holdEnds, holdShow, v1alpha1.ReasonHoldPodEnded},
		"a finalizer, for 59 seconds": {2, holdEnds - time.Second, holdShow, ""},
	} {
		h := hold(t, func(h *holding) {
			h.pod.DeletionTimestamp, h.pod.DeletionGracePeriodSeconds = &metav1.Time{Time: noon.Add(-c.since)}, &c.grace
			h.pod.Finalizers = []string{"a/b"}
		})
		h.w.now = noon
		if s := decideHold(h.w, h.v, h.pod, holdPodOf(h.w.gate, h.v, "bench", "", ""), true); c.want == holdShow && s.do != holdNothing {
			t.Errorf("%s: %+v of a verified node", name, s)
		}
		h.v.Status.State = v1alpha1.VerificationUnverified
		if s := decideHold(h.w, h.v, h.pod, holdPodOf(h.w.gate, h.v, "bench", "", ""), true); s.do != c.want || s.reason != c.said {
			t.Errorf("%s: %+v, want %q %q", name, s, c.want, c.said)
		}
		pod, again := h.step()
		if pod == nil || len(pod.Status.Conditions) != 1 || pod.Status.Conditions[0].Status != corev1.ConditionFalse {
			t.Errorf("%s: %v does not hold the node back", name, pod)
		}
		if again == 0 {
			t.Errorf("%s: it is not looked at again", name)
		}
	}
}

// A pod that is not requested any more is deleted only if it is the gate's; the status then names none.
func TestHoldPodThatIsNotRequested(t *testing.T) {
	unowned := func(h *holding) { h.v.Status.HoldPod, h.pod.OwnerReferences = nil, nil }
	for name, c := range map[string]struct {
		changes []func(*holding)
		deleted bool
	}{
		"the gate has none":                   {[]func(*holding){func(h *holding) { h.w.gate.Spec.Enforcement.HoldPod = nil }}, true},
		"the gate is deleted":                 {[]func(*holding){func(h *holding) { h.w.gate.DeletionTimestamp = at(time.Minute) }}, true},
		"another gate has the node":           {[]func(*holding){func(h *holding) { h.w.owner = makeGate(func(g *v1alpha1.LatencyGate) { g.Name = "other" }) }}, true},
		"the Node is gone":                    {[]func(*holding){func(h *holding) { h.w.node = nil }}, true},
		"no gate has the node":                {[]func(*holding){func(h *holding) { h.w.owner = nil }}, false},
		"another client's pod of this name":   {[]func(*holding){unowned, func(h *holding) { h.w.gate.Spec.Enforcement.HoldPod = nil }}, false},
		"a pod that only its name makes ours": {[]func(*holding){unowned, func(h *holding) { h.w.node = nil }}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := hold(t, append(c.changes, func(h *holding) {
				h.v.Status.HoldPodFailure = &v1alpha1.StepFailure{Reason: v1alpha1.ReasonHoldPodEnded, Count: 1}
			})...)
			pod, _ := h.step()
			if (pod == nil) != c.deleted {
				t.Errorf("pod %v, want deleted %v", pod, c.deleted)
			}
			if c.deleted && (h.v.Status.HoldPod != nil || h.v.Status.HoldPodFailure != nil) {
				t.Errorf("the status still names %v, %v", h.v.Status.HoldPod, h.v.Status.HoldPodFailure)
			}
		})
	}
}

// The condition of a hold pod says the state of its node, and since when the node is held back or not; other conditions stay.
func TestHoldCondition(t *testing.T) {
	h := hold(t, func(h *holding) {
		h.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: "Probed"}}
	})
	minute := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	for i, c := range []struct {
		state  v1alpha1.VerificationState
		status corev1.ConditionStatus
		reason string
		since  time.Time
	}{
		{v1alpha1.VerificationFailed, corev1.ConditionFalse, "Failed", minute(0)},
		{v1alpha1.VerificationInconclusive, corev1.ConditionFalse, "Inconclusive", minute(0)},
		{v1alpha1.VerificationMeasuring, corev1.ConditionFalse, "Unverified", minute(0)},
		{v1alpha1.VerificationUnverified, corev1.ConditionFalse, "Unverified", minute(0)},
		{v1alpha1.VerificationAway, corev1.ConditionFalse, "NodeNotReady", minute(0)},
		{v1alpha1.VerificationVerified, corev1.ConditionTrue, "Verified", minute(5)},
		{v1alpha1.VerificationFailed, corev1.ConditionFalse, "Failed", minute(6)},
	} {
		h.clock.SetTime(minute(i))
		h.v.Status.State = c.state
		if err := h.manager().holdCondition(t.Context(), h.pod, h.w.gate, h.v); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{}
		if err := h.api.Get(t.Context(), client.ObjectKeyFromObject(h.pod), pod); err != nil {
			t.Fatal(err)
		}
		got := map[corev1.PodConditionType]corev1.PodCondition{}
		for _, condition := range pod.Status.Conditions {
			got[condition.Type] = condition
		}
		mark := got[v1alpha1.NodeConditionVerified]
		if len(got) != 2 || got[corev1.PodReady].Reason != "Probed" || mark.Status != c.status || mark.Reason != c.reason || !mark.LastTransitionTime.Time.Equal(c.since) {
			t.Errorf("%s: %+v, want %s %s since %s", c.state, pod.Status.Conditions, c.status, c.reason, c.since)
		}
		h.pod = pod
	}
}
