//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

// wholeCores changes a benchmark for nodes with two threads per core, one of which gives pods whole cores only.
func wholeCores(s *v1alpha1.LatencyBenchmarkSpec) { onWholeCores(&s.Placement) }

func onWholeCores(p *v1alpha1.Placement) {
	p.CPUs = 2
	p.Memory.Set(256 << 20)
}

// labGate returns a gate for node-a alone, with node-b as its peer, for a wire with a delay: other work on the machine that emulates the
// nodes makes the minimum several times as long, but not that of a longWire.
func labGate() *v1alpha1.LatencyGate {
	g := latencyGate()
	g.Spec.NodeSelector = *hostname("node-a").NodeSelector
	s := &g.Spec.Template.Spec
	s.Placement.Server = hostname("node-b")
	s.Workload.Duration.Duration = 3 * time.Second
	onWholeCores(&s.Placement)
	s.Criteria.Rules[0].Max.Text = "10s" // The first result needs a rule without a baseline.
	s.Criteria.IgnoreDifferences = []string{"kernel.*"}
	return g
}

const longWire, slowWire = 20 * time.Millisecond, 200 * time.Millisecond

// delay delays every frame between the first card of node-a and the wire by up to an interval, until QEMU ends.
func delay(ctx context.Context, by time.Duration) {
	GinkgoHelper()
	monitor(ctx, "object-add", map[string]any{"qom-type": "filter-buffer", "id": "delay", "netdev": "n0", "interval": by.Microseconds()})
}

// endDelay ends a delay.
func endDelay(ctx context.Context) {
	GinkgoHelper()
	monitor(ctx, "object-del", map[string]any{"id": "delay"})
}

// monitor sends a command to QEMU's monitor of node-a as soon as it listens.
func monitor(ctx context.Context, command string, arguments map[string]any) {
	GinkgoHelper()
	Eventually(func() error { return localcluster.Monitor(ctx, options, "node-a", command, arguments) }).WithTimeout(soon).Should(Succeed())
}

// eventuallyReady waits until the condition Ready of node-a has a status.
func eventuallyReady(ctx context.Context, status corev1.ConditionStatus) {
	GinkgoHelper()
	Eventually(func() corev1.ConditionStatus {
		for _, c := range gateNode(ctx, "node-a").Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status
			}
		}
		return ""
	}).WithTimeout(measured).WithPolling(200 * time.Millisecond).Should(Equal(status))
}

// roundTimes describes the last benchmark of a node: the start and the end of each round, in seconds.
func roundTimes(ctx context.Context, v *v1alpha1.LatencyVerification) string {
	GinkgoHelper()
	b := &v1alpha1.LatencyBenchmark{}
	Expect(kube.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v.Status.History[0].Benchmark}, b)).To(Succeed())
	text := fmt.Sprintf("benchmark %d of the node, rounds", len(v.Status.History))
	for _, a := range b.Status.Attempts {
		began := b.Status.Attempts[0].StartTime.Time
		text += fmt.Sprintf(" %.0f-%.0f", a.StartTime.Sub(began).Seconds(), a.Outcome.CompletionTime.Sub(began).Seconds())
	}
	return text
}

// upgradeWith upgrades node-a like an upgrade tool: it drains the node, reboots it into another kernel and uncordons it.
func upgradeWith(ctx context.Context, t *timeline, kernel string, whileBooting func()) {
	GinkgoHelper()
	before := gateNode(ctx, "node-a").Status.NodeInfo
	t.add("kernel %s", before.KernelVersion)
	Expect(kubectl(ctx, GinkgoWriter, "drain", "node-a", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout="+measured.String())).To(Succeed())
	t.add("node-a is drained")
	Expect(localcluster.Reboot(ctx, options, "node-a", kernel)).To(Succeed())
	t.add("it was shut down, and its other kernel runs")
	whileBooting()
	Eventually(func() string { return gateNode(ctx, "node-a").Status.NodeInfo.BootID }).WithTimeout(measured).
		WithPolling(50 * time.Millisecond).ShouldNot(Equal(before.BootID))
	after := gateNode(ctx, "node-a").Status.NodeInfo
	t.add("the kubelet reports another boot, with kernel %s", after.KernelVersion)
	Expect(after.KernelVersion).NotTo(Equal(before.KernelVersion))
	Eventually(published).WithArguments(ctx, "node-a").WithTimeout(soon).WithPolling(50 * time.Millisecond).Should(Equal(heldBack))
	t.add("the gate holds the node")
	eventuallyReady(ctx, corev1.ConditionTrue)
	t.add("it is Ready")
	Expect(kubectl(ctx, GinkgoWriter, "uncordon", "node-a")).To(Succeed())
	t.add("it is uncordoned; condition, label and taint of the gate: %s", published(ctx, "node-a"))
}

var _ = Describe("The lab", Label("lab"), func() {
	BeforeEach(func() {
		if !options.Lab {
			Skip("the nodes are no machines of their own; see make lab")
		}
	})

	// DeferCleanup would be too late: the suite's own AfterEach, which expects that no pod is left, runs before it.
	AfterEach(func(ctx context.Context) {
		if !options.Lab {
			return
		}
		deleteGate(ctx, labGate())
	})

	It("holds an upgraded node until it is measured, and one that became slow", func(ctx context.Context) {
		t := newTimeline()
		letIn := watchLetIn(ctx, "node-a")
		delay(ctx, longWire)
		DeferCleanup(endDelay)
		Expect(kube.Create(ctx, labGate())).To(Succeed())
		first := eventuallyConcludes(ctx, "node-a", v1alpha1.VerificationVerified)
		t.add("node-a is verified: %s", roundTimes(ctx, first))
		t.report("a new gate")
		Expect(first.Status.Verified().Message).NotTo(ContainSubstring("on a simulated NIC"), "the nodes have kernels of their own")

		By("an upgrade that changes nothing but the kernel")
		t = newTimeline()
		upgradeWith(ctx, t, localcluster.KernelNewer, func() { delay(ctx, longWire) })
		second := eventuallyConcludes(ctx, "node-a", v1alpha1.VerificationVerified)
		t.add("the gate releases it: %s; %s", second.Status.Verified().Message, roundTimes(ctx, second))
		t.report("an upgrade")
		Expect(second.Status.Accepted.Benchmark).NotTo(Equal(first.Status.Accepted.Benchmark))
		Expect(second.Status.Accepted.Identity[string(v1alpha1.IdentityKernel)]).NotTo(Equal(first.Status.Accepted.Identity[string(v1alpha1.IdentityKernel)]))

		By("an upgrade after which it is slow")
		t = newTimeline()
		upgradeWith(ctx, t, localcluster.KernelStable, func() {
			delay(ctx, slowWire)
			t.add("its wire is slow")
		})
		failed := eventuallyConcludes(ctx, "node-a", v1alpha1.VerificationFailed)
		t.add("the gate does not release it: %s; %s", failed.Status.Verified().Message, roundTimes(ctx, failed))
		t.report("an upgrade after which the node is slow")
		Expect(failed.Status.Verified().Message).To(ContainSubstring("beyond maxIncrease 100%"))
		Expect(failed.Status.Accepted).To(Equal(second.Status.Accepted), "what failed is no baseline")

		Expect(letIn()).To(HaveLen(2), "once for each time that it was verified")
	})

	DescribeTable("completes a benchmark", func(ctx context.Context, fault string, network func(*v1alpha1.LatencyBenchmarkSpec), lasts time.Duration, begin, end func(context.Context)) {
		t := newTimeline()
		b := benchmark("fault", network, wholeCores, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Rounds = 1 })
		create(ctx, b)
		eventuallyMeasures(ctx, b)
		t.add("both pods run")
		began := time.Now()
		begin(ctx)
		t.add("%s", fault)
		eventuallyReady(ctx, corev1.ConditionUnknown)
		t.add("its condition Ready is Unknown")
		time.Sleep(time.Until(began.Add(lasts)))
		end(ctx)
		t.add("the fault is over")
		eventuallyReady(ctx, corev1.ConditionTrue)
		t.add("node-a is Ready")
		b = eventuallyCompletes(ctx, b)
		t.add("the benchmark is complete")
		for _, a := range b.Status.Attempts {
			t.add("%s, attempt %d: %s %s", a.Run, a.Attempt, a.Outcome.Reason, a.Outcome.Message)
		}
		t.report(fault)
		Expect(report.Table(GinkgoWriter, b)).To(Succeed())
		Expect(b.Status.Endpoints).To(HaveLen(2))
		Expect(b.Status.Endpoints).To(HaveEach(And(HaveField("Placement", v1alpha1.PlacementVerified), HaveField("PCIAddress", Not(BeEmpty())))))
		emulated := HaveField("Reason", v1alpha1.WarningEmulatedNIC)
		Expect(b.Status.Warnings).To(ContainElement(emulated))
		// An emulated CPU may take longer to acknowledge a segment than TCP waits before it sends the segment again.
		sentAgain := And(HaveField("Reason", v1alpha1.WarningTool), HaveField("Message", MatchRegexp(`sent \d+ segments again`)))
		Expect(b.Status.Warnings).To(HaveEach(Or(emulated, sentAgain)))
		Eventually(benchmarkPods).WithArguments(ctx).WithTimeout(soon).Should(BeEmpty())
	},
		Entry("over VFs, although the network of a node was cut for a minute", "node-a has no network", overVFs, time.Minute,
			func(ctx context.Context) { monitor(ctx, "set_link", map[string]any{"name": "cluster", "up": false}) },
			func(ctx context.Context) { monitor(ctx, "set_link", map[string]any{"name": "cluster", "up": true}) }),
		Entry("over VFs, although the power of a node failed", "the power of node-a has failed", overVFs, time.Duration(0),
			func(ctx context.Context) {
				Expect(localcluster.KillProcess(ctx, options, "guest-node-a")).To(Succeed())
			},
			func(ctx context.Context) {
				Expect(localcluster.PowerOn(ctx, options, "node-a")).To(Succeed())
			}),
		Entry("over PFs, although a node was frozen", "node-a is frozen", overPFs, time.Duration(0),
			func(ctx context.Context) { monitor(ctx, "stop", nil) }, func(ctx context.Context) { monitor(ctx, "cont", nil) }),
	)
})
