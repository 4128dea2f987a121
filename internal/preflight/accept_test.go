package preflight

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntstream"
)

// fourOnly is the driver of a tool that supports IPv4 only.
type fourOnly struct{ only64 }

func (fourOnly) Limits() tool.Base { return tool.Base{IPv4Only: true} }

// only64 is a driver that supports messages of 64 bytes only.
type only64 struct{ tool.Driver }

// fewAnswers is one whose server answers few messages, as sfnt-stream's does.
type fewAnswers struct{ only64 }

func (fewAnswers) Limits() tool.Base { return sfntstream.New().Limits() }

func (only64) Limits() tool.Base { return tool.Base{} }

// Memory returns one MiB for each second.
func (only64) Memory(c tool.Cell) int64 { return int64(c.Duration/time.Second) << 20 }

// CPUs returns one, and two with rates.
func (only64) CPUs(c tool.Cell) int {
	if c.OpenLoop() {
		return 2
	}
	return 1
}

// MostSamples returns the number that the rate gives.
func (only64) MostSamples(c tool.Cell) (int64, bool) {
	return int64(float64(c.RatePerSecond) * c.Duration.Seconds()), c.OpenLoop()
}

func (only64) Validate(c tool.Cell) error {
	if c.MessageSize != 64 {
		return tool.Failf("size %d: only 64 bytes", c.MessageSize)
	}
	return nil
}

// every is a driver that supports every cell.
type every struct{ only64 }

func (every) Validate(tool.Cell) error { return nil }

// node returns a ready node with four CPUs, 8Gi and its name as a label.
func node(name string, change ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name, "rack": "1"}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			},
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("4"),
				corev1.ResourceMemory: resource.MustParse("8Gi"),
			},
		},
	}
	for _, c := range change {
		c(&n)
	}
	return n
}

func allocatable(name corev1.ResourceName, quantity string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Allocatable[name] = resource.MustParse(quantity) }
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func notReady(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionUnknown }

func silent(n *corev1.Node) { n.Status.Conditions = nil }

func tainted(effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "example.com/busy", Effect: effect}} }
}

const vf = "amd.com/sf_vf"

// The operator accepts no tool that its images do not have.
func TestToolPresent(t *testing.T) {
	cases := map[string]struct {
		tool  v1alpha1.Tool
		tools []string
		image string
		// want are parts of the message; empty: it is accepted.
		want []string
	}{
		"all tools":                       {tool: v1alpha1.ToolSfntPingpong},
		"this tool":                       {tool: v1alpha1.ToolSfntStream, tools: []string{"pinger", "sfnt-stream"}},
		"the tools of another image":      {tool: v1alpha1.ToolSfntPingpong, tools: []string{"pinger"}, image: "onload/sfnettest@sha256:0f"},
		"another tool of AMD":             {tool: v1alpha1.ToolSfntPingpong, tools: []string{"pinger", "sfnt-stream"}, want: []string{"has no sfnt-pingpong, only pinger, sfnt-stream", "set --sfnettest-image"}},
		"another image has no such tool":  {tool: v1alpha1.ToolSockperf, tools: []string{"pinger"}, image: "onload/sfnettest@sha256:0f", want: []string{"spec.tool: the bench image has no sockperf, only pinger (--bench-tools of the manager): use a bench image"}},
		"the pinger is no different case": {tool: v1alpha1.ToolPinger, tools: []string{"netperf"}, want: []string{"has no pinger"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := asking(good("a"), good("b"))
			o.Benchmark.Spec.Tool, o.BenchTools, o.SfnettestImage = c.tool, c.tools, c.image
			got := benchImageHasTool(o)
			if (got == nil) != (c.want == nil) {
				t.Fatalf("got %v, want %q", got, c.want)
			}
			for _, want := range c.want {
				if got.Reason != v1alpha1.ReasonCellUnsupported || !strings.Contains(got.String(), want) {
					t.Errorf("got %v, want %q", got, want)
				}
			}
		})
	}
}

// A kubelet that does not mount images is named before the run.
func TestNotesOfImageVolumes(t *testing.T) {
	for version, want := range map[string]bool{"v1.31.4": true, "v1.34.0+rke2r1": true, "v1.35.0": false, "v1.36.3": false, "v2.0.0": false, "": false} {
		o := asking(good("a"), good("b"), good("c"))
		o.Benchmark.Spec.Tool, o.SfnettestImage = v1alpha1.ToolSfntPingpong, "onload/sfnettest@sha256:0f"
		for i := range o.Nodes[1:] { // c is not measured
			o.Nodes[1+i].Status.NodeInfo.KubeletVersion = version
		}
		got := Notes(o, v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}, v1alpha1.EndpointCPUs{Client: 2, Server: 2})
		if want && (len(got) != 1 || !strings.Contains(got[0], "node b has kubelet "+version)) || !want && len(got) > 0 {
			t.Errorf("%s: got %q, want a note: %t", version, got, want)
		}
		o.Benchmark.Spec.Tool = v1alpha1.ToolPinger
		if got := Notes(o, v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}, v1alpha1.EndpointCPUs{Client: 2, Server: 2}); len(got) > 0 {
			t.Errorf("%s: the pinger needs no image volume: %q", version, got)
		}
	}
}

// program makes an image the program of the benchmark; images below r.example.com/team are allowed.
func program(image string) func(*Observed) {
	return func(o *Observed) {
		o.Benchmark.Spec.Tool, o.Benchmark.Spec.Custom, o.CustomImages = v1alpha1.ToolCustom, &v1alpha1.Custom{Image: image}, []string{"r.example.com/team"}
	}
}

func TestAccept(t *testing.T) {
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) func(*Observed) {
		return func(o *Observed) {
			o.Benchmark.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}},
			}}}
		}
	}
	selecting := func(client, server map[string]string) func(*Observed) {
		return func(o *Observed) {
			o.Benchmark.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: client}}}
			o.Benchmark.Spec.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: server}}}
		}
	}
	nodes := func(nodes ...corev1.Node) func(*Observed) { return func(o *Observed) { o.Nodes = nodes } }
	cpus := func(n int32) func(*Observed) { return func(o *Observed) { o.Benchmark.Spec.Placement.CPUs = n } }
	memory := func(q string) func(*Observed) {
		return func(o *Observed) { o.Benchmark.Spec.Placement.Memory = resource.MustParse(q) }
	}
	// secondary requests a network with a resource, and provides a definition.
	secondary := func(resourceName string, found NetworkDefinition) func(*Observed) {
		return func(o *Observed) {
			o.Benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf"}, ResourceName: resourceName}}}
			found.Name = "perf/sf-vf"
			o.Networks = map[string]*NetworkDefinition{plan.DefaultVariant: &found}
		}
	}
	// nad requests a network without a device.
	nad := func(found NetworkDefinition) func(*Observed) {
		return func(o *Observed) {
			o.Benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: "lan"}}}
			found.Name = "perf/lan"
			o.Networks = map[string]*NetworkDefinition{plan.DefaultVariant: &found}
		}
	}
	// borrowing requests the host's network, with CPUs beside a device.
	borrowing := func(o *Observed) {
		o.AllowHostNetwork = true
		o.Benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkHost, Host: &v1alpha1.HostNetwork{Alignment: v1alpha1.Alignment{AlignWith: vf}}}
	}
	// made requests a network that the operator creates.
	made := func(found NetworkDefinition, ipam v1alpha1.IPAM) func(*Observed) {
		return func(o *Observed) {
			o.Nodes = []corev1.Node{node("a", allocatable(vf, "1")), node("b", allocatable(vf, "1"))}
			o.Benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{IPAM: &ipam, ResourceName: vf}}}
			found.Name = "perf/x"
			o.Networks = map[string]*NetworkDefinition{plan.DefaultVariant: &found}
		}
	}
	whereabouts := v1alpha1.IPAM{Type: v1alpha1.IPAMWhereabouts, Range: "192.168.40.0/24"}
	// onload provides the devices on every node and requests Onload.
	onload := func(acceleration v1alpha1.Acceleration) func(*Observed) {
		return func(o *Observed) {
			acceleration.Type = v1alpha1.AccelerationOnload
			o.Benchmark.Spec.Acceleration = &acceleration
			for _, n := range o.Nodes {
				n.Status.Allocatable[plan.DefaultOnloadResource] = resource.MustParse("100")
			}
		}
	}
	pages := func(size, amount string) func(*Observed) {
		return func(o *Observed) {
			o.Benchmark.Spec.Pods = &v1alpha1.PodSettings{Hugepages: &v1alpha1.Hugepages{Size: size, Amount: resource.MustParse(amount)}}
		}
	}
	chosen := func(client, server string) func(*Observed) {
		return func(o *Observed) { o.Benchmark.Status.Pair = &v1alpha1.Pair{ClientNode: client, ServerNode: server} }
	}

	duration := func(d time.Duration) func(*Observed) {
		return func(o *Observed) { o.Benchmark.Spec.Workload.Duration.Duration = d }
	}

	rate := func(n int32) func(*Observed) {
		return func(o *Observed) { o.Benchmark.Spec.Workload.RatesPerSecond = []int32{n} }
	}
	percentile := func(p v1alpha1.Percentile) func(*Observed) {
		return func(o *Observed) { o.Benchmark.Spec.HighestPercentile = p }
	}
	capturing := func(o *Observed) { o.Benchmark.Spec.Capture = v1alpha1.CaptureServer }

	cases := map[string]struct {
		change []func(*Observed)
		// want is the pair, as client and server, or the reason.
		want       string
		wantReason string
		// wantMessage contains parts of the message, starting with the field's path.
		wantMessage []string
	}{
		"a duration for which the tool may need more memory than is asked": {
			change:     []func(*Observed){memory("512Mi"), duration(449 * time.Second)},
			wantReason: v1alpha1.ReasonInsufficientMemory, wantMessage: []string{"spec.placement.memory", "513Mi", "512Mi"},
		},
		"of several nodes, the first two by name": {
			change: []func(*Observed){nodes(node("c"), node("a"), node("b"))},
			want:   "a b",
		},
		"selectors choose": {
			change: []func(*Observed){selecting(map[string]string{"name": "b"}, map[string]string{"name": "a"})},
			want:   "b a",
		},
		"a free endpoint leaves a bound one its node, the server": {
			change: []func(*Observed){selecting(nil, map[string]string{"name": "a"})},
			want:   "b a",
		},
		"a free endpoint leaves a bound one its node, the client": {
			change: []func(*Observed){selecting(map[string]string{"name": "a"}, nil)},
			want:   "a b",
		},
		"a name chooses": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "b"}}
			}},
			want: "b a",
		},
		"a name that no node has": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "z"}}
			}},
			wantReason:  v1alpha1.ReasonNoMatchingNode,
			wantMessage: []string{"spec.placement.server.nodeName", "no node z"},
		},
		"all labels of a selector must match": {
			change:      []func(*Observed){selecting(map[string]string{"name": "a", "rack": "2"}, nil)},
			wantReason:  v1alpha1.ReasonNoMatchingNode,
			wantMessage: []string{"spec.placement.client.nodeSelector", "name=a,rack=2", "kubectl get nodes"},
		},
		"an expression selects": {
			change: []func(*Observed){expression("name", metav1.LabelSelectorOpNotIn, "a", "c")},
			want:   "b a",
		},
		"an expression that matches nothing": {
			change:      []func(*Observed){expression("name", metav1.LabelSelectorOpDoesNotExist)},
			wantReason:  v1alpha1.ReasonNoMatchingNode,
			wantMessage: []string{"spec.placement.client.nodeSelector", "no node has !name"},
		},
		"a selector with an invalid key": {
			change:      []func(*Observed){expression("a b", metav1.LabelSelectorOpExists)},
			wantReason:  v1alpha1.ReasonNoMatchingNode,
			wantMessage: []string{"spec.placement.client.nodeSelector", `Invalid value: "a b"`, "correct the selector"},
		},
		"nodes that cannot be used are passed over": {
			change: []func(*Observed){nodes(node("a", cordoned), node("b", notReady), node("c", tainted(corev1.TaintEffectNoSchedule)), node("d", silent), node("e"), node("f"))},
			want:   "e f",
		},
		"a taint that only prefers not to schedule does not matter": {
			change: []func(*Observed){nodes(node("a", tainted(corev1.TaintEffectPreferNoSchedule)), node("b"))},
			want:   "a b",
		},
		"nodes that are too small are passed over": {
			change: []func(*Observed){nodes(node("a", allocatable(corev1.ResourceCPU, "500m")), node("b", allocatable(corev1.ResourceMemory, "100Mi")), node("c"), node("d"))},
			want:   "c d",
		},
		"a tool that does not measure a cell": {
			change:      []func(*Observed){func(o *Observed) { o.Benchmark.Spec.Workload.MessageSizes = []int32{64, 9000} }},
			wantReason:  v1alpha1.ReasonCellUnsupported,
			wantMessage: []string{"spec.workload", "9000"},
		},
		"a tool that does not measure a cell, with others that do": {
			change: []func(*Observed){
				func(o *Observed) {
					o.Tools = tool.Registry{v1alpha1.ToolSockperf: only64{}, v1alpha1.ToolPinger: every{}, v1alpha1.ToolNetperf: every{}}
					o.Benchmark.Spec.Workload.MessageSizes = []int32{65}
				},
			},
			wantReason:  v1alpha1.ReasonCellUnsupported,
			wantMessage: []string{"spec.workload", "65", "tools that support it: netperf, pinger"},
		},
		"more cells than there is room for": {
			change: []func(*Observed){capturing, cpus(2), func(o *Observed) {
				o.AllowPacketCapture = true
				for rate := range int32(201) {
					o.Benchmark.Spec.Workload.RatesPerSecond = append(o.Benchmark.Spec.Workload.RatesPerSecond, rate+1)
				}
			}},
			wantReason:  v1alpha1.ReasonCellUnsupported,
			wantMessage: []string{"spec.workload", "402 cells", "400", "split"},
		},
		"a tool that needs more CPUs than are asked": {
			change:      []func(*Observed){rate(1000)},
			wantReason:  v1alpha1.ReasonInsufficientCPU,
			wantMessage: []string{"spec.placement.cpus", "2 CPUs"},
		},
		"a percentile for which the rate gives too few samples": {
			change:      []func(*Observed){rate(999), cpus(2), percentile(v1alpha1.P99)},
			wantReason:  v1alpha1.ReasonPercentileOutOfReach,
			wantMessage: []string{"spec.highestPercentile", "p99 needs 1000", "at most 999", "tcp-64-at-999"},
		},
		"a percentile for which the rate gives samples enough": {
			change: []func(*Observed){rate(1000), cpus(2), percentile(v1alpha1.P99)},
			want:   "a b",
		},
		"a percentile of a closed loop, whose rate is unknown": {
			change: []func(*Observed){percentile(v1alpha1.P999999)},
			want:   "a b",
		},
		"capture, not allowed": {
			change:      []func(*Observed){capturing, cpus(2)},
			wantReason:  v1alpha1.ReasonCaptureForbidden,
			wantMessage: []string{"spec.capture", "NET_RAW", "--allow-packet-capture"},
		},
		"capture of a tool that answers few messages": {
			change: []func(*Observed){capturing, func(o *Observed) {
				o.AllowPacketCapture, o.Benchmark.Spec.Tool, o.Driver = true, v1alpha1.ToolSfntStream, fewAnswers{}
			}},
			wantReason:  v1alpha1.ReasonCellUnsupported,
			wantMessage: []string{"spec.capture", "sfnt-stream", "pinger or sockperf"},
		},
		"capture, allowed": {
			change: []func(*Observed){capturing, func(o *Observed) { o.AllowPacketCapture = true }},
			want:   "a b",
		},
		"a variant's network that takes another device": {
			change: []func(*Observed){func(o *Observed) {
				other := v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf"}, ResourceName: vf}}}
				o.Benchmark.Spec.Variants = []v1alpha1.Variant{{Name: "pod"}, {Name: "vf", Network: &other}}
				o.Networks = map[string]*NetworkDefinition{"vf": {Name: "perf/sf-vf", Found: true, ResourceName: "amd.com/other"}}
			}},
			wantReason:  v1alpha1.ReasonNetworkMismatch,
			wantMessage: []string{"spec.variants[1].network.vf.resourceName", "amd.com/other"},
		},
		"a variant on the host's network, not allowed": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Variants = []v1alpha1.Variant{{Name: "host", Network: &v1alpha1.Network{Type: v1alpha1.NetworkHost}}}
			}},
			wantReason:  v1alpha1.ReasonHostNetworkForbidden,
			wantMessage: []string{"spec.variants[0].network.type"},
		},
		"host network, not allowed": {
			change:      []func(*Observed){func(o *Observed) { o.Benchmark.Spec.Network.Type = v1alpha1.NetworkHost }},
			wantReason:  v1alpha1.ReasonHostNetworkForbidden,
			wantMessage: []string{"spec.network.type", "--allow-host-network", "VF"},
		},
		"a user's program, not allowed": {
			change:      []func(*Observed){program("r.example.com/team-evil/a:1")},
			wantReason:  v1alpha1.ReasonImageForbidden,
			wantMessage: []string{"spec.custom.image", "r.example.com/team-evil/a:1", "--custom-images", "now: r.example.com/team"},
		},
		"a user's program, allowed": {
			change: []func(*Observed){program("r.example.com/team/a:1")},
			want:   "a b",
		},
		"a user's program whose description is long": {
			change: []func(*Observed){program("r.example.com/team/a:1"), func(o *Observed) {
				o.Benchmark.Spec.Custom.Client.Args = slices.Repeat([]string{strings.Repeat("x", 256)}, 32)
				o.Benchmark.Spec.Workload.RatesPerSecond = []int32{1, 2, 3, 4, 5, 6, 7, 8}
			}},
			wantReason:  v1alpha1.ReasonCellUnsupported,
			wantMessage: []string{"spec.custom", "at most 64 fit"},
		},
		"a server that needs more CPUs than it gets": {
			change: []func(*Observed){program("r.example.com/team/a:1"), func(o *Observed) {
				o.Benchmark.Spec.Custom.Server.CPUs, o.Benchmark.Spec.Placement.CPUs = 3, 2
			}},
			wantReason:  v1alpha1.ReasonInsufficientCPU,
			wantMessage: []string{"spec.placement.cpus", "needs 3 CPUs at the server's end"},
		},
		"host network, allowed": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Network.Type = v1alpha1.NetworkHost
				o.AllowHostNetwork = true
			}},
			want: "a b",
		},
		"a host's network with a borrowed device": {
			change: []func(*Observed){borrowing, nodes(node("a", allocatable(vf, "1")), node("b", allocatable(vf, "1")))},
			want:   "a b",
		},
		"a host's network with a borrowed device that no node has": {
			change:      []func(*Observed){borrowing},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"2 no " + vf, "spec.network.host.alignWith", "device plugin"},
		},
		"a host's network with a borrowed device that others have": {
			change: []func(*Observed){borrowing, nodes(node("a", allocatable(vf, "1")), node("b", allocatable(vf, "1"))), func(o *Observed) {
				o.Pods = []Pod{pod("a", "x", vf+"=1"), pod("b", "y", vf+"=1")}
			}},
			wantReason:  v1alpha1.ReasonNodeBusy,
			wantMessage: []string{"2 no free " + vf, "perf/x"},
		},
		"a host's network with a device that the kubelet does not align": {
			change: []func(*Observed){borrowing, nodes(node("a", allocatable(vf, "1")), node("b", allocatable(vf, "1"))), func(o *Observed) {
				o.Claimed = []string{vf}
			}},
			wantReason:  v1alpha1.ReasonTopologyInsufficient,
			wantMessage: []string{"spec.network.host.alignWith", "Dynamic Resource Allocation provides " + vf, "device plugin"},
		},
		"a borrowed device on NUMA nodes without CPUs": {
			change: []func(*Observed){borrowing, nodes(node("a", allocatable(vf, "1")), node("b", allocatable(vf, "1"))),
				func(o *Observed) {
					far := foreign.NodeResourceTopology{Zones: []foreign.Zone{zone("node-0", "cpu=0/0", vf+"=1/1"), zone("node-1", "cpu=4/4")}}
					o.Topologies = map[string]foreign.NodeResourceTopology{"a": far, "b": far}
				}},
			wantReason:  v1alpha1.ReasonTopologyInsufficient,
			wantMessage: []string{"NUMA node 0"},
		},
		"a network of a namespace that is not allowed, whether it exists or not": {
			change: []func(*Observed){nad(NetworkDefinition{Name: "nets/x", Found: true}), func(o *Observed) {
				o.Benchmark.Spec.Network.NetworkRef().Namespace, o.NetworkNamespaces = "nets", []string{"others"}
			}},
			wantReason:  v1alpha1.ReasonNetworkNamespaceForbidden,
			wantMessage: []string{"spec.network.nad.networkRef.namespace", "--network-namespaces=nets"},
		},
		"a network of a namespace that is allowed": {
			change: []func(*Observed){nad(NetworkDefinition{Name: "nets/x", Found: true}), func(o *Observed) {
				o.Benchmark.Spec.Network.NetworkRef().Namespace, o.NetworkNamespaces = "nets", []string{"others", "nets"}
			}},
			want: "a b",
		},
		"a rule that too few rounds cannot decide": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Rounds, o.Benchmark.Spec.MaxRounds = 3, 5
				o.Benchmark.Spec.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricMean, Max: v1alpha1.Limit{Text: "1s"}}}}
			}},
			wantReason:  v1alpha1.ReasonRuleUndecidable,
			wantMessage: []string{"spec.criteria.rules: rule mean max 1s can neither pass nor fail with 5 rounds; set maxRounds to at least 6"},
		},
		"a rule that the rounds can decide": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Rounds = 1
				o.Benchmark.Spec.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricMean, Max: v1alpha1.Limit{Text: "1s"}}}}
			}},
			want: "a b",
		},
		"a rule on lost datagrams that end the attempt": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Rounds, o.Benchmark.Spec.Tool, o.Benchmark.Spec.Workload.Protocols = 6, v1alpha1.ToolNetperf, []v1alpha1.Protocol{v1alpha1.ProtocolUDP}
				o.Driver, _ = all.Registry().Get(o.Benchmark.Spec.Tool)
				o.Benchmark.Spec.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricLost, Max: v1alpha1.Limit{Text: "0"}}}}
			}},
			wantReason:  v1alpha1.ReasonRuleUndecidable,
			wantMessage: []string{"spec.criteria.rules: rule lost max 0 can neither pass nor fail: the tool does not count lost datagrams in ping-pong; use pinger"},
		},
		"a rule on lost datagrams that are counted": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Rounds, o.Benchmark.Spec.Tool, o.Benchmark.Spec.Workload.Protocols = 6, v1alpha1.ToolPinger, []v1alpha1.Protocol{v1alpha1.ProtocolUDP}
				o.Driver, _ = all.Registry().Get(o.Benchmark.Spec.Tool)
				o.Benchmark.Spec.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricLost, Max: v1alpha1.Limit{Text: "0"}}}}
			}},
			want: "a b",
		},
		"a plan that holds its nodes for too long": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Rounds, o.Benchmark.Spec.Criteria, o.MaxOccupation = 10, &v1alpha1.Criteria{}, 10*time.Minute
			}},
			wantReason:  v1alpha1.ReasonOccupationTooLong,
			wantMessage: []string{"spec.workload", "10m0s", "--max-occupation"},
		},
		"one that does not": {
			change: []func(*Observed){func(o *Observed) { o.Benchmark.Spec.Rounds, o.MaxOccupation = 10, time.Hour }},
			want:   "a b",
		},
		"a cluster without Multus": {
			change:      []func(*Observed){nad(NetworkDefinition{KindMissing: true})},
			wantReason:  v1alpha1.ReasonNetworkNotFound,
			wantMessage: []string{"spec.network.type", "install Multus"},
		},
		"a network that does not exist": {
			change:      []func(*Observed){secondary("", NetworkDefinition{})},
			wantReason:  v1alpha1.ReasonNetworkNotFound,
			wantMessage: []string{"spec.network.vf.networkRef", "perf/sf-vf", "create it"},
		},
		"a network that takes another device": {
			change:      []func(*Observed){secondary(vf, NetworkDefinition{Found: true, ResourceName: "amd.com/other"})},
			wantReason:  v1alpha1.ReasonNetworkMismatch,
			wantMessage: []string{"spec.network.vf.resourceName", vf, "amd.com/other", "set resourceName"},
		},
		"a network that takes a device, of a type that has none": {
			change:      []func(*Observed){nad(NetworkDefinition{Found: true, ResourceName: vf})},
			wantReason:  v1alpha1.ReasonNetworkMismatch,
			wantMessage: []string{"spec.network.type", "perf/lan", "use type VF or PF", "resourceName: " + vf},
		},
		"a network that takes no device": {
			change:      []func(*Observed){secondary(vf, NetworkDefinition{Found: true})},
			wantReason:  v1alpha1.ReasonNetworkMismatch,
			wantMessage: []string{"spec.network.vf.resourceName", "no annotation k8s.v1.cni.cncf.io/resourceName", "type NAD"},
		},
		"a network without a device": {
			change: []func(*Observed){nad(NetworkDefinition{Found: true})},
			want:   "a b",
		},
		"a network with a device on the nodes that have it": {
			change: []func(*Observed){
				secondary(vf, NetworkDefinition{Found: true, ResourceName: vf}),
				nodes(node("a"), node("b", allocatable(vf, "2")), node("c", allocatable(vf, "0")), node("d", allocatable(vf, "1"))),
			},
			want: "b d",
		},
		"a network of the operator's that is not made yet": {
			change: []func(*Observed){made(NetworkDefinition{}, whereabouts)},
			want:   "a b",
		},
		"a network of the operator's that it made, with another annotation by now": {
			change: []func(*Observed){made(NetworkDefinition{Found: true, Own: true, ResourceName: "amd.com/other"}, whereabouts)},
			want:   "a b",
		},
		"a network of the operator whose name another user took": {
			change:      []func(*Observed){made(NetworkDefinition{Found: true, ResourceName: vf}, whereabouts)},
			wantReason:  v1alpha1.ReasonNetworkNameTaken,
			wantMessage: []string{"spec.network.vf.ipam", "perf/x", "does not belong to this benchmark", "delete it"},
		},
		"a network of the operator's without Multus": {
			change:      []func(*Observed){made(NetworkDefinition{KindMissing: true}, whereabouts)},
			wantReason:  v1alpha1.ReasonNetworkNotFound,
			wantMessage: []string{"spec.network.type", "install Multus"},
		},
		"addresses of which there are enough": {
			change: []func(*Observed){made(NetworkDefinition{}, v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "192.168.40.0/30"})},
			want:   "a b",
		},
		"addresses of which there are too few": {
			change:      []func(*Observed){made(NetworkDefinition{}, v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "192.168.40.0/30", RangeStart: "192.168.40.2"})},
			wantReason:  v1alpha1.ReasonNetworkRangeTooSmall,
			wantMessage: []string{"spec.network.vf.ipam.rangeStart: 192.168.40.2", "192.168.40.0/30"},
		},
		"addresses that the tool cannot use": {
			change: []func(*Observed){
				made(NetworkDefinition{}, v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "fd00:40::/64"}),
				func(o *Observed) { o.Driver = fourOnly{} },
			},
			wantReason:  v1alpha1.ReasonCellUnsupported,
			wantMessage: []string{"spec.network.vf.ipam.range: ", "IPv4 addresses only", "fd00:40::/64"},
		},
		"Onload on the pod network": {
			change:      []func(*Observed){onload(v1alpha1.Acceleration{})},
			wantReason:  v1alpha1.ReasonAccelerationUnsupported,
			wantMessage: []string{"spec.acceleration.type", "pod network", "VF, PF, NAD", "Kernel"},
		},
		"a variant with Onload on the pod network": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Variants = []v1alpha1.Variant{{Name: "kernel"}, {Name: "onload", Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload}}}
			}},
			wantReason:  v1alpha1.ReasonAccelerationUnsupported,
			wantMessage: []string{"spec.variants[1].acceleration.type", "variant onload"},
		},
		"Onload on a network without a device": {
			change: []func(*Observed){nad(NetworkDefinition{Found: true}), onload(v1alpha1.Acceleration{})},
			want:   "a b",
		},
		"Onload on the host's network": {
			change: []func(*Observed){onload(v1alpha1.Acceleration{}), func(o *Observed) {
				o.Benchmark.Spec.Network.Type, o.AllowHostNetwork = v1alpha1.NetworkHost, true
			}},
			want: "a b",
		},
		"Onload on nodes that do not have it": {
			change:      []func(*Observed){nad(NetworkDefinition{Found: true}), onload(v1alpha1.Acceleration{Onload: &v1alpha1.Onload{ResourceName: "amd.com/onload2"}})},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"spec.placement.client", "2 no amd.com/onload2", "spec.acceleration.onload.resourceName", "device plugin"},
		},
		"a profile that does not exist": {
			change: []func(*Observed){nad(NetworkDefinition{Found: true}), onload(v1alpha1.Acceleration{Onload: &v1alpha1.Onload{ProfileRef: &v1alpha1.ObjectName{Name: "mine"}}}), func(o *Observed) {
				o.Benchmark.Namespace, o.Profiles = "perf", map[string]*corev1.ConfigMap{plan.DefaultVariant: nil}
			}},
			wantReason:  v1alpha1.ReasonProfileNotFound,
			wantMessage: []string{"spec.acceleration.onload.profileRef", "ConfigMap perf/mine", "create it"},
		},
		"a variant's profile of something else": {
			change: []func(*Observed){nad(NetworkDefinition{Found: true}), func(o *Observed) {
				o.Benchmark.Spec.Variants = []v1alpha1.Variant{{Name: "tuned", Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{ProfileRef: &v1alpha1.ObjectName{Name: "mine"}}}}}
				o.Profiles = map[string]*corev1.ConfigMap{"tuned": {Data: map[string]string{"LD_PRELOAD": "x.so"}}}
			}},
			wantReason:  v1alpha1.ReasonProfileInvalid,
			wantMessage: []string{"spec.variants[0].acceleration.onload.profileRef: ConfigMap mine", "LD_PRELOAD"},
		},
		"a profile of Onload's settings": {
			change: []func(*Observed){nad(NetworkDefinition{Found: true}), onload(v1alpha1.Acceleration{Onload: &v1alpha1.Onload{ProfileRef: &v1alpha1.ObjectName{Name: "mine"}}}), func(o *Observed) {
				o.Profiles = map[string]*corev1.ConfigMap{plan.DefaultVariant: {Data: map[string]string{"EF_POLL_USEC": "100000"}}}
			}},
			want: "a b",
		},
		"huge pages that a node has": {
			change: []func(*Observed){pages("1Gi", "2Gi"), nodes(node("a"), node("b", allocatable("hugepages-1Gi", "2Gi")), node("c", allocatable("hugepages-1Gi", "1Gi")), node("d", allocatable("hugepages-1Gi", "8Gi")))},
			want:   "b d",
		},
		"huge pages that no node has": {
			change:      []func(*Observed){pages("2Mi", "64Mi"), nodes(node("a"), node("b", allocatable("hugepages-2Mi", "32Mi")))},
			wantReason:  v1alpha1.ReasonInsufficientHugepages,
			wantMessage: []string{"spec.placement.client: 2 nodes: 2 less than 64Mi in huge pages of 2Mi", "more than 32Mi", "spec.pods.hugepages.amount"},
		},
		"a node by its name": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "b"}}
			}},
			want: "b a",
		},
		"the name of a node that there is not": {
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "z"}}
			}},
			wantReason:  v1alpha1.ReasonNoMatchingNode,
			wantMessage: []string{"spec.placement.server.nodeName", "no node z"},
		},
		"a device that no node advertises": {
			change:      []func(*Observed){secondary(vf, NetworkDefinition{Found: true, ResourceName: vf})},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"spec.network.vf.resourceName", "spec.placement.client", vf, "device plugin"},
		},
		"a device that has run out on the server's side": {
			change: []func(*Observed){
				secondary(vf, NetworkDefinition{Found: true, ResourceName: vf}),
				selecting(map[string]string{"name": "a"}, map[string]string{"name": "b"}),
				nodes(node("a", allocatable(vf, "1")), node("b", allocatable(vf, "0"))),
			},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"spec.network.vf.resourceName", "spec.placement.server", vf},
		},
		"a server that matches nothing": {
			change:      []func(*Observed){selecting(nil, map[string]string{"rack": "9"})},
			wantReason:  v1alpha1.ReasonNoMatchingNode,
			wantMessage: []string{"spec.placement.server.nodeSelector", "rack=9"},
		},
		"only nodes that cannot be used": {
			change:      []func(*Observed){nodes(node("g", silent), node("f", silent), node("e", silent), node("d", tainted(corev1.TaintEffectNoExecute)), node("c", tainted(corev1.TaintEffectNoSchedule)), node("b", notReady), node("a", cordoned))},
			wantReason:  v1alpha1.ReasonNodeNotReady,
			wantMessage: []string{"spec.placement.client", "7 nodes: 4 not ready, 1 cordoned, 2 tainted with example.com/busy", "node b"},
		},
		"more CPUs than any node has": {
			change:      []func(*Observed){cpus(5), nodes(node("a"), node("b", allocatable(corev1.ResourceCPU, "4900m")))},
			wantReason:  v1alpha1.ReasonInsufficientCPU,
			wantMessage: []string{"spec.placement.cpus", "5", "more than 4 whole CPUs", "fewer"},
		},
		"more memory than any node has": {
			change:      []func(*Observed){memory("9Gi")},
			wantReason:  v1alpha1.ReasonInsufficientMemory,
			wantMessage: []string{"spec.placement.memory", "9Gi", "more than 8Gi", "less"},
		},
		"one and the same node for both": {
			change:      []func(*Observed){selecting(map[string]string{"name": "b"}, map[string]string{"name": "b"})},
			wantReason:  v1alpha1.ReasonSameNode,
			wantMessage: []string{"spec.placement", "node b", "nodeSelector"},
		},
		"a cluster of one node": {
			change:      []func(*Observed){nodes(node("a"))},
			wantReason:  v1alpha1.ReasonSameNode,
			wantMessage: []string{"spec.placement", "node a"},
		},
		"limits of the tool are reported before limits of the cluster": {
			change: []func(*Observed){
				func(o *Observed) { o.Benchmark.Spec.Workload.MessageSizes = []int32{1} },
				secondary("", NetworkDefinition{}), cpus(64),
			},
			wantReason: v1alpha1.ReasonCellUnsupported,
		},
		"a chosen pair is kept, though others come first by name": {
			change: []func(*Observed){chosen("c", "b"), nodes(node("a"), node("b"), node("c"))},
			want:   "c b",
		},
		"a chosen pair is kept when a label goes": {
			change: []func(*Observed){chosen("b", "a"), selecting(map[string]string{"was": "there"}, nil)},
			want:   "b a",
		},
		"a chosen node that is cordoned is not replaced by another": {
			change:      []func(*Observed){chosen("a", "b"), nodes(node("a", cordoned), node("b"), node("c"))},
			wantReason:  v1alpha1.ReasonNodeNotReady,
			wantMessage: []string{"spec.placement.client", "node a: cordoned"},
		},
		"a chosen node that is gone is named": {
			change:      []func(*Observed){chosen("a", "b"), nodes(node("a"), node("c"))},
			wantReason:  v1alpha1.ReasonNodeNotReady,
			wantMessage: []string{"spec.placement.server", "node b", "apply it again"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := Observed{
				Benchmark: &v1alpha1.LatencyBenchmark{Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
					Rounds: 1,
					Workload: v1alpha1.Workload{
						Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64},
						Duration: metav1.Duration{Duration: time.Second},
					},
					Placement: v1alpha1.Placement{CPUs: 1, Memory: resource.MustParse("512Mi")},
					Network:   v1alpha1.Network{Type: v1alpha1.NetworkPod},
				}}},
				Driver: only64{},
				Nodes:  []corev1.Node{node("a"), node("b")},
			}
			for _, change := range c.change {
				change(&o)
			}
			pair, rejection := Accept(o)
			if rejection == nil {
				if got := pair.ClientNode + " " + pair.ServerNode; got != c.want {
					t.Errorf("got client and server on %q, want %q, and reason %q", got, c.want, c.wantReason)
				}
				return
			}
			if rejection.Reason != c.wantReason {
				t.Errorf("got %s (%s), want reason %q and pair %q", rejection.Reason, rejection, c.wantReason, c.want)
			}
			for _, part := range c.wantMessage {
				if !strings.Contains(rejection.String(), part) {
					t.Errorf("message %q does not say %q", rejection.String(), part)
				}
			}
			if diff := cmp.Diff(v1alpha1.Pair{}, pair); diff != "" {
				t.Errorf("a rejection came with a pair (-want +got):\n%s", diff)
			}
		})
	}
}

// Swapping the endpoints' selectors swaps the nodes.
func TestEndpointsSwap(t *testing.T) {
	o := Observed{
		Benchmark: &v1alpha1.LatencyBenchmark{Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{Placement: v1alpha1.Placement{
			Client: &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "c"}}}},
		}}}},
		Driver: only64{},
		Nodes:  []corev1.Node{node("a"), node("b"), node("c")},
	}
	there, r := Accept(o)
	if r != nil {
		t.Fatal(r)
	}
	placement := &o.Benchmark.Spec.Placement
	placement.Client, placement.Server = placement.Server, placement.Client
	back, r := Accept(o)
	if r != nil {
		t.Fatal(r)
	}
	want := v1alpha1.Pair{ClientNode: there.ServerNode, ServerNode: there.ClientNode}
	if diff := cmp.Diff(want, back); diff != "" {
		t.Errorf("swapped (-want +got):\n%s", diff)
	}
}
