package dra

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
)

const vf = "example.com/vf"

func class(name, extended string, age time.Duration, selectors ...string) resourcev1.DeviceClass {
	c := resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0).Add(-age))}}
	if extended != "" {
		c.Spec.ExtendedResourceName = &extended
	}
	for _, s := range selectors {
		c.Spec.Selectors = append(c.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: s}})
	}
	return c
}

func TestClass(t *testing.T) {
	old, young, named := class("z-old", vf, time.Hour), class("b-young", vf, 0), class("plain", "", 0)
	for name, c := range map[string]struct {
		classes []resourcev1.DeviceClass
		asked   corev1.ResourceName
		want    string
	}{
		"none":               {nil, vf, ""},
		"another resource's": {[]resourcev1.DeviceClass{class("a", "example.com/gpu", 0), named}, vf, ""},
		"the newest":         {[]resourcev1.DeviceClass{old, young}, vf, "b-young"},
		"the newest, first":  {[]resourcev1.DeviceClass{young, old}, vf, "b-young"},
		"the first by name":  {[]resourcev1.DeviceClass{young, class("a-young", vf, 0)}, vf, "a-young"},
		"by its own name":    {[]resourcev1.DeviceClass{old, named}, corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + "plain"), "plain"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if found := Class(c.classes, c.asked); found != nil {
				got = found.Name
			}
			if got != c.want {
				t.Errorf("Class() = %q, want %q", got, c.want)
			}
		})
	}
}

// slice returns a slice with devices of the given kinds on a node.
func slice(node string, generation int64, kinds ...string) resourcev1.ResourceSlice {
	s := resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
		Driver: "sriov.example.com", Pool: resourcev1.ResourcePool{Name: node, Generation: generation}, NodeName: &node,
	}}
	for i, kind := range kinds {
		address := "0000:d8:02." + string(rune('0'+i))
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: "0000-d8-02-" + string(rune('0'+i)),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"kind": {StringValue: &kind}, deviceattribute.StandardDeviceAttributePCIBusID: {StringValue: &address},
			},
		})
	}
	return s
}

func TestDevices(t *testing.T) {
	const ofKind = `device.driver == "sriov.example.com" && device.attributes["sriov.example.com"].kind == "vf"`
	tainted := func(effect resourcev1.DeviceTaintEffect) resourcev1.ResourceSlice {
		s := slice("a", 1, "vf", "vf")
		s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "k", Effect: effect}}
		return s
	}
	ofAll := slice("a", 1, "vf")
	ofAll.Spec.NodeName, ofAll.Spec.AllNodes = nil, new(true)
	for name, c := range map[string]struct {
		selectors []string
		slices    []resourcev1.ResourceSlice
		want      map[string]int64
	}{
		"those that match, by node":        {[]string{ofKind}, []resourcev1.ResourceSlice{slice("a", 1, "vf", "pf", "vf"), slice("b", 1, "vf")}, map[string]int64{"a": 2, "b": 1}},
		"without a selector":               {nil, []resourcev1.ResourceSlice{slice("a", 1, "vf", "pf")}, map[string]int64{"a": 2}},
		"all selectors":                    {[]string{ofKind, "false"}, []resourcev1.ResourceSlice{slice("a", 1, "vf")}, map[string]int64{}},
		"a selector that fails":            {[]string{`device.attributes["other.example.com"].kind == "vf"`}, []resourcev1.ResourceSlice{slice("a", 1, "vf")}, map[string]int64{}},
		"a selector that does not compile": {[]string{"device."}, []resourcev1.ResourceSlice{slice("a", 1, "vf")}, nil},
		"the newest generation of a pool":  {[]string{ofKind}, []resourcev1.ResourceSlice{slice("a", 1, "vf", "vf"), slice("a", 2, "vf")}, map[string]int64{"a": 1}},
		"a tainted device":                 {[]string{ofKind}, []resourcev1.ResourceSlice{tainted(resourcev1.DeviceTaintEffectNoSchedule)}, map[string]int64{"a": 1}},
		"a taint without effect":           {[]string{ofKind}, []resourcev1.ResourceSlice{tainted(resourcev1.DeviceTaintEffectNone)}, map[string]int64{"a": 2}},
		"devices of no single node":        {[]string{ofKind}, []resourcev1.ResourceSlice{ofAll}, map[string]int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			k := class("c", vf, 0, c.selectors...)
			if diff := cmp.Diff(c.want, Devices(t.Context(), &k, c.slices)); diff != "" {
				t.Errorf("Devices() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdvertise(t *testing.T) {
	node := func(name, quantity string) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if quantity != "" {
			n.Status.Allocatable = corev1.ResourceList{vf: resource.MustParse(quantity)}
		}
		return n
	}
	nodes := []corev1.Node{node("plugin", "4"), node("driver", ""), node("dead-plugin", "0"), node("neither", "")}
	if given := Advertise(nodes, vf, map[string]int64{"plugin": 2, "driver": 2, "dead-plugin": 2}); !slices.Equal(given, []string{"driver", "dead-plugin"}) {
		t.Errorf("a driver gives it to %q", given)
	}
	want := map[string]int64{"plugin": 4, "driver": 2, "dead-plugin": 2, "neither": 0}
	for _, n := range nodes {
		if q := n.Status.Allocatable[vf]; q.Value() != want[n.Name] {
			t.Errorf("node %s has %d, want %d", n.Name, q.Value(), want[n.Name])
		}
	}
	if given := Advertise(nodes, vf, nil); given != nil {
		t.Errorf("a driver without devices gives some to %q", given)
	}
}

func TestAddress(t *testing.T) {
	result := func(request, device string) resourcev1.DeviceRequestAllocationResult {
		return resourcev1.DeviceRequestAllocationResult{Request: request, Driver: "sriov.example.com", Pool: "a", Device: device}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "1"}, Status: corev1.PodStatus{
		ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "c", RequestMappings: []corev1.ContainerExtendedResourceRequest{
			{ContainerName: "agent", ResourceName: vf, RequestName: "r0"}, {ContainerName: "agent", ResourceName: "example.com/gpu", RequestName: "r1"},
		}},
	}}
	for name, c := range map[string]struct {
		owner   string
		results []resourcev1.DeviceRequestAllocationResult
		want    string
	}{
		"of two resources":        {"1", []resourcev1.DeviceRequestAllocationResult{result("r1", "0000-d8-02-0"), result("r0", "0000-d8-02-1")}, "0000:d8:02.1"},
		"the claim of another":    {"2", []resourcev1.DeviceRequestAllocationResult{result("r0", "0000-d8-02-1")}, ""},
		"two devices":             {"1", []resourcev1.DeviceRequestAllocationResult{result("r0", "0000-d8-02-0"), result("r0", "0000-d8-02-1")}, ""},
		"an unpublished device":   {"1", []resourcev1.DeviceRequestAllocationResult{result("r0", "0000-d8-02-7")}, ""},
		"none of that resource's": {"1", []resourcev1.DeviceRequestAllocationResult{result("r1", "0000-d8-02-0")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			owner := pod.DeepCopy()
			owner.UID = "1"
			claim := &resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{
				Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: c.results}},
			}}
			if c.owner != "1" {
				owner.UID = "2"
			}
			claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("Pod"))}
			if got := Address(pod, vf, claim, []resourcev1.ResourceSlice{slice("a", 1, "vf", "vf")}); got != c.want {
				t.Errorf("Address() = %q, want %q", got, c.want)
			}
		})
	}
	if got := Address(pod, vf, &resourcev1.ResourceClaim{}, nil); got != "" {
		t.Errorf("a claim without an allocation has %q", got)
	}
}
