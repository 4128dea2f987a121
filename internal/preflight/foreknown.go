package preflight

import (
	"fmt"
	"strconv"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// usualMTU is the assumed MTU of an interface whose MTU the spec does not set.
const usualMTU = 1500

// Foreknown lists facts about the results of a spec that are known before anything is measured, given that the spec can be
// carried out: the traffic that Onload does not carry although a variant requests it, and settings that Onload will not understand.
// The profiles are those of Observed, as far as they were read.
func Foreknown(spec v1alpha1.LatencyBenchmarkSpec, profiles map[string]*Profile) []string {
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
		var profile map[string]string
		if p := profiles[v.Name]; p != nil {
			profile = p.Data
		}
		settings, _ := onload.Environment(v, profile) // a profile that is not valid is refused before
		is := func(name string, zero bool) bool {
			n, err := strconv.Atoi(settings[name])
			return err == nil && (n == 0) == zero
		}
		if stream && is("EF_TCP", true) || datagrams && is("EF_UDP", true) || is("EF_DONT_ACCELERATE", false) {
			add("its profile or env disables Onload (EF_TCP, EF_UDP or EF_DONT_ACCELERATE), so that the proof will be Failed")
		}
		for _, e := range v.Env {
			if onload.Misread(e.Name, e.Value) {
				add("env %s: %.80q is not a decimal number, so that Onload will ignore it or read 0", e.Name, e.Value)
			}
		}
		if v.Capture == v1alpha1.CaptureServer {
			add("capture sees only packets of the kernel, not those of Onload")
		}
	}
	return all
}
