package preflight

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
)

// A gate says that it could never verify its nodes exactly if a supplier of one of them does not tolerate what the gate sets or waits for.
func TestUnsettled(t *testing.T) {
	tolerates := func(key string) []corev1.Toleration {
		return []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
	module := func(selector string, tolerations ...corev1.Toleration) Supplier {
		return OfModule(foreign.Module{
			ObjectMeta: metav1.ObjectMeta{Namespace: "onload", Name: "onload"},
			Spec:       foreign.ModuleSpec{Selector: map[string]string{selector: ""}, Tolerations: tolerations},
		})
	}
	set := func(path string, tolerations ...corev1.Toleration) Supplier {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "onload", Name: "plugin"}}
		d.Spec.Template.Spec = corev1.PodSpec{
			NodeSelector: map[string]string{"worker": ""}, Tolerations: tolerations,
			Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}},
		}
		supplier, _ := OfDaemonSet(d)
		return supplier
	}
	plugin := func(tolerations ...corev1.Toleration) Supplier {
		return set("/var/lib/kubelet/device-plugins", tolerations...)
	}
	taint := func(g *v1alpha1.LatencyGate) {
		g.Spec.Enforcement.Taint = &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}
	}
	devices := func(g *v1alpha1.LatencyGate) {
		g.Spec.Template.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/vf"}}}
	}
	cordoned := func(g *v1alpha1.LatencyGate) {
		g.Spec.Template.Spec.Pods = &v1alpha1.PodSettings{Tolerations: tolerates(corev1.TaintNodeUnschedulable)}
	}
	takes := func(d time.Duration) func(*v1alpha1.LatencyGate) {
		return func(g *v1alpha1.LatencyGate) {
			g.Spec.Template.Spec.Rounds, g.Spec.Template.Spec.MaxRounds = 2, 4
			g.Spec.Template.Spec.Workload.Duration = metav1.Duration{Duration: d / 4}
		}
	}
	openshift := func(n *corev1.Node) { n.Annotations = map[string]string{foreign.AnnotationMachineConfig: "rendered"} }
	type gate = []func(*v1alpha1.LatencyGate)
	for name, c := range map[string]struct {
		gate      gate
		node      func(*corev1.Node)
		suppliers []Supplier
		// want is the reason, and says a part of the message.
		want, says string
	}{
		"a taint that a Module does not tolerate":                      {gate{taint}, nil, []Supplier{module("worker")}, v1alpha1.ReasonDevicesWithheld, "these do not: Module onload/onload;"},
		"a Module of other nodes":                                      {gate{taint}, nil, []Supplier{module("gpu")}, "", ""},
		"a Module that tolerates the taint":                            {gate{taint}, nil, []Supplier{module("worker", tolerates(v1alpha1.NodeTaintUnverified)...)}, "", ""},
		"a Module that tolerates another taint":                        {gate{taint}, nil, []Supplier{module("worker", tolerates("other")...)}, v1alpha1.ReasonDevicesWithheld, "Module onload/onload"},
		"no taint":                                                     {gate{devices}, nil, []Supplier{module("worker"), plugin()}, "", ""},
		"a device plugin that does not tolerate the taint":             {gate{taint, devices}, nil, []Supplier{plugin()}, v1alpha1.ReasonDevicesWithheld, "these do not: DaemonSet onload/plugin;"},
		"a device plugin that a template without devices does not use": {gate{taint}, nil, []Supplier{plugin()}, "", ""},
		"a device plugin that tolerates everything":                    {gate{taint, devices}, nil, []Supplier{plugin(corev1.Toleration{Operator: corev1.TolerationOpExists})}, "", ""},
		"a DaemonSet that is no device plugin":                         {gate{taint, devices}, nil, []Supplier{set("/var/log")}, "", ""},
		"a cordon that a Module does not tolerate":                     {gate{devices, cordoned}, nil, []Supplier{module("worker")}, v1alpha1.ReasonDevicesWithheld, "spec.template.spec.pods.tolerations"},
		"a cordon, and no devices":                                     {gate{cordoned}, nil, []Supplier{module("worker")}, "", ""},
		"a cordon that every DaemonSet tolerates":                      {gate{devices, cordoned}, nil, []Supplier{plugin()}, "", ""},
		"a cordon that the template does not tolerate":                 {gate{devices}, nil, []Supplier{module("worker")}, "", ""},
		"a long template of cordoned nodes of OpenShift":               {gate{cordoned, takes(6 * time.Minute)}, openshift, nil, v1alpha1.ReasonTemplateTooLong, "its runs take 6m0s"},
		"a short template of cordoned nodes of OpenShift":              {gate{cordoned, takes(5 * time.Minute)}, openshift, nil, "", ""},
		"a long template of nodes that OpenShift has uncordoned":       {gate{takes(6 * time.Minute)}, openshift, nil, "", ""},
		"a long template of cordoned nodes of another cluster":         {gate{cordoned, takes(6 * time.Minute)}, nil, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := &v1alpha1.LatencyGate{}
			g.Spec.Template.Spec = v1alpha1.MeasurementSpec{
				Tool: v1alpha1.ToolSockperf, Rounds: 1, Criteria: &v1alpha1.Criteria{},
				Workload: v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64}},
			}
			for _, change := range c.gate {
				change(g)
			}
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"worker": ""}}}
			if c.node != nil {
				c.node(n)
			}
			if reason, message := Unsettled(g, []*corev1.Node{n}, c.suppliers); reason != c.want || !strings.Contains(message, c.says) {
				t.Errorf("%q: %s", reason, message)
			}
		})
	}
}

// Any editor of a namespace can create a DaemonSet whose affinity has as many terms as fit into an object, and the manager remembers it.
func TestLargeSelection(t *testing.T) {
	for terms, want := range map[int]bool{1: true, 100: true, 100_000: false} {
		d := &appsv1.DaemonSet{}
		d.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, terms)},
		}}
		if _, ok := OfDaemonSet(d); ok != want {
			t.Errorf("%d terms: %t", terms, ok)
		}
	}
}
