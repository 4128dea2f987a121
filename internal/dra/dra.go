// Package dra reads how Dynamic Resource Allocation gives devices to pods with an extended resource: by
// a DeviceClass, the ResourceSlices of nodes, and the scheduler's ResourceClaim of each pod.
package dra

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
)

// Class returns an extended resource's class, or nil: as the scheduler, the newest, then by name.
func Class(classes []resourcev1.DeviceClass, name corev1.ResourceName) *resourcev1.DeviceClass {
	var found *resourcev1.DeviceClass
	for i := range classes {
		c := &classes[i]
		explicit := c.Spec.ExtendedResourceName != nil && *c.Spec.ExtendedResourceName == string(name)
		if !explicit && resourcev1.ResourceDeviceClassPrefix+c.Name != string(name) {
			continue
		}
		if found == nil || cmp.Or(found.CreationTimestamp.Compare(c.CreationTimestamp.Time), strings.Compare(c.Name, found.Name)) < 0 {
			found = c
		}
	}
	return found
}

// Devices counts the devices of a class on each node: in slices of single nodes, matching the
// class's selectors, without taint. A device does not match a selector that fails for it.
func Devices(ctx context.Context, class *resourcev1.DeviceClass, all []resourcev1.ResourceSlice) map[string]int64 {
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
	var selectors []cel.CompilationResult
	for _, s := range class.Spec.Selectors {
		if s.CEL == nil {
			return nil
		}
		compiled := compiler.CompileCELExpression(s.CEL.Expression, cel.Options{DisableCostEstimation: true})
		if compiled.Error != nil {
			return nil
		}
		selectors = append(selectors, compiled)
	}
	count := map[string]int64{}
	for _, s := range current(all) {
		for _, d := range s.Spec.Devices {
			device := cel.Device{Driver: s.Spec.Driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity}
			unfit := slices.ContainsFunc(selectors, func(c cel.CompilationResult) bool {
				matches, _, err := c.DeviceMatches(ctx, device)
				return err != nil || !matches
			})
			if !unfit && !slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool { return t.Effect != resourcev1.DeviceTaintEffectNone }) {
				count[*s.Spec.NodeName]++
			}
		}
	}
	return count
}

// current returns the slices of single nodes of their pool's newest generation.
func current(all []resourcev1.ResourceSlice) []*resourcev1.ResourceSlice {
	type pool struct{ driver, name string }
	newest := map[pool]int64{}
	for _, s := range all {
		p := pool{s.Spec.Driver, s.Spec.Pool.Name}
		newest[p] = max(newest[p], s.Spec.Pool.Generation)
	}
	var found []*resourcev1.ResourceSlice
	for i := range all {
		s := &all[i]
		if s.Spec.NodeName != nil && s.Spec.Pool.Generation == newest[pool{s.Spec.Driver, s.Spec.Pool.Name}] {
			found = append(found, s)
		}
	}
	return found
}

// Advertise gives nodes that lack a resource what a driver provides, and returns their names.
func Advertise(nodes []corev1.Node, name corev1.ResourceName, count map[string]int64) (given []string) {
	for i := range nodes {
		n := &nodes[i]
		if q := n.Status.Allocatable[name]; q.Sign() > 0 || count[n.Name] == 0 {
			continue
		}
		for _, list := range []*corev1.ResourceList{&n.Status.Capacity, &n.Status.Allocatable} {
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = *resource.NewQuantity(count[n.Name], resource.DecimalSI)
		}
		given = append(given, n.Name)
	}
	return given
}

// Address returns the PCI address of the only device of an extended resource in a pod's claim, as
// the driver published it; empty for another pod's claim, other numbers, or no address.
func Address(pod *corev1.Pod, name corev1.ResourceName, claim *resourcev1.ResourceClaim, all []resourcev1.ResourceSlice) string {
	status := pod.Status.ExtendedResourceClaimStatus
	if status == nil || !metav1.IsControlledBy(claim, pod) || claim.Status.Allocation == nil {
		return ""
	}
	var addresses []string
	for _, m := range status.RequestMappings {
		if m.ResourceName != string(name) {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Request == m.RequestName {
				addresses = append(addresses, address(r, all))
			}
		}
	}
	if len(addresses) != 1 {
		return ""
	}
	return addresses[0]
}

func address(r resourcev1.DeviceRequestAllocationResult, all []resourcev1.ResourceSlice) string {
	for _, s := range current(all) {
		if s.Spec.Driver != r.Driver || s.Spec.Pool.Name != r.Pool {
			continue
		}
		for _, d := range s.Spec.Devices {
			if a := d.Attributes[deviceattribute.StandardDeviceAttributePCIBusID]; d.Name == r.Device && a.StringValue != nil {
				return *a.StringValue
			}
		}
	}
	return ""
}
