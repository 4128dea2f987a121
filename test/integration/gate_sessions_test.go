package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc64"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/verdict"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// simulatedFleet measures the benchmarks of a gate without pods: it draws round trips, which have a standard deviation of 2 % between rounds,
// and 1 % between boots and between pairs, and judges them as the manager does. Each draw depends only on names, so that it repeats.
type simulatedFleet struct {
	gate string
	// slower is how much slower a boot of a node is, as a natural logarithm.
	slower func(node, boot string) float64

	mu                   sync.Mutex
	rounds, measurements int
}

// specNamespace matches the random namespace of a spec.
var specNamespace = regexp.MustCompile(`spec-[a-z0-9]{5}`)

// drawn returns random numbers for a name, the same in each run of the suite.
func drawn(name string) *rand.Rand {
	name = specNamespace.ReplaceAllString(name, "")
	return rand.New(rand.NewPCG(1, crc64.Checksum([]byte(name), crc64.MakeTable(crc64.ECMA))))
}

// finish measures and judges a benchmark.
func (f *simulatedFleet) finish(b *v1alpha1.LatencyBenchmark) *v1alpha1.LatencyBenchmark {
	defer GinkgoRecover()
	ctx := context.Background()
	b = finished(b)
	of, peer := b.Status.Pair.ClientNode, b.Status.Pair.ServerNode
	node, server, gate, v := &corev1.Node{}, &corev1.Node{}, &v1alpha1.LatencyGate{}, &v1alpha1.LatencyVerification{}
	for name, o := range map[string]client.Object{of: node, peer: server, f.gate: gate, v1alpha1.VerificationName(f.gate, of): v} {
		Expect(k8s.Get(ctx, types.NamespacedName{Name: name}, o)).To(Succeed())
	}
	boot := node.Status.NodeInfo.BootID
	level := 0.01*drawn(boot).NormFloat64() + 0.01*drawn(of+peer).NormFloat64() + f.slower(of, boot) + f.slower(peer, server.Status.NodeInfo.BootID)
	random, all := drawn(b.Name), []stats.Observation(nil)
	cell := func(rounds []stats.Observation) verdict.Cell {
		c := verdict.Cell{Variant: "default", Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}
		for _, r := range rounds {
			c.Rounds = append(c.Rounds, verdict.Round{Samples: 1_000_000, Values: map[v1alpha1.Metric]stats.Observation{v1alpha1.MetricP50: r}})
		}
		return c
	}
	key := v1alpha1.ComparedValue{Variant: "default", Cell: "tcp-64", Metric: v1alpha1.MetricP50}
	Expect(b.Spec.Session).To(ConsistOf(key))
	b.Status.Session = &v1alpha1.Session{BootID: boot}
	var judged verdict.Judgement
	for _, n := range []int32{b.Spec.Rounds, b.Spec.MaxRounds} {
		for len(all) < int(n) {
			all = append(all, stats.Exact(int64(20_000*math.Exp(level+0.02*random.NormFloat64()))))
		}
		in := verdict.Input{Criteria: *b.Spec.Criteria, Candidate: []verdict.Cell{cell(all)}, Rounds: int(b.Spec.Rounds), MaxRounds: int(b.Spec.MaxRounds)}
		if b.Spec.Criteria.Baseline != nil {
			reference := sessions.For(&v.Status, &gate.Status, boot, peer)
			b.Status.Session.Reference = reference.Status(peer, []v1alpha1.ValueRounds{sessions.Rounds(key, all, sessions.FirstRounds)})
			baseline := cell(all)
			pooled, between := reference.Of(key)
			baseline.References = map[v1alpha1.Metric]verdict.Reference{v1alpha1.MetricP50: {Rounds: pooled, Between: between, LeaveOut: reference.LeaveOut}}
			in.Baseline = []verdict.Cell{baseline}
		}
		var err error
		judged, err = verdict.Judge(in)
		Expect(err).NotTo(HaveOccurred())
		if !judged.MoreRoundsMayDecide {
			break
		}
	}
	b.Status.Verdict = judged.Status()
	b.Status.Session.Rounds = []v1alpha1.ValueRounds{sessions.Rounds(key, all, sessions.FirstRounds)}
	status, reason := metav1.ConditionUnknown, v1alpha1.ReasonInconclusive
	switch judged.Outcome {
	case v1alpha1.VerdictPass:
		status, reason = metav1.ConditionTrue, v1alpha1.ReasonPass
	case v1alpha1.VerdictFail:
		status, reason = metav1.ConditionFalse, v1alpha1.ReasonFail
	}
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, b.Status.Verdict.Message))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rounds, f.measurements = f.rounds+len(all), f.measurements+1
	return b
}

// counts returns the number of rounds, and of measurements, so far.
func (f *simulatedFleet) counts() (rounds, measurements int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rounds, f.measurements
}

// jsonSize returns the size of an object without what the API server adds for field managers.
func jsonSize(o client.Object) int {
	o.SetManagedFields(nil)
	out, err := json.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
	return len(out)
}

// With TAILGATE_FLEET=1, this test lets 200 nodes have 12 upgrades. Without the variable, it has 40 nodes and 4
// upgrades. A fifth of the nodes is upgraded at a time.
var _ = Describe("A gate of a fleet with sessions", func() {
	It("holds back the slower nodes of each upgrade, and fails no other", func(ctx SpecContext) {
		size, upgrades := 40, 4
		if os.Getenv("TAILGATE_FLEET") != "" {
			size, upgrades = 200, 12
		}
		w := NewWorld(ctx)
		name := func(i int) string { return fmt.Sprintf("%s-n%04d", w.Namespace, i) }
		kernel := func(u int) string { return fmt.Sprintf("6.%d.0", u+1) }
		boot := func(i, u int) string { return "boot of " + kernel(u) + " of " + name(i) }
		// Every twentieth node is 20 % slower from the upgrade 3 on.
		slow := map[string]bool{}
		for i := 0; i < size; i += 20 {
			for u := 3; u <= upgrades; u++ {
				slow[boot(i, u)] = true
			}
		}
		fleet := &simulatedFleet{gate: w.Namespace, slower: func(_, boot string) float64 {
			if slow[boot] {
				return math.Log(1.2)
			}
			return 0
		}}
		w.manyNodes(ctx, size, name, func(*corev1.Node) {})
		fakeRuns(ctx, w.Namespace, fleet.finish)
		w.countWrites(ctx)
		limit := v1alpha1.Rule{Metric: v1alpha1.MetricP50, Max: v1alpha1.Limit{Text: "1ms"}}
		increase := v1alpha1.Rule{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "5%"}}
		began := time.Now()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.MaxParallel, s.HistoryLimit = new(intstr.FromInt32(100)), 1
			s.Template.Spec.MaxRounds, s.Template.Spec.Criteria.Rules = 20, []v1alpha1.Rule{limit, increase}
		}))
		// concluded returns the verifications of some nodes when they have an outcome for a boot.
		concluded := func(nodes []int, is func(i int) string) map[int]v1alpha1.LatencyVerification {
			GinkgoHelper()
			found := map[int]v1alpha1.LatencyVerification{}
			Eventually(func(g Gomega) {
				list := &v1alpha1.LatencyVerificationList{}
				g.Expect(k8s.List(ctx, list, client.MatchingFields{"spec.gateName": w.Namespace})).To(Succeed())
				byNode := map[string]v1alpha1.LatencyVerification{}
				for _, v := range list.Items {
					byNode[v.Spec.NodeName] = v
				}
				clear(found)
				for _, i := range nodes {
					switch v := byNode[name(i)]; v.Status.State {
					case v1alpha1.VerificationVerified, v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive:
						if v.Status.Identity[string(v1alpha1.IdentityBootID)] == is(i) {
							found[i] = v
						}
					}
				}
				g.Expect(found).To(HaveLen(len(nodes)))
			}).WithTimeout(5 * time.Minute).WithPolling(500 * time.Millisecond).Should(Succeed())
			return found
		}
		all := make([]int, size)
		for i := range all {
			all[i] = i
		}
		concluded(all, func(i int) string { return "boot-1 of " + name(i) })
		first := time.Since(began)
		var last map[int]v1alpha1.LatencyVerification
		began = time.Now()
		for u := 1; u <= upgrades; u++ {
			before, benchmarks := fleet.counts()
			last = map[int]v1alpha1.LatencyVerification{}
			for k := range 5 {
				// Neighbors, which are the usual peers, are not upgraded at once.
				batch := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return i%5 != k })
				inParallel(len(batch), func(i int) { w.Upgrade(ctx, name(batch[i]), kernel(u)) })
				for i, v := range concluded(batch, func(i int) string { return boot(i, u) }) {
					last[i] = v
				}
			}
			counts, wrong, missed := map[string]int{}, 0, 0
			for i, v := range last {
				counts[string(v.Status.State)]++
				if v.Status.Verified().Reason == v1alpha1.ReasonProvisional {
					counts["of these Provisional"]++
					if strings.Contains(v.Status.Verified().Message, "another pair of nodes") {
						counts["of these with another peer"]++
					}
				}
				if v.Status.State == v1alpha1.VerificationFailed && !slow[boot(i, u)] {
					wrong++
				}
				if v.Status.State == v1alpha1.VerificationVerified && slow[boot(i, u)] {
					missed++
				}
			}
			rounds, measurements := fleet.counts()
			AddReportEntry(fmt.Sprintf("upgrade %d: %v, wrong Fails %d, slower nodes Verified %d, %.1f rounds and %.2f measurements a node", u, counts, wrong, missed,
				float64(rounds-before)/float64(size), float64(measurements-benchmarks)/float64(size)))
			Expect(missed).To(BeZero(), "a slower node passed")
			Expect(wrong).To(BeNumerically("<=", max(1, size/100)), "an unchanged node failed")
			if u > 2 {
				Expect(counts["Verified"]).To(BeNumerically(">=", size*2/3), "what the bounds on wrong verdicts leave of the power")
			}
		}
		largest := 0
		for _, v := range last {
			largest = max(largest, jsonSize(&v))
		}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
		gateSize := jsonSize(g)
		AddReportEntry(fmt.Sprintf("%d nodes: first sessions in %s, %d upgrades in %s; the largest LatencyVerification %d bytes, the LatencyGate %d bytes; spread %+v", size,
			first.Round(time.Second), upgrades, time.Since(began).Round(time.Second), largest, gateSize, g.Status.Spread))
		Expect(largest).To(BeNumerically("<", 20_000))
		Expect(gateSize).To(BeNumerically("<", 40_000))
	})
})
