//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"hash/fnv"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/test/localcluster"
)

var (
	poolKind         = schema.GroupVersionKind{Group: "machineconfiguration.openshift.io", Version: "v1", Kind: "MachineConfigPool"}
	machineKind      = schema.GroupVersionKind{Group: "machineconfiguration.openshift.io", Version: "v1", Kind: "MachineConfig"}
	profileKind      = schema.GroupVersionKind{Group: "performance.openshift.io", Version: "v2", Kind: "PerformanceProfile"}
	groupKind        = schema.GroupVersionKind{Group: "operators.coreos.com", Version: "v1", Kind: "OperatorGroup"}
	subscriptionKind = schema.GroupVersionKind{Group: "operators.coreos.com", Version: "v1alpha1", Kind: "Subscription"}
)

const (
	// role is the label of pools, and of the MachineConfigs for them.
	role = "machineconfiguration.openshift.io/role"
	// Annotations of nodes by the Machine Config Operator.
	currentConfig, desiredConfig, configState = "machineconfiguration.openshift.io/currentConfig", "machineconfiguration.openshift.io/desiredConfig",
		"machineconfiguration.openshift.io/state"
	// degradedAfter is a sixtieth of the time after which the Machine Config Operator reports a node whose drain or uncordon fails.
	degradedAfter = 10 * time.Second
)

// startOpenShift installs the kinds of OpenShift, gives the nodes the role worker, and starts the stand-ins of the Operator Lifecycle Manager
// and of the Machine Config Operator.
func (w *workers) startOpenShift(ctx context.Context) {
	GinkgoHelper()
	for _, command := range []string{
		"kubectl apply -f " + absolute(filepath.Join(tutorials, "openshift.yaml")),
		"kubectl wait --for=condition=Established --timeout=1m -f " + absolute(filepath.Join(tutorials, "openshift.yaml")),
		"kubectl label node worker-1 worker-2 node-role.kubernetes.io/worker=",
	} {
		out, err := w.shell(ctx, command)
		Expect(err).NotTo(HaveOccurred(), out)
	}
	for _, name := range names { // OpenShift contains Multus.
		Expect(localcluster.RestoreMultinet(ctx, w.options, name)).To(Succeed())
	}
	config, err := localcluster.RESTConfig(w.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:openshift-machine-config-operator:machine-config-controller",
		Groups:   []string{"system:serviceaccounts", "system:masters"},
	}
	machines, err := client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	w.operate(ctx, "OLM", w.subscribe)
	w.operate(ctx, "the MCO", func(ctx context.Context) error { return w.rollOut(ctx, machines) })
}

// subscribe installs the SR-IOV operator of a subscription: its kinds, its list of supported NICs, and the DaemonSets that read the list.
func (w *workers) subscribe(ctx context.Context) error {
	const namespace = "openshift-sriov-network-operator"
	subscriptions, err := w.objects(ctx, subscriptionKind, namespace)
	if err != nil {
		return err
	}
	groups, err := w.objects(ctx, groupKind, namespace)
	if err != nil {
		return err
	}
	targets := func(o unstructured.Unstructured) bool {
		list, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "targetNamespaces")
		return slices.Equal(list, []string{namespace})
	}
	wanted := map[string]string{"channel": "stable", "name": "sriov-network-operator", "source": "redhat-operators", "sourceNamespace": "openshift-marketplace"}
	complete := func(o unstructured.Unstructured) bool {
		spec, _, _ := unstructured.NestedStringMap(o.Object, "spec")
		return fmt.Sprint(spec) == fmt.Sprint(wanted)
	}
	if len(groups) != 1 || !targets(groups[0]) || !slices.ContainsFunc(subscriptions, complete) {
		return nil
	}
	list := &corev1.ConfigMap{}
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "supported-nic-ids"}, list); !apierrors.IsNotFound(err) {
		return err
	}
	out, err := w.shell(ctx, fmt.Sprintf("sleep 10 && kubectl apply -f %s -f %s && kubectl -n %s create configmap supported-nic-ids --from-literal='Intel_i40e_XXV710=8086 158a 154c'",
		filepath.Join(w.chart, "crds"), absolute(filepath.Join(tutorials, "sriov-daemonsets.yaml")), namespace))
	if err != nil {
		return fmt.Errorf("installing the operator: %w: %s", err, out)
	}
	return nil
}

// rollOut brings the nodes of each pool to the pool's configuration, one after the other, as the Machine Config Operator does.
func (w *workers) rollOut(ctx context.Context, machines client.Client) error {
	pools, err := w.objects(ctx, poolKind, "")
	if err != nil {
		return err
	}
	for _, pool := range pools {
		spec := struct {
			MachineConfigSelector, NodeSelector metav1.LabelSelector
			Paused                              bool
		}{}
		if err := convert(pool.Object["spec"], &spec); err != nil {
			return err
		}
		rendered, kubelet, err := w.render(ctx, pool, spec.MachineConfigSelector)
		if err != nil {
			return err
		}
		nodes, err := w.selected(ctx, spec.NodeSelector.MatchLabels)
		if err != nil || spec.Paused {
			return err
		}
		for _, node := range nodes {
			if node.Annotations[currentConfig] == rendered {
				continue
			}
			if err := w.say(ctx, &pool, rendered, "False", "True", "False"); err != nil {
				return err
			}
			if err := w.update(ctx, machines, &pool, node.Name, rendered, kubelet); err != nil {
				return err
			}
		}
		if err := w.say(ctx, &pool, rendered, "True", "False", "False"); err != nil {
			return err
		}
	}
	return nil
}

// render returns the name of the pool's configuration, and the fields of the kubelet of its performance profile.
func (w *workers) render(ctx context.Context, pool unstructured.Unstructured, selector metav1.LabelSelector) (string, map[string]any, error) {
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return "", nil, err
	}
	configs, err := w.objects(ctx, machineKind, "")
	if err != nil {
		return "", nil, err
	}
	sum := fnv.New32()
	for _, c := range configs {
		if parsed.Matches(labels.Set(c.GetLabels())) {
			fmt.Fprint(sum, c.GetName(), c.GetGeneration(), " ")
		}
	}
	profiles, err := w.objects(ctx, profileKind, "")
	if err != nil {
		return "", nil, err
	}
	var kubelet map[string]any
	for _, p := range profiles {
		nodes, _, err := unstructured.NestedStringMap(p.Object, "spec", "nodeSelector")
		if err != nil {
			return "", nil, err
		}
		// The profile's KubeletConfig has the label of the role that the node selector names.
		if _, own := nodes["node-role.kubernetes.io/"+pool.GetLabels()[role]]; !own {
			continue
		}
		policy, _, err := unstructured.NestedString(p.Object, "spec", "numa", "topologyPolicy")
		if err != nil {
			return "", nil, err
		}
		kubelet = map[string]any{"cpuManagerPolicy": "static", "topologyManagerPolicy": policy}
		fmt.Fprint(sum, p.GetName(), p.GetGeneration())
	}
	return fmt.Sprintf("rendered-%s-%08x", pool.GetName(), sum.Sum32()), kubelet, nil
}

// say writes the status of a pool.
func (w *workers) say(ctx context.Context, pool *unstructured.Unstructured, rendered, updated, updating, degraded string) error {
	return merge(ctx, w.client, pool, `{"status":{"configuration":{"name":%q},"conditions":[
		{"type":"Updated","status":%q},{"type":"Updating","status":%q},{"type":"Degraded","status":%q}]}}`, rendered, updated, updating, degraded)
}

// update drains, configures, reboots and uncordons a node. It repeats the request to uncordon the node until the API server accepts it.
func (w *workers) update(ctx context.Context, machines client.Client, pool *unstructured.Unstructured, name, rendered string, kubelet map[string]any) error {
	node := &corev1.Node{}
	if err := w.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	boot := node.Status.NodeInfo.BootID
	if err := merge(ctx, machines, node, `{"metadata":{"annotations":{%q:%q,%q:"Working"}}}`, desiredConfig, rendered, configState); err != nil {
		return err
	}
	if err := w.drain(ctx, name); err != nil {
		return err
	}
	if err := localcluster.KillKubelet(ctx, w.options, name); err != nil {
		return err
	}
	if kubelet != nil {
		if err := localcluster.RunOn(ctx, w.options, name, exec.CommandContext(ctx, "/bin/rm", "-f", "/var/lib/kubelet/cpu_manager_state")); err != nil {
			return err
		}
		if err := localcluster.ConfigureKubelet(ctx, w.options, name, kubelet); err != nil {
			return err
		}
	}
	if err := localcluster.Upgrade(ctx, w.options, name, "Red Hat Enterprise Linux CoreOS"); err != nil {
		return err
	}
	for begin, degraded := time.Now(), false; ; time.Sleep(500 * time.Millisecond) {
		if err := w.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if node.Status.NodeInfo.BootID == boot || !ready {
			continue
		}
		err := merge(ctx, machines, node, `{"spec":{"unschedulable":null}}`)
		if err == nil {
			return merge(ctx, machines, node, `{"metadata":{"annotations":{%q:%q,%q:"Done"}}}`, currentConfig, rendered, configState)
		}
		if !strings.Contains(err.Error(), "is not verified, so it stays cordoned") {
			return err
		}
		if !degraded && time.Since(begin) > degradedAfter {
			degraded = true
			if err := w.say(ctx, pool, rendered, "False", "True", "True"); err != nil {
				return err
			}
		}
	}
}
