//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/netpair"
	"github.com/tailgate-dev/tailgate/test/pinger"
)

// The two hosts have network namespaces of their own on this machine, as the nodes have.
const hostClient, hostServer = "198.51.100.1", "198.51.100.2"

// compareWith makes an export in a ConfigMap the baseline of a benchmark, and waits for its verdict.
func compareWith(ctx context.Context, b *v1alpha1.LatencyBenchmark, path, name string) metav1.Condition {
	GinkgoHelper()
	var cm, said bytes.Buffer
	Expect(cli.Run(ctx, []string{"export", path, "--configmap", name, "--namespace", namespace, "--kubeconfig", kubeconfig}, &cm, &said)).To(BeZero(), said.String())
	file := filepath.Join(GinkgoT().TempDir(), name+".json")
	Expect(os.WriteFile(file, cm.Bytes(), 0o600)).To(Succeed())
	Expect(kubectl(ctx, GinkgoWriter, "create", "-n", namespace, "-f", file)).To(Succeed())
	sum := regexp.MustCompile(`^baseline: {type: Export, export: {configMapName: \S+, sha256: ([0-9a-f]{64})}}\n$`).FindStringSubmatch(said.String())
	Expect(sum).NotTo(BeNil(), said.String())
	return rejudged(ctx, b, func(c *v1alpha1.Criteria) {
		c.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineExport, Export: &v1alpha1.ExportedBaseline{ConfigMapName: name, SHA256: sum[1]}}
	})
}

// rejudged changes the criteria of a benchmark, and returns its verdict by them.
func rejudged(ctx context.Context, b *v1alpha1.LatencyBenchmark, change func(*v1alpha1.Criteria)) metav1.Condition {
	GinkgoHelper()
	old := get(ctx, b)
	fresh := old.DeepCopy()
	change(fresh.Spec.Criteria)
	Expect(kube.Patch(ctx, fresh, client.MergeFrom(old))).To(Succeed())
	var got metav1.Condition
	Eventually(func() int64 {
		got = passed(ctx, b)
		return got.ObservedGeneration
	}).WithTimeout(soon).Should(Equal(fresh.Generation))
	return got
}

// measureHosts measures a benchmark between two hosts without Kubernetes, and returns the path of the export.
func measureHosts(ctx context.Context, b *v1alpha1.LatencyBenchmark) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	Expect(err).NotTo(HaveOccurred())
	Expect(pinger.Build(ctx, root, filepath.Join(dir, pinger.Program))).To(Succeed())
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "tailgate-agent"), "./cmd/agent")
	build.Dir, build.Stderr, build.Env = root, GinkgoWriter, append(os.Environ(), "CGO_ENABLED=0")
	Expect(build.Run()).To(Succeed())
	b.SetGroupVersionKind(schema.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: "LatencyBenchmark"})
	text, err := result.EncodeJSON(b)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(dir, "benchmark.json"), text, 0o600)).To(Succeed())

	pair, err := netpair.New(netpair.Interface{Name: "client", Addresses: []string{hostClient + "/30"}}, netpair.Interface{Name: "server", Addresses: []string{hostServer + "/30"}})
	Expect(err).NotTo(HaveOccurred())
	defer pair.Close()
	start := func(on *netpair.Namespace, key string, out io.Writer, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "tailgate-agent"), append([]string{"bare"}, args...)...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, GinkgoWriter
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), plan.EnvKey+"="+key)
		Expect(on.Start(cmd)).To(Succeed())
		return cmd
	}
	said := gbytes.NewBuffer()
	server := start(pair.Server, "", said, "server", "-f", "benchmark.json", "--server", hostServer, "--cpus", "1")
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	Eventually(said).WithTimeout(soon).Should(gbytes.Say(plan.EnvKey + "=[A-Z0-9]{26}\n"))
	key := regexp.MustCompile(`=(\w+)`).FindStringSubmatch(string(said.Contents()))[1]
	runner := start(pair.Client, key, GinkgoWriter, "client", "-f", "benchmark.json", "--server", hostServer, "--cpus", "0", "-o", "out")
	Expect(runner.Wait()).To(Succeed())
	return filepath.Join(dir, "out", b.Name)
}

var _ = Describe("A baseline of another environment", Label("measurement"), needs("two more hosts on its machine"), func() {
	It("is an export of another cluster, or of two hosts without Kubernetes", func(ctx context.Context) {
		tolerant := v1alpha1.Rule{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "9999%"}}
		there, b := benchmark("there", rounds5), benchmark("parity", rounds5, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{tolerant}, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "there"}}}}
		})
		for _, one := range []*v1alpha1.LatencyBenchmark{there, b} {
			create(ctx, one)
			eventuallyCompletes(ctx, one)
		}
		dir := GinkgoT().TempDir()
		tailgate(ctx, "export", "there", "-o", dir)
		Expect(kube.Delete(ctx, there)).To(Succeed())
		By("another cluster")
		// Deferred, because the check after each spec counts what a failure leaves.
		remove := func(name string) {
			Expect(kubectl(ctx, GinkgoWriter, "delete", "--ignore-not-found", "-n", namespace, "configmap", name)).To(Succeed())
		}
		defer remove("there")
		got := compareWith(ctx, b, filepath.Join(dir, "there"), "there")
		Expect(fmt.Sprint(got.Status, " ", got.Reason)).To(Equal("True Pass"), got.Message)

		tools := []v1alpha1.Tool{v1alpha1.ToolPinger}
		if _, err := exec.LookPath(string(v1alpha1.ToolSockperf)); err == nil {
			tools = append(tools, v1alpha1.ToolSockperf)
		}
		for _, tool := range tools {
			By("two hosts, with " + string(tool))
			of := get(ctx, b)
			of.Name, of.Spec.Tool = "hosts-"+string(tool), tool
			if tool != b.Spec.Tool {
				pingPong(&of.Spec) // At a rate, sockperf needs two CPUs at the client's end.
			}
			path := measureHosts(ctx, of)
			table := tailgate(ctx, "get", path)
			GinkgoWriter.Println(table)
			// Nothing on this machine keeps other processes off the CPUs: it is said, and no verdict relies on it.
			Expect(table).To(And(ContainSubstring("tcp-64"), ContainSubstring("? CPUsExclusive    Unknown"), MatchRegexp(`MTU +Proved`)))
			if tool == b.Spec.Tool {
				Expect(tailgate(ctx, "compare", path, b.Name)).To(ContainSubstring("CPUsNotExclusive: "))
			} else {
				var out bytes.Buffer
				Expect(cli.Run(ctx, []string{"compare", path, b.Name, "--namespace", namespace, "--kubeconfig", kubeconfig}, &out, &out)).To(Equal(1))
				Expect(out.String()).To(ContainSubstring("measure both with the same tool"))
			}
			defer remove("hosts-" + string(tool))
			got = compareWith(ctx, b, path, "hosts-"+string(tool))
			says := fmt.Sprint(got.Status, " ", got.Reason, ": ", got.Message)
			if tool != b.Spec.Tool {
				Expect(says).To(MatchRegexp("^Unknown BaselineUnlike: .*it was measured with tool sockperf"))
			} else {
				Expect(says).To(MatchRegexp("^Unknown Inconclusive: .*hosts-pinger-r1 and parity-r1 did not run under equal conditions"))
				got = rejudged(ctx, b, func(c *v1alpha1.Criteria) {
					c.IgnoreDifferences = []string{"nic.*", "nic.function", "node", "numa.relation"}
				})
				Expect(fmt.Sprint(got.Status, " ", got.Reason, ": ", got.Message)).To(MatchRegexp("^Unknown Inconclusive: .*the baseline: in hosts-pinger-r1, client on .*CPUsExclusive"))
			}
		}
	}, SpecTimeout(10*time.Minute))
})

func rounds5(s *v1alpha1.LatencyBenchmarkSpec) { s.Rounds = 5 }
