package driven

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// writes matches a write of a verb to a matching object.
func writes(verb string, of func(client.Object) bool) func(Write) bool {
	return func(w Write) bool { return w.Verb == verb && of(w.Object) }
}

// inState matches the status write that sets a node's state.
func inState(state v1alpha1.VerificationState) func(Write) bool {
	return func(w Write) bool {
		v, ok := Is[*v1alpha1.LatencyVerification](w, "status")
		return ok && v.Status.State == state
	}
}

// onNodeAfter matches the first write of a Node's status after the one that sets a node's state.
func onNodeAfter(state v1alpha1.VerificationState) func(Write) bool {
	reached := false
	return func(w Write) bool {
		reached = reached || inState(state)(w)
		_, ofNode := Is[*corev1.Node](w, "status")
		return reached && ofNode
	}
}

var _ = Describe("A gate, sabotaged,", func() {
	isNode := func(o client.Object) bool { _, ok := o.(*corev1.Node); return ok }
	isBenchmark := func(o client.Object) bool { _, ok := o.(*v1alpha1.LatencyBenchmark); return ok }
	isGate := func(o client.Object) bool { _, ok := o.(*v1alpha1.LatencyGate); return ok }
	isVerification := func(o client.Object) bool { _, ok := o.(*v1alpha1.LatencyVerification); return ok }

	DescribeTable("verifies all nodes after the next manager starts, and none before, when the first one died",
		func(ctx SpecContext, at func(Write) bool) {
			w := NewGateWorld(ctx)
			first := w.Start(dies(at))
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			eventually(first.Dead).Should(BeTrue())
			first.Stop()
			says := w.Says(ctx, w.A)
			Expect(strings.Contains(says, ": True") && !strings.HasPrefix(says, "Verified")).To(BeFalse(), says)
			Expect(strings.HasPrefix(says, "Verified")).To(Equal(len(w.History(ctx, w.A)) == 1), "nothing is verified that was not measured")
			w.Start()
			w.Expect(ctx, w.A, IsVerified)
			Expect(w.History(ctx, w.A)).To(HaveLen(1))
			eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(HaveLen(1), "the benchmark of which no status knew is deleted")
		},
		Entry("adding the finalizer", writes("patch", isGate)),
		Entry("creating a verification", writes("create", isVerification)),
		Entry("noting that a node is unverified", inState(v1alpha1.VerificationUnverified)),
		Entry("labelling and tainting a node", writes("patch", isNode)),
		Entry("setting a node's condition", writes("status", isNode)),
		Entry("creating a benchmark", writes("create", isBenchmark)),
		Entry("noting that a node is measured", inState(v1alpha1.VerificationMeasuring)),
		Entry("storing a result", stores),
		Entry("noting that a node is verified", inState(v1alpha1.VerificationVerified)),
		Entry("saying so on the node", onNodeAfter(v1alpha1.VerificationVerified)),
		Entry("writing its summary", writes("status", isGate)),
	)

	DescribeTable("never lets a slow node in, when its manager dies",
		func(ctx SpecContext, at func(Write) bool) {
			w := NewGateWorld(ctx)
			armed := false
			first := w.Start(dies(func(write Write) bool { return armed && at(write) }))
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, IsVerified)
			w.SlowNode(w.A)
			letIn := w.LetIn(ctx, w.A)
			armed = true
			w.Upgrade(ctx, w.A, "6.2.0")
			eventually(first.Dead).Should(BeTrue())
			first.Stop()
			w.Start()
			w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
			Expect(letIn()).To(BeEmpty())
			Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		},
		Entry("noting that it has changed", inState(v1alpha1.VerificationUnverified)),
		Entry("labelling and tainting it", writes("patch", isNode)),
		Entry("setting its condition", writes("status", isNode)),
		Entry("creating its benchmark", writes("create", isBenchmark)),
		Entry("noting that it is measured", inState(v1alpha1.VerificationMeasuring)),
		Entry("storing a result", stores),
		Entry("judging", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Verdict != nil })),
		Entry("noting that it failed", inState(v1alpha1.VerificationFailed)),
		Entry("saying so on the node", onNodeAfter(v1alpha1.VerificationFailed)),
	)

	// measuring waits until a node's benchmark measures. Pause keeps it in this state.
	measuring := func(ctx SpecContext, w *World, node string) {
		GinkgoHelper()
		eventually(func() string { return w.Says(ctx, node) }).Should(HavePrefix("Measuring"))
	}
	upgradeAndMeasure := func(ctx SpecContext, w *World) (goOn func()) {
		GinkgoHelper()
		wait, goOn := w.Pause(w.Benchmark(w.A, 2).Name + "-r1")
		w.Upgrade(ctx, w.A, "6.2.0")
		wait()
		measuring(ctx, w, w.A)
		return goOn
	}

	It("measures again, at most three times, when a user deletes or edits its benchmark", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, IsVerified)
		w.SlowNode(w.A)
		goOn := upgradeAndMeasure(ctx, w)
		By("a deletion")
		Expect(k8s.Delete(ctx, w.Benchmark(w.A, 2))).To(Succeed())
		goOn()
		for _, number := range []int{3, 4} {
			w.Pause(w.Benchmark(w.A, number).Name + "-r1")
		}
		By("rules that are loosened, so that it passes")
		eventually(func() error {
			return k8s.Get(ctx, client.ObjectKeyFromObject(w.Benchmark(w.A, 3)), &v1alpha1.LatencyBenchmark{})
		}).Should(Succeed())
		SetCriteria(ctx, w.Benchmark(w.A, 3), func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{Under("1s")}}
		})
		By("a deletion again")
		eventually(func() error {
			return k8s.Get(ctx, client.ObjectKeyFromObject(w.Benchmark(w.A, 4)), &v1alpha1.LatencyBenchmark{})
		}).Should(Succeed())
		measuring(ctx, w, w.A)
		Expect(w.Verification(ctx, w.A).Status.Discarded).To(BeEquivalentTo(2))
		Expect(k8s.Delete(ctx, w.Benchmark(w.A, 4))).To(Succeed())
		w.Expect(ctx, w.A, "Inconclusive BenchmarkDeleted"+HeldBack)
		Expect(w.History(ctx, w.A)).To(Equal([]string{"-1 Pass Passed"}))
		eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(ConsistOf("-1"))
	})

	It("neither waits for nor uses a benchmark of a user with the name of its next one", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.SlowNode(w.A)
		forged := MakeBenchmark(w.Namespace, w.Benchmark(w.A, 1).Name).Rounds(6).Rule(Under("1s")).Free()
		w.Create(ctx, forged)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Template.Spec.Criteria.Rules = []v1alpha1.Rule{Under("8us")} }))
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(w.History(ctx, w.A)).To(Equal([]string{"-2 Fail Fail"}))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(forged.Obj()), &v1alpha1.LatencyBenchmark{})).To(Succeed(), "it is not the gate's to delete")
	})

	It("compares with nothing when a user deletes or edits an accepted result", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, IsVerified)
		accepted := Get(ctx, w.Benchmark(w.A, 1))
		stored := ConfigMaps(ctx, accepted)
		Expect(k8s.Delete(ctx, &stored[0])).To(Succeed())
		Expect(k8s.Create(ctx, remade(stored[0], flipBit))).To(Succeed())
		eventually(func() string { return w.Verification(ctx, w.A).Status.BaselineTrouble }).Should(ContainSubstring("stored results of LatencyBenchmark " + accepted.Name))
		Expect(w.Says(ctx, w.A)).To(Equal(IsVerified), "for what it was verified for")
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Inconclusive BaselineResultsMissing"+HeldBack)

		By("a benchmark that is deleted")
		Expect(k8s.Delete(ctx, accepted)).To(Succeed())
		eventually(func() string { return w.Verification(ctx, w.A).Status.BaselineTrouble }).Should(ContainSubstring("was deleted"))
		w.AskVerify(ctx, w.A)
		w.Expect(ctx, w.A, "Inconclusive BaselineMissing"+HeldBack)
		By("an acceptance by hand")
		w.AskAccept(ctx, w.A, w.Benchmark(w.A, 3).Name)
		w.Expect(ctx, w.A, "Verified AcceptedByHand: True true -")
		eventually(func() string { return w.Verification(ctx, w.A).Status.BaselineTrouble }).Should(BeEmpty())
	})

	DescribeTable("never lets a slow node in when a stored result is, during the measurement,",
		func(ctx SpecContext, says string, sabotage func(ctx SpecContext, stored, fast corev1.ConfigMap)) {
			w := NewGateWorld(ctx)
			w.Start()
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, IsVerified)
			fast := ConfigMaps(ctx, w.Benchmark(w.A, 1))[0]
			w.SlowNode(w.A)
			letIn := w.LetIn(ctx, w.A)
			wait, goOn := w.Pause(w.Benchmark(w.A, 2).Name + "-r3")
			w.Upgrade(ctx, w.A, "6.2.0")
			wait()
			stored := ConfigMaps(ctx, w.Benchmark(w.A, 2))
			Expect(stored).To(HaveLen(2))
			sabotage(ctx, stored[0], fast)
			goOn()
			w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
			Expect(letIn()).To(BeEmpty())
			Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		},
		Entry("deleted, and so measured again", "Failed Fail", func(ctx SpecContext, stored, _ corev1.ConfigMap) {
			Expect(k8s.Delete(ctx, &stored)).To(Succeed())
		}),
		Entry("edited, and so measured again", "Failed Fail", func(ctx SpecContext, stored, _ corev1.ConfigMap) {
			Expect(k8s.Delete(ctx, &stored)).To(Succeed())
			Expect(k8s.Create(ctx, remade(stored, flipBit))).To(Succeed())
		}),
		Entry("replaced by one of the same run, faster and whole, and so measured again", "Failed Fail", func(ctx SpecContext, stored, fast corev1.ConfigMap) {
			Expect(k8s.Delete(ctx, &stored)).To(Succeed())
			Expect(k8s.Create(ctx, remade(stored, func(cm *corev1.ConfigMap) {
				cm.BinaryData[result.KeyClient] = ofRun(fast.BinaryData[result.KeyClient], stored.Labels[v1alpha1.LabelRun])
				cm.BinaryData[result.KeyServer] = ofRun(fast.BinaryData[result.KeyServer], stored.Labels[v1alpha1.LabelRun])
			}))).To(Succeed())
		}),
	)

	It("compares with nothing when a user deletes an accepted result and creates its benchmark again", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, IsVerified)
		w.SlowNode(w.A)
		again := Get(ctx, w.Benchmark(w.A, 1))
		Expect(k8s.Delete(ctx, again)).To(Succeed())
		// A benchmark as slow as the node is now, with all copyable fields of the gate's benchmark.
		again.ResourceVersion, again.UID, again.Status = "", "", v1alpha1.LatencyBenchmarkStatus{}
		again.Spec.Criteria.Rules = []v1alpha1.Rule{Under("1s")}
		Expect(k8s.Create(ctx, again.DeepCopy())).To(Succeed())
		eventually(func() bool {
			return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(again), &v1alpha1.LatencyBenchmark{}))
		}).Should(BeTrue(), "the gate deletes what belongs to it and is not needed")
		w.Settle()
		Expect(PodsLeft(ctx, again)).To(BeEmpty())
		again.OwnerReferences = nil
		Expect(k8s.Create(ctx, again)).To(Succeed())
		ExpectPassed(ctx, again, "^True Pass")
		trouble := func() string { return w.Verification(ctx, w.A).Status.BaselineTrouble }
		// A benchmark of a user does not make the gate look again.
		eventually(trouble).Should(ContainSubstring("was deleted"))
		// Only the absolute rule, which this gate no longer has, would detect that the node is slow.
		Edit(ctx, g, func(g *v1alpha1.LatencyGate) { g.Spec.Template.Spec.Criteria.Rules = []v1alpha1.Rule{Within("10%")} })
		eventually(trouble).Should(ContainSubstring("deleted and created again"))
		letIn := w.LetIn(ctx, w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Inconclusive BaselineMissing"+HeldBack)
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring(again.Name + ", does not exist: another one has its name"))
		Expect(letIn()).To(BeEmpty())
	})

	It("judges no percentile that has too few samples", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		letIn := w.LetIn(ctx, w.A)
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Template.Spec.Criteria.Rules = []v1alpha1.Rule{{Metric: v1alpha1.MetricP999, Max: v1alpha1.Limit{Text: "1s"}}}
		}))
		w.Expect(ctx, w.A, "Inconclusive Inconclusive"+HeldBack)
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring("samples"))
		Expect(letIn()).To(BeEmpty())
	})

	It("verifies no node with a slow peer when there is no other peer", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.SlowNode(w.B)
		w.Start()
		letIn := []func() []string{w.LetIn(ctx, w.A), w.LetIn(ctx, w.B)}
		g := w.Gate(ctx, MakeGate(w.Namespace))
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("False NodesFailed: 1 of 2 nodes failed"))
		// The node that was measured first has failed, so the other has no peer.
		failed, waits := w.A, w.B
		if w.Verification(ctx, w.B).Status.State == v1alpha1.VerificationFailed {
			failed, waits = waits, failed
		}
		w.Expect(ctx, failed, "Failed Fail"+HeldBack)
		w.Expect(ctx, waits, "Unverified NewNode"+HeldBack)
		w.Stays(ctx, failed, "Failed Fail"+HeldBack)
		w.Stays(ctx, waits, "Unverified NewNode"+HeldBack)
		for i := range letIn {
			Expect(letIn[i]()).To(BeEmpty())
		}
	})

	It("holds back a node that was deleted and created again while it was measured", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, IsVerified)
		wait, goOn := w.Pause(w.Benchmark(w.A, 2).Name + "-r5")
		w.Upgrade(ctx, w.A, "6.2.0")
		wait()
		Expect(k8s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.A}})).To(Succeed())
		w.SlowNode(w.A)
		w.AddGateNode(ctx, w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		letIn := w.LetIn(ctx, w.A)
		goOn()
		old := w.Benchmark(w.A, 2)
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, old))).To(Succeed())
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(letIn()).To(BeEmpty())
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
	})

	DescribeTable("never lets a slow node in, when the clock jumps",
		func(ctx SpecContext, jump time.Duration) {
			w := NewGateWorld(ctx)
			w.Start()
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Schedule = "@daily" }))
			w.Expect(ctx, w.A, IsVerified)
			w.SlowNode(w.A)
			letIn := w.LetIn(ctx, w.A)
			wait, goOn := w.Pause(w.Benchmark(w.A, 2).Name + "-r3")
			w.Upgrade(ctx, w.A, "6.2.0")
			wait()
			w.Jump(jump)
			Wake(ctx, w.Benchmark(w.A, 2))
			if jump > 0 {
				// The attempt appears to have taken a year and is repeated. The next attempt is measured.
				eventually(func() bool {
					active := Get(ctx, w.Benchmark(w.A, 2)).Status.Active
					return active != nil && active.Outcome != nil
				}).Should(BeTrue())
			}
			goOn()
			w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
			By("the clock set right")
			w.Jump(-jump)
			w.AskVerify(ctx, w.A)
			eventually(func() []string { return w.History(ctx, w.A) }).Should(HaveLen(3))
			w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
			Expect(letIn()).To(BeEmpty())
		},
		Entry("a year forwards", 365*24*time.Hour),
		Entry("a year backwards", -365*24*time.Hour),
	)

	It("does not compare firmware variants", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		firmware := func(variant string) func(*result.Document) {
			return func(d *result.Document) { d.Evidence.Facts["nic.firmware-variant"] = variant }
		}
		w.Kubelet.Agents(firmware("full-feature"))
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Template.Spec.Criteria.IgnoreDifferences = []string{"kernel.*"} }))
		w.Expect(ctx, w.A, IsVerified)
		w.Kubelet.Agents(firmware("ultra-low-latency"))
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Inconclusive Inconclusive"+HeldBack)
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring(`nic.firmware-variant "full-feature", then "ultra-low-latency"`))
	})

	It("measures a node again that changes while it is measured", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, IsVerified)
		goOn := upgradeAndMeasure(ctx, w)
		w.Upgrade(ctx, w.A, "6.3.0")
		goOn()
		eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal("-3 since -1"))
		w.Expect(ctx, w.A, IsVerified)
		Expect(w.Verification(ctx, w.A).Status.Accepted.Identity).To(HaveKeyWithValue("Kernel", "6.3.0"))
		eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(ConsistOf("-1", "-3"))
	})

	DescribeTable("holds nodes back while the API server does not answer, and continues afterwards:",
		func(ctx SpecContext, outage time.Duration) {
			w := NewGateWorld(ctx)
			w.Start()
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, IsVerified)
			goOn := upgradeAndMeasure(ctx, w)
			w.Outage = true
			goOn()
			letIn := w.LetIn(ctx, w.A)
			w.Upgrade(ctx, w.A, "6.3.0")
			w.Pass(outage)
			Expect(letIn()).To(BeEmpty())
			Expect(w.Says(ctx, w.A)).To(HaveSuffix(HeldBack))
			w.Outage = false
			began := w.Clock.Now()
			eventually(func() string { return w.Accepted(ctx, w.A) }).WithTimeout(3*time.Minute + 2*outage).Should(Equal("-3 since -1"))
			w.Expect(ctx, w.A, IsVerified)
			AddReportEntry(fmt.Sprintf("verified %s after an outage of %s", w.Clock.Now().Sub(began).Round(time.Second), outage))
			Expect(w.Verification(ctx, w.A).Status.Accepted.Identity).To(HaveKeyWithValue("Kernel", "6.3.0"))
		},
		Entry("three seconds", 3*time.Second),
		Entry("an hour", time.Hour),
	)

	It("waits for a node that is not ready, and continues when it is", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		ready := func(status corev1.ConditionStatus) {
			w.ChangeNodeStatus(ctx, w.B, func(n *corev1.Node) {
				for i := range n.Status.Conditions {
					if n.Status.Conditions[i].Type == corev1.NodeReady {
						n.Status.Conditions[i].Status = status
					}
				}
			})
		}
		ready(corev1.ConditionFalse)
		g := w.Gate(ctx, MakeGate(w.Namespace))
		lines := func() []string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
			var all []string
			for _, line := range g.Status.NotVerified {
				all = append(all, line.Message)
			}
			return all
		}
		eventually(lines).Should(ConsistOf(HavePrefix("no other node with which it can be measured is usable now; "+w.B+": the node is not ready"), HavePrefix("the node is not ready")))
		ready(corev1.ConditionTrue)
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, w.B, IsVerified)
	})
})
