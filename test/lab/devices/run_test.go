//go:build e2e

package devices

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
	"github.com/tailgate-dev/tailgate/test/lab"
	"github.com/tailgate-dev/tailgate/test/localcluster/cni"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

const (
	// patience limits every wait. A guest on a busy machine is slow.
	patience = 2 * time.Minute
	// attachTime is how long a VF may take until it has a link; see attach.
	attachTime = 15 * time.Second
)

// slowest is the longest time so far of a run that succeeded without an event.
var slowest time.Duration

var (
	roles = [2]string{v1alpha1.RoleClient, v1alpha1.RoleServer}
	// cores are the CPUs of the NUMA nodes.
	cores = [2]string{"0-1", "2-3"}
)

// network is the network of a benchmark.
type network struct {
	kind   v1alpha1.NetworkType
	mtu    int32
	subnet string
}

// resourceName returns the resource name of the functions.
func (n network) resourceName() string {
	return map[v1alpha1.NetworkType]string{v1alpha1.NetworkVF: "intel.com/igb_vf", v1alpha1.NetworkPF: "intel.com/igb_pf"}[n.kind]
}

// benchmark returns a benchmark with the defaults that the API server would set.
func (n network) benchmark(program v1alpha1.Tool, duration time.Duration) *v1alpha1.LatencyBenchmark {
	size := int32(64)
	if n.mtu > 1500 {
		size = n.mtu - 1000 // one packet, if all devices on the path have this MTU
	}
	return &v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: "devices", Namespace: "perf", UID: "b"},
		Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Tool: program, Rounds: 1, LatencyType: v1alpha1.LatencyHalfRTT,
			Workload: v1alpha1.Workload{
				Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}, MessageSizes: []int32{size},
				Duration: metav1.Duration{Duration: duration}, Warmup: metav1.Duration{Duration: 100 * time.Millisecond},
			},
			Placement: v1alpha1.Placement{CPUs: 2, Memory: resource.MustParse("256Mi"), NUMAPolicy: v1alpha1.NUMARequired},
			Network:   n.union(),
		}},
	}
}

// union returns the network as part of a benchmark's spec. Networks without a device borrow a VF.
func (n network) union() v1alpha1.Network {
	borrowed := v1alpha1.Alignment{AlignWith: network{kind: v1alpha1.NetworkVF}.resourceName()}
	switch n.kind {
	case v1alpha1.NetworkHost:
		return v1alpha1.Network{Type: n.kind, Host: &v1alpha1.HostNetwork{Interface: pods.Interface, Alignment: borrowed}}
	case v1alpha1.NetworkNAD:
		return v1alpha1.Network{Type: n.kind, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: "macvlan"}, Alignment: borrowed}}
	}
	device := v1alpha1.DeviceNetwork{ResourceName: n.resourceName(), MTU: n.mtu, IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: n.subnet}}
	if n.kind == v1alpha1.NetworkPF {
		return v1alpha1.Network{Type: n.kind, PF: &v1alpha1.PFNetwork{DeviceNetwork: device}}
	}
	return v1alpha1.Network{Type: n.kind, VF: &v1alpha1.VFNetwork{DeviceNetwork: device}}
}

// attachment is a function in the network namespace of a pod.
type attachment struct {
	function string
	space    *netpair.Namespace
	status   foreign.Status
}

// attach attaches a function as Multus does for a benchmark's pod.
func attach(t *testing.T, n network, role, function string) *attachment {
	t.Helper()
	b := n.benchmark(v1alpha1.ToolPinger, time.Second)
	run := plan.Runs(b)[0]
	definition := pods.Network(b, run.Variant)
	config, _, err := unstructured.NestedString(definition.Object, "spec", "config")
	if err != nil {
		t.Fatal(err)
	}
	conf, err := cni.ConfList([]byte(config), definition.GetName(), "", function)
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := pods.Build(pods.Endpoint{Benchmark: b, Image: "bench", Node: "node", Variant: run.Variant, Task: plan.Task{Role: role, Cells: run.Cells}})
	if err != nil {
		t.Fatal(err)
	}
	var asked []foreign.Selection
	if err := json.Unmarshal([]byte(pod.Annotations[foreign.AnnotationNetworks]), &asked); err != nil {
		t.Fatal(err)
	}
	space, err := netpair.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	name := netdevice(function)
	plugins := libcni.NewCNIConfigWithCacheDir([]string{cniPath}, t.TempDir(), nil)
	runtime := &libcni.RuntimeConf{
		ContainerID: role, NetNS: space.Path(), IfName: asked[0].Interface, CapabilityArgs: map[string]any{"ips": asked[0].IPs},
	}
	t.Cleanup(func() {
		// A function that the test case has removed cannot be detached.
		if _, err := link(space); err == nil {
			if err := plugins.DelNetworkList(context.Background(), list, runtime); err != nil {
				t.Errorf("detaching %s: %v", function, err)
			}
			if back, err := netlink.LinkByName(name); err != nil || back.Attrs().MTU != 1500 {
				t.Errorf("after DEL %s of %s is %v, %v", name, function, back, err)
			}
		}
		if err := space.Close(); err != nil {
			t.Error(err)
		}
	})
	add := func() types.Result {
		added, err := plugins.AddNetworkList(context.Background(), list, runtime)
		if err != nil {
			t.Fatalf("attaching %s: %v", function, err)
		}
		return added
	}
	added := add()
	if n.kind == v1alpha1.NetworkVF {
		eventually(t, function+" has a link", func() bool {
			if within(attachTime, func() bool { return linkIs(space, true) }) {
				return true
			}
			// When a PF does not answer within 100 ms, as on a busy machine, igbvf gives up until its interface is brought up again.
			if err := plugins.DelNetworkList(context.Background(), list, runtime); err != nil {
				t.Fatalf("detaching %s: %v", function, err)
			}
			added = add()
			return false
		})
	}
	made, err := current.NewResultFromResult(added)
	if err != nil {
		t.Fatal(err)
	}
	a := &attachment{function: function, space: space, status: foreign.Status{
		Name: definition.GetNamespace() + "/" + definition.GetName(), Interface: asked[0].Interface,
		DeviceInfo: &foreign.DeviceInfo{Type: "pci", PCI: &foreign.PCIDevice{Address: function}},
	}}
	for _, i := range made.Interfaces {
		a.status.MAC = i.Mac
	}
	for _, ip := range made.IPs {
		a.status.IPs = append(a.status.IPs, ip.Address.IP.String())
	}
	return a
}

// link returns the interface in a namespace.
func link(s *netpair.Namespace) (found netlink.Link, err error) {
	err = s.In(func() (err error) {
		found, err = netlink.LinkByName(pods.Interface)
		return err
	})
	return found, err
}

// linkIs reports whether the interface in a namespace exists, and is up or not up as given.
func linkIs(s *netpair.Namespace, up bool) bool {
	l, err := link(s)
	return err == nil && (l.Attrs().OperState == netlink.OperUp) == up
}

// pair is a client and a server with attached functions.
type pair struct {
	network
	ends [2]*attachment
}

func attachPair(t *testing.T, n network, functions [2]string) *pair {
	t.Helper()
	p := &pair{network: n}
	for i, function := range functions {
		p.ends[i] = attach(t, n, roles[i], function)
	}
	return p
}

// measurement is a run over a pair. Its fields are the differences from a correct run.
type measurement struct {
	program  v1alpha1.Tool
	duration time.Duration
	cpus     [2]string
	// allocated is the device that the environment names; empty: the attached function.
	allocated [2]string
	// kind is the requested network type; empty: the type of the pair.
	kind v1alpha1.NetworkType
	// protocols are the measured protocols; empty: TCP and UDP.
	protocols []v1alpha1.Protocol
	// parents are the names of the nodes' interfaces below that of the pods; empty if there are none.
	parents [2]string
	// round is the number of the run, from 0.
	round int32
	// byRoute leaves the interface of the host's network to the route.
	byRoute bool
	// before is called before each try.
	before func()
	// during is called while the tool sends the messages of the first cell, which uses UDP and has no warm-up.
	during func()
}

// outcome is the result of a run.
type outcome struct {
	spec    v1alpha1.LatencyBenchmarkSpec
	variant v1alpha1.Variant
	words   [2]result.Termination
	running [2]*lab.Running
	// stored is nil unless both ends succeeded.
	stored *result.Stored
	took   time.Duration
}

// measure executes a measurement.
func (p *pair) measure(t *testing.T, m measurement) (o *outcome) {
	t.Helper()
	lab.Undisturbed(t, func() (v1alpha1.LatencyBenchmarkSpec, v1alpha1.Variant, *result.Stored) {
		if m.before != nil {
			m.before()
		}
		o = p.try(t, m)
		return o.spec, o.variant, o.stored
	})
	return o
}

func (p *pair) try(t *testing.T, m measurement) *outcome {
	t.Helper()
	n := p.network
	if m.kind != "" {
		n.kind = m.kind
	}
	if m.duration == 0 {
		m.duration = 300 * time.Millisecond
	}
	if m.program == "" {
		m.program = v1alpha1.ToolPinger
	}
	b := n.benchmark(m.program, m.duration)
	b.Spec.Rounds += m.round
	if len(m.protocols) > 0 {
		b.Spec.Workload.Protocols = m.protocols
	}
	if m.program == v1alpha1.ToolSockperf {
		b.Spec.Workload.Protocols = b.Spec.Workload.Protocols[:1] // sockperf takes seconds to start each cell
	}
	if m.byRoute {
		b.Spec.Network.Host.Interface = ""
	}
	before := 0
	if m.during != nil {
		b.Spec.Workload.Warmup, before = metav1.Duration{}, p.datagrams(t)
	}
	run := plan.Runs(b)[m.round]
	driver, err := all.Registry().Get(m.program)
	if err != nil {
		t.Fatal(err)
	}
	o := &outcome{spec: b.Spec, variant: run.Variant}
	began := time.Now()
	task := plan.Task{
		Run: run.Name, Variant: run.Variant.Name, Attempt: 1, Tool: m.program, Cells: run.Cells,
		Acceleration: run.Variant.Acceleration.Type, Deadline: plan.Deadline(driver, run.Cells), Interface: pods.Interface,
		Borrowed: run.Variant.Network.AlignWith() != "",
	}
	if m.byRoute {
		task.Interface = ""
	}
	for _, i := range []int{1, 0} {
		task := task
		task.Role, task.Parent = roles[i], m.parents[i]
		if i == 1 {
			task.Deadline += time.Minute
		} else {
			address, missing := pods.Address(b, run.Variant, o.running[1].Pod)
			if missing != "" {
				t.Fatal(missing)
			}
			task.ServerAddress = address
		}
		o.running[i] = p.start(t, i, m, pods.Endpoint{Benchmark: b, Image: "bench", Node: "node-" + roles[i], Variant: run.Variant, Task: task})
	}
	if m.during != nil {
		p.awaitMessages(t, o.running[0], before)
		m.during()
	}
	for i, r := range o.running {
		if i == 1 && o.words[0].Reason != "" {
			// The controller deletes the server of a failed client. The server may have ended by itself.
			_ = r.Terminate()
		}
		o.words[i] = r.Wait(t, patience)
	}
	o.took = time.Since(began)
	if o.words[0].Reason == "" && o.words[1].Reason == "" {
		stored := lab.Store(t, o.running[0], o.running[1])
		o.stored = &stored
		if m.during == nil {
			slowest = max(slowest, o.took)
		}
	}
	return o
}

// awaitMessages waits until the client's tool has sent measured messages over UDP, all but the last of them with an answer.
func (p *pair) awaitMessages(t *testing.T, client *lab.Running, before int) {
	t.Helper()
	eventually(t, "the client's tool sends", func() bool {
		if client.Ended() {
			t.Fatalf("the client ended before its tool sent messages: %+v", client.Wait(t, 0))
		}
		return p.datagrams(t) > before+20
	})
}

// datagrams returns the number of UDP datagrams sent in the client's namespace.
func (p *pair) datagrams(t *testing.T) (sent int) {
	t.Helper()
	if err := p.ends[0].space.In(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		_, udp, _ := strings.Cut(string(text), "\nUdp: ")
		_, values, _ := strings.Cut(udp, "\nUdp: ")
		var received, noPort, failed int
		_, err = fmt.Sscan(values, &received, &noPort, &failed, &sent)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return sent
}

// start starts an end as the kubelet does, with the additions of the device plugin and Multus.
func (p *pair) start(t *testing.T, i int, m measurement, e pods.Endpoint) *lab.Running {
	t.Helper()
	a := p.ends[i]
	allocated, cpus := a.function, cores[i]
	if m.allocated[i] != "" {
		allocated = m.allocated[i]
	}
	if m.cpus[i] != "" {
		cpus = m.cpus[i]
	}
	ip := "10.244.0.5"
	if e.Variant.Network.Type == v1alpha1.NetworkHost {
		ip = a.status.IPs[0] // that of the node
	}
	status, err := json.Marshal([]foreign.Status{{Name: "cbr0", Interface: "eth0", IPs: []string{ip}, Default: true}, a.status})
	if err != nil {
		t.Fatal(err)
	}
	variable := proof.Variable(e.Variant.Network.ResourceName() + e.Variant.Network.AlignWith())
	return lab.Agent{
		Endpoint: e, PodIP: ip, Space: a.space, CPUs: cpus,
		Annotations: map[string]string{foreign.AnnotationNetworkStatus: string(status)},
		Env:         []string{variable + "=" + allocated, fmt.Sprintf(`%s_INFO={"%s":{"generic":{"deviceID":"%s"}}}`, variable, allocated, allocated)},
	}.Start(t)
}
