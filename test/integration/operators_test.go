package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// merge patches an object.
func merge(ctx context.Context, c client.Client, o client.Object, data string, values ...any) error {
	return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, data, values...)))
}

// sriovOperator follows sriov-network-operator 249e200 through a change that needs a reboot, in the order of its writes.
type sriovOperator struct {
	// client has the rights of the operator's drain controller, and daemon those of the daemon on the node.
	client, daemon client.Client
	node           *corev1.Node
	pool, state    *unstructured.Unstructured
}

// annotate sets the annotation of an object; status is the sync status, if it is written, too.
func annotate(ctx context.Context, c client.Client, o client.Object, key, value string) {
	GinkgoHelper()
	Expect(merge(ctx, c, o, `{"metadata":{"annotations":{%q:%q}}}`, key, value)).To(Succeed())
}

const sriovState = "sriovnetwork.openshift.io/state"

// drain is what daemon and drain controller do before the reboot: annotate of daemon.go, tryDrainNode and handleNodeDrainOrReboot of
// drain_controller_helper.go, BeforeDrainNode of openshift.go, and DrainNode of drainer.go.
func (o *sriovOperator) drain(ctx context.Context) {
	GinkgoHelper()
	Expect(merge(ctx, o.daemon, o.state, `{"status":{"syncStatus":"InProgress"}}`)).To(Succeed())
	annotate(ctx, o.daemon, o.node, sriovState, "Reboot_Required")
	annotate(ctx, o.daemon, o.state, foreign.AnnotationDesiredState, "Reboot_Required")
	annotate(ctx, o.client, o.state, foreign.AnnotationCurrentState, "Draining")
	annotate(ctx, o.client, o.pool, sriovState, "Paused")
	Expect(merge(ctx, o.client, o.pool, `{"spec":{"paused":true}}`)).To(Succeed())
	Expect(merge(ctx, o.client, o.node, `{"spec":{"unschedulable":true}}`)).To(Succeed())
	annotate(ctx, o.client, o.state, foreign.AnnotationCurrentState, "DrainComplete")
}

// finish is what the daemon does after the reboot: apply of daemon.go.
func (o *sriovOperator) finish(ctx context.Context) {
	GinkgoHelper()
	annotate(ctx, o.daemon, o.node, sriovState, foreign.SriovIdle)
	annotate(ctx, o.daemon, o.state, foreign.AnnotationDesiredState, foreign.SriovIdle)
	Expect(merge(ctx, o.daemon, o.state, `{"status":{"syncStatus":"Succeeded"}}`)).To(Succeed())
}

// complete is one try of handleNodeIdleNodeStateDrainingOrCompleted: CompleteDrainNode uncordons the node, then AfterCompleteDrainNode
// unpauses the pool, and only then the state becomes Idle.
func (o *sriovOperator) complete(ctx context.Context) error {
	if err := merge(ctx, o.client, o.node, `{"spec":{"unschedulable":false}}`); err != nil {
		return fmt.Errorf("uncordoning: %w", err)
	}
	if err := merge(ctx, o.client, o.pool, `{"spec":{"paused":false}}`); err != nil {
		return fmt.Errorf("unpausing: %w", err)
	}
	annotate(ctx, o.client, o.pool, sriovState, foreign.SriovIdle)
	annotate(ctx, o.client, o.state, foreign.AnnotationCurrentState, foreign.SriovIdle)
	return nil
}

var _ = Describe("sriov-network-operator, simulated,", func() {
	DescribeTable("ends its drain under the admission policies, and the gate measures the node:", func(ctx SpecContext, taint bool) {
		installTools()
		installNodeKinds()
		w := NewGateWorld(ctx)
		idle := map[string]string{foreign.AnnotationCurrentState: foreign.SriovIdle, foreign.AnnotationDesiredState: foreign.SriovIdle}
		for _, name := range []string{w.A, w.B} {
			createNodeObject(ctx, foreign.SriovNetworkNodeStateKind, name, idle, map[string]any{"status": map[string]any{"syncStatus": foreign.SriovSucceeded}})
		}
		policies(ctx, w.Namespace)
		pool := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
			"metadata": map[string]any{"name": w.Namespace, "labels": map[string]any{GateLabel: w.Namespace}}, "spec": map[string]any{"paused": false},
		}}
		create(ctx, pool)
		state := &unstructured.Unstructured{}
		state.SetGroupVersionKind(foreign.SriovNetworkNodeStateKind)
		state.SetName(w.A)
		operator := &sriovOperator{
			client: as("system:serviceaccount:sriov-network-operator:sriov-network-operator"),
			daemon: as("system:serviceaccount:sriov-network-operator:sriov-network-config-daemon"),
			node:   &corev1.Node{}, pool: pool, state: state,
		}
		operator.node.Name = w.A
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Template.Spec.Pods = &v1alpha1.PodSettings{Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}}
			if !taint {
				s.Enforcement.Taint = nil
			}
		}))
		w.Expect(ctx, w.A, IsVerified)

		operator.drain(ctx)
		w.SlowNode(w.A) // It fails at first, so that the order of events does not depend on how fast it is measured.
		changed := make(chan struct{})
		saw := sync.OnceFunc(func() { close(changed) })
		follow(ctx, &v1alpha1.LatencyVerificationList{}, func(_ watch.EventType, o client.Object) {
			if s := o.(*v1alpha1.LatencyVerification).Status; s.State == v1alpha1.VerificationUnverified && s.Verified().Reason == v1alpha1.ReasonIdentityChanged {
				saw()
			}
		}, client.MatchingFields{"metadata.name": w.Verification(ctx, w.A).Name})
		w.Upgrade(ctx, w.A, "6.1.1")
		Eventually(changed).Should(BeClosed())
		// The gate creates a benchmark half a second after it has seen the change, and the drain keeps that from being accepted.
		Eventually(func() string { return w.Says(ctx, w.A) }).Should(MatchRegexp("^(Unverified IdentityChanged|Measuring Measuring): False false"))
		if taint {
			operator.finish(ctx)
			By("uncordoning a node that the taint holds back, and unpausing its own pool")
			Eventually(func() error { return operator.complete(ctx) }).Should(Succeed())
			w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
			w.SamplesFrom(func(*v1alpha1.LatencyBenchmark) int64 { return 10_000 })
			w.AskVerify(ctx, w.A)
			w.Expect(ctx, w.A, IsVerified)
			return
		}
		Consistently(func() bool { return apierrors.IsForbidden(operator.complete(ctx)) }, "1s").Should(BeTrue())
		operator.finish(ctx)
		By("measuring a node that only waits to be uncordoned")
		w.Expect(ctx, w.A, "Failed Fail: False false -")
		Expect(operator.complete(ctx)).To(MatchError(ContainSubstring("is not verified, so it stays cordoned")))
		w.SamplesFrom(func(*v1alpha1.LatencyBenchmark) int64 { return 10_000 })
		w.AskVerify(ctx, w.A)
		w.Expect(ctx, w.A, IsVerified)
		Eventually(func() error { return operator.complete(ctx) }).Should(Succeed())
	},
		Entry("with the taint, before it measures it", true),
		Entry("without the taint, when it passed", false),
	)
})

// moduleOperator follows Kernel Module Management 2.6: GetSchedulableNodesBySelector of node.go chooses the nodes of a Module, and a node
// that is not chosen any more gets an unload pod (prepareSchedulingData of module_reconciler.go, ProcessUnconfiguredModuleStatus of
// nmc_reconciler.go). The module is the driver of a NIC: without it, the node has no VF. The kubelet keeps the capacity.
type moduleOperator struct {
	module *unstructured.Unstructured
	nodes  []string
	// loaded are the nodes with the module, and unloaded counts how often it was removed.
	loaded   map[string]bool
	unloaded int
	// stop ends the operator.
	stop func()
}

// internal are the tolerations of every Module: InternalTolerations of helper.go.
var internal = []corev1.Toleration{
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// schedulable is IsNodeSchedulable of node.go.
func schedulable(n *corev1.Node, tolerations []corev1.Toleration) bool {
	return !slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool {
		return (taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute) &&
			!slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), &taint, false) })
	})
}

// reconcile is one pass over the nodes.
func (o *moduleOperator) reconcile(ctx context.Context) error {
	if err := k8s.Get(ctx, client.ObjectKeyFromObject(o.module), o.module); err != nil {
		return err
	}
	m, err := foreign.Decode[foreign.Module](o.module.Object)
	if err != nil {
		return err
	}
	for _, name := range o.nodes {
		n := &corev1.Node{}
		if err := k8s.Get(ctx, types.NamespacedName{Name: name}, n); err != nil {
			return err
		}
		cordonTaint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
		if n.Spec.Unschedulable { // The node lifecycle controller, which does not run here, adds the taint.
			n.Spec.Taints = append(n.Spec.Taints, cordonTaint)
		}
		target := labels.SelectorFromSet(m.Spec.Selector).Matches(labels.Set(n.Labels)) && schedulable(n, append(m.Spec.Tolerations, internal...))
		if target == o.loaded[name] {
			continue
		}
		if !target {
			o.unloaded++
		}
		o.loaded[name] = target
		devices := map[bool]string{true: "4", false: "0"}[target]
		data := fmt.Sprintf(`{"status":{"capacity":{"amd.com/vf":"4"},"allocatable":{"amd.com/vf":%q}}}`, devices)
		if err := k8s.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(data))); err != nil {
			return err
		}
	}
	return nil
}

// newModuleOperator creates a Module for the nodes of a world, and runs the operator until the spec ends.
func newModuleOperator(ctx SpecContext, w *World) *moduleOperator {
	GinkgoHelper()
	installKinds(nil, anyFields(foreign.ModuleKind, "modules", apiextensionsv1.NamespaceScoped))
	module := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"selector": map[string]any{GateLabel: w.Namespace}}}}
	module.SetGroupVersionKind(foreign.ModuleKind)
	module.SetNamespace(w.Namespace)
	module.SetName("sfc")
	Eventually(func() error { return client.IgnoreAlreadyExists(k8s.Create(ctx, module)) }).Should(Succeed())
	o := &moduleOperator{module: module, nodes: []string{w.A, w.B}, loaded: map[string]bool{}}
	Expect(o.reconcile(ctx)).To(Succeed())
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for running.Err() == nil {
			_ = o.reconcile(running) // A conflict or the end; the next pass sees what there is.
			select {
			case <-running.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	o.stop = func() { stop(); <-done }
	DeferCleanup(func(ctx SpecContext) {
		o.stop()
		Expect(k8s.Delete(ctx, module)).To(Succeed())
	})
	return o
}

// vfGate returns a gate whose template needs a VF, and makes the agents of the world report one.
func vfGate(ctx SpecContext, w *World) *GateBuilder {
	GinkgoHelper()
	installMultus()
	CreateNetwork(ctx, w.Namespace, "sf-vf", "amd.com/vf")
	g := MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
		s.Template.Spec.Network = MakeBenchmark(w.Namespace, "").VF("sf-vf", "amd.com/vf").Spec.Network
		s.Template.Spec.Placement.CPUs = 2
	})
	w.Kubelet.Agents(sriovAgents(&v1alpha1.LatencyBenchmark{Spec: g.Spec.Template.Benchmark()}))
	return g
}

var _ = Describe("Kernel Module Management, simulated,", func() {
	It("keeps its module while a gate with a taint waits for the Module's toleration, measures and upgrades", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		operator := newModuleOperator(ctx, w)
		w.Start()
		g := w.Gate(ctx, vfGate(ctx, w))
		Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(And(
			HavePrefix("False DevicesWithheld: spec.enforcement.taint: "), ContainSubstring("these do not: Module "+w.Namespace+"/sfc;")))
		Expect(GateSays(ctx, g, v1alpha1.ConditionReady)).To(HavePrefix("False"))
		Consistently(func() string { return w.Says(ctx, w.A) }, "1s").Should(Equal(": - - -"), "it must not begin to hold nodes back")
		code, output := kubectl(ctx, adminKubeconfig(w.Namespace), "patch", "modules.kmm.sigs.x-k8s.io", "sfc", "--type=merge", "--patch-file", filepath.Join(gateSamples, "kmm.yaml"))
		Expect(code).To(BeZero(), output)
		w.Advance(ctx, time.Minute, g)
		for _, name := range []string{w.A, w.B} {
			w.Expect(ctx, name, IsVerified)
		}
		w.Upgrade(ctx, w.A, "6.1.1")
		Eventually(func() int64 { return w.Verification(ctx, w.A).Status.Number }).Should(Equal(int64(2)))
		w.Expect(ctx, w.A, IsVerified)
		Expect(GateSays(ctx, g, v1alpha1.ConditionOperational)).To(HavePrefix("True"))
		operator.stop()
		Expect(operator.unloaded).To(BeZero())
	})

	It("keeps its module under a gate that holds nodes back by the label", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		operator := newModuleOperator(ctx, w)
		w.Start()
		w.Gate(ctx, vfGate(ctx, w).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.Taint = nil }))
		w.Expect(ctx, w.A, IsVerified)
		w.Upgrade(ctx, w.A, "6.1.1")
		Eventually(func() int64 { return w.Verification(ctx, w.A).Status.Number }).Should(Equal(int64(2)))
		w.Expect(ctx, w.A, IsVerified)
		operator.stop()
		Expect(operator.unloaded).To(BeZero())
	})
})

// machineConfigOperator follows openshift/machine-config-operator 7ff337a: the drain controller cordons the node for the daemon and, when
// the daemon asks for it after the boot, uncordons it. Until then the daemon asks every 10 s, and gives up after 10 minutes
// (completeUpdate of daemon.go), which makes the node Degraded.
type machineConfigOperator struct {
	client client.Client
	node   *corev1.Node
}

func (o *machineConfigOperator) cordon(ctx context.Context, to bool) error {
	return merge(ctx, o.client, o.node, `{"spec":{"unschedulable":%t}}`, to)
}

var _ = Describe("The Machine Config Operator, simulated,", func() {
	It("uncordons a node in time, because a gate whose template takes longer says so before it holds any", func(ctx SpecContext) {
		installTools()
		w := NewGateWorld(ctx)
		for _, name := range []string{w.A, w.B} {
			w.ChangeNode(ctx, name, func(n *corev1.Node) {
				n.Annotations = map[string]string{"machineconfiguration.openshift.io/currentConfig": "rendered-worker-1"}
			})
		}
		policies(ctx, w.Namespace)
		operator := &machineConfigOperator{client: as("system:serviceaccount:openshift-machine-config-operator:machine-config-controller"), node: &corev1.Node{}}
		operator.node.Name = w.A
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Template.Spec.Pods = &v1alpha1.PodSettings{Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}}
			s.Template.Spec.Workload.Duration.Duration = 2 * time.Minute
		}))
		Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(And(
			HavePrefix("False TemplateTooLong: spec.template: "), ContainSubstring("its runs take 12m"), ContainSubstring("Degraded")))
		Consistently(func() string { return w.Says(ctx, w.A) }, "1s").Should(Equal(": - - -"))
		Edit(ctx, g, func(g *v1alpha1.LatencyGate) { g.Spec.Template.Spec.Workload.Duration.Duration = time.Second })
		w.Expect(ctx, w.A, IsVerified)

		Expect(operator.cordon(ctx, true)).To(Succeed())
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.1.1")
		Eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(HeldBack))
		Expect(operator.cordon(ctx, false)).To(MatchError(ContainSubstring("is not verified, so it stays cordoned")))
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(operator.cordon(ctx, false)).To(MatchError(ContainSubstring("is not verified, so it stays cordoned")))
		w.SamplesFrom(func(*v1alpha1.LatencyBenchmark) int64 { return 10_000 })
		w.AskVerify(ctx, w.A)
		w.Expect(ctx, w.A, IsVerified)
		Eventually(func() error { return operator.cordon(ctx, false) }).Should(Succeed())
	})
})

// drained is one round of Cluster API's drain (ae7ff04, drain.go and filters.go): it evicts every pod of a node that is not skipped, and
// the drain has ended when there is none.
func drained(ctx context.Context, node string) bool {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(k8s.List(ctx, list, client.MatchingFields{"spec.nodeName": node})).To(Succeed())
	left := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Labels["cluster.x-k8s.io/drain"] == "skip" })
	for i := range left {
		Expect(client.IgnoreNotFound(k8s.SubResource("eviction").Create(ctx, &left[i], &policyv1.Eviction{}))).To(Succeed())
	}
	return len(left) == 0
}

var _ = Describe("Cluster API, simulated,", func() {
	It("ends its drain of a node with a hold pod, which is not created again on a node that is being deleted", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
		w.Expect(ctx, w.A, IsVerified)
		holds := func() (all []corev1.Pod) {
			GinkgoHelper()
			list := &corev1.PodList{}
			Expect(k8s.List(ctx, list, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelHold: "true"})).To(Succeed())
			return list.Items
		}
		Eventually(holds).Should(HaveLen(1))
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) { n.Spec.Unschedulable, n.Finalizers = true, []string{"test.tailgate.dev/machine"} })
		DeferCleanup(func(ctx SpecContext) { w.ChangeNode(ctx, w.A, func(n *corev1.Node) { n.Finalizers = nil }) })
		Eventually(func() bool { return drained(ctx, w.A) }).Should(BeTrue())
		Expect(k8s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.A}})).To(Succeed())
		// A manager whose watch has not delivered the deletion yet may create one more, which the tool removes, too.
		Eventually(func() []corev1.Pod {
			left := holds()
			for i := range left {
				Expect(client.IgnoreNotFound(k8s.Delete(ctx, &left[i], client.GracePeriodSeconds(0)))).To(Succeed())
			}
			return left
		}).MustPassRepeatedly(20).Should(BeEmpty())
	})
})
