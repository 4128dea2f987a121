package driven

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/result"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// exportOf returns the ConfigMap of the export of a benchmark, and its digest.
func exportOf(ctx context.Context, b *v1alpha1.LatencyBenchmark, changes ...func(*export.Benchmark)) (*corev1.ConfigMap, string) {
	GinkgoHelper()
	of := export.Benchmark{Object: Get(ctx, b).DeepCopy(), Runs: StoredRuns(ctx, b)}
	for _, change := range changes {
		change(&of)
	}
	cm, sum, err := export.ConfigMap(of, "elsewhere")
	Expect(err).NotTo(HaveOccurred())
	cm.Namespace = b.Namespace
	return cm, sum
}

// replace creates a ConfigMap in the place of another one, as any user of the namespace may.
func replace(ctx context.Context, cm *corev1.ConfigMap) {
	GinkgoHelper()
	old := cm.DeepCopy()
	Expect(k8s.Delete(ctx, old)).To(Succeed())
	cm.ResourceVersion, cm.UID = "", ""
	Expect(k8s.Create(ctx, cm)).To(Succeed())
}

func against(sum string) func(*v1alpha1.LatencyBenchmarkSpec) {
	return func(s *v1alpha1.LatencyBenchmarkSpec) {
		s.Criteria.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineExport, Export: &v1alpha1.ExportedBaseline{ConfigMapName: "elsewhere", SHA256: sum}}
	}
}

var _ = Describe("A baseline that is an export in the namespace", func() {
	var w *World
	var before, after *v1alpha1.LatencyBenchmark
	BeforeEach(func(ctx SpecContext) {
		w = NewWorld(ctx)
		w.Kubelet.Auto()
		w.Start()
		before = w.Create(ctx, MakeBenchmark(w.Namespace, "before").Rounds(6).On(w.A, w.B))
		ExpectSucceeded(ctx, before, "^True Complete")
		after = w.Create(ctx, MakeBenchmark(w.Namespace, "after").Rounds(6).On(w.A, w.B).Rule(Within("10%")).Against("before"))
		ExpectPassed(ctx, after, "^True Pass")
	})

	It("is compared with as long as it is the one that the criteria name", func(ctx SpecContext) {
		cm, sum := exportOf(ctx, before)
		SetCriteria(ctx, after, against(sum))
		ExpectPassed(ctx, after, `^Unknown BaselineMissing: .*spec.criteria.baseline.export.configMapName: ConfigMap elsewhere does not exist`)
		Expect(k8s.Delete(ctx, before)).To(Succeed())

		By("its creation")
		Expect(k8s.Create(ctx, cm.DeepCopy())).To(Succeed())
		ExpectPassed(ctx, after, `^True Pass: p90 of default/tcp-64: .*over 6\+6 rounds`)

		By("another export of that name, which a user of the namespace writes")
		other, _ := exportOf(ctx, after)
		replace(ctx, other)
		ExpectPassed(ctx, after, `^Unknown BaselineDigestDiffers: .*spec.criteria.baseline.export.sha256: ConfigMap elsewhere contains another export`)

		By("the right one again")
		replace(ctx, cm.DeepCopy())
		ExpectPassed(ctx, after, "^True Pass")

		By("the right manifest with a result of another run")
		changed := cm.DeepCopy()
		changed.BinaryData["runs_before-r1_client.json.gz"] = changed.BinaryData["runs_before-r2_client.json.gz"]
		replace(ctx, changed)
		ExpectPassed(ctx, after, "^Unknown BaselineUnreadable: .*its digest differs")

		By("the right one again, and its end")
		replace(ctx, cm.DeepCopy())
		ExpectPassed(ctx, after, "^True Pass")
		Expect(k8s.Delete(ctx, cm.DeepCopy())).To(Succeed())
		consistently(func() string { return Condition(ctx, after, v1alpha1.ConditionPassed) }, 12*time.Second).Should(HavePrefix("True Pass"), "what was compared is known by its digest")
	})

	It("of other evidence is not comparable unless the criteria say so", func(ctx SpecContext) {
		w.Kubelet.Agents(func(d *result.Document) { d.Evidence.Facts["nic.firmware-variant"] = "full-feature" })
		there := w.Create(ctx, MakeBenchmark(w.Namespace, "there").Rounds(6).On(w.A, w.B))
		ExpectSucceeded(ctx, there, "^True Complete")
		cm, sum := exportOf(ctx, there)
		Expect(k8s.Create(ctx, cm)).To(Succeed())
		SetCriteria(ctx, after, against(sum))
		ExpectPassed(ctx, after, `^Unknown Inconclusive: .*nic.firmware-variant "full-feature", then absent`)
		SetCriteria(ctx, after, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Criteria.IgnoreDifferences = []string{"nic.firmware-variant"}
		})
		ExpectPassed(ctx, after, "^True Pass")
	})

	DescribeTable("is refused if it is",
		func(ctx SpecContext, change func(*export.Benchmark), corrupt func(*corev1.ConfigMap), want string) {
			cm, sum := exportOf(ctx, before, change)
			if corrupt != nil {
				corrupt(cm)
				sum = manifestSum(cm)
			}
			Expect(k8s.Create(ctx, cm)).To(Succeed())
			SetCriteria(ctx, after, against(sum))
			ExpectPassed(ctx, after, want)
		},
		Entry("of another tool", func(b *export.Benchmark) { b.Object.Spec.Tool = v1alpha1.ToolPinger }, nil,
			`^Unknown BaselineUnlike: .*spec.criteria.baseline.export: it was measured with tool pinger, and this benchmark with sockperf`),
		Entry("of full round trips", func(b *export.Benchmark) { b.Object.Spec.LatencyType = v1alpha1.LatencyRTT }, nil,
			`^Unknown BaselineUnlike: .*it is of latencyType RTT, and this benchmark of HalfRTT`),
		Entry("not complete", func(b *export.Benchmark) { b.Object.Status.Stored, b.Runs = b.Object.Status.Stored[:4], b.Runs[:4] }, nil,
			`^Unknown BaselineNotComplete: .*it has 4 of 6 runs`),
		Entry("without stored runs", func(b *export.Benchmark) { b.Object.Status.Stored, b.Runs = nil, nil }, nil,
			`^Unknown BaselineWithoutEvidence: .*it has no stored runs, so that it can only be described`),
		Entry("without evidence", withoutEvidence, nil, `^Unknown BaselineWithoutEvidence: .*run before-r1 has no evidence`),
		Entry("of another version", func(*export.Benchmark) {}, func(cm *corev1.ConfigMap) {
			setManifest(cm, func(m string) string { return strings.Replace(m, `"version": 1`, `"version": 2`, 1) })
		}, `^Unknown BaselineUnreadable: .*its format has version 2, and this version of Tailgate reads version 1`),
		Entry("of another format", func(*export.Benchmark) {}, func(cm *corev1.ConfigMap) {
			setManifest(cm, func(string) string { return "{}" })
		}, `^Unknown BaselineUnreadable: .*is of format`),
		Entry("larger than it may become", func(*export.Benchmark) {}, func(cm *corev1.ConfigMap) {
			cm.BinaryData["more.gz"] = gzipped(make([]byte, 33<<20))
		}, `^Unknown BaselineUnreadable: .*its files expand to at most 32 MiB`),
	)
})

// withoutEvidence replaces the runs by runs that only have measurements, as an import of a published table has them.
func withoutEvidence(b *export.Benchmark) {
	for i, run := range b.Runs {
		run.Client.Evidence, run.Server.Evidence = result.Evidence{}, result.Evidence{}
		stored, err := result.NewStored(framed(run.Client), framed(run.Server), result.Seen{}, result.Seen{})
		Expect(err).NotTo(HaveOccurred())
		b.Runs[i], b.Object.Status.Stored[i] = stored, stored.Named(b.Object.Status.Stored[i].ConfigMap)
	}
}

func gzipped(content []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(content)
	Expect(err).NotTo(HaveOccurred())
	Expect(z.Close()).To(Succeed())
	return out.Bytes()
}

func manifestSum(cm *corev1.ConfigMap) string {
	return fmt.Sprintf("%x", sha256.Sum256(cm.BinaryData["manifest.json"]))
}

func setManifest(cm *corev1.ConfigMap, change func(string) string) {
	cm.BinaryData["manifest.json"] = []byte(change(string(cm.BinaryData["manifest.json"])))
}
