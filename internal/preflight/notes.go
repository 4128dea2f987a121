package preflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// Labels that node-feature-discovery sets on nodes.
const (
	labelThreads = "feature.node.kubernetes.io/cpu-hardware_multithreading"
	labelNUMA    = "feature.node.kubernetes.io/memory-numa"
)

// Notes lists what the proof may not show for a benchmark of a pair with these CPUs, with remedies.
func Notes(o Observed, pair v1alpha1.Pair, cpus v1alpha1.EndpointCPUs) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	ends := []struct{ role, node string }{{v1alpha1.RoleClient, pair.ClientNode}, {v1alpha1.RoleServer, pair.ServerNode}}
	var odd []string
	for _, end := range ends {
		if n := cpus.Of(end.role); n%wholeCore != 0 && !o.labelled(end.node, labelThreads, "false") {
			odd = append(odd, fmt.Sprintf("%d for the %s", n, end.role))
		}
	}
	if odd != nil {
		add("placement.cpus is %s: on nodes with SMT other pods may use the other thread of a core (SMTSiblings), and kubelets with full-pcpus-only reject such pods; an even number avoids both",
			strings.Join(odd, " and "))
	}
	for _, n := range o.Nodes {
		measured := n.Name == pair.ClientNode || n.Name == pair.ServerNode
		switch {
		case !measured || mountsImages(n):
		case o.Benchmark.Spec.Custom != nil:
			add("node %s has kubelet %s, which mounts the image with the agent only with feature gate ImageVolume, and not before v1.33: upgrade it",
				n.Name, n.Status.NodeInfo.KubeletVersion)
		case o.SfnettestImage != "" && o.Benchmark.Spec.Tool.OfSfnettest():
			add("node %s has kubelet %s, which mounts --sfnettest-image only with feature gate ImageVolume, and not before v1.33: upgrade it, or use a bench image that has %s",
				n.Name, n.Status.NodeInfo.KubeletVersion, o.Benchmark.Spec.Tool)
		}
	}
	if names := strings.Join(tails(o.Benchmark.Spec.Criteria), ", "); names != "" {
		if w := o.Benchmark.Spec.Workload; w.RatesPerSecond == nil && (w.MessageSizes != nil || w.Streams == nil) {
			add("the rule on %s is of ping-pong, where a stall is one slow sample, however many messages an application would have sent meanwhile: workload.ratesPerSecond counts each of them", names)
		}
		if o.Benchmark.Spec.LatencyType == v1alpha1.LatencyHalfRTT {
			add("the rule on %s is of half round trips, which halve the stall of one end: latencyType RTT shows it whole", names)
		}
	}
	for _, v := range plan.Variants(o.Benchmark.Spec) {
		matters, away := false, false
		for _, end := range ends {
			policy := o.Benchmark.Spec.Placement.NUMAPolicyOf(v, end.role)
			matters = matters || policy != v1alpha1.NUMAIgnore
			away = away || policy == v1alpha1.NUMARequired || policy == v1alpha1.NUMAPreferred && o.labelled(end.node, labelNUMA, "true")
		}
		t := v.Network.Type
		if w := o.Benchmark.Spec.Workload; tool.Unnumbered(o.Benchmark.Spec.Tool) && (w.MessageSizes != nil || w.Streams == nil) &&
			slices.ContainsFunc(w.Protocols, func(p v1alpha1.Protocol) bool { return p != v1alpha1.ProtocolTCP }) &&
			(t == v1alpha1.NetworkHost || v.Acceleration.Type == v1alpha1.AccelerationOnload) {
			add("variant %s: the messages of %s have no numbers, and the kernel's counters do not show there whether datagrams arrive twice (MessagesOnce), so that there is no verdict: measure UDP and Multicast with pinger, or TCP",
				v.Name, o.Benchmark.Spec.Tool)
		}
		if slices.Contains(o.Claimed, v.Network.ResourceName()) && matters {
			add("variant %s: Dynamic Resource Allocation provides %s, and the kubelet's topology manager does not align its devices with CPUs, so that the CPUs may be on another NUMA node (NUMALocal): reserve the CPUs of the other NUMA nodes (reservedSystemCPUs)",
				v.Name, v.Network.ResourceName())
		}
		if t != v1alpha1.NetworkHost && t != v1alpha1.NetworkNAD {
			continue
		}
		if away && v.Network.AlignWith() == "" {
			add("variant %s: the kubelet does not know which NIC network %s uses, so that its CPUs may be on another NUMA node (NUMALocal): set %s.alignWith to a resource of devices of that NIC, or reserve the CPUs of the other NUMA nodes (reservedSystemCPUs)",
				v.Name, t, memberPath(o, v))
		}
		if t == v1alpha1.NetworkNAD {
			add("variant %s: pods with network NAD cannot read the firmware of the NIC, so that an upgrade of it is not noticed: compare it in a variant with network VF or Host", v.Name)
		}
	}
	return notes
}

func tails(c *v1alpha1.Criteria) []string {
	if c == nil {
		return nil
	}
	var all []string
	for _, r := range c.Rules {
		if m := string(r.Metric); strings.HasPrefix(m, "p9") && m != string(v1alpha1.MetricP90) && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}

// mountsImages reports whether a kubelet mounts images by default, or its version is not readable.
func mountsImages(n corev1.Node) bool {
	var minor int
	_, err := fmt.Sscanf(n.Status.NodeInfo.KubeletVersion, "v1.%d", &minor)
	return err != nil || minor >= 35
}

func (o Observed) labelled(node, label, value string) bool {
	return slices.ContainsFunc(o.Nodes, func(n corev1.Node) bool { return n.Name == node && n.Labels[label] == value })
}

const usualMTU = 1500 // of an interface whose MTU the spec does not set

// Foreknown lists facts about a spec's results that are known before anything is measured. profiles are
// those of Observed; nothing is said of one not looked up. together benchmarks are judged together.
func Foreknown(spec v1alpha1.LatencyBenchmarkSpec, together int, profiles map[string]*corev1.ConfigMap) []string {
	var all, switched []string
	for _, v := range plan.Variants(spec) {
		if v.Acceleration.Type != v1alpha1.AccelerationOnload {
			continue
		}
		env, known := settings(v, profiles[v.Name])
		all = append(all, text.Of(carried(spec, v, env), func(note string) string { return fmt.Sprintf("variant %s: %s", v.Name, note) })...)
		if v.Wait == v1alpha1.WaitSpin && onload.Polls(env) {
			all = append(all, fmt.Sprintf("variant %s: with wait: Spin the tool itself polls, by calls that never wait, so that Onload's polling in calls that wait (EF_POLL_USEC, EF_SPIN_USEC) is not measured; "+
				"most published figures of Onload are of calls that wait: set wait: Block", v.Name))
		}
		if known && !onload.Enabled(env[onload.SwitchBypass]) && env["EF_CTPIO"] != "0" {
			switched = append(switched, v.Name)
		}
	}
	all = append(all, text.Of(foresee(spec, together, nil), func(f verdict.Foreseen) string { return f.Says })...)
	if switched != nil {
		all = append(all, fmt.Sprintf("variants with Onload and without %s (%s): with full-feature firmware, which its VFs need, a Solarflare X2 does not send by CTPIO there; "+
			"variants with onload.profile: latency-best measure with CTPIO", onload.SwitchBypass, strings.Join(switched, ", ")))
	}
	return all
}

func settings(v v1alpha1.Variant, profile *corev1.ConfigMap) (env map[string]string, known bool) {
	var data map[string]string
	known = v.Acceleration.OnloadSettings().ProfileRef == nil
	if profile != nil {
		known, data = true, profile.Data
	}
	env, err := onload.Environment(v, data)
	return env, known && err == nil
}

// carried lists a variant's messages that bypass Onload or a capture, and senseless settings.
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

// Planned returns the cells of a spec, and the captured ones, without rounds.
func Planned(spec v1alpha1.LatencyBenchmarkSpec) (all []verdict.Cell) {
	for _, v := range plan.Variants(spec) {
		for _, c := range plan.Cells(spec, v) {
			cell := verdict.Cell{Variant: v.Name, Name: c.Name, Traffic: c.Traffic}
			all = append(all, cell)
			if v.Capture == v1alpha1.CaptureServer && !c.Stream {
				cell.Name += result.CapturedSuffix
				all = append(all, cell)
			}
		}
	}
	return all
}

// foresee returns what rules can show, without those that cannot be parsed; driver may be nil.
func foresee(spec v1alpha1.LatencyBenchmarkSpec, together int, driver tool.Driver) []verdict.Foreseen {
	if spec.Criteria == nil {
		return nil
	}
	in := verdict.Input{Criteria: *spec.Criteria, Candidate: Planned(spec), Together: together, Rounds: int(spec.Rounds), MaxRounds: int(plan.MaxRounds(spec))}
	if spec.Criteria.Against(v1alpha1.BaselineGate) && spec.Criteria.Baseline.Gate == nil {
		in.BaselineRounds = int(min(2*spec.Rounds, 12)) // The first session of a gate's node.
	}
	for i, c := range in.Candidate {
		in.Candidate[i].Uncounted = driver != nil && !strings.HasSuffix(c.Name, result.CapturedSuffix) && !driver.Limits().CountsLost(c.Traffic)
	}
	most := map[string]tool.Cell{}
	for _, v := range plan.Variants(spec) {
		for _, c := range plan.Cells(spec, v) {
			most[c.Name] = c
		}
	}
	all, err := verdict.Foresee(in, func(c verdict.Cell) (int64, bool) {
		cell, measured := most[c.Name]
		if driver == nil || !measured || cell.Stream {
			return 0, false
		}
		return driver.MostSamples(cell)
	})
	if err != nil {
		return nil
	}
	return all
}
