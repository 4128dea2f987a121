package gate

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/turns"
	"github.com/tailgate-dev/tailgate/test/gatetest"
)

// Nothing is free without a Pass: these are the ways in which a node could be, or a slow session become its reference.

// A machine that registers again with its system UUID in another spelling keeps its accepted results.
func TestMachineWithAnotherSpelling(t *testing.T) {
	const uuid = "4C4C4544-0042-3510-8052-B4C04F573632"
	for is, kept := range map[string]bool{
		strings.ToLower(uuid): true, "44454c4c-4200-1035-8052-b4c04f573632": true, "": true, "Not Settable": true,
		"4C4C4544-0042-3510-8052-B4C04F573633": false,
	} {
		w := makeWorld(func(w *world) {
			machines(w, uuid, is)
			w.node.UID = "uid-new"
			in(v1alpha1.VerificationFailed)(w.verification)
		})
		got, err := w.next(decide(w))
		if err != nil || (got.Accepted != nil) != kept || got.State != v1alpha1.VerificationUnverified {
			t.Errorf("%q: accepted %v, %s, %v", is, got.Accepted, got.State, err)
		}
		if (is == "" || is == "Not Settable") && got.SystemUUID != uuid {
			t.Errorf("%q is noted as the machine", got.SystemUUID)
		}
	}
}

// A machine under another Node name is compared with what it was under the former one.
func TestMachineWithAnotherName(t *testing.T) {
	former := func(changes ...func(*v1alpha1.LatencyVerification)) func(*world) {
		return func(w *world) { w.formers = []*v1alpha1.LatencyVerification{makeVerification("old", changes...)} }
	}
	slow := func(v *v1alpha1.LatencyVerification) {
		v.Status.Reference[0].Rounds = gatetest.Rounds(800, 800, 800, 800, 800, 800)
	}
	unknown := func(v *v1alpha1.LatencyVerification) { v.Status.Accepted, v.Status.Reference = nil, nil }
	for name, c := range map[string]struct {
		change func(*world)
		want   nodeEvent
		says   string
	}{
		"no other name":                         {func(*world) {}, eventPassed, ""},
		"as fast as there":                      {former(), eventPassed, ""},
		"slower than there":                     {former(slow), eventUndecided, "node old of this gate (the same system UUID), and is 26 % slower"},
		"slower, and it failed there":           {former(slow, in(v1alpha1.VerificationFailed)), eventUndecided, "26 % slower"},
		"it failed there, and nothing compares": {former(unknown, in(v1alpha1.VerificationFailed)), eventUndecided, "which is Failed"},
		"it passed there, and nothing compares": {former(unknown), eventPassed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(noReference, measured(metav1.ConditionTrue, v1alpha1.ReasonPass), c.change)
			if s := decide(w); s.event != c.want || !strings.Contains(s.message, c.says) {
				t.Errorf("%s: %s", s.event, s.message)
			}
		})
	}
}

// The first result of a node needs an absolute limit for a latency.
func TestFirstResultNeedsALimit(t *testing.T) {
	for name, c := range map[string]struct {
		rules []v1alpha1.Rule
		want  nodeEvent
	}{
		"a latency":           {[]v1alpha1.Rule{{Metric: v1alpha1.MetricP50, Max: v1alpha1.Limit{Text: "8us"}}}, eventPassed},
		"lost messages":       {[]v1alpha1.Rule{{Metric: v1alpha1.MetricLost, Max: v1alpha1.Limit{Text: "0"}}}, eventUndecided},
		"a rate of a stream":  {[]v1alpha1.Rule{{Metric: v1alpha1.MetricThroughput, Min: v1alpha1.Limit{Text: "1G"}}}, eventUndecided},
		"the least sample":    {[]v1alpha1.Rule{{Metric: v1alpha1.MetricMin, Max: v1alpha1.Limit{Text: "8us"}}}, eventPassed},
		"the spread":          {[]v1alpha1.Rule{{Metric: v1alpha1.MetricStdDev, Max: v1alpha1.Limit{Text: "8us"}}}, eventUndecided},
		"of another cell":     {[]v1alpha1.Rule{{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "8us"}, Cells: []string{"tcp-9"}}}, eventUndecided},
		"losses, and latency": {[]v1alpha1.Rule{{Metric: v1alpha1.MetricLost, Max: v1alpha1.Limit{Text: "0"}}, {Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "8us"}}}, eventPassed},
	} {
		t.Run(name, func(t *testing.T) {
			compares := v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "10%"}}
			w := makeWorld(noReference, func(w *world) {
				w.gate.Spec.Template.Spec.Criteria.Rules = slices.Concat(c.rules, []v1alpha1.Rule{compares})
			}, measured(metav1.ConditionTrue, v1alpha1.ReasonPass))
			s := decide(w)
			if s.event != c.want || c.want == eventUndecided && (s.reason != v1alpha1.ReasonNothingToCompare || !strings.Contains(s.message, "kubectl tailgate accept")) {
				t.Errorf("%s %s: %s", s.event, s.reason, s.message)
			}
			w = makeWorld(func(w *world) {
				w.gate.Spec.Template.Spec.Criteria.Rules = slices.Concat(c.rules, []v1alpha1.Rule{compares})
			}, measured(metav1.ConditionTrue, v1alpha1.ReasonPass))
			if s := decide(w); s.event != eventPassed {
				t.Errorf("later, %s: %s", s.event, s.message)
			}
		})
	}
}

// What changed stays changed when the LatencyVerification or the gate is deleted and created again.
func TestWhatChangedStaysChanged(t *testing.T) {
	older := func(w *world) { w.node.CreationTimestamp = metav1.NewTime(w.gate.CreationTimestamp.Add(-time.Hour)) }
	preexisting := func(is bool) func(*world) {
		return func(w *world) { w.verification.Status.Preexisting = is; w.verification.Status.Accepted = nil }
	}
	for name, c := range map[string]struct {
		change func(*world)
		want   bool
	}{
		"it changed, and failed":                                        {all(older, preexisting(false), status(func(s *v1alpha1.LatencyVerificationStatus) { s.State = v1alpha1.VerificationFailed })), true},
		"it changed, and waits":                                         {all(older, preexisting(false), status(func(s *v1alpha1.LatencyVerificationStatus) { s.State = v1alpha1.VerificationUnverified })), true},
		"it has just changed":                                           {all(older, preexisting(false), booted), true},
		"it changed, and passed":                                        {all(older, preexisting(false)), false},
		"it is preexisting, and failed":                                 {all(older, preexisting(true), status(func(s *v1alpha1.LatencyVerificationStatus) { s.State = v1alpha1.VerificationFailed })), false},
		"it joined: a new one holds it":                                 {all(preexisting(false), status(func(s *v1alpha1.LatencyVerificationStatus) { s.State = v1alpha1.VerificationFailed })), false},
		"it joined, but a new one in mode Observe would be preexisting": {all(preexisting(false), func(w *world) { w.gate.Spec.Enforcement.Mode = v1alpha1.EnforcementObserve }, status(func(s *v1alpha1.LatencyVerificationStatus) { s.State = v1alpha1.VerificationFailed })), true},
		"its devices may be recreated":                                  {all(older, noDevices), true},
		"it failed, with accepted results":                              {status(func(s *v1alpha1.LatencyVerificationStatus) { s.State = v1alpha1.VerificationFailed }), true},
	} {
		w := makeWorld(c.change, func(w *world) { w.verification.DeletionTimestamp = at(0) })
		if name == "it joined: a new one holds it" {
			w.node.CreationTimestamp = metav1.NewTime(w.gate.CreationTimestamp.Add(time.Hour))
		}
		if got := w.keepsFail(); got != c.want {
			t.Errorf("%s: the deletion waits: %t", name, got)
		}
	}
	t.Run("a gate that is created again compares with what it knew", func(t *testing.T) {
		for name, c := range map[string]struct {
			change      func(*world)
			preexisting bool
		}{
			"nothing changed":    {func(*world) {}, true},
			"it was upgraded":    {func(w *world) { w.node.Status.NodeInfo.KernelVersion = "6.2.0" }, false},
			"it had changed":     {func(w *world) { w.verification.Status.Preexisting = false }, false},
			"it was only booted": {booted, false},
		} {
			w := makeWorld(older, func(w *world) { w.verification.Status.Preexisting = true }, c.change, func(w *world) {
				w.gate.UID, w.gate.Spec.Enforcement.Mode = "uid-again", v1alpha1.EnforcementChanges
			})
			got, err := w.next(decide(w))
			v := &v1alpha1.LatencyVerification{Status: got}
			if err != nil || got.Verified().Reason != v1alpha1.ReasonGateReplaced || got.Preexisting != c.preexisting || turns.PublicationOf(w.gate, v).HoldsBack() == c.preexisting {
				t.Errorf("%s: %s, preexisting %t, %v", name, got.Verified().Reason, got.Preexisting, err)
			}
			if len(got.Changed) == 0 && c.preexisting == false && name != "it had changed" {
				t.Errorf("%s: it does not say what changed", name)
			}
		}
	})
}

// Preexisting is what was there when the gate began to hold nodes back: changes in mode Observe do not count.
func TestPreexistingInEachMode(t *testing.T) {
	joined := func(w *world) {
		w.verification.Status = v1alpha1.LatencyVerificationStatus{}
		w.node.CreationTimestamp = metav1.NewTime(w.gate.CreationTimestamp.Add(time.Hour))
	}
	found := func(w *world) { w.verification.Status.Preexisting = true }
	for name, change := range map[string]func(*world){
		"another boot":              all(found, booted),
		"the Node is created again": all(found, func(w *world) { w.node.UID = "other" }),
		"the Node is deleted":       all(found, func(w *world) { w.node = nil }),
		"it joined":                 joined,
	} {
		for _, mode := range []v1alpha1.EnforcementMode{v1alpha1.EnforcementAll, v1alpha1.EnforcementChanges, v1alpha1.EnforcementObserve} {
			w := makeWorld(change, func(w *world) { w.gate.Spec.Enforcement.Mode = mode })
			if got, err := w.next(decide(w)); err != nil || got.Preexisting != (mode == v1alpha1.EnforcementObserve) {
				t.Errorf("%s in mode %s: preexisting %t, %v", name, mode, got.Preexisting, err)
			}
		}
		w := makeWorld(func(w *world) { w.gate.Spec.Enforcement.Mode = v1alpha1.EnforcementObserve }, booted)
		if got, err := w.next(decide(w)); err != nil || got.Preexisting {
			t.Errorf("what changed before stays changed: %v", err)
		}
	}
}

// A Pass with a peer that was not verified all the time is provisional.
func TestPeerThatChangedMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		begin, end bool
		want       string
	}{
		"verified all the time": {true, true, v1alpha1.ReasonPassed},
		"changed meanwhile":     {true, false, v1alpha1.ReasonProvisional},
		"verified meanwhile":    {false, true, v1alpha1.ReasonProvisional},
	} {
		w := makeWorld(measured(metav1.ConditionTrue, v1alpha1.ReasonPass), func(w *world) {
			w.verification.Status.Benchmark.PeerVerified, w.peerVerified = c.begin, c.end
		})
		if s := decide(w); s.reason != c.want {
			t.Errorf("%s: %s: %s", name, s.reason, s.message)
		}
	}
}

// A key that is added to the gate, or removed from it, is no change of the node whose result a user accepts.
func TestAcceptAfterOtherKeys(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		want   nodeEvent
	}{
		"the same keys":     {func(*world) {}, eventAccepted},
		"a key was added":   {func(w *world) { w.gate.Spec.Identity.Labels = append(w.gate.Spec.Identity.Labels, "firmware") }, eventAccepted},
		"a key was removed": {func(w *world) { w.gate.Spec.Identity.Labels = nil }, eventAccepted},
		"the node changed, too": {func(w *world) {
			w.gate.Spec.Identity.Labels = nil
			w.verification.Status.Identity = maps.Clone(w.verification.Status.Identity)
			w.verification.Status.Identity["BootID"], w.node.Status.NodeInfo.BootID = "boot-7", "boot-7"
		}, eventNotAccepted},
	} {
		w := makeWorld(asksAccept("up-a-3"), c.change)
		b := turns.Benchmark(w.gate, w.verification, "b", 3)
		b.UID = "uid-3"
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, ""))
		b.OwnerReferences[0].UID = w.verification.UID
		w.named, w.verification.Status.History[0].ResultPin = b, mustPin(b)
		if s := decide(w); s.event != c.want {
			t.Errorf("%s: %s: %s", name, s.event, s.message)
		}
	}
}

// Only lost pods count as choices of a user: other step failures before the first one do not end in a state that only a user can end.
func TestStepFailuresAreCountedByKind(t *testing.T) {
	lost := func(w *world) {
		w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, "the server's pod was deleted"))
		w.benchmark.Status.Attempts = []v1alpha1.Attempt{{Attempt: 3, Outcome: v1alpha1.Outcome{Reason: v1alpha1.OutcomePodLost}}}
		w.benchmark.Status.Stored = []v1alpha1.StoredResult{{}}
	}
	for _, reason := range []string{v1alpha1.ReasonNotAccepted, v1alpha1.ReasonBenchmarkRefused, v1alpha1.ReasonEnvironmentFailed, v1alpha1.ReasonNoProgress} {
		w := makeWorld(running, lost, func(w *world) { w.verification.Status.StepFailure = &v1alpha1.StepFailure{Count: 9, Reason: reason} })
		for i, want := range []nodeEvent{eventHeldUp, eventHeldUp, eventUndecided} {
			w.verification.Status.Discarded = int32(i)
			s := decide(w)
			if got, err := w.next(s); err != nil || s.event != want || want == eventHeldUp && got.Discarded != int32(i+1) {
				t.Errorf("after %s, lost for the %d. time: %s %s", reason, i+1, s.event, s.message)
			}
		}
	}
}
