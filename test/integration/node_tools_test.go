package integration

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// readinessRule holds the fields of a NodeReadinessRule that are used here.
type readinessRule struct {
	Spec struct {
		EnforcementMode string
		Conditions      []struct{ Type, RequiredStatus, DefaultStatus string }
		NodeSelector    struct{ MatchLabels map[string]string }
	}
}

// taints reports whether node-readiness-controller would taint a node: evaluateRuleForNode of v0.5, all conditions.
func (r readinessRule) taints(n *corev1.Node) bool {
	if !labels.SelectorFromSet(r.Spec.NodeSelector.MatchLabels).Matches(labels.Set(n.Labels)) {
		return false
	}
	for _, required := range r.Spec.Conditions {
		status := required.DefaultStatus
		if status == "" {
			status = "Unknown"
		}
		for _, c := range n.Status.Conditions {
			if string(c.Type) == required.Type {
				status = string(c.Status)
			}
		}
		if status != required.RequiredStatus {
			return true
		}
	}
	return false
}

// upgradePlan holds the fields of a Plan of the system-upgrade-controller that are used here.
type upgradePlan struct {
	Spec struct {
		Concurrency        int
		Version            string
		NodeSelector       metav1.LabelSelector
		Prepare            *struct{ Command []string }
		Cordon             bool
		Drain              *struct{ Force bool }
		PostCompleteDelay  metav1.Duration
		PostCompleteLabels map[string]string
	}
}

// complete changes a node as the system-upgrade-controller does when the Job of the node has been complete for a time: handleJobs of
// handle_batch.go, v0.20. The controller uncordons the node at once, and adds the labels after the delay, in one write of the node.
func (p upgradePlan) complete(n *corev1.Node, since time.Duration) {
	if since >= p.Spec.PostCompleteDelay.Duration {
		for key, value := range p.Spec.PostCompleteLabels {
			n.Labels[key] = strings.ReplaceAll(value, "$(LATEST_VERSION)", p.Spec.Version)
		}
		n.Labels["plan.upgrade.cattle.io/upgrade-fast-nodes"] = "hash"
	}
	if p.Spec.Cordon || p.Spec.Drain != nil {
		n.Spec.Unschedulable = false
	}
}

// applying returns the nodes that the system-upgrade-controller works on next: SelectConcurrentNodes of v0.20. Nodes that it already
// works on keep their place as long as they are selected. done holds the nodes that have the label of the plan's hash. The Job of a
// node that is no longer selected is deleted (handle_batch.go), and when no node is left, the Plan is complete (handle_upgrade.go).
func (p upgradePlan) applying(nodes []*corev1.Node, before, done []string) []string {
	GinkgoHelper()
	chosen, err := metav1.LabelSelectorAsSelector(&p.Spec.NodeSelector)
	Expect(err).NotTo(HaveOccurred())
	var candidates, selected []string
	for _, n := range nodes {
		if chosen.Matches(labels.Set(n.Labels)) && !slices.Contains(done, n.Name) {
			candidates = append(candidates, n.Name)
		}
	}
	for _, first := range []bool{true, false} {
		for _, name := range candidates {
			if slices.Contains(before, name) == first && (first || len(selected) < p.Spec.Concurrency) {
				selected = append(selected, name)
			}
		}
	}
	slices.Sort(selected)
	return selected
}

// validated reports whether an operator with NVIDIA's k8s-operator-libs considers a node valid: Validate of validation_manager.go. It
// checks the containers, and not the pod's condition Ready.
func validated(ctx context.Context, selector, node string) bool {
	GinkgoHelper()
	parsed, err := labels.Parse(selector)
	Expect(err).NotTo(HaveOccurred())
	list := &corev1.PodList{}
	Expect(k8s.List(ctx, list, client.MatchingLabelsSelector{Selector: parsed}, client.MatchingFields{"spec.nodeName": node})).To(Succeed())
	for _, pod := range list.Items {
		if pod.Status.Phase != corev1.PodRunning || len(pod.Status.ContainerStatuses) == 0 {
			return false
		}
		for _, c := range pod.Status.ContainerStatuses {
			if !c.Ready {
				return false
			}
		}
	}
	return len(list.Items) > 0
}

var _ = Describe("node-readiness-controller, simulated,", func() {
	It("taints nodes of the gate that do not say that they are verified, and no others", func() {
		var rule readinessRule
		Expect(yaml.Unmarshal(readSample("node-readiness-controller.yaml"), &rule)).To(Succeed())
		Expect(rule.Spec.EnforcementMode).To(Equal("continuous"))
		node := func(status corev1.ConditionStatus) *corev1.Node {
			n := MakeNode("n").Obj()
			n.Labels["latency"] = "gated"
			if status != "" {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.NodeConditionVerified, Status: status})
			}
			return n
		}
		Expect(rule.taints(node(""))).To(BeTrue())
		Expect(rule.taints(node(corev1.ConditionFalse))).To(BeTrue())
		Expect(rule.taints(node(corev1.ConditionUnknown))).To(BeTrue())
		Expect(rule.taints(node(corev1.ConditionTrue))).To(BeFalse())
		other := node(corev1.ConditionFalse)
		delete(other.Labels, "latency")
		Expect(rule.taints(other)).To(BeFalse())
	})
})

var _ = Describe("The system-upgrade-controller, simulated,", func() {
	// label returns a node with the gate's label, and a label with the version it was upgraded to.
	label := func(name, verified, upgraded string) *corev1.Node {
		n := MakeNode(name).Obj()
		n.Labels["latency"], n.Labels[v1alpha1.NodeLabelVerified], n.Labels["upgraded-to"] = "gated", verified, upgraded
		return n
	}
	plans := func() (upgrade, after upgradePlan) {
		GinkgoHelper()
		objects := objectsOf(readSample("system-upgrade-controller.yaml"))
		Expect(objects).To(HaveLen(2))
		decode(objects[0], &upgrade)
		decode(objects[1], &after)
		return upgrade, after
	}

	It("keeps at the node that it upgrades while that is not verified", func() {
		upgrade, _ := plans()
		Expect(upgrade.Spec.Concurrency).To(Equal(1))
		before := []*corev1.Node{label("a", "true", ""), label("b", "true", "")}
		Expect(upgrade.applying(before, nil, nil)).To(Equal([]string{"a"}))
		server := label("server", "true", "")
		server.Labels["node-role.kubernetes.io/control-plane"] = "true"
		Expect(upgrade.applying([]*corev1.Node{server}, nil, nil)).To(BeEmpty())
		during := []*corev1.Node{label("a", "false", ""), label("b", "true", "")}
		Expect(upgrade.applying(during, []string{"a"}, nil)).To(Equal([]string{"a"}))
		Expect(upgrade.applying(during, []string{"a"}, []string{"a"})).To(Equal([]string{"b"}), "where prepare holds it")

		By("which a selector with the gate's label would not: the next node is begun under the first")
		upgrade.Spec.NodeSelector.MatchLabels[v1alpha1.NodeLabelVerified] = "true"
		Expect(upgrade.applying(during, []string{"a"}, nil)).To(Equal([]string{"b"}))
	})

	It("uncordons the node that it has upgraded only when that has passed", func(ctx SpecContext) {
		upgrade, after := plans()
		Expect(upgrade.Spec.PostCompleteDelay.Duration).To(Equal(time.Minute))
		Expect(after.Spec.Prepare).To(Equal(upgrade.Spec.Prepare), "a label is unchanged while no manager runs")
		w := NewGateWorld(ctx)
		policies(ctx, w.Namespace)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Template.Spec.Pods = &v1alpha1.PodSettings{Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}}
		}))
		w.Expect(ctx, w.A, IsVerified)
		controller := as("system:serviceaccount:system-upgrade:system-upgrade")
		complete := func(since time.Duration) error {
			n := &corev1.Node{}
			Expect(k8s.Get(ctx, client.ObjectKey{Name: w.A}, n)).To(Succeed())
			upgrade.complete(n, since)
			return controller.Update(ctx, n)
		}
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		w.SlowNode(w.A) // It fails at first, so that the order of events does not depend on how fast it is measured.
		w.Upgrade(ctx, w.A, "6.1.1")
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		for _, since := range []time.Duration{0, time.Minute} {
			Eventually(func() error { return complete(since) }).Should(MatchError(ContainSubstring("is not verified, so it stays cordoned")))
		}
		w.SamplesFrom(func(*v1alpha1.LatencyBenchmark) int64 { return 10_000 })
		w.AskVerify(ctx, w.A)
		w.Expect(ctx, w.A, IsVerified)
		Eventually(func() error { return complete(time.Minute) }).Should(Succeed())
		n := &corev1.Node{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: w.A}, n)).To(Succeed())
		Expect(n.Spec.Unschedulable).To(BeFalse())
		Expect(n.Labels).To(And(HaveKeyWithValue("upgraded-to", upgrade.Spec.Version), HaveKey("plan.upgrade.cattle.io/upgrade-fast-nodes")))
	})

	It("does what comes after the upgrade on nodes that were verified since", func() {
		_, after := plans()
		const version = "v1.36.2-k3s1"
		nodes := []*corev1.Node{label("a", "true", version), label("b", "false", version), label("c", "true", "")}
		Expect(after.applying(nodes, nil, nil)).To(Equal([]string{"a"}))
		nodes[1].Labels[v1alpha1.NodeLabelVerified] = "true"
		Expect(after.applying(nodes, nil, []string{"a"})).To(Equal([]string{"b"}))
	})
})

var _ = Describe("kured, simulated,", func() {
	// flags returns the flags in the sample.
	flags := func() map[string]string {
		GinkgoHelper()
		var patch appsv1.DaemonSet
		Expect(yaml.UnmarshalStrict(readSample("kured.yaml"), &patch)).To(Succeed())
		all := map[string]string{}
		for _, flag := range patch.Spec.Template.Spec.Containers[0].Command[1:] {
			name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
			all[name] = value
		}
		return all
	}

	It("does not reboot a node while an alert of a gate is pending or firing", func() {
		f := flags()
		filter, err := regexp.Compile(f["alert-filter-regexp"])
		Expect(err).NotTo(HaveOccurred())
		// ActiveAlerts and matchesRegex of prometheus.go, v1.23.
		blocked := func(name, state string) bool {
			return filter.MatchString(name) == (f["alert-filter-match-only"] == "true") && (f["alert-firing-only"] != "true" || state == "firing")
		}
		for _, state := range []string{"pending", "firing"} {
			Expect(blocked("TailgateGateFailed", state)).To(BeTrue())
			Expect(blocked("TailgateGateNotPassed", state)).To(BeTrue())
			Expect(blocked("Watchdog", state)).To(BeFalse())
			Expect(blocked("TailgateGateNotOperational", state)).To(BeFalse())
		}
	})

	It("does not reboot a node under a benchmark", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.Start()
		selector, err := labels.Parse(flags()["blocking-pod-selector"])
		Expect(err).NotTo(HaveOccurred())
		// IsBlocked of kubernetespod.go.
		blocked := func(node string) bool {
			list := &corev1.PodList{}
			Expect(k8s.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}, client.MatchingFields{"spec.nodeName": node})).To(Succeed())
			return slices.ContainsFunc(list.Items, func(p corev1.Pod) bool {
				return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodUnknown
			})
		}
		Expect(blocked(w.A)).To(BeFalse())
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "b").On(w.A, w.B))
		w.Kubelet.Run(ctx, w.Kubelet.Pod(ctx, "b-r1", 1, v1alpha1.RoleServer))
		Expect(blocked(w.B)).To(BeTrue())
		Expect(k8s.Delete(ctx, b)).To(Succeed())
	})
})
