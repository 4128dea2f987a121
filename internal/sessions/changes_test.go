package sessions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
)

func kernel(version string) map[string]string { return map[string]string{"Kernel": version} }

// measuredAs returns the sessions of a history such as "1b=1000+ 2b=1300": kernel, peer and level of each
// boot, with a plus if it was accepted.
func measuredAs(history string) (recent []v1alpha1.MeasuredSession) {
	for i, word := range strings.Fields(history) {
		var level int64
		of, rest, _ := strings.Cut(word, "=")
		if _, err := fmt.Sscan(strings.TrimSuffix(rest, "+"), &level); err != nil {
			panic(err)
		}
		recent = Remember(recent, v1alpha1.MeasuredSession{
			Time: metav1.NewTime(time.Unix(int64(i), 0)), BootID: fmt.Sprint(i), Peer: of[1:], Identity: kernel(of[:1]),
			Accepted: strings.HasSuffix(rest, "+"), Levels: levels(level),
		})
	}
	return recent
}

// TestChangesAreSinceTheAccepted compares each change with the last accepted session with the same peer.
func TestChangesAreSinceTheAccepted(t *testing.T) {
	for name, c := range map[string]struct{ history, want string }{
		"a change that passed":                {"1b=1000+ 2b=1100+", "1-2 8 1.1000"},
		"one that failed, and another":        {"1b=1000+ 2b=1300 3b=1070+", "1-3 8 1.0700, 1-2 8 1.3000"},
		"a plain boot after a Fail":           {"1b=1000+ 2b=1300 2b=1310", "1-2 8 1.3000"},
		"a plain boot after a Pass":           {"1b=1000+ 2b=1100+ 2b=1200+", "1-2 8 1.1000"},
		"an undone change":                    {"1b=1000+ 2b=1300 1b=1010+", ""},
		"one that had passed":                 {"1b=1000+ 2b=1100+ 1b=1012+", ""},
		"an undone change, and it again":      {"1b=1000+ 2b=1300 1b=1000+ 2b=1200", "1-2 8 1.2000"},
		"one after another was undone":        {"1b=1000+ 2b=1100+ 3b=1300 2b=1100+", "1-2 8 1.1000"},
		"two that passed":                     {"1b=1000+ 2b=1100+ 3b=1210+", "1-3 8 1.2100, 1-2 8 1.1000"},
		"two that were small":                 {"1b=1000+ 2b=1010+ 3b=1020+", "2-3 8 1.0099, 1-2 8 1.0100"},
		"a boot that made all slower":         {"1b=1000+ 1b=1001+ 1b=1100+", "- 8 1.0989"},
		"a boot that did not":                 {"1b=1000+ 1b=1001+ 1b=1010+", ""},
		"a second peer":                       {"1b=1000+ 1c=2000+ 2b=1100 2c=2400+", "1-2 8 1.1000"},
		"a second peer that was not accepted": {"1b=1000+ 2b=1100 2c=2400+", "1-2 8 1.1000"},
		"nothing accepted before":             {"1b=1000 2b=1300", ""},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := slices.Repeat([]Node{{Recent: measuredAs(c.history)}}, 8)
			var got []string
			for _, c := range Fleet(nodes, Tolerances{series: 5000}) {
				got = append(got, fmt.Sprintf("%s-%s %d %s", c.Changed[0].From, c.Changed[0].To, c.Nodes, c.Median))
			}
			if got := strings.Join(got, ", "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestChangesAreValues lets a change differ from another only in the fifth key, or at the end of a long
// value: both are changes of their own, and one that is equal is the same.
func TestChangesAreValues(t *testing.T) {
	of := func(last string) map[string]string {
		return identity.Kept(map[string]string{"BootID": last, "A": "1", "B": "1", "C": "1", "D": "1", "E": last})
	}
	long := strings.Repeat("x", 600)
	var nodes []Node
	for _, to := range []string{"8.3", "8.4", "8.4", long + "a", long + "b"} {
		was := of("8.2")
		for key := range was {
			was[key] = "0"
		}
		session := func(i int64, is map[string]string) v1alpha1.MeasuredSession {
			return v1alpha1.MeasuredSession{Time: metav1.NewTime(time.Unix(i, 0)), BootID: fmt.Sprint(i), Peer: "b", Identity: is, Accepted: true, Levels: levels(1000)}
		}
		nodes = append(nodes, Node{Recent: []v1alpha1.MeasuredSession{session(1, was), session(2, of(to))}})
	}
	var numbers []int32
	for _, c := range Fleet(nodes, Tolerances{series: 5000}) {
		if len(c.Changed) != 5 {
			t.Errorf("%+v", c.Changed)
		}
		numbers = append(numbers, c.Nodes)
	}
	if slices.Sort(numbers); !slices.Equal(numbers, []int32{1, 1, 1, 2}) {
		t.Errorf("numbers of nodes %v", numbers)
	}
}

// TestChangesByTheirTolerances has two values with different tolerances: the one that exceeds its own is the
// worst, though the other changed more; a value that no rule compares does not count.
func TestChangesByTheirTolerances(t *testing.T) {
	loose, tight := series, v1alpha1.ComparedValue{Variant: "default", Cell: "tcp-64", Metric: v1alpha1.MetricP99}
	both := func(ofLoose, ofTight int64) []v1alpha1.ValueLevel {
		return []v1alpha1.ValueLevel{{ComparedValue: loose, Level: ofLoose}, {ComparedValue: tight, Level: ofTight}}
	}
	var recent []v1alpha1.MeasuredSession
	for i, levels := range [][]v1alpha1.ValueLevel{both(1000, 1000), both(1100, 1040)} {
		recent = append(recent, v1alpha1.MeasuredSession{Time: metav1.NewTime(time.Unix(int64(i), 0)), BootID: fmt.Sprint(i), Peer: "b", Identity: kernel(fmt.Sprint(i)), Accepted: true, Levels: levels})
	}
	nodes := slices.Repeat([]Node{{Recent: recent}}, 8)
	for _, c := range []struct {
		tolerances Tolerances
		of         v1alpha1.ComparedValue
		shifted    bool
	}{
		{Tolerances{loose: 50_000, tight: 5000}, tight, true},
		{Tolerances{loose: 50_000, tight: 50_000}, loose, false},
		{Tolerances{loose: 5000, tight: 5000}, loose, true},
		{Tolerances{loose: 50_000}, loose, false},
	} {
		got := Fleet(nodes, c.tolerances)
		if len(got) != 1 || got[0].Of != c.of || got[0].Shifted != c.shifted {
			t.Errorf("%v: %+v", c.tolerances, got)
		}
	}
	if got := Fleet(nodes, Tolerances{}); len(got) > 0 {
		t.Errorf("without a rule: %+v", got)
	}
}

// fleet is a gate's nodes in tests. Each step is an hour.
type fleet struct {
	nodes []Node
	hour  int64
}

func makeFleet(n int) *fleet {
	f := &fleet{nodes: make([]Node, n)}
	f.measure("1", 1000, n)
	return f
}

// measure boots the first nodes of the fleet with a kernel, and measures them one after another.
func (f *fleet) measure(kernelVersion string, level int64, nodes int) *fleet {
	return f.measureThese(kernelVersion, level, 0, nodes)
}

func (f *fleet) measureThese(kernelVersion string, level int64, from, to int) *fleet {
	f.hour++
	for i := from; i < to; i++ {
		f.nodes[i].Recent = Remember(f.nodes[i].Recent, v1alpha1.MeasuredSession{
			Time: metav1.NewTime(time.Unix(f.hour*3600+int64(i), 0)), BootID: fmt.Sprint(f.hour), Peer: "b", Identity: kernel(kernelVersion),
			Accepted: true, Levels: levels(level + int64(i%3)),
		})
	}
	return f
}

// TestAShiftStands makes a fleet slower, by a change or by a boot that shows in no version: it is known until enough nodes are shown
// to be within the limit, or the change is undone, or a user accepts the results.
func TestAShiftStands(t *testing.T) {
	for name, c := range map[string]struct {
		then func(f *fleet)
		want bool
	}{
		"nothing more":               {func(*fleet) {}, true},
		"another change of one node": {func(f *fleet) { f.measure("3", 1085, 1) }, true},
		"five small changes of single nodes": {func(f *fleet) {
			for i := range 5 {
				f.measureThese(fmt.Sprint("3.", i), 1085, i, i+1)
			}
		}, true},
		"one that makes a node as before":     {func(f *fleet) { f.measure("3", 1000, 1) }, true},
		"another of all that changes nothing": {func(f *fleet) { f.measure("3", 1085, 20) }, true},
		"a boot of all that changes nothing":  {func(f *fleet) { f.measure("2", 1085, 20).measure("2", 1084, 20) }, true},
		"twelve boots": {func(f *fleet) {
			for range 12 {
				f.measure("2", 1085, 20)
			}
		}, true},
		"a change of six that helps":  {func(f *fleet) { f.measure("3", 1001, 6) }, false},
		"a change of five that helps": {func(f *fleet) { f.measure("3", 1001, 5) }, true},
		"undone on all":               {func(f *fleet) { f.measure("1", 1001, 20) }, false},
		"undone on one":               {func(f *fleet) { f.measure("1", 1001, 1) }, true},
		"accepted on one":             {func(f *fleet) { f.nodes[0].Recent = f.nodes[0].Recent[1:] }, true},
		"accepted on all": {func(f *fleet) {
			for i := range f.nodes {
				f.nodes[i].Recent = f.nodes[i].Recent[1:]
			}
		}, false},
		"another change that other nodes have": {func(f *fleet) { f.nodes = append(f.nodes, makeFleet(10).measure("9", 1001, 10).nodes...) }, true},
	} {
		for group, version := range map[string]string{"change": "2", "boot": "1"} {
			if group == "boot" && strings.HasPrefix(name, "undone") {
				continue // There is nothing that can be undone by its name.
			}
			t.Run(group+", "+name, func(t *testing.T) {
				f := makeFleet(20).measure(version, 1085, 20)
				before := spreadOf(f.nodes)
				if group == "boot" {
					before = spreadOf(makeFleet(20).measure("1", 1000, 20).nodes)
				}
				c.then(f)
				changes := Fleet(f.nodes, Tolerances{series: 10_000})
				if got := len(changes) > 0 && changes[0].Shifted; got != c.want {
					t.Errorf("%+v", changes)
				}
				if after := spreadOf(f.nodes); after > before+0.001 {
					t.Errorf("the shift widens the spread from %g to %g", before, after)
				}
			})
		}
	}
}

func spreadOf(nodes []Node) float64 { return Spread(nodes)[0].Deviation.Value() }

// TestAShiftOfSome finds what made only one group slower, or only nodes that had something else before, in any order of measurement.
func TestAShiftOfSome(t *testing.T) {
	for _, slowLast := range []bool{true, false} {
		f := &fleet{nodes: make([]Node, 20)}
		f.measureThese("1", 1000, 0, 10).measureThese("2", 1000, 10, 20)
		slow := func() { f.measureThese("3", 1090, 0, 10) }
		if !slowLast {
			slow()
		}
		if f.measureThese("3", 1000, 10, 20); slowLast {
			slow()
		}
		if got := Fleet(f.nodes, Tolerances{series: 10_000}); !got[0].Shifted || got[0].Changed[0].From != "1" || got[0].Nodes != 10 {
			t.Errorf("those that had kernel 1, slow ones last %v: %+v", slowLast, got)
		}
		for i := range f.nodes {
			f.nodes[i].Group = fmt.Sprint(i / 10)
			f.nodes[i].Recent[0].Identity = kernel("1")
		}
		if got := Fleet(f.nodes, Tolerances{series: 10_000}); !got[0].Shifted || got[0].Group != "0" || got[0].Nodes != 10 {
			t.Errorf("those of a group, slow ones last %v: %+v", slowLast, got)
		}
	}
}

// TestBoundsOfALook counts how often the bound of a median that is at its limit is ever beyond it, looked at after each node.
func TestBoundsOfALook(t *testing.T) {
	for nodes, oneIn := range map[int]float64{20: 40, 200: 40} {
		below, ever := map[int]float64{0: 1}, 0.0
		for n := 1; n <= nodes; n++ {
			next := map[int]float64{}
			for k, p := range below {
				next[k] += p / 2
				next[k+1] += p / 2
			}
			below = next
			values := make([]float64, n)
			for i := range values {
				values[i] = float64(i)
			}
			if low, _, bounded := bounds(values, 1); bounded {
				for k, p := range below {
					if k <= int(low) {
						ever += p
						delete(below, k)
					}
				}
			}
		}
		if ever > 1/oneIn {
			t.Errorf("%d nodes: one in %.1f", nodes, 1/ever)
		}
		t.Logf("%d nodes: one in %.1f", nodes, 1/ever)
	}
	for among, fewest := range map[int]int{1: 6, 13: 12, 32: 14} {
		_, _, less := bounds(make([]float64, fewest-1), among)
		if _, _, bounded := bounds(make([]float64, fewest), among); !bounded || less {
			t.Errorf("%d values: %d nodes bound them %v, one less %v", among, fewest, bounded, less)
		}
	}
}

// TestSpreadByGroup gives each group its own spread, and a group of few nodes that of all, of which few nodes are its own.
func TestSpreadByGroup(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var nodes []Node
	for i := range int64(24) {
		n := Node{Group: "quiet"}
		step := 2.
		if i%2 == 0 {
			n.Group, step = "noisy", 50
		}
		if i >= 20 {
			n.Group = "few"
		}
		for u := range int64(4) {
			n.Recent = Remember(n.Recent, v1alpha1.MeasuredSession{Time: metav1.NewTime(time.Unix(u*3600+i, 0)), BootID: fmt.Sprint(u), Peer: "b", Identity: kernel(fmt.Sprint(u)),
				Accepted: true, Levels: levels(1000 + int64(step*random.NormFloat64()))})
		}
		nodes = append(nodes, n)
	}
	found := map[string]v1alpha1.SessionSpread{}
	for _, s := range Spread(nodes) {
		found[s.Group] = s
	}
	if noisy, quiet, few := found["noisy"], found["quiet"], found["few"]; noisy.Nodes != 10 || few.Nodes != 4 || noisy.Deviation.Value() < 10*quiet.Deviation.Value() ||
		few.Differences != 48 || noisy.Differences != 30 {
		t.Errorf("%+v", found)
	}
	status := &v1alpha1.LatencyGateStatus{Spread: Spread(nodes)}
	r := For(&v1alpha1.LatencyVerificationStatus{Identity: map[string]string{identity.Label("group"): "x"}}, status, "9", "b")
	if len(r.Spread) != 0 || len(status.Spread) != 3 {
		t.Errorf("a group that is not known: %+v", r.Spread)
	}
}
