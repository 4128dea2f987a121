package integration

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Deny registers a webhook that denies the creation of objects of a resource in the namespace whose names contain a part. The answer
// has a code, unless it is 0; with 599, the webhook itself answers with an error. asked returns the number of requests about such
// objects, and end removes the webhook.
func (w *World) Deny(ctx SpecContext, group, resource, part string, code int32) (asked func() int64, end func()) {
	GinkgoHelper()
	var count atomic.Int64
	end = w.webhook(ctx, group, resource, 10, func(_ context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if !strings.Contains(request.Name, part) {
			return &admissionv1.AdmissionResponse{Allowed: true}
		}
		count.Add(1)
		if code == 599 {
			return nil
		}
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: "the webhook says no"}}
	})
	// The API server takes a moment to use new webhooks.
	Eventually(func() error {
		var object client.Object = MakeBenchmark(w.Namespace, "x"+part).On("a", "b").Obj()
		if resource == "pods" {
			object = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "x" + part},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}
		}
		return k8s.Create(ctx, object, client.DryRunAll)
	}).ShouldNot(Succeed())
	count.Store(0)
	return count.Load, end
}

// setbackOf returns a node's setback as text: "BenchmarkRefused 1".
func setbackOf(s *v1alpha1.Setback) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s %d", s.Reason, s.Count)
}

// PassUnless puts the clock forward, in steps shorter than any time limit, until a condition holds for a node's verification.
func (w *World) PassUnless(ctx context.Context, node string, done func(*v1alpha1.LatencyVerification) bool) {
	GinkgoHelper()
	Eventually(func() bool {
		if done(w.Verification(ctx, node)) {
			return true
		}
		w.Pass(ctx, node, 20*time.Second)
		return false
	}).WithPolling(time.Second).Should(BeTrue())
}

var _ = Describe("A gate with one fault", func() {
	DescribeTable("measures other nodes while a webhook denies the benchmark of one, and asks for it again ever more rarely:",
		func(ctx SpecContext, code int32, message string) {
			w := NewGateWorld(ctx, "c")
			// Creation times of pods are those of the API server's clock.
			w.Settings.StartTimeout = 24 * time.Hour
			asked, end := w.Deny(ctx, "tailgate.dev", "latencybenchmarks", w.A, code)
			w.Start()
			g := w.Gate(ctx, MakeGate(w.Namespace))
			w.Expect(ctx, w.B, isVerified)
			w.Expect(ctx, w.Namespace+"-c", isVerified)
			setback := func() string { return setbackOf(w.Verification(ctx, w.A).Status.Setback) }
			By("the clock standing still, however often the benchmark was asked for until then")
			w.Clock.Stop()
			var first v1alpha1.Setback
			Eventually(func(g Gomega) {
				s := w.Verification(ctx, w.A).Status.Setback
				g.Expect(s).NotTo(BeNil())
				first = *s
				g.Expect(asked()).To(BeEquivalentTo(first.Count))
				g.Expect(first.RetryTime.After(w.Clock.Now())).To(BeTrue())
			}).Should(Succeed())
			Expect(first.Reason).To(Equal(v1alpha1.ReasonBenchmarkRefused))
			Expect(w.Says(ctx, w.A)).To(Equal("Unverified NewNode" + heldBack))
			Expect(first.Message).To(ContainSubstring(message))
			Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False BenchmarkRefused: 1 nodes: "))
			By("a part of the rest, and the rest of it")
			before, left := reconciles(), first.RetryTime.Sub(w.Clock.Now())
			w.Pass(ctx, w.A, left/2)
			Eventually(reconciles).Should(BeNumerically(">", before))
			w.Pass(ctx, w.A, left-left/2+time.Second)
			Eventually(setback).Should(Equal(fmt.Sprintf("BenchmarkRefused %d", first.Count+1)))
			Expect(asked()).To(BeEquivalentTo(first.Count + 1))
			next := w.Verification(ctx, w.A).Status.Setback.RetryTime.Sub(w.Clock.Now())
			Expect(next).To(BeNumerically("~", min(10*time.Second<<first.Count, 10*time.Minute), time.Second))
			By("the end of the fault")
			end()
			w.PassUnless(ctx, w.A, func(v *v1alpha1.LatencyVerification) bool { return v.Status.State != v1alpha1.VerificationUnverified })
			w.Expect(ctx, w.A, isVerified)
			Expect(setback()).To(BeEmpty())
			Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("True Operational"))
		},
		Entry("without a code", int32(0), "the webhook says no"),
		Entry("with 403", int32(403), "the webhook says no"),
		Entry("with 429", int32(429), "the webhook says no"),
		Entry("with 500", int32(500), "the webhook says no"),
		Entry("with an error of its own", int32(599), "failed calling webhook"),
	)

	It("verifies a node whose hold pod is denied, and makes the pod when it may", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		asked, end := w.Deny(ctx, "", "pods", "-hold", 400)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
		w.Expect(ctx, w.A, isVerified)
		By("the clock standing still, however often the pod was asked for until then")
		w.Clock.Stop()
		// A refusal whose status met a conflict is not counted, and asked for again.
		Eventually(func(g Gomega) {
			before := asked()
			s := w.Verification(ctx, w.A).Status.HoldPodSetback
			g.Expect(s).NotTo(BeNil())
			g.Expect(s.Reason).To(Equal(v1alpha1.ReasonHoldPodRefused))
			g.Expect(s.Count).To(And(BeNumerically(">", 0), BeNumerically("<=", before)))
			g.Expect(s.RetryTime.After(w.Clock.Now())).To(BeTrue())
		}).Should(Succeed())
		before := asked()
		Consistently(asked, "2s").Should(Equal(before), "it is not asked for again before the end of the rest")
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False HoldPodRefused: 1 nodes: "))
		end()
		Eventually(func() *v1alpha1.Setback {
			w.Pass(ctx, w.A, 10*time.Minute)
			return w.Verification(ctx, w.A).Status.HoldPodSetback
		}).WithPolling(500 * time.Millisecond).Should(BeNil())
		list := &corev1.PodList{}
		Eventually(func() []corev1.Pod {
			Expect(k8s.List(ctx, list, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelHold: "true"})).To(Succeed())
			return list.Items
		}).Should(HaveLen(1))
	})

	It("gives up a benchmark whose peer dies, takes another peer, and measures other nodes, one at a time", func(ctx SpecContext) {
		w := NewGateWorld(ctx, "c")
		// Creation times of pods are those of the API server's clock.
		w.Settings.StartTimeout = 24 * time.Hour
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace))
		third := w.Namespace + "-c"
		for _, node := range []string{w.A, w.B, third} {
			w.Expect(ctx, node, isVerified)
		}
		dead, alive := w.Verification(ctx, w.A).Status.Accepted.Peer, third
		if dead == third {
			alive = w.B
		}
		wait, goOn := w.Pause(w.Benchmark(w.A, 2).Name + "-r1")
		w.Upgrade(ctx, w.A, "6.2.0")
		wait()
		w.Kubelet.Die(dead)
		w.ChangeNodeStatus(ctx, dead, func(n *corev1.Node) {
			for i := range n.Status.Conditions {
				if n.Status.Conditions[i].Type == corev1.NodeReady {
					n.Status.Conditions[i].Status = corev1.ConditionUnknown
				}
			}
		})
		goOn()
		// The next node in the queue, which waits for the only slot.
		w.Upgrade(ctx, alive, "6.2.0")
		Eventually(func() string { return w.Says(ctx, alive) }).Should(Equal("Unverified IdentityChanged" + heldBack))
		began := w.Clock.ahead.Load()
		dying := w.Benchmark(w.A, 2)
		w.PassUnless(ctx, w.A, func(v *v1alpha1.LatencyVerification) bool {
			Expect(client.IgnoreNotFound(wake(ctx, dying))).To(Succeed())
			return v.Status.Number > 2 || v.Status.Benchmark == nil
		})
		AddReportEntry(fmt.Sprintf("its benchmark was given up %s after its peer died: %s", time.Duration(w.Clock.ahead.Load()-began),
			setbackOf(w.Verification(ctx, w.A).Status.Setback)))
		w.PassUnless(ctx, w.A, func(v *v1alpha1.LatencyVerification) bool {
			return v.Status.State == v1alpha1.VerificationVerified || v.Status.Benchmark != nil || w.Verification(ctx, alive).Status.Benchmark != nil
		})
		w.Expect(ctx, alive, isVerified)
		w.PassUnless(ctx, w.A, func(v *v1alpha1.LatencyVerification) bool {
			return v.Status.State == v1alpha1.VerificationVerified || v.Status.Benchmark != nil
		})
		w.Expect(ctx, w.A, isVerified)
		Expect(w.Verification(ctx, w.A).Status.Accepted.Peer).To(Equal(alive))
		Expect(w.Verification(ctx, alive).Status.Accepted.Peer).To(Equal(w.A))
	})

	It("measures again when a user suspends its benchmark", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, isVerified)
		wait, goOn := w.Pause(w.Benchmark(w.A, 2).Name + "-r1")
		w.Upgrade(ctx, w.A, "6.2.0")
		wait()
		suspend(ctx, w.Benchmark(w.A, 2), true)
		Eventually(func() int32 { return w.Verification(ctx, w.A).Status.Discarded }).Should(BeEquivalentTo(1))
		goOn()
		// There is no garbage collector here.
		Expect(k8s.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelBenchmark: w.Benchmark(w.A, 2).Name}, client.GracePeriodSeconds(0))).To(Succeed())
		w.Expect(ctx, w.A, isVerified)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-3 since -1"))
	})

	It("reports how long it took to hold back a node", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		m := w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, isVerified)
		Expect(scrape(m.Metrics)).To(ContainElement("tailgate_hold_seconds_count 0"))
		w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) {
			n.Status.NodeInfo.BootID = "boot-2"
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(time.Now().Add(-100 * time.Second))
			}
		})
		Eventually(func() []string { return scrape(m.Metrics) }).Should(ContainElements(
			"tailgate_hold_seconds_count 1", `tailgate_hold_seconds_bucket{le="60"} 0`))
	})
})
