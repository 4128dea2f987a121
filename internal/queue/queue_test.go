package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// entry returns an entry that is created at a second and wants the nodes of a client and a server.
func entry(name string, second int, client, server string) Entry {
	return Entry{
		Name: "perf/" + name, UID: "uid-" + name, Created: time.Unix(int64(second), 0),
		Pair: v1alpha1.Pair{ClientNode: client, ServerNode: server},
	}
}

func (e Entry) priority(p int32) Entry { e.Priority = p; return e }
func (e Entry) started() Entry         { e.Started = true; return e }
func (e Entry) active() Entry          { e.Started, e.Active = true, true; return e }

func TestAdmit(t *testing.T) {
	mine := entry("mine", 3600, "a", "b")
	cases := map[string]struct {
		candidate Entry
		others    []Entry
		// want is the blocker; empty when the candidate is admitted.
		want string
	}{
		"alone": {candidate: mine},
		"a benchmark does not block itself": {
			candidate: mine, others: []Entry{mine.active()},
		},
		"an earlier benchmark of the same name is another benchmark": {
			candidate: mine,
			others:    []Entry{{Name: mine.Name, UID: "uid-before", Created: time.Unix(1, 0), Pair: mine.Pair}},
			want:      "perf/mine precedes it on node a and node b",
		},
		"one that measures on another pair": {
			candidate: mine, others: []Entry{entry("other", 1, "c", "d").active()},
		},
		"one that measures on the client's node": {
			candidate: mine, others: []Entry{entry("other", 4000, "a", "d").active()},
			want: "perf/other is measuring on node a",
		},
		"one that measures with the roles swapped": {
			candidate: mine, others: []Entry{entry("other", 4000, "b", "c").active()},
			want: "perf/other is measuring on node b",
		},
		"one that measures on both nodes": {
			candidate: mine, others: []Entry{entry("other", 4000, "b", "a").active()},
			want: "perf/other is measuring on node a and node b",
		},
		"two that measure on a node each": {
			candidate: mine, others: []Entry{entry("one", 1, "c", "a").active(), entry("two", 4000, "b", "d").active()},
			want: "perf/one is measuring on node a, perf/two is measuring on node b",
		},
		"a younger one between two of its runs keeps its place": {
			candidate: mine, others: []Entry{entry("other", 4000, "a", "d").started()},
			want: "perf/other is measuring on node a",
		},
		"one between two of its runs goes on before an older one that has not started": {
			candidate: mine.started(), others: []Entry{entry("older", 1, "a", "b")},
		},
		"one between two of its runs goes on before a higher priority": {
			candidate: mine.started(), others: []Entry{entry("higher", 1, "a", "b").priority(1000)},
		},
		"an active benchmark goes before one that has only started": {
			candidate: mine.started(), others: []Entry{entry("other", 4000, "a", "b").active()},
			want: "perf/other is measuring on node a and node b",
		},
		"an older one that waits for one of the nodes": {
			candidate: mine, others: []Entry{entry("older", 5, "c", "b")},
			want: "perf/older precedes it on node b",
		},
		"a younger one that waits": {
			candidate: mine, others: []Entry{entry("younger", 3601, "a", "b")},
		},
		"of one age, the name decides against": {
			candidate: mine, others: []Entry{entry("earlier", 3600, "a", "b")},
			want: "perf/earlier precedes it on node a and node b",
		},
		"of one age, the name decides for": {
			candidate: mine, others: []Entry{entry("zuletzt", 3600, "a", "b")},
		},
		"a younger one of a higher priority": {
			candidate: mine, others: []Entry{entry("higher", 3600+119, "a", "b").priority(2)},
			want: "perf/higher precedes it on node a and node b",
		},
		"a higher priority, and as many minutes later: the older goes first": {
			candidate: mine, others: []Entry{entry("higher", 3600+120, "a", "b").priority(2)},
		},
		"an older one of a lower priority": {
			candidate: mine, others: []Entry{entry("lower", 3600-119, "a", "b").priority(-2)},
		},
		"a lower priority, and as many minutes earlier: the older goes first": {
			candidate: mine, others: []Entry{entry("lower", 3600-120, "a", "b").priority(-2)},
			want: "perf/lower precedes it on node a and node b",
		},
		"a higher priority elsewhere": {
			candidate: mine, others: []Entry{entry("higher", 1, "c", "d").priority(1000)},
		},
		"an active benchmark is named before a waiting one": {
			candidate: mine, others: []Entry{entry("older", 1, "a", "b"), entry("active", 4000, "a", "b").active()},
			want: "perf/active is measuring on node a and node b",
		},
		"one node is busy, and another benchmark is first on the other": {
			candidate: mine, others: []Entry{entry("older", 1, "c", "b"), entry("active", 4000, "a", "d").active(), entry("younger", 4000, "a", "b")},
			want: "perf/active is measuring on node a, perf/older precedes it on node b",
		},
		"of several that wait, the first is named and all are counted": {
			candidate: mine, others: []Entry{entry("second", 2, "a", "b"), entry("first", 1, "b", "a"), entry("third", 3, "a", "b")},
			want: "perf/first precedes it on node a and node b",
		},
		"a benchmark that waits for a busy node does not hold up one on free nodes": {
			candidate: mine, others: []Entry{entry("active", 1, "c", "d").active(), entry("older", 2, "d", "e")},
		},
		"of two claims on one node, each is reported the other": {
			candidate: mine.active(), others: []Entry{entry("later", 4000, "b", "c").active()},
			want: "perf/later is measuring on node b",
		},
		"a claim holds against all benchmarks without a claim": {
			candidate: mine.active(), others: []Entry{entry("older", 1, "a", "b").started(), entry("higher", 1, "b", "c").priority(1000)},
		},
		"a benchmark without nodes blocks no other": {
			candidate: mine, others: []Entry{entry("empty", 1, "", "").active()},
		},
		"a benchmark without nodes is not blocked": {
			candidate: entry("empty", 10, "", ""), others: []Entry{entry("other", 1, "", "").active()},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(c.others)
			ok, blocker := Admit(c.candidate, c.others)
			if ok != (c.want == "") || blocker != c.want {
				t.Errorf("got %t %q, want %q", ok, blocker, c.want)
			}
			if !slices.Equal(before, c.others) {
				t.Error("the entries were changed")
			}
			// The answer does not depend on the order in which the API lists the entries.
			slices.Reverse(c.others)
			if again, same := Admit(c.candidate, c.others); again != ok || same != blocker {
				t.Errorf("in another order: got %t (%s), before %t (%s)", again, same, ok, blocker)
			}
		})
	}
}

// A benchmark waits while others with a higher priority keep arriving, faster than they can be measured.
func TestNoBenchmarkWaitsForever(t *testing.T) {
	const (
		higher    = 10          // the difference to the priority of the others
		every     = time.Minute // the interval at which the others arrive
		measuring = 3 * time.Minute
	)
	start := time.Unix(0, 0)
	waiting := []Entry{entry("waiting", 0, "a", "b")}
	var free time.Time // when the current measurement ends
	overtook := 0
	for now := start; ; now = now.Add(every) {
		if now.Sub(start) > 24*time.Hour {
			t.Fatalf("still waiting after a day: %d have overtaken it", overtook)
		}
		waiting = append(waiting, entry(fmt.Sprintf("stream-%d", overtook+len(waiting)), int(now.Sub(start).Seconds()), "b", "a").priority(higher))
		if now.Before(free) {
			continue
		}
		next := slices.IndexFunc(waiting, func(e Entry) bool { ok, _ := Admit(e, waiting); return ok })
		if next < 0 {
			t.Fatalf("the nodes are free, and none of %d may start", len(waiting))
		}
		if waiting[next].Name == "perf/waiting" {
			break
		}
		waiting = slices.Delete(waiting, next, next+1)
		free = now.Add(measuring)
		overtook++
	}
	// The ten that were created in its first ten minutes; for later ones, its waiting time outweighs their priority.
	if overtook != higher {
		t.Errorf("%d went before, want %d", overtook, higher)
	}
}

// The answer equals the result of sorting all entries by the documented rules, at any time.
func TestAdmitAgreesWithSorting(t *testing.T) {
	fresh := rand.Uint64()
	for _, seed := range []uint64{1, 2, 3, fresh} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			for range 2000 {
				all := randomEntries(random)
				candidate := all[random.IntN(len(all))]
				later := time.Unix(int64(300+random.IntN(100_000)), 0)
				wantOK, want := bySorting(candidate, all, later)
				if ok, got := Admit(candidate, all); ok != wantOK || got != want {
					t.Fatalf("%+v\namong %+v:\ngot %t %q, want %t %q", candidate, all, ok, got, wantOK, want)
				}
			}
		})
	}
}

// randomEntries returns some entries on few nodes, with similar ages and priorities, in every state.
func randomEntries(random *rand.Rand) []Entry {
	nodes := []string{"a", "b", "c", "d", "e", "f"}[:2+random.IntN(5)]
	all := make([]Entry, 1+random.IntN(12))
	for i := range all {
		pair := random.Perm(len(nodes))
		all[i] = entry(fmt.Sprintf("n%d", random.IntN(1000)*100+i), random.IntN(6)*30, nodes[pair[0]], nodes[pair[1]]).priority(int32(random.IntN(5) - 2))
		switch random.IntN(6) {
		case 0:
			all[i] = all[i].active()
		case 1:
			all[i] = all[i].started()
		}
	}
	return all
}

// bySorting is the simplest implementation: sort, and take the entries before the candidate.
func bySorting(candidate Entry, all []Entry, now time.Time) (ok bool, blocker string) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Entry) int { return order(a, b, now) })
	first := map[string]Entry{}
	for _, e := range all {
		if e.UID == candidate.UID || !e.Active && order(e, candidate, now) > 0 {
			continue
		}
		for _, node := range []string{e.Pair.ClientNode, e.Pair.ServerNode} {
			if node != candidate.Pair.ClientNode && node != candidate.Pair.ServerNode {
				continue
			}
			if _, taken := first[node]; !taken {
				first[node] = e
			}
		}
	}
	if len(first) == 0 {
		return true, ""
	}
	last := ""
	for _, node := range []string{candidate.Pair.ClientNode, candidate.Pair.ServerNode} {
		e, taken := first[node]
		switch {
		case !taken:
		case e.Name == last:
			blocker += " and node " + node
		default:
			if last != "" {
				blocker += ", "
			}
			doing := " precedes it on node "
			if e.Started {
				doing = " is measuring on node "
			}
			blocker += e.Name + doing + node
			last = e.Name
		}
	}
	return false, blocker
}

// order is negative if a goes before b, by their effective priorities at that time.
func order(a, b Entry, now time.Time) int {
	state := func(e Entry) int {
		switch {
		case e.Active:
			return 0
		case e.Started:
			return 1
		default:
			return 2
		}
	}
	if d := state(a) - state(b); d != 0 {
		return d
	}
	if d := effective(b, now) - effective(a, now); d != 0 {
		return int(d)
	}
	if d := a.Created.Compare(b.Created); d != 0 {
		return d
	}
	if a.Name < b.Name {
		return -1
	}
	return 1
}

// effective returns the effective priority in sixtieths, so that it is an integer.
func effective(e Entry, now time.Time) int64 {
	return int64(e.Priority)*60 + int64(now.Sub(e.Created)/time.Second)
}

// Replays random sequences of benchmarks that arrive, claim, release and finish. Some seeds are fixed, one is new each time;
// the seed of a failure is in its test's name.
func TestReplay(t *testing.T) {
	fresh := rand.Uint64()
	for _, seed := range []uint64{1, 2, 3, 4, 5, 6, 7, 8, fresh} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			for range 50 {
				replay(t, random)
			}
		})
	}
}

// contender is a benchmark in the simulation.
type contender struct {
	Entry
	arrived, finished bool
	left              int // the remaining runs
}

// replay lets contenders arrive at random and claim their nodes for run after run, but only when Admit allows it.
func replay(t *testing.T, random *rand.Rand) {
	t.Helper()
	nodes := []string{"a", "b", "c", "d", "e"}[:2+random.IntN(4)]
	all := make([]*contender, 1+random.IntN(10))
	for i := range all {
		pair := random.Perm(len(nodes))
		// Creation times are in seconds, as in the API, so that there are ties.
		e := entry(fmt.Sprintf("n%d", random.IntN(1000)*10+i), i/3*20, nodes[pair[0]], nodes[pair[1]])
		all[i] = &contender{Entry: e.priority(int32(random.IntN(3))), left: 1 + random.IntN(4)}
	}
	finished := 0
	for steps := 0; finished < len(all); steps++ {
		if steps > 10_000 {
			t.Fatalf("somebody never finishes: %+v", present(all))
		}
		c := all[random.IntN(len(all))]
		switch {
		case !c.arrived:
			// Contenders arrive in the order of their creation.
			if next := slices.IndexFunc(all, func(o *contender) bool { return !o.arrived }); all[next] == c {
				c.arrived = true
			}
		case c.finished:
		case c.Active:
			c.Active = false
			c.left--
			if c.left == 0 {
				c.finished = true
				finished++
			}
		default:
			ok, _ := Admit(c.Entry, present(all))
			if !ok {
				break
			}
			checkTurn(t, c.Entry, present(all))
			c.Started, c.Active = true, true
			checkExclusive(t, all)
		}
	}
}

// present returns the entries that the controller passes to Admit: the contenders that have arrived and are not finished.
func present(all []*contender) []Entry {
	var entries []Entry
	for _, c := range all {
		if c.arrived && !c.finished {
			entries = append(entries, c.Entry)
		}
	}
	return entries
}

// checkExclusive checks that no two started benchmarks hold a node: neither at the same time nor in alternating rounds.
func checkExclusive(t *testing.T, all []*contender) {
	t.Helper()
	holder := map[string]string{}
	for _, c := range all {
		if !c.Started || c.finished {
			continue
		}
		for _, node := range []string{c.Pair.ClientNode, c.Pair.ServerNode} {
			if other, taken := holder[node]; taken {
				t.Fatalf("%s and %s are both on node %s", other, c.Name, node)
			}
			holder[node] = c.Name
		}
	}
}

// checkTurn checks that no benchmark starts while one that has precedence waits for one of its nodes.
func checkTurn(t *testing.T, starting Entry, waiting []Entry) {
	t.Helper()
	if starting.Started {
		return
	}
	now := time.Unix(1000, 0)
	for _, e := range waiting {
		for _, node := range []string{e.Pair.ClientNode, e.Pair.ServerNode} {
			wanted := node == starting.Pair.ClientNode || node == starting.Pair.ServerNode
			if wanted && e.UID != starting.UID && order(e, starting, now) < 0 {
				t.Fatalf("%s started before %s, which goes before it on node %s", starting.Name, e.Name, node)
			}
		}
	}
}

// BenchmarkAdmit measures one decision, with benchmarks scattered over 5,000 nodes and with all on the same two.
// BenchmarkAdmitEach measures one decision for each waiting benchmark, on 5,000 nodes.
func BenchmarkAdmit(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		for name, nodes := range map[string]int{"scattered": 5_000, "same nodes": 2} {
			all := queued(n, nodes)
			b.Run(fmt.Sprintf("%d %s", n, name), func(b *testing.B) {
				last := all[n-1]
				for b.Loop() {
					Admit(last, all)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
			})
		}
	}
}

func BenchmarkAdmitEach(b *testing.B) {
	all := queued(1_000, 5_000)
	for b.Loop() {
		for _, e := range all {
			Admit(e, all)
		}
	}
}

// queued returns benchmarks that were created one per second and are listed by name, on pairs of that many nodes.
func queued(n, nodes int) []Entry {
	random := rand.New(rand.NewPCG(1, 0))
	all := make([]Entry, n)
	for i := range all {
		client := random.IntN(nodes)
		server := (client + 1 + random.IntN(nodes-1)) % nodes
		all[i] = entry(fmt.Sprintf("benchmark-%05d", i), i, fmt.Sprintf("worker-%04d", client), fmt.Sprintf("worker-%04d", server)).
			priority(int32(random.IntN(3)))
	}
	return all
}
