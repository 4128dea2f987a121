//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

var _ = Describe("A LatencyGate on full nodes", Label("gate"), needs("nodes to fill and a manager to scale"), SpecPriority(2), func() {
	AfterEach(endGate)

	It("skips a scheduled turn and holds no node, until placeholders reserve room for it", func(ctx context.Context) {
		nodes := []string{here.Client, here.Server}
		labelNodes(ctx, gated, "")
		g := undemandingGate()
		Expect(kube.Create(ctx, g)).To(Succeed())
		first, versions := map[string]*v1alpha1.LatencyVerification{}, map[string]func() []nodeVersion{}
		for _, node := range nodes {
			first[node] = eventuallyConcludes(ctx, node, v1alpha1.VerificationVerified)
			versions[node] = watchNode(ctx, node)
		}
		token, vf := scraper(ctx), corev1.ResourceName(here.VF.ResourceName)

		By("pods of others take all CPUs and VFs of both nodes")
		vfs, cpus := allocatable(ctx, here.Client, vf), allocatable(ctx, here.Client, corev1.ResourceCPU)
		for _, node := range nodes {
			tenant(ctx, node, allocatable(ctx, node, vf), allocatable(ctx, node, corev1.ResourceCPU))
		}
		schedule(ctx, g, "* * * * *")
		Eventually(func(check Gomega) {
			check.Expect(kube.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
			check.Expect(g.Status.Nodes.Unplaced).To(BeEquivalentTo(2))
			check.Expect(g.Status.Nodes.Verified).To(BeEquivalentTo(2))
			check.Expect(g.Status.Conditions).To(ContainElement(And(
				HaveField("Type", v1alpha1.ConditionOperational), HaveField("Status", metav1.ConditionFalse),
				HaveField("Reason", v1alpha1.ReasonNoRoom), HaveField("Message", ContainSubstring("/tenant-")))))
		}).WithTimeout(3 * time.Minute).WithPolling(time.Second).Should(Succeed())
		for _, c := range g.Status.Conditions {
			AddReportEntry(fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
		_, metrics := managerGet(ctx, managerNamespace, anyManager, nil, "/metrics", token)
		Expect(metrics).To(ContainSubstring(`tailgate_gate_unplaced_nodes{gate="e2e"} 2` + "\n"))
		for _, node := range nodes {
			Expect(verification(ctx, node).Status.Number).To(Equal(first[node].Status.Number), "no benchmark was created")
		}

		By("placeholders take their place")
		// A gate looks again after 5 minutes, and a manager that starts looks at once.
		scaleManager(ctx, 0)
		for _, node := range nodes {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant-" + node}}
			Expect(kube.Delete(ctx, pod)).To(Succeed())
			eventuallyGone(ctx, pod)
		}
		reserve(ctx, fmt.Sprintf("{cpu: %q, memory: 512Mi, %s: %d}", fmt.Sprint(cpus), vf, vfs))
		restarted := time.Now()
		scaleManager(ctx, 1)
		for _, node := range nodes {
			var again *v1alpha1.LatencyVerification
			Eventually(func(check Gomega) {
				again = verification(ctx, node)
				check.Expect(again.Status.State).To(Equal(v1alpha1.VerificationVerified))
				check.Expect(again.Status.Accepted.Benchmark).NotTo(Equal(first[node].Status.Accepted.Benchmark))
			}).WithTimeout(2*measured).WithPolling(200*time.Millisecond).
				Should(Succeed(), func() string { return again.Status.Verified().Message })
		}
		schedule(ctx, g, "0 0 1 1 *") // no more turns
		for _, node := range nodes {
			eventuallyConcludes(ctx, node, v1alpha1.VerificationVerified)
		}

		By("what was held, and for how long")
		for _, node := range nodes {
			var turns []time.Duration
			var begun time.Time
			for _, v := range versions[node]() {
				switch {
				case v.publish != isVerified && begun.IsZero():
					Expect(v.at).To(BeTemporally(">", restarted), "%s was held while it was full: version %s: %s", node, v.number, v.publish)
					begun = v.at
				case v.publish == isVerified && !begun.IsZero():
					turns, begun = append(turns, v.at.Sub(begun).Round(time.Millisecond)), time.Time{}
				}
			}
			Expect(begun).To(BeZero(), "%s is held after its last turn", node)
			measurements := verification(ctx, node).Status.Number - first[node].Status.Number
			AddReportEntry(fmt.Sprintf("%s was held %v, for %d scheduled measurements", node, turns, measurements))
			Expect(turns).To(HaveLen(int(measurements)), "once for each measurement")
		}
	})

	It("holds an upgraded node, and measures it in the place of placeholders, or with room", Label("upgrade"), func(ctx context.Context) {
		nodes := []string{here.Client, here.Server}
		labelNodes(ctx, gated, "")
		g := undemandingGate()
		Expect(kube.Create(ctx, g)).To(Succeed())
		for _, node := range nodes {
			eventuallyConcludes(ctx, node, v1alpha1.VerificationVerified)
		}
		vf := corev1.ResourceName(here.VF.ResourceName)
		vfs, cpus := allocatable(ctx, here.Client, vf), allocatable(ctx, here.Client, corev1.ResourceCPU)
		peer, letIn := watchNode(ctx, here.Server), watchLetIn(ctx, here.Client)

		By("placeholders take all CPUs and VFs of both nodes")
		reserve(ctx, fmt.Sprintf("{cpu: %q, memory: 512Mi, %s: %d}", fmt.Sprint(cpus), vf, vfs))
		before := placeholders(ctx)
		boot := upgrade(ctx)
		first := eventuallyConcludes(ctx, here.Client, v1alpha1.VerificationVerified)
		Expect(first.Status.Accepted.Identity).To(HaveKeyWithValue(string(v1alpha1.IdentityBootID), boot))
		for _, uid := range before {
			Expect(preempted(ctx)).To(ContainElement(uid))
		}
		Eventually(placeholders).WithArguments(ctx).WithTimeout(time.Minute).
			Should(And(HaveLen(2), Not(ContainElement(BeElementOf(before)))), "they are created again")
		Expect(kube.Delete(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "placeholder"}})).To(Succeed())
		Eventually(placeholders).WithArguments(ctx).WithTimeout(time.Minute).Should(BeEmpty())

		By("pods of others take them")
		for _, node := range nodes {
			tenant(ctx, node, vfs, cpus)
		}
		boot = upgrade(ctx)
		var waiting []metav1.Condition
		Eventually(func() []metav1.Condition {
			if v := verification(ctx, here.Client); v.Status.Benchmark != nil {
				waiting = get(ctx, benchmark(v.Status.Benchmark.Name)).Status.Conditions
			}
			return waiting
		}).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(ContainElement(HaveField("Message", ContainSubstring("tenant-"))))
		for _, c := range waiting {
			AddReportEntry(fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
		Consistently(published).WithArguments(ctx, here.Client).WithTimeout(10 * time.Second).Should(Equal(heldBack))
		for _, node := range nodes {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant-" + node}}
			Expect(kube.Delete(ctx, pod)).To(Succeed())
			eventuallyGone(ctx, pod)
		}
		second := eventuallyConcludes(ctx, here.Client, v1alpha1.VerificationVerified)
		Expect(second.Status.Accepted.Identity).To(HaveKeyWithValue(string(v1alpha1.IdentityBootID), boot))
		Expect(letIn()).To(HaveLen(2), "once for each upgrade")
		for _, v := range peer() {
			Expect(v.publish).To(Equal(isVerified), "the peer, version %s", v.number)
		}
	})
})

// schedule changes the schedule of a gate.
func schedule(ctx context.Context, g *v1alpha1.LatencyGate, to string) {
	GinkgoHelper()
	Eventually(func() error {
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
		g.Spec.Schedule = to
		return kube.Update(ctx, g)
	}).WithTimeout(soon).Should(Succeed())
	want := g.Generation
	Eventually(func() int64 {
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
		return g.Status.ObservedGeneration
	}).WithTimeout(soon).Should(BeNumerically(">=", want), "until then, a turn of the earlier schedule may begin")
}

// placeholders returns the UIDs of the running placeholders.
func placeholders(ctx context.Context) (all []types.UID) {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(kube.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"app": "tailgate-placeholder"})).To(Succeed())
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning {
			all = append(all, p.UID)
		}
	}
	return all
}

// preempted returns the UIDs of the pods of the suite's namespace that the scheduler evicted for others.
func preempted(ctx context.Context) (all []types.UID) {
	GinkgoHelper()
	list := &corev1.EventList{}
	Expect(kube.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"reason": "Preempted"})).To(Succeed())
	for _, e := range list.Items {
		all = append(all, e.InvolvedObject.UID)
	}
	return all
}

// reserve applies the sample reserve.yaml, in the suite's namespace and with other limits, until the spec ends. It waits for a
// placeholder on both nodes.
func reserve(ctx context.Context, limits string) {
	GinkgoHelper()
	sample, err := os.ReadFile("../../config/samples/gates/reserve.yaml")
	Expect(err).NotTo(HaveOccurred())
	our := strings.NewReplacer("namespace: gates", "namespace: "+namespace, "latency: gated", gated+`: ""`,
		"registry.k8s.io/pause:3.10.1", images.PauseRef, `{cpu: "2", memory: 256Mi}`, limits)
	file := filepath.Join(GinkgoT().TempDir(), "reserve.yaml")
	Expect(os.WriteFile(file, []byte(our.Replace(string(sample))), 0o600)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(kubectl(ctx, GinkgoWriter, "delete", "--ignore-not-found", "-f", file)).To(Succeed())
	})
	Expect(kubectl(ctx, GinkgoWriter, "apply", "-f", file)).To(Succeed())
	set := &appsv1.DaemonSet{}
	Eventually(func() int32 {
		Expect(kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "placeholder"}, set)).To(Succeed())
		return set.Status.NumberReady
	}).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(BeEquivalentTo(2))
}
