package benchmark

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/dra"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

// +kubebuilder:rbac:groups=resource.k8s.io,resources=deviceclasses;resourceslices,verbs=list
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims,verbs=get

// observeDrivers looks for resources that a selected node does not advertise among the devices of Dynamic Resource Allocation.
// The nodes of o then have them allocatable, as if a device plugin advertised them.
func (r *Reconciler) observeDrivers(ctx context.Context, o *preflight.Observed) error {
	nodes := preflight.Matching(*o)
	matching := sets.New(nodes...)
	missing := slices.DeleteFunc(plan.Resources(o.Benchmark.Spec), func(name string) bool {
		return !slices.ContainsFunc(o.Nodes, func(n corev1.Node) bool {
			q := n.Status.Allocatable[corev1.ResourceName(name)]
			return q.Sign() == 0 && matching.Has(n.Name)
		})
	})
	kind := resourcev1.SchemeGroupVersion.WithKind("DeviceClass")
	if len(missing) == 0 || r.absent.known(kind, r.Clock.Now()) {
		return nil
	}
	classes := &resourcev1.DeviceClassList{}
	switch err := r.Live.List(ctx, classes); {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		r.absent.note(kind, r.Clock.Now())
		return nil
	case err != nil:
		return fmt.Errorf("listing device classes: %w", err)
	}
	var all []resourcev1.ResourceSlice
	for _, name := range missing {
		class := dra.Class(classes.Items, corev1.ResourceName(name))
		if class == nil {
			continue
		}
		if all == nil {
			var err error
			if all, err = r.resourceSlices(ctx, nodes...); err != nil {
				return err
			}
		}
		if dra.Advertise(o.Nodes, corev1.ResourceName(name), dra.Devices(ctx, class, all)) {
			o.Claimed = append(o.Claimed, name)
		}
	}
	return nil
}

// resourceSlices reads the devices that drivers of Dynamic Resource Allocation have on nodes; if there are more than fewNodes
// nodes, also those on other nodes.
func (r *Reconciler) resourceSlices(ctx context.Context, nodes ...string) ([]resourcev1.ResourceSlice, error) {
	var all []resourcev1.ResourceSlice
	for _, selector := range selectors(resourcev1.ResourceSliceSelectorNodeName, nodes) {
		err := controllers.Each(ctx, r.Live, func() client.ObjectList { return &resourcev1.ResourceSliceList{} }, func(o runtime.Object) error {
			all = append(all, *o.(*resourcev1.ResourceSlice))
			return nil
		}, selector)
		if err != nil {
			return nil, fmt.Errorf("listing resource slices: %w", err)
		}
	}
	return all, nil
}

// claimedDevice returns the PCI address of the device that the ResourceClaim of a pod of the attempt has for the variant's
// network; empty if the pod has ended or its device is not from a claim.
func (r *Reconciler) claimedDevice(ctx context.Context, w *world, p *corev1.Pod) (string, error) {
	network := w.activeRun().Variant.Network
	if p == nil || network == nil || p.Spec.NodeName == "" || p.Status.ExtendedResourceClaimStatus == nil || hasEnded(p) {
		return "", nil
	}
	claim, err := controllers.Get[resourcev1.ResourceClaim](ctx, r.Live, p.Namespace, p.Status.ExtendedResourceClaimStatus.ResourceClaimName)
	if err != nil || claim == nil {
		return "", err
	}
	all, err := r.resourceSlices(ctx, p.Spec.NodeName)
	if err != nil {
		return "", err
	}
	return dra.Address(p, corev1.ResourceName(network.ResourceName()), claim, all), nil
}
