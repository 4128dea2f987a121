package driven

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/fnv"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/result"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("The files of two benchmarks", func() {
	It("have the verdict of the benchmarks, with the same figures", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.Kubelet.Auto()
		// Each round has other samples, and those of a benchmark are slower by its own share.
		w.Kubelet.Agents(func(d *result.Document) {
			for i := range d.Cells {
				hash := fnv.New32a()
				hash.Write([]byte(d.Run))
				first := 10_000 + int64(hash.Sum32()%400)
				switch d.Run[:4] {
				case "slow":
					first += 3_000
				case "near":
					first += 550
				}
				var err error
				if d.Cells[i].Histogram, err = HistogramFrom(first); err != nil {
					panic(err)
				}
			}
		})
		w.Start()
		files := GinkgoT().TempDir()
		rule := Within("5%")
		write := func(b *v1alpha1.LatencyBenchmark) string {
			ExpectSucceeded(ctx, b, "^True Complete")
			dir := filepath.Join(files, b.Name)
			_, err := export.Write(dir, export.Benchmark{Object: Get(ctx, b).DeepCopy(), Runs: StoredRuns(ctx, b)}, false)
			Expect(err).NotTo(HaveOccurred())
			return filepath.Join(dir, "histograms", "default", "tcp-64.hlog")
		}
		before := write(w.Create(ctx, MakeBenchmark(w.Namespace, "before").Rounds(6).On(w.A, w.B)))
		for name, want := range map[string]int{"same": 0, "slow": 1, "near": 2} {
			b := w.Create(ctx, MakeBenchmark(w.Namespace, name).Rounds(6).On(w.A, w.B).Rule(rule).Against("before"))
			file := write(b)
			ExpectPassed(ctx, b, []string{"^True Pass", "^False Fail", "^Unknown Inconclusive"}[want])
			own := Get(ctx, b).Status.Verdict
			var stdout, stderr bytes.Buffer
			code := cli.Run(context.Background(), []string{"verdict", "--baseline", before, "--candidate", file, "--rule", "p90 maxIncrease " + rule.MaxIncrease.Text,
				"--tool", "sockperf", "--protocol", "TCP", "--size", "64", "-o", "json"}, &stdout, &stderr)
			Expect(code).To(Equal(want), "%s: %s%s", name, &stdout, &stderr)
			got := &v1alpha1.Verdict{}
			Expect(json.Unmarshal(stdout.Bytes(), got)).To(Succeed())
			Expect(got.Rules).To(Equal(own.Rules), name)
			Expect(got.Message).To(Equal("nothing was proved of these files, which do not have lost messages: " + own.Message))
		}
	})
})
