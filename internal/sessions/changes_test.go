package sessions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/stats"
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
		"one that had passed":                 {"1b=1000+ 2b=1100+ 1b=1012+", "2-1 8 0.9200, 1-2 8 1.1000"},
		"an undone change, and it again":      {"1b=1000+ 2b=1300 1b=1000+ 2b=1200", "1-2 8 1.2000"},
		"one after another was undone":        {"1b=1000+ 2b=1100+ 3b=1300 2b=1100+", "1-2 8 1.1000"},
		"two that passed":                     {"1b=1000+ 2b=1100+ 3b=1210+", "2-3 8 1.1000, 1-2 8 1.1000"},
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
		if len(got) != 1 || got[0].Of != c.of || Shifted(Bounded(got), c.tolerances[got[0].Of]) != c.shifted {
			t.Errorf("%v: %+v", c.tolerances, got)
		}
	}
	if got := Fleet(nodes, Tolerances{}); got != nil || Shifted(Bounded(got), stats.Tolerance(0)) {
		t.Errorf("without a rule: %+v", got)
	}
}
