package pods

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

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
	for name, i := range map[string]Inspection{"inspect-shared": base, "inspect-network": whole} {
		pod, err := Inspect(i)
		if err != nil {
			t.Fatal(err)
		}
		got, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name+".yaml", string(got))
	}
}
