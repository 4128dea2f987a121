package identity

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// A difference in any key that a gate can count is a change, and nothing else is.
func TestSince(t *testing.T) {
	gate := &v1alpha1.LatencyGate{}
	gate.Spec.Identity = v1alpha1.GateIdentity{
		Keys: []v1alpha1.IdentityKey{
			v1alpha1.IdentityBootID, v1alpha1.IdentityKernel, v1alpha1.IdentityKubelet, v1alpha1.IdentityContainerRuntime, v1alpha1.IdentityOSImage, v1alpha1.IdentityDevices,
		},
		Labels: []string{"onload"},
	}
	gate.Spec.Template.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/vf"}}}
	gate.Spec.Template.Spec.Acceleration = &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{ResourceName: "amd.com/onload"}}
	makeNode := func() *corev1.Node {
		n := &corev1.Node{}
		n.Labels = map[string]string{"onload": "then"}
		n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "then", KernelVersion: "then", KubeletVersion: "then", ContainerRuntimeVersion: "then", OSImage: "then"}
		n.Status.Allocatable = corev1.ResourceList{"amd.com/vf": resource.MustParse("8"), "amd.com/onload": resource.MustParse("8"), "cpu": resource.MustParse("8")}
		return n
	}
	changes := map[string]func(*corev1.Node){
		"BootID":                 func(n *corev1.Node) { n.Status.NodeInfo.BootID = "now" },
		"Kernel":                 func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "now" },
		"Kubelet":                func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "now" },
		"ContainerRuntime":       func(n *corev1.Node) { n.Status.NodeInfo.ContainerRuntimeVersion = "now" },
		"OSImage":                func(n *corev1.Node) { n.Status.NodeInfo.OSImage = "now" },
		"Label/onload":           func(n *corev1.Node) { n.Labels["onload"] = "now" },
		"Devices/amd.com/vf":     func(n *corev1.Node) { n.Status.Allocatable["amd.com/vf"] = resource.MustParse("7") },
		"Devices/amd.com/onload": func(n *corev1.Node) { delete(n.Status.Allocatable, "amd.com/onload") },
	}
	recorded := KeysOf(gate).Of(makeNode())
	if len(recorded) != len(changes) {
		t.Errorf("%d keys are recorded, and %d are changed here", len(recorded), len(changes))
	}
	for key, change := range changes {
		t.Run(key, func(t *testing.T) {
			n := makeNode()
			change(n)
			var got []string
			for _, c := range Since(recorded, n) {
				got = append(got, c.Key)
			}
			if diff := cmp.Diff([]string{key}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	other := makeNode()
	other.Labels["zone"], other.Status.Allocatable["cpu"] = "b", resource.MustParse("4")
	if got := Since(recorded, other); got != nil {
		t.Errorf("what no key names is a change: %v", got)
	}
}
