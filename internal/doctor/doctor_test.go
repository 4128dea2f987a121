package doctor

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/golden"
	"github.com/tailgate-dev/tailgate/test/policyfiles"
)

const (
	vfs     = "amd.com/sf_vf"
	onloads = "amd.com/onload"
)

// sfVF is the network of the tests.
var sfVF = Network{Name: "perf/sf-vf", Found: true, Resource: vfs, Config: `{"cniVersion":"1.0.0","name":"sf-vf","type":"sriov","ipam":{"type":"whereabouts"}}`}

// statusOf returns the annotation that Multus writes for a network at net1.
func statusOf(network string) string {
	return fmt.Sprintf(`[{"name":"podnet","interface":"eth0","ips":["10.0.0.7"],"default":true},{"name":%q,"interface":"net1","ips":["192.168.40.7"]}]`, network)
}

// inspection returns the inspection of a pod with CPU 3 of a well configured machine.
func inspection(node string) *result.Inspection {
	return &result.Inspection{
		Version: result.InspectionVersion,
		Evidence: result.Evidence{
			Node: node, Kernel: "6.1.0-37-amd64", BootID: "boot-" + node, CPUModel: "AMD EPYC 9374F", CPUsAllowed: "3", OnlineCPUs: "0-7", MeasuringCPU: 3,
			CPUNUMANode: 0, DeviceNUMANode: -1, ThreadSiblings: "3", Clocksource: "tsc", Interface: "eth0", MTU: 1500, Driver: "veth",
			Facts: map[string]string{
				"kernel.version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1", "kernel.arg.isolcpus": "2-7", "kernel.arg.mitigations": "auto",
				"cpu.hypervisor": "no", "cpu.governor": "performance", "cpu.freq-driver": "acpi-cpufreq", "cpu.cstates": "POLL 0us, C1 1us, [C6 133us]",
				"cpu.smt.sibling": "none", "cpu.isolated": "yes", "cpu.nohz-full": "yes", "cpu.vulnerability.spectre_v1": "Mitigation: usercopy/swapgs barriers and __user pointer sanitization",
				"dmi.sys_vendor": "Supermicro", "dmi.product_name": "AS -1015CS-TNR", "numa.nodes": "0-1",
			},
		},
		NUMA: map[string]string{"0": "0-3", "1": "4-7"},
		NICs: []result.NIC{{PCIAddress: "0000:65:00.0", ID: "1924:0b03", Driver: "sfc", NUMANode: 0, VFs: 4, TotalVFs: 16}},
	}
}

// onNetwork returns the inspection of a pod with a VF at net1.
func onNetwork(node string) *result.Inspection {
	i := inspection(node)
	i.Evidence.Interface, i.Evidence.Driver, i.Evidence.Firmware, i.Evidence.PCIAddress, i.Evidence.DeviceNUMANode = "net1", "sfc", "8.3.3.1000 rx0 tx0", "0000:65:02.1", 0
	maps.Copy(i.Evidence.Facts, map[string]string{"nic.function": "VF", "nic.firmware-variant": "full-feature", "nic.carrier": "1", "nic.coalesce.rx-usecs": "0"})
	return i
}

// fitNode returns a node with free CPUs and VFs, and with all inspections.
func fitNode(name string) Node {
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), vfs: resource.MustParse("4"), onloads: resource.MustParse("100")}
	allocatable := amounts.DeepCopy()
	allocatable[corev1.ResourceCPU] = resource.MustParse("6")
	allocatable["hugepages-2Mi"] = resource.MustParse("2Gi")
	shared := inspection(name)
	shared.Evidence.CPUsAllowed = "0-2,4-7"
	accelerated := inspection(name)
	accelerated.Onload = result.Onload{Preload: "/opt/onload/usr/lib64/libonload.so", Library: "/opt/onload/usr/lib64/libonload.so", Devices: []string{"/dev/onload"}}
	return Node{
		Node: corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{
				Capacity: amounts, Allocatable: allocatable, NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.3"},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		},
		Looks: []Look{
			{Kind: KindShared, Inspection: shared, ImageID: "sha256:1234"},
			{Kind: KindCPU, Inspection: inspection(name), ImageID: "sha256:1234"},
			{Kind: KindNetwork, Network: sfVF.Name, Inspection: onNetwork(name), NetworkStatus: statusOf(sfVF.Name)},
			{Kind: KindOnload, Inspection: accelerated},
		},
	}
}

// fit returns a cluster whose lines are all good.
func fit(t testing.TB) Observed {
	t.Helper()
	policies, bindings := policyfiles.Read(t, "../../config/policy")
	return Observed{
		Policies: policies, PolicyBindings: bindings,
		Namespace: "perf", Unseen: map[string]string{}, MultusKind: true,
		Manager:     &Manager{Name: "tailgate-system/manager", Ready: 1, Wanted: 1, Image: "tailgate:v1"},
		Definitions: []Definition{{"latencybenchmarks.tailgate.dev", true, true}, {"latencygates.tailgate.dev", true, true}},
		Multus: []appsv1.DaemonSet{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-multus-ds"},
			Status:     appsv1.DaemonSetStatus{NumberReady: 2, DesiredNumberScheduled: 2},
		}},
		Networks: []Network{sfVF}, Onload: onloads,
		Capacity: map[corev1.ResourceName]int64{corev1.ResourceCPU: 16, vfs: 8, onloads: 200},
		LeftOut:  map[string]string{},
		Nodes:    []Node{fitNode("a"), fitNode("b")},
	}
}

// classOf adds a DeviceClass that provides a resource.
func classOf(name corev1.ResourceName) func(*Observed) {
	return func(o *Observed) { o.Classes = map[corev1.ResourceName]string{name: "sf-vf"} }
}

// claimedOnA lets a driver of Dynamic Resource Allocation provide the VFs of node a.
func claimedOnA(count string) func(*Observed) {
	return func(o *Observed) {
		classOf(vfs)(o)
		o.Nodes[0].Claimed = []corev1.ResourceName{vfs}
		o.Nodes[0].Node.Status.Capacity[vfs], o.Nodes[0].Node.Status.Allocatable[vfs] = resource.MustParse(count), resource.MustParse(count)
	}
}

func TestGoodClusterIsGood(t *testing.T) {
	o := fit(t)
	o.LeftOut["cp-1"] = "node-role.kubernetes.io/control-plane:NoSchedule"
	r := Diagnose(o)
	for _, l := range r.Lines {
		if l.Level != Good || l.Effect != "" || l.Remedy != "" || l.Found == "" {
			t.Errorf("%+v", l)
		}
	}
	if r.Result != Good || r.Count(Good) != len(r.Lines) || !cmp.Equal(r.Nodes, []string{"a", "b"}) {
		t.Errorf("got %s, nodes %v", r.Result, r.Nodes)
	}
	var checks []string
	for _, l := range r.Lines {
		if l.Node != "b" {
			checks = append(checks, l.Check)
		}
	}
	want := []string{
		"manager", "crds", "policies", "multus", "network", "mtu", "mtu", "alike", "left-out",
		"node", "inspect", "cpu-manager", "free-cpus", "neighbours", "topology", "smt", "isolation", "governor", "c-states", "clock", "mitigations",
		"kernel", "hypervisor", "hugepages", "nics", "devices", "attachment", "interface", "onload",
	}
	if diff := cmp.Diff(want, checks); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
}

// The changes of the cases.

func onA(change func(*Node)) func(*Observed) { return func(o *Observed) { change(&o.Nodes[0]) } }

// seenOnA changes all inspections of node a.
func seenOnA(change func(*result.Inspection)) func(*Observed) {
	return onA(func(n *Node) {
		for _, l := range n.Looks {
			change(l.Inspection)
		}
	})
}

func factOnA(key, value string) func(*Observed) {
	return seenOnA(func(i *result.Inspection) {
		if i.Evidence.Facts[key] = value; value == "" {
			delete(i.Evidence.Facts, key)
		}
	})
}

// driverOnA changes the driver of the attached interface on node a.
func driverOnA(driver string) func(*Observed) {
	return lookOnA(KindNetwork, func(l *Look) { l.Inspection.Evidence.Driver = driver })
}

// lookOnA changes the look of a kind on node a.
func lookOnA(kind Kind, change func(*Look)) func(*Observed) {
	return onA(func(n *Node) {
		change(&n.Looks[slices.IndexFunc(n.Looks, func(l Look) bool { return l.Kind == kind })])
	})
}

// troubleOnA gives the look of a kind on node a a trouble.
func troubleOnA(kind Kind, outcome, said string) func(*Observed) {
	return lookOnA(kind, func(l *Look) { l.Inspection, l.Trouble = nil, &pods.Trouble{Outcome: outcome, Said: said} })
}

func unseen(what string) func(*Observed) {
	return func(o *Observed) { o.Unseen[what] = "you may not list " + what }
}

func allocatableOnA(name corev1.ResourceName, amount string) func(*Observed) {
	return onA(func(n *Node) { n.Node.Status.Allocatable[name] = resource.MustParse(amount) })
}

// podOnA adds a pod to node a, with requests and limits of a resource, unless they are empty.
func podOnA(name corev1.ResourceName, requests, limits string) func(*Observed) {
	return onA(func(n *Node) {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.PodSpec{NodeName: "a", Containers: make([]corev1.Container, 1)}}
		r := &p.Spec.Containers[0].Resources
		if r.Requests, r.Limits = (corev1.ResourceList{}), (corev1.ResourceList{}); requests != "" {
			r.Requests[name] = resource.MustParse(requests)
		}
		if limits != "" {
			r.Limits[name] = resource.MustParse(limits)
		}
		n.Pods = append(n.Pods, p)
	})
}

func network(change func(*Network)) func(*Observed) {
	return func(o *Observed) { change(&o.Networks[0]) }
}

func connection(network string, trouble *pods.Trouble, reach *result.Reach) func(*Observed) {
	return func(o *Observed) {
		o.Connections = []Connection{{Network: network, Client: "b", Server: "a", Trouble: trouble, Reach: reach}}
	}
}

func config(text string) func(*Observed) { return network(func(n *Network) { n.Config = text }) }

// shared lets the pod use all CPUs, as a kubelet without CPU manager does.
func shared(i *result.Inspection) { i.Evidence.CPUsAllowed = "0-7" }

func TestChecks(t *testing.T) {
	type changes []func(*Observed)
	cases := []struct {
		name    string
		changes changes
		// The expected line, of node a or, if cluster is true, of the cluster.
		cluster        bool
		check, subject string
		// want is the line's level; empty: there is no such line.
		want  Level
		found string
	}{
		{"no manager", changes{func(o *Observed) { o.Manager = nil }}, true, "manager", "", Error, "no Deployment"},
		{"a manager that is not ready", changes{func(o *Observed) { o.Manager.Ready = 0 }}, true, "manager", "", Error, "none of 1"},
		{"Deployments that the user may not list", changes{unseen("deployments")}, true, "manager", "", Unknown, "deployments"},
		{"a kind that is not served", changes{func(o *Observed) { o.Definitions[1].Served = false }}, true, "crds", "", Error, "latencygates"},
		{"a policy that is gone", changes{func(o *Observed) {
			o.Policies = slices.DeleteFunc(o.Policies, func(p admissionregistrationv1.ValidatingAdmissionPolicy) bool {
				return p.Name == "tailgate-gate-operate"
			})
		}}, true, "policies", "", Error, "gate-operate (not installed)"},
		{"policies that the user may not list", changes{unseen("validatingadmissionpolicies")}, true, "policies", "", Unknown, "validatingadmissionpolicies"},
		{"a kind of another version", changes{func(o *Observed) { o.Definitions[0].Same = false }}, true, "crds", "", Warning, "latencybenchmarks"},
		{"kinds that the user may not read", changes{unseen("customresourcedefinitions")}, true, "crds", "", Unknown, "customresourcedefinitions"},

		{"huge pages for all", changes{factOnA("mm.thp", "always")}, false, "thp", "", Warning, "always"},
		{"huge pages on request", changes{factOnA("mm.thp", "madvise")}, false, "thp", "", Good, "madvise"},
		{"a watchdog", changes{factOnA("sysctl.kernel.nmi_watchdog", "1")}, false, "watchdog", "", Warning, "1"},
		{"no watchdog", changes{factOnA("sysctl.kernel.nmi_watchdog", "0")}, false, "watchdog", "", Good, "0"},
		{"interrupts on an isolated CPU", changes{factOnA("irq.on-cpu", "3"), factOnA("cpu.isolated", "yes")}, false, "interrupts", "", Warning, "3"},
		{"interrupts on another CPU", changes{factOnA("irq.on-cpu", "3"), factOnA("cpu.isolated", "no"), factOnA("cpu.nohz-full", "no")}, false, "interrupts", "", Good, "3"},
		{"a quota for exclusive CPUs", changes{factOnA("cgroup.cpu-max", "200000 100000")}, false, "cpu-quota", "", Warning, "200000"},
		{"no quota", changes{factOnA("cgroup.cpu-max", "max 100000")}, false, "cpu-quota", "", Good, "max"},
		{"a PerformanceProfile", changes{factOnA("kernel.arg.isolcpus", "managed_irq,2-7"), factOnA("cpu.isolated", "no")}, false, "isolation", "", Warning, "isolated no"},

		{"no pair of nodes", nil, true, "connection", podNetwork, "", ""},
		{"nodes that reach each other", changes{connection(sfVF.Name, nil, &result.Reach{})}, true, "connection", sfVF.Name, Good, "1 pairs"},
		{"two subnets", changes{connection(sfVF.Name, nil, &result.Reach{Route: "would leave by eth0"})}, true, "connection", sfVF.Name, Error, "no way: b to a: would leave by eth0"},
		{"a port that is blocked", changes{connection("", nil, &result.Reach{Data: "i/o timeout"})}, true, "connection", podNetwork, Error, "data port: b to a: i/o timeout"},
		{"an older image", changes{connection("", nil, nil)}, true, "connection", podNetwork, Unknown, "older than this check"},
		{"a server that does not start", changes{connection("", &pods.Trouble{Said: "no room"}, nil)}, true, "connection", podNetwork, Unknown, "b to a: no room"},
		{"a network of the operator", changes{network(func(n *Network) { n.Found, n.Made = false, true })}, true, "network", sfVF.Name, Good, "the operator creates it"},

		{"no kind of networks", changes{func(o *Observed) { o.MultusKind, o.Networks = false, nil }}, true, "multus", "", Warning, "does not have the kind"},
		{"no kind of the network that was asked for", changes{func(o *Observed) { o.MultusKind, o.Networks, o.Asked = false, nil, true }}, true, "multus", "", Error, "does not have the kind"},
		{"Multus that is not everywhere", changes{func(o *Observed) { o.Multus[0].Status.NumberReady = 1 }}, true, "multus", "", Warning, "1 of 2"},
		{"networks that the user may not list", changes{unseen("network-attachment-definitions")}, true, "multus", "", Unknown, "network-attachment"},
		{"pods without network-status", changes{func(o *Observed) { o.Nodes[0].Looks[2].NetworkStatus, o.Nodes[1].Looks[2].NetworkStatus = "", "" }}, true, "multus", "", Error, "none of them has"},
		{"network-status without Multus", changes{func(o *Observed) { o.Multus = nil }}, true, "multus", "", Good, "no DaemonSet"},
		{"no network was tried", changes{func(o *Observed) {
			o.Multus = nil
			o.Nodes = nil
		}}, true, "multus", "", Good, "namespace perf"},
		{"DaemonSets that the user may not list", changes{unseen("daemonsets"), func(o *Observed) { o.Multus, o.Nodes = nil, nil }}, true, "multus", "", Unknown, "daemonsets"},

		{"a network that there is not", changes{network(func(n *Network) { *n = Network{Name: n.Name} })}, true, "network", sfVF.Name, Error, "no such"},
		{"a network that is no JSON", changes{config("{")}, true, "network", sfVF.Name, Error, "not a JSON object"},
		{"a network without plugins", changes{config(`{"plugins": []}`)}, true, "network", sfVF.Name, Error, "empty"},
		{"a network whose plugins are no list", changes{config(`{"plugins": 1}`)}, true, "network", sfVF.Name, Error, "cannot be read"},
		{"a plugin without a type", changes{config(`{"plugins": [{"type": "macvlan"}, {}]}`)}, true, "network", sfVF.Name, Error, "no type"},
		{"a VF without a resource", changes{network(func(n *Network) { n.Resource = "" })}, true, "network", sfVF.Name, Error, "no annotation"},
		{"a PF without a resource", changes{config(`{"type": "host-device"}`), network(func(n *Network) { n.Resource = "" })}, true, "network", sfVF.Name, Error, "host-device"},
		{"a named device", changes{config(`{"cniVersion": "1.0.0", "type": "host-device", "device": "ens1f0"}`), network(func(n *Network) { n.Resource = "" })}, true, "network", sfVF.Name, Good, "host-device"},
		{"a resource that no node advertises", changes{network(func(n *Network) { n.Resource = "sf_vf" })}, true, "network", sfVF.Name, Error, "sf_vf is advertised by no node"},
		{"a resource of a class that selects nothing", changes{classOf("sf_vf"), network(func(n *Network) { n.Resource = "sf_vf" })}, true, "network", sfVF.Name, Error, "DeviceClass sf-vf provides its resource sf_vf, but selects no device"},
		{"a resource of a class that the user may not read", changes{unseen("deviceclasses"), network(func(n *Network) { n.Resource = "sf_vf" })}, true, "network", sfVF.Name, Unknown, "a DeviceClass may provide it"},
		{"devices that the user may not read", changes{unseen("resourceslices"), network(func(n *Network) { n.Resource = "sf_vf" })}, true, "network", sfVF.Name, Unknown, "resourceslices"},
		{"a resource of a driver", changes{classOf(vfs)}, true, "network", sfVF.Name, Good, "8 in the cluster, also by DeviceClass sf-vf"},
		{"settings that sfc does not support", changes{config(`{"cniVersion": "1.0.0", "type": "sriov", "trust": "on", "vlanQoS": 0, "max_tx_rate": 100}`)}, true, "network", sfVF.Name, Warning, "max_tx_rate, trust"},
		{"settings that other drivers support", changes{config(`{"cniVersion": "1.0.0", "type": "sriov", "trust": "on"}`), func(o *Observed) {
			for _, n := range o.Nodes {
				for _, l := range n.Looks {
					l.Inspection.NICs[0].Driver = "ice"
				}
			}
		}}, true, "network", sfVF.Name, Good, "sriov"},
		{"a configuration on the nodes", changes{config("")}, true, "network", sfVF.Name, Good, "file on the nodes"},
		{"more networks", changes{func(o *Observed) { o.NetworksLeft = []string{"perf/z"} }}, true, "network", "", Unknown, "perf/z"},

		{"MTUs that differ", changes{lookOnA(KindNetwork, func(l *Look) { l.Inspection.Evidence.MTU = 9000 })}, true, "mtu", sfVF.Name, Error, "1500 on b; 9000 on a"},
		{"MTUs of the pods' network that differ", changes{lookOnA(KindCPU, func(l *Look) { l.Inspection.Evidence.MTU = 1450 })}, true, "mtu", podNetwork, Error, "1450 on a"},
		{"an MTU of one end", changes{troubleOnA(KindNetwork, v1alpha1.OutcomeNetworkFailed, "no")}, true, "mtu", sfVF.Name, "", ""},
		{"one machine, whose boot ID is hidden", changes{func(o *Observed) {
			for _, n := range o.Nodes {
				for _, l := range n.Looks {
					l.Inspection.Evidence.BootedAt = 1_700_000_000_000_000_000
				}
			}
		}}, true, "machines", "", Good, "a, b are one machine"},
		{"one machine", changes{seenOnA(func(i *result.Inspection) { i.Evidence.BootID = "boot-b" })}, true, "machines", "", Good, "a, b are one machine"},
		{"kernels that differ", changes{seenOnA(func(i *result.Inspection) { i.Evidence.Kernel = "6.8.0" })}, true, "alike", "", Warning, "6.1.0-37-amd64 on b; 6.8.0 on a"},
		{"one node", changes{func(o *Observed) { o.Nodes = o.Nodes[:1] }}, true, "alike", "", "", ""},
		{"an argument that one node lacks", changes{factOnA("kernel.arg.mitigations", "")}, true, "alike", "", Warning, "mitigations: auto on b; the default on a"},
		{"a model that one node does not report", changes{seenOnA(func(i *result.Inspection) { i.Evidence.CPUModel = "" })}, true, "alike", "", Warning, "CPU: AMD EPYC 9374F on b; not reported on a"},
		{"models that no node reports", changes{func(o *Observed) {
			for _, n := range o.Nodes {
				for _, l := range n.Looks {
					l.Inspection.Evidence.CPUModel = ""
				}
			}
		}}, true, "alike", "", Unknown, "do not report"},
		{"no Onload", changes{func(o *Observed) { o.Onload = "" }}, true, "onload", "", Good, "kernel's"},
		{"no Onload though asked for", changes{func(o *Observed) { o.Onload, o.OnloadAsked = "x.org/onload", true }}, true, "onload", "x.org/onload", Error, "no node"},

		{"a node that is not ready", changes{onA(func(n *Node) { n.Node.Status.Conditions = nil })}, false, "node", "", Error, "not ready"},
		{"a cordoned node", changes{onA(func(n *Node) { n.Node.Spec.Unschedulable = true })}, false, "node", "", Error, "cordoned"},
		{"a cordoned node that was named", changes{onA(func(n *Node) { n.Node.Spec.Unschedulable, n.Named = true, true })}, false, "node", "", Warning, "cordoned"},
		{"a node under pressure", changes{onA(func(n *Node) {
			n.Node.Status.Conditions = append(n.Node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue})
		})}, false, "node", "", Warning, "MemoryPressure"},
		{"a tainted node", changes{onA(func(n *Node) {
			n.Node.Spec.Taints = []corev1.Taint{{Key: "latency", Value: "only", Effect: corev1.TaintEffectNoSchedule}}
		})}, false, "node", "", Warning, "latency=only:NoSchedule"},
		{"a node that a gate holds back", changes{onA(func(n *Node) {
			n.Node.Spec.Taints = []corev1.Taint{{Key: "tailgate.dev/latency-unverified", Effect: corev1.TaintEffectNoSchedule}}
		})}, false, "node", "", Good, "ready"},

		{"a node that is measured", changes{onA(func(n *Node) { n.Looks, n.NotLooked = nil, "benchmark perf/x measures there" })}, false, "inspect", "", Unknown, "perf/x"},
		{"a cordoned node's pods", changes{onA(func(n *Node) { n.Looks, n.NotLooked, n.Node.Spec.Unschedulable = nil, "it is cordoned", true })}, false, "inspect", "", "", ""},
		{"an image that cannot be pulled", changes{troubleOnA(KindCPU, v1alpha1.OutcomeImagePullFailed, "ErrImagePull: not found")}, false, "inspect", "", Error, "ErrImagePull"},
		{"another image", changes{troubleOnA(KindShared, v1alpha1.OutcomeContainerConfig, "StartError: no such file")}, false, "inspect", "", Error, "StartError"},
		{"an older agent", changes{troubleOnA(KindCPU, v1alpha1.OutcomeAgentFailed, `unknown verb "inspect"`)}, false, "inspect", "", Error, "unknown verb"},
		{"a refused pod", changes{troubleOnA(KindCPU, v1alpha1.OutcomePodRefused, "pods is forbidden: exceeded quota")}, false, "inspect", "", Unknown, "exceeded quota"},
		{"a slow pod", changes{troubleOnA(KindCPU, v1alpha1.OutcomeStartTimeout, "Pending")}, false, "inspect", "", Unknown, "Pending"},
		{"a pod that finds no memory", changes{troubleOnA(KindCPU, v1alpha1.OutcomeUnschedulable, "1 Insufficient memory")}, false, "inspect", "", Error, "Insufficient memory"},
		{"a pod without a free CPU is reported in another line", changes{troubleOnA(KindCPU, v1alpha1.OutcomeUnschedulable, "1 Insufficient cpu")}, false, "inspect", "", Good, "sha256:1234"},
		{"a kubelet that refuses", changes{troubleOnA(KindCPU, v1alpha1.OutcomeUnexpectedAdmission, "UnexpectedAdmissionError")}, false, "inspect", "", Error, "UnexpectedAdmissionError"},
		{"a broken CNI plugin", changes{troubleOnA(KindShared, v1alpha1.OutcomeNetworkFailed, "no IP addresses left")}, false, "inspect", "", Error, "no IP"},

		{"no static policy", changes{seenOnA(shared)}, false, "cpu-manager", "", Error, "CPUs 0-7"},
		{"one CPU for all", changes{seenOnA(func(i *result.Inspection) { i.Evidence.CPUsAllowed, i.Evidence.OnlineCPUs = "0", "0" })}, false, "cpu-manager", "", Error, "no more CPUs"},
		{"a pool of one CPU", changes{lookOnA(KindShared, func(l *Look) { l.Inspection.Evidence.CPUsAllowed = "3" })}, false, "cpu-manager", "", Error, "may use CPUs 3, as other pods may"},
		{"a whole core", changes{lookOnA(KindCPU, func(l *Look) { l.CPUs, l.Inspection.Evidence.CPUsAllowed = 2, "3,7" }), lookOnA(KindShared, func(l *Look) { l.Inspection.Evidence.CPUsAllowed = "0-2,4-6" })}, false, "cpu-manager", "", Good, "requested 2 CPUs got the exclusive CPUs 3,7 of 0-7"},
		{"no pod with a CPU", changes{onA(func(n *Node) { n.Looks = n.Looks[:1] })}, false, "cpu-manager", "", "", ""},
		{"CPUs that cannot be read", changes{seenOnA(func(i *result.Inspection) { i.Evidence.CPUsAllowed = "?" })}, false, "cpu-manager", "", "", ""},

		{"all CPUs taken", changes{podOnA(corev1.ResourceCPU, "5500m", "")}, false, "free-cpus", "", Error, "0 of 6"},
		{"one CPU left", changes{podOnA(corev1.ResourceCPU, "4500m", "")}, false, "free-cpus", "", Warning, "1 of 6"},
		{"a scheduler that finds no node", changes{troubleOnA(KindCPU, v1alpha1.OutcomeUnschedulable, "1 Insufficient cpu")}, false, "free-cpus", "", Error, "6 of 6"},
		{"CPUs by NUMA node", nil, false, "free-cpus", "", Good, "3 of 4 on NUMA node 0, 4 of 4 on NUMA node 1; the kubelet reserves 2"},
		{"pods that the user may not list", changes{unseen("pods")}, false, "free-cpus", "", Unknown, "pods"},

		{"neighbours that take much", changes{podOnA(corev1.ResourceCPU, "3500m", "")}, false, "neighbours", "", Warning, "request 3.5 of 6"},
		{"overcommitted CPUs", changes{podOnA(corev1.ResourceCPU, "", "7")}, false, "neighbours", "", Warning, "limits are 7"},
		{"neighbours that the user may not list", changes{unseen("pods")}, false, "neighbours", "", "", ""},

		{"a far VF", changes{lookOnA(KindNetwork, func(l *Look) { l.Inspection.Evidence.DeviceNUMANode = 1 })}, false, "topology", sfVF.Name, Error, "different NUMA nodes"},
		{"a VF that is nowhere", changes{lookOnA(KindNetwork, func(l *Look) { l.Inspection.Evidence.DeviceNUMANode = -1 })}, false, "topology", sfVF.Name, Warning, "not known"},
		{"a kubelet that finds no pair", changes{troubleOnA(KindNetwork, v1alpha1.OutcomeTopologyAffinity, "TopologyAffinityError")}, false, "topology", sfVF.Name, Error, "TopologyAffinityError"},
		{"one NUMA node", changes{lookOnA(KindNetwork, func(l *Look) { l.Inspection.Evidence.DeviceNUMANode = -1 }), factOnA("numa.nodes", "0")}, false, "topology", sfVF.Name, Good, "the only NUMA node with CPUs"},
		{"one NUMA node, no network", changes{onA(func(n *Node) { n.Looks = n.Looks[:2] }), factOnA("numa.nodes", "0")}, false, "topology", "", Good, "one NUMA node with CPUs"},
		{"a NIC at memory without CPUs", changes{lookOnA(KindNetwork, func(l *Look) { l.Inspection.Evidence.DeviceNUMANode = 1 }), factOnA("numa.nodes", "0")}, false, "topology", sfVF.Name, Good, "the only NUMA node with CPUs"},
		{"no device", changes{lookOnA(KindNetwork, func(l *Look) { l.Inspection.Evidence.PCIAddress = "" })}, false, "topology", sfVF.Name, "", ""},

		{"a sibling of others", changes{factOnA("cpu.smt.sibling", "others"), seenOnA(func(i *result.Inspection) { i.Evidence.ThreadSiblings = "3,7" })}, false, "smt", "", Warning, "CPUs 3,7 are one core"},
		{"a sibling of its own", changes{factOnA("cpu.smt.sibling", "own")}, false, "smt", "", Good, "whole core"},
		{"SMT is off", changes{factOnA("cpu.smt.sibling", ""), factOnA("cpu.smt.active", "0")}, false, "smt", "", Good, "no SMT siblings"},
		{"siblings that are not reported", changes{factOnA("cpu.smt.sibling", "")}, false, "smt", "", "", ""},
		{"a CPU that is not isolated", changes{factOnA("cpu.isolated", "no")}, false, "isolation", "", Warning, "isolated no, nohz_full yes"},
		{"an isolated CPU with ticks", changes{factOnA("cpu.nohz-full", "no")}, false, "isolation", "", Warning, "isolated yes, nohz_full no"},
		{"a CPU with ticks", changes{factOnA("cpu.nohz-full", "no")}, false, "isolation", "", Warning, "nohz_full no"},
		{"isolation that is not reported", changes{factOnA("cpu.nohz-full", ""), factOnA("cpu.isolated", "")}, false, "isolation", "", "", ""},
		{"idle states limited to those of the CPU", changes{factOnA("cpu.cstates", "POLL 0us, C1 1us, C1E 4us, C6 170us"), factOnA("cpu.pm-qos-us", "10")}, false, "c-states", "", Good, "above 10 µs"},
		{"a limit that allows a deep state", changes{factOnA("cpu.cstates", "POLL 0us, C1 1us, C6 133us, C7 600us"), factOnA("cpu.pm-qos-us", "200")}, false, "c-states", "", Warning, "down to C6, 133 µs"},
		{"deep states that it does not enter", changes{factOnA("cpu.cstates", "POLL 0us, C1 1us, C6 170us"), factOnA("cpu.pm-qos-us", "0"), factOnA("cpu.cstates-entered", "POLL, C1")}, false, "c-states", "", Good, "entered only POLL, C1"},
		{"deep states that it enters", changes{factOnA("cpu.cstates", "POLL 0us, C1 1us, C6 170us"), factOnA("cpu.cstates-entered", "C1, C6")}, false, "c-states", "", Warning, "down to C6"},
		{"deep states, a busy CPU", changes{factOnA("cpu.cstates", "POLL 0us, C1 1us, C6 170us")}, false, "c-states", "", Warning, "down to C6"},
		{"frequencies of a machine that does not tell", changes{factOnA("cpu.governor", ""), factOnA("cpu.hypervisor", "")}, false, "governor", "", Good, "the firmware, or a hypervisor"},
		{"a governor that saves power", changes{factOnA("cpu.governor", "schedutil")}, false, "governor", "", Warning, "schedutil (acpi-cpufreq)"},
		{"a hypervisor's frequencies", changes{factOnA("cpu.governor", ""), factOnA("cpu.hypervisor", "yes")}, false, "governor", "", Good, "hypervisor"},
		{"a firmware's frequencies", changes{factOnA("cpu.governor", "")}, false, "governor", "", Good, "firmware"},
		{"deep sleep", changes{factOnA("cpu.cstates", "POLL 0us, C1 1us, C1E 10us, C6 133us")}, false, "c-states", "", Warning, "C6, 133 µs"},
		{"deep sleep that pm_qos forbids", changes{factOnA("cpu.cstates", "POLL 0us, C6 133us"), factOnA("cpu.pm-qos-us", "n/a")}, false, "c-states", "", Good, "pm_qos"},
		{"no sleep", changes{factOnA("cpu.cstates", ""), factOnA("kernel.arg.idle", "poll")}, false, "c-states", "", Good, "idle=poll"},
		{"a hypervisor's sleep", changes{factOnA("cpu.cstates", ""), factOnA("cpu.hypervisor", "yes")}, false, "c-states", "", Good, "hypervisor"},
		{"idle states that are not reported", changes{factOnA("cpu.cstates", "")}, false, "c-states", "", Good, "not reported"},
		{"a slow clock", changes{seenOnA(func(i *result.Inspection) { i.Evidence.Clocksource = "hpet" })}, false, "clock", "", Error, "hpet"},
		{"a hypervisor's clock", changes{seenOnA(func(i *result.Inspection) { i.Evidence.Clocksource = "kvm-clock" })}, false, "clock", "", Warning, "kvm-clock"},
		{"a clock that is not reported", changes{seenOnA(func(i *result.Inspection) { i.Evidence.Clocksource = "" })}, false, "clock", "", "", ""},
		{"costly mitigations", changes{factOnA("cpu.vulnerability.meltdown", "Mitigation: PTI")}, false, "mitigations", "", Warning, "meltdown"},
		{"mitigations of a newer kernel", changes{factOnA("cpu.vulnerability.next", "Mitigation: Novel barrier")}, false, "mitigations", "", Unknown, "Novel barrier"},
		{"buffers that are cleared before a guest runs", changes{factOnA("cpu.vulnerability.mmio_stale_data", "Mitigation: Clear CPU buffers; SMT vulnerable")}, false, "mitigations", "", Good, "2 in use"},
		{"microcode that is missing on bare metal", changes{factOnA("cpu.vulnerability.tsa", "Vulnerable: Clear CPU buffers attempted, no microcode")}, false, "mitigations", "", Good, "1 in use"},
		{"microcode that a hypervisor hides", changes{factOnA("cpu.vulnerability.tsa", "Vulnerable: Clear CPU buffers attempted, no microcode"), factOnA("cpu.hypervisor", "yes")}, false, "mitigations", "", Warning, "tsa"},
		{"cheap mitigations", changes{factOnA("cpu.vulnerability.spectre_v2", "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; RSB filling")}, false, "mitigations", "", Good, "2 in use"},
		{"no mitigations", changes{factOnA("cpu.vulnerability.mds", "Vulnerable")}, false, "mitigations", "", Good, "1 in use"},
		{"a real-time kernel before 5.4", changes{factOnA("kernel.version", "#1 SMP PREEMPT RT Thu Jun 6 14:42:01 UTC 2019")}, false, "kernel", "", Good, "PREEMPT_RT, isolcpus=2-7"},
		{"a kernel with lazy preemption", changes{factOnA("kernel.version", "#1 SMP PREEMPT_LAZY Debian 6.18-1")}, false, "kernel", "", Good, "PREEMPT_LAZY, isolcpus=2-7"},
		{"a real-time kernel", changes{factOnA("kernel.version", "#1 SMP PREEMPT_RT Debian 6.1.140-1")}, false, "kernel", "", Good, "PREEMPT_RT, isolcpus=2-7"},
		{"arguments of a publication", changes{factOnA("kernel.arg.audit", "0"), factOnA("kernel.arg.selinux", "0")}, false, "kernel", "", Good, "audit=0 isolcpus=2-7 mitigations=auto selinux=0"},
		{"a kernel without arguments", changes{factOnA("kernel.arg.isolcpus", ""), factOnA("kernel.arg.mitigations", "")}, false, "kernel", "", Good, "no arguments for latency"},
		{"a virtual machine", changes{factOnA("cpu.hypervisor", "yes")}, false, "hypervisor", "", Warning, "virtual machine (Supermicro"},
		{"a machine that does not tell", changes{factOnA("cpu.hypervisor", "")}, false, "hypervisor", "", "", ""},
		{"Onload without huge pages", changes{allocatableOnA("hugepages-2Mi", "0")}, false, "hugepages", "", Warning, "none"},
		{"Onload without huge pages, a node that was not seen", changes{allocatableOnA("hugepages-2Mi", "0"), onA(func(n *Node) { n.Looks = nil })}, false, "hugepages", "", Warning, "none"},
		{"no huge pages and no Onload", changes{allocatableOnA("hugepages-2Mi", "0"), func(o *Observed) { o.Onload = "" }}, false, "hugepages", "", Good, "none"},

		{"NICs", nil, false, "nics", "", Good, "0000:65:00.0 1924:0b03 sfc, NUMA node 0, 4 of 16 VFs"},
		{"no NIC", changes{seenOnA(func(i *result.Inspection) { i.NICs = nil })}, false, "nics", "", Good, "none"},
		{"a NIC that is nowhere", changes{seenOnA(func(i *result.Inspection) { i.NICs[0].NUMANode = -1 })}, false, "nics", "", Warning, "0000:65:00.0"},
		{"NICs that no pod saw", changes{onA(func(n *Node) { n.Looks = nil })}, false, "nics", "", "", ""},
		{"a dead device plugin", changes{allocatableOnA(vfs, "0")}, false, "devices", vfs, Error, "0 of 4"},
		{"a node without devices", changes{onA(func(n *Node) { delete(n.Node.Status.Capacity, vfs) })}, false, "devices", vfs, Warning, "none"},
		{"more devices in use than a device plugin found", changes{podOnA(vfs, "6", "6")}, false, "devices", vfs, Warning, "6 are in use, and only 4 are allocatable"},
		{"devices in use", changes{podOnA(vfs, "4", "4")}, false, "devices", vfs, Warning, "all 4"},
		{"devices of a driver", changes{claimedOnA("2")}, false, "devices", vfs, Good, "2 of DeviceClass sf-vf, 0 in use"},
		{"devices of a driver in use", changes{claimedOnA("2"), podOnA(vfs, "2", "2")}, false, "devices", vfs, Warning, "all 2"},
		{"a driver without devices there", changes{claimedOnA("0"), onA(func(n *Node) { delete(n.Node.Status.Capacity, vfs) })}, false, "devices", vfs, Warning, "DeviceClass sf-vf selects no device"},
		{"devices that no node advertises", changes{func(o *Observed) { o.Capacity[vfs] = 0 }}, false, "devices", vfs, "", ""},

		{"a plugin that is missing", changes{troubleOnA(KindNetwork, v1alpha1.OutcomeNetworkFailed, `failed to find plugin "sriov" in path [/opt/cni/bin]`)}, false, "attachment", sfVF.Name, Error, "failed to find plugin"},
		{"a pod that does not fit", changes{troubleOnA(KindNetwork, v1alpha1.OutcomeUnschedulable, "1 Insufficient amd.com/sf_vf")}, false, "attachment", sfVF.Name, Error, "Insufficient"},
		{"a pod that takes too long", changes{troubleOnA(KindNetwork, v1alpha1.OutcomeStartTimeout, "Pending")}, false, "attachment", sfVF.Name, Unknown, "Pending"},
		{"a rejected VF of another NUMA node is reported in another line", changes{troubleOnA(KindNetwork, v1alpha1.OutcomeTopologyAffinity, "TopologyAffinityError")}, false, "attachment", sfVF.Name, "", ""},
		{"no network-status", changes{lookOnA(KindNetwork, func(l *Look) { l.NetworkStatus = "" })}, false, "attachment", sfVF.Name, Error, "no annotation"},
		{"a network-status of another network", changes{lookOnA(KindNetwork, func(l *Look) { l.NetworkStatus = statusOf("perf/other") })}, false, "attachment", sfVF.Name, Error, "no network perf/sf-vf"},
		{"a network-status that lies", changes{lookOnA(KindNetwork, func(l *Look) { l.Inspection.Evidence.Interface = "" })}, false, "attachment", sfVF.Name, Error, "did not have"},
		{"no address", changes{lookOnA(KindNetwork, func(l *Look) { l.NetworkStatus = `[{"name":"perf/sf-vf","interface":"net1"}]` })}, false, "attachment", sfVF.Name, Error, "no address"},

		{"an X2 with full-feature firmware", changes{factOnA("nic.pci-id", "1924:1b03")}, false, "interface", sfVF.Name, Good, "Onload sends without CTPIO"},
		{"a good VF", nil, false, "interface", sfVF.Name, Good, "driver sfc, VF, 0000:65:02.1, firmware 8.3.3.1000 rx0 tx0, variant full-feature"},
		{"a link that is down", changes{factOnA("nic.carrier", "0")}, false, "interface", sfVF.Name, Error, "down"},
		{"a simulated NIC", changes{lookOnA(KindNetwork, func(l *Look) { l.Inspection.Evidence.Driver = "veth" })}, false, "interface", sfVF.Name, Warning, "simulated"},
		{"a paravirtual NIC", changes{driverOnA("virtio_net"), factOnA("cpu.hypervisor", "yes")}, false, "interface", sfVF.Name, Warning, "paravirtual"},
		{"a card of a bare machine that emulates virtio", changes{driverOnA("virtio_net")}, false, "interface", sfVF.Name, Good, "virtio_net"},
		{"a NIC on the board", changes{driverOnA("e1000e")}, false, "interface", sfVF.Name, Good, "e1000e"},
		{"a NIC on the board, passed through", changes{driverOnA("e1000e"), factOnA("cpu.hypervisor", "yes"), factOnA("nic.pci-subsystem", "17aa:2252")}, false, "interface", sfVF.Name, Good, "e1000e"},
		{"an emulated NIC", changes{driverOnA("e1000e"), factOnA("cpu.hypervisor", "yes"), factOnA("nic.pci-subsystem", "15ad:07d0")}, false, "interface", sfVF.Name, Warning, "paravirtual"},
		{"a function of the cloud's card", changes{driverOnA("ena"), factOnA("cpu.hypervisor", "yes"), factOnA("nic.pci-subsystem", "1d0f:ec20")}, false, "interface", sfVF.Name, Good, "ena"},
		{"a VF of firmware that has none", changes{factOnA("nic.firmware-variant", "ultra-low-latency")}, false, "interface", sfVF.Name, Warning, "ultra-low-latency"},
		{"merged segments", changes{factOnA("nic.feature.rx-lro", "on")}, false, "interface", sfVF.Name, Warning, "LRO is on"},
		{"slow interrupts", changes{factOnA("nic.coalesce.rx-usecs", "60"), factOnA("nic.coalesce.adaptive-rx", "1")}, false, "interface", sfVF.Name, Warning, "60 µs, adaptively"},

		{"no library", changes{lookOnA(KindOnload, func(l *Look) {
			l.Inspection.Onload.Library, l.Inspection.Onload.Preload = "", "/opt/onload/usr/lib64/libonload.so"
		})}, false, "onload", onloads, Error, "no library"},
		{"a library of the image's", changes{lookOnA(KindOnload, func(l *Look) { l.Inspection.Onload.Library, l.Inspection.Onload.Preload = "", "" })}, false, "onload", onloads, Warning, "no library"},
		{"no module", changes{lookOnA(KindOnload, func(l *Look) { l.Inspection.Onload.Devices = nil })}, false, "onload", onloads, Error, "no /dev/onload"},
		{"a control plane of the runtime's", changes{lookOnA(KindOnload, func(l *Look) { l.Inspection.Onload.ControlPlane = "/usr/bin/crictl" })}, false, "onload", onloads, Good,
			"control plane by /usr/bin/crictl, which the node has to have"},
		{"Onload that cannot be mounted", changes{troubleOnA(KindOnload, v1alpha1.OutcomeContainerConfig, "CreateContainerError")}, false, "onload", onloads, Error, "CreateContainerError"},
		{"Onload that takes too long", changes{troubleOnA(KindOnload, v1alpha1.OutcomeStartTimeout, "Pending")}, false, "onload", onloads, Unknown, "Pending"},
		{"Onload whose plugin is gone", changes{allocatableOnA(onloads, "0"), onA(func(n *Node) { n.Looks = n.Looks[:3] })}, false, "onload", onloads, Error, "0 of 100"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := fit(t)
			for _, change := range c.changes {
				change(&o)
			}
			node := "a"
			if c.cluster {
				node = ""
			}
			r := Diagnose(o)
			i := slices.IndexFunc(r.Lines, func(l Line) bool { return l.Node == node && l.Check == c.check && l.Subject == c.subject })
			if i < 0 {
				if c.want != "" {
					t.Fatalf("no line; want %s", c.want)
				}
				return
			}
			l := r.Lines[i]
			if l.Level != c.want || !strings.Contains(l.Found, c.found) {
				t.Errorf("got %+v, want %s with %q", l, c.want, c.found)
			}
			if advised := l.Remedy != ""; advised != (l.Level != Good) {
				t.Errorf("a %s line with the advice %q", l.Level, l.Remedy)
			}
			if told := l.Effect != ""; told != (l.Level == Error || l.Level == Warning) {
				t.Errorf("a %s line with the effect %q", l.Level, l.Effect)
			}
			if slices.Index(Levels, r.Result) > slices.Index(Levels, l.Level) {
				t.Errorf("the result is %s, better than its line", r.Result)
			}
		})
	}
}

// docs/internals/doctor.md describes each check.
func TestEveryCheckIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/internals/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	o := fit(t)
	o.LeftOut["cp-1"] = "x:NoSchedule"
	o.Nodes[0].Looks[0].Inspection.Evidence.BootID = "boot-b"
	o.Nodes[0].Looks[1].Inspection.Evidence.BootID = "boot-b"
	for _, l := range Diagnose(o).Lines {
		if !bytes.Contains(page, []byte("`"+l.Check+"`")) {
			t.Errorf("docs/internals/doctor.md has no `%s`", l.Check)
		}
	}
}

// After an intended change, run go test ./internal/doctor -update, and read the difference.
func TestTable(t *testing.T) {
	o := fit(t)
	for _, change := range []func(*Observed){
		seenOnA(shared), factOnA("cpu.governor", "powersave"), unseen("deployments"),
		troubleOnA(KindNetwork, v1alpha1.OutcomeNetworkFailed, "plugin said\n\x1b[2Jno"),
	} {
		change(&o)
	}
	o.Nodes = o.Nodes[:1]
	r := Diagnose(o)
	plain := r.Table(false, nil)
	golden.Check(t, "table.txt", plain)
	painted := r.Table(false, func(l Level, word string) string { return "<" + string(l) + word + ">" })
	for _, level := range Levels {
		painted = strings.ReplaceAll(painted, fmt.Sprintf("<%s%s>", level, level), string(level))
	}
	if diff := cmp.Diff(plain, painted); diff != "" {
		t.Errorf("what is painted, without the paint (-want +got):\n%s", diff)
	}
}

// A cluster without findings has a line for itself and one for each node.
func TestTableOfGoodCluster(t *testing.T) {
	want := "good     cluster  9 good\ngood     a        20 good\ngood     b        20 good\n\ngood: 2 nodes, 49 good\n"
	o := fit(t)
	o.LeftOut["cp-1"] = "x:NoSchedule"
	if diff := cmp.Diff(want, Diagnose(o).Table(false, nil)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if all := Diagnose(o).Table(true, nil); strings.Count(all, "\n") != 49+1+strings.Count(want, "\n") {
		t.Errorf("not all lines:\n%s", all)
	}
}

// Nodes of one machine have no warnings, but all errors.
func TestSimulation(t *testing.T) {
	o := fit(t)
	for _, change := range []func(*Observed){
		seenOnA(func(i *result.Inspection) { i.Evidence.BootID, i.Evidence.Clocksource = "boot-b", "kvm-clock" }),
		factOnA("cpu.hypervisor", "yes"), troubleOnA(KindNetwork, v1alpha1.OutcomeNetworkFailed, "no"),
	} {
		change(&o)
	}
	r := Diagnose(o)
	if r.Count(Warning) != 0 || r.Count(Error) != 1 || r.Result != Error {
		t.Errorf("%d warnings, %d errors, %s", r.Count(Warning), r.Count(Error), r.Result)
	}
}

// The classes of troubles are tested with benchmarks; only pods that have not succeeded have one.
func TestTroubleOf(t *testing.T) {
	sandbox := []corev1.Event{{Reason: "FailedCreatePodSandBox", Message: "the old one"}, {Reason: "FailedCreatePodSandBox", Message: "the new\n one"}, {Reason: "Unhealthy", Message: "else"}}
	for name, c := range map[string]struct {
		status  corev1.PodStatus
		want    *pods.Trouble
		passing bool
	}{
		"a pod that begins": {status: corev1.PodStatus{Phase: corev1.PodPending, Reason: "no events"}},
		"a pod that runs":   {status: corev1.PodStatus{Phase: corev1.PodRunning}},
		"no network": {
			status:  corev1.PodStatus{Phase: corev1.PodPending},
			want:    &pods.Trouble{Outcome: v1alpha1.OutcomeNetworkFailed, Said: "its network cannot be set up on : the new one", Remedy: "check spec.network and the CNI plugins of the node"},
			passing: true,
		},
		"half a core": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "SMTAlignmentError", Message: "whole cores"},
			want: &pods.Trouble{
				Outcome: v1alpha1.OutcomeSMTAlignment, Said: "the kubelet of  gives the inspect pod whole cores only: whole cores",
				Remedy: "set placement.cpus to a multiple of the CPUs of a core",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			events := sandbox
			if c.status.Reason == "no events" {
				events = nil
			}
			got := TroubleOf(&corev1.Pod{Status: c.status}, events)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("trouble (-want +got):\n%s", diff)
			}
			if got != nil && Passing(got) != c.passing {
				t.Errorf("passing: %t", !c.passing)
			}
		})
	}
}

// A check of a NetworkAttachmentDefinition does not panic, whatever its content.
func FuzzNetwork(f *testing.F) {
	for _, text := range []string{sfVF.Config, `{"plugins": [{"type": "sriov", "trust": "on"}, {}]}`, `[]`, `{"plugins": [null]}`, "null"} {
		f.Add(text, vfs)
		f.Add(text, "")
	}
	f.Fuzz(func(t *testing.T, config, resource string) {
		o := fit(t)
		o.Networks[0].Config, o.Networks[0].Resource = config, resource
		if lines := networks(o); len(lines) != 1 {
			t.Errorf("%d lines", len(lines))
		}
	})
}
