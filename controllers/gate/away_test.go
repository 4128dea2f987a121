package gate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

func downed(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }

func TestReadyOfANodeThatIsAway(t *testing.T) {
	w := makeWorld(func(w *world) { downed(w.node) })
	// as the operator wrote it when the node passed
	standing.Publish(&w.verification.Status.Conditions, 0, ago(time.Hour), standing.OfVerification(w.verification))
	status, err := w.next(decide(w))
	if err != nil {
		t.Fatal(err)
	}
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
		t.Error("Ready is True although the node is not ready")
	}
}

func TestFailIsNotReady(t *testing.T) {
	w := makeWorld(func(w *world) { w.verification.Status.State = v1alpha1.VerificationFailed })
	status, _ := w.next(decide(w))
	if meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady) == nil {
		t.Error("a Fail has no Ready: kstatus says Current")
	}
}

func TestRetainedNodeThatIsAway(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"away": downed, "changed": func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "6.2" }, "recreated": func(n *corev1.Node) { n.UID = "other" },
	} {
		s := makeSnapshot(makeGate(), makeVerification("a"))
		z := makeVerification("z")
		s.Nodes["z"] = makeNode("z", change)
		s.Retained = []*v1alpha1.LatencyVerification{z}
		summarize(s, turns.Choice{})
		if c := meta.FindStatusCondition(s.Gate.Status.Conditions, v1alpha1.ConditionPassed); c.Status == metav1.ConditionTrue {
			t.Error(name, c.Status, c.Reason, c.Message)
		}
	}
}

func TestStatesOfADeletedGate(t *testing.T) {
	s := makeSnapshot(makeGate(func(g *v1alpha1.LatencyGate) { g.UID = "new" }), makeVerification("a"))
	summarize(s, turns.Choice{})
	if c := meta.FindStatusCondition(s.Gate.Status.Conditions, v1alpha1.ConditionPassed); c.Status == metav1.ConditionTrue {
		t.Error(c.Status, c.Reason, c.Message)
	}
}

func TestSuspendedWhileANodeIsAway(t *testing.T) {
	s := makeSnapshot(makeGate(func(g *v1alpha1.LatencyGate) { g.Spec.Suspend = true }), makeVerification("a"), makeVerification("b"))
	downed(s.Nodes["b"])
	summarize(s, turns.Choice{})
	st := standing.OfGate(s.Gate)
	if !st.Open {
		t.Errorf("%+v", st)
	}
}

func TestTurnOfANodeThatWentDown(t *testing.T) {
	dead := makeVerification("a", unverified(v1alpha1.ReasonScheduleDue), lent)
	g := makeGate()
	l := makeSnapshot(g, dead, makeVerification("b"), makeVerification("c"))
	l.Schedule.Fired = ago(30 * time.Minute)
	downed(l.Nodes["a"])
	c := l.Choose(nil)
	if len(c.Due) == 0 {
		t.Error("one node that went down in its turn stops the schedule of all others: ", c.Waiting)
	}
	if len(c.Ended) != 1 || c.Ended[0].Verification != dead {
		t.Error("the node is not given back", c.Ended)
	}
}

func TestNoTurnWhileMarksFail(t *testing.T) {
	v := makeVerification("a")
	v.Status.MarkFailures = []v1alpha1.MarkFailure{{Mark: v1alpha1.MarkTaint, StepFailure: v1alpha1.StepFailure{Reason: v1alpha1.ReasonNodeContested, Message: "why"}}}
	l := makeSnapshot(makeGate(), v, makeVerification("b"))
	l.Schedule.Fired = ago(30 * time.Minute)
	for _, d := range l.Choose(nil).Due {
		if d.Verification == v {
			t.Error("a turn begins for a node whose marks fail")
		}
	}
}

func TestMarksOfANewNodeAreTriedAtOnce(t *testing.T) {
	// the same state, another Node object
	w := makeWorld()
	unverified(v1alpha1.ReasonNewNode)(w.verification)
	w.verification.Status.MarkFailures = []v1alpha1.MarkFailure{{Mark: v1alpha1.MarkTaint, StepFailure: v1alpha1.StepFailure{Reason: v1alpha1.ReasonNodeRefused, RetryTime: metav1.Time{Time: noon.Add(50 * time.Second)}}}}
	w.node.UID = types.UID("new")
	old := w.verification.DeepCopy()
	v := old.DeepCopy()
	var err error
	if v.Status, err = w.next(decide(w)); err != nil {
		t.Fatal(err)
	}
	retryMarks(v, turns.PublicationOf(w.gate, old), turns.PublicationOf(w.gate, v), w.now)
	if last := stepFailureOf(v, v1alpha1.MarkTaint); last != nil && turns.OfMark.Left(last, noon) > 0 {
		t.Error("the taint of the new Node is not tried for", turns.OfMark.Left(last, noon))
	}
}

// TestNodeThatIsTheSame: a kubelet that is not well reports the age of its trouble, in the message of Ready, each time.
func TestNodeThatIsTheSame(t *testing.T) {
	w := makeWorld()
	for name, c := range map[string]struct {
		change func(*corev1.NodeCondition)
		same   bool
	}{
		"the message of Ready": {func(c *corev1.NodeCondition) { c.Message = "pleg was last seen active 3m4s ago" }, true},
		"its heartbeat":        {func(c *corev1.NodeCondition) { c.LastHeartbeatTime = metav1.Now() }, true},
		"its reason":           {func(c *corev1.NodeCondition) { c.Reason = "NodeStatusUnknown" }, false},
		"its status":           {func(c *corev1.NodeCondition) { c.Status = corev1.ConditionUnknown }, false},
	} {
		after := w.node.DeepCopy()
		c.change(&after.Status.Conditions[0])
		if got := sameNode(w.node, after); got != c.same {
			t.Errorf("%s changed: same is %t, want %t", name, got, c.same)
		}
	}
}
