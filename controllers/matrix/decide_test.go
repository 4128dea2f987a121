package matrix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		world *world
		want  []string
		again time.Duration
	}{
		"the first pairs of the plan":                               {world: makeWorld(), want: []string{"claim [1 2]"}},
		"one at a time":                                             {world: worldOf(4, 0), want: []string{"claim [1]"}},
		"a claim comes before its benchmark":                        {world: makeWorld(claimed(1), claimed(2)), want: []string{"create [1 2]"}},
		"nothing while all places are taken":                        {world: makeWorld(running(1), running(2, measuring))},
		"a finished pair gives its place to the next":               {world: makeWorld(running(1, complete), running(2, failing)), want: []string{"release [1 2]", "claim [3 4]"}},
		"no pair overtakes another that waits for one of its nodes": {world: makeWorld(finishedPairs(1), running(2)), want: nil},
		"the other one's node is free, too":                         {world: makeWorld(finishedPairs(1, 2, 3), running(4)), want: nil},
		"all are finished":                                          {world: makeWorld(finishedPairs(1, 2, 3, 4, 5, 6))},
		"failed ones are not measured again":                        {world: makeWorld(finishedPairs(1, 2, 3, 4), withChild(5, failing), withChild(6, failing))},
		"the benchmark of a finished pair was deleted":              {world: makeWorld(finishedPairs(1, 2, 4, 5, 6)), want: []string{"claim [3]"}},
		"it is being deleted":                                       {world: makeWorld(finishedPairs(1, 2, 4, 5, 6), withChild(3, complete, deleting)), want: []string{"claim [3]"}},
		"the benchmark of a running pair was deleted":               {world: makeWorld(running(1), func(w *world) { w.children[0] = nil }), want: []string{"create [1]", "claim [2]"}},
		"another user created it again":                             {world: makeWorld(running(1, anotherUID), running(2)), want: []string{"create [1]"}},
		"it is being deleted while it runs":                         {world: makeWorld(running(1, deleting), running(2))},
		"a benchmark without a place, of a lost status":             {world: makeWorld(withChild(1)), want: []string{"claim [1 2]"}},

		"nodes that others hold come last":                   {world: makeWorld(busy("a")), want: []string{"claim [2]"}},
		"nodes that cannot be used come last":                {world: makeWorld(unusable("b")), want: []string{"claim [1]"}},
		"but they come":                                      {world: makeWorld(busy("a"), unusable("d"), finishedPairs(2)), want: []string{"claim [1]"}},
		"pairs that are left for last hold up no other pair": {world: makeWorld(finishedPairs(2), busy("a")), want: []string{"claim [3]"}},
		"in their turn they are as good as any":              {world: makeWorld(finishedPairs(2, 3, 5), busy("a")), want: []string{"claim [1]"}},
		"pairs that would have equal addresses":              {world: worldOf(6, 3, addresses(3), finishedPairs(1, 2, 3), running(4), running(5)), want: []string{"claim [6]"}},
		"pairs that would have those of one that runs on":    {world: worldOf(4, 2, addresses(2), running(1), finishedPairs(2, 4)), want: nil},

		"a node that has just become unusable": {
			world: makeWorld(running(1, rejected(time.Minute)), running(2), unusable("d"), finishedPairs(3)), again: postponeAfter - time.Minute,
		},
		"a node that has long been unusable": {
			world: makeWorld(running(1, rejected(time.Hour)), finishedPairs(2, 3), unusable("d")), want: []string{"postpone [1]", "claim [4]"},
		},
		"nothing else could be measured":             {world: makeWorld(running(1, rejected(time.Hour)), finishedPairs(2, 4, 6), unusable("d")), want: nil},
		"it holds its nodes all the same":            {world: makeWorld(running(1, rejected(time.Hour), holdsNodes), running(2), unusable("d")), want: nil},
		"the rejection is not about the node":        {world: makeWorld(running(1, rejected(time.Hour)), running(2)), want: nil},
		"a pair that waits for a usable node":        {world: makeWorld(running(1), running(2), unusable("d")), want: nil},
		"the gate changed":                           {world: makeWorld(finishedPairs(1, 2), running(3), running(4), withGate(2*time.Microsecond), observed), want: []string{"update [1 2 3 4]"}},
		"the priority changed":                       {world: makeWorld(running(1), running(2), priority(7), observed), want: []string{"update [1 2]"}},
		"another client changed the criteria of one": {world: makeWorld(withGate(2*time.Microsecond), running(1), running(2, ownGate), observed), want: []string{"update [2]"}},
		"a suspended matrix suspends running pairs, releases finished ones and starts none": {
			world: makeWorld(running(1), running(2, complete), finishedPairs(3), suspended, observed), want: []string{"release [2]", "update [1]"},
		},
		"it is suspended before the benchmark of a claimed pair was made": {world: makeWorld(claimed(1), suspended, observed)},
		"it is suspended while a node is long unusable": {
			world: makeWorld(running(1, rejected(time.Hour)), finishedPairs(2, 3), unusable("d"), suspended), want: nil,
		},
		"it goes on": {
			world: makeWorld(running(1, held), running(2), finishedPairs(3), observed), want: []string{"update [1]"},
		},
		"one that is being deleted is not edited": {world: makeWorld(running(1, deleting), running(2), priority(7), observed), want: []string{"update [2]"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := decide(c.world)
			if diff := cmp.Diff(c.want, got.text()); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if got.again != c.again {
				t.Errorf("looks again after %s, want %s", got.again, c.again)
			}
		})
	}
}

// observed observes outdated criteria, priorities and values of suspend, as observe does.
func observed(w *world) { w.observeOutdated() }

func priority(n int32) func(*world) {
	return func(w *world) { w.matrix.Spec.Template.Spec.Priority = n }
}

func ownGate(b *v1alpha1.LatencyBenchmark) {
	b.Spec.Criteria.Rules[0].Max.Text = "9us"
}

func TestDecideAcceptance(t *testing.T) {
	w := makeWorld(func(w *world) {
		w.matrix.Status.Nodes = nil
		w.accepted = preflight.Observed{Benchmark: w.matrix.Overview()}
	})
	got := decide(w)
	if got.rejection == nil || got.rejection.Reason != v1alpha1.ReasonCellUnsupported || got.again != waitAgain {
		t.Errorf("without a driver: %+v", got)
	}
}

// Whole matrices, with pairs of any duration: no node is in two pairs at once, no more pairs run than allowed, each pair is
// measured, and none before an earlier pair of the plan with one of its nodes.
func TestDecideWholeMatrix(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		nodes, parallel := 2+random.IntN(12), 1+random.IntN(6)
		t.Run(fmt.Sprintf("%d nodes, %d at once, seed %d", nodes, parallel, seed), func(t *testing.T) {
			w := worldOf(nodes, int32(parallel), addresses(1+parallel))
			var order []int32
			for step := 0; step < 10_000; step++ {
				s := decide(w)
				order = append(order, play(t, w, s)...)
				if running := w.matrix.Status.Running; len(running) > 0 {
					complete(w.child(running[random.IntN(len(running))].Number))
				} else if len(s.text()) == 0 {
					break
				}
			}
			if len(order) != len(w.pairs) {
				t.Fatalf("%d of %d pairs were measured", len(order), len(w.pairs))
			}
			last := map[string]int32{}
			for _, number := range order {
				for _, node := range []string{w.pair(number).ClientNode, w.pair(number).ServerNode} {
					if last[node] > number {
						t.Errorf("node %s was in pair %d before it was in %d", node, last[node], number)
					}
					last[node] = number
				}
			}
		})
	}
}

// Pairs of equal duration take as many turns as the plan has slots, which is the minimum of all plans.
func TestDecideTakesTheFewestTurns(t *testing.T) {
	for _, c := range []struct{ nodes, parallel int }{{4, 2}, {7, 3}, {20, 10}, {60, 30}} {
		t.Run(fmt.Sprintf("%d nodes, %d at once", c.nodes, c.parallel), func(t *testing.T) {
			w := worldOf(c.nodes, int32(c.parallel))
			turns := 0
			for {
				// They end one by one, and after each one the pairs start that can.
				for _, r := range slices.Clone(w.matrix.Status.Running) {
					complete(w.child(r.Number))
					play(t, w, decide(w))
				}
				if play(t, w, decide(w)); len(w.matrix.Status.Running) == 0 {
					break
				}
				turns++
			}
			if turns != w.slots {
				t.Errorf("%d turns, want %d", turns, w.slots)
			}
		})
	}
}

// play carries out steps as apply does, checks the invariants, and returns the pairs that were claimed.
func play(t *testing.T, w *world, s steps) []int32 {
	t.Helper()
	for _, number := range s.release {
		w.leave(number)
	}
	for _, number := range s.claim {
		running(number)(w)
	}
	held, used := map[string]int32{}, map[int]int32{}
	for _, r := range w.matrix.Status.Running {
		for _, node := range []string{r.ClientNode, r.ServerNode} {
			if other, ok := held[node]; ok {
				t.Fatalf("node %s is in pairs %d and %d at once", node, other, r.Number)
			}
			held[node] = r.Number
		}
		block := int(r.Number-1) % w.blocks
		if other, ok := used[block]; ok {
			t.Fatalf("pairs %d and %d have equal addresses", other, r.Number)
		}
		used[block] = r.Number
	}
	if n := len(w.matrix.Status.Running); n > w.parallel() {
		t.Fatalf("%d pairs are running, more than %d", n, w.parallel())
	}
	return s.claim
}

// BenchmarkHundredNodes measures all pairs of a hundred nodes, half of them judged.
func BenchmarkHundredNodes(b *testing.B) {
	w := worldOf(100, 50, withGate(2*time.Microsecond))
	for number := range int32(2500) {
		withChild(number+1, judgedAs(v1alpha1.VerdictPass, v1alpha1.ReasonPass))(w)
	}
	b.Run("plan", func(b *testing.B) {
		for b.Loop() {
			planOf(w.matrix)
		}
	})
	b.Run("decide", func(b *testing.B) {
		for b.Loop() {
			w.outdated = nil
			w.observeOutdated()
			decide(w)
		}
	})
	b.Run("report", func(b *testing.B) {
		for b.Loop() {
			w.count(earlier(2500))
			w.progress()
			w.succeeds()
			w.judge()
		}
	})
}
