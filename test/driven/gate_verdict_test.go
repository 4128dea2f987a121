package driven

import (
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/turns"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A gate", func() {
	It("holds back none of the nodes that it finds if it can measure none, and says so", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		for _, name := range []string{w.A, w.B} {
			w.ChangeNode(ctx, name, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			})
		}
		node := func(name string) *corev1.Node {
			n := &corev1.Node{}
			Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, n)).To(Succeed())
			return n
		}
		w.Pass(2 * time.Second) // The nodes are older than the gate, and times of creation are in whole seconds.
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionReady) }).Should(And(HavePrefix("False CannotSettle: none of the 2 nodes can be measured"), ContainSubstring("tainted with gpu")))
		free := func() {
			GinkgoHelper()
			w.Stays(ctx, w.A, "Unverified NewNode: - - -")
			w.Stays(ctx, w.B, "Unverified NewNode: - - -")
		}
		free()

		By("a node joins that it cannot measure either")
		joined := w.Namespace + "-joined"
		w.AddGateNode(ctx, joined)
		w.ChangeNode(ctx, joined, func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule})
		})
		w.Expect(ctx, joined, "Unverified NewNode"+HeldBack)
		free()

		By("the Node of a machine registers again")
		was := node(w.A)
		Expect(k8s.Delete(ctx, was)).To(Succeed())
		w.Pass(time.Minute)
		again := MakeNode(w.A)
		again.Labels, again.Spec, again.Status = was.Labels, was.Spec, was.Status
		w.AddNode(ctx, again)
		w.Stays(ctx, w.A, "Unverified NodeReplaced: - - -")

		By("it measures them when it can, and holds one back only if it does not pass")
		w.SlowNode(w.A)
		for _, name := range []string{w.A, w.B, joined} {
			w.ChangeNode(ctx, name, func(n *corev1.Node) {
				n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "gpu" })
			})
		}
		let := func() string {
			return strings.Join([]string{w.Says(ctx, w.A), w.Says(ctx, w.B), w.Says(ctx, joined)}, ", ")
		}
		eventually(let).WithTimeout(10 * time.Minute).Should(Equal("Failed Fail: False false NoSchedule, " + IsVerified + ", " + IsVerified))
		w.Upgrade(ctx, w.B, "6.2.0")
		eventually(func() string { return w.Says(ctx, w.B) }).Should(HaveSuffix(HeldBack))
	})

	It("takes no node while a round has too few samples for one of its rules", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Template.Spec.Workload.RatesPerSecond = []int32{1000}
			s.Template.Spec.Criteria.Rules[1].Metric = v1alpha1.MetricP99
		}))
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(Equal("False RuleUndecidable: " +
			"spec.template.spec.criteria.rules: rule p99 maxIncrease 10% can neither pass nor fail: a round of tcp-64-at-1000 has at most 1000 samples, and p99 needs 10000; " +
			"measure longer, at a higher rate, or a lower percentile"))
		w.Settle()
		all := &v1alpha1.LatencyVerificationList{}
		Expect(k8s.List(ctx, all)).To(Succeed())
		Expect(all.Items).To(BeEmpty())

		By("without a rate, the number of samples is known only after a round")
		Edit(ctx, g, func(g *v1alpha1.LatencyGate) {
			g.Spec.Template.Spec.Workload.RatesPerSecond, g.Spec.Template.Spec.Criteria.Rules[1].Metric = nil, v1alpha1.MetricP90
		})
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, w.B, IsVerified)
	})

	It("takes two nodes that are ready at once for two machines, although they report one system UUID", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		for _, name := range []string{w.A, w.B} {
			w.ChangeNodeStatus(ctx, name, func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "a7a0c5a5-8a5c-4cf5-9d3e-2f6d1d4f0b11" })
		}
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, w.B, IsVerified)
	})

	It("fails a node whose second peer disappears before it could show which of them is slow", func(ctx SpecContext) {
		w := NewGateWorld(ctx, "c")
		other := w.Namespace + "-c"
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace))
		for _, name := range []string{w.A, w.B, other} {
			w.Expect(ctx, name, IsVerified)
		}
		By("a slow upgrade while one of the peers is not ready")
		w.ChangeNodeStatus(ctx, other, func(n *corev1.Node) { turns.NodeCondition(n, corev1.NodeReady).Status = corev1.ConditionFalse })
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Unverified SecondPeer"+HeldBack)
		w.Pass(time.Hour)
		Expect(w.Says(ctx, w.A)).To(Equal("Unverified SecondPeer"+HeldBack), "the peer may return")
		By("the end of that peer")
		Expect(k8s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: other}})).To(Succeed())
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		v := w.Verification(ctx, w.A)
		Expect(v.Status.FailConfirmed).To(BeFalse())
		Expect(v.Status.Verified().Message).To(ContainSubstring("which of them is slow is unknown"))
	})

	It("holds back all of its nodes after an edit with which it can measure them", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		for _, name := range []string{w.A, w.B} {
			w.ChangeNode(ctx, name, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			})
		}
		w.Pass(2 * time.Second)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Stays(ctx, w.A, "Unverified NewNode: - - -")
		Edit(ctx, g, func(g *v1alpha1.LatencyGate) {
			g.Spec.Template.Spec.Pods = &v1alpha1.PodSettings{Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}}
		})
		eventually(func() string { return w.Says(ctx, w.B) }).Should(HaveSuffix(HeldBack))
	})

	It("holds a node back until it has passed, and again when it has changed", func(ctx SpecContext) { NewGateWorld(ctx).HoldsBackUntilPassed(ctx) })

	DescribeTable("on nodes with two threads on each core",
		func(ctx SpecContext, fullPCPUsOnly bool, cpus int32, says, line string) {
			w := NewGateWorld(ctx)
			w.Kubelet.Threads(fullPCPUsOnly)
			w.Start()
			w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Template.Spec.Placement.CPUs = cpus }))
			w.Expect(ctx, w.A, says)
			w.Expect(ctx, w.B, says)
			b := Get(ctx, w.Benchmark(w.A, 1))
			if line == "" {
				Expect(b.Status.Endpoints).To(BeEmpty())
				Expect(Condition(ctx, b, v1alpha1.ConditionSucceeded)).To(ContainSubstring("set placement.cpus to a multiple of the CPUs of a core"))
				return
			}
			for _, e := range b.Status.Endpoints {
				Expect(e.Proof).To(ContainElement(And(HaveField("Check", v1alpha1.ProofSMTSiblings), WithTransform(func(l v1alpha1.ProofLine) string {
					return fmt.Sprintf("%s: %s", l.State, l.Found)
				}, Equal(line)))))
			}
		},
		Entry("releases a node whose pods get whole cores, with full-pcpus-only", true, int32(0), IsVerified, "Proved: its own: core of CPUs 1,5"),
		Entry("releases a node whose pods get whole cores, without full-pcpus-only", false, int32(0), IsVerified, "Proved: its own: core of CPUs 1,5"),
		Entry("holds back a node whose pods share a core", false, int32(1), "Inconclusive Inconclusive"+HeldBack, "Failed: other containers may run there: core of CPUs 1,5"),
		Entry("holds back a node whose kubelet rejects the pods", true, int32(1), "Inconclusive BenchmarkFailed"+HeldBack, ""),
	)

	It("marks a node before it measures it, and again when a user removes the marks", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Suspend = true }))
		w.Expect(ctx, w.A, "Unverified NewNode"+HeldBack)
		Expect(w.Kubelet.Created()).To(BeEmpty())
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			delete(n.Labels, v1alpha1.NodeLabelVerified)
		})
		w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) {
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].Status = corev1.ConditionTrue
			}
		})
		w.Expect(ctx, w.A, "Unverified NewNode"+HeldBack)
		n := &corev1.Node{}
		Expect(k8s.Get(ctx, types.NamespacedName{Name: w.A}, n)).To(Succeed())
		Expect(n.Spec.Taints).To(HaveLen(2), "those of others stay")
		Expect(n.Status.Conditions).To(HaveLen(3), "Ready, LatencyVerified and LatencyRegressed")
	})

	It("holds back a node that failed until it changes, a user requests a measurement, or a user accepts a result", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		manager := w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, w.B, IsVerified)
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(MatchRegexp(`with peer %s, and there is no other to show which of them is slow: p90 .*10.\d+µs`, w.B))
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("False NodesFailed: 1 of 2 nodes failed: " + w.A))

		By("another manager")
		manager.Stop()
		w.Start()
		w.Stays(ctx, w.A, "Failed Fail"+HeldBack)
		By("acceptances that cannot be")
		w.AskAccept(ctx, w.A, w.Benchmark(w.A, 1).Name)
		eventually(func() []string { return w.refusals(ctx, w.A) }).Should(ContainElement(ContainSubstring("before it changed")))
		for _, name := range []string{"perf/up", "100%", "nonsense!"} {
			w.AskAccept(ctx, w.A, name)
			eventually(func() *v1alpha1.AcceptRefusal { return w.Verification(ctx, w.A).Status.AcceptRefused }).Should(HaveValue(And(
				HaveField("Benchmark", name), HaveField("Message", ContainSubstring("not among")))))
			eventually(func() *v1alpha1.AcceptRequest { accept, _ := w.Verification(ctx, w.A).Requests(); return accept }).Should(BeNil())
		}
		eventually(func() []string { return w.refusals(ctx, w.A) }).Should(ContainElement(ContainSubstring("not among")))
		Expect(w.Says(ctx, w.A)).To(Equal("Failed Fail" + HeldBack))

		By("a request, of which the cause is not cured")
		w.AskVerify(ctx, w.A)
		eventually(func() []string { return w.History(ctx, w.A) }).Should(Equal([]string{"-3 Fail Fail", "-2 Fail Fail", "-1 Pass Passed"}))
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		By("an acceptance by hand")
		w.AskAccept(ctx, w.A, w.Benchmark(w.A, 3).Name)
		w.Expect(ctx, w.A, "Verified AcceptedByHand: True true -")
		Expect(w.Accepted(ctx, w.A)).To(Equal("-3 since -3"))
		eventually(func() *v1alpha1.AcceptRequest { accept, _ := w.Verification(ctx, w.A).Requests(); return accept }).Should(BeNil())

		By("a request when the cause is cured, in the new epoch")
		w.Kubelet.Agents(nil)
		w.AskVerify(ctx, w.A)
		eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal("-4 since -3"))
		w.Expect(ctx, w.A, IsVerified)
		eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(ConsistOf("-2", "-3", "-4"), "the history is three long")
		By("looks at a benchmark whose baseline the history has deleted: its verdict stays")
		w.Patiently(ctx, w.Benchmark(w.A, 2), func() any { return Condition(ctx, w.Benchmark(w.A, 2), v1alpha1.ConditionPassed) }, HavePrefix("False Fail"))
	})

	It("holds back a node with an Inconclusive verdict, and does not measure it again", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Template.Spec.Criteria.Rules = []v1alpha1.Rule{Undecided}
			s.MaxUnverified = new(int32(1))
		}))
		w.Expect(ctx, w.A, "Inconclusive Inconclusive"+HeldBack)
		Expect(w.History(ctx, w.A)).To(Equal([]string{"-1 Inconclusive Inconclusive"}))
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring("p99 needs 10000 to be judged"))
		w.Expect(ctx, w.B, "Inconclusive Inconclusive"+HeldBack)
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("False TooManyUnverified: 2 of 2"))
		w.Stays(ctx, w.A, "Inconclusive Inconclusive"+HeldBack)
	})

	It("asks a user to accept a baseline when it has no rule for the first result", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Template.Spec.Criteria.Rules = []v1alpha1.Rule{Within("10%")} }))
		w.Expect(ctx, w.A, "Inconclusive NothingToCompare"+HeldBack)
		name := w.Benchmark(w.A, 1).Name
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring("kubectl tailgate accept %s %s", v1alpha1.VerificationName(w.Namespace, w.A), name))
		w.AskAccept(ctx, w.A, name)
		w.Expect(ctx, w.A, "Verified AcceptedByHand: True true -")
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, IsVerified)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-2 since -1"))
	})

	It("does not let small losses add up", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, IsVerified)
		// 3 % more each time is within the tolerance of 10 % and what two boots may differ; 6 % in all is not, although it is within the
		// tolerance, and further from it than 3 % is from the last accepted result.
		w.SamplesFrom(func(b *v1alpha1.LatencyBenchmark) int64 {
			switch b.Name {
			case w.Benchmark(w.A, 2).Name:
				return 10_300
			case w.Benchmark(w.A, 3).Name:
				return 10_800
			}
			return 10_000
		})
		w.Upgrade(ctx, w.A, "6.2.0")
		eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal("-2 since -1"))
		w.Upgrade(ctx, w.A, "6.3.0")
		w.Expect(ctx, w.A, "Inconclusive Inconclusive"+HeldBack)
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring("of 2 boots, which differ by SD"))
		Expect(w.Accepted(ctx, w.A)).To(Equal("-2 since -1"))
	})

	It("distinguishes a slow node from its peer when all are new", func(ctx SpecContext) {
		w := NewGateWorld(ctx, "c")
		c := w.Namespace + "-c"
		w.SlowNode(w.B)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace))
		// Node a is measured with b, the slow node, first, and then with c.
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, c, IsVerified)
		w.Expect(ctx, w.B, "Failed Fail"+HeldBack)
		Expect(w.History(ctx, w.A)).To(Equal([]string{"-2 Pass Passed", "-1 Fail SecondPeer"}))
		Expect(w.Verification(ctx, w.A).Status.Accepted.Peer).To(Equal(c))
		Expect(w.History(ctx, w.B)).To(Equal([]string{"-2 Fail Fail", "-1 Fail SecondPeer"}))
	})

	It("is the baseline of any benchmark of the node, and neither a later acceptance nor a deletion changes the verdict", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(6).On(w.A, w.B).Rule(Within("10%")).AgainstGate(w.Namespace))
		By("no result yet, or one")
		w.Expect(ctx, w.A, IsVerified)
		ExpectPassed(ctx, b, `^True Pass: .*over 6\+12 rounds`)
		first := Get(ctx, w.Benchmark(w.A, 1))
		baseline := &v1alpha1.VerdictBaseline{Gate: w.Namespace, Namespace: w.Namespace, Benchmark: first.Name, UID: string(first.UID)}
		settled := And(HaveField("Status.Verdict.Baseline", Equal(baseline)), HaveField("Status.Verdict.Outcome", v1alpha1.VerdictPass))
		Expect(Get(ctx, b)).To(settled)
		By("another acceptance")
		w.Upgrade(ctx, w.A, "6.2.0")
		eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal("-2 since -1"))
		w.Patiently(ctx, b, func() any { return Get(ctx, b) }, settled)
		By("the deletion of the baseline, and another benchmark of its name")
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		w.Patiently(ctx, b, func() any { return Get(ctx, b) }, settled)
		w.Create(ctx, MakeBenchmark(w.Namespace, first.Name).Rounds(6).On(w.A, w.B).Suspended())
		w.Patiently(ctx, b, func() any { return Get(ctx, b) }, settled)
		By("other criteria, which need the baseline")
		SetCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Rules = []v1alpha1.Rule{Within("20%")} })
		ExpectPassed(ctx, b, "^Unknown BaselineMissing: .*"+first.Name+", does not exist")
		By("a node of which nothing was accepted, and a gate that there is not")
		reverse := w.Create(ctx, MakeBenchmark(w.Namespace, "y").Rounds(6).On(w.B, w.A).Rule(Within("10%")).AgainstGate(w.Namespace))
		ExpectPassed(ctx, reverse, "^Unknown BaselineMissing: .*LatencyGate "+w.Namespace+", has no accepted result of the client's node")
	})

	It("names the reason why it cannot work", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Schedule = "0 0 31 2 *" }))
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False ScheduleInvalid: spec.schedule"))
		lost := MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Namespace, s.NodeSelector.MatchLabels = "there-is-none", map[string]string{GateLabel: "lost"}
		})
		lost.Name = w.Namespace + "-lost"
		for _, name := range []string{"x", "y"} {
			n := MakeNode(w.Namespace + "-" + name)
			n.Labels[GateLabel] = "lost"
			w.AddNode(ctx, n)
		}
		refused := w.Gate(ctx, lost)
		eventually(func() string { return GateSays(ctx, refused, v1alpha1.ConditionOperational) }).Should(MatchRegexp(`^False BenchmarkRefused: \d nodes: .*"there-is-none" not found`))
	})
})
