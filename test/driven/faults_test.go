package driven

import (
	"context"
	"io"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/tool"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("An attempt", func() {
	var w *World
	var b *v1alpha1.LatencyBenchmark
	BeforeEach(func(ctx SpecContext) {
		w = NewWorld(ctx)
		w.Settings.StartTimeout = 2 * time.Minute
		w.Start()
		b = w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
	})

	// start starts both pods of an attempt.
	start := func(ctx context.Context, attempt int32) (server, peer *corev1.Pod) {
		GinkgoHelper()
		return w.Kubelet.RunBoth(ctx, "x-r1", attempt)
	}

	// spoil ends both pods successfully, and changes the client's log before the manager can have read both.
	spoil := func(ctx context.Context, server, peer *corev1.Pod, change func(string) string) {
		GinkgoHelper()
		w.Kubelet.Succeed(ctx, peer)
		log, err := w.Kubelet.Logs(ctx, client.ObjectKeyFromObject(peer), false)
		Expect(err).NotTo(HaveOccurred())
		content, err := io.ReadAll(log)
		Expect(err).NotTo(HaveOccurred())
		w.Kubelet.SetLog(peer, change(string(content)))
		w.Kubelet.Succeed(ctx, server)
	}
	flip := func(log string) string {
		at := strings.Index(log, "data ") + 40
		other := "A"
		if log[at:at+1] == other {
			other = "B"
		}
		return log[:at] + other + log[at+1:]
	}

	DescribeTable("whose result is not whole does not count, and is repeated:",
		func(ctx SpecContext, reason string, change func(string) string) {
			server, peer := start(ctx, 1)
			spoil(ctx, server, peer, change)
			if reason == v1alpha1.OutcomeResultMissing {
				ExpectSucceeded(ctx, b, "^Unknown Running: the result cannot be read yet")
				By("waiting, because a kubelet may find the log again")
				w.Patiently(ctx, b, func() any { return Get(ctx, b).Status.Active }, HaveField("Outcome", BeNil()))
			}
			w.Kubelet.Gone(ctx, server, peer)
			ExpectSucceeded(ctx, b, "^Unknown Retrying: .*"+reason+".*attempt 1 of 3")
			Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 " + reason}))
			Expect(ConfigMaps(ctx, b)).To(BeEmpty())

			w.Pass(6 * time.Second)
			w.Kubelet.Measure(ctx, "x-r1", 2)
			ExpectSucceeded(ctx, b, "^True Complete")
			Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 " + reason, "x-r1 a2 Measured"}))
		},
		Entry("one bit is wrong", v1alpha1.OutcomeResultCorrupt, flip),
		Entry("the end is missing", v1alpha1.OutcomeResultCorrupt, func(log string) string { return log[:len(log)*2/3] }),
		Entry("it is of another version", v1alpha1.OutcomeVersionMismatch, func(log string) string {
			return strings.Replace(log, "result 1 ", "result 2 ", 1)
		}),
		Entry("there is no frame", v1alpha1.OutcomeResultMissing, func(string) string { return "listening\n" }),
		Entry("the log is empty", v1alpha1.OutcomeResultMissing, func(string) string { return "" }),
	)

	It("that never succeeds is repeated as often as the operator allows, and no more", func(ctx SpecContext) {
		for attempt := int32(1); attempt <= 3; attempt++ {
			server, peer := start(ctx, attempt)
			spoil(ctx, server, peer, flip)
			w.Kubelet.Gone(ctx, server, peer)
			if attempt < 3 {
				ExpectSucceeded(ctx, b, "^Unknown Retrying")
				w.Pass(time.Duration(attempt)*5*time.Second + time.Second)
			}
		}
		ExpectSucceeded(ctx, b, "^False Failed: run x-r1 failed .ResultCorrupt. at attempt 3")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 ResultCorrupt", "x-r1 a2 ResultCorrupt", "x-r1 a3 ResultCorrupt"}))
		Expect(Get(ctx, b).Status.Active).To(BeNil())
		Expect(Get(ctx, b).Status.CompletionTime).NotTo(BeNil())
		w.Patiently(ctx, b, func() any { return w.Kubelet.Created() }, HaveLen(6))
	})

	It("with the result of another attempt does not count", func(ctx SpecContext) {
		server, peer := start(ctx, 1)
		stray := peer.DeepCopy()
		for i, v := range stray.Spec.Containers[0].Env {
			if v.Name == plan.EnvTask {
				stray.Spec.Containers[0].Env[i].Value = strings.Replace(v.Value, `"attempt":1`, `"attempt":2`, 1)
			}
		}
		stray.ResourceVersion = ""
		w.Kubelet.Succeed(ctx, stray)
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Gone(ctx, server, peer)
		eventually(func() []string { return Attempts(ctx, b) }).Should(Equal([]string{"x-r1 a1 ResultCorrupt"}))
	})

	It("that lacks the tool is not repeated", func(ctx SpecContext) {
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.Fail(ctx, server, v1alpha1.OutcomeToolMissing, "the bench image has no sockperf")
		w.Kubelet.Gone(ctx, server)
		ExpectSucceeded(ctx, b, "^False Failed: .*ToolMissing.*the bench image has no sockperf")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 ToolMissing"}))
	})

	DescribeTable("whose pod a user deletes is repeated:",
		func(ctx SpecContext, role string) {
			server, peer := start(ctx, 1)
			ExpectSucceeded(ctx, b, "^Unknown Running")
			victim := map[string]*corev1.Pod{v1alpha1.RoleServer: server, v1alpha1.RoleClient: peer}[role]
			Expect(k8s.Delete(ctx, victim, client.GracePeriodSeconds(0))).To(Succeed())
			w.Kubelet.Gone(ctx, server, peer)
			ExpectSucceeded(ctx, b, "^Unknown Retrying: .*PodLost.*the "+role+"'s pod")
			w.Pass(6 * time.Second)
			w.Kubelet.Measure(ctx, "x-r1", 2)
			ExpectSucceeded(ctx, b, "^True Complete")
			Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 PodLost", "x-r1 a2 Measured"}))
		},
		Entry("the server's", v1alpha1.RoleServer),
		Entry("the client's", v1alpha1.RoleClient),
	)

	It("whose node is lost ends after a while, and says what keeps its pod", func(ctx SpecContext) {
		server, _ := start(ctx, 1)
		ExpectSucceeded(ctx, b, "^Unknown Running")
		node := &corev1.Node{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: w.B}, node)).To(Succeed())
		node.Status.Conditions[0].Status = corev1.ConditionUnknown
		node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.Clock.Now().Add(-time.Hour))
		Expect(k8s.Status().Update(ctx, node)).To(Succeed())
		// The time counts from the moment when the operator sees the condition, whatever the node's clock says.
		eventually(func() *metav1.MicroTime { return Get(ctx, b).Status.Active.NotReadyTime }).ShouldNot(BeNil())
		w.Pass(30 * time.Second)
		w.Patiently(ctx, b, func() any { return Condition(ctx, b, v1alpha1.ConditionSucceeded) }, HavePrefix("Unknown Running"))
		w.Pass(40 * time.Second)
		ExpectSucceeded(ctx, b, "^Unknown Ending: .*"+server.Name+".*"+w.B+" is not ready")
		Expect(Get(ctx, b).Status.Active.Outcome.Reason).To(Equal(v1alpha1.OutcomeNodeLost))
	})

	It("whose image cannot be pulled says so at once, and fails in the end", func(ctx SpecContext) {
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.Pending(ctx, server, "ImagePullBackOff", `Back-off pulling image "bench:test"`)
		ExpectSucceeded(ctx, b, "^Unknown ImagePullFailed: .*server.*bench:test.*--bench-image")
		w.Pass(121 * time.Second)
		w.Kubelet.Gone(ctx, server)
		ExpectSucceeded(ctx, b, "^False Failed: .*ImagePullFailed")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 ImagePullFailed"}))
	})

	It("whose network cannot be set up says what only an event tells", func(ctx SpecContext) {
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.Pending(ctx, server, "ContainerCreating", "")
		w.Kubelet.Warn(ctx, server, "FailedCreatePodSandBox", `plugin type="multus" failed (add): already allocated`)
		ExpectSucceeded(ctx, b, "^Unknown Starting")
		w.Pass(4 * time.Second)
		ExpectSucceeded(ctx, b, "^Unknown NetworkFailed: .*already allocated")
	})

	It("whose network never can be set up ends the attempt at once", func(ctx SpecContext) {
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.Pending(ctx, server, "ContainerCreating", "")
		w.Kubelet.Warn(ctx, server, "FailedCreatePodSandBox", `plugin type="multus" failed (add): VF pci addr is required`)
		w.Pass(4 * time.Second)
		w.Kubelet.Gone(ctx, server)
		ExpectSucceeded(ctx, b, "^Unknown Retrying: .*DeviceMissing.*VF pci addr is required")
	})

	It("that the scheduler cannot place says why", func(ctx SpecContext) {
		server := &corev1.Pod{}
		key := client.ObjectKey{Namespace: w.Namespace, Name: "x-r1-a1-server"}
		eventually(func() error { return k8s.Get(ctx, key, server) }).Should(Succeed())
		server.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes are available: 1 Insufficient cpu.",
		}}
		Expect(k8s.Status().Update(ctx, server)).To(Succeed())
		ExpectSucceeded(ctx, b, "^Unknown Unschedulable: .*"+w.B+".*Insufficient cpu")
	})
})

var _ = Describe("A name that is taken", func() {
	It("by a pod gets the run's pods other names and leaves the pod", func(ctx SpecContext) {
		w := NewWorld(ctx)
		somebody := MakeBenchmark(w.Namespace, "somebody").Obj()
		somebody.UID = "00000000-0000-0000-0000-000000000001"
		taken, err := pods.Build(pods.Endpoint{
			Benchmark: somebody, Image: "somebody:else", Node: w.A, Variant: plan.Variants(somebody.Spec)[0],
			Task: plan.Task{Run: "x-r1", Attempt: 1, Role: v1alpha1.RoleServer, Cells: []tool.Cell{{Name: "tcp-64"}}, Deadline: time.Minute},
		})
		Expect(err).NotTo(HaveOccurred())
		taken.Labels, taken.OwnerReferences = nil, nil
		Expect(k8s.Create(ctx, taken)).To(Succeed())

		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		ExpectSucceeded(ctx, b, "^Unknown Retrying: run x-r1 is tried again under other names: pod x-r1-a1-server exists")
		Expect(Get(ctx, b).Status.Active).To(BeNil())
		w.Kubelet.Auto()
		w.Pass(6 * time.Second)
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 NameTaken", "x-r1 a2 Measured"}))
		Expect(w.Kubelet.Created()).To(ContainElement(MatchRegexp("^x-r1-a2-server-[a-z0-9]{10}$")))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(taken), taken)).To(Succeed())
	})

})
