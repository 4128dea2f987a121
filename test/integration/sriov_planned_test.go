package integration

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers/benchmark"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// sriovBenchmarks returns the files of the SR-IOV samples that contain a benchmark.
func sriovBenchmarks() []string {
	found, err := filepath.Glob(filepath.Join(sriovSamples, "*.yaml"))
	if err != nil {
		panic(err) // of a wrong pattern only
	}
	var files []string
	for _, file := range found {
		content, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		if bytes.Contains(content, []byte("\nkind: LatencyBenchmark\n")) {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		panic("no SR-IOV sample has a benchmark") // Without it, there would be no specs.
	}
	return files
}

// installNodeKinds installs the kinds with one object per node.
func installNodeKinds() {
	GinkgoHelper()
	installKinds(nil, anyFields(foreign.NodeResourceTopologyKind, "noderesourcetopologies", apiextensionsv1.ClusterScoped),
		anyFields(foreign.SriovNetworkNodeStateKind, "sriovnetworknodestates", apiextensionsv1.ClusterScoped))
}

// createNodeObject creates the object of a kind for a node, until the spec ends. It retries like CreateNetwork.
func createNodeObject(ctx context.Context, kind schema.GroupVersionKind, node string, annotations map[string]string, fields map[string]any) {
	GinkgoHelper()
	object := &unstructured.Unstructured{Object: fields}
	object.SetGroupVersionKind(kind)
	object.SetName(node)
	object.SetAnnotations(annotations)
	Eventually(func() error { return client.IgnoreAlreadyExists(k8s.Create(ctx, object)) }).Should(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, object))).To(Succeed()) })
}

// numaNode returns a zone of a NodeResourceTopology with whole CPUs, and one device of each of some resources.
func numaNode(name, cpus string, devices ...corev1.ResourceName) map[string]any {
	has := func(resource, quantity string) any {
		return map[string]any{"name": resource, "capacity": quantity, "allocatable": quantity, "available": quantity}
	}
	resources := []any{has("cpu", cpus)}
	for _, d := range devices {
		resources = append(resources, has(string(d), "1"))
	}
	return map[string]any{"name": name, "type": foreign.ZoneTypeNode, "resources": resources}
}

// sriovAgents returns the changes to the results of a benchmark's agents on nodes with a Solarflare NIC that have everything that the
// benchmark requires.
func sriovAgents(b *v1alpha1.LatencyBenchmark) func(*result.Document) {
	variants := map[string]v1alpha1.Variant{}
	for _, v := range plan.Variants(b.Spec) {
		variants[v.Name] = v
	}
	return func(d *result.Document) {
		e, v := &d.Evidence, variants[d.Variant]
		e.CPUsAllowed, e.MeasuringCPU, e.AgentCPU, e.ThreadSiblings = "2-3", 2, 3, "2-3"
		e.Facts["cgroup.cpus-set"] = e.CPUsAllowed
		e.CPUNUMANode, e.AllowedNUMANodes, e.Facts["cpu.smt.sibling"], e.Facts["numa.nodes"] = 1, "1", "own", "0-1"
		nic := func(function, address string) {
			e.Driver, e.DeviceNUMANode, e.PCIAddress, e.PCISource = "sfc", 1, address, result.PCIFromSysfs
			e.Facts["nic.function"], e.Facts["nic.port"], e.Facts["nic.firmware-variant"] = function, "0000:3b:00.0", "full-feature"
		}
		if v.Network.Type.Attached() {
			e.Interface = pods.Interface
		}
		switch v.Network.Type {
		case v1alpha1.NetworkHost:
			e.Interface = v.Network.Interface()
			nic("PF", "0000:3b:00.0")
		case v1alpha1.NetworkPF:
			nic("PF", "0000:3b:00.1")
		case v1alpha1.NetworkVF:
			nic("VF", "0000:3b:02.3")
		default:
			e.Facts["nic.function"] = "virtual"
		}
		if v.Network.Type.HasDevice() {
			e.AllocatedDevices = map[string]string{proof.Variable(v.Network.ResourceName()): e.PCIAddress}
		}
		if v.Acceleration.Type == v1alpha1.AccelerationOnload {
			e.Facts["module.onload.version"] = "8.1.2.26"
		}
	}
}

// bypassed reports whether nothing can show that datagrams of a variant arrive once: its tool does not number its messages, and the counters
// of the kernel do not count them, or count those of others.
func bypassed(b *v1alpha1.LatencyBenchmark, variant string) bool {
	w := b.Spec.Workload
	datagrams := (w.MessageSizes != nil || w.Streams == nil) && slices.ContainsFunc(w.Protocols, func(p v1alpha1.Protocol) bool { return p != v1alpha1.ProtocolTCP })
	return datagrams && tool.Unnumbered(b.Spec.Tool) && slices.ContainsFunc(plan.Variants(b.Spec), func(v v1alpha1.Variant) bool {
		return v.Name == variant && (v.Network.Type == v1alpha1.NetworkHost || v.Acceleration.Type == v1alpha1.AccelerationOnload)
	})
}

var _ = Describe("A sample for SR-IOV", func() {
	for _, sample := range sriovBenchmarks() {
		It("runs exactly as kubectl tailgate plan says: "+filepath.Base(sample), func(ctx SpecContext) {
			namespace := newNamespace(ctx)
			w := &World{
				Place: Place{Namespace: namespace}, Kubelet: NewKubelet(ctx, namespace, time.Now), Clock: &clock{},
				Settings: benchmark.Settings{
					BenchImage: "bench:test", PullPolicy: corev1.PullNever, StartTimeout: time.Minute, MaxAttempts: 3, Settings: preflight.Settings{AllowHostNetwork: true},
				},
			}
			values := readSriovValues()
			installMultus()
			for name, network := range sriovNetworks(values) {
				CreateNetwork(ctx, namespace, name, network.GetAnnotations()[foreign.AnnotationResourceName])
			}

			By("making nodes, of which the first has too few CPUs beside its NIC")
			installNodeKinds()
			var devices []corev1.ResourceName
			for name := range sriovResources(values) {
				if name != plan.DefaultOnloadResource { // its device plugin reports no NUMA node
					devices = append(devices, name)
				}
			}
			for _, policy := range sriovManifests("nodepolicy-*.yaml", "SriovNetworkNodePolicy") {
				selector, _, err := unstructured.NestedStringMap(policy.Object, "spec", "nodeSelector")
				Expect(err).NotTo(HaveOccurred())
				for name, near := range map[string]string{"a": "1", "b": "4", "c": "4"} {
					n := MakeNode(namespace + "-" + policy.GetName() + "-" + name)
					n.Labels = selector
					n.Status.Allocatable = sriovResources(values)
					n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("8")
					n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("16Gi")
					w.AddNode(ctx, n)
					createNodeObject(ctx, foreign.NodeResourceTopologyKind, n.Name, nil, map[string]any{
						"zones": []any{numaNode("node-0", "4"), numaNode("node-1", near, devices...)},
					})
					idle := map[string]string{foreign.AnnotationCurrentState: foreign.SriovIdle, foreign.AnnotationDesiredState: foreign.SriovIdle}
					createNodeObject(ctx, foreign.SriovNetworkNodeStateKind, n.Name, idle, map[string]any{
						"status": map[string]any{"syncStatus": foreign.SriovSucceeded},
					})
				}
			}

			b := Overview(runsAsPlanned(ctx, w, sample, sriovAgents))
			summary := v1alpha1.PlacementVerified
			for _, e := range b.Status.Endpoints {
				want := v1alpha1.PlacementVerified
				if bypassed(b, e.Variant) {
					want, summary = v1alpha1.PlacementUnverified, v1alpha1.PlacementUnverified
				}
				Expect(e.Placement).To(Equal(want), "%s of %s: %+v", e.Role, e.Variant, e.Proof)
				for _, line := range e.Proof {
					if line.State == v1alpha1.ProofUnknown || line.State == v1alpha1.ProofFailed {
						Expect(line.Check).To(Equal(v1alpha1.ProofMessagesOnce), "%s of %s: %+v", e.Role, e.Variant, line)
					}
				}
			}
			Expect(b.Status.Summary.Placement).To(Equal(summary))
			first := strings.HasSuffix(b.Status.Pair.ClientNode, "-a")
			required := slices.ContainsFunc(b.Spec.Variants, func(v v1alpha1.Variant) bool {
				network := cmp.Or(v.Network, &b.Spec.Network)
				return network.Type.HasDevice() || network.AlignWith() != ""
			})
			Expect(first).To(Equal(!required), "only a device that has to be near the CPUs keeps it from the first node")
		}, SpecTimeout(12*time.Minute))
	}
})
