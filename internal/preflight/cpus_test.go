package preflight

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// twoCPUs is a tool that needs two CPUs.
type twoCPUs struct{ only64 }

func (twoCPUs) CPUs(tool.Cell) int { return 2 }

func cpu(n string) func(*corev1.Node) { return allocatable(corev1.ResourceCPU, n) }

// A spec that does not say how many CPUs gets a whole core, where the nodes have one.
func TestCPUsOfPair(t *testing.T) {
	cases := map[string]struct {
		nodes      []corev1.Node
		change     func(*Observed)
		want       int32
		wantReason string
	}{
		"two where both nodes have them":           {nodes: []corev1.Node{good("a", cpu("8")), good("b", cpu("8"))}, want: 2},
		"one where a node has no second":           {nodes: []corev1.Node{good("a", cpu("8")), good("b", cpu("1900m"))}, want: 1},
		"two on the nodes that have them":          {nodes: []corev1.Node{good("a", cpu("1")), good("b", cpu("8")), good("c", cpu("8"))}, want: 2},
		"one although another node is cordoned":    {nodes: []corev1.Node{good("a", cpu("1")), good("b", cpu("1")), good("c", cordoned), good("d", cordoned)}, want: 1},
		"as many as the spec says":                 {nodes: []corev1.Node{good("a"), good("b")}, change: func(o *Observed) { o.Benchmark.Spec.Placement.CPUs = 3 }, want: 3},
		"as many as before":                        {nodes: []corev1.Node{good("a"), good("b")}, change: func(o *Observed) { o.Benchmark.Status.CPUs = 1 }, want: 1},
		"not fewer than the tool needs":            {nodes: []corev1.Node{good("a", cpu("1")), good("b", cpu("1"))}, change: func(o *Observed) { o.Driver = twoCPUs{} }, wantReason: v1alpha1.ReasonInsufficientCPU},
		"it waits while pods have the second":      {nodes: []corev1.Node{good("a", cpu("2")), good("b")}, change: func(o *Observed) { o.Pods = []Pod{pod("a", "x", "cpu=1"), pod("b", "y", "cpu=7")} }, wantReason: v1alpha1.ReasonNodeBusy},
		"nothing where a node has no CPU for pods": {nodes: []corev1.Node{good("a", cpu("900m")), good("b", cpu("900m"))}, wantReason: v1alpha1.ReasonInsufficientCPU},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := asking(c.nodes...)
			o.Benchmark.Spec.Placement.CPUs = 0
			if c.change != nil {
				c.change(&o)
			}
			_, r := Accept(o)
			switch n := CPUs(o); {
			case r != nil && r.Reason != c.wantReason:
				t.Errorf("got %s (%s), want %d CPUs or reason %q", r.Reason, r.Message, c.want, c.wantReason)
			case r == nil && (c.wantReason != "" || n != c.want):
				t.Errorf("got %d CPUs, want %d or reason %q", n, c.want, c.wantReason)
			}
		})
	}
}

// What cannot be verified is said before anything is measured.
func TestNotes(t *testing.T) {
	label := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels = map[string]string{key: value} }
	}
	nodes := func(change ...func(*corev1.Node)) []corev1.Node {
		return []corev1.Node{good("a", change...), good("b", change...)}
	}
	cases := map[string]struct {
		nodes   []corev1.Node
		claimed bool
		network v1alpha1.NetworkType
		numa    v1alpha1.NUMAPolicy
		cpus    int32
		want    []string
	}{
		"a whole core and a VF":                  {nodes: nodes(), network: v1alpha1.NetworkVF, cpus: 2},
		"a VF that a driver provides":            {nodes: nodes(), claimed: true, network: v1alpha1.NetworkVF, cpus: 2, want: []string{"topology manager"}},
		"a driver's VF, anywhere":                {nodes: nodes(), claimed: true, network: v1alpha1.NetworkVF, numa: v1alpha1.NUMAIgnore, cpus: 2},
		"half a core":                            {nodes: nodes(), network: v1alpha1.NetworkVF, cpus: 1, want: []string{"SMTSiblings"}},
		"one of three CPUs is half a core":       {nodes: nodes(label(labelThreads, "true")), network: v1alpha1.NetworkVF, cpus: 3, want: []string{"SMTSiblings"}},
		"a core without threads":                 {nodes: nodes(label(labelThreads, "false")), network: v1alpha1.NetworkVF, cpus: 1},
		"Host on several NUMA nodes":             {nodes: nodes(label(labelNUMA, "true")), network: v1alpha1.NetworkHost, cpus: 2, want: []string{"NUMALocal"}},
		"Host on NUMA nodes of which none knows": {nodes: nodes(), network: v1alpha1.NetworkHost, cpus: 2},
		"Host has to be local":                   {nodes: nodes(), network: v1alpha1.NetworkHost, numa: v1alpha1.NUMARequired, cpus: 2, want: []string{"NUMALocal"}},
		"Host may be anywhere":                   {nodes: nodes(label(labelNUMA, "true")), network: v1alpha1.NetworkHost, numa: v1alpha1.NUMAIgnore, cpus: 2},
		"ipvlan":                                 {nodes: nodes(label(labelNUMA, "true")), network: v1alpha1.NetworkNAD, cpus: 2, want: []string{"NUMALocal", "firmware"}},
		"the pod network":                        {nodes: nodes(label(labelNUMA, "true")), network: v1alpha1.NetworkPod, cpus: 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := asking(c.nodes...)
			o.Benchmark.Spec.Network, o.Benchmark.Spec.Placement.NUMA = v1alpha1.Network{Type: c.network}, c.numa
			if c.claimed {
				o.Benchmark.Spec.Network.ResourceName, o.Claimed = vf, []string{vf}
			}
			got := Notes(o, v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}, c.cpus)
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("%q does not say %q", got[i], want)
				}
			}
		})
	}
}
