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
	referred := func(s *v1alpha1.LatencyBenchmarkSpec) {
		s.Acceleration.Onload = &v1alpha1.Onload{ProfileRef: &v1alpha1.ObjectName{Name: "mine"}}
	}
	env := func(name, value string) func(*v1alpha1.LatencyBenchmarkSpec) {
		return func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Pods = &v1alpha1.PodSettings{Env: []v1alpha1.EnvVar{{Name: name, Value: value}}}
		}
	}
	for name, c := range map[string]struct {
		change []func(*v1alpha1.LatencyBenchmarkSpec)
		// profile is the data of the ConfigMap to which the variant refers.
		profile map[string]string
		// want contains parts of the entries, in order.
		want []string
	}{
		"small datagrams":                {},
		"the largest that is one packet": {change: []func(*v1alpha1.LatencyBenchmarkSpec){size(1472)}},
		"several packets":                {change: []func(*v1alpha1.LatencyBenchmarkSpec){size(1473)}, want: []string{"variant default: unless the interface has a larger MTU, " + several}},
		"several packets of a known MTU": {change: []func(*v1alpha1.LatencyBenchmarkSpec){size(8973), jumbo},
			want: []string{"variant default: datagrams of more than 8972 bytes need several packets (MTU 9000)"}},
		"jumbo frames": {change: []func(*v1alpha1.LatencyBenchmarkSpec){size(8972), jumbo}},
		"TCP": {change: []func(*v1alpha1.LatencyBenchmarkSpec){size(8000), func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Workload.Protocols = []v1alpha1.Protocol{v1alpha1.ProtocolTCP}
		}}},
		"the kernel": {change: []func(*v1alpha1.LatencyBenchmarkSpec){size(8000), func(s *v1alpha1.LatencyBenchmarkSpec) { s.Acceleration = nil }}},
		"one of two variants, and its capture": {change: []func(*v1alpha1.LatencyBenchmarkSpec){size(8000), func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Variants = []v1alpha1.Variant{{Name: "kernel", Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationKernel}}, {Name: "onload", Capture: v1alpha1.CaptureServer}}
		}}, want: []string{"variant onload: unless", "variant onload: capture"}},
		"off for datagrams": {change: []func(*v1alpha1.LatencyBenchmarkSpec){func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Pods = &v1alpha1.PodSettings{Env: []v1alpha1.EnvVar{{Name: "EF_UDP", Value: "0"}}}
		}}, want: []string{"variant default: its profile or env disables Onload"}},
		// AMD's scripts/onload_profiles/cloud.opf.
		"off in the profile": {
			change: []func(*v1alpha1.LatencyBenchmarkSpec){referred}, profile: map[string]string{"EF_UDP": "0", "EF_TCP_SERVER_LOOPBACK": "0"},
			want: []string{"variant default: its profile or env disables Onload"},
		},
		"on again in the env": {
			change: []func(*v1alpha1.LatencyBenchmarkSpec){referred, env("EF_UDP", "1")}, profile: map[string]string{"EF_UDP": "0"},
		},
		"off for all":           {change: []func(*v1alpha1.LatencyBenchmarkSpec){env("EF_DONT_ACCELERATE", "1")}, want: []string{"variant default: its profile or env disables Onload"}},
		"a value without sense": {change: []func(*v1alpha1.LatencyBenchmarkSpec){env("EF_POLL_USEC", "abc")}, want: []string{`variant default: env EF_POLL_USEC: "abc" is not a decimal number`}},
		"values with sense":     {change: []func(*v1alpha1.LatencyBenchmarkSpec){env("EF_POLL_USEC", "-1"), env("EF_CTPIO_MODE", "ct")}},
		"another program's":     {change: []func(*v1alpha1.LatencyBenchmarkSpec){env("SFNT_MODE", "abc")}},

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
			got := Foreknown(spec, map[string]*Profile{"default": {Name: "mine", Found: true, Data: c.profile}})
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
