package admit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// admits reports whether the API accepts a rule.
func admits(t *testing.T, rule string) bool {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := "apiVersion: tailgate.dev/v1alpha1\nkind: LatencyBenchmark\nmetadata: {name: x, namespace: perf}\n" +
		"spec: {tool: pinger, placement: {client: {}, server: {}}, criteria: {baseline: {type: Benchmark, benchmark: {name: before}}, rules: [{" + rule + "}]}}"
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	err := Object(t.Context(), u)
	if err != nil && !strings.Contains(err.Error(), "spec.criteria.rules[0]") {
		t.Fatalf("%s: %v", rule, err)
	}
	return err == nil
}

// The API's enum of metrics and its CEL rules agree with the table of metrics.
func TestMetricsAgree(t *testing.T) {
	limits := map[string][]string{
		"max": {"10us", "'5'"}, "min": {"9G", "'5'"}, "maxIncrease": {"5%", "'5'"}, "maxDecrease": {"5%", "'5'"},
	}
	for _, k := range v1alpha1.MetricKinds() {
		absolute, change := "max", "maxIncrease"
		if k.LowerIsWorse {
			absolute, change = "min", "maxDecrease"
		}
		want := map[v1alpha1.Unit][]string{
			v1alpha1.UnitNanoseconds:   {absolute + ": 10us", change + ": 5%"},
			v1alpha1.UnitMessages:      {absolute + ": '5'", change + ": '5'"},
			v1alpha1.UnitBitsPerSecond: {absolute + ": 9G", absolute + ": '5'", change + ": 5%"},
		}[k.Unit]
		for field, values := range limits {
			for _, v := range values {
				limit := field + ": " + v
				if got := admits(t, fmt.Sprintf("metric: %s, %s", k.Metric, limit)); got != (!k.NeverJudged && slices.Contains(want, limit)) {
					t.Errorf("metric %s with %s is admitted %v; the table of metrics has %+v", k.Metric, limit, got, k)
				}
			}
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tailgate.dev/v1alpha1", "kind": "LatencyBenchmark", "metadata": map[string]any{"name": "x", "namespace": "perf"},
		"spec": map[string]any{"tool": "pinger", "placement": map[string]any{"client": map[string]any{}, "server": map[string]any{}},
			"criteria": map[string]any{"rules": []any{map[string]any{"metric": "none", "max": "1s"}}}},
	}}
	var names []string
	for _, k := range v1alpha1.MetricKinds() {
		names = append(names, fmt.Sprintf("%q", k.Metric))
	}
	err := Object(t.Context(), u)
	if err == nil {
		t.Fatal("the metric none is admitted")
	}
	_, listed, _ := strings.Cut(err.Error(), "supported values: ")
	if all := strings.Split(listed, ", "); !slices.Equal(slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(names))) {
		t.Errorf("the enum has %s, and the table %s: %v", all, names, err)
	}
}
