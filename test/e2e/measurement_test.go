//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/test/docs"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

var _ = Describe("A measurement", Label("measurement"), func() {
	It("answers the samples of the documentation", func(ctx context.Context) {
		// The demo measures them for their full duration.
		samples := []*v1alpha1.LatencyBenchmark{sample("first.yaml", time.Second, 100*time.Millisecond), sample("vf.yaml", time.Second, 100*time.Millisecond)}
		for _, b := range samples {
			b.Spec.Rounds = 2
			create(ctx, b)
		}
		for _, b := range samples {
			b = eventuallyCompletes(ctx, b)
			Expect(report.Table(GinkgoWriter, b)).To(Succeed())
			By("numbers that hold together: " + b.Name)
			Expect(b.Status.Results).To(HaveLen(len(b.Spec.Workload.Protocols) * len(b.Spec.Workload.MessageSizes)))
			for _, r := range b.Status.Results {
				// A busy machine may leave few samples. A percentile then needs ten samples beyond it.
				Expect(r.Samples).To(BeNumerically(">=", 100), r.Name)
				Expect(r.Rounds).To(Equal(b.Spec.Rounds))
				Expect(r.Lost).To(BeZero())
				ladder := []int64{*r.MinNanoseconds}
				for _, p := range []struct {
					name    v1alpha1.Percentile
					samples int64
				}{{v1alpha1.P50, 20}, {v1alpha1.P90, 100}, {v1alpha1.P99, 1_000}, {v1alpha1.P999, 10_000}} {
					value := r.Percentile(p.name)
					Expect(value != nil).To(Equal(r.Samples >= p.samples), "%s of %d samples of %s", p.name, r.Samples, r.Name)
					if value != nil {
						ladder = append(ladder, *value)
					}
				}
				ladder = append(ladder, *r.MaxNanoseconds)
				Expect(slices.IsSorted(ladder)).To(BeTrue(), "%s: %v", r.Name, ladder)
				Expect(*r.MinNanoseconds).To(BeNumerically(">", 500), "no message crosses a kernel in less")
			}
			By("the endpoints' own CPUs: " + b.Name)
			Expect(b.Status.Endpoints).To(HaveLen(2))
			client, server := b.Status.Endpoints[0], b.Status.Endpoints[1]
			for _, e := range []v1alpha1.Endpoint{client, server} {
				cpus, err := result.ParseCPUs(e.CPUs)
				Expect(err).NotTo(HaveOccurred())
				Expect(cpus.Size()).To(Equal(max(int(here.CPUs), 1)), "%s may use %s", e.Role, e.CPUs)
			}
			if !elsewhere { // on one machine
				Expect(client.CPUs).NotTo(Equal(server.CPUs))
			}
			Expect(client.Node).NotTo(Equal(server.Node))
			if !elsewhere {
				By("what limits the numbers: " + b.Name)
				simulated := HaveField("Reason", v1alpha1.WarningSimulatedNIC)
				Expect(b.Status.Warnings).To(ContainElement(simulated))
				// On a busy machine, the kernel may send a segment again whose acknowledgement is late.
				Expect(b.Status.Warnings).To(HaveEach(Or(simulated, HaveField("Message", ContainSubstring("segments again")))))
			}
			if b.Spec.Network.Type.HasDevice() {
				By("the interface and the device that were asked for: " + b.Name)
				for _, e := range []v1alpha1.Endpoint{client, server} {
					Expect(e.Interface).To(Equal("net1"))
					Expect(e.PCIAddress).To(HavePrefix(map[bool]string{false: "0000:3b:02."}[elsewhere]))
					Expect(e.DeviceNUMANode).To(Equal(e.CPUNUMANode))
				}
			}
			By("the stored histograms: " + b.Name)
			Expect(b.Status.Stored).To(HaveLen(int(b.Spec.Rounds)))
			var runs []result.Stored
			for _, s := range b.Status.Stored {
				cm := &corev1.ConfigMap{}
				Expect(kube.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: s.ConfigMap}, cm)).To(Succeed())
				Expect(cm.Immutable).To(HaveValue(BeTrue()))
				stored, err := result.Open(cm, s)
				Expect(err).NotTo(HaveOccurred())
				runs = append(runs, stored)
			}
			collected, err := rounds.Of(b.Spec, runs...)
			Expect(err).NotTo(HaveOccurred())
			Expect(summary.Summarize(collected).Results).To(Equal(b.Status.Results))
		}
		Eventually(benchmarkPods).WithArguments(ctx).WithTimeout(soon).Should(BeEmpty())
	})

	It("measures the pairs of a matrix by benchmarks of their own, which are deleted with it", func(ctx context.Context) {
		m := &v1alpha1.LatencyMatrix{}
		readSample("all-pairs.yaml", m)
		m.Namespace = namespace
		m.Spec.Nodes.NodeNames = []string{here.Client, here.Server}
		m.Spec.Template.Spec.Rounds, m.Spec.Template.Spec.Placement.CPUs = 1, here.CPUs
		m.Spec.Template.Spec.Placement.Memory.Set(512 << 20)
		Expect(kube.Create(ctx, m)).To(Succeed())
		Eventually(func() string {
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
			return condition(m.Overview(), v1alpha1.ConditionSucceeded).Reason
		}).WithTimeout(measured).WithPolling(200 * time.Millisecond).Should(Equal(v1alpha1.ReasonComplete))
		Expect(m.Status.Nodes).To(ConsistOf(here.Client, here.Server))
		Expect(m.Status.Counts).To(Equal(v1alpha1.PairCounts{Total: 1, Complete: 1}))
		Expect(m.Status.Slowest).To(HaveExactElements(HaveField("Benchmark", "all-pairs-p1")))
		Expect(m.Status.Cells).To(HaveExactElements(HaveField("P50.MedianNanoseconds", HaveValue(BeNumerically(">", 500)))))

		By("the benchmark of the pair")
		pair := &v1alpha1.LatencyBenchmark{}
		Expect(kube.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "all-pairs-p1"}, pair)).To(Succeed())
		Expect(metav1.IsControlledBy(pair, m)).To(BeTrue())
		Expect(pair.Status.Endpoints).To(HaveEach(HaveField("Placement", v1alpha1.PlacementVerified)))
		p99 := BeNil()
		if pair.Status.Results[0].Samples >= 1_000 {
			p99 = HaveField("MedianNanoseconds", HaveValue(BeNumerically(">", 500)))
		}
		Expect(m.Status.Cells[0].P99).To(p99, "%d samples", pair.Status.Results[0].Samples)

		By("what the command prints and writes")
		Expect(tailgate(ctx, "get", "lmatrix/all-pairs")).To(ContainSubstring("AllPairs of 1 pairs, 1 of them with results"))
		dir := GinkgoT().TempDir()
		tailgate(ctx, "report", "lmatrix/all-pairs", "-o", filepath.Join(dir, "report.html"))
		tailgate(ctx, "export", "lmatrix/all-pairs", "-o", dir)
		Expect(tailgate(ctx, "get", filepath.Join(dir, "all-pairs", "pairs", "all-pairs-p1"))).To(ContainSubstring("tcp-64"))

		By("its deletion")
		Expect(kube.Delete(ctx, m)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(pair), pair))
		}).WithTimeout(collected).Should(BeTrue())
		eventuallyNothingLeft(ctx)
	})

	It("uses sfnt-pingpong if the image has it, and does not accept a benchmark of it if not", func(ctx context.Context) {
		b := sfntBenchmark("sfnt")
		if os.Getenv("SFNETTEST_BIN") == "" && slices.Contains(manager(ctx).Args, "--bench-tools=pinger,netperf,sockperf") {
			Expect(planned(ctx, b)).To(ContainSubstring("obstacle: spec.tool: the bench image has no sfnt-pingpong, only pinger, netperf, sockperf"))
		}
		create(ctx, b)
		if os.Getenv("SFNETTEST_BIN") == "" {
			Eventually(func() string {
				b := get(ctx, b)
				return condition(b, v1alpha1.ConditionAccepted).Message + condition(b, v1alpha1.ConditionSucceeded).Message
			}).WithTimeout(soon).Should(ContainSubstring("the bench image has no sfnt-pingpong"))
			Expect(len(get(ctx, b).Status.Attempts)).To(BeNumerically("<=", 1), "a missing tool does not come by trying again")
			return
		}
		b = eventuallyCompletes(ctx, b)
		Expect(report.Table(GinkgoWriter, b)).To(Succeed())
		Expect(b.Status.Results).To(HaveLen(4))
		for _, r := range b.Status.Results {
			Expect(r.Samples).To(BeNumerically(">=", 5_000), r.Name)
		}
	})

	It("uses sfnt-pingpong of another image, which the pods mount, for the first example of the README", needs("a manager whose flags it may change"), func(ctx context.Context) {
		bin := os.Getenv("SFNETTEST_VOLUME_BIN")
		if bin == "" {
			By("making a stand-in of the tool, as SFNETTEST_VOLUME_BIN names no folder with the real one")
			bin = GinkgoT().TempDir()
			source := filepath.Join(bin, "main.go")
			Expect(os.WriteFile(source, []byte(standIn), 0o600)).To(Succeed())
			build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(bin, "sfnt-pingpong"), source)
			build.Env, build.Stdout, build.Stderr = environment.Tool(), GinkgoWriter, GinkgoWriter
			Expect(build.Run()).To(Succeed())
		}
		program, err := os.ReadFile(filepath.Join(bin, "sfnt-pingpong"))
		Expect(err).NotTo(HaveOccurred())
		const name = "localhost/sfnettest"
		archive := filepath.Join(GinkgoT().TempDir(), "sfnettest.tar")
		digest, err := images.Tools(map[string][]byte{"/usr/bin/sfnt-pingpong": program}, name+":e2e", archive)
		Expect(err).NotTo(HaveOccurred())
		Expect(localcluster.LoadRelease(ctx, options, archive, name)).To(Succeed())
		setManagerArgs(ctx, append(manager(ctx).Args, "--sfnettest-image="+name+"@"+digest.String())...)

		b := firstExample()
		Expect(planned(ctx, b)).To(And(ContainSubstring("total measuring time"), Not(ContainSubstring("obstacle"))))
		create(ctx, b)
		if os.Getenv("SFNETTEST_VOLUME_BIN") == "" {
			Eventually(func() string { return condition(get(ctx, b), v1alpha1.ConditionSucceeded).Message }).WithTimeout(2 * soon).Should(
				And(ContainSubstring(v1alpha1.OutcomeToolFailed), ContainSubstring("a stand-in of the image")))
			return
		}
		Expect(eventuallyCompletes(ctx, b).Status.Results).To(HaveLen(4))
	})
})

// standIn is a program that takes the place of sfnt-pingpong: its client fails, and names where it is.
const standIn = `package main

import (
	"fmt"
	"net"
	"os"
	"strings"
)

func main() {
	if len(os.Args) == 2 {
		listener, err := net.Listen("tcp", ":"+strings.TrimPrefix(os.Args[1], "--port="))
		for err == nil {
			_, err = listener.Accept()
		}
	}
	fmt.Fprintln(os.Stderr, "ERROR: a stand-in of the image in", os.Args[0])
	os.Exit(1)
}
`

// planned returns what `kubectl tailgate plan` prints of a benchmark.
func planned(ctx context.Context, b *v1alpha1.LatencyBenchmark) string {
	GinkgoHelper()
	b = b.DeepCopy()
	b.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("LatencyBenchmark"))
	text, err := yaml.Marshal(b)
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(GinkgoT().TempDir(), "benchmark.yaml")
	Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
	var out bytes.Buffer
	cli.Run(ctx, []string{"plan", "-f", path, "--namespace", namespace, "--kubeconfig", kubeconfig}, &out, &out)
	return out.String()
}

// firstExample returns the first example of the README on the VFs of these nodes, in a small size, with sfnt-pingpong and without its
// variant with Onload.
func firstExample() *v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	pages, err := docs.Pages(root)
	Expect(err).NotTo(HaveOccurred())
	steps := pages[slices.IndexFunc(pages, func(p docs.Page) bool { return p.Path == "README.md" })].Steps
	file := steps[slices.IndexFunc(steps, func(s docs.Step) bool { return s.File == "vf-onload.yaml" })]
	example := &v1alpha1.LatencyBenchmark{}
	Expect(yaml.UnmarshalStrict([]byte(file.Text), example)).To(Succeed())
	return benchmark(example.Name, overVFs, pingPong, func(s *v1alpha1.LatencyBenchmarkSpec) {
		s.Tool, s.Workload.Protocols, s.Workload.MessageSizes = v1alpha1.ToolSfntPingpong, example.Spec.Workload.Protocols, example.Spec.Workload.MessageSizes
		s.Variants = slices.DeleteFunc(example.Spec.Variants, func(v v1alpha1.Variant) bool { return v.Acceleration != nil })
	})
}

// sfntBenchmark returns a benchmark of sfnt-pingpong with four cells.
func sfntBenchmark(name string) *v1alpha1.LatencyBenchmark {
	return benchmark(name, overVFs, pingPong, func(s *v1alpha1.LatencyBenchmarkSpec) {
		s.Tool = v1alpha1.ToolSfntPingpong
		s.Workload.Protocols = []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}
		s.Workload.MessageSizes = []int32{1, 64}
	})
}
