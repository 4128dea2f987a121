package sessions

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

func exact(values ...int64) []stats.Observation {
	all := make([]stats.Observation, len(values))
	for i, v := range values {
		all[i] = stats.Exact(v)
	}
	return all
}

// measured returns rounds of a session for a status, keeps adds them to an accepted one, and levels is a level.
func measured(rounds []stats.Observation) []v1alpha1.ValueRounds {
	return []v1alpha1.ValueRounds{Rounds(series, rounds, FirstRounds)}
}

func keeps(s v1alpha1.ReferenceSession, rounds []v1alpha1.ValueRounds) v1alpha1.ReferenceSession {
	s.Rounds = rounds
	return s
}

func levels(level int64) []v1alpha1.ValueLevel {
	return []v1alpha1.ValueLevel{{ComparedValue: series, Level: level}}
}

func session(boot, peer string) v1alpha1.ReferenceSession {
	return v1alpha1.ReferenceSession{Benchmark: "of " + boot, BootID: boot, Peer: peer}
}

// described returns the sessions of a reference as "boot/peer/rounds".
func described(reference []v1alpha1.ReferenceSession) string {
	var all []string
	for _, r := range reference {
		all = append(all, fmt.Sprintf("%s/%s/%d", r.BootID, r.Peer, len(roundsOf(r, series))))
	}
	return strings.Join(all, " ")
}

// warm is a gate whose sessions begin with a warm-up.
var warm = &v1alpha1.LatencyGateStatus{Spread: []v1alpha1.SessionSpread{{ComparedValue: series, WarmUp: "1.0210"}}}

func TestExtend(t *testing.T) {
	m := measured(slices.Repeat(exact(1000), 20))
	for name, c := range map[string]struct{ boots, want string }{
		"a warm-up is found at the third (+)":         {"1b 2b +3b 4b", "1/b/12 3/b/12 4/b/12"},
		"the first has more rounds":                   {"1b", "1/b/12"},
		"later ones have fewer":                       {"1b 2b 3b", "1/b/12 2/b/6 3/b/6"},
		"a boot counts once":                          {"1b 1b 2b 1b", "1/b/12 2/b/6"},
		"a boot with another peer is another session": {"1b 1c", "1/b/12 1/c/12"},
		"there are at most five, and the first stay":  {"1b 2b 3b 4b 5b 6b 7b", "1/b/12 2/b/6 3/b/6 4/b/6 5/b/6"},
		"at most two peers, and the oldest session":   {"1b 2b 3c 4d", "1/b/12 3/c/12 4/d/12"},
		"the peer that was used last stays":           {"1b 2c 3b 4d", "1/b/12 3/b/6 4/d/12"},
		"the oldest session stays":                    {"1b 2c 3d 4e", "1/b/12 3/d/12 4/e/12"},
	} {
		t.Run(name, func(t *testing.T) {
			var reference []v1alpha1.ReferenceSession
			g := &v1alpha1.LatencyGateStatus{}
			for _, boot := range strings.Fields(c.boots) {
				boot, found := strings.CutPrefix(boot, "+")
				if found {
					g = warm
				}
				reference = Extend(reference, keeps(session(boot[:1], boot[1:]), m), g)
			}
			if got := described(reference); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestRemember(t *testing.T) {
	var recent []v1alpha1.MeasuredSession
	add := func(boot, peer, is string, level int64) {
		recent = Remember(recent, v1alpha1.MeasuredSession{BootID: boot, Peer: peer, Identity: kernel(is), Levels: levels(level)})
	}
	add("1", "b", "1", 1000)
	add("1", "b", "1", 2000) // another measurement of this boot
	add("2", "c", "1", 5000) // another peer
	add("2", "b", "1", 1000)
	add("2", "b", "2", 1100)
	// The change in boot 2 shows no other boot.
	if got := successive(recent); len(got) != 1 || levelOf(*got[0].after, series) != 1000 {
		t.Errorf("%+v", got)
	}
	accepted := v1alpha1.MeasuredSession{BootID: "2", Peer: "b", Identity: kernel("2"), Accepted: true, Levels: levels(1050)}
	for range 2 {
		// Another look at a boot is kept once if it was accepted, and is no other boot.
		if recent = Remember(recent, accepted); len(recent) != 5 || len(successive(recent)) != 1 {
			t.Errorf("%+v", recent)
		}
	}
	for i := range 20 {
		add(fmt.Sprint("later ", i), "b", "2", 1000)
	}
	if len(recent) != 9 || recent[8].BootID != "later 19" {
		t.Errorf("%d sessions: %+v", len(recent), recent)
	}
}

func TestRounds(t *testing.T) {
	for name, c := range map[string]struct {
		rounds []stats.Observation
		want   v1alpha1.ValueRounds
	}{
		"exact":    {exact(9180, 9205), v1alpha1.ValueRounds{ComparedValue: series, Values: []int64{9180, 9205}}},
		"a range":  {[]stats.Observation{{Value: 9180, Low: 9175, High: 9183}}, v1alpha1.ValueRounds{ComparedValue: series, Values: []int64{9180}, Low: []int64{9175}, High: []int64{9183}}},
		"lost":     {exact(stats.Infinite), v1alpha1.ValueRounds{ComparedValue: series, Values: []int64{stats.Infinite}}},
		"too many": {slices.Repeat([]stats.Observation{{Value: 1e18, Low: 1, High: stats.Infinite}}, 20), v1alpha1.ValueRounds{ComparedValue: series, Values: slices.Repeat([]int64{1e18}, 12), Low: slices.Repeat([]int64{1}, 12), High: slices.Repeat([]int64{stats.Infinite}, 12)}},
	} {
		got := Rounds(series, c.rounds, FirstRounds)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if back := observations(got); !slices.Equal(back, c.rounds[:len(back)]) || len(back) != len(c.want.Values) {
			t.Errorf("%s: %v", name, back)
		}
	}
	for _, s := range []v1alpha1.ValueRounds{
		{Values: []int64{-1}},
		{Values: []int64{5}, Low: []int64{-1}, High: []int64{5}},
		{Values: []int64{5}, Low: []int64{6}, High: []int64{6}},
		{Values: []int64{5}, Low: []int64{5}, High: []int64{4}},
		{Values: []int64{5}, Low: []int64{5}},
		{Values: []int64{5, 6}, Low: []int64{5}, High: []int64{5}},
	} {
		if got := observations(s); got != nil {
			t.Errorf("%+v: got %v", s, got)
		}
	}
}

func TestLevel(t *testing.T) {
	for _, c := range []struct {
		rounds []stats.Observation
		want   int64
	}{
		{nil, 0}, {exact(5), 5}, {exact(1, 2, 3), 2}, {exact(10, 20), 15}, {exact(1, 1, 1, 3, 3, 3, 99, 99, 99), 2},
		{exact(1, 1, stats.Infinite, stats.Infinite), 0}, {exact(1, 1, 1, stats.Infinite, 1, 1), 1},
	} {
		if got := Level(c.rounds); got != c.want {
			t.Errorf("%v: got %d, want %d", c.rounds, got, c.want)
		}
	}
}

func TestReference(t *testing.T) {
	m := measured(slices.Repeat([]stats.Observation{{Value: 1000, Low: 990, High: 1010}}, 20))
	var reference []v1alpha1.ReferenceSession
	for _, boot := range []string{"1", "2", "3", "4", "5"} {
		reference = Extend(reference, keeps(session(boot, "b"), m), &v1alpha1.LatencyGateStatus{})
	}
	gate := &v1alpha1.LatencyGateStatus{Spread: []v1alpha1.SessionSpread{{ComparedValue: series, Nodes: 20, Differences: 40, Deviation: "0.012"}}}
	few := gate.DeepCopy()
	few.Spread[0].Differences = 3
	changed := gate.DeepCopy()
	changed.Changes = []v1alpha1.FleetChange{{Changed: []v1alpha1.IdentityChange{{Key: "Kernel", From: "1", To: "2"}}, Of: series, Nodes: 20, Median: "1.1000", Shared: map[string]v1alpha1.Factor{series.String(): "1.1"}}}
	recent := []v1alpha1.MeasuredSession{
		{Peer: "b", BootID: "1", Identity: kernel("1"), Levels: levels(1000)},
		{Peer: "b", BootID: "2", Identity: kernel("2"), Levels: levels(1100)},
	}
	var boots []v1alpha1.MeasuredSession
	for _, id := range []string{"11", "12", "13", "14"} {
		boots = append(boots, v1alpha1.MeasuredSession{Peer: "b", BootID: id, Identity: kernel("2"), Levels: levels(1100)})
	}
	for name, c := range map[string]struct {
		sessions    []v1alpha1.ReferenceSession
		gate        *v1alpha1.LatencyGateStatus
		boot, peer  string
		rounds      int
		share       float64
		differences int
		provisional string
	}{
		"five boots":              {reference, gate, "6", "b", 36, 0.2222, 40, ""},
		"four":                    {reference[:4], gate, "6", "b", 30, 0.28, 40, ""},
		"three":                   {reference[:3], gate, "6", "b", 24, 0.375, 40, ""},
		"two":                     {reference[:2], gate, "6", "b", 18, 0.5556, 40, ""},
		"one":                     {reference[:1], gate, "6", "b", 12, 1, 40, "one boot"},
		"the same boot":           {reference[:1], gate, "1", "b", 12, 1, 40, "one boot"},
		"a boot that is unknown":  {[]v1alpha1.ReferenceSession{Extend(nil, keeps(session("", "b"), m), &v1alpha1.LatencyGateStatus{})[0]}, gate, "", "b", 12, 1, 40, "one boot"},
		"one of the five boots":   {reference, gate, "1", "b", 36, 0.2222, 40, ""},
		"another peer":            {reference, gate, "6", "c", 36, 0.2222, 40, "is with peer b"},
		"too few differences":     {reference, few, "6", "b", 36, 0.2222, 0, ""},
		"a gate that knows none":  {reference, &v1alpha1.LatencyGateStatus{}, "6", "b", 36, 0.2222, 0, "0 of 8 nodes"},
		"a warm-up":               {reference, warm, "6", "b", 6, 1, 0, "one boot"},
		"only a warm-up":          {reference[1:3], warm, "6", "b", 12, 0.5, 0, "has no others"},
		"no session of the value": {nil, gate, "6", "b", 0, 1, 40, "one result"},
		"few boots of its own":    {reference, gate, "13", "b", 36, 0.2222, 40, "2 of 3 differences"},
	} {
		t.Run(name, func(t *testing.T) {
			r := For(&v1alpha1.LatencyVerificationStatus{Reference: c.sessions, Recent: boots}, c.gate, c.boot, c.peer)
			rounds, b := r.Of(series)
			if len(rounds) != c.rounds || b.Share < c.share-1e-4 || b.Share > c.share+1e-4 || b.Differences != c.differences || len(c.sessions) > 0 && b.Step != 0.02 {
				t.Errorf("%d rounds, %+v", len(rounds), b)
			}
			if got := r.Provisional(measured(nil)); !strings.Contains(got, c.provisional) || (got == "") != (c.provisional == "") || b.Doubt != (got != "") {
				t.Errorf("provisional: %q, %+v", got, b)
			}
		})
	}
	r := For(&v1alpha1.LatencyVerificationStatus{Reference: reference, Recent: boots}, gate, "6", "b")
	if got := r.Provisional(append(measured(nil), v1alpha1.ValueRounds{ComparedValue: v1alpha1.ComparedValue{Variant: "other"}})); !strings.Contains(got, "1 of 2 compared values") {
		t.Errorf("a value that the reference does not have: %q", got)
	}
	own := func(is string, g *v1alpha1.LatencyGateStatus) []float64 {
		later := slices.Clone(recent)
		later[1].Identity = kernel(is)
		_, b := For(&v1alpha1.LatencyVerificationStatus{Reference: reference, Recent: later}, g, "6", "b").Of(series)
		return b.Own
	}
	if boot := own("1", gate); len(boot) != 1 || boot[0] < 0.067 {
		t.Errorf("of two boots: %v", boot)
	}
	if shared := own("2", changed); len(shared) != 1 || shared[0] < -1e-4 || shared[0] > 1e-4 {
		t.Errorf("of a change that all nodes had: %v", shared)
	}
	if excuse := own("2", gate); len(excuse) > 0 {
		t.Errorf("what a change did to the node alone would excuse the next Fail: %v", excuse)
	}
}

// TestSize measures the parts of the statuses at their bounds: they must fit into the API server's limit of 1.5 MiB for an object, and those
// of a usual gate into the manager's memory.
func TestSize(t *testing.T) {
	size := func(compared, nodes int, name string, round stats.Observation) (verification, gate int) {
		var m []v1alpha1.ValueRounds
		for i := range compared {
			m = append(m, Rounds(v1alpha1.ComparedValue{Variant: fmt.Sprintf("%s%02d", name, i), Cell: "udp-64", Metric: v1alpha1.MetricP999}, slices.Repeat([]stats.Observation{round}, 20), FirstRounds))
		}
		n := Node{Group: "a"}
		for u := range 10 {
			id, now := fmt.Sprintf("3f0e6c1a-7f3b-4f0e-9d57-%012d", u), metav1.NewTime(time.Unix(int64(u), 0))
			n.Reference = Extend(n.Reference, keeps(v1alpha1.ReferenceSession{Benchmark: "fast-nodes-node-0001-10", Time: now, BootID: id, Peer: fmt.Sprint("node-", u/5)}, m), &v1alpha1.LatencyGateStatus{})
			n.Recent = Remember(n.Recent, v1alpha1.MeasuredSession{Time: now, BootID: id, Peer: "node-0001", Identity: identityOf(u), Accepted: true, Levels: Levels(m)})
		}
		of := slices.Repeat([]Node{n}, nodes)
		text := func(v any) int {
			out, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return len(out)
		}
		tolerances := Tolerances{}
		for _, r := range m {
			tolerances[r.ComparedValue] = 5000
		}
		return text(of[0].Reference) + text(of[0].Recent), text(Spread(of)) + text(Fleet(of, tolerances))
	}
	for _, c := range []struct {
		compared, nodes           int
		name                      string
		round                     stats.Observation
		verification, gate, total int
	}{
		{2, 200, "vf", stats.Exact(12_345), 8 << 10, 3 << 10, 2 << 20},
		{2, 5000, "vf", stats.Exact(12_345), 8 << 10, 3 << 10, 40 << 20},
		{v1alpha1.MaxSeries, 200, strings.Repeat("v", 14), stats.Observation{Value: 1e9, Low: 1e8, High: 1e10}, 256 << 10, 17 << 10, 64 << 20},
	} {
		verification, gate := size(c.compared, c.nodes, c.name, c.round)
		t.Logf("%d compared values of %d nodes: a LatencyVerification %d bytes, a LatencyGate %d bytes, all verifications %d KiB", c.compared, c.nodes, verification, gate, c.nodes*verification>>10)
		if verification > c.verification || gate > c.gate || c.nodes*verification > c.total {
			t.Errorf("%d compared values of %d nodes: %d and %d bytes", c.compared, c.nodes, verification, gate)
		}
	}
}

// identityOf returns the identity of a node at an upgrade.
func identityOf(upgrade int) map[string]string {
	return map[string]string{
		"Kernel": fmt.Sprintf("6.1.%d-generic", upgrade), "ContainerRuntime": "containerd://1.7.13", "OSImage": "Some Linux 12 (stable)", "Devices/vendor.example/vf": "8",
	}
}

// TestOutside compares the approximation for many values with the exact distribution.
func TestOutside(t *testing.T) {
	for _, n := range []int{6, 20, 60, 61, 100, 200, 500} {
		if got, exact := outside(n, eachSide), stats.Sign(n, eachSide); got > exact || got < exact-1 {
			t.Errorf("%d of %d, exactly %d", got, n, exact)
		}
	}
}

// TestDrift makes a node 4 % slower with each upgrade, with a tolerance of 10 %. Whatever peers it has, it passes no more than with one.
func TestDrift(t *testing.T) {
	for name, peer := range map[string]func(i int) string{
		"one peer":              func(int) string { return "b" },
		"two peers":             func(i int) string { return fmt.Sprint("p", i%2) },
		"three peers in turns":  func(i int) string { return fmt.Sprint("p", i%3) },
		"another each time":     func(i int) string { return fmt.Sprint("p", i) },
		"another each two":      func(i int) string { return fmt.Sprint("p", i/2) },
		"another after a while": func(i int) string { return fmt.Sprint("p", min(i, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			status, gate, level, last := v1alpha1.LatencyVerificationStatus{}, &v1alpha1.LatencyGateStatus{}, 10_000.0, 0
			for i := range 13 {
				boot, rounds := fmt.Sprint(i), slices.Repeat([]stats.Observation{stats.Exact(int64(level))}, 12)
				session := measured(rounds)
				if i > 0 {
					r := For(&status, gate, boot, peer(i))
					reference, _ := r.Of(series)
					if float64(rounds[0].Value) > 1.1*float64(Level(reference)) || Drifted(status.Reference, peer(i), session, Tolerances{series: 10_000}) != "" {
						break
					}
				}
				last = i
				s := v1alpha1.ReferenceSession{Time: metav1.NewTime(time.Unix(int64(i), 0)), BootID: boot, Peer: peer(i), Rounds: session}
				if status.Reference = Extend(status.Reference, s, gate); status.Reference[0].BootID != "0" || len(status.Reference) > 11 {
					t.Fatalf("%+v", status.Reference)
				}
				level *= 1.04
			}
			if last > 3 {
				t.Errorf("upgrade %d passes, %.0f %% slower than the first", last, 100*(math.Pow(1.04, float64(last))-1))
			}
		})
	}
}
