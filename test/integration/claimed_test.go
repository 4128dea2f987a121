package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A benchmark of an extended resource that Dynamic Resource Allocation provides", func() {
	It("is accepted by class and slices, and records the device of each pod while the pod has its claim", func(ctx SpecContext) {
		const address = "0000:d8:02.0"
		w := NewWorld(ctx)
		installMultus()
		CreateNetwork(ctx, w.Namespace, "sf-vf", VF)
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").VF("sf-vf", VF).On(w.A, w.B))
		ExpectAccepted(ctx, b, "^False ResourceNotAdvertised: .*DeviceClass")

		create := func(o client.Object) {
			GinkgoHelper()
			Expect(k8s.Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, o))).To(Succeed()) })
		}
		for _, node := range []string{w.A, w.B} {
			create(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{
				Driver: "sriov.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
				Devices: []resourcev1.Device{{Name: "vf-0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
					"resource.kubernetes.io/pciBusID": {StringValue: new(address)},
				}}},
			}})
		}
		create(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}, Spec: resourcev1.DeviceClassSpec{
			ExtendedResourceName: new(VF),
			Selectors:            []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "sriov.example.com"`}}},
		}})

		By("refusing to align CPUs with a device that the kubelet does not align")
		CreateNetwork(ctx, w.Namespace, "net", "")
		borrower := MakeBenchmark(w.Namespace, "borrower").NAD("net").On(w.A, w.B)
		borrower.Spec.Network.NAD.AlignWith = VF
		ExpectAccepted(ctx, w.Create(ctx, borrower), "^False TopologyInsufficient: spec.network.nad.alignWith: Dynamic Resource Allocation provides "+VF)

		// claim creates the claim of a pod, as the scheduler does.
		claim := func(pod *corev1.Pod) {
			GinkgoHelper()
			c := &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: pod.Namespace, Name: pod.Name, Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
				},
				Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
					Name: "r0", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: w.Namespace, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
				}}}},
			}
			Expect(k8s.Create(ctx, c)).To(Succeed())
			c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "r0", Driver: "sriov.example.com", Pool: pod.Spec.NodeName, Device: "vf-0",
			}}}}
			Expect(k8s.Status().Update(ctx, c)).To(Succeed())
			pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: c.Name, RequestMappings: []corev1.ContainerExtendedResourceRequest{
				{ContainerName: pod.Spec.Containers[0].Name, ResourceName: VF, RequestName: "r0"},
			}}
		}
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.NetworkStatus(ctx, server, w.Namespace+"/sf-vf", "192.168.100.12")
		claim(server)
		w.Kubelet.Run(ctx, server)
		peer := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient)
		claim(peer)
		w.Kubelet.Run(ctx, peer)
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(b), b)).To(Succeed())
			g.Expect(b.Status.Active).To(And(HaveField("ServerDevice", address), HaveField("ClientDevice", address)))
		}).Should(Succeed())

		By("after the claims are gone")
		Expect(k8s.DeleteAllOf(ctx, &resourcev1.ResourceClaim{}, client.InNamespace(w.Namespace))).To(Succeed())
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		w.Kubelet.Gone(ctx, server, peer)
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(b), b)).To(Succeed())
		cm := &corev1.ConfigMap{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: b.Status.Stored[0].ConfigMap}, cm)).To(Succeed())
		stored, err := result.Open(cm, b.Status.Stored[0])
		Expect(err).NotTo(HaveOccurred())
		Expect([]string{stored.ClientSeen.ClaimedDevice, stored.ServerSeen.ClaimedDevice}).To(Equal([]string{address, address}))
	})
})
