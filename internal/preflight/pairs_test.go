package preflight

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
)

func TestAcceptMatrix(t *testing.T) {
	rack := func(number string) *v1alpha1.EndpointPlacement {
		return &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": number}}}}
	}
	inRack := func(number string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels["rack"] = number } }
	var matrix v1alpha1.LatencyMatrixSpec
	mesh := func(topology v1alpha1.Topology, parallelism int32) func(*Observed) {
		return func(o *Observed) {
			matrix = v1alpha1.LatencyMatrixSpec{Topology: topology, Parallelism: parallelism}
			o.Benchmark.Spec.Placement.Client, o.Benchmark.Spec.Placement.Server = rack("1"), rack("1")
		}
	}
	star := func(client, server *v1alpha1.EndpointPlacement) func(*Observed) {
		return func(o *Observed) {
			matrix = v1alpha1.LatencyMatrixSpec{Topology: v1alpha1.TopologyStar}
			o.Benchmark.Spec.Placement.Client, o.Benchmark.Spec.Placement.Server = client, server
		}
	}
	static := func(subnet, start string) func(*Observed) {
		return func(o *Observed) {
			o.Benchmark.Spec.Network.VF.IPAM = &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: subnet, RangeStart: start}
		}
	}
	others := func(o *Observed) { o.Others = map[string]int{"a": 3, "c": 1} }
	nodes := func(names ...string) []corev1.Node {
		var all []corev1.Node
		for _, name := range names {
			all = append(all, good(name))
		}
		return all
	}
	many := func(n int) []corev1.Node {
		var all []corev1.Node
		for i := range n {
			all = append(all, good(fmt.Sprintf("n%03d", i)))
		}
		return all
	}
	all := mesh(v1alpha1.TopologyAllPairs, 0)
	noVF := allocatable(vf, "0")

	cases := map[string]struct {
		nodes  []corev1.Node
		change []func(*Observed)
		// want contains the names, then the server and what was left out, or the reason.
		want       string
		wantReason string
		// wantMessage contains parts of the message.
		wantMessage []string
	}{
		"all nodes, by name": {nodes: nodes("c", "a", "b"), change: []func(*Observed){all}, want: "a b c"},
		"those that match":   {nodes: append(nodes("a", "b"), good("c", inRack("2"))), change: []func(*Observed){all}, want: "a b"},
		"by name, which is one too few": {
			nodes: nodes("a", "b"),
			change: []func(*Observed){all, func(o *Observed) {
				o.Benchmark.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "b"}}
			}},
			wantReason: v1alpha1.ReasonSameNode, wantMessage: []string{"spec.nodes: only node b can be measured"},
		},
		"nodes that cannot be measured are reported": {
			nodes:  append(nodes("a", "b"), good("c", notReady), good("d", noVF), good("e", noVF)),
			change: []func(*Observed){all}, want: "a b; 1 not ready, 2 no amd.com/sf_vf",
		},
		"one alone, and why": {
			nodes: append(nodes("a"), good("c", cordoned)), change: []func(*Observed){all},
			wantReason: v1alpha1.ReasonSameNode, wantMessage: []string{"only node a", "or make the others available: 1 cordoned"},
		},
		"by names": {
			nodes: nodes("a", "b", "c"),
			change: []func(*Observed){all, func(o *Observed) {
				o.Benchmark.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeNames: []string{"c", "a"}}}
			}}, want: "a c",
		},
		"by names of nodes that do not exist": {
			nodes: nodes("a", "b"),
			change: []func(*Observed){all, func(o *Observed) {
				o.Benchmark.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeNames: []string{"x"}}}
			}},
			wantReason: v1alpha1.ReasonNoMatchingNode, wantMessage: []string{"spec.nodes.nodeNames: none of these nodes exists"},
		},
		"none": {
			nodes: []corev1.Node{good("a", notReady), good("b", notReady)}, change: []func(*Observed){all},
			wantReason: v1alpha1.ReasonNodeNotReady, wantMessage: []string{"spec.nodes: 2 nodes: 2 not ready"},
		},
		"no node matches": {
			nodes: []corev1.Node{good("a", inRack("2"))}, change: []func(*Observed){all},
			wantReason: v1alpha1.ReasonNoMatchingNode, wantMessage: []string{"spec.nodes.nodeSelector: no node has rack=1"},
		},
		"as many as there may be": {nodes: many(100), change: []func(*Observed){all}, want: strings.Join(namesOf(many(100)), " ")},
		"one too many": {
			nodes: many(101), change: []func(*Observed){mesh(v1alpha1.TopologyRing, 0)},
			wantReason: v1alpha1.ReasonTooManyNodes, wantMessage: []string{"spec.nodes: 101 nodes can be measured, and Ring takes at most 100; select fewer"},
		},
		"pods on a node do not matter": {
			nodes:  nodes("a", "b"),
			change: []func(*Observed){all, func(o *Observed) { o.Pods = []Pod{pod("a", "big", "cpu=4")} }}, want: "a b",
		},
		"also on its NUMA nodes": {
			nodes: nodes("a", "b"),
			change: []func(*Observed){all, func(o *Observed) {
				o.Topologies = map[string]foreign.NodeResourceTopology{"a": {Zones: []foreign.Zone{zone("node-0", "cpu=0/4", vf+"=0/2")}}}
			}}, want: "a b",
		},
		"the spec is checked first": {
			nodes:  nodes("a"),
			change: []func(*Observed){all, func(o *Observed) { o.Benchmark.Spec.Workload.MessageSizes = []int32{65} }}, wantReason: v1alpha1.ReasonCellUnsupported,
		},
		"an unknown tool": {
			nodes: nodes("a", "b"), change: []func(*Observed){all, func(o *Observed) { o.Driver = nil }},
			wantReason: v1alpha1.ReasonCellUnsupported, wantMessage: []string{"spec.template.spec.tool: this operator does not know"},
		},

		"each node as client and as server": {
			nodes:  append(nodes("a", "b"), good("c", cpu("3"))),
			change: []func(*Observed){all, func(o *Observed) { o.Benchmark.Spec.Placement.Server.CPUs = 4 }},
			want:   "a b; 1 fewer than 4 whole CPUs",
		},
		"the server of a star as server alone": {
			nodes:  append(nodes("a", "b"), good("s", inRack("2"), cpu("1"))),
			change: []func(*Observed){star(rack("1"), rack("2")), func(o *Observed) { o.Benchmark.Spec.Placement.Server.CPUs = 1 }},
			want:   "a b from s",
		},

		"a star": {
			nodes:  append(nodes("a", "b"), good("s", inRack("2")), good("t", inRack("2"))),
			change: []func(*Observed){star(rack("1"), rack("2"))}, want: "a b from s",
		},
		"a star whose server is no client, where there is one": {
			nodes: append(nodes("a", "b"), good("s", inRack("2"))), change: []func(*Observed){star(rack("1"), nil)}, want: "a b from s",
		},
		"a star of any nodes takes the server that others need least": {nodes: nodes("a", "b", "c"), change: []func(*Observed){star(nil, nil), others}, want: "a c from b"},
		"a star of one node": {
			nodes: nodes("a"), change: []func(*Observed){star(nil, nil)}, wantReason: v1alpha1.ReasonSameNode, wantMessage: []string{"only node a is suitable"},
		},
		"a star without a server": {
			nodes: nodes("a"), change: []func(*Observed){star(nil, rack("2"))}, wantReason: v1alpha1.ReasonNoMatchingNode, wantMessage: []string{"spec.server.nodeSelector"},
		},
		"a star of too many": {
			nodes: many(502), change: []func(*Observed){star(nil, nil)},
			wantReason: v1alpha1.ReasonTooManyNodes, wantMessage: []string{"spec.nodes: 501 nodes can be measured, and Star takes at most 500 clients"},
		},
		"a star's left out": {
			nodes: append(nodes("a", "b"), good("c", notReady)), change: []func(*Observed){star(nil, nil)}, want: "b from a; 1 not ready",
		},

		"addresses for each pair at once": {nodes: nodes("a", "b", "c", "d"), change: []func(*Observed){mesh(v1alpha1.TopologyAllPairs, 2), static("10.0.0.0/29", "")}, want: "a b c d"},
		"no more than there are pairs":    {nodes: nodes("a", "b"), change: []func(*Observed){mesh(v1alpha1.TopologyAllPairs, 50), static("10.0.0.0/30", "")}, want: "a b"},
		"too few addresses": {
			nodes: nodes("a", "b", "c", "d"), change: []func(*Observed){mesh(v1alpha1.TopologyAllPairs, 2), static("10.0.0.0/29", "10.0.0.4")},
			wantReason:  v1alpha1.ReasonNetworkRangeTooSmall,
			wantMessage: []string{"spec.template.spec.network.vf.ipam: 2 pairs are measured at once, and 10.0.0.0/29 from 10.0.0.4 on has two addresses for each of 1; give a larger range"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := asking(c.nodes...)
			for _, change := range c.change {
				change(&o)
			}
			nodes, r := AcceptMatrix(o, matrix)
			if c.wantReason != "" {
				if r == nil || r.Reason != c.wantReason {
					t.Fatalf("got %v, %+v; want %s", nodes, r, c.wantReason)
				}
				for _, part := range c.wantMessage {
					if !strings.Contains(r.String(), part) {
						t.Errorf("message %q has no %q", r.String(), part)
					}
				}
				return
			}
			if r != nil {
				t.Fatalf("rejected: %+v", r)
			}
			got := strings.Join(nodes.Names, " ")
			if nodes.Server != "" {
				got += " from " + nodes.Server
			}
			if nodes.LeftOut != "" {
				got += "; " + nodes.LeftOut
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func namesOf(nodes []corev1.Node) []string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

func TestUsable(t *testing.T) {
	o := asking(good("a"), good("b", notReady), good("c", cordoned), good("d", allocatable(vf, "0")), good("s", cpu("1")))
	o.Benchmark.Spec.Placement.Server = &v1alpha1.EndpointPlacement{CPUs: 1}
	o.Benchmark.Spec.Workload.RatesPerSecond, o.Driver = []int32{1000}, nil
	for star, want := range map[string][]string{"": {"a"}, "s": {"a", "s"}} {
		var usable []string
		for name, yes := range Usable(o, star) {
			if yes {
				usable = append(usable, name)
			}
		}
		if slices.Sort(usable); !slices.Equal(usable, want) {
			t.Errorf("with server %q, usable are %v, want %v", star, usable, want)
		}
	}
}
