package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// choosePair filters each endpoint's nodes and chooses the two that others need least, or keeps the
// pair chosen before: rounds of another do not compare. Its time grows with nodes and pods.
func choosePair(o Observed) (v1alpha1.Pair, *Rejection) {
	clientEnd, serverEnd := endpoints(o)
	clients, r := newChoice(o, v1alpha1.RoleClient).among(clientEnd)
	if r != nil {
		return v1alpha1.Pair{}, r
	}
	servers, r := newChoice(o, v1alpha1.RoleServer).among(serverEnd)
	if r != nil {
		return v1alpha1.Pair{}, r
	}
	slices.SortFunc(clients, candidate.compare)
	slices.SortFunc(servers, candidate.compare)

	client, server := clients[0], servers[0]
	if client.name == server.name {
		switch {
		case len(clients) == 1 && len(servers) == 1:
			return v1alpha1.Pair{}, rejectf(v1alpha1.ReasonSameNode, "spec.placement",
				"only node %s is suitable for client and server, and a benchmark needs two nodes: change a nodeSelector", client.name)
		case len(servers) == 1 || len(clients) > 1 && clients[1].compare(servers[1]) < 0:
			client = clients[1]
		default:
			server = servers[1]
		}
	}
	return v1alpha1.Pair{ClientNode: client.name, ServerNode: server.name}, nil
}

// Matching returns the nodes that fit by name and labels alone, or the pair that was chosen.
func Matching(o Observed) []string {
	clients, servers := endpoints(o)
	var names []string
	for i := range o.Nodes {
		if n := &o.Nodes[i]; clients.matches(n) || servers.matches(n) {
			names = append(names, n.Name)
		}
	}
	return names
}

type endpoint struct {
	path      string
	selection v1alpha1.NodeSelection
	selects   func(*corev1.Node) bool
	invalid   error
	kept      string // the node that was chosen before; empty if there is none
}

func endpoints(o Observed) (client, server *endpoint) {
	end := func(role string) *endpoint {
		e := &endpoint{path: "spec.placement." + role, selection: o.Benchmark.Spec.Placement.Of(role).NodeSelection}
		e.selects, e.invalid = e.selection.Matcher()
		return e
	}
	client, server = end(v1alpha1.RoleClient), end(v1alpha1.RoleServer)
	if pair := o.Benchmark.Status.Pair; pair != nil {
		client.kept, server.kept = pair.ClientNode, pair.ServerNode
	}
	return client, server
}

// matches reports whether a node is selected. A kept node's labels are not checked again.
func (e *endpoint) matches(n *corev1.Node) bool {
	if e.kept != "" {
		return n.Name == e.kept
	}
	return e.selects(n)
}

func (c *choice) among(e *endpoint) ([]candidate, *Rejection) {
	var found []candidate
	for i := range c.o.Nodes {
		n := &c.o.Nodes[i]
		if !e.matches(n) {
			continue
		}
		if f, why := c.judge(n); f != nil {
			f.rejected[why] = append(f.rejected[why], n)
		} else {
			found = append(found, c.candidate(n))
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, c.rejection(e)
}

const maxReasons = 10

// rejection names what most nodes do not meet; of equal ones the last, checked after all others.
func (c *choice) rejection(e *endpoint) *Rejection {
	total := 0
	var worst *filter
	var nodes []*corev1.Node
	for _, f := range c.filters {
		rejected := slices.Concat(slices.Collect(maps.Values(f.rejected))...)
		if total += len(rejected); len(rejected) >= len(nodes) {
			worst, nodes = f, rejected
		}
	}
	switch {
	case total == 0 && e.kept != "":
		return rejectf(v1alpha1.ReasonNodeNotReady, e.path,
			"node %s, on which this benchmark measures, no longer exists; bring it back, or delete the benchmark and apply it again", e.kept)
	case total == 0 && e.selection.NodeName != "":
		return rejectf(v1alpha1.ReasonNoMatchingNode, e.path+".nodeName", "there is no node %s; see `kubectl get nodes`", e.selection.NodeName)
	case total == 0 && len(e.selection.NodeNames) > 0:
		return rejectf(v1alpha1.ReasonNoMatchingNode, e.path+".nodeNames", "none of these nodes exists; see `kubectl get nodes`")
	case total == 0 && e.invalid != nil:
		return rejectf(v1alpha1.ReasonNoMatchingNode, e.path+".nodeSelector", "%v; correct the selector", e.invalid)
	case total == 0:
		return rejectf(v1alpha1.ReasonNoMatchingNode, e.path+".nodeSelector",
			"no node has %s; see `kubectl get nodes --show-labels`", metav1.FormatLabelSelector(e.selection.NodeSelector))
	}

	first := slices.MinFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	cure := worst.cure(first, nodes)
	if total == 1 {
		return rejectf(worst.reason, e.path, "node %s: %s; %s", first.Name, worst.why(first), cure)
	}
	return rejectf(worst.reason, e.path, "%d nodes: %s; %s", total, c.reasons(), cure)
}

func (c *choice) reasons() string {
	var reasons []string
	for _, f := range c.filters {
		for _, why := range slices.Sorted(maps.Keys(f.rejected)) {
			reasons = append(reasons, fmt.Sprintf("%d %s", len(f.rejected[why]), why))
		}
	}
	return text.List(reasons, maxReasons, ", ")
}

type candidate struct {
	name string
	// evicts is 1 if pods of lower priority must be evicted, others counts unfinished benchmarks on
	// the node, and spare kinds of its devices that are not used: it is better left to others.
	evicts, others, spare int
}

func (c candidate) compare(other candidate) int {
	return cmp.Or(cmp.Compare(c.evicts, other.evicts), cmp.Compare(c.others, other.others), cmp.Compare(c.spare, other.spare),
		strings.Compare(c.name, other.name))
}

type choice struct {
	o          Observed
	role       string
	asks       []ask                   // CPUs, memory, huge pages, and one of each device
	used, firm map[string][]int64      // of asks, what a node's pods use; firm: those that stay
	aligned    [][]corev1.ResourceName // of each variant, those for the NUMA node of its CPUs
	filters    []*filter               // in this order: the first to return a reason rejects
}

type filter struct {
	reason string
	why    func(*corev1.Node) string // in a few words, what is wrong with a node; or empty
	// cure describes the remedy for the rejected nodes, or for the first of them by name.
	cure     func(first *corev1.Node, rejected []*corev1.Node) string
	rejected map[string][]*corev1.Node // by what is wrong with them
}

func (c *choice) filter(reason string, why func(*corev1.Node) string, cure func(*corev1.Node, []*corev1.Node) string) {
	c.filters = append(c.filters, &filter{reason, why, cure, map[string][]*corev1.Node{}})
}

type ask struct {
	name     corev1.ResourceName
	amount   int64
	overhead int64 // what the RuntimeClass adds for itself
	// reason is the API's for nodes that cannot provide it; lacks and lacksFree say what they lack.
	reason, lacks, lacksFree string
	path                     string // the field that sets the requirement
	device, vf               bool   // a device plugin's resource; that of a network of type VF
}

func newChoice(o Observed, role string) *choice {
	c := &choice{o: o, role: role, asks: asks(o, role)}
	c.used, c.firm = make(map[string][]int64, len(o.Nodes)), make(map[string][]int64, len(o.Nodes))
	for i := range o.Pods {
		p := &o.Pods[i]
		c.count(c.used, p)
		if !o.preempts(p) {
			c.count(c.firm, p)
		}
	}
	c.aligned = aligned(o, role)

	c.filter(v1alpha1.ReasonNoMatchingNode, foreignPlatform, func(*corev1.Node, []*corev1.Node) string {
		return "the bench image is for Linux on " + strings.Join(architectures, " and ") + "; select such nodes"
	})
	c.filter(v1alpha1.ReasonNoMatchingNode, c.otherClass, func(*corev1.Node, []*corev1.Node) string {
		return fmt.Sprintf("it is for nodes with %s; select one of these, or change spec.pods.runtimeClassName", labels.FormatLabels(o.RuntimeClass.Scheduling.NodeSelector))
	})
	c.filter(v1alpha1.ReasonCellUnsupported, c.cannotSendAtRate, func(*corev1.Node, []*corev1.Node) string {
		return "select a client of another architecture, use pinger, or remove spec.workload.ratesPerSecond"
	})
	c.filter(v1alpha1.ReasonNodeNotReady, unready, func(first *corev1.Node, _ []*corev1.Node) string {
		return fmt.Sprintf("bring node %s back; `kubectl describe node %s` shows what its kubelet reports", first.Name, first.Name)
	})
	c.filter(v1alpha1.ReasonNodeNotReady, c.untolerated, func(first *corev1.Node, _ []*corev1.Node) string {
		if c.untolerated(first) == whyCordoned {
			return fmt.Sprintf("uncordon node %s when its maintenance is over, or tolerate %s in spec.pods.tolerations", first.Name, corev1.TaintNodeUnschedulable)
		}
		if t := UntoleratedTaint(first, c.tolerations()); Passing(t.Key) != "" {
			return fmt.Sprintf("%s; wait, or tolerate it in spec.pods.tolerations", Passing(t.Key))
		}
		return fmt.Sprintf("tolerate the taint in spec.pods.tolerations, or remove the taint from node %s if no workload needs it", first.Name)
	})
	c.filter(v1alpha1.ReasonNodeDraining, c.draining, c.drainingCure)
	c.filter(v1alpha1.ReasonNodeNotSynced, c.notSynced, c.notSyncedCure)
	for _, a := range c.asks {
		c.filter(a.reason, a.missing, func(first *corev1.Node, rejected []*corev1.Node) string {
			if a.device {
				return c.deviceCure(a, first)
			}
			return a.cure(rejected)
		})
	}
	c.filter(v1alpha1.ReasonNodeBusy, c.busy, c.busyCure)
	c.filter(v1alpha1.ReasonTopologyInsufficient, c.misaligned, func(*corev1.Node, []*corev1.Node) string {
		return "free whole CPUs and a device of one NUMA node, request fewer in " + placementPath(o, role, "cpus") + ", or set spec.placement.numaPolicy: Preferred"
	})
	return c
}

func (o Observed) preempts(p *Pod) bool {
	if o.PriorityClass == nil {
		return p.Priority < 0
	}
	never := o.PriorityClass.PreemptionPolicy != nil && *o.PriorityClass.PreemptionPolicy == corev1.PreemptNever
	return !never && p.Priority < o.PriorityClass.Value
}

func (c *choice) count(byNode map[string][]int64, p *Pod) {
	sums := byNode[p.Node]
	if sums == nil {
		sums = make([]int64, len(c.asks))
		byNode[p.Node] = sums
	}
	for i := range c.asks {
		sums[i] += p.Requests[c.asks[i].name]
	}
}

func (c *choice) judge(n *corev1.Node) (rejecting *filter, why string) {
	for _, f := range c.filters {
		if why := f.why(n); why != "" {
			return f, why
		}
	}
	return nil, ""
}

func (c *choice) candidate(n *corev1.Node) candidate {
	found := candidate{name: n.Name, others: c.o.Others[n.Name]}
	if c.lacking(n, c.used[n.Name]) != nil {
		found.evicts = 1
	}
	for name, q := range n.Status.Allocatable {
		asked := slices.ContainsFunc(c.asks, func(a ask) bool { return a.name == name })
		if extended(name) && !asked && q.Sign() > 0 {
			found.spare++
		}
	}
	return found
}

func extended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// asks lists a role's requirements. Variants follow one another: one of each device is enough.
func asks(o Observed, role string) []ask {
	memory, template := o.Benchmark.Spec.Placement.Of(role).Memory, o.Benchmark.Spec.Pods
	cpus := o.leastCPUs().Of(role)
	list := []ask{
		{
			name: corev1.ResourceCPU, amount: int64(cpus) * 1000, path: placementPath(o, role, "cpus"), reason: v1alpha1.ReasonInsufficientCPU,
			lacks: fewer(cpus, "whole CPUs"), lacksFree: fewer(cpus, "free CPUs"),
		},
		{
			name: corev1.ResourceMemory, amount: memory.Value(), path: placementPath(o, role, "memory"), reason: v1alpha1.ReasonInsufficientMemory,
			lacks: "less than " + memory.String() + " of memory", lacksFree: "less than " + memory.String() + " of free memory",
		},
		{name: corev1.ResourcePods, amount: 1, reason: v1alpha1.ReasonNodeBusy, lacks: "no room for a pod", lacksFree: "no room for another pod"},
	}
	if template != nil && template.Hugepages != nil {
		h := template.Hugepages
		list = append(list, ask{
			name: corev1.ResourceName(corev1.ResourceHugePagesPrefix + h.Size), amount: h.Amount.Value(), path: "spec.pods.hugepages.amount", reason: v1alpha1.ReasonInsufficientHugepages,
			lacks: fmt.Sprintf("less than %s in huge pages of %s", h.Amount.String(), h.Size), lacksFree: fmt.Sprintf("less than %s in free huge pages of %s", h.Amount.String(), h.Size),
		})
	}
	add := func(name, path string, vf bool) {
		if name == "" || slices.ContainsFunc(list, func(a ask) bool { return string(a.name) == name }) {
			return
		}
		list = append(list, ask{
			name: corev1.ResourceName(name), amount: 1, path: path, reason: v1alpha1.ReasonResourceNotAdvertised,
			lacks: "no " + name, lacksFree: "no free " + name, device: true, vf: vf,
		})
	}
	if class := o.RuntimeClass; class != nil && class.Overhead != nil {
		for i := range list {
			list[i].overhead = amount(list[i].name, class.Overhead.PodFixed[list[i].name])
		}
	}
	for _, v := range o.variants() {
		add(v.Network.ResourceName(), memberPath(o, v)+".resourceName", v.Network.Type == v1alpha1.NetworkVF)
		add(v.Network.AlignWith(), memberPath(o, v)+".alignWith", false)
		add(v.Acceleration.OnloadSettings().ResourceName, accelerationPath(o, v)+".onload.resourceName", false)
	}
	return list
}

func (o Observed) variants() []v1alpha1.Variant {
	return slices.DeleteFunc(plan.Variants(o.Benchmark.Spec), func(v v1alpha1.Variant) bool { return o.Next != "" && v.Name != o.Next })
}

func fewer(asked int32, of string) string {
	if asked == 1 {
		return "no " + of
	}
	return fmt.Sprintf("fewer than %d %s", asked, of)
}

func (a ask) quantity(n int64) string {
	switch {
	case a.name == corev1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case a.device:
		return strconv.FormatInt(n, 10)
	default:
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
}

func (a ask) allocatable(n *corev1.Node) int64 {
	if _, known := n.Status.Allocatable[a.name]; !known && a.name == corev1.ResourcePods {
		return math.MaxInt32
	}
	return amount(a.name, n.Status.Allocatable[a.name]) - a.overhead
}

func (a ask) missing(n *corev1.Node) string {
	if a.allocatable(n) < a.amount {
		return a.lacks
	}
	return ""
}

func (a ask) cure(rejected []*corev1.Node) string {
	var most int64
	for _, n := range rejected {
		most = max(most, a.allocatable(n))
	}
	if a.name == corev1.ResourceCPU {
		// Half a CPU cannot be exclusive.
		return fmt.Sprintf("%d requested, but no node has more than %d whole CPUs; request fewer in %s", a.amount/1000, most/1000, a.path)
	}
	return fmt.Sprintf("%s requested, but no node has more than %s; request less in %s", a.quantity(a.amount), a.quantity(most), a.path)
}

// architectures are those of the bench image: the pinger reads a counter of the CPU.
var architectures = []string{"amd64", "arm64"}

// foreignPlatform rejects nodes of another operating system or architecture, as kubelets report.
func foreignPlatform(n *corev1.Node) string {
	system, architecture := n.Status.NodeInfo.OperatingSystem, n.Status.NodeInfo.Architecture
	switch {
	case system != "" && system != string(corev1.Linux):
		return "with the system " + system
	case architecture != "" && !slices.Contains(architectures, architecture):
		return "of the architecture " + architecture
	}
	return ""
}

func (c *choice) otherClass(n *corev1.Node) string {
	if class := c.o.RuntimeClass; class != nil && class.Scheduling != nil {
		for key, value := range class.Scheduling.NodeSelector {
			if found, ok := n.Labels[key]; !ok || found != value {
				return "not of RuntimeClass " + class.Name
			}
		}
	}
	return ""
}

// cannotSendAtRate rejects clients on which the tool cannot send at a rate. Usable has no driver.
func (c *choice) cannotSendAtRate(n *corev1.Node) string {
	arch, rates := n.Status.NodeInfo.Architecture, c.o.Benchmark.Spec.Workload.RatesPerSecond
	if c.role != v1alpha1.RoleClient || len(rates) == 0 || c.o.Driver == nil || !slices.Contains(c.o.Driver.Limits().NotAtRate, arch) {
		return ""
	}
	return fmt.Sprintf("%s, on which %s of the bench image cannot send at a rate (spec.workload.ratesPerSecond)", arch, c.o.Driver.Name())
}

func unready(n *corev1.Node) string {
	if !NodeReady(*n) {
		return "not ready"
	}
	return ""
}

func NodeReady(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

const whyCordoned = "cordoned"

func (c *choice) untolerated(n *corev1.Node) string { return Untolerated(n, c.tolerations()) }

func (c *choice) tolerations() []corev1.Toleration {
	all := c.o.Benchmark.Spec.Placement.Of(c.role).Tolerations
	if template := c.o.Benchmark.Spec.Pods; template != nil {
		all = slices.Concat(all, template.Tolerations)
	}
	if class := c.o.RuntimeClass; class != nil && class.Scheduling != nil {
		all = slices.Concat(all, class.Scheduling.Tolerations)
	}
	return all
}

// Untolerated returns why pods with these tolerations do not fit on a node: cordoned or tainted.
func Untolerated(n *corev1.Node, tolerations []corev1.Toleration) string {
	switch t := UntoleratedTaint(n, tolerations); {
	case t == nil:
		return ""
	case n.Spec.Unschedulable && t.Key == corev1.TaintNodeUnschedulable:
		return whyCordoned
	default:
		return "tainted with " + t.Key
	}
}

func tolerated(taint corev1.Taint, tolerations []corev1.Toleration) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), &taint, true) })
}

func (c *choice) lacking(n *corev1.Node, used []int64) *ask {
	for i := range used {
		if a := &c.asks[i]; a.allocatable(n)-used[i] < a.amount {
			return a
		}
	}
	return nil
}

func (c *choice) busy(n *corev1.Node) string {
	if a := c.lacking(n, c.firm[n.Name]); a != nil {
		return a.lacksFree
	}
	return ""
}

func (c *choice) busyCure(n *corev1.Node, _ []*corev1.Node) string {
	a := c.lacking(n, c.firm[n.Name])
	var most *Pod
	var used int64
	for i := range c.o.Pods {
		p := &c.o.Pods[i]
		if p.Node != n.Name || c.o.preempts(p) {
			continue
		}
		used += p.Requests[a.name]
		if most == nil || cmp.Or(cmp.Compare(most.Requests[a.name], p.Requests[a.name]), strings.Compare(p.Name, most.Name)) < 0 {
			most = p
		}
	}
	has := amount(a.name, n.Status.Allocatable[a.name])
	switch {
	case a.name == corev1.ResourcePods:
		return fmt.Sprintf("node %s runs %d of %d pods; move one to another node, wait for its end, or select other nodes", n.Name, used, has)
	case a.device && used > has:
		return fmt.Sprintf("pods on node %s use %d of %d %s: its device plugin was started again and did not find those in use; end these pods and restart the device plugin there, or select other nodes",
			n.Name, used, has, a.name)
	}
	return fmt.Sprintf("on node %s, pod %s uses most of it, %s of %s; move the pod to another node, wait for its end, or select other nodes",
		n.Name, most.Name, a.quantity(most.Requests[a.name]), a.quantity(has))
}
