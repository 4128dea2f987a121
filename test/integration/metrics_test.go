package integration

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("Metrics", func() {
	It("tell of a benchmark from its creation to its deletion", func(ctx SpecContext) {
		w := NewWorld(ctx)
		m := w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").MaxRounds(6).On(w.A, w.B).Rule(Undecided))
		of := fmt.Sprintf(`{benchmark="x",namespace="%s"`, w.Namespace)
		Eventually(func() []string { return Scrape(m.Metrics) }).Should(ContainElement("tailgate_benchmark_passed" + of + "} 0"))

		w.Kubelet.Measure(ctx, "x-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete")
		var last []string
		Eventually(func() []string { last = Scrape(m.Metrics); return last }).Should(ContainElements(
			"tailgate_exporting 1",
			"tailgate_benchmark_state"+of+`,state="Complete"} 1`,
			"tailgate_benchmark_runs_done"+of+"} 1",
			`tailgate_attempts_total{reason="Measured"} 1`,
			"tailgate_queue_wait_seconds_count 1",
			HavePrefix(`tailgate_latency_seconds{benchmark="x",cell="tcp-64",namespace="%s",percentile="p50",protocol="TCP",rate="",size="64",type="HalfRTT",variant="default"} 5.`, w.Namespace),
		))
		Expect(last).To(ContainElement(MatchRegexp(`^tailgate_benchmark_verdict{benchmark="x",namespace="%s",verdict="(Pass|Inconclusive)"} 1$`, w.Namespace)))

		By("what it costs")
		Expect(Scrape(ctrlmetrics.Registry)).To(ContainElements(
			MatchRegexp(`^rest_client_requests_total{code="200",host="[^"]+",method="PUT"} [1-9]`),
			HavePrefix(`controller_runtime_reconcile_total{controller="latencybenchmark",result="success"}`),
			HavePrefix(`controller_runtime_reconcile_time_seconds_bucket{controller="latencybenchmark"`),
			HavePrefix(`workqueue_depth{controller="latencybenchmark"`),
		))

		Expect(k8s.Delete(ctx, b)).To(Succeed())
		Eventually(func() []string { return Scrape(m.Metrics) }).ShouldNot(ContainElement(ContainSubstring(w.Namespace)))
	})

	It("tell of a gate's nodes, also after a restart", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		m := w.Start()
		w.Gate(ctx, MakeGate(w.Namespace))
		of := fmt.Sprintf(`{gate="%s"`, w.Namespace)
		ofA := fmt.Sprintf(`%s,node="%s"`, of, w.A)
		Eventually(func() []string { return Scrape(m.Metrics) }).Should(ContainElement("tailgate_gate_passed" + of + "} 0"))
		passed := []any{
			"tailgate_gate_passed" + of + "} 1",
			"tailgate_gate_nodes" + of + `,state="Verified"} 2`,
			"tailgate_node_verified" + ofA + "} 1",
			"tailgate_node_state" + ofA + `,state="Verified"} 1`,
			HavePrefix("tailgate_node_latency_seconds" + ofA + `,percentile="p50",type="HalfRTT"} 5.`),
			HavePrefix("tailgate_node_accepted_timestamp_seconds" + ofA + "} "),
			MatchRegexp(`^tailgate_node_identity_info{.*kernel="6\.1\.0",kubelet="v1\.36\.0",node="%s"`, w.A),
		}
		Eventually(func() []string { return Scrape(m.Metrics) }).Should(ContainElements(passed...))
		m.Stop()
		m = w.Start()
		Eventually(func() []string { return Scrape(m.Metrics) }).Should(ContainElements(passed...))

		By("an upgrade of a node")
		w.Upgrade(ctx, w.A, "6.2.0")
		Eventually(func() []string { return Scrape(m.Metrics) }).Should(ContainElements(
			"tailgate_gate_passed"+of+"} 0", "tailgate_node_verified"+ofA+"} 0",
			MatchRegexp(`^tailgate_node_identity_info{.*kernel="6\.2\.0",.*node="%s"`, w.A),
		))
	})
})
