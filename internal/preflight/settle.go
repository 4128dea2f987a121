package preflight

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Supplier is a Module or a DaemonSet, which nodes may need before they can be measured.
type Supplier struct {
	Name string // the kind with namespace/name
	// Plugin is true for a DaemonSet of a device plugin: its pods mount the kubelet's directory.
	Module, Plugin bool
	// Selects reports whether it is for a node, whatever the node's taints are.
	Tolerations []corev1.Toleration
	Selects     func(*corev1.Node) bool
}

func OfModule(m foreign.Module) Supplier {
	return Supplier{
		Name: "Module " + m.Namespace + "/" + m.Name, Module: true, Tolerations: m.Spec.Tolerations,
		Selects: func(n *corev1.Node) bool {
			return labels.SelectorFromSet(m.Spec.Selector).Matches(labels.Set(n.Labels))
		},
	}
}

const devicePlugins = "/var/lib/kubelet/device-plugins"

// maxSelection bounds what selects a DaemonSet's nodes, in bytes: any editor can create it.
const maxSelection = 16 << 10

// OfDaemonSet returns the supplier that a DaemonSet is; false if what selects its nodes is larger
// than that of any plugin. A node affinity that cannot be parsed selects no node.
func OfDaemonSet(d *appsv1.DaemonSet) (Supplier, bool) {
	of := d.Spec.Template.Spec
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: of.NodeSelector, Affinity: of.Affinity, Tolerations: of.Tolerations}}
	return Supplier{
		Name: "DaemonSet " + d.Namespace + "/" + d.Name, Tolerations: pod.Spec.Tolerations,
		Plugin: slices.ContainsFunc(of.Volumes, func(v corev1.Volume) bool {
			return v.HostPath != nil && strings.HasPrefix(v.HostPath.Path, devicePlugins)
		}),
		Selects: func(n *corev1.Node) bool {
			matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n)
			return err == nil && matches
		},
	}, pod.Size() <= maxSelection
}

// Intolerant returns the names of the suppliers of any of the nodes that do not tolerate a taint.
func Intolerant(suppliers []Supplier, nodes []*corev1.Node, taint corev1.Taint) []string {
	var all []string
	for _, s := range suppliers {
		if !tolerated(taint, s.Tolerations) && slices.ContainsFunc(nodes, s.Selects) {
			all = append(all, s.Name)
		}
	}
	slices.Sort(all)
	return all
}

var cordon = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// HeldBy returns the taint by which a gate holds nodes back; nil if it uses none.
func HeldBy(gate *v1alpha1.LatencyGate) *corev1.Taint {
	if t := gate.Spec.Enforcement.Taint; t != nil {
		return &corev1.Taint{Key: v1alpha1.NodeTaintUnverified, Effect: t.Effect}
	}
	return nil
}

// MeasuresCordoned reports whether a gate can measure a node that a tool keeps cordoned.
func MeasuresCordoned(gate *v1alpha1.LatencyGate) bool {
	pods := gate.Spec.Template.Spec.Pods
	return pods != nil && tolerated(cordon, pods.Tolerations)
}

const (
	// That operator waits uncordonLimit after a boot; the runs may take measuringLimit of it.
	uncordonLimit, measuringLimit = 10 * time.Minute, 5 * time.Minute
	maxSuppliers                  = 3
)

// Undecidable rejects a gate's rule that can neither pass nor fail. driver may be nil.
func Undecidable(gate *v1alpha1.LatencyGate, driver tool.Driver) *Rejection {
	template := &v1alpha1.LatencyBenchmark{Spec: gate.Spec.Template.Benchmark()}
	return rulesCanDecide(Observed{Benchmark: template, Driver: driver}).InTemplate()
}

// Unsettled returns why a gate could never verify its nodes, or harms them; empty if not known.
func Unsettled(gate *v1alpha1.LatencyGate, nodes []*corev1.Node, suppliers []Supplier) (reason, message string) {
	some := func(match func(Supplier) bool, taint corev1.Taint) []string {
		return Intolerant(slices.DeleteFunc(slices.Clone(suppliers), func(s Supplier) bool { return !match(s) }), nodes, taint)
	}
	module, plugin := func(s Supplier) bool { return s.Module }, func(s Supplier) bool { return s.Plugin }
	needs, cordoned := len(plan.Resources(gate.Spec.Template.Benchmark())) > 0, MeasuresCordoned(gate)
	if taint := HeldBy(gate); taint != nil {
		const remedy = "add the toleration to them, or remove the taint from the gate, and from the nodes that have it: kubectl taint nodes NODE %[1]s-"
		if found := some(module, *taint); len(found) > 0 {
			return v1alpha1.ReasonDevicesWithheld, fmt.Sprintf("spec.enforcement.taint: Kernel Module Management unloads a module from a tainted node unless its Module tolerates %s; these do not: %s; "+remedy, taint.Key, text.List(found, maxSuppliers, ", "))
		}
		if found := some(plugin, *taint); needs && len(found) > 0 {
			return v1alpha1.ReasonDevicesWithheld, fmt.Sprintf("spec.enforcement.taint: the template needs devices, and device plugins do not start on a tainted node unless they tolerate %s; these do not: %s; "+remedy, taint.Key, text.List(found, maxSuppliers, ", "))
		}
	}
	if found := some(module, cordon); needs && cordoned && len(found) > 0 {
		return v1alpha1.ReasonDevicesWithheld, fmt.Sprintf("spec.template.spec.pods.tolerations: the template measures cordoned nodes and needs devices, and Kernel Module Management unloads a module from a cordoned node "+
			"unless its Module tolerates %s; these do not: %s; add the toleration to them, or remove it from the template and do not keep nodes cordoned until they are verified",
			cordon.Key, text.List(found, maxSuppliers, ", "))
	}
	managed := slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return metav1.HasAnnotation(n.ObjectMeta, foreign.AnnotationMachineConfig) })
	if takes, _ := wholePlan(gate.Spec.Template.Benchmark()); managed && cordoned && takes > measuringLimit {
		return v1alpha1.ReasonTemplateTooLong, fmt.Sprintf("spec.template: the template measures cordoned nodes, and its runs take %s; OpenShift's Machine Config Operator reports a node as Degraded "+
			"that is not uncordoned %s after its boot; let the runs take at most %s, or remove the toleration of %s and hold the rollout by paused pools", takes, uncordonLimit, measuringLimit, cordon.Key)
	}
	return "", ""
}

//go:embed taints.tsv
var owners string

// Passing returns why a taint goes by itself; empty if only a user is known to remove it.
func Passing(key string) string {
	found := ""
	for line := range strings.Lines(owners) {
		pattern, owner, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		begin, isBegin := strings.CutSuffix(pattern, "*")
		end, isEnd := strings.CutPrefix(pattern, "*")
		if key == pattern || isBegin && strings.HasPrefix(key, begin) || isEnd && strings.HasSuffix(key, end) {
			found = owner
		}
	}
	return found
}

// UntoleratedTaint returns the first taint that keeps pods with these tolerations away, or nil.
func UntoleratedTaint(n *corev1.Node, tolerations []corev1.Toleration) *corev1.Taint {
	if n.Spec.Unschedulable && !tolerated(cordon, tolerations) { // The taint follows shortly.
		return new(cordon)
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(t, tolerations) {
			return &t
		}
	}
	return nil
}
