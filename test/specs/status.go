package specs

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Get returns the current version of an object.
func Get[T client.Object](ctx context.Context, o T) T {
	GinkgoHelper()
	current := reflect.New(reflect.TypeOf(o).Elem()).Interface().(T)
	Expect(suite.Client.Get(ctx, client.ObjectKeyFromObject(o), current)).To(Succeed())
	return current
}

// Edit changes an object as a user does.
func Edit[T client.Object](ctx context.Context, o T, change func(T)) {
	GinkgoHelper()
	suite.Write(func() error {
		current := Get(ctx, o)
		change(current)
		return suite.Client.Update(ctx, current)
	})
}

// Condition returns a condition as "status reason: message".
func Condition(ctx context.Context, o client.Object, conditionType string) string {
	GinkgoHelper()
	c := meta.FindStatusCondition(Overview(Get(ctx, o)).Status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// Overview returns a benchmark, or the fields that a matrix has in common with one.
func Overview(o client.Object) *v1alpha1.LatencyBenchmark {
	if m, ok := o.(*v1alpha1.LatencyMatrix); ok {
		return m.Overview()
	}
	return o.(*v1alpha1.LatencyBenchmark)
}

// ExpectSucceeded waits until condition Succeeded matches a regular expression.
func ExpectSucceeded(ctx context.Context, b client.Object, pattern string) {
	GinkgoHelper()
	suite.Await(func() string { return Condition(ctx, b, v1alpha1.ConditionSucceeded) }, MatchRegexp(pattern))
}

// ExpectAccepted waits until condition Accepted matches a regular expression.
func ExpectAccepted(ctx context.Context, b client.Object, pattern string) {
	GinkgoHelper()
	suite.Await(func() string { return Condition(ctx, b, v1alpha1.ConditionAccepted) }, MatchRegexp(pattern))
}

// ExpectPassed waits until condition Passed matches a regular expression.
func ExpectPassed(ctx context.Context, b client.Object, pattern string) {
	GinkgoHelper()
	suite.Await(func() string { return Condition(ctx, b, v1alpha1.ConditionPassed) }, MatchRegexp(pattern))
}

// ExpectMeasured waits, for many runs, until condition Succeeded matches a regular expression.
func ExpectMeasured(ctx context.Context, b client.Object, pattern string) {
	GinkgoHelper()
	suite.Await(func() string { return Condition(ctx, b, v1alpha1.ConditionSucceeded) }, MatchRegexp(pattern))
}

// Attempts lists the finished attempts, as "run aN reason".
func Attempts(ctx context.Context, b *v1alpha1.LatencyBenchmark) []string {
	GinkgoHelper()
	all := []string{}
	for _, a := range Get(ctx, b).Status.Attempts {
		all = append(all, fmt.Sprintf("%s a%d %s", a.Run, a.Attempt, a.Outcome.Reason))
	}
	return all
}

// Reasons returns the outcomes and reasons of the verdict's rules.
func Reasons(ctx context.Context, b *v1alpha1.LatencyBenchmark) []string {
	GinkgoHelper()
	var all []string
	if v := Get(ctx, b).Status.Verdict; v != nil {
		for _, r := range v.Rules {
			all = append(all, fmt.Sprintf("%s %s", r.Outcome, r.Reason))
		}
	}
	return all
}

// PodsLeft lists the benchmark's pods.
func PodsLeft(ctx context.Context, b *v1alpha1.LatencyBenchmark) []corev1.Pod {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(suite.Client.List(ctx, list, client.InNamespace(b.Namespace), client.MatchingLabels{v1alpha1.LabelBenchmark: b.Name})).To(Succeed())
	return list.Items
}

// StoredRuns returns the stored results that a benchmark's status lists.
func StoredRuns(ctx context.Context, b *v1alpha1.LatencyBenchmark) []result.Stored {
	GinkgoHelper()
	var runs []result.Stored
	for _, named := range Get(ctx, b).Status.Stored {
		cm := &corev1.ConfigMap{}
		Expect(suite.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: named.ConfigMap}, cm)).To(Succeed())
		stored, err := result.Open(cm, named)
		Expect(err).NotTo(HaveOccurred())
		runs = append(runs, stored)
	}
	return runs
}

// ConfigMaps lists the benchmark's ConfigMaps.
func ConfigMaps(ctx context.Context, b *v1alpha1.LatencyBenchmark) []corev1.ConfigMap {
	GinkgoHelper()
	list := &corev1.ConfigMapList{}
	Expect(suite.Client.List(ctx, list, client.InNamespace(b.Namespace), client.MatchingLabels{v1alpha1.LabelBenchmark: b.Name})).To(Succeed())
	return list.Items
}

// IsGone returns a function that reports whether a benchmark does not exist.
func IsGone(ctx context.Context, b client.Object) func() bool {
	return func() bool {
		return apierrors.IsNotFound(suite.Client.Get(ctx, client.ObjectKeyFromObject(b), b.DeepCopyObject().(client.Object)))
	}
}

// Children returns the benchmarks of the pairs, by name.
func Children(ctx context.Context, b *v1alpha1.LatencyMatrix) map[string]v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	list := &v1alpha1.LatencyBenchmarkList{}
	Expect(suite.Client.List(ctx, list, client.InNamespace(b.Namespace), client.MatchingLabels{v1alpha1.LabelMatrix: b.Name})).To(Succeed())
	all := map[string]v1alpha1.LatencyBenchmark{}
	for _, child := range list.Items {
		all[child.Name] = child
	}
	return all
}

// Child waits for the benchmark of a pair.
func Child(ctx context.Context, b *v1alpha1.LatencyMatrix, number int32) *v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	c := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.PairName(number)}}
	suite.Await(func() error { return suite.Client.Get(ctx, client.ObjectKeyFromObject(c), c) }, Succeed())
	return c
}

// ToldOf returns the events about a benchmark, as "type reason: note".
func ToldOf(ctx context.Context, b client.Object) ([]string, error) {
	list := &eventsv1.EventList{}
	err := suite.Client.List(ctx, list, client.InNamespace(b.GetNamespace()))
	var all []string
	for _, e := range list.Items {
		if e.Regarding.UID == b.GetUID() {
			all = append(all, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Note))
		}
	}
	return all, err
}

// PassedEvents returns the events about condition Passed in a namespace.
func PassedEvents(ctx context.Context, namespace string) ([]string, error) {
	list := &eventsv1.EventList{}
	err := suite.Client.List(ctx, list, client.InNamespace(namespace))
	var all []string
	for _, e := range list.Items {
		if e.Action == v1alpha1.ConditionPassed {
			all = append(all, e.Type+" "+e.Reason)
		}
	}
	return all, err
}

// SetCriteria changes the rules of a benchmark as a user does.
func SetCriteria(ctx context.Context, b *v1alpha1.LatencyBenchmark, change func(*v1alpha1.LatencyBenchmarkSpec)) {
	GinkgoHelper()
	Edit(ctx, b, func(b *v1alpha1.LatencyBenchmark) { change(&b.Spec) })
}

// Scrape returns the metrics as Prometheus would read them, one series per line.
func Scrape(registry prometheus.Gatherer) []string {
	GinkgoHelper()
	families, err := registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	var text bytes.Buffer
	for _, family := range families {
		_, err := expfmt.MetricFamilyToText(&text, family)
		Expect(err).NotTo(HaveOccurred())
	}
	return strings.Split(text.String(), "\n")
}
