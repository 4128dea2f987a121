// Package preflight has the checks before a measurement, an ordered chain of pure functions: whether the
// cluster can provide what a spec requests (Accept). Package proof has the checks after it.
package preflight

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Observed is the input of Accept.
type Observed struct {
	Benchmark *v1alpha1.LatencyBenchmark
	// Driver is of the benchmark's tool. A rejection names the Tools that support a cell.
	Driver tool.Driver
	Tools  tool.Registry
	Nodes  []corev1.Node
	// Networks are the variants' NetworkAttachmentDefinitions, by variant, also the operator's own.
	Networks map[string]*NetworkDefinition
	// Profiles are the ConfigMaps of profileRef, by variant; nil: it does not exist.
	Profiles map[string]*corev1.ConfigMap
	// NodeStates and Topologies are agents' reports by node, if the cluster has such agents.
	NodeStates map[string]foreign.SriovNetworkNodeState
	Topologies map[string]foreign.NodeResourceTopology
	Claimed    []string // from drivers of Dynamic Resource Allocation: Nodes have them allocatable
	// Pods occupy the selected nodes. Without them, the checks consider empty nodes.
	Pods []Pod
	// Next is the variant of the next run, whose devices alone are needed; empty: those of all.
	Next string
	// Empty makes the checks ignore what a source reports as available now.
	Empty bool
	// RuntimeClass and PriorityClass are spec.pods' or the cluster's default; nil if there is none.
	RuntimeClass  *nodev1.RuntimeClass
	PriorityClass *schedulingv1.PriorityClass
	Others        map[string]int // how many other unfinished benchmarks are bound to each node
	Settings
}

// Settings are the settings of the operator that decide what it accepts.
type Settings struct {
	AllowHostNetwork   bool
	AllowPacketCapture bool          // at the server, with the capability NET_RAW
	NetworkNamespaces  []string      // of networks that other namespaces may use; "*" is all
	MaxOccupation      time.Duration // for which a benchmark may hold its nodes; zero: no limit
	BenchTools         []string      // that the bench image has; empty: all
	CustomImages       []string      // registries and repositories of users' programs; "*" is all
	// SfnettestImage has sfnt-pingpong and sfnt-stream; empty: the bench image has them.
	SfnettestImage string
}

// NetworkDefinition describes the NetworkAttachmentDefinition that was looked up for a variant.
type NetworkDefinition struct {
	Name        string // namespace/name
	KindMissing bool
	Found       bool
	Own         bool // it exists, and the operator created it for this benchmark
	// ResourceName is its annotation's value, or empty. Deviceless: its plugin needs no device.
	ResourceName string
	Deviceless   bool
}

// Rejection is the reason why a spec cannot be carried out.
type Rejection struct {
	Reason  string `json:"reason"`
	Path    string `json:"path,omitempty"` // the field, from spec on; empty if the spec has none
	Message string `json:"message"`        // says why it cannot, with the remedy
}

func rejectf(reason, path, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Path: path, Message: fmt.Sprintf(format, args...)}
}

// String is the sentence that users read.
func (r *Rejection) String() string {
	if r.Path == "" {
		return r.Message
	}
	return r.Path + ": " + r.Message
}

// InTemplate returns the rejection of a template's spec, with the path in its matrix or gate.
func (r *Rejection) InTemplate() *Rejection {
	if r == nil {
		return nil
	}
	return &Rejection{r.Reason, templateSpec + strings.TrimPrefix(r.Path, "spec"), r.Message}
}

type check func(Observed) *Rejection

type chain []check

func (c chain) check(o Observed) *Rejection {
	for _, requirement := range c {
		if r := requirement(o); r != nil {
			return r
		}
	}
	return nil
}

func eachVariant(of func(Observed, v1alpha1.Variant) *Rejection) check {
	return func(o Observed) *Rejection {
		for _, v := range plan.Variants(o.Benchmark.Spec) {
			if r := of(o, v); r != nil {
				return r
			}
		}
		return nil
	}
}

func eachCell(of func(Observed, tool.Cell) *Rejection) check {
	return eachVariant(func(o Observed, v v1alpha1.Variant) *Rejection {
		for _, c := range plan.Cells(o.Benchmark.Spec, v) {
			if r := of(o, c); r != nil {
				return r
			}
		}
		return nil
	})
}

var ofSpec = chain{
	benchImageHasTool, customIsAllowed, cellsFitStatus, eachCell(toolMeasuresCell), planEndsInTime, percentileIsKnown, eachCell(percentileIsReached),
	rulesCanDecide, eachCell(memoryIsEnough), eachCell(cpusAreEnough), eachVariant(hostNetworkIsAllowed), eachVariant(namespaceIsAllowed),
	eachVariant(captureIsAllowed), classesExist, eachVariant(onloadCarriesNetwork), eachVariant(profileIsValid),
	eachVariant(networkExists), eachVariant(networkIsOwn), eachVariant(networkGivesDevice), eachVariant(rangeHasAddresses),
	eachVariant(devicesAlign),
}

// Accept runs the checks in order and returns the pair of nodes, or the first rejection.
func Accept(o Observed) (v1alpha1.Pair, *Rejection) {
	if r := ofSpec.check(o); r != nil {
		return v1alpha1.Pair{}, r
	}
	return choosePair(o.withCPUs(CPUs(o)))
}

const wholeCore = 2 // CPUs, at most, of a core on the machines that the tools run on

// CPUs returns each endpoint's CPUs: those of the spec or an earlier acceptance, or a whole core if
// empty nodes could provide it: the benchmark waits instead of using half a core.
func CPUs(o Observed) v1alpha1.EndpointCPUs {
	known, least := o.Benchmark.CPUs(), o.leastCPUs()
	if known == least {
		return known
	}
	whole := v1alpha1.EndpointCPUs{Client: cmp.Or(known.Client, max(wholeCore, least.Client)), Server: cmp.Or(known.Server, max(wholeCore, least.Server))}
	empty := o.withCPUs(whole)
	empty.Pods, empty.Topologies = nil, nil
	if _, r := choosePair(empty); r != nil {
		return least
	}
	return whole
}

// leastCPUs returns the CPUs of the spec or an earlier acceptance, or those that the tool needs.
func (o Observed) leastCPUs() v1alpha1.EndpointCPUs {
	client, server := 1, 1
	if o.Driver != nil {
		_ = eachCell(func(o Observed, c tool.Cell) *Rejection {
			client, server = max(client, tool.CPUsOf(o.Driver, c, v1alpha1.RoleClient)), max(server, tool.CPUsOf(o.Driver, c, v1alpha1.RoleServer))
			return nil
		})(o)
	}
	known := o.Benchmark.CPUs()
	return v1alpha1.EndpointCPUs{Client: cmp.Or(known.Client, int32(client)), Server: cmp.Or(known.Server, int32(server))}
}

func (o Observed) withCPUs(n v1alpha1.EndpointCPUs) Observed {
	b := *o.Benchmark
	b.Status.CPUs = &n
	o.Benchmark = &b
	return o
}

// placementPath returns the path of a role's cpus or memory: its own if set, or the common one.
func placementPath(o Observed, role, field string) string {
	p := o.Benchmark.Spec.Placement
	own := map[string]*v1alpha1.EndpointPlacement{v1alpha1.RoleClient: p.Client, v1alpha1.RoleServer: p.Server}[role]
	if own != nil && (field == "cpus" && own.CPUs != 0 || field == "memory" && own.Memory != nil) {
		return "spec.placement." + role + "." + field
	}
	return "spec.placement." + field
}

func benchImageHasTool(o Observed) *Rejection {
	t := o.Benchmark.Spec.Tool
	if o.Benchmark.Spec.Custom != nil || len(o.BenchTools) == 0 || slices.Contains(o.BenchTools, string(t)) || t.OfSfnettest() && o.SfnettestImage != "" {
		return nil
	}
	var hint string
	if t.OfSfnettest() {
		hint = "set --sfnettest-image of the manager, or "
	}
	return rejectf(v1alpha1.ReasonCellUnsupported, "spec.tool", "the bench image has no %s, only %s (--bench-tools of the manager): %suse a bench image that has it, or another tool",
		t, strings.Join(o.BenchTools, ", "), hint)
}

const maxCells = 400 // that fit in a status, for all variants; a captured cell counts twice

func cellsFitStatus(o Observed) *Rejection {
	n := 0
	for _, v := range plan.Variants(o.Benchmark.Spec) {
		cells := len(plan.Cells(o.Benchmark.Spec, v))
		if v.Capture == v1alpha1.CaptureServer {
			cells *= 2
		}
		n += cells
	}
	if n > maxCells {
		return rejectf(v1alpha1.ReasonCellUnsupported, "spec.workload", "it has %d cells (variants × protocols × sizes × rates), and a benchmark may have %d; split it", n, maxCells)
	}
	return nil
}

// toolMeasuresCell asks the driver. Admission has already rejected what CEL can check.
func toolMeasuresCell(o Observed, c tool.Cell) *Rejection {
	err := o.Driver.Validate(c)
	if err == nil {
		return nil
	}
	var able []string
	for name, d := range o.Tools {
		if d.Validate(c) == nil {
			able = append(able, string(name))
		}
	}
	slices.Sort(able)
	if len(able) == 0 {
		return rejectf(v1alpha1.ReasonCellUnsupported, "spec.workload", "%v; no tool supports it", err)
	}
	return rejectf(v1alpha1.ReasonCellUnsupported, "spec.workload", "%v; tools that support it: %s", err, strings.Join(able, ", "))
}

func percentileIsKnown(o Observed) *Rejection {
	name := o.Benchmark.Spec.HighestPercentile
	if _, ok := stats.Named(string(name)); name != "" && !ok {
		return rejectf(v1alpha1.ReasonPercentileOutOfReach, "spec.highestPercentile", "there is no percentile %q", name)
	}
	return nil
}

// percentileIsReached checks an open loop: a closed one's samples are known after the measurement.
func percentileIsReached(o Observed, c tool.Cell) *Rejection {
	spec := o.Benchmark.Spec
	if spec.HighestPercentile == "" || c.Stream {
		return nil
	}
	wanted, _ := stats.Named(string(spec.HighestPercentile))
	most, known := o.Driver.MostSamples(c)
	if total := most * int64(spec.Rounds); known && total < wanted.Needs() {
		return rejectf(v1alpha1.ReasonPercentileOutOfReach, "spec.highestPercentile",
			"%s needs %d samples, and %s gives at most %d for %s in %d rounds of %s; measure longer, at a higher rate, or more rounds",
			spec.HighestPercentile, wanted.Needs(), spec.Tool, total, c.Name, spec.Rounds, c.Duration)
	}
	return nil
}

func rulesCanDecide(o Observed) *Rejection {
	for _, f := range foresee(o.Benchmark.Spec, 1, o.Driver) {
		if f.Never != "" {
			return rejectf(v1alpha1.ReasonRuleUndecidable, "spec.criteria.rules", "%s", f.Never)
		}
	}
	return nil
}

const agentMemory = 64 << 20 // bytes that an endpoint needs in addition to the tool's

// memoryIsEnough: a client that is killed for its memory after an hour has measured nothing.
func memoryIsEnough(o Observed, c tool.Cell) *Rejection {
	memory := o.Benchmark.Spec.Placement.Of(v1alpha1.RoleClient).Memory
	if need := o.Driver.Memory(c) + agentMemory; memory.CmpInt64(need) < 0 {
		return rejectf(v1alpha1.ReasonInsufficientMemory, placementPath(o, v1alpha1.RoleClient, "memory"),
			"%s keeps every sample and may need %dMi for %s, but the client gets %s; request that much, or measure more rounds of a shorter duration",
			o.Benchmark.Spec.Tool, (need+1<<20-1)>>20, c.Duration, memory.String())
	}
	return nil
}

func cpusAreEnough(o Observed, c tool.Cell) *Rejection {
	for _, role := range []string{v1alpha1.RoleClient, v1alpha1.RoleServer} {
		if need, cpus := tool.CPUsOf(o.Driver, c, role), int(o.Benchmark.CPUs().Of(role)); cpus != 0 && cpus < need {
			return rejectf(v1alpha1.ReasonInsufficientCPU, placementPath(o, role, "cpus"),
				"%s needs %d CPUs at the %s's end, and %d requested; request more", o.Benchmark.Spec.Tool, need, role, cpus)
		}
	}
	return nil
}

func hostNetworkIsAllowed(o Observed, v v1alpha1.Variant) *Rejection {
	if v.Network.Type == v1alpha1.NetworkHost && !o.AllowHostNetwork {
		return rejectf(v1alpha1.ReasonHostNetworkForbidden, networkPath(o, v)+".type",
			"Host gives benchmark pods the node's network; the operator must be started with --allow-host-network, or choose Pod, VF, PF or NAD")
	}
	return nil
}

// mostCustom bounds a custom program in all cells, in bytes: tasks and results contain it.
const mostCustom = 64 << 10

// customIsAllowed lets only images run in the nodes' pods that the operator trusts.
func customIsAllowed(o Observed) *Rejection {
	custom := o.Benchmark.Spec.Custom
	if custom == nil {
		return nil
	}
	if !custom.Within(o.CustomImages) {
		return rejectf(v1alpha1.ReasonImageForbidden, "spec.custom.image",
			"the operator does not allow %s as the program of benchmarks; it must be started with --custom-images=PREFIX,... that contain it (now: %s)",
			custom.FullImage(), cmp.Or(strings.Join(o.CustomImages, ", "), "none"))
	}
	data, _ := json.Marshal(custom) // Texts and numbers can always be encoded.
	if n := len(plan.Cells(o.Benchmark.Spec, v1alpha1.Variant{})) * len(data); n > mostCustom {
		return rejectf(v1alpha1.ReasonCellUnsupported, "spec.custom", "its description takes %d KiB in all cells of a variant, and at most %d fit: shorten args and env, or measure fewer cells",
			n>>10, mostCustom>>10)
	}
	return nil
}

// NetworkNamespace rejects networks in namespaces that the operator's settings do not list, whether
// or not they exist: the operator may read objects that the author of the benchmark may not.
func NetworkNamespace(o Observed) *Rejection { return eachVariant(namespaceIsAllowed)(o) }

func namespaceIsAllowed(o Observed, v v1alpha1.Variant) *Rejection {
	namespace := o.Benchmark.Namespace
	if ref := v.Network.NetworkRef(); ref != nil {
		namespace = cmp.Or(ref.Namespace, namespace)
	}
	if namespace != o.Benchmark.Namespace && !slices.Contains(o.NetworkNamespaces, namespace) && !slices.Contains(o.NetworkNamespaces, "*") {
		return rejectf(v1alpha1.ReasonNetworkNamespaceForbidden, memberPath(o, v)+".networkRef.namespace",
			"the operator does not allow benchmarks of other namespaces to use the networks of %s; start it with --network-namespaces=%s, or create the network in %s",
			namespace, namespace, o.Benchmark.Namespace)
	}
	return nil
}

const runOverhead = 30 * time.Second // of a run on its nodes, beside measuring, if nothing fails

// wholePlan returns how long runs measure, with warm-ups and added rounds, and their number.
func wholePlan(spec v1alpha1.LatencyBenchmarkSpec) (measuring time.Duration, runs int) {
	b := &v1alpha1.LatencyBenchmark{Spec: spec}
	b.Status.ExtendedRounds = plan.MaxRounds(spec) - spec.Rounds
	for _, run := range plan.Runs(b) {
		measuring += plan.MeasuringTime(run.Cells)
		runs++
	}
	return measuring, runs
}

func planEndsInTime(o Observed) *Rejection {
	measuring, runs := wholePlan(o.Benchmark.Spec)
	need := measuring + time.Duration(runs)*runOverhead
	if o.MaxOccupation > 0 && need > o.MaxOccupation {
		return rejectf(v1alpha1.ReasonOccupationTooLong, "spec.workload",
			"all rounds together occupy the nodes for about %s, and the operator allows %s (--max-occupation); measure fewer rounds or cells, for a shorter duration, or split it",
			need.Round(time.Second), o.MaxOccupation)
	}
	return nil
}

// captureIsAllowed requires the operator's permission, and a tool that answers every message.
func captureIsAllowed(o Observed, v v1alpha1.Variant) *Rejection {
	switch {
	case v.Capture != v1alpha1.CaptureServer:
	case !o.AllowPacketCapture:
		return rejectf(v1alpha1.ReasonCaptureForbidden, "spec.capture",
			"it gives the server's pod the capability NET_RAW (variant %s); the operator must be started with --allow-packet-capture, or remove it", v.Name)
	case o.Driver.Limits().FewAnswers:
		return rejectf(v1alpha1.ReasonCellUnsupported, "spec.capture",
			"%s gets answers to few of its messages, so packets cannot be matched (variant %s); use pinger or sockperf, or remove it", o.Benchmark.Spec.Tool, v.Name)
	}
	return nil
}

func networkPath(o Observed, v v1alpha1.Variant) string {
	return path(o, v, "network", func(given v1alpha1.Variant) bool { return given.Network != nil })
}

func memberPath(o Observed, v v1alpha1.Variant) string {
	return networkPath(o, v) + "." + strings.ToLower(string(v.Network.Type))
}

func accelerationPath(o Observed, v v1alpha1.Variant) string {
	return path(o, v, "acceleration", func(given v1alpha1.Variant) bool { return given.Acceleration != nil })
}

// path returns the path of a variant's field: in the variant if it sets it, or in the spec.
func path(o Observed, v v1alpha1.Variant, field string, gives func(v1alpha1.Variant) bool) string {
	for i, given := range o.Benchmark.Spec.Variants {
		if given.Name == v.Name && gives(given) {
			return fmt.Sprintf("spec.variants[%d].%s", i, field)
		}
	}
	return "spec." + field
}

func classesExist(o Observed) *Rejection {
	template := o.Benchmark.Spec.Pods
	switch {
	case template == nil:
	case template.RuntimeClassName != "" && o.RuntimeClass == nil:
		return rejectf(v1alpha1.ReasonClassNotFound, "spec.pods.runtimeClassName", "RuntimeClass %s does not exist; create it, or name one of `kubectl get runtimeclasses`", template.RuntimeClassName)
	case template.PriorityClassName != "" && o.PriorityClass == nil:
		return rejectf(v1alpha1.ReasonClassNotFound, "spec.pods.priorityClassName", "PriorityClass %s does not exist; create it, or name one of `kubectl get priorityclasses`", template.PriorityClassName)
	}
	return nil
}

// onloadCarriesNetwork rejects what AMD's release notes of Kubernetes Onload list as a limitation.
func onloadCarriesNetwork(o Observed, v v1alpha1.Variant) *Rejection {
	if v.Acceleration.Type == v1alpha1.AccelerationOnload && v.Network.Type == v1alpha1.NetworkPod {
		return rejectf(v1alpha1.ReasonAccelerationUnsupported, accelerationPath(o, v)+".type",
			"Onload cannot accelerate the cluster's pod network (variant %s); choose network VF, PF, NAD (macvlan or ipvlan on the NIC) or Host, or type: Kernel",
			v.Name)
	}
	return nil
}

func profileIsValid(o Observed, v v1alpha1.Variant) *Rejection {
	ref := v.Acceleration.OnloadSettings().ProfileRef
	p, known := o.Profiles[v.Name]
	if ref == nil || !known {
		return nil
	}
	if p == nil {
		return rejectf(v1alpha1.ReasonProfileNotFound, accelerationPath(o, v)+".onload.profileRef",
			"ConfigMap %s/%s does not exist; create it with Onload's settings (EF_POLL_USEC and so on) as its keys, or use profile: latency",
			o.Benchmark.Namespace, ref.Name)
	}
	if _, err := onload.Environment(v, p.Data); err != nil {
		return rejectf(v1alpha1.ReasonProfileInvalid, accelerationPath(o, v)+".onload.profileRef", "%v", err)
	}
	return nil
}

func networkExists(o Observed, v v1alpha1.Variant) *Rejection {
	n := o.Networks[v.Name]
	switch {
	case n == nil || n.Found:
	case n.KindMissing:
		return rejectf(v1alpha1.ReasonNetworkNotFound, networkPath(o, v)+".type",
			"the cluster has no kind NetworkAttachmentDefinition; install Multus to use attached networks")
	case v.Network.IPAM() == nil:
		return rejectf(v1alpha1.ReasonNetworkNotFound, memberPath(o, v)+".networkRef",
			"NetworkAttachmentDefinition %s does not exist; create it, or name one of `kubectl get network-attachment-definitions -A`", n.Name)
	}
	return nil
}

func networkIsOwn(o Observed, v v1alpha1.Variant) *Rejection {
	if n := o.Networks[v.Name]; n != nil && v.Network.IPAM() != nil && n.Found && !n.Own {
		return rejectf(v1alpha1.ReasonNetworkNameTaken, memberPath(o, v)+".ipam",
			"the operator would create NetworkAttachmentDefinition %s, which exists and does not belong to this benchmark; use it by networkRef, give the benchmark another name, or delete it if nothing uses it",
			n.Name)
	}
	return nil
}

// networkGivesDevice: a pod without the device gets an unclear message ("VF pci addr is required").
func networkGivesDevice(o Observed, v v1alpha1.Variant) *Rejection {
	n, path := o.Networks[v.Name], memberPath(o, v)
	switch {
	case n == nil || v.Network.IPAM() != nil || n.ResourceName == v.Network.ResourceName():
	case v.Network.Type == v1alpha1.NetworkNAD && n.Deviceless:
	case n.Deviceless:
		return rejectf(v1alpha1.ReasonNetworkMismatch, networkPath(o, v)+".type",
			"NetworkAttachmentDefinition %s attaches no device, whatever its resource %q is for; use type NAD", n.Name, n.ResourceName)
	case v.Network.Type == v1alpha1.NetworkNAD:
		return rejectf(v1alpha1.ReasonNetworkMismatch, networkPath(o, v)+".type",
			"NAD is for networks without a device, but NetworkAttachmentDefinition %s takes its device from %q; use type VF or PF with resourceName: %s",
			n.Name, n.ResourceName, n.ResourceName)
	case n.ResourceName == "":
		return rejectf(v1alpha1.ReasonNetworkMismatch, path+".resourceName",
			"%q, but NetworkAttachmentDefinition %s has no annotation k8s.v1.cni.cncf.io/resourceName, so it takes no device; "+
				"give it that annotation, or use type NAD", v.Network.ResourceName(), n.Name)
	default:
		return rejectf(v1alpha1.ReasonNetworkMismatch, path+".resourceName",
			"%q, but NetworkAttachmentDefinition %s takes its device from %q; set resourceName to that",
			v.Network.ResourceName(), n.Name, n.ResourceName)
	}
	return nil
}

func devicesAlign(o Observed, v v1alpha1.Variant) *Rejection {
	if name := v.Network.AlignWith(); slices.Contains(o.Claimed, name) {
		return rejectf(v1alpha1.ReasonTopologyInsufficient, memberPath(o, v)+".alignWith",
			"Dynamic Resource Allocation provides %s on a selected node, and the kubelet's topology manager does not align its devices with CPUs; "+
				"name a resource of a device plugin, or remove alignWith", name)
	}
	return nil
}

func rangeHasAddresses(o Observed, v v1alpha1.Variant) *Rejection {
	ipam := v.Network.IPAM()
	if ipam == nil || ipam.Type != v1alpha1.IPAMStatic {
		return nil
	}
	server, _, err := pods.StaticAddresses(*ipam)
	if e, ok := errors.AsType[*pods.FieldError](err); ok {
		return rejectf(v1alpha1.ReasonNetworkRangeTooSmall, memberPath(o, v)+"."+e.Path, "%v", e.Cause)
	}
	if o.Driver.Limits().IPv4Only && server.Addr().Is6() {
		return rejectf(v1alpha1.ReasonCellUnsupported, memberPath(o, v)+".ipam.range", "%s takes IPv4 addresses only, and %s is IPv6; give an IPv4 range, or measure with pinger",
			o.Benchmark.Spec.Tool, ipam.Range)
	}
	return nil
}
