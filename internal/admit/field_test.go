package admit

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tailgate-dev/tailgate/test/field"
)

// Cases of Onload (test/field).
func TestFieldOnload(t *testing.T) {
	field.Run(t, "onload", "internal/admit", func(t *testing.T, c field.Case) map[string]string {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tailgate.dev/v1alpha1", "kind": "LatencyBenchmark", "metadata": map[string]any{"name": "x", "namespace": "perf"},
			"spec": map[string]any{
				"tool": "pinger", "workload": map[string]any{"protocols": []any{"TCP"}, "messageSizes": []any{int64(64)}, "duration": "1s"},
				"placement":    map[string]any{"client": map[string]any{}, "server": map[string]any{}},
				"network":      map[string]any{"type": "VF", "vf": map[string]any{"resourceName": "amd.com/sf_vf", "networkRef": map[string]any{"name": "sf"}}},
				"acceleration": map[string]any{"type": "Onload", "onload": map[string]any{"resourceName": "amd.com/onload", "library": c.Arguments["library"]}},
			},
		}}
		if err := Object(t.Context(), u); err != nil {
			return map[string]string{"refused": err.Error()}
		}
		return map[string]string{"refused": ""}
	})
}
