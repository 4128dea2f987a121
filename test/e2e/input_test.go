//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/test/localcluster/install"
)

var _ = Describe("Wrong input", Label("placement"), func() {
	DescribeTable("is refused at admission",
		func(ctx context.Context, message string, change func(*v1alpha1.LatencyBenchmarkSpec)) {
			Expect(kube.Create(ctx, benchmark("wrong", change))).To(MatchError(ContainSubstring(message)))
		},
		Entry("an unknown tool", `Unsupported value: "iperf"`, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Tool = "iperf" }),
		Entry("size 0 with TCP", "measures nothing with TCP messages of 0 bytes", func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Tool, s.Workload.MessageSizes = v1alpha1.ToolSfntPingpong, []int32{0}
		}),
	)

	DescribeTable("is told in condition Accepted",
		func(ctx context.Context, reason, message string, change func(*v1alpha1.LatencyBenchmarkSpec)) {
			b := benchmark("wrong", change)
			create(ctx, b)
			Eventually(func() metav1.Condition { return condition(get(ctx, b), v1alpha1.ConditionAccepted) }).WithTimeout(soon).Should(And(
				HaveField("Status", metav1.ConditionFalse), HaveField("Reason", reason), HaveField("Message", ContainSubstring(message)),
			))
			Expect(benchmarkPods(ctx)).To(BeEmpty())
		},
		Entry("more CPUs than any node has", v1alpha1.ReasonInsufficientCPU, "ask for fewer",
			func(s *v1alpha1.LatencyBenchmarkSpec) { s.Placement.CPUs = 64 }),
		Entry("a missing network", v1alpha1.ReasonNetworkNotFound, "NetworkAttachmentDefinition default/nowhere does not exist",
			func(s *v1alpha1.LatencyBenchmarkSpec) { overVFs(s); s.Network.NetworkRef.Name = "nowhere" }),
		Entry("a resource that is not the network's", v1alpha1.ReasonNetworkMismatch, "takes its device from \"tailgate.test/sf_vf\"",
			func(s *v1alpha1.LatencyBenchmarkSpec) { overVFs(s); s.Network.ResourceName = "tailgate.test/none" }),
		Entry("a selector that matches nothing", v1alpha1.ReasonNoMatchingNode, "spec.placement.client.nodeSelector",
			func(s *v1alpha1.LatencyBenchmarkSpec) { s.Placement.Client = hostname("node-z") }),
		Entry("both ends on one node", v1alpha1.ReasonSameNode, "only be node node-a both",
			func(s *v1alpha1.LatencyBenchmarkSpec) { s.Placement.Server = hostname("node-a") }),
		Entry("the host's network where the operator forbids it", v1alpha1.ReasonHostNetworkForbidden, "--allow-host-network",
			func(s *v1alpha1.LatencyBenchmarkSpec) { s.Network.Type = v1alpha1.NetworkHost }),
	)

	It("a resource that nobody advertises is named, and a benchmark starts once its network is mended", func(ctx context.Context) {
		network := nadNamed("later", "tailgate.test/none")
		Expect(kube.Create(ctx, network)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(kube.Delete(ctx, network))).To(Succeed()) })
		b := benchmark("wrong", overVFs, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Network.NetworkRef.Name, s.Network.ResourceName = "later", "tailgate.test/none"
		})
		create(ctx, b)
		Eventually(func() metav1.Condition { return condition(get(ctx, b), v1alpha1.ConditionAccepted) }).WithTimeout(soon).Should(And(
			HaveField("Reason", v1alpha1.ReasonResourceNotAdvertised), HaveField("Message", ContainSubstring("tailgate.test/none")),
		))
		By("correcting the spec, which is not accepted yet and so may change")
		fresh := get(ctx, b)
		fresh.Spec.Network.NetworkRef.Name, fresh.Spec.Network.ResourceName = "sf-vf", "tailgate.test/sf_vf"
		fresh.Spec.Rounds = 1
		Expect(kube.Update(ctx, fresh)).To(Succeed())
		eventuallyCompletes(ctx, b)
	})

	It("a device that is on another NUMA node than the CPUs is told, tried again and given up", func(ctx context.Context) {
		b := benchmark("far", overVFs, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Network.NetworkRef.Name, s.Network.ResourceName = "sf-vf-far", "tailgate.test/sf_vf_far"
		})
		create(ctx, b)
		Eventually(func() string { return condition(get(ctx, b), v1alpha1.ConditionSucceeded).Message }).
			WithTimeout(soon).Should(And(ContainSubstring(v1alpha1.OutcomeTopologyAffinity), ContainSubstring("one NUMA node")))
		Eventually(func() string { return condition(get(ctx, b), v1alpha1.ConditionSucceeded).Reason }).
			WithTimeout(2 * time.Minute).Should(Equal(v1alpha1.ReasonFailed))
		Expect(get(ctx, b).Status.Attempts).To(HaveLen(3))
		Eventually(benchmarkPods).WithArguments(ctx).WithTimeout(soon).Should(BeEmpty())
	})

	It("an image that cannot be pulled is told within seconds, and no pod hangs for ever", func(ctx context.Context) {
		setManagerArgs(ctx, "--bench-image=localhost/no-such-image:1", "--bench-image-pull-policy=IfNotPresent", "--pod-start-timeout=20s")
		DeferCleanup(func(ctx context.Context) {
			Expect(install.Install(ctx, options)).To(Succeed())
		})
		b := benchmark("unpullable")
		create(ctx, b)
		Eventually(func() metav1.Condition { return condition(get(ctx, b), v1alpha1.ConditionSucceeded) }).WithTimeout(soon).Should(And(
			HaveField("Reason", v1alpha1.OutcomeImagePullFailed),
			HaveField("Message", And(ContainSubstring("localhost/no-such-image:1"), ContainSubstring("--bench-image"))),
		))
		Eventually(func() string { return condition(get(ctx, b), v1alpha1.ConditionSucceeded).Reason }).
			WithTimeout(time.Minute).Should(Equal(v1alpha1.ReasonFailed))
		Eventually(benchmarkPods).WithArguments(ctx).WithTimeout(soon).Should(BeEmpty())
	})
})

// nadNamed is a NetworkAttachmentDefinition that takes its device from a resource.
func nadNamed(name, resource string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(foreign.GroupVersionKind)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetAnnotations(map[string]string{foreign.AnnotationResourceName: resource})
	return u
}

// setManagerArgs gives the manager other arguments and waits until it runs with them.
func setManagerArgs(ctx context.Context, args ...string) {
	GinkgoHelper()
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": args}})
	Expect(err).NotTo(HaveOccurred())
	Expect(install.Kubectl(ctx, options, GinkgoWriter, "-n", managerNamespace, "patch", "deployment", "manager", "--type=json", "-p", string(patch))).To(Succeed())
	Expect(install.Kubectl(ctx, options, GinkgoWriter, "-n", managerNamespace, "rollout", "status", "deployment/manager", "--timeout=60s")).To(Succeed())
}
