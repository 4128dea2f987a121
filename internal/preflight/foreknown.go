package preflight

import (
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// usualMTU is the assumed MTU of an interface whose MTU the spec does not set.
const usualMTU = 1500

// Foreknown lists facts about the results of a spec that are known before anything is measured, given that the spec can be
// carried out: the traffic that Onload does not carry although a variant requests it.
func Foreknown(spec v1alpha1.LatencyBenchmarkSpec) []string {
	var all []string
	for _, v := range plan.Variants(spec) {
		if v.Acceleration.Type != v1alpha1.AccelerationOnload {
			continue
		}
		add := func(format string, args ...any) {
			all = append(all, fmt.Sprintf("variant %s: "+format, append([]any{v.Name}, args...)...))
		}
		mtu, unless := v.Network.MTU(), ""
		if mtu == 0 {
			mtu, unless = usualMTU, "unless the interface has a larger MTU, "
		}
		var stream, datagrams bool
		largest := int32(0)
		for _, c := range plan.Cells(spec, v) {
			if c.Protocol == v1alpha1.ProtocolTCP {
				stream = true
				continue
			}
			datagrams, largest = true, max(largest, c.MessageSize)
		}
		if largest > mtu-tool.DatagramHeaders {
			add("%sdatagrams of more than %d bytes need several packets (MTU %d), which Onload does not receive itself, so that the proof will be Partly",
				unless, mtu-tool.DatagramHeaders, mtu)
		}
		off := func(name string) bool { return slices.Contains(v.Env, v1alpha1.EnvVar{Name: name, Value: "0"}) }
		if stream && off("EF_TCP") || datagrams && off("EF_UDP") {
			add("its env disables Onload (EF_TCP=0 or EF_UDP=0), so that the proof will be Failed")
		}
		if v.Capture == v1alpha1.CaptureServer {
			add("capture sees only packets of the kernel, not those of Onload")
		}
	}
	return all
}
