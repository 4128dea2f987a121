package specs

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Bodies of specs of benchmarks and matrices that both suites have.

// MeasuresRoundByRound follows a benchmark of two rounds step by step.
func (p *Place) MeasuresRoundByRound(ctx context.Context) {
	p.Manage()
	b := p.Create(ctx, MakeBenchmark(p.Namespace, "x").Rounds(2).Sizes(64, 256).On(p.A, p.B))

	By("accepting it for the nodes that its selectors name")
	ExpectAccepted(ctx, b, "^True Accepted: client on "+p.A+", server on "+p.B)

	By("starting the server first")
	server := p.Kubelets.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
	Expect(server.Spec.NodeName).To(Equal(p.B))
	p.NoPod(ctx, b, "x-r1", 1, v1alpha1.RoleClient)
	ExpectSucceeded(ctx, b, "^Unknown Starting: .*x-r1.*server")
	Expect(Get(ctx, b).Status.Active.Pair).To(Equal(v1alpha1.Pair{ClientNode: p.A, ServerNode: p.B}))
	p.Kubelets.Run(ctx, server)

	By("sharing a Secret between both pods, whose content is in no pod")
	secret := &corev1.Secret{}
	Expect(suite.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: "tailgate-" + string(b.UID)}, secret)).To(Succeed())
	Expect(metav1.IsControlledBy(secret, b)).To(BeTrue())
	Expect(secret.Immutable).To(HaveValue(BeTrue()))
	Expect(len(secret.Data["key"])).To(BeNumerically(">=", 26))
	Expect(fmt.Sprint(server)).NotTo(ContainSubstring(string(secret.Data["key"])))

	By("starting the client with the server's address")
	peer := p.Kubelets.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient)
	Expect(peer.Spec.NodeName).To(Equal(p.A))
	task, err := TaskOf(peer)
	Expect(err).NotTo(HaveOccurred())
	Expect(task.ServerAddress).To(Equal("10.244.0.2"))
	p.Kubelets.Run(ctx, peer)
	ExpectSucceeded(ctx, b, "^Unknown Running: measuring round 1 of 2")

	By("storing the result and removing the pods")
	p.Kubelets.Succeed(ctx, peer)
	p.Kubelets.Succeed(ctx, server)
	p.Kubelets.Gone(ctx, server, peer)
	suite.Await(func() string { return Get(ctx, b).Status.Progress.Runs }, Equal("1/2"))

	By("measuring the second round with the cells in another order")
	p.Kubelets.Measure(ctx, "x-r2", 1)
	ExpectSucceeded(ctx, b, "^True Complete: 2 of 2")

	status := Get(ctx, b).Status
	Expect(status.Active).To(BeNil())
	Expect(status.StartTime).NotTo(BeNil())
	Expect(status.CompletionTime).NotTo(BeNil())
	Expect(status.ObservedGeneration).To(BeEquivalentTo(1))
	Expect(*status.Progress).To(Equal(v1alpha1.Progress{Runs: "2/2", Done: 2, Total: 2}))
	Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured", "x-r2 a1 Measured"}))
	Expect(status.Attempts[0].MeasuredMilliseconds).To(BeNumerically("==", 2000))
	Expect(status.Results).To(HaveLen(2))
	for _, r := range status.Results {
		Expect(r.Rounds).To(BeEquivalentTo(2))
		Expect(r.Samples).To(BeEquivalentTo(2 * SamplesPerRun))
		Expect(*r.MinNanoseconds).To(BeEquivalentTo(5000), "half of the smallest round trip")
		Expect(r.Percentile(v1alpha1.P99)).NotTo(BeNil())
		Expect(r.Percentile(v1alpha1.P9999)).To(BeNil(), "too few samples")
	}
	Expect(status.Summary.Cell).To(Equal("tcp-64"))
	Expect(status.Summary.P50).To(HaveSuffix("µs"))
	Expect(status.Endpoints).To(HaveLen(2))
	Expect(status.Endpoints[0].Role).To(Equal(v1alpha1.RoleClient))
	Expect(status.Endpoints[0].Node).To(Equal(p.A))

	By("leaving nothing but the stored results, which go with the benchmark")
	Expect(PodsLeft(ctx, b)).To(BeEmpty())
	Expect(p.Kubelets.Created()).To(ConsistOf("x-r1-a1-server", "x-r1-a1-client", "x-r2-a1-server", "x-r2-a1-client"))
	stored := ConfigMaps(ctx, b)
	Expect(stored).To(HaveLen(2))
	for i := range stored {
		Expect(metav1.IsControlledBy(&stored[i], b)).To(BeTrue())
		Expect(stored[i].Immutable).To(HaveValue(BeTrue()))
	}
	for _, s := range StoredRuns(ctx, b) {
		for _, seen := range []result.Seen{s.ClientSeen, s.ServerSeen} {
			Expect(seen.PodUID).NotTo(BeEmpty())
			Expect(seen.Requests).To(HaveKey("cpu"))
			Expect(seen.Changed).To(BeEmpty(), "what the API server fills in is no change")
		}
	}

	By("reporting it in events")
	suite.Await(func() ([]string, error) {
		list := &eventsv1.EventList{}
		err := suite.Client.List(ctx, list, client.InNamespace(p.Namespace))
		var events []string
		for _, e := range list.Items {
			events = append(events, fmt.Sprintf("%s %s %s", e.Type, e.Reason, e.Note))
		}
		return events, err
	}, ConsistOf(
		ContainSubstring("Normal Accepted client on"),
		"Normal Measured measured x-r1 at attempt 1", "Normal Measured measured x-r2 at attempt 1",
		ContainSubstring("Normal Complete 2 of 2"),
	))
}

// MeasuresAllPairs measures a matrix of a group of four nodes, whose pods run without the spec.
func (p *Place) MeasuresAllPairs(ctx context.Context) {
	p.Kubelets.Agents(Slower("x-p4-"))
	p.Manage()
	b := p.CreateMatrix(ctx, MakeBenchmark(p.Namespace, "x").Rounds(2).AllPairs(2))
	ExpectAccepted(ctx, b, "^True Accepted: 4 nodes: 6 pairs, in 3 slots of at most 2 at once$")
	ExpectSucceeded(ctx, b, `^Unknown Running: \d of 6 pairs done; measuring x-p`)
	By("a node that comes later, which does not change the plan")
	p.Group(ctx, "5")
	ExpectMeasured(ctx, b, "^True Complete: 6 of 6 pairs measured; the slowest is x-p4$")

	all := Children(ctx, b)
	Expect(p.PairsOf(all)).To(Equal(AllPairsOfFour))
	p.ExpectApart(all, 2)
	Expect(p.Kubelets.Created()).To(HaveLen(6 * 2 * 2))
	for _, c := range all {
		owner := metav1.GetControllerOf(&c)
		Expect(owner.UID).To(Equal(b.UID))
		Expect(owner.BlockOwnerDeletion).To(HaveValue(BeTrue()))
		Expect(c.Status.Results[0].Rounds).To(BeEquivalentTo(2))
		Expect(ConfigMaps(ctx, &c)).To(HaveLen(2))
	}

	By("what the status says")
	status := Get(ctx, b).Status
	Expect(*status.Progress).To(Equal(v1alpha1.Progress{Runs: "12/12", Done: 12, Total: 12}))
	Expect(status.StartTime).NotTo(BeNil())
	Expect(status.CompletionTime).NotTo(BeNil())
	Expect(status.ObservedGeneration).To(BeEquivalentTo(1))
	Expect(status.Nodes).To(HaveExactElements(HaveSuffix("-1"), HaveSuffix("-2"), HaveSuffix("-3"), HaveSuffix("-4")))
	Expect(status.Counts).To(Equal(v1alpha1.PairCounts{Total: 6, Complete: 6}))
	Expect(status.Slots).To(BeEquivalentTo(3))
	Expect(status.Running).To(BeEmpty())
	Expect(status.Slowest).To(HaveLen(6))
	slowest := status.Slowest[0]
	Expect(slowest.Benchmark).To(Equal("x-p4"))
	Expect(slowest.Pair).To(Equal(v1alpha1.Pair{ClientNode: p.Namespace + "-3", ServerNode: p.Namespace + "-1"}))
	Expect(slowest.LatencyType).To(BeEquivalentTo(v1alpha1.LatencyHalfRTT))
	Expect(*slowest.Percentile(v1alpha1.P99)).To(BeNumerically("~", 10_990, 10))
	Expect(status.Cells).To(HaveLen(1))
	line := status.Cells[0]
	Expect([]any{line.Variant, line.Cell, line.Pairs, line.P99.MaxBenchmark}).To(Equal([]any{"default", "tcp-64", int32(6), "x-p4"}))
	Expect(*line.P99.MedianNanoseconds).To(BeNumerically("~", 5990, 10))
	Expect(*line.P50.MaxNanoseconds).To(BeNumerically("~", 10_500, 10))
	Expect(status.Summary.Cell).To(Equal("tcp-64, slowest of 6 pairs"))
	Expect(status.Summary.P99).To(Equal("10.99µs"))

	By("what the events tell")
	suite.Await(func() ([]string, error) { return ToldOf(ctx, b) }, ConsistOf(
		HavePrefix("Normal Accepted: 4 nodes"), HavePrefix("Normal Complete: 6 of 6"),
		HavePrefix("Normal PairMeasured: measured x-p1, client on "+p.Namespace+"-1, server on "+p.Namespace+"-4"),
		HavePrefix("Normal PairMeasured: measured x-p2, "), HavePrefix("Normal PairMeasured: measured x-p3, "),
		HavePrefix("Normal PairMeasured: measured x-p4, "), HavePrefix("Normal PairMeasured: measured x-p5, "),
		HavePrefix("Normal PairMeasured: measured x-p6, "),
	))

	By("nothing more being written")
	written := Get(ctx, b).Status
	p.Patiently(ctx, b, func() any { return Get(ctx, b).Status }, Equal(written))
}

// JudgesAgain changes the rules of a benchmark that is measured. Its pods run without the spec, and their agents measure round trips of
// 10000 to 11999 ns in every round, which have a p90 of 5.9 µs as half RTT.
func (p *Place) JudgesAgain(ctx context.Context) {
	passed := func() ([]string, error) { return PassedEvents(ctx, p.Namespace) }
	stop := p.Manage()
	b := p.Create(ctx, MakeBenchmark(p.Namespace, "x").Rounds(6).On(p.A, p.B).Rule(Under("6us")).Rule(Under("5950ns")))
	ExpectPassed(ctx, b, "^Unknown NotJudged")
	ExpectSucceeded(ctx, b, "^True Complete")
	ExpectPassed(ctx, b, "^True Pass: all 2 rules pass, in 2 comparisons")
	v := Get(ctx, b).Status.Verdict
	Expect(v.Outcome).To(Equal(v1alpha1.VerdictPass))
	Expect(v.Comparisons).To(BeEquivalentTo(2))
	Expect(v.Rules[0].CandidateRounds).To(BeEquivalentTo(6))
	Expect(v.Rules[0].Candidate).To(HaveValue(BeNumerically("~", 5900, 10)))
	Expect(Reasons(ctx, b)).To(Equal([]string{"Pass WithinLimit", "Pass WithinLimit"}))
	pods := p.Kubelets.Created()

	By("an edit of the rules")
	SetCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Rules = []v1alpha1.Rule{Under("5us")} })
	ExpectPassed(ctx, b, "^False Fail: p90 of default/tcp-64: .*over 6 rounds, .*: Fail, beyond max 5µs")
	current := Get(ctx, b)
	Expect(current.Status.ObservedGeneration).To(Equal(current.Generation))
	for _, c := range current.Status.Conditions {
		Expect(c.ObservedGeneration).To(Equal(current.Generation), "kubectl wait for %s waits for that", c.Type)
	}

	By("an edit while no manager runs")
	// A manager that stops drops the events that it has not sent.
	suite.Await(passed, ConsistOf("Normal Pass", "Warning Fail"))
	stop()
	SetCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Rules = []v1alpha1.Rule{Under("7us")} })
	p.Manage()
	ExpectPassed(ctx, b, "^True Pass")

	By("nothing, which writes nothing")
	written := Get(ctx, b).Status
	p.Patiently(ctx, b, func() any { return Get(ctx, b).Status }, Equal(written))

	By("the gate's removal")
	SetCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria = nil })
	suite.Await(func() *v1alpha1.Verdict { return Get(ctx, b).Status.Verdict }, BeNil())
	Expect(Condition(ctx, b, v1alpha1.ConditionPassed)).To(BeEmpty())
	Expect(p.Kubelets.Created()).To(Equal(pods), "nothing was measured again")

	suite.Await(passed, ConsistOf("Normal Pass", "Warning Fail", "Normal Pass"))
}

// WaitsForTheEnd replaces the manager while a benchmark measures.
func (p *Place) WaitsForTheEnd(ctx context.Context) {
	stop := p.Manage()
	b, server, peer := p.Measuring(ctx)
	stop()
	p.Manage()
	p.Patiently(ctx, b, func() any { return PodsLeft(ctx, b) }, HaveLen(2))
	p.Kubelets.Succeed(ctx, server)
	p.Kubelets.Succeed(ctx, peer)
	p.Kubelets.Gone(ctx, server, peer)
	ExpectSucceeded(ctx, b, "^True Complete")
	Expect(p.Kubelets.Created()).To(HaveLen(2))
}
