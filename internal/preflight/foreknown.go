package preflight

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// usualMTU is the assumed MTU of an interface whose MTU the spec does not set.
const usualMTU = 1500

// Foreknown lists facts about the results of a spec that are known before anything is measured, given that the spec can be
// carried out: the traffic that Onload does not carry although a variant requests it, settings that Onload will not understand, and how
// Onload polls and sends. The profiles are those of Observed; nothing is said about settings in a ConfigMap that was not looked up.
func Foreknown(spec v1alpha1.LatencyBenchmarkSpec, profiles map[string]*Profile) []string {
	var all, switched []string
	for _, v := range plan.Variants(spec) {
		if v.Acceleration.Type != v1alpha1.AccelerationOnload {
			continue
		}
		env, known := settings(v, profiles[v.Name])
		for _, note := range carried(spec, v, env) {
			all = append(all, fmt.Sprintf("variant %s: %s", v.Name, note))
		}
		if v.Wait == v1alpha1.WaitSpin && onload.Polls(env) {
			all = append(all, fmt.Sprintf("variant %s: with wait: Spin the tool itself polls, by calls that never wait, so that Onload's polling in calls that wait (EF_POLL_USEC, EF_SPIN_USEC) is not measured; "+
				"most published figures of Onload are of calls that wait: set wait: Block", v.Name))
		}
		if known && !onload.Enabled(env[onload.SwitchBypass]) && env["EF_CTPIO"] != "0" {
			switched = append(switched, v.Name)
		}
	}
	for _, f := range foresee(spec, nil) {
		all = append(all, f.Says)
	}
	if switched != nil {
		all = append(all, fmt.Sprintf("variants with Onload and without %s (%s): with full-feature firmware, which its VFs need, a Solarflare X2 does not send by CTPIO there; "+
			"variants with onload.profile: latency-best measure with CTPIO", onload.SwitchBypass, strings.Join(switched, ", ")))
	}
	return all
}

// settings returns the variables of a variant's tools, and whether all are known.
func settings(v v1alpha1.Variant, profile *Profile) (env map[string]string, known bool) {
	var data map[string]string
	known = v.Acceleration.OnloadSettings().ProfileRef == nil
	if profile != nil && profile.Found {
		known, data = true, profile.Data
	}
	env, err := onload.Environment(v, data)
	return env, known && err == nil
}

// carried lists the messages of a variant that Onload does not carry, or that a capture does not see, and settings without sense.
func carried(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, env map[string]string) []string {
	var all []string
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
		all = append(all, fmt.Sprintf("%sdatagrams of more than %d bytes need several packets (MTU %d), which Onload does not receive itself, so that the proof will be Partly",
			unless, mtu-tool.DatagramHeaders, mtu))
	}
	is := func(name string, zero bool) bool {
		n, err := strconv.Atoi(env[name])
		return err == nil && (n == 0) == zero
	}
	if stream && is("EF_TCP", true) || datagrams && is("EF_UDP", true) || is("EF_DONT_ACCELERATE", false) {
		all = append(all, "its profile or env disables Onload (EF_TCP, EF_UDP or EF_DONT_ACCELERATE), so that the proof will be Failed")
	}
	for _, e := range v.Env {
		if onload.Misread(e.Name, e.Value) {
			all = append(all, fmt.Sprintf("env %s: %.80q is not a decimal number, so that Onload will ignore it or read 0", e.Name, e.Value))
		}
	}
	if v.Capture == v1alpha1.CaptureServer {
		all = append(all, "capture sees only packets of the kernel, not those of Onload")
	}
	return all
}
