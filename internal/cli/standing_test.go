package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/standing"
)

// makeGate returns a LatencyGate of ten nodes.
func makeGate(status metav1.ConditionStatus, reason, message string, change ...func(*v1alpha1.LatencyGate)) *v1alpha1.LatencyGate {
	g := &v1alpha1.LatencyGate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyGate"},
		ObjectMeta: metav1.ObjectMeta{Name: "upgrade", UID: "g", Generation: 2},
	}
	g.Status.Nodes = v1alpha1.NodeCounts{Total: 10, Verified: 10}
	g.SetCondition(v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionTrue, v1alpha1.ReasonOperational, ""))
	g.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, message))
	for _, f := range change {
		f(g)
	}
	return g
}

func TestGateStanding(t *testing.T) {
	counts := func(n v1alpha1.NodeCounts) func(*v1alpha1.LatencyGate) {
		return func(g *v1alpha1.LatencyGate) { g.Status.Nodes = n }
	}
	suspended := func(g *v1alpha1.LatencyGate) {
		g.Spec.Suspend = true
		g.SetCondition(v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionFalse, v1alpha1.ReasonSuspended, "nothing is measured"))
	}
	lines := func(g *v1alpha1.LatencyGate) {
		g.Status.NotVerified = []v1alpha1.NodeLine{{Name: "node-b", State: v1alpha1.VerificationFailed, Message: "p99 is 12 % higher"}}
	}
	const unknown = metav1.ConditionUnknown
	cases := map[string]struct {
		gate *v1alpha1.LatencyGate
		code int
		open bool
		want string
	}{
		"all nodes are verified": {makeGate(metav1.ConditionTrue, v1alpha1.ReasonAllVerified, "all 10 nodes are verified"), 0, false, "Pass: all 10 nodes are verified"},
		"a node failed": {makeGate(metav1.ConditionFalse, v1alpha1.ReasonNodesFailed, "1 of 10 nodes failed", lines), 1, false,
			"Fail: 1 of 10 nodes failed\n  node-b: Failed, p99 is 12 % higher"},
		"nodes are measured": {makeGate(unknown, v1alpha1.ReasonNotAllVerified, "2 of 10", counts(v1alpha1.NodeCounts{Total: 10, Measuring: 1, Inconclusive: 1})), 2, true, "not judged: 2 of 10"},
		"nodes wait":         {makeGate(unknown, v1alpha1.ReasonNotAllVerified, "2 of 10", counts(v1alpha1.NodeCounts{Total: 10, Unverified: 2})), 2, true, "not judged: 2 of 10"},
		"nothing could be concluded of a node": {makeGate(unknown, v1alpha1.ReasonNotAllVerified, "1 of 10", counts(v1alpha1.NodeCounts{Total: 10, Verified: 9, Inconclusive: 1})),
			2, false, "Inconclusive: 1 of 10"},
		"nodes wait for a gate that is suspended": {makeGate(unknown, v1alpha1.ReasonNotAllVerified, "2 of 10", suspended, counts(v1alpha1.NodeCounts{Total: 10, Unverified: 2})),
			2, false, "Inconclusive: 2 of 10; Suspended: nothing is measured"},
		"the last node is measured for a gate that is suspended": {makeGate(unknown, v1alpha1.ReasonNotAllVerified, "1 of 10", suspended, counts(v1alpha1.NodeCounts{Total: 10, Measuring: 1})),
			2, true, "not judged: 1 of 10; Suspended: nothing is measured"},
		"nodes of another gate":                     {makeGate(unknown, v1alpha1.ReasonNodesTaken, "node-b belongs to gate first"), 2, false, "Inconclusive: node-b belongs to gate first"},
		"nodes that may yet come":                   {makeGate(unknown, v1alpha1.ReasonNoNodes, "no node", counts(v1alpha1.NodeCounts{})), 2, true, "not judged: no node"},
		"a gate that was edited":                    {makeGate(metav1.ConditionTrue, v1alpha1.ReasonAllVerified, "all", func(g *v1alpha1.LatencyGate) { g.Generation++ }), 2, true, "not judged: the operator has not processed its present spec; is it running?"},
		"a gate that the operator has not observed": {&v1alpha1.LatencyGate{}, 2, true, "not judged: the operator has not processed its present spec; is it running?"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := standing.OfGate(c.gate)
			if code := exitCode(s.Outcome); code != c.code || s.Open != c.open || s.String() != c.want {
				t.Errorf("exit code %d, open %t, %q; want %d, %t, %q", code, s.Open, s, c.code, c.open, c.want)
			}
		})
	}
}

// A LatencyGate has no namespace.
func TestGateOfALatencyGate(t *testing.T) {
	s := newGatedCluster(t, passes, nil)
	s.gates = map[string]*v1alpha1.LatencyGate{"upgrade": makeGate(metav1.ConditionFalse, v1alpha1.ReasonNodesFailed, "1 of 10 nodes failed")}
	kubeconfig := s.serve(t)
	code, stdout, stderr := run("gate", "sweep", "latencygate/upgrade", "--wait", "--kubeconfig", kubeconfig)
	if want := "LatencyBenchmark perf/sweep: Pass: all 3 rules pass, in 12 comparisons\nLatencyGate upgrade: Fail: 1 of 10 nodes failed\n"; code != 1 || stdout != want || stderr != "" {
		t.Errorf("exit code %d, it printed %q and said %q", code, stdout, stderr)
	}
	if code, _, stderr := run("gate", "lgate/downgrade", "--kubeconfig", kubeconfig); code != 3 || !strings.Contains(stderr, "there is no LatencyGate downgrade; see `kubectl get latencygates.tailgate.dev`") {
		t.Errorf("exit code %d, it said %q", code, stderr)
	}
}

// A gate whose condition is True passes only while its nodes are as they were verified: the condition does not change while the
// operator does not run.
func TestGateComparesTheNodes(t *testing.T) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.NodeInfo.BootID = "1"
	v := &v1alpha1.LatencyVerification{
		ObjectMeta: metav1.ObjectMeta{Name: "upgrade.a"}, Spec: v1alpha1.LatencyVerificationSpec{GateName: "upgrade", NodeName: "a"},
		Status: v1alpha1.LatencyVerificationStatus{State: v1alpha1.VerificationVerified, NodeUID: "uid-a", Identity: map[string]string{"BootID": "1"}},
	}
	s := newGatedCluster(t, passes, nil)
	s.gates = map[string]*v1alpha1.LatencyGate{"upgrade": makeGate(metav1.ConditionTrue, v1alpha1.ReasonAllVerified, "all 1 nodes are verified")}
	s.verifications, s.nodes = map[string]*v1alpha1.LatencyVerification{v.Name: v}, []corev1.Node{node}
	kubeconfig := s.serve(t)
	if code, stdout, stderr := run("gate", "lgate/upgrade", "--wait", "--kubeconfig", kubeconfig); code != 0 || stdout != "LatencyGate upgrade: Pass: all 1 nodes are verified\n" {
		t.Errorf("exit code %d, it printed %q and said %q", code, stdout, stderr)
	}
	s.change(func() { s.nodes[0].Status.NodeInfo.BootID = "2" })
	const want = "LatencyGate upgrade: not judged: 1 of its nodes have changed since they were verified; the operator has not processed this yet; is it running?\n" +
		"  a: IdentityChanged, it was booted; the operator has not processed this yet; is it running?\n"
	if code, stdout, stderr := run("gate", "lgate/upgrade", "--kubeconfig", kubeconfig); code != 2 || stdout != want {
		t.Errorf("exit code %d, it printed %q and said %q", code, stdout, stderr)
	}
	s.change(func() { s.forbidden = []string{"/api/v1/nodes"} })
	for _, args := range [][]string{{"gate", "lgate/upgrade"}, {"gate", "lgate/upgrade", "--wait"}} {
		if code, stdout, stderr := run(append(args, "--kubeconfig", kubeconfig)...); code != 3 || stdout != "" || !strings.Contains(stderr, "listing the nodes of LatencyGate upgrade") {
			t.Errorf("exit code %d, it printed %q and said %q", code, stdout, stderr)
		}
	}
}
