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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers/benchmark"
	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// ran is a run as it was planned, or carried out.
type ran struct {
	Name, Variant string
	Round         int32
	Pair          v1alpha1.Pair
	Cells         []string
}

// twoRounds writes a sample with two rounds: in the second everything has another place in the order. What asks for more
// rounds, or for what only all of them give, is left out.
func twoRounds(file string) string {
	GinkgoHelper()
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(content, &object.Object)).To(Succeed())
	Expect(unstructured.SetNestedField(object.Object, int64(2), "spec", "rounds")).To(Succeed())
	unstructured.RemoveNestedField(object.Object, "spec", "highestPercentile")
	unstructured.RemoveNestedField(object.Object, "spec", "gate", "extendRounds")
	content, err = yaml.Marshal(object.Object)
	Expect(err).NotTo(HaveOccurred())
	short := filepath.Join(GinkgoT().TempDir(), filepath.Base(file))
	Expect(os.WriteFile(short, content, 0o600)).To(Succeed())
	return short
}

// carriedOut are the runs of a finished benchmark: their order is that of its attempts, and the rest is from what is stored.
func carriedOut(ctx context.Context, b *v1alpha1.LatencyBenchmark) []ran {
	GinkgoHelper()
	documents := map[string]result.Document{}
	for _, kept := range configMaps(ctx, b) {
		stored, err := result.FromConfigMap(&kept)
		Expect(err).NotTo(HaveOccurred())
		documents[stored.Client.Run] = stored.Client
	}
	var all []ran
	rounds := map[string]int32{}
	for _, a := range b.Status.Attempts {
		Expect(a.Outcome.Reason).To(Equal(v1alpha1.OutcomeMeasured), a.Outcome.Message)
		d := documents[a.Run]
		rounds[d.Variant]++
		r := ran{Name: a.Run, Variant: d.Variant, Round: rounds[d.Variant], Pair: *b.Status.Pair}
		for _, c := range d.Cells {
			r.Cells = append(r.Cells, c.Name)
		}
		all = append(all, r)
	}
	return all
}

var _ = Describe("A sample", func() {
	for _, sample := range samples() {
		It("runs exactly as kubectl tailgate plan says, and is exported whole: "+filepath.Base(sample), func(ctx SpecContext) {
			namespace := newNamespace(ctx)
			w := &World{
				Namespace: namespace, Kubelet: NewKubelet(ctx, namespace), Clock: &clock{},
				Settings: benchmark.Settings{BenchImage: "bench:test", PullPolicy: corev1.PullNever, StartTimeout: time.Minute, MaxAttempts: 3},
			}
			for _, name := range []string{"node-a", "node-b"} {
				w.AddNode(ctx, &NodeBuilder{localNode(name)})
			}
			installMultus()
			for name, network := range localNetworks() {
				createNetwork(ctx, namespace, name, network.GetAnnotations()[foreign.AnnotationResourceName])
			}
			file := twoRounds(sample)
			kubeconfig := kubeconfigOfAdmin()

			tailgate := func(args ...string) string {
				GinkgoHelper()
				var stdout, stderr bytes.Buffer
				Expect(cli.Run(ctx, append(args, "-n", namespace, "--kubeconfig", kubeconfig), &stdout, &stderr)).To(Equal(0), stderr.String())
				return stdout.String()
			}

			By("planning it")
			var planned cli.Planned
			Expect(json.Unmarshal([]byte(tailgate("plan", "-f", file, "-o", "json")), &planned)).To(Succeed())
			Expect(planned.Obstacle).To(BeNil())

			By("carrying it out")
			w.Start()
			w.Kubelet.Auto(ctx)
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			object := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal(content, &object.Object)).To(Succeed())
			object.SetNamespace(namespace)
			Expect(k8s.Create(ctx, object)).To(Succeed())
			b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object.GetName()}}
			Eventually(func() bool { b = Get(ctx, b); return b.Finished() }).WithTimeout(3 * time.Minute).Should(BeTrue())

			number := int32(0)
			for _, slot := range planned.Slots {
				for _, pair := range slot {
					number++
					of := b
					if b.ManyPairs() {
						of = &v1alpha1.LatencyBenchmark{}
						Expect(k8s.Get(ctx, types.NamespacedName{Namespace: namespace, Name: b.PairName(number)}, of)).To(Succeed())
					}
					var want []ran
					for _, r := range planned.Runs {
						// The plan of many pairs has the names of the first.
						if name, found := strings.CutPrefix(r.Name, b.PairName(1)); b.ManyPairs() && found {
							r.Name = b.PairName(number) + name
						}
						want = append(want, ran{r.Name, r.Variant, r.Round, pair, r.Cells})
					}
					Expect(want).NotTo(BeEmpty())
					Expect(carriedOut(ctx, of)).To(Equal(want))
				}
			}
			Expect(number).To(BeNumerically(">", 0))

			By("exporting it, and reading that")
			dir := GinkgoT().TempDir()
			tailgate("export", b.Name, "-o", dir)
			for _, form := range []string{"json", "csv"} {
				Expect(tailgate("get", filepath.Join(dir, b.Name), "-o", form)).To(Equal(tailgate("get", b.Name, "-o", form)))
			}
		}, SpecTimeout(4*time.Minute))
	}
})
