package driven

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// Deny makes a webhook deny the creation of objects of a type whose names contain a part. The answer has a code, unless it is 0; with
// 599, the webhook itself answers with an error. asked returns the number of requests about such objects, and end removes the webhook.
func Deny[O client.Object](w *World, part string, code int32) (asked func() int, end func()) {
	count := 0
	end = w.Store.Admit(func(r Request) error {
		if _, ok := r.Object.(O); !ok || r.Verb != "create" || !strings.Contains(r.Object.GetName(), part) {
			return nil
		}
		count++
		status := metav1.Status{Status: metav1.StatusFailure, Code: code, Message: `admission webhook "deny.test.tailgate.dev" denied the request: the webhook says no`}
		switch code {
		case 0:
			status.Code, status.Reason = http.StatusForbidden, metav1.StatusReasonForbidden
		case 599:
			status.Code, status.Reason = http.StatusInternalServerError, metav1.StatusReasonInternalError
			status.Message = `Internal error occurred: failed calling webhook "deny.test.tailgate.dev": the server is currently unable to handle the request`
		}
		return &apierrors.StatusError{ErrStatus: status}
	})
	return func() int { return count }, end
}

// stepFailureOf returns a node's step failure as text: "BenchmarkRefused 1".
func stepFailureOf(s *v1alpha1.StepFailure) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s %d", s.Reason, s.Count)
}

var _ = Describe("A gate with one fault", func() {
	DescribeTable("measures other nodes while a webhook denies the benchmark of one, and asks for it again ever more rarely:",
		func(ctx SpecContext, code int32, message string) {
			w := NewGateWorld(ctx, "c")
			asked, end := Deny[*v1alpha1.LatencyBenchmark](w, w.A, code)
			w.Start()
			g := w.Gate(ctx, MakeGate(w.Namespace))
			w.Expect(ctx, w.B, IsVerified)
			w.Expect(ctx, w.Namespace+"-c", IsVerified)
			stepFailure := func() string { return stepFailureOf(w.Verification(ctx, w.A).Status.StepFailure) }
			By("the clock standing still, however often the benchmark was asked for until then")
			eventually(stepFailure).ShouldNot(BeEmpty())
			w.Settle()
			first := *w.Verification(ctx, w.A).Status.StepFailure
			Expect(asked()).To(BeEquivalentTo(first.Count))
			Expect(first.RetryTime.After(w.Clock.Now())).To(BeTrue())
			Expect(first.Reason).To(Equal(v1alpha1.ReasonBenchmarkRefused))
			Expect(w.Says(ctx, w.A)).To(Equal("Unverified NewNode" + HeldBack))
			Expect(first.Message).To(ContainSubstring(message))
			eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False BenchmarkRefused: 1 nodes: "))
			By("the rest, during which it is not asked for, and the end of it")
			consistently(asked, first.RetryTime.Sub(w.Clock.Now())-time.Second).Should(BeEquivalentTo(first.Count))
			eventually(stepFailure).WithTimeout(2 * time.Second).Should(Equal(fmt.Sprintf("BenchmarkRefused %d", first.Count+1)))
			Expect(asked()).To(BeEquivalentTo(first.Count + 1))
			next := w.Verification(ctx, w.A).Status.StepFailure.RetryTime.Sub(w.Clock.Now())
			Expect(next).To(BeNumerically("~", min(10*time.Second<<first.Count, 10*time.Minute), time.Second))
			By("the end of the fault")
			end()
			eventually(func() string { return w.Says(ctx, w.A) }).WithTimeout(time.Hour).Should(Equal(IsVerified))
			Expect(stepFailure()).To(BeEmpty())
			eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("True Operational"))
		},
		Entry("without a code", int32(0), "the webhook says no"),
		Entry("with 403", int32(403), "the webhook says no"),
		Entry("with 429", int32(429), "the webhook says no"),
		Entry("with 500", int32(500), "the webhook says no"),
		Entry("with an error of its own", int32(599), "failed calling webhook"),
	)

	It("verifies a node whose hold pod is denied, and makes the pod when it may", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		asked, end := Deny[*corev1.Pod](w, "-hold", 400)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
		w.Expect(ctx, w.A, IsVerified)
		By("the clock standing still, however often the pod was asked for until then")
		w.Settle()
		first := w.Verification(ctx, w.A).Status.HoldPodFailure
		Expect(first).NotTo(BeNil())
		Expect(first.Reason).To(Equal(v1alpha1.ReasonHoldPodRefused))
		Expect(first.Count).To(BeEquivalentTo(asked()))
		Expect(first.RetryTime.After(w.Clock.Now())).To(BeTrue())
		consistently(asked, first.RetryTime.Sub(w.Clock.Now())-time.Second).Should(BeEquivalentTo(first.Count), "it is not asked for again before the end of the rest")
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False HoldPodRefused: 1 nodes: "))
		end()
		eventually(func() *v1alpha1.StepFailure { return w.Verification(ctx, w.A).Status.HoldPodFailure }).WithTimeout(time.Hour).Should(BeNil())
		list := &corev1.PodList{}
		eventually(func() []corev1.Pod {
			Expect(k8s.List(ctx, list, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelHold: "true"})).To(Succeed())
			return list.Items
		}).Should(HaveLen(1))
	})

	It("gives up a benchmark whose peer dies, takes another peer, and measures other nodes, one at a time", func(ctx SpecContext) {
		w := NewGateWorld(ctx, "c")
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace))
		third := w.Namespace + "-c"
		for _, node := range []string{w.A, w.B, third} {
			w.Expect(ctx, node, IsVerified)
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
		eventually(func() string { return w.Says(ctx, alive) }).Should(Equal("Unverified IdentityChanged" + HeldBack))
		began := w.Clock.Now()
		eventually(func() bool {
			status := w.Verification(ctx, w.A).Status
			return status.Number > 2 || status.Benchmark == nil
		}).WithTimeout(time.Hour).Should(BeTrue())
		AddReportEntry(fmt.Sprintf("its benchmark was given up %s after its peer died: %s", w.Clock.Now().Sub(began),
			stepFailureOf(w.Verification(ctx, w.A).Status.StepFailure)))
		for _, node := range []string{alive, w.A} {
			eventually(func() string { return w.Says(ctx, node) }).WithTimeout(time.Hour).Should(Equal(IsVerified))
		}
		Expect(w.Verification(ctx, w.A).Status.Accepted.Peer).To(Equal(alive))
		Expect(w.Verification(ctx, alive).Status.Accepted.Peer).To(Equal(w.A))
	})

	It("measures again when a user suspends its benchmark", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, IsVerified)
		wait, goOn := w.Pause(w.Benchmark(w.A, 2).Name + "-r1")
		w.Upgrade(ctx, w.A, "6.2.0")
		wait()
		suspend(ctx, w.Benchmark(w.A, 2), true)
		eventually(func() int32 { return w.Verification(ctx, w.A).Status.Discarded }).Should(BeEquivalentTo(1))
		goOn()
		w.Expect(ctx, w.A, IsVerified)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-3 since -1"))
	})

	It("reports how long it took to hold back a node", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		m := w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, IsVerified)
		Expect(Scrape(m.Metrics)).To(ContainElement("tailgate_hold_seconds_count 0"))
		w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) {
			n.Status.NodeInfo.BootID = "boot-2"
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(w.Clock.Now().Add(-100 * time.Second))
			}
		})
		eventually(func() []string { return Scrape(m.Metrics) }).Should(ContainElements(
			"tailgate_hold_seconds_count 1", `tailgate_hold_seconds_bucket{le="60"} 0`))
	})
})
