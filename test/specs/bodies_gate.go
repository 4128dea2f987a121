package specs

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Bodies of specs of gates that both suites have. The pods of the place run without the spec.

// HoldsBackUntilPassed follows a node from its first measurement through an upgrade.
func (p *Place) HoldsBackUntilPassed(ctx context.Context) {
	p.Manage()
	g := p.Gate(ctx, MakeGate(p.Namespace))
	p.Expect(ctx, p.A, IsVerified)
	p.Expect(ctx, p.B, IsVerified)
	Expect(p.Accepted(ctx, p.A)).To(Equal("-1 since -1"))
	ExpectGate(ctx, g, v1alpha1.ConditionPassed, Equal("True AllVerified: all 2 nodes are verified"))
	first := Get(ctx, p.Benchmark(p.A, 1))
	Expect(first.Spec.Criteria.Rules).To(HaveLen(1), "there was nothing to compare with")
	Expect(*first.Status.Pair).To(Equal(v1alpha1.Pair{ClientNode: p.A, ServerNode: p.B}))

	By("an upgrade of a node")
	p.Upgrade(ctx, p.A, "6.2.0")
	suite.Await(func() string { return p.Says(ctx, p.A) }, HaveSuffix(HeldBack))
	ExpectGate(ctx, g, v1alpha1.ConditionPassed, HavePrefix("Unknown NotAllVerified: 1 of 2 nodes are not verified: "+p.A))
	p.Expect(ctx, p.A, IsVerified)
	Expect(p.Accepted(ctx, p.A)).To(Equal("-2 since -1"))
	second := Get(ctx, p.Benchmark(p.A, 2))
	Expect(second.Spec.Criteria.Rules).To(HaveLen(2))
	Expect(second.Spec.Rounds).To(Equal(first.Spec.Rounds/2), "the first session of a reference has twice as many rounds")
	Expect(second.Spec.Criteria.Baseline.Gate.Name).To(Equal(g.Name))
	Expect(second.Status.Verdict.Baseline.Benchmark).To(Equal(first.Name))
	Expect(second.Spec.Criteria.IgnoreDifferences).To(BeEmpty(), "the peer is the same")
	status := p.Verification(ctx, p.A).Status
	Expect(status.Verified().Reason).To(Equal(v1alpha1.ReasonProvisional))
	Expect(status.Verified().Message).To(ContainSubstring("its reference is one boot"))
	Expect(second.Status.Verdict.Rules[1].Message).To(ContainSubstring("of 1 boots, which differ by SD"))
	Expect(status.Reference).To(HaveLen(2))
	Expect(status.Reference[1].Rounds).To(Equal(second.Status.Session.Rounds), "the gate keeps what the status of the benchmark has")
	Expect(*second.Status.Session.Reference).To(And(HaveField("Description", "compared with 1 accepted boots with peer "+p.B), HaveField("SamePeer", true), HaveField("Provisional", ContainSubstring("one boot"))))
	Expect(first.Status.Session.Reference).To(BeNil())
	for i, kernel := range []string{"6.1.0", "6.2.0"} {
		Expect(status.Recent[i].Identity).To(And(HaveKeyWithValue("Kernel", kernel), Not(HaveKey("BootID"))))
		Expect(status.Recent[i].Accepted).To(BeTrue())
	}
	suite.Await(func() int32 { return Get(ctx, g).Status.Spread[0].Differences }, BeEquivalentTo(1))
	Expect(status.Identity).To(HaveKeyWithValue("Kernel", "6.2.0"))
	Expect(status.Accepted.Identity).To(Equal(status.Identity))
	Expect(p.Benchmarks(ctx, p.B)).To(ConsistOf("-1"), "the other node was left alone")

	By("looks at what has not changed: the controllers write nothing")
	version := p.Verification(ctx, p.A).ResourceVersion
	p.Stays(ctx, p.A, IsVerified)
	Expect(p.Verification(ctx, p.A).ResourceVersion).To(Equal(version))
}

// KeepsBudget checks the budget over the hold pods of a gate of three nodes, A, B and C. least returns what the budget says at last, and
// reads it into budget.
func (p *Place) KeepsBudget(ctx context.Context) (budget *policyv1.PodDisruptionBudget, least func() string) {
	p.Manage()
	g := p.Gate(ctx, MakeGate(p.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
		s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{Budget: &v1alpha1.GateBudget{}}
	}))
	budget = &policyv1.PodDisruptionBudget{}
	name := client.ObjectKey{Namespace: p.Namespace, Name: "tailgate-hold-" + g.Name}
	least = func() string {
		if err := suite.Client.Get(ctx, name, budget); err != nil {
			return string(apierrors.ReasonForError(err))
		}
		return fmt.Sprintf("%s %s", budget.Spec.MinAvailable, *budget.Spec.UnhealthyPodEvictionPolicy)
	}
	By("one of three nodes may be drained")
	suite.Await(least, Equal("2 AlwaysAllow"))
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	Expect(err).NotTo(HaveOccurred())
	suite.Await(func() ([]corev1.Pod, error) {
		held := &corev1.PodList{}
		err := suite.Client.List(ctx, held, client.InNamespace(p.Namespace), client.MatchingLabelsSelector{Selector: selector})
		return held.Items, err
	}, HaveLen(3))
	By("a node leaves")
	p.ChangeNode(ctx, p.Namespace+"-c", func(n *corev1.Node) { delete(n.Labels, GateLabel) })
	suite.Await(least, Equal("1 AlwaysAllow"))

	change := func(budget *v1alpha1.GateBudget) {
		GinkgoHelper()
		Edit(ctx, g, func(g *v1alpha1.LatencyGate) { g.Spec.Enforcement.HoldPod.Budget = budget })
	}
	By("the option is taken back")
	change(nil)
	suite.Await(least, Equal("NotFound"))
	By("another owner has a budget of this name")
	other := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	other.Spec.MinAvailable, other.Spec.UnhealthyPodEvictionPolicy = new(intstr.FromInt32(7)), new(policyv1.IfHealthyBudget)
	Expect(suite.Client.Create(ctx, other)).To(Succeed())
	change(&v1alpha1.GateBudget{MaxUnavailable: 2})
	ExpectGate(ctx, g, v1alpha1.ConditionOperational, ContainSubstring("exists and does not belong to this gate; delete it"))
	Expect(least()).To(Equal("7 IfHealthyBudget"))
	Expect(suite.Client.Delete(ctx, other)).To(Succeed())
	p.within(time.Minute, least, Equal("0 AlwaysAllow"))
	return budget, least
}

// ForgetsNode deletes a node. released waits until spec.releaseAfter has passed and there is no verification of the node any more.
func (p *Place) ForgetsNode(ctx context.Context, released func(verification func() types.UID)) {
	p.Manage()
	g := p.Gate(ctx, MakeGate(p.Namespace))
	p.Expect(ctx, p.A, IsVerified)
	p.Expect(ctx, p.B, IsVerified)
	uid := p.Verification(ctx, p.A).UID
	p.SlowNode(p.A)
	Expect(suite.Client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.A}})).To(Succeed())
	suite.Await(func() v1alpha1.VerificationState { return p.Verification(ctx, p.A).Status.State }, Equal(v1alpha1.VerificationUnverified))
	ExpectGate(ctx, g, v1alpha1.ConditionPassed, Equal("True AllVerified: all 1 nodes are verified"))
	released(func() types.UID { return p.Verification(ctx, p.A).UID })
	p.AddGateNode(ctx, p.A)
	p.Expect(ctx, p.A, "Failed Fail"+HeldBack)
	Expect(p.Verification(ctx, p.A).UID).NotTo(Equal(uid))
	Expect(p.Accepted(ctx, p.A)).To(Equal("none since none"))
}

// SaysWhatIsDropped upgrades a node while drop removes the gate's taint from each write of it, and then deletes the gate while refuse
// refuses to remove the taint. Both return a function that ends them.
func (p *Place) SaysWhatIsDropped(ctx context.Context, drop, refuse func() (end func())) {
	p.Manage()
	g := p.Gate(ctx, MakeGate(p.Namespace).Alone(p.A, p.B))
	p.Expect(ctx, p.A, IsVerified)
	drops := drop()
	p.SlowNode(p.A)
	p.Upgrade(ctx, p.A, "6.2.0")
	ExpectGate(ctx, g, v1alpha1.ConditionOperational, HavePrefix("False NodeWriteDropped: 1 nodes: taint of node "+p.A))
	Expect(p.Says(ctx, p.A)).To(Equal("Unverified IdentityChanged: False false -"))
	drops()
	p.Expect(ctx, p.A, "Failed Fail"+HeldBack)
	By("the deletion of a gate that may not clean up")
	refuses := refuse()
	Expect(suite.Client.Delete(ctx, g)).To(Succeed())
	ExpectGate(ctx, g, v1alpha1.ConditionOperational, And(HavePrefix("False NodeRefused: 1 nodes cannot be released: "), ContainSubstring("the node pool manages this")))
	refuses()
	suite.Await(IsGone(ctx, g), BeTrue())
	Expect(p.Says(ctx, p.A)).To(HaveSuffix(": - - -"))
}

// HoldsBackWithout changes a node while refuse refuses a mark of it, such as "Taint", and checks that the other marks hold the node back
// with says, and all of them a moment after the end of the refusal. read checks meanwhile what readers of the gate see.
func (p *Place) HoldsBackWithout(ctx context.Context, mark, says string, refuse func() (end func()), read func(*v1alpha1.LatencyGate)) {
	p.Manage()
	g := p.Gate(ctx, MakeGate(p.Namespace).Alone(p.A, p.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
	p.Expect(ctx, p.A, IsVerified)
	end := refuse()
	p.SlowNode(p.A)
	// Not the kernel and the boot, which a policy on the status may concern: a label of the identity.
	p.ChangeNodeStatus(ctx, p.A, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" })
	suite.Await(func() string { return p.Says(ctx, p.A) }, HaveSuffix(says))
	ExpectGate(ctx, g, v1alpha1.ConditionOperational, And(HavePrefix("False NodeRefused: 1 nodes: "), ContainSubstring("the node pool manages this")))
	read(g)
	suite.Await(func() []string {
		list := &eventsv1.EventList{}
		Expect(suite.Client.List(ctx, list)).To(Succeed())
		var all []string
		for _, e := range list.Items {
			if e.Regarding.Kind == "Node" && e.Regarding.Name == p.A {
				all = append(all, e.Type+" "+e.Reason+" "+e.Action+": "+e.Note)
			}
		}
		return all
	}, ContainElement(And(HavePrefix("Warning NodeRefused Mark"+mark), ContainSubstring("the node pool manages this"))))
	pods := &corev1.PodList{}
	suite.Await(func() bool {
		Expect(suite.Client.List(ctx, pods, client.InNamespace(p.Namespace), client.MatchingLabels{v1alpha1.LabelHold: "true"})).To(Succeed())
		return len(pods.Items) == 1 && pods.Items[0].Labels[v1alpha1.NodeLabelVerified] == "false"
	}, BeTrue(), "the hold pod holds the node back")
	By("the end of the refusal, at most a minute later")
	letIn := p.LetIn(ctx, p.A)
	end()
	took := p.within(100*time.Second, func() string { return p.Says(ctx, p.A) }, HaveSuffix(HeldBack))
	AddReportEntry(fmt.Sprintf("%s: held back by all marks %s after the end of the refusal", mark, took.Round(time.Second)))
	p.Expect(ctx, p.A, "Failed Fail"+HeldBack)
	ExpectGate(ctx, g, v1alpha1.ConditionOperational, HavePrefix("True Operational"))
	Expect(letIn()).To(BeEmpty())
}
