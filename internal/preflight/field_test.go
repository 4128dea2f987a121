package preflight

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/field"
)

// fieldOfInput returns what was observed of the cluster in a case.
func fieldOfInput(t *testing.T, c field.Case) Observed {
	podNetwork := v1alpha1.Network{Type: v1alpha1.NetworkPod}
	var object unstructured.Unstructured
	read := func(into any) {
		if err := yaml.Unmarshal(c.Read(t), into); err != nil {
			t.Fatal(err)
		}
	}
	switch {
	case strings.HasPrefix(c.Input, "nodes-"):
		var nodes []corev1.Node
		read(&nodes)
		o := asking(nodes...)
		o.Benchmark.Spec.Network = podNetwork
		return o
	case strings.HasPrefix(c.Input, "nodestate-"):
		read(&object.Object)
		s, err := foreign.Decode[foreign.SriovNetworkNodeState](object.Object)
		if err != nil {
			t.Fatal(err)
		}
		o := asking(good("a", allocatable(vf, "2")), good("b"))
		o.Benchmark.Spec.Network = podNetwork
		if devices := c.Arguments["devices"]; devices != "" {
			o = asking(good("a", allocatable(vf, devices)), good("b", allocatable(vf, devices), cordoned))
		}
		o.NodeStates = map[string]foreign.SriovNetworkNodeState{"a": s}
		return o
	case strings.HasPrefix(c.Input, "nad-"):
		read(&object.Object)
		resource := object.GetAnnotations()[foreign.AnnotationResourceName]
		config, _, _ := unstructured.NestedString(object.Object, "spec", "config")
		o := asking(node("a", allocatable(corev1.ResourceName(resource), "1k")), node("b", allocatable(corev1.ResourceName(resource), "1k")))
		o.Benchmark.Namespace = "perf"
		o.Benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: object.GetName()}}}
		o.Networks = map[string]*NetworkDefinition{"default": {Name: "perf/" + object.GetName(), Found: true, ResourceName: resource, Deviceless: foreign.Deviceless(config, resource)}}
		return o
	}
	used := c.Arguments["used"]
	o := asking(good("a"), good("b"))
	if room := c.Arguments["room"]; room != "" {
		o = asking(good("a", allocatable(corev1.ResourcePods, room)), good("b", allocatable(corev1.ResourcePods, room)))
	}
	o.Pods = []Pod{pod("a", "train-0", vf+"="+used, "pods=1"), pod("a", "train-1", vf+"="+used, "pods=1"), pod("b", "train-2", vf+"="+used, "pods=1"), pod("b", "train-3", "pods=1")}
	return o
}

// Cases of other projects' objects on real clusters (test/field).
func TestFieldNeighbours(t *testing.T) {
	field.Run(t, "neighbours", "internal/preflight", func(t *testing.T, c field.Case) map[string]string {
		o := fieldOfInput(t, c)
		o.Tools = tool.Registry{}
		if name := c.Arguments["tool"]; name != "" {
			o.Benchmark.Spec.Tool = v1alpha1.Tool(name)
		}
		pair, rejected := Accept(o)
		if rejected != nil {
			return map[string]string{"rejected": rejected.Reason + ": " + rejected.String()}
		}
		return map[string]string{"pair": fmt.Sprint(pair.ClientNode, " ", pair.ServerNode)}
	})
}
