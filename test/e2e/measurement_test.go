//go:build e2e

package e2e

import (
	"context"
	"os"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
)

var _ = Describe("A measurement", Label("measurement"), func() {
	It("answers the samples of the documentation", func(ctx context.Context) {
		// The demo measures them for as long as they say.
		samples := []*v1alpha1.LatencyBenchmark{sample("first.yaml", 2*time.Second, 100*time.Millisecond), sample("vf.yaml", 2*time.Second, 100*time.Millisecond)}
		for _, b := range samples {
			create(ctx, b)
		}
		for _, b := range samples {
			b = eventuallyCompletes(ctx, b)
			Expect(report.Table(GinkgoWriter, b)).To(Succeed())
			By("numbers that hold together: " + b.Name)
			Expect(b.Status.Results).To(HaveLen(len(b.Spec.Workload.Protocols) * len(b.Spec.Workload.MessageSizes)))
			for _, r := range b.Status.Results {
				Expect(r.Samples).To(BeNumerically(">=", 1_000), r.Name)
				Expect(r.Rounds).To(Equal(b.Spec.Rounds))
				Expect(r.Lost).To(BeZero())
				ladder := []int64{*r.MinNanoseconds, *r.Percentile(v1alpha1.P50), *r.Percentile(v1alpha1.P90), *r.Percentile(v1alpha1.P99)}
				if r.Samples >= 10_000 { // or else too few to tell
					ladder = append(ladder, *r.Percentile(v1alpha1.P999))
				}
				ladder = append(ladder, *r.MaxNanoseconds)
				Expect(slices.IsSorted(ladder)).To(BeTrue(), "%s: %v", r.Name, ladder)
				Expect(*r.MinNanoseconds).To(BeNumerically(">", 500), "no message crosses a kernel in less")
			}
			By("the endpoints' own CPUs: " + b.Name)
			Expect(b.Status.Endpoints).To(HaveLen(2))
			client, server := b.Status.Endpoints[0], b.Status.Endpoints[1]
			for _, e := range []v1alpha1.Endpoint{client, server} {
				cpus, err := result.ParseCPUs(e.CPUs)
				Expect(err).NotTo(HaveOccurred())
				Expect(cpus.Size()).To(Equal(1), "%s may use %s", e.Role, e.CPUs)
			}
			Expect(client.CPUs).NotTo(Equal(server.CPUs))
			Expect(client.Node).NotTo(Equal(server.Node))
			By("what limits the numbers: " + b.Name)
			Expect(b.Status.Warnings).To(HaveLen(1))
			Expect(b.Status.Warnings[0].Reason).To(Equal(v1alpha1.WarningSimulatedNIC))
			if b.Spec.Network.Type.HasDevice() {
				By("the interface and the device that were asked for: " + b.Name)
				for _, e := range []v1alpha1.Endpoint{client, server} {
					Expect(e.Interface).To(Equal("net1"))
					Expect(e.PCIAddress).To(HavePrefix("0000:3b:02."))
					Expect(e.DeviceNUMANode).To(Equal(e.CPUNUMANode))
				}
			}
			By("the stored histograms: " + b.Name)
			Expect(b.Status.Stored).To(HaveLen(int(b.Spec.Rounds)))
			var runs []result.Stored
			for _, s := range b.Status.Stored {
				cm := &corev1.ConfigMap{}
				Expect(kube.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: s.ConfigMap}, cm)).To(Succeed())
				Expect(cm.Immutable).To(HaveValue(BeTrue()))
				stored, err := result.Open(cm, s)
				Expect(err).NotTo(HaveOccurred())
				runs = append(runs, stored)
			}
			collected, err := rounds.Of(b.Spec, runs...)
			Expect(err).NotTo(HaveOccurred())
			Expect(report.Summarize(collected).Results).To(Equal(b.Status.Results))
		}
		Eventually(benchmarkPods).WithArguments(ctx).WithTimeout(soon).Should(BeEmpty())
	})

	It("uses sfnt-pingpong where the image has it, and says so by name where it has not", func(ctx context.Context) {
		b := benchmark("sfnt", overVFs, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Tool = v1alpha1.ToolSfntPingpong
			s.Workload.Protocols = []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}
			s.Workload.MessageSizes = []int32{1, 64}
		})
		create(ctx, b)
		if os.Getenv("SFNETTEST_BIN") == "" {
			Eventually(func() metav1.Condition {
				return condition(get(ctx, b), v1alpha1.ConditionSucceeded)
			}).WithTimeout(soon).Should(And(
				HaveField("Reason", v1alpha1.ReasonFailed),
				HaveField("Message", And(ContainSubstring(v1alpha1.OutcomeToolMissing), ContainSubstring("the bench image has no sfnt-pingpong"))),
			))
			Expect(get(ctx, b).Status.Attempts).To(HaveLen(1), "a missing tool does not come by trying again")
			return
		}
		b = eventuallyCompletes(ctx, b)
		Expect(report.Table(GinkgoWriter, b)).To(Succeed())
		Expect(b.Status.Results).To(HaveLen(4))
		for _, r := range b.Status.Results {
			Expect(r.Samples).To(BeNumerically(">=", 5_000), r.Name)
		}
	})
})
