//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

// The Module, and the label that Kernel Module Management (KMM 2.6) sets on nodes where the Module is loaded. The DaemonSet of the
// Module's device plugin selects it.
const (
	moduleName  = "sfc"
	moduleReady = "kmm.node.kubernetes.io/kube-system." + moduleName + ".ready"
	moduleCRD   = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: modules.kmm.sigs.x-k8s.io},
  spec: {group: kmm.sigs.x-k8s.io, scope: Namespaced, names: {plural: modules, singular: module, kind: Module},
    versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
`
	module = `{apiVersion: kmm.sigs.x-k8s.io/v1beta1, kind: Module, metadata: {name: ` + moduleName + `, namespace: kube-system},
  spec: {selector: {kubernetes.io/os: linux}}}
`
)

// moduleManager follows KMM 2.6 in the order of its writes: a node that is not a target, because of a taint that the Module does not
// tolerate, loses the label and then the module; after another boot, the label goes until the module is loaded again.
type moduleManager struct {
	boots map[string]string
	// unloads counts the targets that stopped to be one, and loads the modules that were loaded.
	unloads, loads atomic.Int32
}

// reconcile is one pass over a node.
func (m *moduleManager) reconcile(ctx context.Context, name string) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(foreign.ModuleKind)
	if err := kube.Get(ctx, types.NamespacedName{Namespace: "kube-system", Name: moduleName}, object); err != nil {
		return err
	}
	of, err := foreign.Decode[foreign.Module](object.Object)
	if err != nil {
		return err
	}
	n := &corev1.Node{}
	if err := kube.Get(ctx, types.NamespacedName{Name: name}, n); err != nil {
		return err
	}
	target := !slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool {
		// The tolerations of every Module are for pressure, and its worker pods cannot run on a node that is not reachable.
		return (taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute) &&
			!slices.ContainsFunc(of.Spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), &taint, false) })
	})
	_, ready := n.Labels[moduleReady]
	boot := n.Status.NodeInfo.BootID
	loaded := target && m.boots[name] == boot
	switch {
	case ready && !loaded:
		if !target && readiness(n) == corev1.ConditionTrue {
			m.unloads.Add(1)
		}
		delete(m.boots, name)
		return kube.Patch(ctx, n, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, moduleReady)))
	case !ready && target:
		m.loads.Add(1)
		m.boots[name] = boot
		return kube.Patch(ctx, n, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:""}}}`, moduleReady)))
	}
	return nil
}

// runModuleManager creates the Module, gives the DaemonSet of the device plugin to its manager, and runs that until the spec ends.
func runModuleManager(ctx context.Context, plugin *appsv1.DaemonSet) *moduleManager {
	GinkgoHelper()
	for i, text := range []string{moduleCRD, module} {
		file := filepath.Join(GinkgoT().TempDir(), fmt.Sprintf("module-%d.yaml", i))
		Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
		Eventually(kubectl).WithArguments(ctx, GinkgoWriter, "apply", "-f", file).WithTimeout(soon).Should(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(kubectl(ctx, GinkgoWriter, "delete", "-f", file)).To(Succeed()) })
	}
	patch := func(ctx context.Context, selector string) {
		GinkgoHelper()
		data := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"nodeSelector":%s}}}}`, selector)
		Expect(kube.Patch(ctx, plugin, client.RawPatch(types.MergePatchType, data))).To(Succeed())
	}
	m, running := &moduleManager{boots: map[string]string{}}, make(chan struct{})
	// The label is there before the DaemonSet needs it.
	for _, node := range []string{"node-a", "node-b"} {
		Expect(m.reconcile(ctx, node)).To(Succeed())
	}
	patch(ctx, fmt.Sprintf(`{%q:""}`, moduleReady))
	until, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(running)
		for until.Err() == nil {
			for _, node := range []string{"node-a", "node-b"} {
				_ = m.reconcile(until, node) // After an error, the next pass sees what there is.
			}
			select {
			case <-until.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	DeferCleanup(func(ctx context.Context) {
		stop()
		<-running
		patch(ctx, "null")
		labelNodes(ctx, moduleReady, nil)
	})
	return m
}

var _ = Describe("The lab with a device plugin in a DaemonSet", Label("lab"), func() {
	plugin := &appsv1.DaemonSet{}

	BeforeEach(func(ctx context.Context) {
		if !options.Lab {
			Skip("the nodes are no machines of their own; see make lab")
		}
		if err := kube.Get(ctx, types.NamespacedName{Namespace: "kube-system", Name: "labcomponents"}, plugin); err != nil {
			Skip("the device plugin is no DaemonSet: use the folder of lab-components (docs/internals/lab.md)")
		}
	})

	AfterEach(func(ctx context.Context) {
		if options.Lab {
			deleteGate(ctx, labGate())
		}
	})

	It("reboots under Kernel Module Management, simulated, with the recipe; without it, the gate says why it holds no node", func(ctx context.Context) {
		operator := runModuleManager(ctx, plugin)
		t := newTimeline()
		delay(ctx, longWire)
		DeferCleanup(endDelay)
		g := labGate()
		Expect(kube.Create(ctx, g)).To(Succeed())
		operational := func() string {
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
			for _, c := range g.Status.Conditions {
				if c.Type == v1alpha1.ConditionOperational {
					return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
				}
			}
			return ""
		}
		Eventually(operational).WithTimeout(soon).Should(And(HavePrefix("False DevicesWithheld"), ContainSubstring("Module kube-system/"+moduleName)))
		t.add("without the recipe: %s", operational())
		Consistently(published).WithArguments(ctx, "node-a").WithTimeout(5*time.Second).Should(Equal("- - -"), "no node is held")

		By("the recipe")
		Expect(kubectl(ctx, GinkgoWriter, "-n", "kube-system", "patch", "modules.kmm.sigs.x-k8s.io", moduleName, "--type=merge",
			"--patch-file", "../../config/samples/gates/kmm.yaml")).To(Succeed())
		first := eventuallyConcludes(ctx, "node-a", v1alpha1.VerificationVerified)
		t.add("node-a is verified")
		loads := operator.loads.Load()
		upgradeWith(ctx, t, localcluster.KernelNewer, func() { delay(ctx, longWire) })
		second := eventuallyConcludes(ctx, "node-a", v1alpha1.VerificationVerified)
		t.add("the gate releases it: %s", second.Status.Verified().Message)
		t.report("an upgrade under Kernel Module Management")
		Expect(second.Status.Accepted.Benchmark).NotTo(Equal(first.Status.Accepted.Benchmark))
		Expect(operator.unloads.Load()).To(BeZero(), "of the module, for a taint or a cordon")
		Expect(operator.loads.Load()).To(BeNumerically(">", loads), "of the module, after the boot")
		Expect(operational()).To(HavePrefix("True"))
		upgradeWith(ctx, t, localcluster.KernelStable, func() { delay(ctx, longWire) }) // as the other specs expect
	})
})
