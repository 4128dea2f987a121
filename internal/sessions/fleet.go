package sessions

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Node is what a gate knows of the sessions of one of its nodes.
type Node struct {
	Group     string // equal for nodes of one group
	Reference []v1alpha1.ReferenceSession
	Recent    []v1alpha1.MeasuredSession
}

func OfNode(v *v1alpha1.LatencyVerification) Node {
	return Node{Group: groupOf(&v.Status), Reference: v.Status.Reference, Recent: v.Status.Recent}
}

// groupOf names the group of a node: nodes with the same values of the gate's labels are of one.
func groupOf(v *v1alpha1.LatencyVerificationStatus) string {
	var labels []string
	for key, value := range v.Identity {
		if strings.HasPrefix(key, identity.Label("")) {
			labels = append(labels, strings.TrimPrefix(key, identity.Label(""))+"="+value)
		}
	}
	slices.Sort(labels)
	return v1alpha1.Shortened(strings.Join(labels, ","), maxGroup)
}

const maxGroup = 160

const (
	FewestNodes       = 8 // nodes that show how much boots differ
	fewestDifferences = 4 // from which on a standard deviation is estimated
	fewestOwn         = 3 // between own boots: is a node like the others of its group?
	// enough earlier differences exclude those of the present wave; at most the newest most count.
	enough, most              = 30, 200
	fewestChanged             = 6  // nodes from which on what they share in a wave is known
	eachSide      stats.OneIn = 40 // the probability of error of each bound
)

// Tolerances are the smallest of the rules that compare a value, by its key; others have none.
type Tolerances map[v1alpha1.ComparedValue]stats.Tolerance

func keysOf(nodes []Node) []key {
	found := map[key]bool{}
	for _, n := range nodes {
		for _, s := range n.Recent {
			for _, l := range s.Levels {
				found[l.ComparedValue] = true
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(found), func(a, b key) int { return strings.Compare(a.String(), b.String()) })
	return keys[:min(len(keys), v1alpha1.MaxSeries)]
}

// groups returns the groups of a gate's nodes; only one, without a name, if all are of the same.
func groups(nodes []Node) []string {
	count := map[string]int{}
	for _, n := range nodes {
		count[n.Group]++
	}
	all := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	if len(all) < 2 {
		return []string{""}
	}
	return all
}

// Spread returns how much the sessions of the nodes of each group differ, for each compared value.
func Spread(nodes []Node) []v1alpha1.SessionSpread {
	all := withWaves(nodes, func(n Node, _ int) []difference { return successive(n.Recent) })
	var out []v1alpha1.SessionSpread
	keys := keysOf(nodes)
	for _, group := range groups(nodes) {
		for _, key := range keys {
			s := spread(all, group, key)
			s.WarmUp = warmUp(nodes, key, len(keys))
			out = append(out, s)
		}
	}
	return out[:min(len(out), v1alpha1.MaxSpreads)]
}

// spread pools the differences between sessions of a group, without what a wave shares; of all
// nodes, if the group has too few. The latest wave counts only until there are enough others: a
// change that moves some nodes does not widen its own intervals.
func spread(all []difference, group string, of key) v1alpha1.SessionSpread {
	out := v1alpha1.SessionSpread{ComparedValue: of, Group: group}
	show, others := map[int]bool{}, 0
	waves, ofGroup := map[string][]float64{}, map[string][]float64{}
	latest := ""
	for _, d := range all {
		value, found := d.of(of)
		if !found {
			continue
		}
		waves[d.wave] = append(waves[d.wave], value)
		if ofGroup[d.group+d.wave] = append(ofGroup[d.group+d.wave], value); group == "" || d.group == group {
			show[d.node], latest = true, d.wave // They are in the order of time.
		}
	}
	out.Nodes = int32(len(show))
	few := len(show) < FewestNodes
	var pooled []difference
	for _, d := range all {
		value, found := d.of(of)
		if !found || group != "" && d.group != group && !few {
			continue
		}
		d.value = value
		if shared := ofGroup[d.group+d.wave]; len(shared) >= fewestChanged {
			d.value -= median(shared)
		} else if shared := waves[d.wave]; len(shared) >= fewestChanged {
			d.value -= median(shared)
		}
		if d.wave != latest {
			others++
		}
		pooled = append(pooled, d)
	}
	if others >= enough {
		pooled = slices.DeleteFunc(pooled, func(d difference) bool { return d.wave == latest })
	}
	pooled = pooled[max(0, len(pooled)-most):]
	out.Differences = int32(len(pooled))
	if len(pooled) >= fewestDifferences {
		sizes := make([]float64, len(pooled))
		for i, d := range pooled {
			sizes[i] = math.Abs(d.value)
		}
		out.Deviation = v1alpha1.FactorOf(robust*median(sizes), 6)
	}
	return out
}

const robust = 1.4826 // makes the median of normal deviations' sizes their standard deviation

// median returns the median of values, whose order it changes; NaN without any.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// WarmUp returns the ratio of first rounds to later ones; empty if they are not slower.
func WarmUp(g *v1alpha1.LatencyGateStatus) v1alpha1.Factor {
	for _, s := range g.Spread {
		if s.WarmUp != "" {
			return s.WarmUp
		}
	}
	return ""
}

// warmUp tests whether the first 6 rounds are slower than the next 6: a t test, 1 in 100 for all.
func warmUp(nodes []Node, of key, among int) v1alpha1.Factor {
	var values []float64
	for _, n := range nodes {
		for _, s := range n.Reference {
			rounds := roundsOf(s, of)
			if len(rounds) < FirstRounds {
				continue
			}
			if first, next := Level(rounds), Level(rounds[LaterRounds:]); first > 0 && next > 0 {
				values = append(values, math.Log(float64(first)/float64(next)))
			}
			break
		}
	}
	n := float64(len(values))
	if n < FewestNodes {
		return ""
	}
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += v
	}
	mean := sum / n
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	if mean <= stats.QuantileT(stats.OneIn(100*among), n-1)*math.Sqrt(squares/(n-1)/n) {
		return ""
	}
	return v1alpha1.FactorOf(math.Exp(mean), 4)
}

// SlowerThanGroup compares a node's first session with at least 8 others of its group. It returns
// the ratio to their median level if its lower bound exceeds the tolerance, or 0; known: enough.
func SlowerThanGroup(level int64, group []int64, t stats.Tolerance) (ratio float64, known bool) {
	if len(group) < FewestNodes || level <= 0 {
		return 0, false
	}
	n := float64(len(group))
	logs := make([]float64, len(group))
	for i, l := range group {
		logs[i] = math.Log(float64(l))
	}
	mid := median(logs)
	for i := range logs {
		logs[i] = math.Abs(logs[i] - mid)
	}
	half := stats.QuantileT(eachSide, max(2, 0.37*n)) * robust * median(logs) * math.Sqrt(1+1.57/n)
	above := math.Log(float64(level)) - mid
	if above-half > math.Log(t.Above().Float64()) {
		return math.Exp(above), true
	}
	return 0, true
}

// Group returns the levels of a value in the references of a group's nodes, with any peer.
func Group(nodes []Node, group string, of v1alpha1.ComparedValue) []int64 {
	var levels []int64
	for _, n := range nodes {
		if n.Group != group || len(n.Reference) == 0 {
			continue
		}
		if level := Level(roundsOf(n.Reference[0], of)); level > 0 {
			levels = append(levels, level)
		}
	}
	return levels
}
