package pods

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// After an intended change: go test ./internal/pods -update, and review the diff.
func TestInspectGolden(t *testing.T) {
	base := Inspection{
		Namespace: "perf", Name: "tailgate-doctor-x-1", Call: "x", Node: "a", Image: "bench:v1", PullPolicy: corev1.PullIfNotPresent, Deadline: 3 * time.Minute,
	}
	whole := base
	whole.CPUs, whole.Named, whole.Devices = 1, true, []string{"amd.com/sf_vf"}
	whole.Network = &foreign.Selection{Namespace: "perf", Name: "sf-vf", Interface: Interface}
	like := base
	like.CPUs, like.Peer = 2, "192.168.40.7"
	like.Benchmark = &v1alpha1.LatencyBenchmark{Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{Pods: &v1alpha1.PodSettings{
		RuntimeClassName: "performance", PriorityClassName: "latency", Annotations: map[string]string{"cpu-quota.crio.io": "disable"},
		Tolerations: []corev1.Toleration{{Key: "latency", Operator: corev1.TolerationOpExists}},
		Hugepages:   &v1alpha1.Hugepages{Size: "2Mi", Amount: resource.MustParse("8Mi")},
	}}}}
	like.Benchmark.Spec.Placement.Memory = resource.MustParse("256Mi")
	for name, i := range map[string]Inspection{"inspect-shared": base, "inspect-network": whole, "inspect-like": like} {
		got, err := yaml.Marshal(Inspect(i))
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name+".yaml", string(got))
	}
}
