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
	"github.com/tailgate-dev/tailgate/internal/result"
)

// condition returns a condition as "status reason: message".
func condition(ctx context.Context, o client.Object, conditionType string) string {
	GinkgoHelper()
	c := meta.FindStatusCondition(overview(Get(ctx, o)).Status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// overview returns a benchmark, or the fields that a matrix has in common with one.
func overview(o client.Object) *v1alpha1.LatencyBenchmark {
	if m, ok := o.(*v1alpha1.LatencyMatrix); ok {
		return m.Overview()
	}
	return o.(*v1alpha1.LatencyBenchmark)
}

// ExpectSucceeded waits until condition Succeeded matches a regular expression.
func ExpectSucceeded(ctx context.Context, b client.Object, pattern string) {
	GinkgoHelper()
	Eventually(func() string { return condition(ctx, b, v1alpha1.ConditionSucceeded) }).Should(MatchRegexp(pattern))
}

// ExpectAccepted waits until condition Accepted matches a regular expression.
func ExpectAccepted(ctx context.Context, b client.Object, pattern string) {
	GinkgoHelper()
	Eventually(func() string { return condition(ctx, b, v1alpha1.ConditionAccepted) }).Should(MatchRegexp(pattern))
}

// ExpectPassed waits until condition Passed matches a regular expression.
func ExpectPassed(ctx context.Context, b client.Object, pattern string) {
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

// storedRuns returns the stored results that a benchmark's status lists.
func storedRuns(ctx context.Context, b *v1alpha1.LatencyBenchmark) []result.Stored {
	GinkgoHelper()
	var runs []result.Stored
	for _, named := range Get(ctx, b).Status.Stored {
		cm := &corev1.ConfigMap{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: named.ConfigMap}, cm)).To(Succeed())
		stored, err := result.Open(cm, named)
		Expect(err).NotTo(HaveOccurred())
		runs = append(runs, stored)
	}
	return runs
}

// configMaps lists the benchmark's ConfigMaps.
func configMaps(ctx context.Context, b *v1alpha1.LatencyBenchmark) []corev1.ConfigMap {
	GinkgoHelper()
	list := &corev1.ConfigMapList{}
	Expect(k8s.List(ctx, list, client.InNamespace(b.Namespace), client.MatchingLabels{v1alpha1.LabelBenchmark: b.Name})).To(Succeed())
	return list.Items
}
