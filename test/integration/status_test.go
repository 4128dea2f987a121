package integration

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// condition returns a condition as "status reason: message".
func condition(ctx context.Context, b *v1alpha1.LatencyBenchmark, conditionType string) string {
	GinkgoHelper()
	c := meta.FindStatusCondition(Get(ctx, b).Status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// ExpectSucceeded waits until condition Succeeded says something, given as a regular expression.
func ExpectSucceeded(ctx context.Context, b *v1alpha1.LatencyBenchmark, pattern string) {
	GinkgoHelper()
	Eventually(func() string { return condition(ctx, b, v1alpha1.ConditionSucceeded) }).Should(MatchRegexp(pattern))
}

// ExpectAccepted is the same for condition Accepted.
func ExpectAccepted(ctx context.Context, b *v1alpha1.LatencyBenchmark, pattern string) {
	GinkgoHelper()
	Eventually(func() string { return condition(ctx, b, v1alpha1.ConditionAccepted) }).Should(MatchRegexp(pattern))
}

// ExpectPassed is the same for condition Passed.
func ExpectPassed(ctx context.Context, b *v1alpha1.LatencyBenchmark, pattern string) {
	GinkgoHelper()
	Eventually(func() string { return condition(ctx, b, v1alpha1.ConditionPassed) }).Should(MatchRegexp(pattern))
}

// attempts lists the finished attempts, as "run aN reason".
func attempts(ctx context.Context, b *v1alpha1.LatencyBenchmark) []string {
	GinkgoHelper()
	all := []string{}
	for _, a := range Get(ctx, b).Status.Attempts {
		all = append(all, fmt.Sprintf("%s a%d %s", a.Run, a.Attempt, a.Outcome.Reason))
	}
	return all
}

// podsLeft lists the benchmark's pods.
func podsLeft(ctx context.Context, b *v1alpha1.LatencyBenchmark) []corev1.Pod {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(k8s.List(ctx, list, client.InNamespace(b.Namespace), client.MatchingLabels{v1alpha1.LabelBenchmark: b.Name})).To(Succeed())
	return list.Items
}

// configMaps lists what is stored of the benchmark.
func configMaps(ctx context.Context, b *v1alpha1.LatencyBenchmark) []corev1.ConfigMap {
	GinkgoHelper()
	list := &corev1.ConfigMapList{}
	Expect(k8s.List(ctx, list, client.InNamespace(b.Namespace), client.MatchingLabels{v1alpha1.LabelBenchmark: b.Name})).To(Succeed())
	return list.Items
}
