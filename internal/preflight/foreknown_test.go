package preflight

import (
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

func TestForeknown(t *testing.T) {
	const several = "datagrams of more than 1472 bytes need several packets (MTU 1500)"
	size := func(bytes int32) func(*v1alpha1.LatencyBenchmarkSpec) {
		return func(s *v1alpha1.LatencyBenchmarkSpec) { s.Workload.MessageSizes = []int32{64, bytes} }
	}
	jumbo := func(s *v1alpha1.LatencyBenchmarkSpec) {
		s.Network.VF = &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{MTU: 9000}}
	}
	for name, c := range map[string]struct {
		change []func(*v1alpha1.LatencyBenchmarkSpec)
		// want contains parts of the entries, in order.
		want []string
	}{
		"small datagrams":                {},
		"the largest that is one packet": {change: []func(*v1alpha1.LatencyBenchmarkSpec){size(1472)}},
		"several packets":                {[]func(*v1alpha1.LatencyBenchmarkSpec){size(1473)}, []string{"variant default: unless the interface has a larger MTU, " + several}},
		"several packets of a known MTU": {[]func(*v1alpha1.LatencyBenchmarkSpec){size(8973), jumbo},
			[]string{"variant default: datagrams of more than 8972 bytes need several packets (MTU 9000)"}},
		"jumbo frames": {change: []func(*v1alpha1.LatencyBenchmarkSpec){size(8972), jumbo}},
		"TCP": {change: []func(*v1alpha1.LatencyBenchmarkSpec){size(8000), func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Workload.Protocols = []v1alpha1.Protocol{v1alpha1.ProtocolTCP}
		}}},
		"the kernel": {change: []func(*v1alpha1.LatencyBenchmarkSpec){size(8000), func(s *v1alpha1.LatencyBenchmarkSpec) { s.Acceleration = nil }}},
		"one of two variants, and its capture": {[]func(*v1alpha1.LatencyBenchmarkSpec){size(8000), func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Variants = []v1alpha1.Variant{{Name: "kernel", Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationKernel}}, {Name: "onload", Capture: v1alpha1.CaptureServer}}
		}}, []string{"variant onload: unless", "variant onload: capture"}},
		"off for datagrams": {[]func(*v1alpha1.LatencyBenchmarkSpec){func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Pods = &v1alpha1.PodSettings{Env: []v1alpha1.EnvVar{{Name: "EF_UDP", Value: "0"}}}
		}}, []string{"variant default: its env disables Onload"}},
		"off for TCP, which is not measured": {change: []func(*v1alpha1.LatencyBenchmarkSpec){func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Pods = &v1alpha1.PodSettings{Env: []v1alpha1.EnvVar{{Name: "EF_TCP", Value: "0"}}}
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.LatencyBenchmarkSpec{
				Tool: v1alpha1.ToolPinger, Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload},
				Workload: v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, MessageSizes: []int32{64}},
			}
			for _, change := range c.change {
				change(&spec)
			}
			got := Foreknown(spec)
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("got %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}
