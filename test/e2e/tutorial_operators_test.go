//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

// operate calls an operator's pass again and again until the spec ends. Errors are written to the log: an operator tries again.
func (w *workers) operate(ctx context.Context, name string, pass func(context.Context) error) {
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		last := ""
		for running.Err() == nil {
			if err := pass(running); err != nil && running.Err() == nil && err.Error() != last {
				last = err.Error()
				GinkgoWriter.Printf("%s: %s\n", name, last)
			}
			select {
			case <-running.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	DeferCleanup(func() { end(); <-ended })
}

// merge patches an object.
func merge(ctx context.Context, c client.Client, o client.Object, data string, values ...any) error {
	return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, data, values...)))
}

// kind returns an object of a kind with a name.
func kind(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// objects lists the objects of a kind; none if the API server does not know the kind yet.
func (w *workers) objects(ctx context.Context, k schema.GroupVersionKind, namespace string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(k)
	err := w.client.List(ctx, list, client.InNamespace(namespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		err = nil
	}
	return list.Items, err
}

// selected returns the nodes with labels.
func (w *workers) selected(ctx context.Context, selector map[string]string) ([]corev1.Node, error) {
	list := &corev1.NodeList{}
	err := w.client.List(ctx, list, client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(selector)})
	return list.Items, err
}

var (
	sriovGroup = func(kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: foreign.SriovNetworkNodeStateKind.Group, Version: "v1", Kind: kind}
	}
	workerRole = map[string]string{"node-role.kubernetes.io/worker": ""}
)

// The PF of each node, as the pages name it.
const pfName, pfVendor, pfDevice, pfVFs = "enp59s0f0", "1924", "0b03", 8

// startSriovOperator starts the stand-in of sriov-network-operator v1.6.0 in a namespace: when the namespace has an operator's
// configuration, nodes with the role worker get a state, which names the PF only if the list of supported NICs has it. A policy for the PF
// drains one node after the other, creates the VFs, starts the real device plugin of the local cluster, and uncordons the node, in the
// order of the operator's writes (see test/integration/operators_test.go).
func (w *workers) startSriovOperator(ctx context.Context, namespace string) {
	w.operate(ctx, "the SR-IOV operator", func(ctx context.Context) error {
		configs, err := w.objects(ctx, sriovGroup("SriovOperatorConfig"), namespace)
		if err != nil || !slices.ContainsFunc(configs, func(o unstructured.Unstructured) bool { return o.GetName() == "default" }) {
			return err
		}
		supported := &corev1.ConfigMap{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "supported-nic-ids"}, supported); err != nil {
			return err
		}
		nics := []any{}
		for _, ids := range supported.Data {
			if strings.HasPrefix(ids, pfVendor+" "+pfDevice+" ") {
				nics = append(nics, map[string]any{"name": pfName, "vendor": pfVendor, "deviceID": pfDevice, "totalvfs": pfVFs})
			}
		}
		workers, err := w.selected(ctx, workerRole)
		if err != nil {
			return err
		}
		for _, node := range workers {
			if err := w.ensureState(ctx, namespace, node.Name, nics); err != nil {
				return err
			}
		}
		policies, err := w.objects(ctx, sriovGroup("SriovNetworkNodePolicy"), namespace)
		if err != nil {
			return err
		}
		for _, policy := range policies {
			if err := w.applyPolicy(ctx, policy); err != nil {
				return err
			}
		}
		return nil
	})
}

// ensureState creates the state of a node, or updates the NICs that it names.
func (w *workers) ensureState(ctx context.Context, namespace, node string, nics []any) error {
	state := kind(foreign.SriovNetworkNodeStateKind, namespace, node)
	err := w.client.Get(ctx, client.ObjectKeyFromObject(state), state)
	if apierrors.IsNotFound(err) {
		state.SetAnnotations(map[string]string{foreign.AnnotationCurrentState: foreign.SriovIdle, foreign.AnnotationDesiredState: foreign.SriovIdle})
		state.Object["status"] = map[string]any{"syncStatus": foreign.SriovSucceeded, "interfaces": nics}
		return w.client.Create(ctx, state)
	}
	known, _, failed := unstructured.NestedSlice(state.Object, "status", "interfaces")
	if err != nil || failed != nil || len(known) >= len(nics) {
		return err
	}
	if err := unstructured.SetNestedSlice(state.Object, nics, "status", "interfaces"); err != nil {
		return err
	}
	return w.client.Update(ctx, state)
}

// applyPolicy configures the nodes of a policy, one after the other.
func (w *workers) applyPolicy(ctx context.Context, policy unstructured.Unstructured) error {
	spec := struct {
		NodeSelector map[string]string
		NICSelector  struct {
			Vendor, DeviceID string
			PFNames          []string
		} `json:"nicSelector"`
		ResourceName string
		NumVfs       int
		DeviceType   string
	}{}
	if err := convert(policy.Object["spec"], &spec); err != nil {
		return err
	}
	if "openshift.io/"+spec.ResourceName != localcluster.ResourceX2 || spec.NumVfs != 4 || spec.DeviceType != "netdevice" {
		return fmt.Errorf("the nodes have no VFs for policy %s", policy.GetName())
	}
	nodes, err := w.selected(ctx, spec.NodeSelector)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		state := kind(foreign.SriovNetworkNodeStateKind, policy.GetNamespace(), node.Name)
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(state), state); err != nil {
			return err
		}
		parsed := foreign.SriovNetworkNodeState{}
		if err := convert(state.Object, &parsed); err != nil {
			return err
		}
		pf := slices.IndexFunc(parsed.Status.Interfaces, func(i foreign.SriovInterface) bool {
			return i.Vendor == spec.NICSelector.Vendor && i.DeviceID == spec.NICSelector.DeviceID && slices.Contains(spec.NICSelector.PFNames, i.Name)
		})
		if pf < 0 || parsed.Status.Interfaces[pf].NumVFs == spec.NumVfs {
			continue
		}
		if err := w.createVFs(ctx, &node, state, spec.ResourceName, spec.NumVfs); err != nil {
			return err
		}
	}
	return nil
}

// createVFs drains a node, creates its VFs, and uncordons it.
func (w *workers) createVFs(ctx context.Context, node *corev1.Node, state *unstructured.Unstructured, resource string, vfs int) error {
	annotate := func(o client.Object, key, value string) func() error {
		return func() error { return merge(ctx, w.client, o, `{"metadata":{"annotations":{%q:%q}}}`, key, value) }
	}
	patch := func(o client.Object, data string, values ...any) func() error {
		return func() error { return merge(ctx, w.client, o, data, values...) }
	}
	for _, step := range []func() error{
		patch(state, `{"spec":{"interfaces":[{"name":%q,"numVfs":%d,"vfGroups":[{"resourceName":%q}]}]},"status":{"syncStatus":"InProgress"}}`, pfName, vfs, resource),
		annotate(node, foreign.AnnotationNodeState, "Drain_Required"),
		annotate(state, foreign.AnnotationDesiredState, "Drain_Required"),
		annotate(state, foreign.AnnotationCurrentState, "Draining"),
		func() error { return w.drain(ctx, node.Name) },
		annotate(state, foreign.AnnotationCurrentState, "DrainComplete"),
		func() error { return localcluster.StartDevicePlugin(ctx, w.options, node.Name) },
		annotate(node, foreign.AnnotationNodeState, foreign.SriovIdle),
		annotate(state, foreign.AnnotationDesiredState, foreign.SriovIdle),
		patch(state, `{"status":{"syncStatus":"Succeeded","interfaces":[{"name":%q,"vendor":%q,"deviceID":%q,"numVfs":%d,"totalvfs":%d}]}}`,
			pfName, pfVendor, pfDevice, vfs, pfVFs),
		patch(node, `{"spec":{"unschedulable":null}}`),
		annotate(state, foreign.AnnotationCurrentState, foreign.SriovIdle),
	} {
		if err := step(); err != nil {
			return fmt.Errorf("creating the VFs of %s: %w", node.Name, err)
		}
	}
	return nil
}

// drain cordons a node and evicts its pods.
func (w *workers) drain(ctx context.Context, node string) error {
	out, err := w.shell(ctx, "kubectl drain "+node+" --ignore-daemonsets --delete-emptydir-data --force --timeout=2m")
	if err != nil {
		return fmt.Errorf("draining %s: %w: %s", node, err, out)
	}
	return nil
}

// convert decodes a part of an object.
func convert(from, into any) error {
	content, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}
