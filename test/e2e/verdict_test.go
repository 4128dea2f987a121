//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/test/localcluster/install"
)

// passed is condition Passed of a benchmark, now.
func passed(ctx context.Context, b *v1alpha1.LatencyBenchmark) metav1.Condition {
	GinkgoHelper()
	return condition(get(ctx, b), v1alpha1.ConditionPassed)
}

// setRules replaces the rules of a benchmark.
func setRules(ctx context.Context, b *v1alpha1.LatencyBenchmark, rules ...v1alpha1.GateRule) {
	GinkgoHelper()
	Eventually(func() error {
		current := get(ctx, b)
		current.Spec.Criteria.Rules = rules
		return kube.Update(ctx, current)
	}).WithTimeout(soon).Should(Succeed())
}

var _ = Describe("A gate", Label("measurement"), func() {
	It("passes the sample of the documentation, within limits that no load of the machine reaches, and kubectl waits for it", func(ctx context.Context) {
		b := sample("gated.yaml", 500*time.Millisecond, 100*time.Millisecond)
		// Two nodes share few CPUs here, so that neither 1 ms nor 5 % can be promised.
		b.Spec.Criteria.Rules[0].Max, b.Spec.Criteria.Rules[1].MaxIncrease = "100ms", "300%"
		create(ctx, b)
		// Twelve runs, or twenty-four if the machine was noisy, of some four seconds each.
		Expect(install.Kubectl(ctx, options, GinkgoWriter, "wait", "-n", namespace, "lb/gated", "--for=condition=Passed", "--timeout=4m")).To(Succeed())
		b = get(ctx, b)
		Expect(report.Table(GinkgoWriter, b)).To(Succeed())
		Expect(b.Status.Verdict.Outcome).To(Equal(v1alpha1.GatePass))
		Expect(b.Status.Verdict.Message).To(HavePrefix("on a simulated NIC: "), "a Pass of the local cluster says on what")
		spin := b.Status.Verdict.Rules[1]
		Expect(spin.Variant).To(Equal("spin"))
		Expect(spin.BaselineRounds).To(Equal(spin.CandidateRounds))
		Expect(spin.CandidateRounds).To(Equal(b.Spec.Rounds + b.Status.ExtendedRounds))
		pods := len(b.Status.Attempts)

		By("a rule that does not hold, judged without measuring")
		// Of one variant: the six rounds of two, looked at twice, are too few for a Fail.
		setRules(ctx, b, v1alpha1.GateRule{Metric: v1alpha1.MetricP50, Variants: []string{"spin"}, Max: "1us"})
		Eventually(passed).WithArguments(ctx, b).WithTimeout(soon).Should(HaveField("Reason", v1alpha1.ReasonFail))
		By("a percentile that these rounds cannot tell")
		setRules(ctx, b, v1alpha1.GateRule{Metric: v1alpha1.MetricP99999, Max: "1s"})
		Eventually(passed).WithArguments(ctx, b).WithTimeout(soon).Should(And(
			HaveField("Reason", v1alpha1.ReasonInconclusive), HaveField("Message", ContainSubstring("measure longer"))))
		setRules(ctx, b, v1alpha1.GateRule{Metric: v1alpha1.MetricP50, Max: "1s"})
		Eventually(passed).WithArguments(ctx, b).WithTimeout(soon).Should(HaveField("Status", metav1.ConditionTrue))

		By("a stored result that somebody deletes")
		Expect(kube.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: b.Status.Stored[0].ConfigMap}})).To(Succeed())
		Eventually(passed).WithArguments(ctx, b).WithTimeout(soon).Should(And(
			HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", v1alpha1.ReasonResultsMissing)))
		Expect(get(ctx, b).Status.Attempts).To(HaveLen(pods))
		Eventually(benchmarkPods).WithArguments(ctx).WithTimeout(soon).Should(BeEmpty())
	})

	It("compares with another benchmark, which may come later, and not with one that was measured otherwise", func(ctx context.Context) {
		short := func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Tool, s.Rounds = v1alpha1.ToolPinger, 4
			s.Workload.Duration, s.Workload.Warmup = metav1.Duration{Duration: time.Second}, metav1.Duration{Duration: 100 * time.Millisecond}
		}
		after := benchmark("after", short, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Criteria = &v1alpha1.Criteria{
				// So wide that a noisy machine stays within it: what is tested here is who is compared with whom.
				Rules:    []v1alpha1.GateRule{{Metric: v1alpha1.MetricP50, MaxIncrease: "900%"}},
				Baseline: &v1alpha1.Baseline{BenchmarkRef: &v1alpha1.ObjectName{Name: "before"}},
			}
		})
		create(ctx, after)
		eventuallyCompletes(ctx, after)
		Eventually(passed).WithArguments(ctx, after).WithTimeout(soon).Should(HaveField("Reason", v1alpha1.ReasonBaselineMissing))

		before := benchmark("before", short)
		create(ctx, before)
		eventuallyCompletes(ctx, before)
		Eventually(passed).WithArguments(ctx, after).WithTimeout(soon).Should(HaveField("Reason", v1alpha1.ReasonPass))

		By("a baseline that was measured for longer")
		Expect(kube.Delete(ctx, before, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(passed).WithArguments(ctx, after).WithTimeout(soon).Should(HaveField("Reason", v1alpha1.ReasonBaselineMissing))
		Eventually(func() error { return kube.Get(ctx, client.ObjectKeyFromObject(before), &v1alpha1.LatencyBenchmark{}) }).
			WithTimeout(soon).ShouldNot(Succeed())
		before = benchmark("before", short, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Workload.Duration.Duration *= 2
			s.Rounds = 1 // which are too few as well, but it is not the number of rounds that is told
		})
		create(ctx, before)
		eventuallyCompletes(ctx, before)
		Eventually(passed).WithArguments(ctx, after).WithTimeout(soon).Should(And(
			HaveField("Reason", v1alpha1.ReasonInconclusive), HaveField("Message", ContainSubstring("cell.tcp-64.duration"))))
	})
})
