package preflight

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/tool/sockperf"
)

// asking returns a benchmark that requests two CPUs, 1Gi and a VF, on any two nodes.
func asking(nodes ...corev1.Node) Observed {
	return Observed{
		Benchmark: &v1alpha1.LatencyBenchmark{Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Rounds: 1,
			Workload: v1alpha1.Workload{
				Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64},
				Duration: metav1.Duration{Duration: time.Second},
			},
			Placement: v1alpha1.Placement{CPUs: 2, Memory: resource.MustParse("1Gi"), NUMAPolicy: v1alpha1.NUMARequired},
			Network:   v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: vf}}},
		}}},
		Driver: only64{},
		Nodes:  nodes,
	}
}

// wantsVFs lets sriov-network-operator make the VFs that asking requests.
var wantsVFs = foreign.SriovSpec{Interfaces: []foreign.SriovWanted{{VFGroups: []foreign.SriovVFGroup{{ResourceName: "sf_vf"}}}}}

// good returns a node that has what asking requests, unless it is changed.
func good(name string, change ...func(*corev1.Node)) corev1.Node {
	return node(name, append([]func(*corev1.Node){allocatable(vf, "2")}, change...)...)
}

// pod returns a pod that takes quantities, given as name=quantity, from a node.
func pod(node, name string, requests ...string) Pod {
	p := Pod{Name: "perf/" + name, Node: node, Requests: map[corev1.ResourceName]int64{}}
	for _, r := range requests {
		resourceName, quantity, _ := strings.Cut(r, "=")
		p.Requests[corev1.ResourceName(resourceName)] = amount(corev1.ResourceName(resourceName), resource.MustParse(quantity))
	}
	return p
}

// zone returns a NUMA node with available and total amounts of resources, given as name=available/total.
func zone(name string, resources ...string) foreign.Zone {
	z := foreign.Zone{Name: name, Type: foreign.ZoneTypeNode}
	for _, r := range resources {
		resourceName, counts, _ := strings.Cut(r, "=")
		available, all, _ := strings.Cut(counts, "/")
		z.Resources = append(z.Resources, foreign.ZoneResource{
			Name: resourceName, Available: resource.MustParse(available), Allocatable: resource.MustParse(all),
		})
	}
	return z
}

// state returns the report of sriov-network-operator about a node whose NICs are configured.
func state(interfaces ...foreign.SriovInterface) foreign.SriovNetworkNodeState {
	return foreign.SriovNetworkNodeState{Status: foreign.SriovStatus{SyncStatus: foreign.SriovSucceeded, Interfaces: interfaces}}
}

func TestNodes(t *testing.T) {
	pods := func(pods ...Pod) func(*Observed) { return func(o *Observed) { o.Pods = append(o.Pods, pods...) } }
	others := func(others map[string]int) func(*Observed) { return func(o *Observed) { o.Others = others } }
	tolerating := func(t ...corev1.Toleration) func(*Observed) {
		return func(o *Observed) { o.Benchmark.Spec.Pods = &v1alpha1.PodSettings{Tolerations: t} }
	}
	kept := func(o *Observed) { o.Benchmark.Status.Pair = &v1alpha1.Pair{ClientNode: "a", ServerNode: "b"} }
	client := func(e v1alpha1.EndpointPlacement) func(*Observed) {
		return func(o *Observed) { o.Benchmark.Spec.Placement.Client = &e }
	}
	server := func(e v1alpha1.EndpointPlacement) func(*Observed) {
		return func(o *Observed) { o.Benchmark.Spec.Placement.Server = &e }
	}
	numa := func(policy v1alpha1.NUMAPolicy) func(*Observed) {
		return func(o *Observed) { o.Benchmark.Spec.Placement.NUMAPolicy = policy }
	}
	zones := func(node string, zones ...foreign.Zone) func(*Observed) {
		return func(o *Observed) {
			if o.Topologies == nil {
				o.Topologies = map[string]foreign.NodeResourceTopology{}
			}
			o.Topologies[node] = foreign.NodeResourceTopology{Zones: zones}
		}
	}
	sriov := func(node string, s foreign.SriovNetworkNodeState) func(*Observed) {
		return func(o *Observed) {
			if o.NodeStates == nil {
				o.NodeStates = map[string]foreign.SriovNetworkNodeState{}
			}
			o.NodeStates[node] = s
		}
	}
	annotated := func(s foreign.SriovNetworkNodeState, annotation, value string) foreign.SriovNetworkNodeState {
		s.Annotations = map[string]string{annotation: value}
		return s
	}
	onload := func(o *Observed) {
		o.Benchmark.Spec.Acceleration = &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload}
	}
	noVF := allocatable(vf, "0")
	labelled := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[key] = value }
	}
	ofRuntime := func(class nodev1.RuntimeClass) func(*Observed) {
		return func(o *Observed) {
			class.Name = "fast"
			o.RuntimeClass = &class
			o.Benchmark.Spec.Pods = &v1alpha1.PodSettings{RuntimeClassName: class.Name}
		}
	}
	ofPriority := func(value int32, preemption corev1.PreemptionPolicy) func(*Observed) {
		return func(o *Observed) {
			o.PriorityClass = &schedulingv1.PriorityClass{Value: value}
			if preemption != "" {
				o.PriorityClass.PreemptionPolicy = &preemption
			}
		}
	}
	prior := func(priority int32, p Pod) Pod {
		p.Priority = priority
		return p
	}

	cases := map[string]struct {
		nodes  []corev1.Node
		change []func(*Observed)
		// want is the pair, as client and server, or the reason.
		want       string
		wantReason string
		// wantMessage contains parts of the message, notMessage a text that it must not contain.
		wantMessage []string
		notMessage  string
	}{
		// The message.
		"each node is reported once, with its first problem in the order of the filters": {
			nodes: []corev1.Node{good("a", notReady, cordoned, noVF), good("b", noVF), good("c", noVF), good("d")},
			change: []func(*Observed){
				func(o *Observed) { o.Benchmark.Spec.Placement.CPUs = 1 }, zones("d", zone("node-0", "cpu=4/4"), zone("node-1", "cpu=0/4", vf+"=2/2")),
			},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"spec.placement.client: 4 nodes: 1 not ready, 2 no amd.com/sf_vf, 1 no whole CPUs on NUMA node 1; spec.network.vf.resourceName: ", "node b"},
		},
		"of two things that equally many lack, the one that was looked at last decides": {
			nodes:       []corev1.Node{good("a", notReady), good("b", noVF)},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"1 not ready, 1 no amd.com/sf_vf"},
		},
		"the problem of most nodes decides, in any order": {
			nodes:       []corev1.Node{good("b", notReady), good("a", notReady), good("c", noVF)},
			wantReason:  v1alpha1.ReasonNodeNotReady,
			wantMessage: []string{"2 not ready, 1 no amd.com/sf_vf", "bring node a back"},
		},
		"a single node is named": {
			nodes:       []corev1.Node{good("a", notReady)},
			wantReason:  v1alpha1.ReasonNodeNotReady,
			wantMessage: []string{"spec.placement.client: node a: not ready; bring node a back"},
			notMessage:  "1",
		},
		"a message has room for ten reasons": {
			nodes: func() (nodes []corev1.Node) {
				for i := range 12 {
					nodes = append(nodes, good(fmt.Sprintf("n%02d", i), func(n *corev1.Node) {
						n.Spec.Taints = []corev1.Taint{{Key: fmt.Sprintf("example.com/t%02d", i), Effect: corev1.TaintEffectNoSchedule}}
					}))
				}
				return nodes
			}(),
			wantReason:  v1alpha1.ReasonNodeNotReady,
			wantMessage: []string{"12 nodes: 1 tainted with example.com/t00, ", "1 tainted with example.com/t09, and 2 more; "},
			notMessage:  "t10",
		},

		// Readiness, cordons and taints.
		"a cordoned node": {
			nodes:       []corev1.Node{good("a", cordoned)},
			wantReason:  v1alpha1.ReasonNodeNotReady,
			wantMessage: []string{"node a: cordoned", "uncordon node a", "node.kubernetes.io/unschedulable", "spec.pods.tolerations"},
		},
		"a cordoned node for one that tolerates it": {
			nodes: []corev1.Node{
				good("a", cordoned),
				good("b", cordoned, func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
				}),
			},
			change: []func(*Observed){tolerating(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})},
			want:   "a b",
		},
		"a cordoned node that is tainted, too": {
			nodes:       []corev1.Node{good("a", cordoned, tainted(corev1.TaintEffectNoSchedule))},
			change:      []func(*Observed){tolerating(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})},
			wantReason:  v1alpha1.ReasonNodeNotReady,
			wantMessage: []string{"node a: tainted with example.com/busy", "remove the taint", "spec.pods.tolerations"},
		},
		"a node that a LatencyGate holds": {
			nodes: []corev1.Node{good("a", func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.NodeTaintUnverified, Effect: corev1.TaintEffectNoSchedule}}
			})},
			wantReason:  v1alpha1.ReasonNodeNotReady,
			wantMessage: []string{"tainted with tailgate.dev/latency-unverified", "a LatencyGate holds the node until it is verified; wait, or tolerate it"},
		},
		"a taint that a controller keeps": {
			nodes: []corev1.Node{good("a", func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoExecute}}
			})},
			wantReason:  v1alpha1.ReasonNodeNotReady,
			wantMessage: []string{"tainted with node.cilium.io/agent-not-ready", "Cilium starts its agent on the node; wait, or tolerate it"},
		},
		"everything is tolerated": {
			nodes:  []corev1.Node{good("a", cordoned), good("b", tainted(corev1.TaintEffectNoExecute))},
			change: []func(*Observed){tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})},
			want:   "a b",
		},

		// sriov-network-operator.
		"nodes of which it says that all is well, or nothing of drains": {
			nodes: []corev1.Node{good("a"), good("b")},
			change: []func(*Observed){
				sriov("a", annotated(state(), foreign.AnnotationDesiredState, "Idle")), sriov("b", state()),
			},
			want: "a b",
		},
		"a node that it is about to drain": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){sriov("a", annotated(state(), foreign.AnnotationDesiredState, "Drain_Required"))},
			wantReason:  v1alpha1.ReasonNodeDraining,
			wantMessage: []string{"node a: being drained by sriov-network-operator", "Drain_Required", "sriovnetworknodestates"},
		},
		"a node that it drains": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){sriov("a", annotated(state(), foreign.AnnotationCurrentState, "Draining"))},
			wantReason:  v1alpha1.ReasonNodeDraining,
			wantMessage: []string{"it reports Draining for node a; the benchmark continues"},
		},
		"a node with a state that another operator left behind": {
			nodes: []corev1.Node{good("a")},
			change: []func(*Observed){sriov("a", foreign.SriovNetworkNodeState{
				ObjectMeta: metav1.ObjectMeta{Namespace: "sriov", Annotations: map[string]string{foreign.AnnotationCurrentState: "Draining"}}, Others: []string{"old"},
			})},
			wantReason:  v1alpha1.ReasonNodeDraining,
			wantMessage: []string{"for node a (which has states in the namespaces old, sriov: delete those of operators that were uninstalled); the benchmark continues"},
		},
		"a node that it configures": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){sriov("a", foreign.SriovNetworkNodeState{Spec: wantsVFs, Status: foreign.SriovStatus{SyncStatus: "InProgress"}})},
			wantReason:  v1alpha1.ReasonNodeNotSynced,
			wantMessage: []string{"node a: not synced by sriov-network-operator", `it reports "InProgress" for node a`},
		},
		"a node whose other NIC it configures": {
			nodes: []corev1.Node{good("a"), good("b")},
			change: []func(*Observed){sriov("a", foreign.SriovNetworkNodeState{
				Spec:   foreign.SriovSpec{Interfaces: []foreign.SriovWanted{{VFGroups: []foreign.SriovVFGroup{{ResourceName: "other"}}}}},
				Status: foreign.SriovStatus{SyncStatus: "Failed"},
			})},
			want: "a b",
		},
		"a node that it has not looked at": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){sriov("a", foreign.SriovNetworkNodeState{Spec: wantsVFs})},
			wantReason:  v1alpha1.ReasonNodeNotSynced,
			wantMessage: []string{`"nothing yet"`},
		},
		"a node that it failed to configure": {
			nodes: []corev1.Node{good("a")},
			change: []func(*Observed){sriov("a", foreign.SriovNetworkNodeState{Spec: wantsVFs, Status: foreign.SriovStatus{
				SyncStatus: "Failed", LastSyncError: "write error:\n\tcannot " + strings.Repeat("é", 500),
			}})},
			wantReason:  v1alpha1.ReasonNodeNotSynced,
			wantMessage: []string{`"Failed: write error: cannot éé`, `é…" for node a`},
			notMessage:  strings.Repeat("é", 100),
		},

		// The capacity of nodes.
		"nodes that are too small": {
			nodes:       []corev1.Node{good("a", allocatable(corev1.ResourceCPU, "1900m")), good("b", allocatable(corev1.ResourceMemory, "1000Mi")), good("c", allocatable(corev1.ResourceCPU, "1"))},
			wantReason:  v1alpha1.ReasonInsufficientCPU,
			wantMessage: []string{"3 nodes: 2 fewer than 2 whole CPUs, 1 less than 1Gi of memory", "no node has more than 1 whole CPUs", "spec.placement.cpus"},
		},
		"too little memory": {
			nodes:       []corev1.Node{good("a", allocatable(corev1.ResourceMemory, "1000Mi"))},
			wantReason:  v1alpha1.ReasonInsufficientMemory,
			wantMessage: []string{"node a: less than 1Gi of memory", "more than 1000Mi", "spec.placement.memory"},
		},
		"a node has to have the devices of all variants": {
			nodes: []corev1.Node{
				good("a"), good("b", allocatable("amd.com/sf_pf", "1")), good("c", allocatable("amd.com/sf_pf", "1"), allocatable("amd.com/onload", "100")),
				good("d", allocatable("amd.com/onload", "100")),
			},
			change: []func(*Observed){func(o *Observed) {
				o.Benchmark.Spec.Variants = []v1alpha1.Variant{
					{Name: "vf"},
					{Name: "pf", Network: &v1alpha1.Network{Type: v1alpha1.NetworkPF, PF: &v1alpha1.PFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_pf"}}}},
					{Name: "onload", Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload}},
				}
				o.Benchmark.Spec.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "a"}}
			}},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"spec.placement.server: node a: no amd.com/sf_pf", "spec.variants[1].network.pf.resourceName"},
		},
		"a device of a variant's acceleration": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){onload},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"node a: no amd.com/onload", "spec.acceleration.onload.resourceName", "device plugin"},
		},

		// VFs that sriov-network-operator should have created.
		"a VF on a node of which it lists no Solarflare NIC": {
			nodes:      []corev1.Node{good("a", noVF)},
			change:     []func(*Observed){sriov("a", state(foreign.SriovInterface{Name: "eno1", Vendor: "8086", DeviceID: "1572", TotalVFs: 64}))},
			wantReason: v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{
				"a SriovNetworkNodePolicy is missing that gives node a the resource amd.com/sf_vf (the operator lists eno1, 8086:1572, with 0 of 64 VFs)", `supportedExtraNICs: ['Solarflare_X2: "1924 0b03 1b03"']`, `"1924 0c03 1c03"`,
			},
		},
		"a VF on a node whose Solarflare NIC has none": {
			nodes:       []corev1.Node{good("a", noVF)},
			change:      []func(*Observed){sriov("a", state(foreign.SriovInterface{Name: "ens1f0np0", Vendor: "1924", TotalVFs: 8}))},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"ens1f0np0 of node a has no VFs", "SriovNetworkNodePolicy with resourceName: sf_vf", "missing"},
		},
		"a VF on a node whose Solarflare NIC cannot have any": {
			nodes:       []corev1.Node{good("a", noVF)},
			change:      []func(*Observed){sriov("a", state(foreign.SriovInterface{Name: "ens1f0np0", Vendor: "1924"}))},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"firmware", "ens1f0np0 of node a", "sfboot", "switch-mode=sriov"},
		},
		"a VF on a node whose Solarflare NIC has some": {
			nodes:       []corev1.Node{good("a", noVF)},
			change:      []func(*Observed){sriov("a", state(foreign.SriovInterface{Name: "ens1f0np0", Vendor: "1924", NumVFs: 4, TotalVFs: 8}))},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"check that the device plugin of amd.com/sf_vf runs on node a"},
		},
		"a VF of another vendor, of a policy": {
			nodes: []corev1.Node{good("a", noVF)},
			change: []func(*Observed){sriov("a", foreign.SriovNetworkNodeState{
				Spec:   foreign.SriovSpec{Interfaces: []foreign.SriovWanted{{VFGroups: []foreign.SriovVFGroup{{ResourceName: "x"}, {ResourceName: "sf_vf"}}}}},
				Status: foreign.SriovStatus{SyncStatus: "Succeeded"},
			})},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"check that the device plugin"},
			notMessage:  "Solarflare",
		},
		"a network without VFs is not affected": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){sriov("a", state()), onload},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"check that the device plugin of amd.com/onload"},
			notMessage:  "Solarflare",
		},

		"nor has a whole PF, of which no policy makes a resource": {
			nodes: []corev1.Node{good("a")},
			change: []func(*Observed){sriov("a", state()), func(o *Observed) {
				o.Benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkPF, PF: &v1alpha1.PFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_pf"}}}
			}},
			wantReason:  v1alpha1.ReasonResourceNotAdvertised,
			wantMessage: []string{"check that the device plugin of amd.com/sf_pf"},
			notMessage:  "Solarflare",
		},

		// Resources that other pods use.
		"nodes whose devices are taken are passed over": {
			nodes:  []corev1.Node{good("a"), good("b"), good("c")},
			change: []func(*Observed){pods(pod("a", "x", vf+"=1"), pod("a", "y", vf+"=1"), pod("b", "z", vf+"=1"))},
			want:   "b c",
		},
		"devices that are taken": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){pods(pod("a", "x", "cpu=1"), pod("a", "z", vf+"=1"), pod("a", "y", vf+"=1"), pod("b", "elsewhere", vf+"=9"))},
			wantReason:  v1alpha1.ReasonNodeBusy,
			wantMessage: []string{"spec.placement.client: node a: no free amd.com/sf_vf; on node a, pod perf/y uses most of it, 1 of 2; move the pod to another node"},
		},
		"CPUs that are taken, in part": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){pods(pod("a", "x", "cpu=1500m"), pod("a", "y", "cpu=600m"))},
			wantReason:  v1alpha1.ReasonNodeBusy,
			wantMessage: []string{"node a: fewer than 2 free CPUs; on node a, pod perf/x uses most of it, 1500m of 4"},
		},
		"CPUs of which exactly enough are left": {
			nodes:  []corev1.Node{good("a"), good("b")},
			change: []func(*Observed){pods(pod("a", "x", "cpu=1500m"), pod("a", "y", "cpu=500m"), pod("b", "z"))},
			want:   "a b",
		},
		"memory that is taken": {
			nodes:       []corev1.Node{good("a"), good("b")},
			change:      []func(*Observed){pods(pod("a", "x", "memory=7680Mi"), pod("b", "y", "memory=8Gi"))},
			wantReason:  v1alpha1.ReasonNodeBusy,
			wantMessage: []string{"2 nodes: 2 less than 1Gi of free memory; on node a, pod perf/x uses most of it, 7680Mi of 8Gi"},
		},
		"huge pages that are taken": {
			nodes: []corev1.Node{good("a", allocatable("hugepages-2Mi", "64Mi"))},
			change: []func(*Observed){
				func(o *Observed) {
					o.Benchmark.Spec.Pods = &v1alpha1.PodSettings{Hugepages: &v1alpha1.Hugepages{Size: "2Mi", Amount: resource.MustParse("32Mi")}}
				}, pods(pod("a", "x", "hugepages-2Mi=34Mi")),
			},
			wantReason:  v1alpha1.ReasonNodeBusy,
			wantMessage: []string{"less than 32Mi in free huge pages of 2Mi", "34Mi of 64Mi"},
		},
		"a pair that was chosen before is not told from what others have taken": {
			nodes:       []corev1.Node{good("a"), good("b"), good("c"), good("d")},
			change:      []func(*Observed){kept, pods(pod("b", "x", vf+"=2"))},
			wantReason:  v1alpha1.ReasonNodeBusy,
			wantMessage: []string{"spec.placement.server: node b: no free amd.com/sf_vf"},
		},

		"pods of lower priority are no obstacle": {
			nodes:  []corev1.Node{good("a"), good("b")},
			change: []func(*Observed){ofPriority(10, ""), pods(prior(9, pod("a", "x", vf+"=2")), prior(10, pod("b", "y", vf+"=1")))},
			want:   "b a",
		},
		"pods of the same priority are": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){ofPriority(10, ""), pods(prior(9, pod("a", "x", vf+"=9")), prior(10, pod("a", "y", vf+"=1")), prior(11, pod("a", "z", vf+"=1")))},
			wantReason:  v1alpha1.ReasonNodeBusy,
			wantMessage: []string{"pod perf/y uses most of it, 1 of 2"},
		},
		"pods of lower priority are, for one that never preempts": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){ofPriority(10, corev1.PreemptNever), pods(prior(9, pod("a", "x", vf+"=2")))},
			wantReason:  v1alpha1.ReasonNodeBusy,
			wantMessage: []string{"pod perf/x"},
		},
		"without classes, pods that only hold a place are no obstacle": {
			nodes:  []corev1.Node{good("a"), good("b")},
			change: []func(*Observed){pods(prior(-10, pod("a", "x", "cpu=4")))},
			want:   "b a",
		},

		// Requests of one endpoint only.
		"more CPUs for the server": {
			nodes:  []corev1.Node{good("a", cpu("8")), good("b", cpu("2")), good("c", cpu("4"))},
			change: []func(*Observed){others(map[string]int{"a": 1}), server(v1alpha1.EndpointPlacement{CPUs: 4})},
			want:   "b c",
		},
		"more CPUs for the client than there are": {
			nodes:       []corev1.Node{good("a"), good("b")},
			change:      []func(*Observed){client(v1alpha1.EndpointPlacement{CPUs: 32})},
			wantReason:  v1alpha1.ReasonInsufficientCPU,
			wantMessage: []string{"spec.placement.client: 2 nodes: 2 fewer than 32 whole CPUs", "request fewer in spec.placement.client.cpus"},
		},
		"more memory for the server than there is": {
			nodes:       []corev1.Node{good("a"), good("b")},
			change:      []func(*Observed){server(v1alpha1.EndpointPlacement{Memory: new(resource.MustParse("60Gi"))})},
			wantReason:  v1alpha1.ReasonInsufficientMemory,
			wantMessage: []string{"spec.placement.server: 2 nodes: 2 less than 60Gi of memory", "request less in spec.placement.server.memory"},
		},
		"a taint that only the server tolerates": {
			nodes: []corev1.Node{good("a", cordoned), good("b")},
			change: []func(*Observed){server(v1alpha1.EndpointPlacement{
				Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}})},
			want: "b a",
		},
		"taints that template and client tolerate together": {
			nodes: []corev1.Node{good("a", cordoned, tainted(corev1.TaintEffectNoSchedule)), good("b")},
			change: []func(*Observed){
				tolerating(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}),
				client(v1alpha1.EndpointPlacement{Tolerations: []corev1.Toleration{{Key: "example.com/busy", Operator: corev1.TolerationOpExists}}}),
			},
			want: "a b",
		},
		"a far VF where the client may have one": {
			nodes: []corev1.Node{good("a"), good("b")},
			change: []func(*Observed){client(v1alpha1.EndpointPlacement{NUMAPolicy: v1alpha1.NUMAPreferred}),
				zones("b", zone("node-0", "cpu=4/4"), zone("node-1", "cpu=0/4", vf+"=2/2"))},
			want: "b a",
		},
		"CPUs on the NUMA node of a VF, as many as the endpoint gets": {
			nodes: []corev1.Node{good("a"), good("b")},
			change: []func(*Observed){server(v1alpha1.EndpointPlacement{CPUs: 4}), zones("a", zone("node-0", "cpu=4/4"), zone("node-1", "cpu=3/4", vf+"=2/2")),
				zones("b", zone("node-0", "cpu=4/4"), zone("node-1", "cpu=3/4", vf+"=2/2"))},
			wantReason:  v1alpha1.ReasonTopologyInsufficient,
			wantMessage: []string{"spec.placement.server: 2 nodes: 2 fewer than 4 whole CPUs on NUMA node 1", "request fewer in spec.placement.server.cpus"},
		},

		// The RuntimeClass.
		"nodes that the RuntimeClass is for": {
			nodes:  []corev1.Node{good("a"), good("b", labelled("tuned", "yes")), good("c", labelled("tuned", "no")), good("d", labelled("tuned", "yes"))},
			change: []func(*Observed){ofRuntime(nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"tuned": "yes"}}})},
			want:   "b d",
		},
		"no node that the RuntimeClass is for": {
			nodes:       []corev1.Node{good("a", labelled("tuned", "no"))},
			change:      []func(*Observed){ofRuntime(nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"tuned": "yes", "always": ""}}})},
			wantReason:  v1alpha1.ReasonNoMatchingNode,
			wantMessage: []string{"node a: not of RuntimeClass fast", "tuned=yes", "spec.pods.runtimeClassName"},
		},
		"what the RuntimeClass tolerates": {
			nodes:  []corev1.Node{good("a", tainted(corev1.TaintEffectNoSchedule)), good("b")},
			change: []func(*Observed){ofRuntime(nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{Tolerations: []corev1.Toleration{{Key: "example.com/busy", Operator: corev1.TolerationOpExists}}}})},
			want:   "a b",
		},
		"what the RuntimeClass and the template tolerate together": {
			nodes: []corev1.Node{good("a", cordoned, tainted(corev1.TaintEffectNoSchedule)), good("b")},
			change: []func(*Observed){
				ofRuntime(nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{Tolerations: []corev1.Toleration{{Key: "example.com/busy", Operator: corev1.TolerationOpExists}}}}),
				func(o *Observed) {
					o.Benchmark.Spec.Pods.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}
				},
			},
			want: "a b",
		},
		"what the RuntimeClass needs itself": {
			nodes:       []corev1.Node{good("a", allocatable(corev1.ResourceCPU, "2200m"))},
			change:      []func(*Observed){ofRuntime(nodev1.RuntimeClass{Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}}})},
			wantReason:  v1alpha1.ReasonInsufficientCPU,
			wantMessage: []string{"node a: fewer than 2 whole CPUs", "no node has more than 1 whole CPUs"},
		},
		"a RuntimeClass that does not exist": {
			nodes:      []corev1.Node{good("a"), good("b")},
			change:     []func(*Observed){func(o *Observed) { o.Benchmark.Spec.Pods = &v1alpha1.PodSettings{RuntimeClassName: "fast"} }},
			wantReason: v1alpha1.ReasonClassNotFound, wantMessage: []string{"spec.pods.runtimeClassName", "fast does not exist", "create it"},
		},
		"a PriorityClass that does not exist": {
			nodes:      []corev1.Node{good("a"), good("b")},
			change:     []func(*Observed){func(o *Observed) { o.Benchmark.Spec.Pods = &v1alpha1.PodSettings{PriorityClassName: "high"} }},
			wantReason: v1alpha1.ReasonClassNotFound, wantMessage: []string{"spec.pods.priorityClassName", "high does not exist", "create it"},
		},

		// NUMA nodes.
		"a NUMA node with a device and CPUs": {
			nodes: []corev1.Node{good("a"), good("b"), good("c")},
			change: []func(*Observed){
				zones("a", zone("node-0", "cpu=4/4", vf+"=0/1"), zone("node-1", "cpu=1/4", vf+"=1/1")),
				zones("b", zone("node-0", "cpu=2/4", vf+"=1/1"), zone("node-1", "cpu=0/4")),
			},
			want: "b c",
		},
		"devices on NUMA nodes without CPUs": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){zones("a", zone("node-0", "cpu=1/4", vf+"=1/1"), zone("node-1", "cpu=0/4", vf+"=1/1"), zone("node-2", "cpu=4/4"))},
			wantReason:  v1alpha1.ReasonTopologyInsufficient,
			wantMessage: []string{"node a: fewer than 2 whole CPUs on NUMA node 0 or 1", "spec.placement.cpus", "spec.placement.numaPolicy: Preferred"},
		},
		"CPUs on NUMA nodes without a device": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){zones("a", zone("node-0", "cpu=4/4", vf+"=0/2"), zone("node-1", "cpu=4/4"))},
			wantReason:  v1alpha1.ReasonTopologyInsufficient,
			wantMessage: []string{"node a: no NUMA node with a free amd.com/sf_vf"},
		},
		"a spec without a NUMA policy requires one NUMA node": {
			nodes:       []corev1.Node{good("a")},
			change:      []func(*Observed){numa(""), zones("a", zone("node-0", "cpu=4/4", vf+"=0/2"), zone("node-1", "cpu=4/4"))},
			wantReason:  v1alpha1.ReasonTopologyInsufficient,
			wantMessage: []string{"node a: no NUMA node with a free amd.com/sf_vf"},
		},
		"NUMA nodes are ignored unless they are required": {
			nodes:  []corev1.Node{good("a"), good("b")},
			change: []func(*Observed){numa(v1alpha1.NUMAPreferred), zones("a", zone("node-0", "cpu=4/4", vf+"=0/2"))},
			want:   "a b",
		},
		"a client on whose architecture the tool cannot send at a rate": {
			nodes:       []corev1.Node{good("a", arch("arm64")), good("b", arch("ppc64le"))},
			change:      []func(*Observed){atRate},
			wantReason:  v1alpha1.ReasonCellUnsupported,
			wantMessage: []string{"spec.placement.client", "arm64, on which sockperf of the bench image cannot send at a rate (spec.workload.ratesPerSecond)", "use pinger"},
		},
		"a server there can answer": {
			nodes:  []corev1.Node{good("a", arch("arm64")), good("b", arch("amd64"))},
			change: []func(*Observed){atRate},
			want:   "b a",
		},
		"a tool that waits for answers measures there": {
			nodes:  []corev1.Node{good("a", arch("arm64")), good("b", arch("arm64"))},
			change: []func(*Observed){func(o *Observed) { atRate(o); o.Benchmark.Spec.Workload.RatesPerSecond = nil }},
			want:   "a b",
		},
		"devices with an unknown NUMA node are not searched there": {
			nodes:  []corev1.Node{good("a", allocatable("amd.com/onload", "9")), good("b", allocatable("amd.com/onload", "9"))},
			change: []func(*Observed){onload, zones("a", zone("node-0", "cpu=4/4", vf+"=1/1")), zones("b", zone("node-0", "cpu=0/4"))},
			want:   "a b",
		},
		"zones that say nothing of CPUs": {
			nodes:  []corev1.Node{good("a"), good("b")},
			change: []func(*Observed){zones("a", zone("node-0", vf+"=1/1"))},
			want:   "a b",
		},
		"zones that are no NUMA nodes do not count": {
			nodes: []corev1.Node{good("a")},
			change: []func(*Observed){zones("a", zone("node-0", "cpu=1/4", vf+"=1/1"),
				foreign.Zone{Name: "socket-0", Type: "Socket", Resources: zone("", "cpu=8/8", vf+"=1/1").Resources})},
			wantReason: v1alpha1.ReasonTopologyInsufficient, wantMessage: []string{"NUMA node 0;"},
		},
		"pods that may have CPUs of any NUMA node do not count": {
			nodes:  []corev1.Node{good("a"), good("b")},
			change: []func(*Observed){others(map[string]int{"a": 1}), zones("a", zone("node-0", "cpu=0/4", vf+"=0/1"))},
			want:   "b a",
		},
		"the benchmark's own pods do not count either": {
			nodes:  []corev1.Node{good("a"), good("b")},
			change: []func(*Observed){kept, zones("a", zone("node-0", "cpu=0/4", vf+"=0/1"))},
			want:   "a b",
		},

		// The choice.
		"the nodes to which the fewest others are bound": {
			nodes:  []corev1.Node{good("a"), good("b"), good("c"), good("d")},
			change: []func(*Observed){others(map[string]int{"a": 2, "b": 1, "c": 1})},
			want:   "d b",
		},
		"of equal ones, those with the fewest other devices": {
			nodes: []corev1.Node{
				good("a", allocatable("amd.com/sf_pf", "1"), allocatable("example.com/gpu", "1")), good("b", allocatable("amd.com/sf_pf", "1")),
				good("c", allocatable("example.com/gpu", "0"), allocatable("scheduling.node.kubernetes.io/foo", "1"), allocatable("hugepages-2Mi", "1Gi")),
			},
			want: "c b",
		},
		"others count more than devices": {
			nodes:  []corev1.Node{good("a", allocatable("example.com/gpu", "1")), good("b"), good("c")},
			change: []func(*Observed){others(map[string]int{"b": 1})},
			want:   "c a",
		},
		"the server is moved off the node of both if that costs others less": {
			nodes: []corev1.Node{good("a"), good("b"), good("c")},
			change: []func(*Observed){others(map[string]int{"b": 1}), func(o *Observed) {
				o.Nodes[0].Labels["end"], o.Nodes[1].Labels["end"] = "client", "client"
				o.Benchmark.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"end": "client"}}}}
			}},
			want: "a c",
		},
		"the client is moved off the node of both if that costs others less": {
			nodes: []corev1.Node{good("a"), good("b"), good("c")},
			change: []func(*Observed){others(map[string]int{"b": 1}), func(o *Observed) {
				o.Nodes[0].Labels["end"], o.Nodes[1].Labels["end"] = "server", "server"
				o.Benchmark.Spec.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"end": "server"}}}}
			}},
			want: "c a",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := asking(c.nodes...)
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
				t.Errorf("got %s (%s), want reason %q and pair %q", rejection.Reason, rejection.String(), c.wantReason, c.want)
			}
			for _, part := range c.wantMessage {
				if !strings.Contains(rejection.String(), part) {
					t.Errorf("message %q does not say %q", rejection.String(), part)
				}
			}
			if c.notMessage != "" && strings.Contains(rejection.String(), c.notMessage) {
				t.Errorf("message %q says %q", rejection.String(), c.notMessage)
			}
		})
	}
}

// The answer does not depend on the order in which the API server lists nodes and pods.
func TestOrderDoesNotMatter(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	for _, busy := range []bool{false, true} {
		o := cluster(40, 400)
		if busy {
			for i := range o.Nodes {
				o.Pods = append(o.Pods, pod(o.Nodes[i].Name, fmt.Sprintf("big-%d", i), vf+"=2"))
			}
		}
		pair, rejection := Accept(o)
		if (rejection != nil) != busy {
			t.Fatalf("busy: %t, but %v", busy, rejection)
		}
		for range 50 {
			random.Shuffle(len(o.Nodes), func(i, j int) { o.Nodes[i], o.Nodes[j] = o.Nodes[j], o.Nodes[i] })
			random.Shuffle(len(o.Pods), func(i, j int) { o.Pods[i], o.Pods[j] = o.Pods[j], o.Pods[i] })
			again, r := Accept(o)
			if again != pair {
				t.Errorf("got %v, then %v", pair, again)
			}
			if busy && r.String() != rejection.String() {
				t.Errorf("got %q, then %q", rejection.String(), r.String())
			}
		}
	}
}

func TestMatching(t *testing.T) {
	cases := map[string]struct {
		change func(*Observed)
		want   string
	}{
		"any": {func(*Observed) {}, "[a b c]"},
		"one by its name, one by its labels": {func(o *Observed) {
			o.Benchmark.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "c"}}
			o.Benchmark.Spec.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "b"}}}}
		}, "[b c]"},
		"the pair that was chosen before": {func(o *Observed) {
			o.Benchmark.Status.Pair = &v1alpha1.Pair{ClientNode: "c", ServerNode: "a"}
		}, "[a c]"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := asking(good("a", notReady), good("b"), good("c"))
			c.change(&o)
			if got := fmt.Sprint(Matching(o)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestTolerates(t *testing.T) {
	const key = "example.com/load"
	taint := corev1.Taint{Key: key, Value: "5", Effect: corev1.TaintEffectNoSchedule}
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint}}}
	cases := map[string]struct {
		toleration corev1.Toleration
		want       bool
	}{
		"the same":                               {corev1.Toleration{Key: key, Operator: corev1.TolerationOpEqual, Value: "5", Effect: corev1.TaintEffectNoSchedule}, true},
		"no operator means equal":                {corev1.Toleration{Key: key, Value: "5"}, true},
		"another value":                          {corev1.Toleration{Key: key, Value: "6"}, false},
		"any value":                              {corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}, true},
		"another key":                            {corev1.Toleration{Key: "example.com/other", Operator: corev1.TolerationOpExists}, false},
		"another effect":                         {corev1.Toleration{Key: key, Value: "5", Effect: corev1.TaintEffectNoExecute}, false},
		"everything":                             {corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		"less than a number":                     {corev1.Toleration{Key: key, Operator: corev1.TolerationOpLt, Value: "6"}, true},
		"not less than a number":                 {corev1.Toleration{Key: key, Operator: corev1.TolerationOpLt, Value: "5"}, false},
		"more than a number":                     {corev1.Toleration{Key: key, Operator: corev1.TolerationOpGt, Value: "4"}, true},
		"not more than a number":                 {corev1.Toleration{Key: key, Operator: corev1.TolerationOpGt, Value: "5"}, false},
		"less than a value that is not a number": {corev1.Toleration{Key: key, Operator: corev1.TolerationOpLt, Value: "x"}, false},
		"an unknown operator":                    {corev1.Toleration{Key: key, Operator: "Near", Value: "5"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Untolerated(node, []corev1.Toleration{c.toleration}) == ""; got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

// cluster returns a benchmark that may use any two nodes, in a cluster with these numbers of nodes and of pods.
func cluster(nodes, pods int) Observed {
	var all []corev1.Node
	for i := range nodes {
		all = append(all, good(fmt.Sprintf("node-%04d", i)))
	}
	o := asking(all...)
	for i := range pods {
		o.Pods = append(o.Pods, pod(all[i%nodes].Name, fmt.Sprintf("pod-%05d", i), "cpu=100m", "memory=128Mi"))
	}
	return o
}

func BenchmarkAccept(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{500, 0}, {5000, 0}, {500, 5000}, {5000, 50000}} {
		b.Run(fmt.Sprintf("%dNodes%dPods", size.nodes, size.pods), func(b *testing.B) {
			o := cluster(size.nodes, size.pods)
			for b.Loop() {
				if _, r := Accept(o); r != nil {
					b.Fatal(r.String())
				}
			}
		})
	}
	// No node has what is requested: composing the message takes time, too.
	b.Run("5000NodesRejected", func(b *testing.B) {
		o := cluster(5000, 0)
		for i := range o.Nodes {
			delete(o.Nodes[i].Status.Allocatable, vf)
		}
		for b.Loop() {
			if _, r := Accept(o); r == nil {
				b.Fatal("accepted")
			}
		}
	})
}

func arch(name string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.NodeInfo.Architecture = name }
}

// atRate makes the tool sockperf, at a rate.
func atRate(o *Observed) {
	o.Driver, o.Benchmark.Spec.Tool, o.Benchmark.Spec.Workload.RatesPerSecond = sockperf.New(), v1alpha1.ToolSockperf, []int32{1000}
}
