package specs

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/faults"
)

// Trial is the set-up for a cell of the fault table. Benchmark X changes its state as the spec simulates its pods. Its results are
// too slow for its rule; in all states except Judging, there are also too few samples for a verdict. Benchmark Next needs the same
// nodes, and waits until X has finished. Benchmark Other has its own nodes, and its pods run without the spec.
type Trial struct {
	X, Next, Other *v1alpha1.LatencyBenchmark
	// Server and Client are the pods of the first attempt at the first run of X.
	Server, Client *corev1.Pod
	// Seen records the versions of the benchmarks.
	Seen *Versions

	place *Place
	// auto lets the pods of benchmarks run without the spec.
	auto func(benchmarks ...string)
	// rounds is the number of rounds of X, and verdict its condition Passed when all of them are measured.
	rounds  int32
	verdict string
}

// NewTrial makes the nodes of a trial. The suite then records the versions of benchmarks in Seen, and starts a manager.
func NewTrial(ctx context.Context, p *Place, auto func(benchmarks ...string), state faults.State) *Trial {
	GinkgoHelper()
	t := &Trial{Seen: NewVersions(), place: p, auto: auto, rounds: 2, verdict: "Unknown Inconclusive"}
	rule := Undecided
	if state == faults.Judging {
		t.rounds, t.verdict, rule = 6, "False Fail", Under("8us") // A verdict needs six rounds.
	}
	c, d := p.Namespace+"-c", p.Namespace+"-d"
	p.AddNode(ctx, MakeNode(c))
	p.AddNode(ctx, MakeNode(d))
	p.SamplesFrom(func(*v1alpha1.LatencyBenchmark) int64 { return 20_000 })
	t.X = MakeBenchmark(p.Namespace, "x").Rounds(t.rounds).MaxRounds(6).On(p.A, p.B).Rule(rule).Obj()
	t.Next = MakeBenchmark(p.Namespace, "next").On(p.A, p.B).Obj()
	t.Other = MakeBenchmark(p.Namespace, "other").On(c, d).Obj()
	return t
}

// Run is the spec of a cell: begin starts the fault in the state of the cell, and returns a function that ends it.
func (t *Trial) Run(ctx context.Context, cell faults.Cell, begin func() (heal func())) {
	t.reach(ctx, cell.State)
	if cell.Never != "" {
		subject := t.X
		if cell.State == faults.Waiting {
			subject = t.Next
		}
		Expect(PodsLeft(ctx, subject)).To(BeEmpty())
		return
	}
	heal := begin()
	heal()
	began := t.place.Kubelets.Now()
	if cell.State != faults.Judging {
		t.auto("x", "next")
	}
	t.expectRecovered(ctx, cell)
	AddReportEntry(fmt.Sprintf("%s: recovered in %s", cell.Name(), t.place.Kubelets.Now().Sub(began).Round(10*time.Millisecond)))
}

// reach creates X and brings it into a state. In Waiting, Next waits while X measures.
func (t *Trial) reach(ctx context.Context, state faults.State) {
	GinkgoHelper()
	Expect(suite.Client.Create(ctx, t.X)).To(Succeed())
	t.Server = t.place.Kubelets.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
	ExpectSucceeded(ctx, t.X, "^Unknown Starting: .*server")
	Expect(suite.Client.Create(ctx, t.Next)).To(Succeed())
	ExpectSucceeded(ctx, t.Next, "^Unknown Queued")
	if state == faults.Claimed {
		return
	}
	t.place.Kubelets.Run(ctx, t.Server)
	t.Client = t.place.Kubelets.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient)
	ExpectSucceeded(ctx, t.X, "^Unknown Starting: .*client")
	if state == faults.ServerUp {
		return
	}
	t.place.Kubelets.Run(ctx, t.Client)
	ExpectSucceeded(ctx, t.X, "^Unknown Running: measuring")
	switch state {
	case faults.HandingOver:
		t.place.Kubelets.Succeed(ctx, t.Client)
		ExpectSucceeded(ctx, t.X, "^Unknown Running: waiting for both ends")
	case faults.Judging:
		t.auto("x", "next")
		ExpectPassed(ctx, t.X, "^False Fail")
		// The verdict on the old rules is complete, and the next verdict is requested during the fault. The fault must not hit
		// benchmark Next in an arbitrary state.
		ExpectSucceeded(ctx, t.Next, "^True Complete")
	}
}

// GoOn simulates the next step of the kubelets, which the fault does not affect.
func (t *Trial) GoOn(ctx context.Context, state faults.State) {
	GinkgoHelper()
	switch state {
	case faults.Claimed:
		t.place.Kubelets.Run(ctx, t.Server)
	case faults.ServerUp:
		t.place.Kubelets.Run(ctx, t.Client)
	case faults.Waiting, faults.Measuring:
		t.place.Kubelets.Succeed(ctx, t.Server)
		t.place.Kubelets.Succeed(ctx, t.Client)
	case faults.HandingOver:
		t.place.Kubelets.Succeed(ctx, t.Server)
	case faults.Judging:
		SetCriteria(ctx, t.X, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Rules = []v1alpha1.Rule{Under("7us")} })
	}
}

// OthersGoOn checks that the fault, which still lasts, does not delay a benchmark on other nodes.
func (t *Trial) OthersGoOn(ctx context.Context) {
	GinkgoHelper()
	t.auto("other")
	Expect(suite.Client.Create(ctx, t.Other)).To(Succeed())
	ExpectSucceeded(ctx, t.Other, "^True Complete")
}

// expectRecovered checks the final state that all cells share: every run is measured once, the slow results never pass, nothing is
// left, and the other benchmarks are measured, too.
func (t *Trial) expectRecovered(ctx context.Context, cell faults.Cell) {
	GinkgoHelper()
	want := cell.Attempts
	if cell.State == faults.Waiting {
		want = faults.Find(cell.Fault, faults.Measuring).Attempts
	}
	if cell.Attempts == nil {
		want = []string{v1alpha1.OutcomeMeasured}
		suite.Await(func() int64 {
			return meta.FindStatusCondition(Get(ctx, t.X).Status.Conditions, v1alpha1.ConditionPassed).ObservedGeneration
		}, BeEquivalentTo(2), "the rules were changed")
	}
	ExpectSucceeded(ctx, t.X, fmt.Sprintf("^True Complete: %d of %d", t.rounds, t.rounds))
	ExpectPassed(ctx, t.X, "^"+t.verdict)
	ExpectSucceeded(ctx, t.Next, "^True Complete")

	By("counting the attempts")
	all := []string{}
	for i, reason := range want {
		all = append(all, fmt.Sprintf("x-r1 a%d %s", i+1, reason))
	}
	for round := 2; round <= int(t.rounds); round++ {
		all = append(all, fmt.Sprintf("x-r%d a1 Measured", round))
	}
	Expect(Attempts(ctx, t.X)).To(Equal(all))
	Expect(Attempts(ctx, t.Next)).To(Equal([]string{"next-r1 a1 Measured"}))

	By("looking at what is left")
	for _, b := range []*v1alpha1.LatencyBenchmark{t.X, t.Next} {
		Expect(Get(ctx, b).Status.Active).To(BeNil())
		Expect(PodsLeft(ctx, b)).To(BeEmpty())
		Expect(ConfigMaps(ctx, b)).To(HaveLen(int(b.Spec.Rounds)), b.Name)
	}
	t.Seen.expect(t.verdict, cell)

	By("measuring on other nodes")
	if t.Other.UID == "" {
		t.OthersGoOn(ctx)
	}
}

// Versions records all versions of the benchmarks of a namespace.
type Versions struct {
	mu      sync.Mutex
	passed  []string // condition Passed of benchmark x, each time that it changed
	nodes   map[string]string
	overlap []string
	number  map[string]int // by benchmark
}

// NewVersions returns the record of no versions.
func NewVersions() *Versions {
	return &Versions{nodes: map[string]string{}, number: map[string]int{}}
}

// See records a version.
func (v *Versions) See(b *v1alpha1.LatencyBenchmark) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionPassed); c != nil {
		if says := string(c.Status) + " " + c.Reason; len(v.passed) == 0 || v.passed[len(v.passed)-1] != says {
			v.passed = append(v.passed, says)
		}
	}
	v.number[b.Name]++
	for node, holder := range v.nodes {
		if holder == b.Name {
			delete(v.nodes, node)
		}
	}
	if active := b.Status.Active; active != nil {
		for _, node := range []string{active.Pair.ClientNode, active.Pair.ServerNode} {
			if holder, ok := v.nodes[node]; ok {
				v.overlap = append(v.overlap, fmt.Sprintf("%s and %s on %s", holder, b.Name, node))
			}
			v.nodes[node] = b.Name
		}
	}
}

// Of returns the number of versions of a benchmark that were seen.
func (v *Versions) Of(benchmark string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.number[benchmark]
}

// expect checks the sequence of the verdicts of x, and that no two benchmarks ever occupied the same node.
func (v *Versions) expect(verdict string, cell faults.Cell) {
	GinkgoHelper()
	v.mu.Lock()
	defer v.mu.Unlock()
	want := []string{"Unknown NotJudged", verdict}
	if cell.Verdict != "" && cell.Verdict != faults.Kept {
		want = append(want, "Unknown "+cell.Verdict, verdict)
	}
	Expect(v.passed).To(Equal(want))
	Expect(v.overlap).To(BeEmpty())
}
