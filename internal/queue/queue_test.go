package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// entry is created at a second, and wants a client's and a server's node.
func entry(name string, second int, client, server string) Entry {
	return Entry{
		Name: "perf/" + name, UID: "uid-" + name, Created: time.Unix(int64(second), 0),
		Pair: v1alpha1.Pair{ClientNode: client, ServerNode: server},
	}
}

func (e Entry) active() Entry { e.Active = true; return e }

func TestAdmit(t *testing.T) {
	mine := entry("mine", 10, "a", "b")
	cases := map[string]struct {
		candidate Entry
		others    []Entry
		wantOK    bool
		// wantBlocker are parts of the blocker.
		wantBlocker []string
	}{
		"alone": {candidate: mine, wantOK: true},
		"among others there is oneself, who blocks nobody": {
			candidate: mine, others: []Entry{mine.active()}, wantOK: true,
		},
		"an earlier benchmark of the same name is somebody else": {
			candidate:   mine,
			others:      []Entry{{Name: mine.Name, UID: "uid-before", Created: time.Unix(1, 0), Pair: mine.Pair}},
			wantBlocker: []string{"perf/mine", "node a"},
		},
		"one that measures on another pair": {
			candidate: mine, others: []Entry{entry("other", 1, "c", "d").active()}, wantOK: true,
		},
		"one that measures on the client's node": {
			candidate: mine, others: []Entry{entry("other", 20, "a", "d").active()},
			wantBlocker: []string{"perf/other", "measuring", "node a"},
		},
		"one that measures with the roles swapped": {
			candidate: mine, others: []Entry{entry("other", 20, "b", "c").active()},
			wantBlocker: []string{"perf/other", "measuring", "node b"},
		},
		"an older one that waits for one of the nodes": {
			candidate: mine, others: []Entry{entry("older", 5, "c", "b")},
			wantBlocker: []string{"perf/older", "came first", "node b"},
		},
		"a younger one that waits": {
			candidate: mine, others: []Entry{entry("younger", 11, "a", "b")}, wantOK: true,
		},
		"of one age, the name decides against": {
			candidate: mine, others: []Entry{entry("earlier", 10, "a", "b")},
			wantBlocker: []string{"perf/earlier", "came first"},
		},
		"of one age, the name decides for": {
			candidate: mine, others: []Entry{entry("zuletzt", 10, "a", "b")}, wantOK: true,
		},
		"who measures is named before who only waits": {
			candidate: mine, others: []Entry{entry("older", 1, "a", "b"), entry("active", 20, "a", "b").active()},
			wantBlocker: []string{"perf/active", "measuring"},
		},
		"of several that wait, the oldest is named": {
			candidate: mine, others: []Entry{entry("second", 2, "a", "b"), entry("first", 1, "b", "a"), entry("third", 3, "a", "b")},
			wantBlocker: []string{"perf/first", "came first"},
		},
		"one without nodes blocks nobody": {
			candidate: mine, others: []Entry{entry("empty", 1, "", "").active()}, wantOK: true,
		},
		"without nodes, nobody blocks": {
			candidate: entry("empty", 10, "", ""), others: []Entry{entry("other", 1, "", "").active()}, wantOK: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(c.others)
			ok, blocker := Admit(c.candidate, c.others)
			if ok != c.wantOK || ok != (blocker == "") {
				t.Errorf("got %t (%s), want %t", ok, blocker, c.wantOK)
			}
			for _, part := range c.wantBlocker {
				if !strings.Contains(blocker, part) {
					t.Errorf("blocker %q does not name %q", blocker, part)
				}
			}
			if !slices.Equal(before, c.others) {
				t.Error("the entries were changed")
			}
			// The answer is the same whoever asks, and in whatever order the API lists.
			slices.Reverse(c.others)
			if again, same := Admit(c.candidate, c.others); again != ok || same != blocker {
				t.Errorf("in another order: got %t (%s), before %t (%s)", again, same, ok, blocker)
			}
		})
	}
}

// Random sequences of benchmarks that come, claim and release are replayed, some always the same, one new
// each time; the seed of a failure is in its test's name.
func TestNeverTwoOnOneNode(t *testing.T) {
	fresh := rand.Uint64()
	for _, seed := range []uint64{1, 2, 3, 4, 5, 6, 7, 8, fresh} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			for range 50 {
				replay(t, rand.New(rand.NewPCG(seed, 0)))
				seed++
			}
		})
	}
}

// contender is a benchmark in the simulation.
type contender struct {
	Entry
	arrived, finished bool
	left              int // runs
}

// replay lets contenders come at random and claim their nodes for run after run, each only as Admit allows.
func replay(t *testing.T, random *rand.Rand) {
	t.Helper()
	nodes := []string{"a", "b", "c", "d", "e"}[:2+random.IntN(4)]
	all := make([]*contender, 1+random.IntN(8))
	for i := range all {
		pair := random.Perm(len(nodes))
		all[i] = &contender{
			// Creation times in seconds, as the API gives them, so that there are ties.
			Entry: entry(fmt.Sprintf("n%d", random.IntN(1000)*10+i), i/2, nodes[pair[0]], nodes[pair[1]]),
			left:  1 + random.IntN(4),
		}
	}
	// started notes who began, in order, to check who came first.
	var started []*contender
	for steps := 0; ; steps++ {
		if steps > 10_000 {
			t.Fatalf("somebody never finishes: %+v", all)
		}
		c := all[random.IntN(len(all))]
		switch {
		case !c.arrived:
			// They arrive in the order of their creation.
			if next := slices.IndexFunc(all, func(o *contender) bool { return !o.arrived }); all[next] == c {
				c.arrived = true
			}
		case c.finished:
		case c.Active:
			c.Active = false
			c.left--
			c.finished = c.left == 0
		default:
			ok, _ := Admit(c.Entry, present(all))
			if !ok {
				break
			}
			c.Active = true
			if !slices.Contains(started, c) {
				started = append(started, c)
			}
			checkExclusive(t, all)
			checkOrder(t, c, all)
		}
		if !slices.ContainsFunc(all, func(o *contender) bool { return !o.finished }) {
			break
		}
	}
	if len(started) != len(all) {
		t.Errorf("%d of %d ever started", len(started), len(all))
	}
}

// present is what the controller hands to Admit: who came and is not finished.
func present(all []*contender) []Entry {
	var entries []Entry
	for _, c := range all {
		if c.arrived && !c.finished {
			entries = append(entries, c.Entry)
		}
	}
	return entries
}

func checkExclusive(t *testing.T, all []*contender) {
	t.Helper()
	holder := map[string]string{}
	for _, c := range all {
		if !c.Active {
			continue
		}
		for _, node := range []string{c.Pair.ClientNode, c.Pair.ServerNode} {
			if other, taken := holder[node]; taken {
				t.Fatalf("%s and %s are both active on node %s", other, c.Name, node)
			}
			holder[node] = c.Name
		}
	}
}

// checkOrder says that nobody may start while one that came before waits for one of its nodes.
func checkOrder(t *testing.T, starting *contender, all []*contender) {
	t.Helper()
	for _, c := range all {
		if c != starting && c.arrived && !c.finished && before(c.Entry, starting.Entry) && shared(c.Pair, starting.Pair) != "" {
			t.Fatalf("%s started before %s, which came first and needs node %s", starting.Name, c.Name, shared(c.Pair, starting.Pair))
		}
	}
}
