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

// A spec without a number of CPUs gets a whole core if the nodes have one.
func TestCPUsOfPair(t *testing.T) {
	each := func(client, server int32) v1alpha1.EndpointCPUs {
		return v1alpha1.EndpointCPUs{Client: client, Server: server}
	}
	own := func(client, server int32) func(*Observed) {
		return func(o *Observed) {
			o.Benchmark.Spec.Placement.Client, o.Benchmark.Spec.Placement.Server = &v1alpha1.EndpointPlacement{CPUs: client}, &v1alpha1.EndpointPlacement{CPUs: server}
		}
	}
	cases := map[string]struct {
		nodes      []corev1.Node
		change     func(*Observed)
		want       v1alpha1.EndpointCPUs
		wantReason string
	}{
		"two where both nodes have them":                 {nodes: []corev1.Node{good("a", cpu("8")), good("b", cpu("8"))}, want: each(2, 2)},
		"one where a node has no second":                 {nodes: []corev1.Node{good("a", cpu("8")), good("b", cpu("1900m"))}, want: each(1, 1)},
		"two on the nodes that have them":                {nodes: []corev1.Node{good("a", cpu("1")), good("b", cpu("8")), good("c", cpu("8"))}, want: each(2, 2)},
		"one although another node is cordoned":          {nodes: []corev1.Node{good("a", cpu("1")), good("b", cpu("1")), good("c", cordoned), good("d", cordoned)}, want: each(1, 1)},
		"as many as the spec says":                       {nodes: []corev1.Node{good("a"), good("b")}, change: func(o *Observed) { o.Benchmark.Spec.Placement.CPUs = 3 }, want: each(3, 3)},
		"as many as before":                              {nodes: []corev1.Node{good("a"), good("b")}, change: func(o *Observed) { o.Benchmark.Status.CPUs = &v1alpha1.EndpointCPUs{Client: 1, Server: 2} }, want: each(1, 2)},
		"not fewer than the tool needs":                  {nodes: []corev1.Node{good("a", cpu("1")), good("b", cpu("1"))}, change: func(o *Observed) { o.Driver = twoCPUs{} }, wantReason: v1alpha1.ReasonInsufficientCPU},
		"it waits while pods have the second":            {nodes: []corev1.Node{good("a", cpu("2")), good("b")}, change: func(o *Observed) { o.Pods = []Pod{pod("a", "x", "cpu=1"), pod("b", "y", "cpu=7")} }, wantReason: v1alpha1.ReasonNodeBusy},
		"each endpoint its own":                          {nodes: []corev1.Node{good("a"), good("b")}, change: own(3, 1), want: each(3, 1)},
		"the endpoint's own value before the shared one": {nodes: []corev1.Node{good("a"), good("b")}, change: func(o *Observed) { own(0, 1)(o); o.Benchmark.Spec.Placement.CPUs = 3 }, want: each(3, 1)},
		"a whole core for the one without":               {nodes: []corev1.Node{good("a"), good("b")}, change: own(3, 0), want: each(3, 2)},
		"one CPU for the one without":                    {nodes: []corev1.Node{good("a", cpu("1")), good("b")}, change: own(3, 0), want: each(3, 1)},
		"a tool's server needs only one":                 {nodes: []corev1.Node{good("a", cpu("1")), good("b")}, change: func(o *Observed) { o.Driver = twoCPUs{} }, want: each(2, 1)},
		"too few for the tool's client":                  {nodes: []corev1.Node{good("a"), good("b")}, change: func(o *Observed) { o.Driver = twoCPUs{}; own(1, 4)(o) }, wantReason: v1alpha1.ReasonInsufficientCPU},
		"nothing where a node has no CPU for pods":       {nodes: []corev1.Node{good("a", cpu("900m")), good("b", cpu("900m"))}, wantReason: v1alpha1.ReasonInsufficientCPU},
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
				t.Errorf("got %s (%s), want %+v CPUs or reason %q", r.Reason, r, c.want, c.wantReason)
			case r == nil && (c.wantReason != "" || n != c.want):
				t.Errorf("got %+v CPUs, want %+v or reason %q", n, c.want, c.wantReason)
			}
		})
	}
}

// The notes list what cannot be verified before anything is measured.
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
		aligned bool
		network v1alpha1.NetworkType
		numa    v1alpha1.NUMAPolicy
		cpus    int32
		want    []string
	}{
		"a whole core and a VF":            {nodes: nodes(), network: v1alpha1.NetworkVF, cpus: 2},
		"a VF that a driver provides":      {nodes: nodes(), claimed: true, network: v1alpha1.NetworkVF, cpus: 2, want: []string{"topology manager"}},
		"a driver's VF, anywhere":          {nodes: nodes(), claimed: true, network: v1alpha1.NetworkVF, numa: v1alpha1.NUMAIgnore, cpus: 2},
		"half a core":                      {nodes: nodes(), network: v1alpha1.NetworkVF, cpus: 1, want: []string{"SMTSiblings"}},
		"one of three CPUs is half a core": {nodes: nodes(label(labelThreads, "true")), network: v1alpha1.NetworkVF, cpus: 3, want: []string{"SMTSiblings"}},
		"a core without threads":           {nodes: nodes(label(labelThreads, "false")), network: v1alpha1.NetworkVF, cpus: 1},
		"Host on several NUMA nodes":       {nodes: nodes(label(labelNUMA, "true")), network: v1alpha1.NetworkHost, cpus: 2, want: []string{"set spec.network.host.alignWith"}},
		"Host with a borrowed device":      {nodes: nodes(label(labelNUMA, "true")), aligned: true, network: v1alpha1.NetworkHost, cpus: 2},
		"ipvlan with a borrowed device":    {nodes: nodes(label(labelNUMA, "true")), aligned: true, network: v1alpha1.NetworkNAD, cpus: 2, want: []string{"firmware"}},
		"Host on unknown NUMA nodes":       {nodes: nodes(), network: v1alpha1.NetworkHost, cpus: 2},
		"Host has to be local":             {nodes: nodes(), network: v1alpha1.NetworkHost, numa: v1alpha1.NUMARequired, cpus: 2, want: []string{"NUMALocal"}},
		"Host may be anywhere":             {nodes: nodes(label(labelNUMA, "true")), network: v1alpha1.NetworkHost, numa: v1alpha1.NUMAIgnore, cpus: 2},
		"ipvlan":                           {nodes: nodes(label(labelNUMA, "true")), network: v1alpha1.NetworkNAD, cpus: 2, want: []string{"NUMALocal", "firmware"}},
		"the pod network":                  {nodes: nodes(label(labelNUMA, "true")), network: v1alpha1.NetworkPod, cpus: 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := asking(c.nodes...)
			o.Benchmark.Spec.Network, o.Benchmark.Spec.Placement.NUMAPolicy = v1alpha1.Network{Type: c.network}, c.numa
			if c.aligned && c.network == v1alpha1.NetworkHost {
				o.Benchmark.Spec.Network.Host = &v1alpha1.HostNetwork{Alignment: v1alpha1.Alignment{AlignWith: vf}}
			} else if c.aligned {
				o.Benchmark.Spec.Network.NAD = &v1alpha1.NADNetwork{Alignment: v1alpha1.Alignment{AlignWith: vf}}
			}
			if c.claimed {
				o.Benchmark.Spec.Network.VF, o.Claimed = &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: vf}}, []string{vf}
			}
			got := Notes(o, v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}, v1alpha1.EndpointCPUs{Client: c.cpus, Server: c.cpus})
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

// The notes say where nothing shows whether datagrams of a tool without message numbers arrive twice.
func TestNotesOfDatagrams(t *testing.T) {
	const udp, tcp, onload = v1alpha1.ProtocolUDP, v1alpha1.ProtocolTCP, v1alpha1.AccelerationOnload
	for name, c := range map[string]struct {
		tool         v1alpha1.Tool
		protocol     v1alpha1.Protocol
		network      v1alpha1.NetworkType
		acceleration v1alpha1.AccelerationType
		want         bool
	}{
		"by the kernel's counters": {v1alpha1.ToolSfntPingpong, udp, v1alpha1.NetworkVF, "", false},
		"with Onload":              {v1alpha1.ToolSfntPingpong, udp, v1alpha1.NetworkVF, onload, true},
		"on the host's network":    {v1alpha1.ToolNetperf, udp, v1alpha1.NetworkHost, "", true},
		"TCP":                      {v1alpha1.ToolNetperf, tcp, v1alpha1.NetworkHost, "", false},
		"messages with numbers":    {v1alpha1.ToolPinger, udp, v1alpha1.NetworkVF, onload, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := asking(good("a"), good("b"))
			o.Benchmark.Spec.Tool, o.Benchmark.Spec.Network.Type, o.Benchmark.Spec.Acceleration = c.tool, c.network, &v1alpha1.Acceleration{Type: c.acceleration}
			o.Benchmark.Spec.Workload.Protocols, o.Benchmark.Spec.Placement.NUMAPolicy = []v1alpha1.Protocol{tcp, c.protocol}, v1alpha1.NUMAIgnore
			got := Notes(o, v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}, v1alpha1.EndpointCPUs{Client: 2, Server: 2})
			if found := strings.Contains(strings.Join(got, "\n"), "MessagesOnce"); found != c.want || len(got) > 1 {
				t.Errorf("got %q, want a note: %t", got, c.want)
			}
		})
	}
}

// The notes say what a tail of ping-pong and of half round trips hides.
func TestNotesOfTails(t *testing.T) {
	for name, c := range map[string]struct {
		metrics []v1alpha1.Metric
		rates   []int32
		kind    v1alpha1.LatencyType
		want    []string
	}{
		"no tail":                     {metrics: []v1alpha1.Metric{"p50", "p90", "lost"}, kind: v1alpha1.LatencyHalfRTT},
		"of half round trips":         {metrics: []v1alpha1.Metric{"p99.9", "p50", "p99", "p99"}, kind: v1alpha1.LatencyHalfRTT, want: []string{"p99.9, p99 is of ping-pong", "p99.9, p99 is of half"}},
		"of round trips":              {metrics: []v1alpha1.Metric{"p95"}, kind: v1alpha1.LatencyRTT, want: []string{"a stall is one slow sample"}},
		"of round trips at a rate":    {metrics: []v1alpha1.Metric{"p95"}, rates: []int32{1000}, kind: v1alpha1.LatencyRTT},
		"of half of those, at a rate": {metrics: []v1alpha1.Metric{"p99"}, rates: []int32{1000}, kind: v1alpha1.LatencyHalfRTT, want: []string{"latencyType RTT shows it whole"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := asking(good("a"), good("b"))
			o.Benchmark.Spec.LatencyType, o.Benchmark.Spec.Workload.RatesPerSecond, o.Benchmark.Spec.Criteria = c.kind, c.rates, &v1alpha1.Criteria{}
			for _, m := range c.metrics {
				o.Benchmark.Spec.Criteria.Rules = append(o.Benchmark.Spec.Criteria.Rules, v1alpha1.Rule{Metric: m})
			}
			got := Notes(o, v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}, v1alpha1.EndpointCPUs{Client: 2, Server: 2})
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

// An odd number of CPUs matters at the end that has it, and a NUMA policy at the end whose node has several NUMA nodes.
func TestNotesOfEachEnd(t *testing.T) {
	label := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels = map[string]string{key: value} }
	}
	notes := func(a, b corev1.Node, client, server int32, placement v1alpha1.Placement) string {
		o := asking(a, b)
		o.Benchmark.Spec.Network, o.Benchmark.Spec.Placement = v1alpha1.Network{Type: v1alpha1.NetworkHost}, placement
		return strings.Join(Notes(o, v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}, v1alpha1.EndpointCPUs{Client: client, Server: server}), "; ")
	}
	for name, c := range map[string]struct{ got, want, not string }{
		"the server's":                        {notes(good("a"), good("b"), 2, 3, v1alpha1.Placement{}), "placement.cpus is 3 for the server:", "client"},
		"both":                                {notes(good("a"), good("b"), 1, 3, v1alpha1.Placement{}), "placement.cpus is 1 for the client and 3 for the server:", "NUMALocal"},
		"no threads at the server's end":      {notes(good("a"), good("b", label(labelThreads, "false")), 2, 1, v1alpha1.Placement{}), "", "SMTSiblings"},
		"several NUMA nodes where it matters": {notes(good("a"), good("b", label(labelNUMA, "true")), 2, 2, v1alpha1.Placement{}), "NUMALocal", "SMTSiblings"},
		"several NUMA nodes where it does not": {notes(good("a"), good("b", label(labelNUMA, "true")), 2, 2,
			v1alpha1.Placement{Server: &v1alpha1.EndpointPlacement{NUMAPolicy: v1alpha1.NUMAIgnore}}), "", "NUMALocal"},
	} {
		if !strings.Contains(c.got, c.want) || strings.Contains(c.got, c.not) {
			t.Errorf("%s: %q, want %q and not %q", name, c.got, c.want, c.not)
		}
	}
}
