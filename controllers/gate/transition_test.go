package gate

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/docs"
)

var allStates = []v1alpha1.VerificationState{
	v1alpha1.VerificationUnverified, v1alpha1.VerificationMeasuring, v1alpha1.VerificationVerified, v1alpha1.VerificationAway, v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive,
}

// full returns a verification whose status has every field set that a transition may clear or count.
func full(state v1alpha1.VerificationState) *v1alpha1.LatencyVerification {
	return makeVerification("a", in(state), func(v *v1alpha1.LatencyVerification) {
		v.Generation = 3
		s := &v.Status
		s.Benchmark = &v1alpha1.VerificationBenchmark{Name: "up-a-4", Peer: "b"}
		s.Discarded, s.SuspectPeer, s.Turn, s.TurnRequestTime = 1, "c", &v1alpha1.Turn{Reason: "Because", Message: "it happened"}, at(time.Hour)
		s.StepFailure = &v1alpha1.StepFailure{Reason: v1alpha1.ReasonNotAccepted, Message: "why", Count: 1}
		s.HoldPodFailure = &v1alpha1.StepFailure{Reason: v1alpha1.ReasonHoldPodEnded, Message: "why", Count: 1}
		s.Changed = []v1alpha1.IdentityChange{{Key: "Kernel"}}
		s.AcceptRefused = &v1alpha1.AcceptRefusal{Message: "why"}
		s.Requests = &v1alpha1.ProcessedRequests{Verify: new(by)}
		s.Retained = &v1alpha1.Retention{Reason: v1alpha1.ReasonTaken}
		s.MarkFailures = []v1alpha1.MarkFailure{{Mark: v1alpha1.MarkTaint, StepFailure: v1alpha1.StepFailure{Reason: v1alpha1.ReasonNodeRefused, Count: 1}}}
	})
}

// fieldsOf returns the fields of a status, by their names in JSON.
func fieldsOf(s v1alpha1.LatencyVerificationStatus) map[statusField]any {
	all, of := map[statusField]any{}, reflect.ValueOf(s)
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Type().Field(i).Tag.Get("json"), ",")
		all[statusField(name)] = of.Field(i).Interface()
	}
	return all
}

// Each event happens in the states that the table allows, leads to the state in the table, and changes only those other fields
// that the table lists.
func TestTransitions(t *testing.T) {
	empty, seen := fieldsOf(v1alpha1.LatencyVerificationStatus{}), map[nodeEvent]bool{}
	for _, tr := range transitions {
		if seen[tr.event] {
			t.Errorf("%s is in the table twice", tr.event)
		}
		seen[tr.event] = true
		for _, state := range allStates {
			w := makeWorld(measured(metav1.ConditionTrue, v1alpha1.ReasonPassed), func(w *world) {
				w.node.UID, w.node.Status.NodeInfo = "uid-new", corev1.NodeSystemInfo{BootID: "boot-2", SystemUUID: "uuid-2"}
			})
			w.named = w.benchmark
			before := full(state)
			before.Spec.Accept = &v1alpha1.AcceptRequest{Benchmark: "up-a-3", UserRequest: by}
			before.Status.SystemUUID, before.Status.FailConfirmed, before.Status.BaselineTrouble = "uuid-1", true, "why"
			before.Status.HoldPod, before.Status.Absent = &v1alpha1.HoldPod{UID: "uid-hold"}, []v1alpha1.AbsentKey{{Key: "Kernel"}}
			before.Status.Preexisting, before.Status.GateUID, before.Status.Evidence = true, "uid-earlier", []v1alpha1.ProofLine{{Check: v1alpha1.ProofDriver}}
			w.verification = before
			s := step{
				event: tr.event, chosen: true, reason: "Because", message: "it happened", suspect: "d", changed: []v1alpha1.IdentityChange{{Key: "BootID"}, {Key: "Devices/amd.com/sf_vf", From: "8", To: "8, recreated"}},
				benchmark: &v1alpha1.VerificationBenchmark{Name: "up-a-5", Peer: "e"}, outcome: v1alpha1.VerdictPass, retained: &v1alpha1.Retention{Reason: v1alpha1.ReasonGateDeleted},
			}
			got, err := s.apply(w, before, *before.Status.DeepCopy(), noon)
			if allowed := tr.from == nil || slices.Contains(tr.from, state); (err == nil) != allowed {
				t.Errorf("%s in state %s: error %v", tr.event, state, err)
			}
			if err != nil {
				if diff := cmp.Diff(before.Status, got); diff != "" {
					t.Errorf("%s, refused in state %s, changed (-before +after):\n%s", tr.event, state, diff)
				}
				continue
			}
			if to := tr.to; to != "" && got.State != to || to == "" && got.State != state {
				t.Errorf("%s leads from %s to %s", tr.event, state, got.State)
			}
			after, sets, everything := fieldsOf(got), setsOf(tr), slices.Contains(tr.clears, fieldAll)
			for name, was := range fieldsOf(before.Status) {
				kept := slices.Contains([]statusField{"number", "retained", "markFailures", "requests"}, name)
				switch {
				case tr.to != "" && slices.Contains([]statusField{"state", "conditions", "lastTransitionTime", "observedGeneration"}, name):
				case slices.Contains(sets, name):
					if cmp.Equal(was, after[name]) && name != fieldFailConfirmed && name != fieldPreexisting && name != "introduced" && (name != "requests" || tr.event != eventChanged) {
						t.Errorf("%s leaves %s as it was: %v", tr.event, name, after[name])
					}
				case slices.Contains(tr.clears, name) || everything && !kept:
					if diff := cmp.Diff(empty[name], after[name]); diff != "" {
						t.Errorf("%s does not clear %s:\n%s", tr.event, name, diff)
					}
				default:
					if diff := cmp.Diff(was, after[name]); diff != "" {
						t.Errorf("%s changes %s:\n%s", tr.event, name, diff)
					}
				}
			}
		}
	}
}

// A reconcile changes nothing but what the event and what was observed change, and the conditions.
func TestNextChangesWhatTheTableSays(t *testing.T) {
	for _, change := range []func(*world){
		func(*world) {}, booted, away, notSelected, measured(metav1.ConditionTrue, v1alpha1.ReasonPassed), measured(metav1.ConditionFalse, v1alpha1.ReasonFail),
		measured(metav1.ConditionUnknown, v1alpha1.ReasonInconclusive), asksAccept("nothing"), asksVerify,
		func(w *world) { w.node.UID = "uid-new" }, func(w *world) { w.gate.UID = "uid-new" }, func(w *world) { w.node = nil },
	} {
		w := makeWorld(change)
		s := decide(w)
		status, err := w.next(s)
		if err != nil {
			t.Fatal(err)
		}
		may := slices.Concat(observed.sets, []statusField{"state", "conditions", "lastTransitionTime", "observedGeneration"})
		if tr := s.event.transition(); tr != nil {
			may = slices.Concat(may, tr.clears, setsOf(*tr))
		}
		after := fieldsOf(status)
		for name, was := range fieldsOf(w.verification.Status) {
			if !slices.Contains(may, name) && !cmp.Equal(was, after[name]) {
				t.Errorf("%s changes %s", s.event, name)
			}
		}
	}
}

func setsOf(tr transition) []statusField {
	var all []statusField
	for _, e := range tr.does {
		for _, name := range e.sets {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// Condition Verified follows the state, and its transition time changes with its status alone.
func TestConditionVerified(t *testing.T) {
	v := full(v1alpha1.VerificationUnverified)
	v.Status.Conditions = nil
	w := makeWorld(measured(metav1.ConditionTrue, v1alpha1.ReasonPassed), asksAccept("up-a-3"), func(w *world) { w.named = w.benchmark })
	for i, c := range []struct {
		event  nodeEvent
		status metav1.ConditionStatus
		// since is how many steps ago the status changed.
		since int
	}{
		{eventStarted, metav1.ConditionUnknown, 0},
		{eventUndecided, metav1.ConditionUnknown, 1},
		{eventChanged, metav1.ConditionUnknown, 2},
		{eventStarted, metav1.ConditionUnknown, 3},
		{eventPassed, metav1.ConditionTrue, 0},
		{eventChanged, metav1.ConditionUnknown, 0},
		{eventStarted, metav1.ConditionUnknown, 1},
		{eventFailed, metav1.ConditionFalse, 0},
		{eventAccepted, metav1.ConditionTrue, 0},
	} {
		now := func(step int) metav1.Time { return metav1.Time{Time: noon.Add(time.Duration(step) * time.Minute)} }
		reason := fmt.Sprintf("Reason%d", i)
		status, err := step{event: c.event, reason: reason, message: "why"}.apply(w, v, v.Status, now(i).Time)
		if err != nil {
			t.Fatal(err)
		}
		v.Status = status
		// What generic tools read follows the state, too, and its transition times the given time.
		want := []metav1.Condition{{Type: "Verified", Status: c.status, ObservedGeneration: 3, LastTransitionTime: now(i - c.since), Reason: reason, Message: "why"}}
		got := slices.Clone(v.Status.Conditions)
		for _, generic := range got[1:] {
			if generic.Reason != reason || generic.ObservedGeneration != 3 || generic.LastTransitionTime.After(now(i).Time) {
				t.Errorf("step %d, %s: %+v", i, c.event, generic)
			}
		}
		want = append(want, got[1:]...)
		types := []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling}
		switch status.State {
		case v1alpha1.VerificationVerified:
			types = types[:1]
		case v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive:
			types[1] = v1alpha1.ConditionStalled
		}
		for _, conditionType := range types {
			if meta.FindStatusCondition(got, conditionType) == nil || len(got) != 1+len(types) {
				t.Errorf("step %d, %s: conditions %+v, expected also %v", i, c.event, got[1:], types)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("step %d, %s (-want +got):\n%s", i, c.event, diff)
		}
	}
}

// The table in the documentation must match the table in the code.
func TestDocumentedTransitions(t *testing.T) {
	names := func(fields ...statusField) string {
		var all []string
		for _, f := range fields {
			if f == fieldAll {
				all = append(all, "all but `number`, `retained`, `markFailures` and `requests`")
			} else if f != "" {
				all = append(all, "`"+string(f)+"`")
			}
		}
		return strings.Join(all, ", ")
	}
	state := func(states ...v1alpha1.VerificationState) string {
		var all []string
		for _, s := range states {
			if s != "" {
				all = append(all, "`"+string(s)+"`")
			}
		}
		return strings.Join(all, ", ")
	}
	want := "| state | event | new state | clears | sets |\n|---|---|---|---|---|\n"
	for _, tr := range transitions {
		from := "any"
		if tr.from != nil {
			from = state(tr.from...)
		}
		to := "the same"
		if tr.to != "" {
			to = state(tr.to)
		}
		want += strings.ReplaceAll(fmt.Sprintf("| %s | %s | %s | %s | %s |\n", from, tr.when, to, names(tr.clears...), names(setsOf(tr)...)), "|  |", "| |")
	}
	want = strings.ReplaceAll(want, "|  |", "| |")
	docs.CheckTable(t, filepath.Join("..", ".."), "internals/transitions.md", "controllers/gate", want)
}

// A node is as its gate found it from its first verification, if it was there before, until it changes. Neither a result nor a request
// nor a new gate makes it so again.
func TestPreexisting(t *testing.T) {
	before := func(w *world) {
		w.node.CreationTimestamp = metav1.NewTime(w.gate.CreationTimestamp.Add(-time.Hour))
		w.verification.Status = v1alpha1.LatencyVerificationStatus{}
	}
	found := func(w *world) { w.verification.Status.Preexisting = true }
	cases := map[string]struct {
		change []func(*world)
		want   bool
	}{
		"new to the gate, and there before": {[]func(*world){before}, true},
		"new, and joined later": {[]func(*world){before, func(w *world) {
			w.node.CreationTimestamp = metav1.NewTime(w.gate.CreationTimestamp.Add(time.Second))
		}}, false},
		"nothing happens":                {[]func(*world){found}, true},
		"a new measurement is requested": {[]func(*world){found, asksVerify}, true},
		"it failed":                      {[]func(*world){found, measured(metav1.ConditionFalse, v1alpha1.ReasonFail)}, true},
		"another boot":                   {[]func(*world){found, func(w *world) { w.node.Status.NodeInfo.BootID = "boot-2" }}, false},
		"the Node is created again":      {[]func(*world){found, func(w *world) { w.node.UID = "other" }}, false},
		"the Node is deleted":            {[]func(*world){found, func(w *world) { w.node = nil }}, false},
		"the gate is created again":      {[]func(*world){func(w *world) { w.gate.UID = "other" }}, false},
		"a change that was seen":         {[]func(*world){func(w *world) { w.verification.Status.State = v1alpha1.VerificationUnverified }}, false},
		"another machine of its name": {[]func(*world){found, func(w *world) {
			w.node.UID, w.verification.Status.SystemUUID, w.node.Status.NodeInfo.SystemUUID = "other", "one", "two"
		}}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.change...)
			status, err := w.next(decide(w))
			if err != nil {
				t.Fatal(err)
			}
			if status.Preexisting != c.want {
				t.Errorf("preexisting is %t in state %s", status.Preexisting, status.State)
			}
		})
	}
}

func TestRatio(t *testing.T) {
	rules := []v1alpha1.RuleVerdict{
		{Unit: "Nanoseconds", Estimate: "20000"},
		{Unit: "Nanoseconds", Estimate: "1.02", Baseline: new(int64(1))},
		{Unit: "Nanoseconds", Estimate: "1.1", Baseline: new(int64(1))},
		{Unit: "Messages", Estimate: "7", Baseline: new(int64(1))},
		{Unit: "Nanoseconds", Baseline: new(int64(1))},
	}
	for got, want := range map[string]string{ratio(nil): "", ratio(&v1alpha1.Verdict{Rules: rules}): "1.1", ratio(&v1alpha1.Verdict{Rules: rules[:1]}): ""} {
		if got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

// A measurement whose rounds no rule compares is no session: a reference without rounds would let a later maxIncrease compare with nothing.
func TestSessionsWithoutRounds(t *testing.T) {
	for name, c := range map[string]struct {
		change              func(*world)
		reference, remember int
	}{
		"compared rounds of a new boot": {func(*world) {}, 3, 6},
		"no rule compares":              {func(w *world) { w.benchmark.Status.Session = nil }, 2, 5},
		"no round has the value":        {func(w *world) { w.benchmark.Status.Session.Rounds = nil }, 2, 5},
	} {
		w := makeWorld(measured(metav1.ConditionTrue, v1alpha1.ReasonPass), c.change)
		status, err := w.next(decide(w))
		if err != nil {
			t.Fatal(err)
		}
		if status.State != v1alpha1.VerificationVerified || len(status.Reference) != c.reference || len(status.Recent) != c.remember {
			t.Errorf("%s: %s, %d sessions of the reference, %d recent", name, status.State, len(status.Reference), len(status.Recent))
		}
	}
}
