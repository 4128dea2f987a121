//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/dradriver"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

// short changes a benchmark to one short round.
func short(s *v1alpha1.LatencyBenchmarkSpec) {
	s.Rounds = 1
	s.Workload.Duration, s.Workload.Warmup = metav1.Duration{Duration: 300 * time.Millisecond}, metav1.Duration{Duration: 50 * time.Millisecond}
}

// slowest adds a rule that any measurement with a proved placement passes, and as many rounds as a verdict needs.
func slowest(s *v1alpha1.LatencyBenchmarkSpec) {
	s.Rounds = 6
	s.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricMin, Max: v1alpha1.Limit{Text: "1s"}}}}
}

// single changes a benchmark to one round, which is enough to see why nothing is concluded.
func single(s *v1alpha1.LatencyBenchmarkSpec) { s.Rounds = 1 }

// line returns a line of an endpoint's proof.
func line(e v1alpha1.Endpoint, check string) v1alpha1.ProofLine {
	GinkgoHelper()
	i := slices.IndexFunc(e.Proof, func(l v1alpha1.ProofLine) bool { return l.Check == check })
	Expect(i).To(BeNumerically(">=", 0), "%s has no line %s: %v", e.Role, check, e.Proof)
	return e.Proof[i]
}

// warning returns a warning of a benchmark by its reason; the zero value if there is none.
func warning(b *v1alpha1.LatencyBenchmark, reason string) v1alpha1.Warning {
	i := slices.IndexFunc(b.Status.Warnings, func(w v1alpha1.Warning) bool { return w.Reason == reason })
	if i < 0 {
		return v1alpha1.Warning{}
	}
	return b.Status.Warnings[i]
}

// tenant creates another user's pod that takes VFs of the near pool and whole CPUs on a node. With 0 CPUs it requests none: a node of
// the local cluster has a single one for pods, which the benchmarks need. It returns the PCI address of the VF that is
// attached to the pod, if the values name a network and the status has its device.
func tenant(ctx context.Context, node string, vfs, cpus int64) string {
	GinkgoHelper()
	resources := corev1.ResourceList{
		corev1.ResourceMemory:                     resource.MustParse("16Mi"),
		corev1.ResourceName(here.VF.ResourceName): *resource.NewQuantity(vfs, resource.DecimalSI),
	}
	if cpus > 0 {
		resources[corev1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant-" + node, Namespace: namespace},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: node},
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name: "tenant", Image: benchImage(ctx), Command: []string{"netserver", "-D"},
				Resources: corev1.ResourceRequirements{Requests: resources, Limits: resources},
			}},
		},
	}
	if here.VF.NetworkRef != nil {
		pod.Annotations = map[string]string{foreign.AnnotationNetworks: fmt.Sprintf(`[{"name": %q, "namespace": %q, "interface": "net1"}]`, here.VF.NetworkRef.Name, namespace)}
	}
	Expect(kube.Create(ctx, pod)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(kube.Delete(ctx, pod))).To(Succeed())
		Eventually(func() error { return kube.Get(ctx, client.ObjectKeyFromObject(pod), pod) }).WithTimeout(soon).ShouldNot(Succeed())
	})
	Eventually(func() []corev1.ContainerStatus {
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		return pod.Status.ContainerStatuses
	}).WithTimeout(soon).Should(ContainElement(HaveField("Ready", true)))
	if here.VF.NetworkRef == nil {
		return ""
	}
	status, err := foreign.FindStatus(pod.Annotations[foreign.AnnotationNetworkStatus], namespace+"/"+here.VF.NetworkRef.Name, "net1")
	Expect(err).NotTo(HaveOccurred())
	if status.DeviceInfo == nil {
		return "" // Multus itself, unlike that of the local cluster, reports it only if the device plugin left a file
	}
	return status.DeviceInfo.PCI.Address
}

// classForClaimedVFs creates a DeviceClass that provides the local cluster's VFs of Dynamic Resource Allocation as an
// extended resource, until the spec ends.
func classForClaimedVFs(ctx context.Context) {
	GinkgoHelper()
	class := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "sf-vf-claimed"},
		Spec: resourcev1.DeviceClassSpec{
			ExtendedResourceName: new(localcluster.ResourceVFClaimed),
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
				Expression: fmt.Sprintf(`device.driver == %q && device.attributes[%[1]q].resourceName == %q`, dradriver.Name, localcluster.ResourceVFClaimed),
			}}},
		},
	}
	Expect(kube.Create(ctx, class)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(kube.Delete(ctx, class))).To(Succeed()) })
	// A kubelet that starts deletes the ResourceSlices of its node. The driver publishes them again half a minute later.
	Eventually(func(g Gomega) map[string]bool {
		slices := &resourcev1.ResourceSliceList{}
		g.Expect(kube.List(ctx, slices)).To(Succeed())
		nodes := map[string]bool{}
		for _, s := range slices.Items {
			if s.Spec.Driver == dradriver.Name && s.Spec.NodeName != nil {
				nodes[*s.Spec.NodeName] = true
			}
		}
		return nodes
	}).WithTimeout(measured).WithPolling(200 * time.Millisecond).Should(HaveLen(2))
}

var _ = Describe("Placement", Label("placement"), func() {
	It("compares every way to the peer in one table, with a device of its own for each, and proves each", func(ctx context.Context) {
		network := vfs()
		if network.VF.IPAM == nil {
			network.VF.NetworkRef, network.VF.IPAM = nil, &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "198.18.77.0/24"}
		}
		network.VF.MTU = here.MTU
		taken := tenant(ctx, here.Client, 1, 0)
		b := benchmark("ways", short, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Rounds = 2
			if here.HostNetwork {
				s.Variants = append(s.Variants, v1alpha1.Variant{Name: "host", Network: &v1alpha1.Network{Type: v1alpha1.NetworkHost}})
			}
			s.Variants = append(s.Variants, v1alpha1.Variant{Name: "pod", Network: &v1alpha1.Network{Type: v1alpha1.NetworkPod}}, v1alpha1.Variant{Name: "vf", Network: &network})
			if here.PF != nil {
				s.Variants = append(s.Variants, v1alpha1.Variant{Name: "pf", Network: new(pfs())})
			}
			if here.Onload != "" {
				s.Variants = append(s.Variants, v1alpha1.Variant{Name: "onload", Network: &network, Acceleration: &v1alpha1.Acceleration{
					Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{ResourceName: here.Onload, Profile: v1alpha1.OnloadProfileLatency},
				}})
			}
		})
		create(ctx, b)
		b = completesWithin(ctx, 8*time.Minute, b)
		Expect(report.Table(GinkgoWriter, b)).To(Succeed())
		Expect(kubectl(ctx, GinkgoWriter, "get", "lbench", "-n", namespace, "-o", "wide")).To(Succeed())

		By("a line for each variant, with its ratio to the first")
		Expect(b.Status.Results).To(HaveLen(len(b.Spec.Variants)))
		for _, r := range b.Status.Results[1:] {
			Expect(r.Ratios).NotTo(BeEmpty(), r.Variant)
		}
		Expect(b.Status.Summary.Variants).To(HavePrefix(b.Spec.Variants[0].Name + " 1.000, "))
		for _, v := range b.Spec.Variants {
			Expect(b.Status.Summary.Variants).To(ContainSubstring(v.Name + " "))
		}
		Expect(b.Status.Summary.Placement).To(Equal(v1alpha1.PlacementVerified))

		By("what the agents proved")
		Expect(b.Status.Endpoints).To(HaveLen(2 * len(b.Spec.Variants)))
		for _, e := range b.Status.Endpoints {
			what := e.Variant + ", " + e.Role
			Expect(e.Placement).To(Equal(v1alpha1.PlacementVerified), "%s: %v", what, e.Proof)
			// Where one kernel simulates both nodes, the counters show the other end and the cluster's own processes.
			Expect(line(e, v1alpha1.ProofCPUsExclusive)).To(Or(HaveField("State", v1alpha1.ProofProved),
				And(HaveField("State", v1alpha1.ProofNoted), HaveField("Found", HaveSuffix("both nodes are simulated on one machine")))), what)
			Expect(line(e, v1alpha1.ProofMTU).State).To(Equal(v1alpha1.ProofProved), what)
			Expect(line(e, v1alpha1.ProofAcceleration).State).To(Equal(v1alpha1.ProofProved), what)
			switch e.Variant {
			case "vf", "pf":
				for _, check := range []string{v1alpha1.ProofDevice, v1alpha1.ProofFunction, v1alpha1.ProofNUMALocal} {
					Expect(line(e, check).State).To(Equal(v1alpha1.ProofProved), "%s: %v", what, line(e, check))
				}
				Expect(line(e, v1alpha1.ProofFunction).Found).To(ContainSubstring(strings.ToUpper(e.Variant)))
			case "host":
				Expect(e.Interface).NotTo(Equal("net1"))
			}
			if e.Variant == "vf" {
				Expect(e.MTU).To(Equal(here.MTU))
				Expect(netip.MustParsePrefix(network.VF.IPAM.Range).Contains(netip.MustParseAddr(e.Address))).To(BeTrue(), e.Address)
				if e.Node == here.Client && taken != "" {
					Expect(e.PCIAddress).NotTo(Equal(taken))
				}
			}
		}
		By("no network of the operator's outlives its benchmark")
		Expect(kube.Delete(ctx, b)).To(Succeed())
		Eventually(func() error {
			return kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "ways-vf"}, foreign.Object())
		}).WithTimeout(collected).ShouldNot(Succeed())
	})

	It("measures over a VF of Dynamic Resource Allocation that is requested as an extended resource", needs("the local DRA driver"), func(ctx context.Context) {
		b := benchmark("claimed", short, single, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Network = v1alpha1.Network{
				Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: localcluster.ResourceVFClaimed, IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "198.18.78.0/24"}}},
			}
		})
		create(ctx, b)
		Eventually(func() metav1.Condition { return condition(get(ctx, b), v1alpha1.ConditionAccepted) }).WithTimeout(soon).Should(And(
			HaveField("Reason", v1alpha1.ReasonResourceNotAdvertised), HaveField("Message", ContainSubstring("DeviceClass"))))

		By("a DeviceClass that names the resource")
		classForClaimedVFs(ctx)
		b = eventuallyCompletes(ctx, b)
		Expect(report.Table(GinkgoWriter, b)).To(Succeed())
		Expect(condition(b, v1alpha1.ConditionAccepted).Message).To(ContainSubstring("topology manager"))
		Expect(b.Status.Summary.Placement).To(Equal(v1alpha1.PlacementVerified))
		Expect(b.Status.Attempts).To(HaveLen(1))
		for _, e := range b.Status.Endpoints {
			Expect(allocatable(ctx, e.Node, localcluster.ResourceVFClaimed)).To(BeZero())
			Expect(e.Placement).To(Equal(v1alpha1.PlacementVerified), "%s: %v", e.Role, e.Proof)
			Expect(line(e, v1alpha1.ProofDevice)).To(And(
				HaveField("State", v1alpha1.ProofProved), HaveField("Found", MatchRegexp(`^0000:d8:02\.[01], by environment, sysfs, network-status, ResourceClaim$`))))
			Expect(line(e, v1alpha1.ProofNUMALocal).State).To(Equal(v1alpha1.ProofProved))
		}
	})

	It("waits for a device plugin that exits when interfaces move, and no try is lost", needs("a device plugin that exits"), SpecPriority(1), func(ctx context.Context) {
		for _, node := range []string{"node-a", "node-b"} {
			Expect(localcluster.StartFragilePlugin(ctx, options, node)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(localcluster.KillFragilePlugin(ctx, options, node)).To(Succeed()) })
		}
		for _, node := range []string{"node-a", "node-b"} {
			Eventually(allocatable).WithArguments(ctx, node, corev1.ResourceName(localcluster.ResourceFragile)).WithTimeout(soon).Should(BeNumerically(">", 0))
		}
		over := func(resource, addresses string) *v1alpha1.Network {
			return &v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: resource, IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: addresses}}}}
		}
		b := benchmark("fragile", short, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Rounds = 3
			s.Placement.NUMAPolicy = v1alpha1.NUMAPreferred
			s.Variants = []v1alpha1.Variant{
				{Name: "fragile", Network: over(localcluster.ResourceFragile, "198.18.80.0/24")},
				{Name: "pod", Network: &v1alpha1.Network{Type: v1alpha1.NetworkPod}},
				{Name: "vf", Network: over(localcluster.ResourceVF, "198.18.81.0/24")},
			}
		})
		waits := map[string]bool{}
		create(ctx, b)
		Eventually(func() metav1.Condition {
			b = get(ctx, b)
			if c := condition(b, v1alpha1.ConditionSucceeded); b.Status.DeviceWaitStartTime != nil && !waits[c.Message] {
				waits[c.Message] = true
				GinkgoWriter.Printf("%s %s: %s\n", time.Now().UTC().Format("15:04:05.0"), c.Reason, c.Message)
			}
			return condition(b, v1alpha1.ConditionSucceeded)
		}).WithTimeout(8 * time.Minute).Should(Or(HaveField("Status", metav1.ConditionTrue), HaveField("Status", metav1.ConditionFalse)))
		outcomes := map[string]int{}
		for _, a := range b.Status.Attempts {
			GinkgoWriter.Printf("%s to %s %s, attempt %d: %s %s\n", a.StartTime.UTC().Format("15:04:05.0"), a.Outcome.CompletionTime.UTC().Format("15:04:05.0"), a.Run, a.Attempt, a.Outcome.Reason, a.Outcome.Message)
			outcomes[a.Outcome.Reason]++
		}
		Expect(condition(b, v1alpha1.ConditionSucceeded).Reason).To(Equal(v1alpha1.ReasonComplete))
		Expect(outcomes).To(HaveKeyWithValue(v1alpha1.OutcomeMeasured, 9))
		delete(outcomes, v1alpha1.OutcomeMeasured)
		delete(outcomes, v1alpha1.OutcomeDevicePluginUnavailable)
		Expect(outcomes).To(BeEmpty(), "attempts that count as failed")
		Expect(waits).NotTo(BeEmpty(), "the plugin was always there")
	})

	It("waits while other pods have the devices, names them, and continues when they are free", func(ctx context.Context) {
		b := benchmark("patient", short, overVFs)
		all := allocatable(ctx, here.Server, corev1.ResourceName(here.VF.ResourceName))
		if all == 0 {
			Skip("vf.resourceName is not of a device plugin")
		}
		tenant(ctx, here.Server, all, 0)
		create(ctx, b)
		Eventually(func() metav1.Condition { return condition(get(ctx, b), v1alpha1.ConditionAccepted) }).WithTimeout(soon).Should(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Reason", v1alpha1.ReasonNodeBusy),
			HaveField("Message", And(ContainSubstring("tenant-"+here.Server), ContainSubstring(here.VF.ResourceName))),
		))
		Expect(kube.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant-" + here.Server}})).To(Succeed())
		eventuallyCompletes(ctx, b)
	})

	It("holds off while a node is cordoned, unless the benchmark tolerates it", func(ctx context.Context) {
		Expect(kubectl(ctx, GinkgoWriter, "cordon", here.Server)).To(Succeed())
		uncordon := func(ctx context.Context) {
			Expect(kubectl(ctx, GinkgoWriter, "uncordon", here.Server)).To(Succeed())
		}
		DeferCleanup(uncordon)
		held := benchmark("held", short)
		create(ctx, held)
		Eventually(func() string { return condition(get(ctx, held), v1alpha1.ConditionAccepted).Message }).
			WithTimeout(soon).Should(ContainSubstring("cordoned"))
		tolerant := benchmark("tolerant", short, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Pods = &v1alpha1.PodSettings{Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}}
		})
		create(ctx, tolerant)
		eventuallyCompletes(ctx, tolerant)
		Expect(get(ctx, held).Status.Pair).To(BeNil())
		uncordon(ctx)
		eventuallyCompletes(ctx, held)
	})

	It("of a VF without a NUMA hint is reported, and blocks a verdict only where it was required", needs("VFs without a hint"), func(ctx context.Context) {
		vfNetwork(ctx, "sf-vf-nohint", localcluster.ResourceVFNoHint)
		anywhere := func(numa v1alpha1.NUMAPolicy) func(*v1alpha1.LatencyBenchmarkSpec) {
			return func(s *v1alpha1.LatencyBenchmarkSpec) {
				s.Network = v1alpha1.Network{
					Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: localcluster.ResourceVFNoHint, NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf-nohint"}}},
				}
				s.Placement.NUMAPolicy = numa
			}
		}
		preferred := benchmark("preferred", short, slowest, anywhere(v1alpha1.NUMAPreferred))
		create(ctx, preferred)
		required := benchmark("required", short, slowest, anywhere(v1alpha1.NUMARequired), single)
		create(ctx, required)
		for _, b := range []*v1alpha1.LatencyBenchmark{preferred, required} {
			b = eventuallyCompletes(ctx, b)
			Expect(warning(b, v1alpha1.WarningNUMAMismatch).Message).To(ContainSubstring("NUMA node"), b.Name)
			Expect(b.Status.Summary.Placement).To(Equal(v1alpha1.PlacementUnverified), b.Name)
			for _, e := range b.Status.Endpoints {
				Expect(e.Placement).To(Equal(v1alpha1.PlacementUnverified))
				Expect(line(e, v1alpha1.ProofNUMALocal).State).To(Equal(v1alpha1.ProofFailed))
				Expect(line(e, v1alpha1.ProofDevice).State).To(Equal(v1alpha1.ProofProved))
			}
		}
		Eventually(passed).WithArguments(ctx, preferred).WithTimeout(soon).Should(HaveField("Reason", v1alpha1.ReasonPass))
		Expect(passed(ctx, required)).To(And(
			HaveField("Reason", v1alpha1.ReasonInconclusive), HaveField("Message", ContainSubstring("NUMA"))))
	})

	It("of the host's network and of macvlan is beside the NIC with a borrowed VF; far from it, nothing is concluded", needs("cards with addresses"), func(ctx context.Context) {
		const near, far = "ens1f0", "ens2f0"
		for i, node := range []string{here.Client, here.Server} {
			for iface, subnet := range map[string]int{near: 92, far: 93} {
				remove, err := localcluster.AddAddress(options, node, iface, fmt.Sprintf("198.18.%d.%d/24", subnet, i+1))
				Expect(err).NotTo(HaveOccurred())
				DeferCleanup(remove)
			}
		}
		borrowed := v1alpha1.Alignment{AlignWith: localcluster.ResourceVF}
		vf := &v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{
			ResourceName: localcluster.ResourceVF, MTU: here.MTU, IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "198.18.94.0/24"},
		}}}
		host := func(iface string, a v1alpha1.Alignment) *v1alpha1.Network {
			return &v1alpha1.Network{Type: v1alpha1.NetworkHost, Host: &v1alpha1.HostNetwork{Interface: iface, Alignment: a}}
		}
		against := func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Criteria = &v1alpha1.Criteria{
				Rules:    []v1alpha1.Rule{{Metric: v1alpha1.MetricMin, MaxIncrease: v1alpha1.Limit{Text: "1000%"}, Variants: []string{"vf"}}},
				Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: "host"}},
			}
		}
		aligned := benchmark("aligned", short, against, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Rounds = 6
			macvlan := &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: "macvlan-9000"}, Alignment: borrowed}
			s.Variants = []v1alpha1.Variant{
				{Name: "host", Network: host(near, borrowed)}, {Name: "macvlan", Network: &v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: macvlan}}, {Name: "vf", Network: vf},
			}
		})
		create(ctx, aligned)
		unaligned := benchmark("unaligned", short, single, against, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Rounds = 4
			s.Variants = []v1alpha1.Variant{{Name: "host", Network: host(far, v1alpha1.Alignment{})}, {Name: "vf", Network: vf}}
		})
		create(ctx, unaligned)

		aligned = completesWithin(ctx, 8*time.Minute, aligned)
		Expect(report.Table(GinkgoWriter, aligned)).To(Succeed())
		Expect(aligned.Status.Endpoints).To(HaveLen(6))
		for _, e := range aligned.Status.Endpoints {
			what := e.Variant + ", " + e.Role
			Expect(e.Placement).To(Equal(v1alpha1.PlacementVerified), "%s: %v", what, e.Proof)
			l := line(e, v1alpha1.ProofNUMALocal)
			GinkgoWriter.Println(what+":", l.State, l.Found)
			Expect(l.State).To(Equal(v1alpha1.ProofProved), what)
			if e.Variant != "vf" {
				Expect(l.Found).To(MatchRegexp(`; aligned with %s \(0000:3b:02\.[0-3]\) on %d$`, localcluster.ResourceVF, e.CPUNUMANode), what)
				Expect(e.PCIAddress).To(Equal("0000:3b:00.0"), what)
			}
		}
		Eventually(passed).WithArguments(ctx, aligned).WithTimeout(soon).Should(HaveField("Reason", v1alpha1.ReasonPass))

		unaligned = eventuallyCompletes(ctx, unaligned)
		for _, e := range unaligned.Status.Endpoints {
			if e.Variant == "host" {
				Expect(line(e, v1alpha1.ProofNUMALocal).State).To(Equal(v1alpha1.ProofFailed))
			}
		}
		Expect(warning(unaligned, v1alpha1.WarningNUMAMismatch).Message).To(ContainSubstring("alignWith"))
		Eventually(passed).WithArguments(ctx, unaligned).WithTimeout(soon).Should(And(
			HaveField("Reason", v1alpha1.ReasonInconclusive), HaveField("Message", ContainSubstring(`numa.relation "remote", then "local"`))))
	})
})

var _ = Describe("Sabotage", Label("placement"), func() {
	// caught waits for a benchmark whose rule any numbers pass, and expects a failed line of proof, and no verdict for that
	// reason.
	caught := func(ctx context.Context, b *v1alpha1.LatencyBenchmark, check, reason string) *v1alpha1.LatencyBenchmark {
		GinkgoHelper()
		b = eventuallyCompletes(ctx, b)
		Expect(report.Table(GinkgoWriter, b)).To(Succeed())
		Expect(warning(b, reason).Message).NotTo(BeEmpty(), "%v", b.Status.Warnings)
		Expect(b.Status.Summary.Placement).To(Equal(v1alpha1.PlacementUnverified))
		Expect(slices.ContainsFunc(b.Status.Endpoints, func(e v1alpha1.Endpoint) bool {
			return e.Placement == v1alpha1.PlacementUnverified && line(e, check).State == v1alpha1.ProofFailed
		})).To(BeTrue(), "%v", b.Status.Endpoints)
		Eventually(passed).WithArguments(ctx, b).WithTimeout(soon).Should(HaveField("Reason", v1alpha1.ReasonInconclusive))
		Expect(get(ctx, b).Status.Verdict.Rules[0].Reason).To(Equal(reason))
		return b
	}
	It("an MTU that one end's interface does not have", needs("an interface that it may change"), func(ctx context.Context) {
		Expect(localcluster.SetMTU(options, "node-b", localcluster.ResourceVF, 1400)).To(Succeed())
		DeferCleanup(func() { Expect(localcluster.SetMTU(options, "node-b", localcluster.ResourceVF, 1500)).To(Succeed()) })
		b := benchmark("mtus", short, slowest, single, overVFs)
		create(ctx, b)
		b = caught(ctx, b, v1alpha1.ProofMTU, v1alpha1.WarningMTUMismatch)
		Expect(warning(b, v1alpha1.WarningMTUMismatch).Message).To(ContainSubstring("1400"))
		// The MTU of a device cannot be restored while a pod has it.
		Expect(kube.Delete(ctx, b)).To(Succeed())
		eventuallyNothingLeft(ctx)
	})

	It("a network that attaches another device than the one allocated", needs("a device whose name it knows"), func(ctx context.Context) {
		network := nadNamed("other-device", localcluster.ResourceVF)
		// No device plugin has this VF: the kubelet could allocate any VF of the resource itself.
		network.Object["spec"] = map[string]any{"config": `{"cniVersion": "1.0.0", "name": "other-device", "type": "host-device", "device": "ens4f0v0",
			"ipam": {"type": "host-local", "dataDir": "` + filepath.Dir(localcluster.Kubeconfig(options)) + `/ipam", "subnet": "198.18.79.0/24"}}`}
		Expect(kube.Create(ctx, network)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(kube.Delete(ctx, network))).To(Succeed()) })
		b := benchmark("other", short, slowest, single, overVFs, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Network.VF.NetworkRef.Name = "other-device" })
		create(ctx, b)
		caught(ctx, b, v1alpha1.ProofDevice, v1alpha1.WarningDeviceUnproved)
	})

	It("a network-status that describes another pod's interface", func(ctx context.Context) {
		b := benchmark("stale", short, slowest, single, overVFs, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Workload.Duration.Duration = 10 * time.Second })
		create(ctx, b)
		eventuallyMeasures(ctx, b)
		active := get(ctx, b).Status.Active
		Expect(active).NotTo(BeNil())
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-a%d-client", active.Run, active.Attempt)}}
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		var status []map[string]any
		Expect(json.Unmarshal([]byte(pod.Annotations[foreign.AnnotationNetworkStatus]), &status)).To(Succeed())
		for _, s := range status {
			if s["interface"] == "net1" {
				s["mac"] = "0a:58:00:00:00:01"
			}
		}
		stale, err := json.Marshal(status)
		Expect(err).NotTo(HaveOccurred())
		before := pod.DeepCopy()
		pod.Annotations[foreign.AnnotationNetworkStatus] = string(stale)
		Expect(kube.Patch(ctx, pod, client.MergeFrom(before))).To(Succeed())
		caught(ctx, b, v1alpha1.ProofDevice, v1alpha1.WarningDeviceUnproved)
	})

	It("an Onload library that is not there", needs("a device plugin without library"), func(ctx context.Context) {
		// The resource is advertised as by a device plugin of Onload that mounts nothing.
		const onload = "tailgate.test/onload"
		for _, node := range []string{"node-a", "node-b"} {
			advertise(ctx, node, onload, "100")
			DeferCleanup(func(ctx context.Context) { advertise(ctx, node, onload, "") })
		}
		b := benchmark("onload", short, overVFs, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Acceleration = &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{ResourceName: onload, Profile: v1alpha1.OnloadProfileLatency}}
		})
		create(ctx, b)
		Eventually(func() metav1.Condition { return condition(get(ctx, b), v1alpha1.ConditionSucceeded) }).WithTimeout(time.Minute).Should(And(
			HaveField("Reason", v1alpha1.ReasonFailed),
			HaveField("Message", And(ContainSubstring(v1alpha1.OutcomeAccelerationFailed), ContainSubstring("libonload.so"))),
		))
		Expect(get(ctx, b).Status.Attempts).To(HaveLen(1), "a missing library does not come by trying again")
	})

	It("CPUs that are shared, because the kubelet has no static policy", needs("a kubelet that it may configure"), func(ctx context.Context) {
		Expect(localcluster.StopPinning(ctx, options, "node-b")).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(localcluster.Up(ctx, options)).To(Succeed()) })
		b := benchmark("shared", short, slowest, single)
		create(ctx, b)
		b = caught(ctx, b, v1alpha1.ProofCPUsExclusive, v1alpha1.WarningCPUsNotExclusive)
		Expect(warning(b, v1alpha1.WarningCPUsNotExclusive).Message).To(ContainSubstring("cpuManagerPolicy: static"))
	})
})

// A mesh without sidecars changes nothing in a pod's spec: only the counters of the pod's network namespace show its proxy.
var _ = Describe("A proxy in a pod's network namespace", Label("placement"), needs("a pod's network namespace"), func() {
	It("that takes over the tool's connections is found, and its end is not proved", func(ctx context.Context) {
		b := benchmark("redirected", single, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Network = v1alpha1.Network{Type: v1alpha1.NetworkPod}
			s.Workload.Protocols = []v1alpha1.Protocol{v1alpha1.ProtocolTCP}
			s.Workload.Duration.Duration = 2 * time.Second
		})
		create(ctx, b)
		By("redirecting the port of the tool's server before the client's pod has a node")
		Eventually(func() string {
			pod := &corev1.Pod{}
			Expect(client.IgnoreNotFound(kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: b.Name + "-r1-a1-server"}, pod))).To(Succeed())
			return pod.Spec.NodeName
		}).WithTimeout(measured).WithPolling(20 * time.Millisecond).Should(Equal("node-b"))
		scheduler(ctx, false)
		DeferCleanup(scheduler, true)
		var agents []int
		Eventually(func() []int { agents = processesIn("node-b", "tailgate-agent"); return agents }).WithTimeout(measured).WithPolling(20 * time.Millisecond).Should(HaveLen(1))
		server, err := netpair.Of(agents[0])
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Close)
		proxy, err := server.Redirect(plan.ToolPort)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(proxy.Close)
		scheduler(ctx, true)

		b = eventuallyCompletes(ctx, b)
		for _, e := range b.Status.Endpoints {
			l := line(e, v1alpha1.ProofAcceleration)
			AddReportEntry(e.Role + ": " + string(l.State) + ": " + l.Found)
			if e.Role == v1alpha1.RoleServer {
				Expect(l.State).To(Equal(v1alpha1.ProofFailed), l.Found)
				Expect(l.Found).To(ContainSubstring("packets went over the loopback interface"))
			} else {
				Expect(l.State).To(Equal(v1alpha1.ProofProved), l.Found)
			}
		}
		Expect(warning(b, v1alpha1.WarningRedirected).Message).To(ContainSubstring("take the namespace of the benchmark out of the mesh"))
	})
})

var _ = Describe("Benchmarks that want the same nodes", Label("placement"), func() {
	It("are measured in order, by priority, and never two on a node", func(ctx context.Context) {
		w := watchPods(ctx)
		const last = 4
		var all []*v1alpha1.LatencyBenchmark
		for i := range last + 1 {
			b := benchmark(fmt.Sprintf("crowd-%d", i), short, func(s *v1alpha1.LatencyBenchmarkSpec) {
				switch i {
				case 1:
					// The roles are swapped and the network differs: the conflict is about nodes.
					overVFs(s)
					s.Placement.Client, s.Placement.Server = s.Placement.Server, s.Placement.Client
				case last:
					// It comes last but is urgent, and overtakes all that only wait.
					s.Priority = 100
				}
			})
			create(ctx, b)
			all = append(all, b)
		}
		Eventually(func() string { return condition(get(ctx, all[last-1]), v1alpha1.ConditionSucceeded).Message }).
			WithTimeout(soon).Should(ContainSubstring("is measuring on node"))
		for i, b := range all {
			all[i] = eventuallyCompletes(ctx, b)
		}
		w.end()
		Expect(w.overlaps).To(BeEmpty())
		for i, b := range all {
			measuredOnce(b, w)
			if i > 0 && i < last {
				// Creation times have whole seconds. Benchmarks of one second are ordered by name, which gives the same order here.
				Expect(b.Status.StartTime.Before(all[i-1].Status.StartTime)).To(BeFalse(), "%s before %s", b.Name, all[i-1].Name)
			}
		}
		Expect(all[last].Status.StartTime.Before(all[last-1].Status.StartTime)).To(BeTrue())
		By("comparing what the pods' own timestamps say")
		for _, a := range w.all {
			for _, b := range w.all {
				if a.Labels[v1alpha1.LabelBenchmark] != b.Labels[v1alpha1.LabelBenchmark] && a.Spec.NodeName == b.Spec.NodeName {
					fromA, toA := span(a)
					fromB, toB := span(b)
					Expect(toA.After(fromB) && toB.After(fromA)).To(BeFalse(), "%s and %s on %s", a.Name, b.Name, a.Spec.NodeName)
				}
			}
		}
	})
})

// span returns the times of a pod's creation and of the end of its container, by its own timestamps.
func span(p *corev1.Pod) (from, to time.Time) {
	GinkgoHelper()
	Expect(p.Status.ContainerStatuses).To(HaveLen(1), p.Name)
	Expect(p.Status.ContainerStatuses[0].State.Terminated).NotTo(BeNil(), p.Name)
	return p.CreationTimestamp.Time, p.Status.ContainerStatuses[0].State.Terminated.FinishedAt.Time
}

// advertise sets an extended resource of a node that no device plugin serves, or removes it if the quantity is empty.
func advertise(ctx context.Context, node, name, quantity string) {
	GinkgoHelper()
	op, value := "add", fmt.Sprintf(`, "value": %q`, quantity)
	if quantity == "" {
		op, value = "remove", ""
	}
	patch := fmt.Sprintf(`[{"op": %q, "path": "/status/capacity/%s"%s}]`, op, strings.ReplaceAll(name, "/", "~1"), value)
	Expect(kubectl(ctx, GinkgoWriter, "patch", "node", node, "--subresource=status", "--type=json", "-p", patch)).To(Succeed())
}

// allocatable returns the number of devices of a resource that a node offers to pods.
func allocatable(ctx context.Context, name string, of corev1.ResourceName) int64 {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(kube.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
	quantity := node.Status.Allocatable[of]
	return quantity.Value()
}
