package cni

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

// Attributes of devices in ResourceSlices that Multus reads.
const (
	attributeDeviceID     = "k8s.cni.cncf.io/deviceID"
	attributeResourceName = "k8s.cni.cncf.io/resourceName"
)

var (
	claimResource = resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	sliceResource = resourcev1.SchemeGroupVersion.WithResource("resourceslices")
)

// addClaimed adds the devices of the pod's claim for extended resources, as Multus does: the driver must publish an ID for the
// device and the name of the resource that the pod requested.
func (k kube) addClaimed(ctx context.Context, object *unstructured.Unstructured, free devices) error {
	var pod corev1.Pod
	if err := convert(object, &pod); err != nil {
		return err
	}
	status := pod.Status.ExtendedResourceClaimStatus
	if status == nil {
		return nil
	}
	found, err := k.client.Resource(claimResource).Namespace(pod.Namespace).Get(ctx, status.ResourceClaimName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("getting ResourceClaim %s: %w", status.ResourceClaimName, err)
	}
	var claim resourcev1.ResourceClaim
	if err := convert(found, &claim); err != nil {
		return err
	}
	if claim.Status.Allocation == nil {
		return fmt.Errorf("claim %s has no device allocation", claim.Name)
	}
	for _, m := range status.RequestMappings {
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Request != m.RequestName {
				continue
			}
			id, name, err := k.published(ctx, pod.Spec.NodeName, r)
			if err != nil {
				return err
			}
			if name != m.ResourceName {
				return fmt.Errorf("device %s: %s is %q but extended resource mapping for request %q is %q", r.Device, attributeResourceName, name, m.RequestName, m.ResourceName)
			}
			free[name] = append(free[name], id)
		}
	}
	return nil
}

// published returns the ID and the resource of an allocated device.
func (k kube) published(ctx context.Context, node string, r resourcev1.DeviceRequestAllocationResult) (id, name string, err error) {
	selector := fields.Set{resourcev1.ResourceSliceSelectorNodeName: node, resourcev1.ResourceSliceSelectorDriver: r.Driver}.String()
	list, err := k.client.Resource(sliceResource).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return "", "", fmt.Errorf("listing ResourceSlices of %s: %w", node, err)
	}
	for i := range list.Items {
		var slice resourcev1.ResourceSlice
		if err := convert(&list.Items[i], &slice); err != nil {
			return "", "", err
		}
		for _, d := range slice.Spec.Devices {
			a, b := d.Attributes[attributeDeviceID].StringValue, d.Attributes[attributeResourceName].StringValue
			if slice.Spec.Pool.Name == r.Pool && d.Name == r.Device && a != nil && b != nil {
				return *a, *b, nil
			}
		}
	}
	return "", "", fmt.Errorf("device %s not found for claim resource %s/%s in any matching resource slice", r.Device, r.Driver, r.Pool)
}

func convert(object *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}
