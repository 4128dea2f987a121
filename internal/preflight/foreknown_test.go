package preflight

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

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
			change: []func(*v1alpha1.LatencyBenchmarkSpec){referred}, profile: map[string]string{"EF_UDP": "0", "EF_TCP_SERVER_LOOPBACK": "0", "EF_CTPIO_SWITCH_BYPASS": "1"},
			want: []string{"variant default: its profile or env disables Onload"},
		},
		"on again in the env": {
			change: []func(*v1alpha1.LatencyBenchmarkSpec){referred, env("EF_UDP", "1")}, profile: map[string]string{"EF_UDP": "0", "EF_CTPIO_SWITCH_BYPASS": "1"},
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
			spec := v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
				Tool: v1alpha1.ToolPinger, Acceleration: withProfile(v1alpha1.OnloadProfileLatencyBest),
				Workload: v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, MessageSizes: []int32{64}},
			}}
			for _, change := range c.change {
				change(&spec)
			}
			got := Foreknown(spec, 1, map[string]*corev1.ConfigMap{"default": {Data: c.profile}})
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

func withProfile(p v1alpha1.OnloadProfile) *v1alpha1.Acceleration {
	return &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Profile: p}}
}

// What is said about Onload's settings: a tool that polls by itself, and an X2 that does not send by CTPIO.
func TestForeknownSettings(t *testing.T) {
	const (
		polls = "variant %s: with wait: Spin the tool itself polls"
		ctpio = "variants with Onload and without EF_CTPIO_SWITCH_BYPASS (%s): "
	)
	onload := func(name string, wait v1alpha1.WaitMode, a *v1alpha1.Acceleration, env ...string) v1alpha1.Variant {
		v := v1alpha1.Variant{Name: name, Wait: wait, Acceleration: a}
		for _, e := range env {
			key, value, _ := strings.Cut(e, "=")
			v.Env = append(v.Env, v1alpha1.EnvVar{Name: key, Value: value})
		}
		return v
	}
	latency, best := withProfile(v1alpha1.OnloadProfileLatency), withProfile(v1alpha1.OnloadProfileLatencyBest)
	referred := &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{ProfileRef: &v1alpha1.ObjectName{Name: "mine"}}}
	found := func(data map[string]string) map[string]*corev1.ConfigMap {
		return map[string]*corev1.ConfigMap{"v": {Data: data}}
	}
	for name, c := range map[string]struct {
		variants []v1alpha1.Variant
		profiles map[string]*corev1.ConfigMap
		want     []string
	}{
		"the kernel spins":             {variants: []v1alpha1.Variant{{Name: "v", Wait: v1alpha1.WaitSpin}}},
		"latency-best blocks":          {variants: []v1alpha1.Variant{onload("v", "", best)}},
		"latency-best spins":           {variants: []v1alpha1.Variant{onload("v", v1alpha1.WaitSpin, best)}, want: []string{fmt.Sprintf(polls, "v")}},
		"Onload's defaults spin":       {variants: []v1alpha1.Variant{onload("v", v1alpha1.WaitSpin, &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload})}, want: []string{fmt.Sprintf(ctpio, "v")}},
		"a profile that does not poll": {variants: []v1alpha1.Variant{onload("v", v1alpha1.WaitSpin, best, "EF_POLL_USEC=0")}},
		"both ways, one note": {
			variants: []v1alpha1.Variant{onload("vf", "", latency), onload("vf-best", "", best), onload("pf", "", latency), {Name: "kernel"}},
			want:     []string{fmt.Sprintf(ctpio, "vf, pf")},
		},
		"latency with the bypass":          {variants: []v1alpha1.Variant{onload("v", "", latency, "EF_CTPIO_SWITCH_BYPASS=1")}},
		"latency-best without the bypass":  {variants: []v1alpha1.Variant{onload("v", "", best, "EF_CTPIO_SWITCH_BYPASS=0")}, want: []string{fmt.Sprintf(ctpio, "v")}},
		"CTPIO is off on purpose":          {variants: []v1alpha1.Variant{onload("v", "", latency, "EF_CTPIO=0")}},
		"a ConfigMap that was not read":    {variants: []v1alpha1.Variant{onload("v", v1alpha1.WaitSpin, referred)}},
		"a ConfigMap that polls":           {[]v1alpha1.Variant{onload("v", v1alpha1.WaitSpin, referred)}, found(map[string]string{"EF_SPIN_USEC": "50", "EF_UDP_RECV_SPIN": "1", "EF_CTPIO_SWITCH_BYPASS": "1"}), []string{fmt.Sprintf(polls, "v")}},
		"a ConfigMap without the bypass":   {[]v1alpha1.Variant{onload("v", "", referred)}, found(map[string]string{"EF_POLL_USEC": "50"}), []string{fmt.Sprintf(ctpio, "v")}},
		"a ConfigMap that disables Onload": {[]v1alpha1.Variant{onload("v", "", referred)}, found(map[string]string{"EF_UDP": "0", "EF_CTPIO_SWITCH_BYPASS": "1"}), []string{"variant v: its profile or env disables Onload"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Foreknown(v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
				Tool: v1alpha1.ToolPinger, Variants: c.variants,
				Workload: v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, MessageSizes: []int32{64}},
			}}, 1, c.profiles)
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
