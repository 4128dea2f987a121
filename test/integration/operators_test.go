package integration

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
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
		installNodeKind(foreign.SriovNetworkNodeStateKind)
		w := NewGateWorld(ctx)
		idle := map[string]string{foreign.AnnotationCurrentState: foreign.SriovIdle, foreign.AnnotationDesiredState: foreign.SriovIdle}
		for _, name := range []string{w.A, w.B} {
			createNodeObject(ctx, foreign.SriovNetworkNodeStateKind, name, idle, map[string]any{"status": map[string]any{"syncStatus": foreign.SriovSucceeded}})
		}
		policies(ctx, w.Namespace)
		pool := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
			"metadata": map[string]any{"name": w.Namespace, "labels": map[string]any{gateLabel: w.Namespace}}, "spec": map[string]any{"paused": false},
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
		w.Expect(ctx, w.A, isVerified)

		operator.drain(ctx)
		w.SlowNode(w.A) // It fails at first, so that the order of events does not depend on how fast it is measured.
		w.Upgrade(ctx, w.A, "6.1.1")
		Eventually(func() string { return w.Says(ctx, w.A) }).Should(HavePrefix("Unverified IdentityChanged: False false"))
		if taint {
			operator.finish(ctx)
			By("uncordoning a node that the taint holds back, and unpausing its own pool")
			Eventually(func() error { return operator.complete(ctx) }).Should(Succeed())
			w.Expect(ctx, w.A, "Failed Fail"+heldBack)
			w.SamplesFrom(func(*v1alpha1.LatencyBenchmark) int64 { return 10_000 })
			w.Annotate(ctx, w.A, v1alpha1.AnnotationVerify, "")
			w.Expect(ctx, w.A, isVerified)
			return
		}
		Consistently(func() bool { return apierrors.IsForbidden(operator.complete(ctx)) }, "1s").Should(BeTrue())
		operator.finish(ctx)
		By("measuring a node that only waits to be uncordoned")
		w.Expect(ctx, w.A, "Failed Fail: False false -")
		Expect(operator.complete(ctx)).To(MatchError(ContainSubstring("is not verified, so it stays cordoned")))
		w.SamplesFrom(func(*v1alpha1.LatencyBenchmark) int64 { return 10_000 })
		w.Annotate(ctx, w.A, v1alpha1.AnnotationVerify, "")
		w.Expect(ctx, w.A, isVerified)
		Eventually(func() error { return operator.complete(ctx) }).Should(Succeed())
	},
		Entry("with the taint, before it measures it", true),
		Entry("without the taint, when it passed", false),
	)
})
