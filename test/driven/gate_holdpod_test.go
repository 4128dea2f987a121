package driven

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A gate", func() {
	It("keeps a budget over the hold pods, which follows the number of nodes, and leaves that of another owner alone", func(ctx SpecContext) {
		budget, least := NewGateWorld(ctx, "c").KeepsBudget(ctx)
		By("a user changes the gate's own")
		budget.Spec.MinAvailable, budget.Spec.UnhealthyPodEvictionPolicy = new(intstr.FromInt32(99)), new(policyv1.IfHealthyBudget)
		Expect(k8s.Update(ctx, budget)).To(Succeed())
		eventually(least).WithTimeout(2 * time.Minute).Should(Equal("0 AlwaysAllow"))
	})

	It("runs hold pods that are Ready only on verified nodes", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod, s.Suspend = &v1alpha1.GateHoldPod{}, true }))
		holdPod := func() *corev1.Pod {
			GinkgoHelper()
			list := &corev1.PodList{}
			Expect(k8s.List(ctx, list, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelHold: "true", v1alpha1.LabelNode: w.A})).To(Succeed())
			if len(list.Items) == 0 {
				return nil
			}
			return &list.Items[0]
		}
		says := func() string {
			pod := holdPod()
			if pod == nil {
				return "not found"
			}
			for _, c := range pod.Status.Conditions {
				if c.Type == v1alpha1.NodeConditionVerified {
					return fmt.Sprintf("%s %s", c.Status, c.Reason)
				}
			}
			return ""
		}
		change := func(what func(*v1alpha1.LatencyGateSpec)) {
			GinkgoHelper()
			Edit(ctx, g, func(g *v1alpha1.LatencyGate) { what(&g.Spec) })
		}
		eventually(says).Should(Equal("False Unverified"))
		pod := holdPod()
		Expect(pod.Spec.NodeName).To(Equal(w.A))
		Expect(pod.Spec.ReadinessGates).To(Equal([]corev1.PodReadinessGate{{ConditionType: v1alpha1.NodeConditionVerified}}))
		change(func(s *v1alpha1.LatencyGateSpec) { s.Suspend = false })
		eventually(says).Should(Equal("True Verified"))
		probe := func() []string {
			current := holdPod()
			if current == nil {
				return nil
			}
			return current.Spec.Containers[0].ReadinessProbe.Exec.Command[1:]
		}
		Expect(probe()).To(Equal([]string{"verified", "BootID=boot-1 of " + w.A, "Kernel=6.1.0"}), "it compares what the container sees with what was verified")
		By("an upgrade")
		w.Upgrade(ctx, w.A, "6.2.0")
		eventually(probe).Should(Equal([]string{"verified", "BootID=boot of 6.2.0 of " + w.A, "Kernel=6.2.0"}))
		eventually(says).Should(Equal("True Verified"))
		By("a user who deletes it with a grace period of a year")
		w.Kubelet.Deaf()
		held := holdPod()
		Expect(k8s.Delete(ctx, held, client.GracePeriodSeconds(31536000))).To(Succeed())
		began := w.Clock.Now()
		eventually(func() types.UID {
			if pod := holdPod(); pod != nil {
				return pod.UID
			}
			return held.UID
		}).ShouldNot(Equal(held.UID))
		Expect(w.Clock.Now().Sub(began)).To(BeNumerically("<", 15*time.Second))
		eventually(says).Should(Equal("True Verified"))
		By("a user who changes a label that tools read")
		Expect(k8s.Patch(ctx, holdPod(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tailgate.dev/latency-verified":"false"}}}`)))).To(Succeed())
		eventually(func() string {
			if pod := holdPod(); pod != nil && pod.DeletionTimestamp.IsZero() {
				return pod.Labels[v1alpha1.NodeLabelVerified]
			}
			return ""
		}).Should(Equal("true"))
		eventually(says).Should(Equal("True Verified"))
		By("a pod that is rejected, as under DiskPressure, again and again: each rest is twice as long")
		ends := func() types.UID {
			GinkgoHelper()
			var uid types.UID
			eventually(holdPod).Should(And(Not(BeNil()), HaveField("DeletionTimestamp", BeNil())))
			pod := holdPod()
			uid = pod.UID
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "the node had DiskPressure"
			Expect(k8s.Status().Update(ctx, pod)).To(Succeed())
			return uid
		}
		for count := int32(1); count <= 3; count++ {
			ends()
			eventually(func() string {
				if s := w.Verification(ctx, w.A).Status.HoldPodFailure; s != nil {
					return fmt.Sprintf("%s %d", s.Reason, s.Count)
				}
				return ""
			}).Should(Equal(fmt.Sprintf("HoldPodEnded %d", count)))
			eventually(holdPod).Should(BeNil())
			// Times in a status have a resolution of a second.
			rest := 10 * time.Second << (count - 1)
			consistently(holdPod, rest-2*time.Second).Should(BeNil())
			w.Pass(2 * time.Second)
			eventually(says).Should(Equal("True Verified"))
		}
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(MatchRegexp("^False HoldPodEnded: 1 nodes: pod .* ended: Evicted the node had DiskPressure"))
		Expect(w.Says(ctx, w.A)).To(Equal(IsVerified))
		By("a gate that does not ask for it any more")
		change(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement = v1alpha1.Enforcement{} })
		eventually(says).Should(ContainSubstring("not found"))
		w.Expect(ctx, w.A, "Verified Passed: True - -")
	})
})
