package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers/benchmark"
	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/result"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// ran is a run as planned or as executed.
type ran struct {
	Name, Variant string
	Round         int32
	// Pair holds the nodes, Pods the names of the pods in the order of their creation.
	Pair  v1alpha1.Pair
	Pods  []string
	Cells []string
}

// twoRounds writes a copy of a sample with two rounds: the second has another order. Fields that require more rounds, or results of
// all rounds, are removed.
func twoRounds(file string) string {
	GinkgoHelper()
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(content, &object.Object)).To(Succeed())
	of := object.Object
	if object.GetKind() == "LatencyMatrix" {
		of = of["spec"].(map[string]any)["template"].(map[string]any)
	}
	Expect(unstructured.SetNestedField(of, int64(2), "spec", "rounds")).To(Succeed())
	unstructured.RemoveNestedField(of, "spec", "highestPercentile")
	unstructured.RemoveNestedField(of, "spec", "criteria")
	content, err = yaml.Marshal(object.Object)
	Expect(err).NotTo(HaveOccurred())
	short := filepath.Join(GinkgoT().TempDir(), filepath.Base(file))
	Expect(os.WriteFile(short, content, 0o600)).To(Succeed())
	return short
}

// carriedOut returns the runs of a finished benchmark, in the order of its attempts, with the pods that were created. The other
// fields are from the stored results.
func carriedOut(ctx context.Context, k *Kubelet, b *v1alpha1.LatencyBenchmark) []ran {
	GinkgoHelper()
	runs := map[string]result.Stored{}
	for _, stored := range StoredRuns(ctx, b) {
		runs[stored.Client.Run] = stored
	}
	var made []string
	for _, e := range k.History() {
		if e.Benchmark == b.Name && !e.Gone {
			made = append(made, e.Pod)
		}
	}
	Expect(made).To(HaveLen(2 * len(b.Status.Attempts)))
	var all []ran
	rounds := map[string]int32{}
	for i, a := range b.Status.Attempts {
		Expect(a.Outcome.Reason).To(Equal(v1alpha1.OutcomeMeasured), a.Outcome.Message)
		stored := runs[a.Run]
		variant := stored.Client.Variant
		rounds[variant]++
		r := ran{
			Name: a.Run, Variant: variant, Round: rounds[variant], Pods: made[2*i : 2*i+2],
			Pair: v1alpha1.Pair{ClientNode: stored.Client.Evidence.Node, ServerNode: stored.Server.Evidence.Node},
		}
		for _, c := range stored.Client.Cells {
			r.Cells = append(r.Cells, c.Name)
		}
		all = append(all, r)
	}
	return all
}

// tailgateIn returns a function that runs kubectl-tailgate in a namespace and returns its output.
func tailgateIn(ctx context.Context, namespace string) func(args ...string) string {
	GinkgoHelper()
	kubeconfig := adminKubeconfig(namespace)
	return func(args ...string) string {
		GinkgoHelper()
		var stdout, stderr bytes.Buffer
		Expect(cli.Run(ctx, append(args, "-n", namespace, "--kubeconfig", kubeconfig), &stdout, &stderr)).To(Equal(0), stderr.String())
		return stdout.String()
	}
}

// runsAsPlanned plans a sample with two rounds, executes it, and compares the runs with the plan. agents returns the changes to the
// simulated results of a benchmark's agents; nil: no changes.
func runsAsPlanned(ctx SpecContext, w *World, sample string, agents func(*v1alpha1.LatencyBenchmark) func(*result.Document)) client.Object {
	GinkgoHelper()
	file := twoRounds(sample)

	By("planning it")
	var planned cli.Planned
	Expect(json.Unmarshal([]byte(tailgateIn(ctx, w.Namespace)("plan", "-f", file, "-o", "json")), &planned)).To(Succeed())
	Expect(planned.Obstacle).To(BeNil())

	By("carrying it out")
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(content, &object.Object)).To(Succeed())
	object.SetNamespace(w.Namespace)
	Expect(k8s.Create(ctx, object)).To(Succeed())
	o := asType(object)
	if agents != nil {
		w.Kubelet.Agents(agents(Overview(o)))
	}
	w.Start()
	w.Kubelet.Auto(ctx)
	Eventually(func() bool { o = Get(ctx, o); return Overview(o).Finished() }).WithTimeout(10 * time.Minute).Should(BeTrue())

	number := int32(0)
	for _, slot := range planned.Slots {
		for _, pair := range slot {
			number++
			of := Overview(o)
			m, ofMatrix := o.(*v1alpha1.LatencyMatrix)
			if ofMatrix {
				of = Child(ctx, m, number)
			}
			var want []ran
			for _, r := range planned.Runs {
				// The plan of a matrix uses the names of the first pair.
				if ofMatrix {
					r.Name = of.Name + strings.TrimPrefix(r.Name, m.PairName(1))
				}
				both := []string{pods.Name(r.Name, 1, v1alpha1.RoleServer), pods.Name(r.Name, 1, v1alpha1.RoleClient)}
				want = append(want, ran{Name: r.Name, Variant: r.Variant, Round: r.Round, Pair: pair, Pods: both, Cells: r.Cells})
			}
			Expect(want).NotTo(BeEmpty())
			Expect(carriedOut(ctx, w.Kubelet, of)).To(Equal(want))
		}
	}
	Expect(number).To(BeNumerically(">", 0))
	return o
}

var _ = Describe("A sample", func() {
	for _, sample := range samples() {
		It("runs exactly as kubectl tailgate plan says, and is exported whole: "+filepath.Base(sample), func(ctx SpecContext) {
			namespace := newNamespace(ctx)
			w := &World{
				Place: Place{Namespace: namespace}, Kubelet: NewKubelet(ctx, namespace, time.Now), Clock: &clock{},
				Settings: benchmark.Settings{BenchImage: "bench:test", PullPolicy: corev1.PullNever, StartTimeout: time.Minute, MaxAttempts: 3, Settings: preflight.Settings{AllowHostNetwork: true}},
			}
			for _, name := range []string{"node-a", "node-b"} {
				w.AddNode(ctx, &NodeBuilder{Node: localNode(name)})
			}
			installMultus()
			for name, network := range localNetworks() {
				CreateNetwork(ctx, namespace, name, network.GetAnnotations()[foreign.AnnotationResourceName])
			}
			o := runsAsPlanned(ctx, w, sample, nil)
			name := o.GetName()
			if _, ok := o.(*v1alpha1.LatencyMatrix); ok {
				name = "lmatrix/" + name
			}

			By("exporting it, and reading that")
			tailgate, dir := tailgateIn(ctx, namespace), GinkgoT().TempDir()
			tailgate("export", name, "-o", dir)
			for _, form := range []string{"json", "csv"} {
				Expect(tailgate("get", filepath.Join(dir, o.GetName()), "-o", form)).To(Equal(tailgate("get", name, "-o", form)))
			}
		}, SpecTimeout(12*time.Minute))
	}
})
