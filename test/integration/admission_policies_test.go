package integration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// as returns a client that impersonates a user with all rights, or the manager's with all rights on Kubernetes' own objects.
func as(user string) client.Client {
	GinkgoHelper()
	own := rest.CopyConfig(config)
	own.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	if user == managerUser {
		own.Impersonate.Groups = []string{writers}
	}
	c, err := client.New(own, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// policies creates the policies of admission.yaml for the nodes and the gate of a namespace.
func policies(ctx SpecContext, namespace string) {
	GinkgoHelper()
	objects := objectsOf(readSample("admission.yaml", `"latency"`, `"`+GateLabel+`"`, `"gated"`, `"`+namespace+`"`, "upgrade-fast-nodes", namespace+"-plan", "fast-nodes", namespace, "fast-workers", namespace,
		"name: tailgate-", "name: "+namespace+"-", "policyName: tailgate-", "policyName: "+namespace+"-"))
	Expect(objects).To(HaveLen(6))
	for _, o := range objects {
		_, selects, err := unstructured.NestedMap(o.Object, "spec", "matchResources", "objectSelector")
		Expect(err).NotTo(HaveOccurred())
		Expect(selects).To(BeFalse(), "whoever may change an object could take off the label of a selector")
	}
	create(ctx, objects...)
}

var _ = Describe("The admission policies", func() {
	patch := func(ctx context.Context, c client.Client, o client.Object, data string, options ...client.PatchOption) error {
		return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(data)), options...)
	}
	It("keep nodes cordoned, tainted and labelled while they are not verified, for all but the gate", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		w := &World{Place: Place{Namespace: namespace}}
		build := MakeNode(namespace + "-a")
		build.Labels[GateLabel] = namespace
		node := w.AddNode(ctx, build)
		policies(ctx, namespace)
		admin, gate := as("admin"), as(managerUser)
		set := func(c client.Client, status corev1.ConditionStatus) error {
			data := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, v1alpha1.NodeConditionVerified, status)
			return c.Status().Patch(ctx, node.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(data)))
		}
		Expect(set(gate, corev1.ConditionFalse)).To(Succeed())
		const (
			cordon, uncordon = `{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":null}}`
			untaint          = `{"spec":{"taints":null}}`
			labelled         = `{"metadata":{"labels":{"tailgate.dev/latency-verified":"true"}}}`
		)
		hold := fmt.Sprintf(`{"metadata":{"labels":{"tailgate.dev/latency-verified":"false"}},"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, v1alpha1.NodeTaintUnverified)
		Expect(patch(ctx, gate, node, hold)).To(Succeed())
		Expect(patch(ctx, admin, node, cordon)).To(Succeed())
		By("refused, once the API server knows the policy")
		Eventually(func() bool { return apierrors.IsForbidden(patch(ctx, admin, node, uncordon, client.DryRunAll)) }).Should(BeTrue())
		// The policy of the spec before, of another label, refuses that, too, until the API server knows this one.
		unselect := `{"metadata":{"labels":{"` + GateLabel + `":null}}}`
		Eventually(func() bool { return apierrors.IsForbidden(patch(ctx, admin, node, unselect, client.DryRunAll)) }).Should(BeTrue())
		Expect(patch(ctx, admin, node, uncordon)).To(MatchError(ContainSubstring("latency of node " + node.Name + " is not verified, so it stays cordoned")))
		// kubectl uncordon prints the error and exits with 0.
		_, out := kubectl(ctx, adminKubeconfig(namespace), "uncordon", node.Name)
		Expect(out).To(ContainSubstring("is not verified, so it stays cordoned"))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		Expect(node.Spec.Unschedulable).To(BeTrue())
		Expect(patch(ctx, admin, node, untaint)).To(MatchError(ContainSubstring("taint tailgate.dev/latency-unverified stays")))
		Expect(patch(ctx, admin, node, labelled)).To(MatchError(ContainSubstring("label tailgate.dev/latency-verified stays")))
		Expect(patch(ctx, admin, node, `{"metadata":{"labels":{"tailgate.dev/latency-verified":null}}}`)).To(MatchError(ContainSubstring("label tailgate.dev/latency-verified stays")))
		Expect(set(admin, corev1.ConditionTrue)).To(MatchError(ContainSubstring("is the gate's to write")))
		Expect(patch(ctx, admin, node, `{"metadata":{"labels":{"`+GateLabel+`":null}},"spec":{"unschedulable":null}}`)).To(MatchError(ContainSubstring("stays cordoned")))
		By("two writes, of which the first takes off the label of the gate")
		Expect(patch(ctx, admin, node, unselect)).To(MatchError(ContainSubstring("the label by which its gate selects it stays")))
		Expect(patch(ctx, as("system:node:"+node.Name), node, unselect)).To(MatchError(ContainSubstring("the label by which its gate selects it stays")))
		Expect(admin.Status().Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(unselect)))).To(MatchError(ContainSubstring("selects it stays")))
		By("the same on a node that lost the label before the policy came")
		stray := w.AddNode(ctx, MakeNode(namespace+"-stray"))
		Expect(gate.Status().Patch(ctx, stray.DeepCopy(), client.RawPatch(types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"False"}]}}`, v1alpha1.NodeConditionVerified)))).To(Succeed())
		Expect(patch(ctx, gate, stray, hold)).To(Succeed())
		Expect(patch(ctx, admin, stray, cordon)).To(Succeed())
		Expect(patch(ctx, admin, stray, uncordon)).To(MatchError(ContainSubstring("stays cordoned")))
		Expect(patch(ctx, admin, stray, untaint)).To(MatchError(ContainSubstring("taint tailgate.dev/latency-unverified stays")))
		By("allowed all the time")
		Expect(patch(ctx, admin, node, `{"metadata":{"labels":{"other":"label"}}}`)).To(Succeed())
		other := fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"},{"key":"other","effect":"NoSchedule"}]}}`, v1alpha1.NodeTaintUnverified)
		Expect(patch(ctx, admin, node, other)).To(Succeed())
		heartbeat := `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"again"}]}}`
		Expect(admin.Status().Patch(ctx, node.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(heartbeat)))).To(Succeed())
		By("what the gate does when the node has passed")
		Expect(set(gate, corev1.ConditionTrue)).To(Succeed())
		Expect(patch(ctx, gate, node, `{"metadata":{"labels":{"tailgate.dev/latency-verified":"true"}},"spec":{"taints":[{"key":"other","effect":"NoSchedule"}]}}`)).To(Succeed())
		Expect(patch(ctx, admin, node, uncordon)).To(Succeed())
		Expect(patch(ctx, admin, node, unselect, client.DryRunAll)).To(Succeed())
		By("a node that registers as verified")
		liar := MakeNode(namespace + "-liar").Obj()
		liar.Labels[GateLabel], liar.Labels[v1alpha1.NodeLabelVerified] = namespace, "true"
		Expect(admin.Create(ctx, liar)).To(MatchError(ContainSubstring("label tailgate.dev/latency-verified stays")))
		By("a node that registers as not verified: lets a kubelet register its node with the label false")
		honest := MakeNode(namespace + "-honest").Obj()
		honest.Labels[GateLabel], honest.Labels[v1alpha1.NodeLabelVerified] = namespace, "false"
		Expect(admin.Create(ctx, honest, client.DryRunAll)).To(Succeed())
		By("a node of no gate")
		plain := w.AddNode(ctx, MakeNode(namespace+"-b"))
		Expect(patch(ctx, admin, plain, cordon)).To(Succeed())
		Expect(patch(ctx, admin, plain, uncordon)).To(Succeed())
		By("a node of the gate that it has not seen, or let go")
		fresh := MakeNode(namespace + "-c")
		fresh.Labels[GateLabel] = namespace
		seen := w.AddNode(ctx, fresh)
		Expect(patch(ctx, admin, seen, cordon)).To(Succeed())
		Expect(patch(ctx, admin, seen, uncordon)).To(Succeed())
		Expect(patch(ctx, admin, seen, unselect, client.DryRunAll)).To(Succeed())
		By("a node that registered with label and taint, which no gate has seen")
		early := MakeNode(namespace + "-early")
		early.Labels[GateLabel] = namespace
		early.Spec.Taints = []corev1.Taint{{Key: v1alpha1.NodeTaintUnverified, Effect: corev1.TaintEffectNoSchedule}}
		registered := w.AddNode(ctx, early)
		Expect(patch(ctx, admin, registered, untaint)).To(MatchError(ContainSubstring("taint tailgate.dev/latency-unverified stays")))
		Expect(patch(ctx, admin, registered, unselect)).To(MatchError(ContainSubstring("selects it stays")))
	})

	It("let only the gate make, relabel and change hold pods", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		policies(ctx, namespace)
		admin, gate := as("admin"), as(managerUser)
		pod := func(name string, labels map[string]string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "hold", Image: "bench"}}}}
		}
		held := map[string]string{v1alpha1.LabelHold: "true", v1alpha1.LabelGate: namespace}
		refused := MatchError(ContainSubstring("are the gate's to create and to change"))
		bySizes := MatchError(ContainSubstring("'tailgate-sizes'")) // which every installation has; an API server names one of the policies that refuse
		Eventually(func() error { return admin.Create(ctx, pod("forged", held), client.DryRunAll) }).Should(refused)
		Expect(admin.Create(ctx, pod("forged", map[string]string{v1alpha1.LabelHold: "false"}))).To(refused, "with any value")
		Expect(as("system:serviceaccount:kube-system:replicaset-controller").Create(ctx, pod("forged", held))).To(refused, "by way of a workload")
		By("a pod of the user, which gets the label later")
		plain := pod("plain", nil)
		Expect(admin.Create(ctx, plain)).To(Succeed())
		Expect(patch(ctx, admin, plain, `{"metadata":{"labels":{"tailgate.dev/hold":"true"}}}`)).To(refused)
		Expect(patch(ctx, admin, plain, `{"metadata":{"labels":{"other":"label"}}}`)).To(Succeed())
		By("the gate's own")
		own := pod("own-0123abcd-hold", maps.Clone(held))
		own.Labels[v1alpha1.LabelManagedBy], own.Spec.Containers[0].Command = v1alpha1.ManagedByTailgate, []string{pods.Agent, "hold"}
		own.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyVerification", Name: "v", UID: "0a", Controller: new(true)}}
		own.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: v1alpha1.NodeConditionVerified}}
		pods.Restrict(&own.Spec)
		Expect(gate.Create(ctx, own)).To(Succeed())
		for _, change := range []string{
			`{"metadata":{"labels":{"tailgate.dev/hold":null}}}`, `{"metadata":{"labels":{"tailgate.dev/hold":"false"}}}`, `{"metadata":{"labels":{"tailgate.dev/gate":"other"}}}`,
			`{"metadata":{"labels":null}}`,
		} {
			Expect(patch(ctx, admin, own, change)).To(Or(refused, bySizes), change)
		}
		evil := own.DeepCopy()
		evil.Spec.Containers[0].Image = "evil"
		Expect(admin.Update(ctx, evil)).To(refused)
		debug := own.DeepCopy()
		debug.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "evil"}}}
		Expect(admin.SubResource("ephemeralcontainers").Update(ctx, debug)).To(Or(refused, bySizes))
		ready := `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
		Expect(admin.Status().Patch(ctx, own.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(ready)))).To(Succeed(), "as its kubelet does")
		Expect(patch(ctx, admin, own, `{"metadata":{"annotations":{"any":"note"}}}`)).To(Succeed())
		Expect(patch(ctx, gate, own, `{"metadata":{"labels":{"tailgate.dev/latency-verified":"false"}}}`)).To(Succeed())
		Expect(admin.Delete(ctx, own)).To(Succeed(), "the gate makes it again")
	})

	It("hold back a verified node in the write that reports a change, while no manager runs", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		w := &World{Place: Place{Namespace: namespace}}
		build := MakeNode(namespace + "-a")
		build.Labels[GateLabel] = namespace
		node := w.AddNode(ctx, build)
		policies(ctx, namespace)
		objects := objectsOf(readSample("hold-on-change.yaml",
			"name: tailgate-", "name: "+namespace+"-", "policyName: tailgate-", "policyName: "+namespace+"-"))
		Expect(objects).To(HaveLen(4))
		create(ctx, objects...)
		kubelet, lifecycle, gate := as("system:node:"+node.Name), as("system:serviceaccount:kube-system:node-controller"), as(managerUser)
		status := func(c client.Client, data string) {
			GinkgoHelper()
			Expect(c.Status().Patch(ctx, node.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(data)))).To(Succeed())
		}
		verify := func() {
			GinkgoHelper()
			status(gate, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True","reason":"Passed"}]}}`, v1alpha1.NodeConditionVerified))
			Expect(patch(ctx, gate, node, `{"metadata":{"labels":{"tailgate.dev/latency-verified":"true"}},"spec":{"taints":null}}`)).To(Succeed())
		}
		said := func() string {
			GinkgoHelper()
			return strings.TrimPrefix(w.Says(ctx, node.Name), ": ")
		}
		boots := 0
		boot := func() string {
			GinkgoHelper()
			boots++
			status(kubelet, fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":"%d"},"conditions":[{"type":"Ready","status":"True"}]}}`, boots))
			return said()
		}
		By("boots, once the API server knows the policies")
		Eventually(func() string { verify(); return boot() }).WithPolling(100 * time.Millisecond).Should(Equal("False false -"))
		By("what Kubernetes writes when the node is back")
		Eventually(func() string {
			Expect(patch(ctx, lifecycle, node, `{"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]}}`)).To(Succeed())
			Expect(patch(ctx, lifecycle, node, `{"spec":{"taints":null}}`)).To(Succeed())
			return said()
		}).WithPolling(100 * time.Millisecond).Should(Equal("False false NoSchedule"))
		verify()
		Expect(said()).To(Equal("True true -"))
		Expect(boot()).To(Equal("False false -"), "a taint cannot be written with a status")
		Expect(patch(ctx, lifecycle, node, `{"metadata":{"annotations":{"any":"write"}}}`)).To(Succeed())
		Expect(said()).To(Equal("False false NoSchedule"), "and comes with the next write of anybody")
		By("changes of everything that a kubelet tells, each by itself")
		for _, field := range []string{"kernelVersion", "kubeletVersion", "containerRuntimeVersion", "osImage"} {
			verify()
			status(kubelet, fmt.Sprintf(`{"status":{"nodeInfo":{%q:"another"}}}`, field))
			Expect(said()).To(Equal("False false -"), field)
		}
		By("what changes nothing")
		verify()
		status(kubelet, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"again"}]}}`)
		Expect(said()).To(Equal("True true -"))
		By("a verified node that was away")
		verify()
		status(gate, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"Unknown","reason":"NodeNotReady"}]}}`, v1alpha1.NodeConditionVerified))
		for _, taints := range []string{`[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}]`, "null"} {
			Expect(patch(ctx, lifecycle, node, `{"spec":{"taints":`+taints+`}}`)).To(Succeed())
			Expect(said()).To(Equal("Unknown true -"), "it keeps its pods if it returns unchanged")
		}
		Expect(boot()).To(Equal("False false -"), "it returns changed")
		verify()
		By("what the gate writes, which has the last word")
		status(gate, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"False"}]}}`, v1alpha1.NodeConditionVerified))
		Expect(patch(ctx, gate, node, `{"metadata":{"labels":{"tailgate.dev/latency-verified":"true"}}}`)).To(Succeed())
		Expect(said()).To(Equal("False true -"))
	})

	It("keep rollouts paused while the gate has not passed", func(ctx SpecContext) {
		installTools()
		namespace := newNamespace(ctx)
		policies(ctx, namespace)
		pool := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": map[string]any{"name": namespace, "labels": map[string]any{GateLabel: namespace}},
			"spec": map[string]any{"paused": true},
		}}
		upgrade := objectsOf(readSample("system-upgrade-controller.yaml", "namespace: system-upgrade", "namespace: "+namespace, "concurrency: 1", "concurrency: 0"))[0]
		upgrade.SetName(namespace + "-plan")
		other := pool.DeepCopy()
		other.SetName(namespace + "-other")
		create(ctx, pool, other, upgrade)
		admin := as("admin")
		unpause := func() error { return patch(ctx, admin, pool, `{"spec":{"paused":false}}`, client.DryRunAll) }
		start := func() error { return patch(ctx, admin, upgrade, `{"spec":{"concurrency":1}}`, client.DryRunAll) }
		refused := func(f func() error) func() bool { return func() bool { return apierrors.IsForbidden(f()) } }
		By("a gate that does not exist")
		Eventually(unpause).Should(MatchError(ContainSubstring("no params found")))
		Expect(patch(ctx, admin, other, `{"spec":{"paused":false}}`, client.DryRunAll)).To(Succeed())
		By("a gate that has not passed")
		g := gateSaying(ctx, namespace, metav1.ConditionFalse, v1alpha1.ReasonNodesFailed, oneFailed)
		Eventually(unpause).Should(MatchError(ContainSubstring("LatencyGate " + namespace + " has not passed")))
		Eventually(refused(start)).Should(BeTrue())
		Expect(patch(ctx, admin, upgrade, `{"spec":{"version":"v1.36.3"}}`)).To(Succeed())
		By("two writes, of which the first takes off all labels")
		Expect(patch(ctx, admin, pool, `{"metadata":{"labels":null}}`)).To(Succeed())
		Expect(unpause()).To(MatchError(ContainSubstring("LatencyGate " + namespace + " has not passed")))
		By("a gate that has passed, but not as it is now")
		say(ctx, g, metav1.ConditionTrue, v1alpha1.ReasonAllVerified, allVerified)
		Eventually(unpause).Should(Succeed())
		g.Spec.MaxParallel = new(intstr.FromInt32(2))
		Expect(k8s.Update(ctx, g)).To(Succeed())
		Eventually(unpause).Should(MatchError(ContainSubstring("LatencyGate " + namespace + " has not passed")))
		By("a gate that has passed")
		say(ctx, g, metav1.ConditionTrue, v1alpha1.ReasonAllVerified, allVerified)
		Eventually(unpause).Should(Succeed())
		Eventually(start).Should(Succeed())
		Expect(patch(ctx, admin, pool, `{"spec":{"paused":false}}`)).To(Succeed())
		say(ctx, g, metav1.ConditionUnknown, v1alpha1.ReasonNotAllVerified, oneMeasuring)
		By("pausing, which is always allowed")
		Expect(patch(ctx, admin, pool, `{"spec":{"paused":true}}`)).To(Succeed())
		Eventually(refused(unpause)).Should(BeTrue())
	})
})
