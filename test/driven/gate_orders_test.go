package driven

import (
	"errors"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A gate, whatever the order of events,", func() {
	changes := func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.Mode = v1alpha1.EnforcementChanges }
	midnight := func(s *v1alpha1.LatencyGateSpec) { s.Schedule = "0 0 * * *" }
	const year = 365 * 24 * time.Hour
	// verified returns a world whose gate found its nodes, and verified all of them.
	verified := func(ctx SpecContext, with func(*v1alpha1.LatencyGateSpec)) (w *World, g *v1alpha1.LatencyGate, nodes []string) {
		GinkgoHelper()
		w = NewGateWorld(ctx, "c")
		w.Pass(2 * time.Second) // The nodes are older than the gate, and times of creation are in whole seconds.
		w.Start()
		g, nodes = w.Gate(ctx, MakeGate(w.Namespace).With(with)), []string{w.A, w.B, w.Namespace + "-c"}
		for _, node := range nodes {
			w.Expect(ctx, node, IsVerified)
		}
		return w, g, nodes
	}
	edit := func(ctx SpecContext, w *World, change func(*v1alpha1.LatencyGateSpec)) {
		GinkgoHelper()
		Edit(ctx, &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}, func(g *v1alpha1.LatencyGate) { change(&g.Spec) })
		w.Pass(time.Minute)
	}
	deleteGate := func(ctx SpecContext, g *v1alpha1.LatencyGate) {
		GinkgoHelper()
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, g))).To(Succeed())
		eventually(func() bool {
			return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(g), &v1alpha1.LatencyGate{}))
		}).Should(BeTrue())
	}
	// refusePods refuses the pods of benchmarks, as a policy does that cannot ask its registry.
	refusePods := func(w *World) (end func()) {
		return w.Store.Admit(func(r Request) error {
			if p, ok := r.Object.(*corev1.Pod); ok && r.Verb == "create" && p.Labels[v1alpha1.LabelRun] != "" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, p.Name, errors.New("the registry does not answer"))
			}
			return nil
		})
	}
	// due makes nodes due by the schedule.
	due := func(ctx SpecContext, w *World, nodes ...string) {
		GinkgoHelper()
		g := Get(ctx, &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}})
		g.Status.Schedule.StartTime = metav1.Time{Time: w.Clock.Now().Add(-72 * time.Hour)}
		Expect(k8s.Status().Update(ctx, g)).To(Succeed())
		for _, node := range nodes {
			v := w.Verification(ctx, node)
			v.Status.LastMeasurementTime = &metav1.Time{Time: w.Clock.Now().Add(-25 * time.Hour)}
			Expect(k8s.Status().Update(ctx, v)).To(Succeed())
		}
	}
	measuring := func(ctx SpecContext, w *World, node string) {
		GinkgoHelper()
		eventually(func() string { return w.Says(ctx, node) }).WithTimeout(20 * time.Minute).Should(HavePrefix("Measuring"))
	}

	It("gives a node back that loses its label when its turn has just begun", func(ctx SpecContext) {
		w, _, _ := verified(ctx, midnight)
		due(ctx, w, w.A)
		eventually(func() string { return w.Says(ctx, w.A) }).Should(HavePrefix("Unverified ScheduleDue"))
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) { delete(n.Labels, GateLabel) })
		w.Expect(ctx, w.A, IsVerified)
	})

	It("does not forget in mode Observe that a node joined and failed", func(ctx SpecContext) {
		w, _, _ := verified(ctx, changes)
		joined := w.Namespace + "-joined"
		w.SlowNode(joined)
		w.AddGateNode(ctx, joined)
		w.Expect(ctx, joined, "Failed Fail"+HeldBack)
		edit(ctx, w, func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.Mode = v1alpha1.EnforcementObserve })
		Expect(k8s.Delete(ctx, w.Verification(ctx, joined))).To(Succeed())
		w.Pass(time.Minute)
		edit(ctx, w, changes)
		w.Expect(ctx, joined, "Failed Fail"+HeldBack)
	})

	It("knows after a jump of the clock that a node changed before its gate was deleted", func(ctx SpecContext) {
		w, g, _ := verified(ctx, changes)
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		deleteGate(ctx, g)
		w.Jump(year)
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) { n.Labels["changed"] = "so that the manager looks" })
		w.Settle()
		w.Jump(-year)
		w.Pass(time.Minute)
		w.Gate(ctx, MakeGate(w.Namespace).With(changes))
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
	})

	It("notices a change that happened just before its gate was deleted", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Pass(2 * time.Second)
		m := w.Start()
		w.SlowNode(w.A)
		g := w.Gate(ctx, MakeGate(w.Namespace).With(changes))
		w.Expect(ctx, w.A, "Failed Fail: - - -")
		m.Stop()
		w.Upgrade(ctx, w.A, "6.2.0")
		Expect(k8s.Delete(ctx, g)).To(Succeed())
		w.Start()
		deleteGate(ctx, g)
		w.Gate(ctx, MakeGate(w.Namespace).With(changes))
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
	})

	devices := func(ctx SpecContext, w *World, state string, counts ...string) {
		GinkgoHelper()
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, foreign.AnnotationNodeState, state) })
		for _, count := range counts {
			w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) { n.Status.Allocatable[VF] = resource.MustParse(count) })
			w.Settle()
		}
	}
	// accept accepts a result of node A. The CPUs of these pods are not near the devices, so that every verdict is Inconclusive.
	accept := func(ctx SpecContext, w *World, number int) {
		GinkgoHelper()
		eventually(func() []string { return w.History(ctx, w.A) }).Should(HaveLen(number))
		w.AskAccept(ctx, w.A, w.Benchmark(w.A, number).Name)
		w.Expect(ctx, w.A, "Verified AcceptedByHand: True true -")
	}
	DescribeTable("notices that devices are recreated", func(ctx SpecContext, meanwhile, later func(SpecContext, *World)) {
		w := NewGateWorld(ctx)
		installMultus()
		CreateNetwork(ctx, w.Namespace, "sf-vf", VF)
		w.ChangeNodeStatus(ctx, w.B, func(n *corev1.Node) { n.Status.Allocatable[VF] = resource.MustParse("8") })
		devices(ctx, w, "Idle", "8")
		w.Pass(2 * time.Second)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).With(changes).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Template.Spec.Network = MakeBenchmark("", "").VF("sf-vf", VF).Spec.Network
		}))
		accept(ctx, w, 1)
		devices(ctx, w, "Drain_Required", "8", "0")
		meanwhile(ctx, w)
		devices(ctx, w, "Idle", "0", "8")
		w.Pass(5 * time.Minute)
		Expect(w.Says(ctx, w.A)).To(Equal("Inconclusive Inconclusive" + HeldBack))
		later(ctx, w)
	},
		Entry("and accepts no result from before", func(SpecContext, *World) {}, func(ctx SpecContext, w *World) {
			letIn := w.LetIn(ctx, w.A)
			w.AskAccept(ctx, w.A, w.Benchmark(w.A, 1).Name)
			w.Pass(time.Minute)
			Expect(w.refusals(ctx, w.A)).To(ContainElement(ContainSubstring("measured the node before it changed")))
			Expect(letIn()).To(BeEmpty())
			accept(ctx, w, 2)
		}),
		Entry("while its LatencyVerification is deleted", func(ctx SpecContext, w *World) {
			Expect(k8s.Delete(ctx, w.Verification(ctx, w.A))).To(Succeed())
			w.Pass(time.Minute)
		}, func(SpecContext, *World) {}),
	)

	It("keeps a Pass provisional when the node was away", func(ctx SpecContext) {
		w, _, _ := verified(ctx, changes)
		w.Upgrade(ctx, w.A, "6.2.0")
		eventually(func() string { return w.Verification(ctx, w.A).Status.Verified().Reason }).Should(Equal(v1alpha1.ReasonProvisional))
		for _, is := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionTrue} {
			w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) {
				i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
				n.Status.Conditions[i].Status = is
			})
			w.Settle()
			Expect(w.Verification(ctx, w.A).Status.State == v1alpha1.VerificationAway).To(Equal(is == corev1.ConditionUnknown))
		}
		Expect(w.Verification(ctx, w.A).Status.Verified().Reason).To(Equal(v1alpha1.ReasonProvisional))
	})

	It("pauses its schedule no longer for a clock that had jumped", func(ctx SpecContext) {
		w, g, nodes := verified(ctx, midnight)
		w.Jump(year)
		end := refusePods(w)
		due(ctx, w, nodes...)
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).WithTimeout(30 * time.Minute).Should(HavePrefix("False SchedulePaused"))
		w.Jump(-year)
		end()
		due(ctx, w, nodes...)
		w.Pass(25 * time.Hour)
		Expect(w.Accepted(ctx, w.A)).NotTo(HavePrefix("-1 "), GateSays(ctx, g, v1alpha1.ConditionOperational))
	})

	It("holds no verified node for longer than its turn", func(ctx SpecContext) {
		w, g, nodes := verified(ctx, midnight)
		since, longest := map[string]time.Time{}, time.Duration(0)
		follow(w, func(_, n *corev1.Node) {
			if n == nil {
				return
			}
			if at, held := since[n.Name]; held && !isTainted(n) {
				longest = max(longest, w.Clock.Now().Sub(at))
				delete(since, n.Name)
			} else if !held && isTainted(n) {
				since[n.Name] = w.Clock.Now()
			}
		})
		end := refusePods(w)
		due(ctx, w, nodes...)
		By("a user deletes the benchmark of a turn")
		measuring(ctx, w, w.A)
		Expect(k8s.Delete(ctx, w.Benchmark(w.A, 2))).To(Succeed())
		w.Expect(ctx, w.A, IsVerified)
		By("the next node is cordoned in its turn")
		measuring(ctx, w, w.B)
		w.ChangeNode(ctx, w.B, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		eventually(func() string { return w.Says(ctx, w.B) }).WithTimeout(6 * time.Minute).Should(Equal(IsVerified))
		w.ChangeNode(ctx, w.B, func(n *corev1.Node) { n.Spec.Unschedulable = false })
		By("the gate is suspended, and goes on in another mode")
		edit(ctx, w, func(s *v1alpha1.LatencyGateSpec) { s.Suspend = true })
		edit(ctx, w, func(s *v1alpha1.LatencyGateSpec) { s.Suspend, s.Enforcement.Mode = false, v1alpha1.EnforcementChanges })
		edit(ctx, w, func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.Mode = v1alpha1.EnforcementAll })
		w.Pass(time.Hour)
		Expect(since).To(BeEmpty())
		Expect(longest).To(And(BeNumerically(">", time.Second), BeNumerically("<", 6*time.Minute)))
		Expect(GateSays(ctx, g, v1alpha1.ConditionOperational)).To(ContainSubstring("its turn ended without a result"))
		By("the end of the outage")
		end()
		for _, node := range nodes {
			w.AskVerify(ctx, node)
			eventually(func() string { return w.Accepted(ctx, node) }).WithTimeout(15 * time.Minute).ShouldNot(HavePrefix("-1 "))
			w.Expect(ctx, node, IsVerified)
		}
	})

	It("lets a slow node in only when a user accepts it, through new Nodes, gates, modes, peers and clocks", func(ctx SpecContext) {
		w, g, _ := verified(ctx, func(*v1alpha1.LatencyGateSpec) {})
		registers := func(name, uuid string) {
			GinkgoHelper()
			Expect(k8s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
			w.Settle()
			w.AddGateNode(ctx, name)
			w.ChangeNodeStatus(ctx, name, func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = uuid })
			w.Upgrade(ctx, name, "6.2.0")
		}
		w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "4c4c4544-0042-3510-8051-b3c04f4d3033" })
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		By("the gate is deleted, the machine registers again with its UUID as SMBIOS has it, and the gate is created again")
		deleteGate(ctx, g)
		registers(w.A, "44454C4C-4200-1035-8051-B3C04F4D3033")
		w.Gate(ctx, MakeGate(w.Namespace).With(changes))
		eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(HeldBack))
		letIn := w.LetIn(ctx, w.A)
		By("its peer is drained, changes and goes while it is measured")
		measuring(ctx, w, w.A)
		peer := w.Verification(ctx, w.A).Status.Benchmark.Peer
		w.ChangeNode(ctx, peer, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		w.Upgrade(ctx, peer, "6.2.0")
		w.Pass(10 * time.Second)
		registers(peer, "not settable")
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		By("another mode, a requested deletion, and a clock that jumps")
		edit(ctx, w, func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.Mode = v1alpha1.EnforcementAll })
		Expect(k8s.Delete(ctx, w.Verification(ctx, w.A))).To(Succeed())
		for _, jump := range []time.Duration{year, -year} {
			w.Jump(jump)
			w.AskVerify(ctx, w.A)
			w.Pass(3 * time.Minute)
			Expect(w.Says(ctx, w.A)).To(HaveSuffix(HeldBack))
		}
		edit(ctx, w, changes)
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		Expect(letIn()).To(BeEmpty())
		Expect(Get(ctx, g).Status.NotVerified).To(ContainElement(And(
			HaveField("Name", w.A), HaveField("Held", true), HaveField("User", true), HaveField("Since", Not(BeNil())))))
		By("a user accepts it")
		w.AskAccept(ctx, w.A, w.Verification(ctx, w.A).Status.History[0].Benchmark)
		eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(": True true -"))
	})
})
