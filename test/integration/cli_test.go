package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/cli"
)

// watching returns the number of clients that watch a single object of a resource, as kubectl wait does. Such a client has read the object
// before. Controllers watch all objects.
func watching(ctx context.Context, resource string) int {
	GinkgoHelper()
	return requests(ctx, `apiserver_longrunning_requests\{.*resource="`+resource+`",scope="resource",.*verb="WATCH".*\}`)
}

// gets returns how often a single object of a resource was read, as commands do each second that wait for its verdict.
func gets(ctx context.Context, resource string) int {
	GinkgoHelper()
	return requests(ctx, `apiserver_request_total\{.*resource="`+resource+`",scope="resource",.*verb="GET".*\}`)
}

// requests returns the sum of the API server's metrics that match a regular expression.
func requests(ctx context.Context, metric string) int {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	metrics, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	sum := 0
	for _, match := range regexp.MustCompile(`(?m)^`+metric+` (\d+)$`).FindAllSubmatch(metrics, -1) {
		n, err := strconv.Atoi(string(match[1]))
		Expect(err).NotTo(HaveOccurred())
		sum += n
	}
	return sum
}

var _ = Describe("kubectl tailgate", func() {
	var namespace, kubeconfig string
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		kubeconfig = adminKubeconfig(namespace)
	})
	tailgate := func(ctx context.Context, args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = cli.Run(ctx, append(args, "-n", namespace, "--kubeconfig", kubeconfig), &out, &errs)
		return code, out.String(), errs.String()
	}

	It("plans the same without a cluster as the API server would have it, for every sample", func(ctx SpecContext) {
		items := []corev1.Node{localNode("node-a"), localNode("node-b")}
		for i := range items {
			items[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
		}
		list, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
		Expect(err).NotTo(HaveOccurred())
		nodes := filepath.Join(GinkgoT().TempDir(), "nodes.yaml")
		Expect(os.WriteFile(nodes, list, 0o600)).To(Succeed())
		// planned drops the slots, the obstacle and the notes, because the nodes and networks are not those of the API server.
		planned := func(args ...string) cli.Planned {
			GinkgoHelper()
			_, stdout, stderr := tailgate(ctx, append([]string{"plan", "-o", "json"}, args...)...)
			var p cli.Planned
			Expect(json.Unmarshal([]byte(stdout), &p)).To(Succeed(), stderr)
			p.Slots, p.Obstacle, p.Notes = nil, nil, nil
			return p
		}
		for _, file := range samples() {
			By(filepath.Base(file))
			Expect(planned("-f", file, "--nodes", nodes)).To(Equal(planned("-f", file)))
		}
	})

	It("makes a benchmark, comes back to it, measures it again and exits by its verdict", func(ctx SpecContext) {
		file := filepath.Join("..", "..", "config", "samples", "gated.yaml")
		By("run, whose time is over before anything is measured")
		for range 2 {
			code, stdout, stderr := tailgate(ctx, "run", "-f", file, "--timeout=300ms")
			Expect(code).To(Equal(3), stderr)
			Expect(stdout).To(BeEmpty())
			Expect(stderr).To(ContainSubstring("continues"))
		}
		b := &v1alpha1.LatencyBenchmark{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "gated"}, b)).To(Succeed())

		By("rerun, under another name")
		code, _, stderr := tailgate(ctx, "rerun", "gated", "--name", "again")
		Expect(code).To(Equal(0), stderr)
		again := &v1alpha1.LatencyBenchmark{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "again"}, again)).To(Succeed())
		Expect(again.Spec).To(Equal(b.Spec))

		By("gate, which has looked and waits when the verdict is made")
		before := gets(ctx, "latencybenchmarks")
		done := make(chan int)
		go func() {
			defer GinkgoRecover()
			code, stdout, stderr := tailgate(ctx, "gate", "gated", "--wait", "--timeout=1m")
			Expect(stdout).To(Equal("LatencyBenchmark "+namespace+"/gated: Fail: too slow\n"), stderr)
			done <- code
		}()
		Eventually(gets).WithArguments(ctx, "latencybenchmarks").Should(BeNumerically(">=", before+2))
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, "all"))
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonFail, "too slow"))
		Expect(k8s.Status().Update(ctx, b)).To(Succeed())
		Eventually(done).Should(Receive(Equal(1)))
	})
})
