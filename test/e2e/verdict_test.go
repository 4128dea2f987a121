//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/docs"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

var _ = Describe("A verdict", Label("measurement"), func() {
	It("does not pass a wire that is slow in a third of the rounds", Serial, needs("a cable to slow down"), func(ctx context.Context) {
		overVFs := func(s *v1alpha1.LatencyBenchmarkSpec) { s.Network = vfs() }
		fast := benchmark("fast", overVFs)
		create(ctx, fast)
		least := *eventuallyCompletes(ctx, fast).Status.Results[0].MinNanoseconds
		limit := v1alpha1.Limit{Text: (3 * time.Duration(least)).String()}
		b := benchmark("sometimes-slow", overVFs, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Rounds, s.MaxRounds = 6, 12
			s.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricMin, Max: limit}}}
		})
		DeferCleanup(func() error { return localcluster.RestoreCable(options) })
		// The first time, the detour is built, which may take longer than the pause between two rounds.
		Expect(localcluster.SlowCable(options)).To(Succeed())
		Expect(localcluster.RestoreCable(options)).To(Succeed())
		create(ctx, b)
		slow := false
		Eventually(func() metav1.ConditionStatus {
			fresh := get(ctx, b)
			if third := len(fresh.Status.Stored)%3 == 2; third != slow {
				slow = third
				if slow {
					Expect(localcluster.SlowCable(options)).To(Succeed())
				} else {
					Expect(localcluster.RestoreCable(options)).To(Succeed())
				}
			}
			return condition(fresh, v1alpha1.ConditionSucceeded).Status
		}).WithTimeout(2 * measured).WithPolling(100 * time.Millisecond).Should(Equal(metav1.ConditionTrue))
		Eventually(func() string { return condition(get(ctx, b), v1alpha1.ConditionPassed).Reason }).WithTimeout(soon).Should(Equal(v1alpha1.ReasonInconclusive))
		rule := get(ctx, b).Status.Verdict.Rules[0]
		AddReportEntry(rule.Message)
		Expect(rule.Reason).To(BeElementOf(v1alpha1.ReasonSlowRounds, v1alpha1.ReasonLimitInsideBounds))
		Expect(rule.RoundsBeyond).To(BeNumerically(">=", 2), "the slow rounds")
		Expect(rule.RoundsBeyond).To(BeNumerically("<=", rule.CandidateRounds/2), "the others are within the limit")
	})

	It("of the example of the local cluster's page fails with the limit that its comment proposes", Serial, needs("the networks of make demo"), func(ctx context.Context) {
		pages, err := docs.Pages(root)
		Expect(err).NotTo(HaveOccurred())
		page := pages[slices.IndexFunc(pages, func(p docs.Page) bool { return p.Path == "docs/local-cluster.md" })]
		example := page.Steps[slices.IndexFunc(page.Steps, func(s docs.Step) bool { return s.File == "pod-and-vf.yaml" })].Text
		Expect(example).To(ContainSubstring("1us fails"))
		b := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(strings.Replace(example, "max: 5ms", "max: 1us", 1)), b)).To(Succeed())
		b.SetNamespace(namespace)
		Expect(kube.Create(ctx, b)).To(Succeed())
		of := benchmark(b.GetName())
		// Six rounds of two variants.
		Eventually(func() string { return condition(get(ctx, of), v1alpha1.ConditionSucceeded).Reason }).WithTimeout(3 * measured).Should(Equal(v1alpha1.ReasonComplete))
		Eventually(func() metav1.Condition { return condition(get(ctx, of), v1alpha1.ConditionPassed) }).WithTimeout(soon).Should(HaveField("Status", metav1.ConditionFalse))
	})
})
