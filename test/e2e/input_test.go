//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

var _ = Describe("Wrong input", Label("placement"), func() {
	It("a device that is on another NUMA node than the CPUs is reported, tried again and given up", SpecPriority(1), needs("VFs far from the CPUs"), func(ctx context.Context) {
		vfNetwork(ctx, "sf-vf-far", localcluster.ResourceVFFar)
		b := benchmark("far", overVFs, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Network.VF.NetworkRef.Name, s.Network.VF.ResourceName = "sf-vf-far", localcluster.ResourceVFFar
		})
		create(ctx, b)
		Eventually(func() string { return condition(get(ctx, b), v1alpha1.ConditionSucceeded).Message }).
			WithTimeout(soon).Should(And(ContainSubstring(v1alpha1.OutcomeTopologyAffinity), ContainSubstring("one NUMA node")))
		Eventually(func() string { return condition(get(ctx, b), v1alpha1.ConditionSucceeded).Reason }).
			WithTimeout(4 * time.Minute).Should(Equal(v1alpha1.ReasonFailed))
		Expect(get(ctx, b).Status.Attempts).To(HaveLen(3))
		Eventually(benchmarkPods).WithArguments(ctx).WithTimeout(soon).Should(BeEmpty())
	})

	It("an image that cannot be pulled is reported within seconds, and no pod hangs forever", needs("a manager whose flags it may change"), func(ctx context.Context) {
		setManagerArgs(ctx, "--bench-image=localhost/no-such-image:1", "--bench-image-pull-policy=IfNotPresent", "--pod-start-timeout=30s")
		b := benchmark("unpullable")
		create(ctx, b)
		Eventually(func() metav1.Condition { return condition(get(ctx, b), v1alpha1.ConditionSucceeded) }).WithTimeout(2 * soon).Should(And(
			HaveField("Reason", v1alpha1.OutcomeImagePullFailed),
			HaveField("Message", And(ContainSubstring("localhost/no-such-image:1"), ContainSubstring("--bench-image"))),
		))
		Eventually(func() string { return condition(get(ctx, b), v1alpha1.ConditionSucceeded).Reason }).
			WithTimeout(2 * time.Minute).Should(Equal(v1alpha1.ReasonFailed))
		Eventually(benchmarkPods).WithArguments(ctx).WithTimeout(soon).Should(BeEmpty())
	})
})

// nadNamed returns a NetworkAttachmentDefinition that takes its device from a resource.
func nadNamed(name, resource string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(foreign.GroupVersionKind)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetAnnotations(map[string]string{foreign.AnnotationResourceName: resource})
	return u
}

// setManagerArgs gives the manager other arguments until the spec ends.
func setManagerArgs(ctx context.Context, args ...string) {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	Expect(kube.Get(ctx, client.ObjectKey{Namespace: managerNamespace, Name: "manager"}, deployment)).To(Succeed())
	before := deployment.Spec.Template.Spec.Containers[0].Args
	set := func(ctx context.Context, args []string) {
		GinkgoHelper()
		patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": args}})
		Expect(err).NotTo(HaveOccurred())
		Expect(kube.Patch(ctx, deployment, client.RawPatch(types.JSONPatchType, patch))).To(Succeed())
		Expect(kubectl(ctx, GinkgoWriter, "-n", managerNamespace, "rollout", "status", "deployment/manager", "--timeout=60s")).To(Succeed())
		// A rollout does not wait for the end of the pods before, one of which may still lead.
		Eventually(managers).WithArguments(ctx).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(Equal(1))
	}
	DeferCleanup(set, before)
	set(ctx, args)
}

// configOf returns the CNI configuration of one of the local cluster's networks.
func configOf(ctx context.Context, name string) string {
	GinkgoHelper()
	network := nadNamed(name, "")
	Expect(kube.Get(ctx, client.ObjectKeyFromObject(network), network)).To(Succeed())
	config, _, err := unstructured.NestedString(network.Object, "spec", "config")
	Expect(err).NotTo(HaveOccurred())
	return config
}

// vfNetwork creates a network with VFs of another resource than the local cluster's own, until the spec ends.
func vfNetwork(ctx context.Context, name, resource string) {
	GinkgoHelper()
	network := nadNamed(name, resource)
	Expect(unstructured.SetNestedField(network.Object, configOf(ctx, "sf-vf"), "spec", "config")).To(Succeed())
	Expect(kube.Create(ctx, network)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(kube.Delete(ctx, network)).To(Succeed()) })
}
