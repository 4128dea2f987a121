package driven

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// installMultus makes the API server of the world know networks.
func installMultus() { present.Store.Install(foreign.GroupVersionKind) }

var _ = Describe("A benchmark that the cluster cannot carry out", func() {
	// change changes a node, including its status.
	change := func(ctx context.Context, name string, how func(*corev1.Node)) {
		GinkgoHelper()
		node := &corev1.Node{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
		how(node)
		status := node.Status
		Expect(k8s.Update(ctx, node)).To(Succeed())
		node.Status = status
		Expect(k8s.Status().Update(ctx, node)).To(Succeed())
	}
	allocatable := func(name corev1.ResourceName, quantity string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Allocatable[name] = resource.MustParse(quantity) }
	}

	DescribeTable("says why, and is measured as soon as it can be:",
		func(ctx SpecContext, reason, message string, make func(*World) *BenchmarkBuilder, spoil, mend func(context.Context, *World)) {
			w := NewWorld(ctx)
			if spoil != nil {
				spoil(ctx, w)
			}
			w.Start()
			b := w.Create(ctx, make(w))
			ExpectAccepted(ctx, b, "^False "+reason+": .*"+message)
			Expect(Condition(ctx, b, v1alpha1.ConditionSucceeded)).To(HavePrefix("Unknown NotAccepted: spec."))
			Expect(Get(ctx, b).Status.Active).To(BeNil())
			mend(ctx, w)
			ExpectAccepted(ctx, b, "^True")
			w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		},
		Entry("no node has the label", v1alpha1.ReasonNoMatchingNode, "placement.server.nodeSelector.*=right",
			func(w *World) *BenchmarkBuilder { return MakeBenchmark(w.Namespace, "x").On(w.A, "right") }, nil,
			func(ctx context.Context, w *World) {
				change(ctx, w.B, func(n *corev1.Node) { n.Labels[NodeLabel] = "right" })
			}),
		Entry("one node for both", v1alpha1.ReasonSameNode, "change a nodeSelector",
			func(w *World) *BenchmarkBuilder { return MakeBenchmark(w.Namespace, "x").On(w.A, w.A) }, nil,
			func(ctx context.Context, w *World) {
				change(ctx, w.B, func(n *corev1.Node) { n.Labels[NodeLabel] = w.A })
			}),
		Entry("a node is cordoned", v1alpha1.ReasonNodeNotReady, "uncordon node",
			func(w *World) *BenchmarkBuilder { return MakeBenchmark(w.Namespace, "x").On(w.A, w.B) },
			func(ctx context.Context, w *World) {
				change(ctx, w.A, func(n *corev1.Node) { n.Spec.Unschedulable = true })
			},
			func(ctx context.Context, w *World) {
				change(ctx, w.A, func(n *corev1.Node) { n.Spec.Unschedulable, n.Spec.Taints = false, nil })
			}),
		Entry("a node is not ready", v1alpha1.ReasonNodeNotReady, "not ready",
			func(w *World) *BenchmarkBuilder { return MakeBenchmark(w.Namespace, "x").On(w.A, w.B) },
			func(ctx context.Context, w *World) {
				change(ctx, w.B, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
			},
			func(ctx context.Context, w *World) {
				change(ctx, w.B, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
			}),
		Entry("too few CPUs", v1alpha1.ReasonInsufficientCPU, "5 requested.*more than 4",
			func(w *World) *BenchmarkBuilder { return MakeBenchmark(w.Namespace, "x").CPUs(5).On(w.A, w.B) }, nil,
			func(ctx context.Context, w *World) {
				change(ctx, w.A, allocatable(corev1.ResourceCPU, "8"))
				change(ctx, w.B, allocatable(corev1.ResourceCPU, "8"))
			}),
		Entry("too little memory", v1alpha1.ReasonInsufficientMemory, "9Gi requested.*more than 8Gi",
			func(w *World) *BenchmarkBuilder { return MakeBenchmark(w.Namespace, "x").Memory("9Gi").On(w.A, w.B) }, nil,
			func(ctx context.Context, w *World) {
				change(ctx, w.A, allocatable(corev1.ResourceMemory, "16Gi"))
				change(ctx, w.B, allocatable(corev1.ResourceMemory, "16Gi"))
			}),
		Entry("no Multus", v1alpha1.ReasonNetworkNotFound, "install Multus",
			func(w *World) *BenchmarkBuilder {
				return MakeBenchmark(w.Namespace, "x").NAD("net").On(w.A, w.B)
			},
			nil,
			func(ctx context.Context, w *World) {
				installMultus()
				CreateNetwork(ctx, w.Namespace, "net", "")
			}),
		Entry("no such network", v1alpha1.ReasonNetworkNotFound, "create it",
			func(w *World) *BenchmarkBuilder {
				return MakeBenchmark(w.Namespace, "x").NAD("net").On(w.A, w.B)
			},
			func(context.Context, *World) { installMultus() },
			// No controller watches networks: the benchmark is reconciled again every ten seconds, without an event.
			func(ctx context.Context, w *World) { CreateNetwork(ctx, w.Namespace, "net", "") }),
		Entry("the network takes another device", v1alpha1.ReasonNetworkMismatch, "set resourceName to that",
			func(w *World) *BenchmarkBuilder {
				return MakeBenchmark(w.Namespace, "x").VF("net", "amd.com/other").On(w.A, w.B)
			},
			func(ctx context.Context, w *World) { installMultus(); CreateNetwork(ctx, w.Namespace, "net", VF) },
			func(ctx context.Context, w *World) {
				// The spec may still change, because the benchmark was not accepted.
				b := &v1alpha1.LatencyBenchmark{}
				key := client.ObjectKey{Namespace: w.Namespace, Name: "x"}
				Expect(k8s.Get(ctx, key, b)).To(Succeed())
				b.Spec.Network.VF.ResourceName = VF
				Expect(k8s.Update(ctx, b)).To(Succeed())
				change(ctx, w.A, allocatable(VF, "4"))
				change(ctx, w.B, allocatable(VF, "4"))
			}),
		Entry("no node advertises the device", v1alpha1.ReasonResourceNotAdvertised, "device plugin",
			func(w *World) *BenchmarkBuilder {
				return MakeBenchmark(w.Namespace, "x").VF("net", VF).On(w.A, w.B)
			},
			func(ctx context.Context, w *World) { installMultus(); CreateNetwork(ctx, w.Namespace, "net", VF) },
			func(ctx context.Context, w *World) {
				change(ctx, w.A, allocatable(VF, "4"))
				change(ctx, w.B, allocatable(VF, "4"))
			}),
		Entry("no node advertises the device beside which the CPUs should be", v1alpha1.ReasonResourceNotAdvertised, "spec.network.nad.alignWith.*device plugin",
			func(w *World) *BenchmarkBuilder {
				b := MakeBenchmark(w.Namespace, "x").NAD("net").On(w.A, w.B)
				b.Spec.Network.NAD.AlignWith = VF
				return b
			},
			func(ctx context.Context, w *World) { installMultus(); CreateNetwork(ctx, w.Namespace, "net", "") },
			func(ctx context.Context, w *World) {
				change(ctx, w.A, allocatable(VF, "4"))
				change(ctx, w.B, allocatable(VF, "4"))
			}),
	)

	It("because of the host network says what the operator must allow", func(ctx SpecContext) {
		w := NewWorld(ctx)
		first := w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Host().On(w.A, w.B))
		ExpectAccepted(ctx, b, "^False HostNetworkForbidden: .*--allow-host-network")
		first.Stop()
		w.Settings.AllowHostNetwork = true
		w.Start()
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		Expect(server.Spec.HostNetwork).To(BeTrue())
	})

	It("because of the image of a user's program says what the operator must allow, and then runs it beside the agent", func(ctx SpecContext) {
		w := NewWorld(ctx)
		first := w.Start()
		builder := MakeBenchmark(w.Namespace, "x").On(w.A, w.B)
		program := v1alpha1.CustomProgram{Command: []string{"/app/engine"}, CPUs: 1}
		builder.Spec.Tool = v1alpha1.ToolCustom
		builder.Spec.Custom = &v1alpha1.Custom{Image: "team/engine:1", Client: program, Server: program, Output: v1alpha1.CustomOutput{Format: v1alpha1.CustomValues, Unit: "ns"}}
		b := w.Create(ctx, builder)
		ExpectAccepted(ctx, b, "^False ImageForbidden: spec.custom.image: the operator does not allow docker.io/team/engine:1 .*--custom-images.*now: none")
		first.Stop()
		w.Settings.CustomImages = []string{"docker.io/teams", "team"}
		second := w.Start()
		ExpectAccepted(ctx, b, "^False ImageForbidden: .*now: docker.io/teams, team")
		second.Stop()
		w.Settings.CustomImages = []string{"docker.io/team"}
		w.Start()
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		Expect(server.Spec.Containers[0].Image).To(Equal("docker.io/team/engine:1"))
		Expect(server.Spec.Containers[0].Command).To(Equal([]string{"/opt/tailgate/usr/local/bin/tailgate-agent"}))
		Expect(server.Spec.Volumes).To(ContainElement(HaveField("Image.Reference", w.Settings.BenchImage)))
		w.Kubelet.Measure(ctx, "x-r1", 1)
		Eventually(func() []v1alpha1.CellResult { return Get(ctx, b).Status.Results }).Should(HaveLen(1))
	})
})

var _ = Describe("A benchmark of a secondary network", func() {
	It("borrows a device of the NIC at both ends, without attaching it", func(ctx SpecContext) {
		w := NewWorld(ctx)
		installMultus()
		CreateNetwork(ctx, w.Namespace, "macvlan", "")
		for _, name := range []string{"c", "d"} {
			n := MakeNode(w.Namespace + "-" + name)
			n.Status.Allocatable[VF] = resource.MustParse("1")
			w.AddNode(ctx, n)
		}
		w.Start()
		builder := MakeBenchmark(w.Namespace, "x").NAD("macvlan").On(w.Namespace+"-c", w.Namespace+"-d")
		builder.Spec.Network.NAD.AlignWith = VF
		w.Create(ctx, builder)
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.NetworkStatus(ctx, server, w.Namespace+"/macvlan", "192.168.100.12")
		w.Kubelet.Run(ctx, server)
		for _, pod := range []*corev1.Pod{server, w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient)} {
			Expect(pod.Annotations).To(HaveKeyWithValue(foreign.AnnotationNetworks,
				`[{"name":"macvlan","namespace":"`+w.Namespace+`","interface":"net1"}]`))
			for _, list := range []corev1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
				Expect(list).To(HaveKeyWithValue(corev1.ResourceName(VF), resource.MustParse("1")))
			}
			task, err := TaskOf(pod)
			Expect(err).NotTo(HaveOccurred())
			Expect(task.Borrowed).To(BeTrue())
			Expect(task.Interface).To(Equal(pods.Interface))
		}
	})

	It("gives the client the server's address there", func(ctx SpecContext) {
		w := NewWorld(ctx)
		installMultus()
		CreateNetwork(ctx, w.Namespace, "sf-vf", VF)
		for _, name := range []string{"c", "d"} {
			n := MakeNode(w.Namespace + "-" + name)
			n.Status.Allocatable[VF] = resource.MustParse("4")
			w.AddNode(ctx, n)
		}
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").VF("sf-vf", VF).On(w.Namespace+"-c", w.Namespace+"-d"))

		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		Expect(server.Annotations).To(HaveKeyWithValue(foreign.AnnotationNetworks,
			`[{"name":"sf-vf","namespace":"`+w.Namespace+`","interface":"net1"}]`))
		Expect(server.Spec.Containers[0].Resources.Limits).To(HaveKey(corev1.ResourceName(VF)))
		w.Kubelet.Run(ctx, server)
		ExpectSucceeded(ctx, b, "^Unknown Starting: .*Multus")
		w.NoPod(ctx, b, "x-r1", 1, v1alpha1.RoleClient)

		w.Kubelet.NetworkStatus(ctx, server, w.Namespace+"/sf-vf", "192.168.100.12")
		peer := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient)
		task, err := TaskOf(peer)
		Expect(err).NotTo(HaveOccurred())
		Expect(task.ServerAddress).To(Equal("192.168.100.12"))
		Expect(task.Interface).To(Equal(pods.Interface))
		w.Kubelet.Run(ctx, peer)
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		w.Kubelet.Gone(ctx, server, peer)
		ExpectSucceeded(ctx, b, "^True Complete")
	})
})
