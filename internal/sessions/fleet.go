package sessions

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Node is what a gate knows of the sessions of one of its nodes.
type Node struct {
	// Class is equal for nodes of one kind.
	Class     string
	Reference []v1alpha1.ReferenceSession
	Recent    []v1alpha1.MeasuredSession
}

// OfNode returns what a verification knows of the sessions of its node. Nodes with the same values of the gate's labels are of one kind.
func OfNode(v *v1alpha1.LatencyVerification) Node {
	var labels []string
	for key, value := range v.Status.Identity {
		if strings.HasPrefix(key, identity.Label("")) {
			labels = append(labels, key+"="+value)
		}
	}
	slices.Sort(labels)
	return Node{Class: strings.Join(labels, ","), Reference: v.Status.Reference, Recent: v.Status.Recent}
}

const (
	// FewestNodes is the number of nodes from which on what they share in a change is subtracted, and which show how much boots differ.
	FewestNodes = 8
	// fewestDifferences is the number of differences from which on a standard deviation is estimated from them.
	fewestDifferences = 4
	// enough is the number of differences of earlier changes from which on the present one does not count, and most the number that counts.
	enough, most = 30, 200
	// fewestChanged is the number of nodes that bound what a change did.
	fewestChanged = 6
	// eachSide is the probability of error of each bound.
	eachSide stats.OneIn = 40
)

// Tolerances are the smallest tolerances of the rules that compare a value, by its key. Without one, no rule
// compares it now.
type Tolerances map[v1alpha1.ComparedValue]stats.Tolerance

// difference is the natural logarithm of the ratio of the levels of two sessions of a node with one peer.
type difference struct {
	time time.Time
	// changed is what differs between the identities of the two, apart from the boot.
	changed []v1alpha1.IdentityChange
	value   float64
}

func between(before, after v1alpha1.MeasuredSession, of key) difference {
	value := math.Log(float64(levelOf(after, of)) / float64(levelOf(before, of)))
	return difference{after.Time.Time, identity.Changes(before.Identity, after.Identity), value}
}

// successive returns the differences between each two successive sessions, on different boots or with a
// change, divided by the root of two. They show how much boots differ.
func successive(recent []v1alpha1.MeasuredSession, of key) (all []difference) {
	last := map[string]v1alpha1.MeasuredSession{}
	for _, s := range recent {
		before, found := last[s.Peer]
		if levelOf(s, of) <= 0 || found && sameBoot(before, s) {
			continue
		}
		if found {
			d := between(before, s, of)
			d.value /= math.Sqrt2
			all = append(all, d)
		}
		last[s.Peer] = s
	}
	return all
}

// sinceAccepted returns, for each change, the difference between the first session after it and the last
// accepted one before it. A boot after a Fail is not another change, a second one does not count twice, and
// changes that were undone do not count any more.
func sinceAccepted(recent []v1alpha1.MeasuredSession, of key) (all []difference) {
	accepted := map[string]v1alpha1.MeasuredSession{}
	for _, s := range recent {
		if levelOf(s, of) <= 0 {
			continue
		}
		if before, found := accepted[s.Peer]; found {
			d := between(before, s, of)
			switch change := identity.Key(d.changed); {
			case change == "":
				all = slices.DeleteFunc(all, func(d difference) bool { return d.time.After(before.Time.Time) })
			case !slices.ContainsFunc(all, func(d difference) bool { return identity.Key(d.changed) == change }):
				all = append(all, d)
			}
		}
		if s.Accepted {
			accepted[s.Peer] = s
		}
	}
	return all
}

func keysOf(nodes []Node) []key {
	found := map[key]bool{}
	for _, n := range nodes {
		for _, s := range n.Recent {
			for _, l := range s.Levels {
				found[l.ComparedValue] = true
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(found), compareKeys)
	return keys[:min(len(keys), v1alpha1.MaxSeries)]
}

// Spread returns how much the sessions of the nodes differ, for each compared value.
func Spread(nodes []Node) []v1alpha1.SessionSpread {
	var all []v1alpha1.SessionSpread
	keys := keysOf(nodes)
	for _, key := range keys {
		s := spread(nodes, key)
		s.WarmUp = warmUp(nodes, key, len(keys))
		all = append(all, s)
	}
	return all
}

// spread pools the differences between the sessions of all nodes, centred within a change of at least 8 nodes of a kind. The latest change
// counts only until there are enough others, so that a change that moves some nodes does not widen its own intervals.
func spread(nodes []Node, of key) v1alpha1.SessionSpread {
	type wave struct{ class, change string }
	waves, latest, latestTime := map[wave][]difference{}, "", time.Time{}
	out := v1alpha1.SessionSpread{ComparedValue: of}
	earlier := 0
	for _, n := range nodes {
		found := successive(n.Recent, of)
		if len(found) > 0 {
			out.Nodes++
		}
		for _, d := range found {
			w := wave{n.Class, identity.Key(d.changed)}
			waves[w] = append(waves[w], d)
			if d.time.After(latestTime) {
				latest, latestTime = w.change, d.time
			}
		}
	}
	for w, all := range waves {
		if w.change != latest {
			earlier += len(all)
		}
	}
	var pooled []difference
	for w, all := range waves {
		if latest != "" && w.change == latest && earlier >= enough {
			continue
		}
		if len(all) >= FewestNodes && w.change != "" {
			values := make([]float64, len(all))
			for i, d := range all {
				values[i] = d.value
			}
			shared := median(values)
			for i := range all {
				all[i].value -= shared
			}
		}
		pooled = append(pooled, all...)
	}
	slices.SortFunc(pooled, func(a, b difference) int {
		return cmp.Or(b.time.Compare(a.time), cmp.Compare(a.value, b.value))
	})
	pooled = pooled[:min(len(pooled), most)]
	out.Differences = int32(len(pooled))
	if len(pooled) >= fewestDifferences {
		sizes := make([]float64, len(pooled))
		for i, d := range pooled {
			sizes[i] = math.Abs(d.value)
		}
		out.PartsPerMillion = int64(math.Round(robust * median(sizes) * 1e6))
	}
	return out
}

// robust makes the median of the sizes of normal deviations their standard deviation.
const robust = 1.4826

// median returns the median of values, whose order it changes; NaN without any.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// Fleet returns what the last changes did to the nodes, newest first: for each, the compared value whose
// lower bound exceeds half of its tolerance most.
func Fleet(nodes []Node, tolerances Tolerances) []v1alpha1.FleetChange {
	type of struct {
		change string
		key    key
	}
	ratios, last := map[of][]float64{}, map[string]difference{}
	keys := slices.DeleteFunc(keysOf(nodes), func(k key) bool { _, compared := tolerances[k]; return !compared })
	for _, n := range nodes {
		for _, key := range keys {
			for _, d := range sinceAccepted(n.Recent, key) {
				change := identity.Key(d.changed)
				ratios[of{change, key}] = append(ratios[of{change, key}], d.value)
				if d.time.After(last[change].time) || last[change].changed == nil {
					last[change] = d
				}
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(last), func(a, b string) int { return cmp.Or(last[b].time.Compare(last[a].time), cmp.Compare(a, b)) })
	var all []v1alpha1.FleetChange
	for _, change := range names[:min(len(names), 5)] {
		worst, worstExcess := v1alpha1.FleetChange{}, math.Inf(-1)
		for _, key := range keys {
			values := ratios[of{change, key}]
			if len(values) == 0 {
				continue
			}
			mid := median(values)
			c := v1alpha1.FleetChange{Changed: last[change].changed, Of: key, Nodes: int32(len(values)), Median: ratio(mid)}
			bound, other := mid, mid
			if len(values) >= fewestChanged {
				k := outside(len(values))
				bound, other = values[k], values[len(values)-1-k]
				c.Lower, c.Upper = ratio(bound), ratio(other)
			}
			excess := bound - math.Log(1+half(tolerances[key]))
			if key.Metric.Kind().LowerIsWorse {
				excess = math.Log(1-half(tolerances[key])) - other
			}
			if worst.Nodes == 0 || excess > worstExcess {
				worst, worstExcess = c, excess
			}
		}
		all = append(all, worst)
	}
	return all
}

// half returns half of a tolerance, as a share.
func half(t stats.Tolerance) float64 { return (t.Above().Float64() - 1) / 2 }

// outside returns how many of n values may lie beyond a bound of their median, 6 values or more. The exact distribution of thousands of
// values takes seconds; beyond 60, the normal distribution with one value less is on the safe side.
func outside(n int) int {
	if n <= 60 {
		return stats.Sign(n, eachSide)
	}
	return int((float64(n)-1.96*math.Sqrt(float64(n)))/2) - 1
}

func ratio(logarithm float64) string { return strconv.FormatFloat(math.Exp(logarithm), 'f', 4, 64) }

// Bounded returns the newest change of enough nodes to bound what it did; nil if there is none. A node that
// had another history, and therefore another change, does not hide that of all the others.
func Bounded(changes []v1alpha1.FleetChange) *v1alpha1.FleetChange {
	if i := slices.IndexFunc(changes, func(c v1alpha1.FleetChange) bool { return c.Lower != "" }); i >= 0 {
		return &changes[i]
	}
	return nil
}

// Shifted reports whether a change made the nodes slower by more than half of a tolerance.
func Shifted(c *v1alpha1.FleetChange, t stats.Tolerance) bool {
	if c == nil {
		return false
	}
	if c.Of.Metric.Kind().LowerIsWorse {
		upper, err := strconv.ParseFloat(c.Upper, 64)
		return err == nil && upper < 1-half(t)
	}
	lower, err := strconv.ParseFloat(c.Lower, 64)
	return err == nil && lower > 1+half(t)
}

// WarmUp returns how much slower the first rounds of a gate's sessions are than later ones, such as 2.1%; empty if they are not.
func WarmUp(g *v1alpha1.LatencyGateStatus) string {
	for _, s := range g.Spread {
		if s.WarmUp != "" {
			return s.WarmUp
		}
	}
	return ""
}

// warmUp tests whether the first 6 rounds of first sessions are slower than the next 6: a t test over the nodes, 1 in 100 among all values.
func warmUp(nodes []Node, of key, among int) string {
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
	return fmt.Sprintf("%.1f%%", 100*(math.Exp(mean)-1))
}

// SlowerThanGroup compares the first session of a node with those of at least 8 other nodes of its kind. It returns the ratio to their
// median level if even its lower bound exceeds the tolerance, and otherwise 0; known is false with fewer nodes.
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

// Group returns the levels of a compared value in the references of nodes of a kind, with any peer.
func Group(nodes []Node, class string, of v1alpha1.ComparedValue) []int64 {
	var levels []int64
	for _, n := range nodes {
		if n.Class != class || len(n.Reference) == 0 {
			continue
		}
		if level := Level(roundsOf(n.Reference[0], of)); level > 0 {
			levels = append(levels, level)
		}
	}
	return levels
}
