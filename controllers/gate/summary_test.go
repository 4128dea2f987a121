package gate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

func TestSummarize(t *testing.T) {
	const verified, failed, inconclusive = v1alpha1.VerificationVerified, v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive
	const waiting, measuring = v1alpha1.VerificationUnverified, v1alpha1.VerificationMeasuring
	troubled := func(reason string, holdPod bool) func(*snapshot) {
		return func(s *snapshot) {
			status := &s.Verifications[0].Status
			if status.StepFailure = (&v1alpha1.StepFailure{Reason: reason, Message: "why", Count: 1}); holdPod {
				status.StepFailure, status.HoldPodFailure = nil, status.StepFailure
			}
		}
	}
	cases := map[string]struct {
		states              []v1alpha1.VerificationState
		change              func(*snapshot)
		operational, passed string
		counts              v1alpha1.NodeCounts
	}{
		"all verified":                            {[]v1alpha1.VerificationState{verified, verified}, nil, "True Operational", "True AllVerified", v1alpha1.NodeCounts{Total: 2, Verified: 2}},
		"no node":                                 {nil, nil, "True Operational", "Unknown NoNodes", v1alpha1.NodeCounts{}},
		"one waits":                               {[]v1alpha1.VerificationState{verified, waiting}, nil, "True Operational", "Unknown NotAllVerified", v1alpha1.NodeCounts{Total: 2, Verified: 1, Unverified: 1}},
		"one is measured":                         {[]v1alpha1.VerificationState{verified, measuring}, nil, "True Operational", "Unknown NotAllVerified", v1alpha1.NodeCounts{Total: 2, Verified: 1, Measuring: 1}},
		"one is inconclusive":                     {[]v1alpha1.VerificationState{verified, inconclusive}, nil, "True Operational", "Unknown NotAllVerified", v1alpha1.NodeCounts{Total: 2, Verified: 1, Inconclusive: 1}},
		"one failed, others wait":                 {[]v1alpha1.VerificationState{waiting, failed}, nil, "True Operational", "False NodesFailed", v1alpha1.NodeCounts{Total: 2, Unverified: 1, Failed: 1}},
		"one that is quite new":                   {[]v1alpha1.VerificationState{verified, ""}, nil, "True Operational", "Unknown NotAllVerified", v1alpha1.NodeCounts{Total: 2, Verified: 1, Unverified: 1}},
		"as many as are allowed":                  {[]v1alpha1.VerificationState{verified, waiting}, func(s *snapshot) { s.Gate.Spec.MaxUnverified = new(int32(1)) }, "True Operational", "Unknown NotAllVerified", v1alpha1.NodeCounts{Total: 2, Verified: 1, Unverified: 1}},
		"more than are allowed":                   {[]v1alpha1.VerificationState{inconclusive, waiting}, func(s *snapshot) { s.Gate.Spec.MaxUnverified = new(int32(1)) }, "True Operational", "False TooManyUnverified", v1alpha1.NodeCounts{Total: 2, Unverified: 1, Inconclusive: 1}},
		"none is allowed, and none is unverified": {[]v1alpha1.VerificationState{verified}, func(s *snapshot) { s.Gate.Spec.MaxUnverified = new(int32(0)) }, "True Operational", "True AllVerified", v1alpha1.NodeCounts{Total: 1, Verified: 1}},
		"a node without a verification":           {[]v1alpha1.VerificationState{verified}, func(s *snapshot) { s.Missing = []*corev1.Node{makeNode("z")} }, "True Operational", "Unknown NotAllVerified", v1alpha1.NodeCounts{Total: 2, Verified: 1, Unverified: 1}},
		"nodes of another gate":                   {[]v1alpha1.VerificationState{verified}, func(s *snapshot) { s.Taken = map[string][]string{"old": {"y", "x"}} }, "False NodesTaken", "Unknown NodesTaken", v1alpha1.NodeCounts{Total: 1, Verified: 1}},
		"a schedule of nonsense":                  {[]v1alpha1.VerificationState{verified}, func(s *snapshot) { s.Schedule.Invalid = "spec.schedule: nonsense" }, "False ScheduleInvalid", "True AllVerified", v1alpha1.NodeCounts{Total: 1, Verified: 1}},
		"a benchmark was refused":                 {[]v1alpha1.VerificationState{waiting}, troubled(v1alpha1.ReasonBenchmarkRefused, false), "False BenchmarkRefused", "Unknown NotAllVerified", v1alpha1.NodeCounts{Total: 1, Unverified: 1}},
		"a benchmark made no progress":            {[]v1alpha1.VerificationState{measuring}, troubled(v1alpha1.ReasonNoProgress, false), "False NoProgress", "Unknown NotAllVerified", v1alpha1.NodeCounts{Total: 1, Measuring: 1}},
		"a hold pod does not stay":                {[]v1alpha1.VerificationState{verified}, troubled(v1alpha1.ReasonHoldPodEnded, true), "False HoldPodEnded", "True AllVerified", v1alpha1.NodeCounts{Total: 1, Verified: 1}},
		"one is retained and not verified": {[]v1alpha1.VerificationState{verified}, func(s *snapshot) {
			s.Retained = []*v1alpha1.LatencyVerification{makeVerification("z", in(failed))}
		}, "True Operational", "False NodesFailed", v1alpha1.NodeCounts{Total: 2, Verified: 1, Failed: 1}},
		"a mark is refused": {[]v1alpha1.VerificationState{waiting, waiting}, func(s *snapshot) {
			s.Gate.Spec.Suspend = true
			troubled(v1alpha1.ReasonBenchmarkRefused, false)(s)
			s.Verifications[1].Status.MarkFailures = []v1alpha1.MarkFailure{{Mark: v1alpha1.MarkTaint, StepFailure: v1alpha1.StepFailure{Reason: v1alpha1.ReasonNodeRefused, Message: "why"}}}
		}, "False NodeRefused", "Unknown NotAllVerified", v1alpha1.NodeCounts{Total: 2, Unverified: 2}},
		"a mark of a retained node is refused": {[]v1alpha1.VerificationState{verified}, func(s *snapshot) {
			z := makeVerification("z")
			z.Status.MarkFailures = []v1alpha1.MarkFailure{{Mark: v1alpha1.MarkLabel, StepFailure: v1alpha1.StepFailure{Reason: v1alpha1.ReasonNodeContested, Message: "why"}}}
			s.Retained = []*v1alpha1.LatencyVerification{z}
		}, "False NodeContested", "True AllVerified", v1alpha1.NodeCounts{Total: 2, Verified: 2}},
		"a verified node is away": {[]v1alpha1.VerificationState{verified, verified}, func(s *snapshot) {
			*s = *makeSnapshot(s.Gate, s.Verifications...)
			s.Nodes["n0"].Status.Conditions[0].Status = corev1.ConditionUnknown
		}, "True Operational", "Unknown NodesNotReady", v1alpha1.NodeCounts{Total: 2, Verified: 1, Away: 1}},
		"one is away, one waits": {[]v1alpha1.VerificationState{verified, waiting}, func(s *snapshot) {
			*s = *makeSnapshot(s.Gate, s.Verifications...)
			s.Nodes["n0"].Status.Conditions[0].Status = corev1.ConditionFalse
		}, "True Operational", "Unknown NotAllVerified", v1alpha1.NodeCounts{Total: 2, Unverified: 1, Away: 1}},
		"a node that was away has returned": {[]v1alpha1.VerificationState{verified, v1alpha1.VerificationAway}, func(s *snapshot) {
			*s = *makeSnapshot(s.Gate, s.Verifications...)
		}, "True Operational", "True AllVerified", v1alpha1.NodeCounts{Total: 2, Verified: 2}},
		"a verified node has changed, and its state cannot be written": {[]v1alpha1.VerificationState{verified}, func(s *snapshot) {
			*s = *makeSnapshot(s.Gate, s.Verifications...)
			s.Nodes["n0"].Status.NodeInfo.KernelVersion = "6.2.0"
		}, "True Operational", "Unknown NotAllVerified", v1alpha1.NodeCounts{Total: 1, Unverified: 1}},
		"no node has a label of the identity": {[]v1alpha1.VerificationState{verified}, func(s *snapshot) {
			s.Gate.Spec.Identity.Labels = []string{"onload", "onlaod"}
			*s = *makeSnapshot(s.Gate, s.Verifications...)
		}, "False LabelMissing", "True AllVerified", v1alpha1.NodeCounts{Total: 1, Verified: 1}},
		"a suspended gate": {[]v1alpha1.VerificationState{verified}, func(s *snapshot) { s.Gate.Spec.Suspend = true }, "False Suspended", "True AllVerified", v1alpha1.NodeCounts{Total: 1, Verified: 1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := &snapshot{Snapshot: &turns.Snapshot{Gate: makeGate()}}
			for i, state := range c.states {
				s.Verifications = append(s.Verifications, makeVerification(fmt.Sprintf("n%d", i), in(state)))
			}
			if c.change != nil {
				c.change(s)
			}
			summarize(s, turns.Choice{})
			message := func(conditionType string) string {
				c := meta.FindStatusCondition(s.Gate.Status.Conditions, conditionType)
				return fmt.Sprintf("%s %s", c.Status, c.Reason)
			}
			if got := message(v1alpha1.ConditionOperational); got != c.operational {
				t.Errorf("Operational is %s, want %s", got, c.operational)
			}
			if got := message(v1alpha1.ConditionPassed); got != c.passed {
				t.Errorf("Passed is %s, want %s", got, c.passed)
			}
			if diff := cmp.Diff(c.counts, s.Gate.Status.Nodes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Each node that is not verified says whether it is held, since when, what ends that, and whether a user must act.
func TestOutlookOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		state        v1alpha1.VerificationState
		unmeasurable bool
		change       func(*v1alpha1.LatencyGate, *v1alpha1.LatencyVerification)
		held, user   bool
		ends         string
	}{
		"failed":       {v1alpha1.VerificationFailed, false, nil, true, true, "a Pass after a repair: kubectl tailgate verify up.n"},
		"inconclusive": {v1alpha1.VerificationInconclusive, false, nil, true, true, "a result that is accepted, or a Pass: kubectl tailgate verify up.n"},
		"away":         {v1alpha1.VerificationAway, false, nil, false, false, "its return: the node is ready, and has not changed"},
		"waiting":      {v1alpha1.VerificationUnverified, false, nil, true, false, "a measurement"},
		"unmeasurable": {v1alpha1.VerificationUnverified, true, nil, true, true, "a measurement, which needs what the message says"},
		"suspended": {v1alpha1.VerificationUnverified, false, func(g *v1alpha1.LatencyGate, _ *v1alpha1.LatencyVerification) { g.Spec.Suspend = true },
			true, true, "a measurement, after the end of spec.suspend"},
		"retained": {v1alpha1.VerificationUnverified, false, func(_ *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) {
			v.Status.Retained = &v1alpha1.Retention{EndTime: *at(-time.Hour)}
		}, true, false, "the end of its retention at 2026-05-04T13:00:00Z"},
		"preexisting": {v1alpha1.VerificationUnverified, false, func(g *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) {
			g.Spec.Enforcement.Mode, v.Status.Preexisting = v1alpha1.EnforcementChanges, true
		}, false, false, "a measurement"},
	} {
		t.Run(name, func(t *testing.T) {
			g, v := makeGate(), makeVerification("n", in(c.state))
			if c.change != nil {
				c.change(g, v)
			}
			s, line := &snapshot{Snapshot: &turns.Snapshot{Gate: g}}, v1alpha1.NodeLine{Name: "n", State: c.state}
			s.outlook(&line, v, c.unmeasurable)
			want := v1alpha1.NodeLine{Name: "n", State: c.state, Held: c.held, Since: v.Status.LastTransitionTime, Ends: c.ends, User: c.user}
			if diff := cmp.Diff(want, line); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSummarizeWhatJustHappened(t *testing.T) {
	a, b, c := makeVerification("a", unverified(v1alpha1.ReasonNewNode)), makeVerification("b"), makeVerification("c", unverified(v1alpha1.ReasonNewNode))
	s := &snapshot{Snapshot: &turns.Snapshot{Gate: makeGate()}}
	s.Verifications = []*v1alpha1.LatencyVerification{a, b, c}
	summarize(s, turns.Choice{Starts: []turns.Start{{Verification: a, Peer: "d", PeerVerified: true}}, Due: []turns.Start{{Verification: b}}, Waiting: map[string]string{"c": "others are measured first"}})
	want := []v1alpha1.NodeLine{
		{Name: "a", State: v1alpha1.VerificationMeasuring, Message: "because", Held: true, Since: at(time.Minute), Ends: "the verdict of its benchmark"},
		{Name: "b", State: v1alpha1.VerificationUnverified, Message: "all 2 rules pass", Held: true, Since: at(time.Hour), Ends: "a measurement"},
		{Name: "c", State: v1alpha1.VerificationUnverified, Message: "others are measured first; because", Held: true, Since: at(time.Minute), Ends: "a measurement"},
	}
	if diff := cmp.Diff(want, s.Gate.Status.NotVerified); diff != "" {
		t.Error(diff)
	}
}

func TestWorst(t *testing.T) {
	var lines []v1alpha1.NodeLine
	for i := range 30 {
		for _, state := range []v1alpha1.VerificationState{v1alpha1.VerificationUnverified, v1alpha1.VerificationVerified, v1alpha1.VerificationFailed} {
			lines = append(lines, v1alpha1.NodeLine{Name: fmt.Sprintf("%s-%02d", strings.ToLower(string(state)), i), State: state, Message: strings.Repeat("µ", 600)})
		}
	}
	got := worst(lines)
	if len(got) != v1alpha1.MaxNodeLines || got[0].Name != "failed-00" || got[19].Name != "failed-19" || len(got[0].Message) > 512 {
		t.Errorf("%d lines, from %s to %s", len(got), got[0].Name, got[len(got)-1].Name)
	}
	if len(lines[0].Message) != 1200 {
		t.Error("the lines that were given were changed")
	}
}

func TestGateNotices(t *testing.T) {
	with := func(status metav1.ConditionStatus, reason string) *v1alpha1.LatencyGate {
		g := makeGate()
		g.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, "m"))
		return g
	}
	for _, c := range []struct {
		old, new *v1alpha1.LatencyGate
		want     string
	}{
		{with("Unknown", v1alpha1.ReasonNotAllVerified), with("True", v1alpha1.ReasonAllVerified), "[{Normal AllVerified Passed m <nil>}]"},
		{with("True", v1alpha1.ReasonAllVerified), with("False", v1alpha1.ReasonNodesFailed), "[{Warning NodesFailed Passed m <nil>}]"},
		{with("True", v1alpha1.ReasonAllVerified), with("Unknown", v1alpha1.ReasonNotAllVerified), "[]"},
		{with("False", v1alpha1.ReasonNodesFailed), with("False", v1alpha1.ReasonNodesFailed), "[]"},
		{makeGate(), makeGate(), "[]"},
	} {
		if got := fmt.Sprint(gateNotices(c.old, c.new)); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
