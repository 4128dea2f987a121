package integration

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/faults"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// trial is the set-up for a cell of the fault table. Benchmark x changes its state as the spec simulates its pods. Its results are
// too slow for its rule; in all states except Judging, there are also too few samples for a verdict. Benchmark next needs the same
// nodes, and waits until x has finished. Benchmark other has its own nodes, and its pods run without the spec.
type trial struct {
	*World
	manager        *Manager
	x, next, other *v1alpha1.LatencyBenchmark
	// server and client are the pods of the first attempt at the first run of x.
	server, client *corev1.Pod
	seen           *versions
	// rounds is the number of rounds of x, and verdict its condition Passed when all of them are measured.
	rounds  int32
	rule    v1alpha1.Rule
	verdict string
}

func newTrial(ctx SpecContext, state faults.State) *trial {
	GinkgoHelper()
	t := &trial{World: NewWorld(ctx), rounds: 2, verdict: "Unknown Inconclusive", rule: Undecided}
	if state == faults.Judging {
		t.rounds, t.verdict, t.rule = 6, "False Fail", Under("8us") // A verdict needs six rounds.
	}
	c, d := t.Namespace+"-c", t.Namespace+"-d"
	t.AddNode(ctx, MakeNode(c))
	t.AddNode(ctx, MakeNode(d))
	t.SamplesFrom(func(*v1alpha1.LatencyBenchmark) int64 { return 20_000 })
	t.seen = watchVersions(ctx, t.Namespace)
	// Pods have creation times of the API server's clock, so they look older than they are to a manager whose clock is put forward.
	t.Settings.StartTimeout = time.Hour
	t.manager = t.Start()
	t.x = t.Create(ctx, MakeBenchmark(t.Namespace, "x").Rounds(t.rounds).MaxRounds(6).On(t.A, t.B).Rule(t.rule))
	t.next = MakeBenchmark(t.Namespace, "next").On(t.A, t.B).Obj()
	t.other = MakeBenchmark(t.Namespace, "other").On(c, d).Obj()
	return t
}

// reach brings x into a state. In Waiting, next waits while x measures.
func (t *trial) reach(ctx SpecContext, state faults.State) {
	GinkgoHelper()
	t.server = t.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
	ExpectSucceeded(ctx, t.x, "^Unknown Starting: .*server")
	Expect(k8s.Create(ctx, t.next)).To(Succeed())
	ExpectSucceeded(ctx, t.next, "^Unknown Queued")
	if state == faults.Claimed {
		return
	}
	t.Kubelet.Run(ctx, t.server)
	t.client = t.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient)
	ExpectSucceeded(ctx, t.x, "^Unknown Starting: .*client")
	if state == faults.ServerUp {
		return
	}
	t.Kubelet.Run(ctx, t.client)
	ExpectSucceeded(ctx, t.x, "^Unknown Running: measuring")
	switch state {
	case faults.HandingOver:
		t.Kubelet.Succeed(ctx, t.client)
		ExpectSucceeded(ctx, t.x, "^Unknown Running: waiting for both ends")
	case faults.Judging:
		t.Kubelet.Auto(ctx, "x", "next")
		ExpectPassed(ctx, t.x, "^False Fail")
		// The verdict on the old rules is complete, and the next verdict is requested during the fault. The fault must not hit
		// benchmark next in an arbitrary state.
		ExpectSucceeded(ctx, t.next, "^True Complete")
	}
}

// goOn simulates the next step of the kubelets, which the fault does not affect.
func (t *trial) goOn(ctx SpecContext, state faults.State) {
	GinkgoHelper()
	switch state {
	case faults.Claimed:
		t.Kubelet.Run(ctx, t.server)
	case faults.ServerUp:
		t.Kubelet.Run(ctx, t.client)
	case faults.Waiting, faults.Measuring:
		t.Kubelet.Succeed(ctx, t.server)
		t.Kubelet.Succeed(ctx, t.client)
	case faults.HandingOver:
		t.Kubelet.Succeed(ctx, t.server)
	case faults.Judging:
		SetCriteria(ctx, t.x, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Rules = []v1alpha1.Rule{Under("7us")} })
	}
}

// othersGoOn checks that the fault, which still lasts, does not delay a benchmark on other nodes.
func (t *trial) othersGoOn(ctx SpecContext) {
	GinkgoHelper()
	t.Kubelet.Auto(ctx, "other")
	Expect(k8s.Create(ctx, t.other)).To(Succeed())
	ExpectSucceeded(ctx, t.other, "^True Complete")
}

// inject starts a fault in a state, lets the kubelets continue where they can, and returns a function that ends the fault.
type inject func(ctx SpecContext, t *trial, state faults.State) (heal func())

var injections = map[faults.Fault]inject{
	faults.APIServer: func(ctx SpecContext, t *trial, state faults.State) func() {
		heal := t.FailAPI(apiServerAnswers)
		t.goOn(ctx, state)
		return heal
	},
	faults.Etcd: func(ctx SpecContext, t *trial, state faults.State) func() {
		heal := t.FailAPI(etcdAnswers)
		t.goOn(ctx, state)
		return heal
	},
}

var _ = Describe("The fault table:", func() {
	for _, cell := range faults.Cells() {
		if cell.Suite != faults.Integration {
			continue
		}
		begin := injections[cell.Fault]
		It(cell.Name(), func(ctx SpecContext) {
			Expect(begin).NotTo(BeNil(), "no spec injects this fault")
			t := newTrial(ctx, cell.State)
			t.reach(ctx, cell.State)
			if cell.Never != "" {
				subject := t.x
				if cell.State == faults.Waiting {
					subject = t.next
				}
				Expect(PodsLeft(ctx, subject)).To(BeEmpty())
				return
			}
			heal := begin(ctx, t, cell.State)
			heal()
			began := time.Now()
			if cell.State != faults.Judging {
				t.Kubelet.Auto(ctx, "x", "next")
			}
			t.expect(ctx, cell)
			AddReportEntry(fmt.Sprintf("%s: recovered in %s", cell.Name(), time.Since(began).Round(10*time.Millisecond)))
		})
	}
})

// expect checks the final state that all cells share: every run is measured once, the slow results never pass, nothing is left, and
// the other benchmarks are measured, too.
func (t *trial) expect(ctx SpecContext, cell faults.Cell) {
	GinkgoHelper()
	want := cell.Attempts
	if cell.State == faults.Waiting {
		want = faults.Find(cell.Fault, faults.Measuring).Attempts
	}
	if cell.Attempts == nil {
		want = []string{v1alpha1.OutcomeMeasured}
		Eventually(func() int64 {
			return meta.FindStatusCondition(Get(ctx, t.x).Status.Conditions, v1alpha1.ConditionPassed).ObservedGeneration
		}).Should(BeEquivalentTo(2), "the rules were changed")
	}
	ExpectSucceeded(ctx, t.x, fmt.Sprintf("^True Complete: %d of %d", t.rounds, t.rounds))
	ExpectPassed(ctx, t.x, "^"+t.verdict)
	ExpectSucceeded(ctx, t.next, "^True Complete")

	By("counting the attempts")
	all := []string{}
	for i, reason := range want {
		all = append(all, fmt.Sprintf("x-r1 a%d %s", i+1, reason))
	}
	for round := 2; round <= int(t.rounds); round++ {
		all = append(all, fmt.Sprintf("x-r%d a1 Measured", round))
	}
	Expect(Attempts(ctx, t.x)).To(Equal(all))
	Expect(Attempts(ctx, t.next)).To(Equal([]string{"next-r1 a1 Measured"}))

	By("looking at what is left")
	for _, b := range []*v1alpha1.LatencyBenchmark{t.x, t.next} {
		Expect(Get(ctx, b).Status.Active).To(BeNil())
		Expect(PodsLeft(ctx, b)).To(BeEmpty())
		Expect(ConfigMaps(ctx, b)).To(HaveLen(int(b.Spec.Rounds)), b.Name)
	}
	t.seen.expect(t.verdict, cell)

	By("measuring on other nodes")
	if t.other.UID == "" {
		t.othersGoOn(ctx)
	}
}

// versions records all versions of the benchmarks of a namespace.
type versions struct {
	mu      sync.Mutex
	passed  []string // condition Passed of x, each time that it changed
	nodes   map[string]string
	overlap []string
	number  map[string]int // by benchmark
}

func watchVersions(ctx context.Context, namespace string) *versions {
	GinkgoHelper()
	v := &versions{nodes: map[string]string{}, number: map[string]int{}}
	follow(ctx, &v1alpha1.LatencyBenchmarkList{}, func(event watch.EventType, o client.Object) {
		if event != watch.Deleted {
			v.see(o.(*v1alpha1.LatencyBenchmark))
		}
	}, client.InNamespace(namespace))
	return v
}

func (v *versions) see(b *v1alpha1.LatencyBenchmark) {
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

// expect checks the sequence of the verdicts of x, and that no two benchmarks ever occupied the same node.
func (v *versions) expect(verdict string, cell faults.Cell) {
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
