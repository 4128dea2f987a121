package standing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/admit"
)

// generation is that of the spec of the objects of these tests.
const generation = 3

// kstatus returns how kstatus, which Helm 4 and Flux use, finds an object of a kind, as an API server returns it.
func kstatus(t *testing.T, kind string, o client.Object) status.Status {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind(kind)
	got, err := status.Compute(u)
	if err != nil {
		t.Fatal(err)
	}
	if got.Message == "" {
		t.Errorf("%s without a message", got.Status)
	}
	return got.Status
}

// conclude returns the conditions of a status in which Publish has set those for generic tools.
func conclude(conditions []metav1.Condition, s Standing) []metav1.Condition {
	Publish(&conditions, generation, time.Now(), s)
	return conditions
}

func condition(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
	c := v1alpha1.Condition(conditionType, status, reason, "because "+reason)
	c.ObservedGeneration = generation
	return c
}

// accepted, succeeded and passed are the states of these conditions.
var (
	accepted = []metav1.Condition{
		{}, condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted),
		condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonNoMatchingNode),
		condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonCellUnsupported),
	}
	succeeded = []metav1.Condition{
		{}, condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonNotAccepted),
		condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning),
		condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete),
		condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed),
	}
	passed = []metav1.Condition{
		{}, condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNotJudged),
		condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonInconclusive),
		condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonBaselineNotComplete),
		condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonBenchmarkFailed),
		condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonFail),
		condition(v1alpha1.ConditionPassed, metav1.ConditionTrue, v1alpha1.ReasonPass),
	}
)

// conditions returns the conditions that are not empty.
func conditions(all ...metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(all, func(c metav1.Condition) bool { return c.Type == "" })
}

// No benchmark and no matrix is Current before it passed or, without criteria, was measured.
func TestGenericReadinessOfMeasurements(t *testing.T) {
	criteria := &v1alpha1.Criteria{Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "other"}}}}
	seen := map[status.Status]int{}
	for _, a := range accepted {
		for _, s := range succeeded {
			for _, p := range passed {
				for _, suspend := range []bool{false, true} {
					for _, rules := range []*v1alpha1.Criteria{nil, criteria} {
						if (rules == nil) != (p.Type == "") {
							continue // not a status that the operator writes
						}
						b := &v1alpha1.LatencyBenchmark{}
						b.Generation, b.Status.ObservedGeneration = generation, generation
						b.Spec.Criteria, b.Spec.Suspend, b.Status.Conditions = rules, suspend, conditions(a, s, p)
						m := &v1alpha1.LatencyMatrix{}
						m.Generation, m.Status.ObservedGeneration = generation, generation
						m.Spec.Template.Spec.Criteria, m.Spec.Suspend, m.Status.Conditions = rules, suspend, slices.Clone(b.Status.Conditions)
						b.Status.Conditions = conclude(b.Status.Conditions, OfMeasurement(b))
						m.Status.Conditions = conclude(m.Status.Conditions, OfMeasurement(m.Overview()))

						got := kstatus(t, "LatencyBenchmark", b)
						seen[got]++
						name := fmt.Sprintf("accepted %s, succeeded %s, passed %s, suspended %v, criteria %v", a.Reason, s.Reason, p.Reason, suspend, rules != nil)
						done := p.Status == metav1.ConditionTrue || rules == nil && s.Status == metav1.ConditionTrue
						if (got == status.CurrentStatus) != done {
							t.Errorf("%s: %s", name, got)
						}
						if p.Status == metav1.ConditionFalse && got != status.FailedStatus {
							t.Errorf("%s: %s, expected Failed", name, got)
						}
						if other := kstatus(t, "LatencyMatrix", m); other != got {
							t.Errorf("%s: a matrix is %s, a benchmark %s", name, other, got)
						}
						b.Generation++
						if got := kstatus(t, "LatencyBenchmark", b); got != status.InProgressStatus {
							t.Errorf("%s, of an older spec: %s", name, got)
						}
					}
				}
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("of InProgress, Failed and Current, only %v occurred", seen)
	}
}

// An object that the operator has not looked at is not ready, whatever its kind, as an API server with these definitions returns it.
func TestGenericReadinessBeforeTheOperator(t *testing.T) {
	template := map[string]any{"spec": map[string]any{
		"tool": "pinger", "workload": map[string]any{"protocols": []any{"TCP"}, "messageSizes": []any{int64(64)}, "duration": "1s"},
		"placement": map[string]any{"client": map[string]any{}, "server": map[string]any{}},
		"criteria":  map[string]any{"rules": []any{map[string]any{"metric": "p50", "max": "5ms"}}},
	}}
	nodes := map[string]any{"matchLabels": map[string]any{"a": "b"}}
	for kind, spec := range map[string]any{
		"LatencyBenchmark": map[string]any{
			"tool": "pinger", "workload": map[string]any{"protocols": []any{"TCP"}, "messageSizes": []any{int64(64)}, "duration": "1s"},
			"placement": map[string]any{"client": map[string]any{"nodeName": "a"}, "server": map[string]any{"nodeName": "b"}},
		},
		"LatencyMatrix":       map[string]any{"topology": "Ring", "nodes": map[string]any{"nodeSelector": nodes}, "template": template},
		"LatencyGate":         map[string]any{"nodeSelector": nodes, "namespace": "gates", "template": template},
		"LatencyVerification": map[string]any{"gateName": "g", "nodeName": "a"},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": "x", "generation": int64(1)}, "spec": spec,
		}}
		if err := admit.Object(t.Context(), u); err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		got, err := status.Compute(u)
		if err != nil || got.Status != status.InProgressStatus {
			t.Errorf("%s: %v, %v", kind, got, err)
		}
	}
}

// A gate is Current only with a Pass, and a verification only in state Verified.
func TestGenericReadinessOfGates(t *testing.T) {
	operational := []metav1.Condition{
		condition(v1alpha1.ConditionOperational, metav1.ConditionTrue, v1alpha1.ReasonOperational),
		condition(v1alpha1.ConditionOperational, metav1.ConditionFalse, v1alpha1.ReasonBenchmarkRefused),
	}
	for _, o := range operational {
		for _, c := range []struct {
			passed  metav1.Condition
			nodes   v1alpha1.NodeCounts
			suspend bool
			want    status.Status
		}{
			{metav1.Condition{}, v1alpha1.NodeCounts{}, false, status.InProgressStatus},
			{condition(v1alpha1.ConditionPassed, metav1.ConditionTrue, v1alpha1.ReasonAllVerified), v1alpha1.NodeCounts{Total: 2, Verified: 2}, false, status.CurrentStatus},
			{condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonNodesFailed), v1alpha1.NodeCounts{Total: 2, Failed: 1, Unverified: 1}, false, status.FailedStatus},
			{condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonTooManyUnverified), v1alpha1.NodeCounts{Total: 2, Unverified: 2}, false, status.InProgressStatus},
			{condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonTooManyUnverified), v1alpha1.NodeCounts{Total: 2, Unverified: 2}, true, status.FailedStatus},
			{condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonTooManyUnverified), v1alpha1.NodeCounts{Total: 2, Unverified: 2, Unmeasurable: 2}, false, status.FailedStatus},
			{condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNotAllVerified), v1alpha1.NodeCounts{Total: 3, Verified: 2, Unverified: 1, Unmeasurable: 1}, false, status.FailedStatus},
			{condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNotAllVerified), v1alpha1.NodeCounts{Total: 3, Verified: 1, Unverified: 2, Unmeasurable: 1}, false, status.InProgressStatus},
			{condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNotAllVerified), v1alpha1.NodeCounts{Total: 2, Verified: 1, Measuring: 1}, true, status.InProgressStatus},
			{condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNotAllVerified), v1alpha1.NodeCounts{Total: 2, Verified: 1, Inconclusive: 1}, false, status.FailedStatus},
			{condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNodesTaken), v1alpha1.NodeCounts{Total: 1, Verified: 1}, false, status.FailedStatus},
			{condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNoNodes), v1alpha1.NodeCounts{}, false, status.InProgressStatus},
		} {
			g := &v1alpha1.LatencyGate{}
			g.Generation, g.Status.ObservedGeneration = generation, generation
			g.Spec.Suspend, g.Status.Nodes, g.Status.Conditions = c.suspend, c.nodes, conditions(o, c.passed)
			g.Status.Conditions = conclude(g.Status.Conditions, OfGate(g))
			if got := kstatus(t, "LatencyGate", g); got != c.want {
				t.Errorf("operational %s, passed %s, suspended %v: %s, expected %s", o.Status, c.passed.Reason, c.suspend, got, c.want)
			}
		}
	}
	for state, want := range map[v1alpha1.VerificationState]status.Status{
		"": status.InProgressStatus, v1alpha1.VerificationUnverified: status.InProgressStatus, v1alpha1.VerificationMeasuring: status.InProgressStatus,
		v1alpha1.VerificationVerified: status.CurrentStatus, v1alpha1.VerificationAway: status.InProgressStatus, v1alpha1.VerificationFailed: status.FailedStatus, v1alpha1.VerificationInconclusive: status.FailedStatus,
	} {
		v := &v1alpha1.LatencyVerification{}
		v.Generation, v.Status.ObservedGeneration, v.Status.State = generation, generation, state
		verified := metav1.ConditionUnknown
		if state == v1alpha1.VerificationVerified {
			verified = metav1.ConditionTrue
		}
		v.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionVerified, verified, "Because")}
		v.Status.Conditions = conclude(v.Status.Conditions, OfVerification(v))
		if got := kstatus(t, "LatencyVerification", v); got != want {
			t.Errorf("%s: %s, expected %s", state, got, want)
		}
		// While the node is not ready, the condition is Unknown, and a verified one is Away.
		if state == v1alpha1.VerificationVerified {
			v.Status.State = v1alpha1.VerificationAway
		}
		v.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionVerified, metav1.ConditionUnknown, v1alpha1.ReasonNodeNotReady)}
		v.Status.Conditions = conclude(v.Status.Conditions, OfVerification(v))
		if got := kstatus(t, "LatencyVerification", v); got == status.CurrentStatus {
			t.Errorf("%s of a node that is not ready: %s", state, got)
		}
	}
}

// A status without conditions, and one whose verdict changes, have exactly one of the three results.
func TestPublishReplaces(t *testing.T) {
	var all []metav1.Condition
	for _, c := range []struct {
		standing              Standing
		ready                 metav1.ConditionStatus
		reconciling, stalling bool
	}{
		{Standing{Open: true, Reason: "Waits", Message: "waits"}, metav1.ConditionUnknown, true, false},
		{Standing{Outcome: v1alpha1.VerdictFail, Reason: "Fail", Message: "failed"}, metav1.ConditionFalse, false, true},
		{Standing{Outcome: v1alpha1.VerdictPass, Reason: "Pass", Message: "passed"}, metav1.ConditionTrue, false, false},
		{Standing{Outcome: v1alpha1.VerdictInconclusive, Baseline: "other", Reason: "BaselineNotComplete", Message: "waits"}, metav1.ConditionUnknown, true, false},
	} {
		Publish(&all, generation, time.Now(), c.standing)
		ready := meta.FindStatusCondition(all, v1alpha1.ConditionReady)
		if ready == nil || ready.Status != c.ready || ready.Reason != c.standing.Reason || ready.ObservedGeneration != generation {
			t.Errorf("%+v: Ready is %+v", c.standing, ready)
		}
		if got := meta.FindStatusCondition(all, v1alpha1.ConditionReconciling) != nil; got != c.reconciling {
			t.Errorf("%+v: Reconciling is %v", c.standing, got)
		}
		if got := meta.FindStatusCondition(all, v1alpha1.ConditionStalled) != nil; got != c.stalling {
			t.Errorf("%+v: Stalled is %v", c.standing, got)
		}
	}
}
