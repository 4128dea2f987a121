package sessions

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

type difference struct {
	node          int
	group         string
	before, after *v1alpha1.MeasuredSession
	// changed is what differs between their identities, without the boot; exact is it as one text.
	changed []v1alpha1.IdentityChange
	exact   string
	wave    string // equal for nodes with the same after a change, or booted in a wave without
	// scale is a divisor; value a logarithm without what others share. Those who pool set them.
	scale, value float64
}

func between(before, after *v1alpha1.MeasuredSession, scale float64) difference {
	changed := identity.Changes(before.Identity, after.Identity)
	return difference{before: before, after: after, changed: changed, exact: identity.Key(changed), scale: scale}
}

// of returns the logarithm of the ratio of a value's levels; false if one does not exist.
func (d difference) of(value key) (float64, bool) {
	before, after := levelOf(*d.before, value), levelOf(*d.after, value)
	return math.Log(float64(after)/float64(before)) / d.scale, before > 0 && after > 0
}

func (d difference) booted() bool {
	return d.before.BootID == "" || d.before.BootID != d.after.BootID
}

// successive returns the differences between successive boots, divided by the root of two.
func successive(recent []v1alpha1.MeasuredSession) (all []difference) {
	last := map[string]*v1alpha1.MeasuredSession{}
	for i := range recent {
		s := &recent[i]
		if before := last[s.Peer]; before != nil {
			d := between(before, s, math.Sqrt2)
			if !d.booted() {
				continue
			}
			all = append(all, d)
		}
		last[s.Peer] = s
	}
	return all
}

// sinceAccepted returns how the first session after each change, and after each boot without one, differs
// from the last accepted one. A boot after a Fail is no other change, and what was undone does not count.
func sinceAccepted(recent []v1alpha1.MeasuredSession, until time.Time) (all []difference) {
	accepted := map[string]*v1alpha1.MeasuredSession{}
	for i := range recent {
		s := &recent[i]
		if before := accepted[s.Peer]; before != nil {
			d := between(before, s, 1)
			again := slices.IndexFunc(all, func(o difference) bool { return d.exact != "" && o.exact == d.exact })
			switch {
			case again >= 0:
				all = all[:again+1]
			case len(d.changed) > 0:
				all = append(all, d)
			case d.booted():
				all = slices.DeleteFunc(all, func(o difference) bool { return len(o.changed) > 0 && o.after.Time.After(before.Time.Time) })
				all = append(all, d)
			}
		}
		if s.Accepted && (until.IsZero() || s.Time.Time.Before(until)) {
			accepted[s.Peer] = s
		}
	}
	return all
}

const pause = 7 * 24 * time.Hour // in which no node is booted, between two waves of boots

// withWaves returns the differences of all nodes in the order of time. Nodes with the same after a
// change are a wave, whatever they had before. Boots without a change are one if no long pause is
// between them: a kernel argument, microcode or a BIOS setting is no part of an identity. The next
// wave begins when more than half of the nodes rebooted: one that often boots does not divide it.
func withWaves(nodes []Node, of func(n Node, index int) []difference) (all []difference) {
	several := len(groups(nodes)) > 1
	for i, n := range nodes {
		for _, d := range of(n, i) {
			if d.node = i; several {
				d.group = n.Group
			}
			all = append(all, d)
		}
	}
	slices.SortStableFunc(all, func(a, b difference) int { return a.after.Time.Compare(b.after.Time.Time) })
	number, last := 0, time.Time{}
	wave, again := map[int]bool{}, map[int]bool{}
	for i := range all {
		d := &all[i]
		if len(d.changed) > 0 {
			d.wave = has(d.changed)
			continue
		}
		if d.after.Time.Sub(last) > pause {
			number += 2
			wave, again = map[int]bool{}, map[int]bool{}
		}
		last = d.after.Time.Time
		next := number
		if wave[d.node] {
			next, again[d.node] = number+1, true
		}
		d.wave, wave[d.node] = fmt.Sprint("boots ", next), true
		if 2*len(again) > len(wave) {
			number, wave, again = number+1, again, map[int]bool{}
		}
	}
	return all
}

func has(changed []v1alpha1.IdentityChange) string {
	all := ""
	for _, c := range changed {
		all += c.Key + "\x00" + c.To + "\x00"
	}
	return all
}

// cohort are the differences of nodes that are compared together: one for each node.
type cohort struct {
	wave  string
	group string // of its nodes; empty for all nodes
	of    map[int]difference
	// status is what a wave did to them, and limit by how much it may, as a logarithm.
	status v1alpha1.FleetChange
	first  time.Time
	last   difference
}

// values returns the sorted differences of a value, in the direction in which more is worse.
func (g *cohort) values(of key) (all []float64) {
	for _, d := range g.of {
		if value, found := d.of(of); found {
			all = append(all, worse(of)*value)
		}
	}
	slices.Sort(all)
	return all
}

// endedBy reports whether nodes of the cohort are shown to be within a limit after a later change.
func (g *cohort) endedBy(later *cohort, limit float64) bool {
	since := cohort{of: map[int]difference{}}
	for node, d := range later.of {
		if before, both := g.of[node]; both && d.after.Time.After(before.after.Time.Time) {
			since.of[node] = d
		}
	}
	_, high, bounded := bounds(since.values(g.status.Of), 1)
	return bounded && high <= limit
}

func worse(of key) float64 {
	if of.Metric.Kind().LowerIsWorse {
		return -1
	}
	return 1
}

// limit is the logarithm of half of the tolerance, in the worse direction.
func (t Tolerances) limit(of key) float64 { return math.Log1p(worse(of)*half(t[of])) * worse(of) }

func half(t stats.Tolerance) float64 { return (t.Above().Float64() - 1) / 2 }

// Fleet returns what the last changes did to the nodes: first those that made them slower and
// stand, then the newest. Each has the compared value that exceeds its limit most.
//
// A change that made nodes slower outlives the acceptance of their results: later sessions are
// compared with those before it. It stands until at least six of its nodes are within the limit
// after a later change, or is undone, or a user accepts their results: their sessions begin again.
func Fleet(nodes []Node, tolerances Tolerances) []v1alpha1.FleetChange {
	keys := slices.DeleteFunc(keysOf(nodes), func(k key) bool { _, compared := tolerances[k]; return !compared })
	until := map[int]time.Time{}
	var cohorts []*cohort
	for grown := true; grown; {
		cohorts, grown = cohortsOf(nodes, keys, tolerances, until), false
		for _, g := range cohorts {
			for node, d := range g.of {
				if at := d.after.Time.Time; g.status.Shifted && (until[node].IsZero() || at.Before(until[node])) {
					until[node], grown = at, true
				}
			}
			if grown {
				break
			}
		}
	}
	slices.SortStableFunc(cohorts, func(a, b *cohort) int { return b.last.after.Time.Compare(a.last.after.Time.Time) })
	var stand, others []v1alpha1.FleetChange
	for _, g := range cohorts {
		c := g.status
		ended := func(later *cohort) bool { return g.endedBy(later, tolerances.limit(c.Of)) }
		c.Shifted = c.Shifted && !slices.ContainsFunc(cohorts, ended)
		if c.Changed == nil {
			c.Changed = []v1alpha1.IdentityChange{{Key: string(v1alpha1.IdentityBootID)}}
		}
		switch {
		case c.Shifted:
			stand = append(stand, c)
		case len(g.last.changed) > 0 && g.wave != "" && c.Nodes > 0:
			others = append(others, c)
		}
	}
	stand = append(stand, others...)
	return stand[:min(len(stand), v1alpha1.MaxChanges)]
}

// cohortsOf returns each wave's, the earliest first: all nodes, each group, those alike before.
func cohortsOf(nodes []Node, keys []key, tolerances Tolerances, until map[int]time.Time) []*cohort {
	all := map[string]*cohort{}
	add := func(id, wave, group string, d difference) {
		if all[id] == nil {
			all[id] = &cohort{wave: wave, group: group, of: map[int]difference{}, first: d.after.Time.Time}
		}
		all[id].of[d.node], all[id].last = d, d
	}
	for _, d := range withWaves(nodes, func(n Node, i int) []difference { return sinceAccepted(n.Recent, until[i]) }) {
		add(d.wave, d.wave, "", d)
		if d.group != "" {
			add(d.group+"\n"+d.wave, d.wave, d.group, d)
		}
		if d.exact != "" {
			add(d.exact, "", "", d)
		}
	}
	ofWave := map[string]int{}
	for id, g := range all {
		whole := all[g.last.wave]
		if g.wave == "" && (len(g.of) == len(whole.of) || len(g.of) < fewestChanged) {
			delete(all, id)
		} else if g == whole || len(g.of) >= fewestChanged {
			ofWave[g.last.wave]++
		}
	}
	cohorts := slices.SortedFunc(maps.Values(all), func(a, b *cohort) int {
		return cmp.Or(a.first.Compare(b.first), -cmp.Compare(len(a.of), len(b.of)), cmp.Compare(a.group, b.group), -cmp.Compare(a.wave, b.wave))
	})
	for _, g := range cohorts {
		g.measure(keys, tolerances, len(keys)*ofWave[g.last.wave])
	}
	return cohorts
}

// measure fills in what a wave did to the nodes of a cohort, among a number of comparisons.
func (g *cohort) measure(keys []key, tolerances Tolerances, among int) {
	most := math.Inf(-1)
	shared := map[string]v1alpha1.Factor{}
	for _, key := range keys {
		values := g.values(key)
		if len(values) == 0 {
			continue
		}
		mid := median(values)
		c := v1alpha1.FleetChange{Group: g.group, Changed: g.last.changed, Of: key, Nodes: int32(len(values)), Median: ratio(worse(key) * mid)}
		if len(values) >= fewestChanged {
			shared[key.String()] = ratio(worse(key) * mid)
		}
		low, high, bounded := bounds(values, among)
		if excess := low - tolerances.limit(key); bounded {
			c.Shifted = excess > 0
			c.Lower, c.Upper = ratio(min(worse(key)*low, worse(key)*high)), ratio(max(worse(key)*low, worse(key)*high))
		}
		if excess := low - tolerances.limit(key); excess > most || g.status.Nodes == 0 {
			most, g.status = excess, c
		}
	}
	if g.status.Nodes > 0 {
		g.status.Shared = shared
		g.status.StartTime, g.status.EndTime = metav1.Time{Time: g.first}, g.last.after.Time
	}
}

// bounds bounds the median of sorted values, 1 in 40 a side for all comparisons and all looks, one
// after each node. It returns the median, and false if there are too few.
func bounds(values []float64, among int) (low, high float64, bounded bool) {
	n := len(values)
	if n == 0 {
		return math.NaN(), math.NaN(), false
	}
	k := -1
	if n >= fewestChanged {
		k = outside(n, eachSide.Among(among).Among(n-5))
	}
	if k < 0 {
		mid := median(values)
		return mid, mid, false
	}
	return values[k], values[n-1-k], true
}

// outside returns how many of n values may lie beyond a bound of their median; -1: too few. Exact
// bounds of thousands take seconds; beyond 60, the normal distribution with one value less is safe.
func outside(n int, side stats.OneIn) int {
	if n <= 60 {
		return stats.Sign(n, side)
	}
	return int((float64(n)-math.Sqrt2*math.Erfinv(1-2/float64(side))*math.Sqrt(float64(n)))/2) - 1
}

func ratio(logarithm float64) v1alpha1.Factor { return v1alpha1.FactorOf(math.Exp(logarithm), 4) }

// Decisive returns the newest change that stands, else the newest of enough nodes, or nil.
func Decisive(changes []v1alpha1.FleetChange) *v1alpha1.FleetChange {
	if i := slices.IndexFunc(changes, func(c v1alpha1.FleetChange) bool { return c.Lower != "" }); i >= 0 {
		return &changes[i]
	}
	return nil
}

// own returns a node's differences without what its group shares in changes. One that contains a
// change of which too little is known is left out.
func own(found []difference, of key, group string, changes []v1alpha1.FleetChange) (all []float64) {
	for _, d := range found {
		value, found := d.of(of)
		if !found {
			continue
		}
		shared, known := 0.0, len(d.changed) == 0
		for _, c := range slices.Backward(changes) {
			ratio, enough := c.Shared[of.String()]
			boot := c.Changed[0].Key == string(v1alpha1.IdentityBootID)
			same := boot && len(d.changed) == 0 || !boot && has(c.Changed) == has(d.changed)
			if enough && same && (c.Group == "" || c.Group == group) && !d.after.Time.Before(&c.StartTime) && !c.EndTime.Before(&d.after.Time) {
				if shared, known = math.Log(ratio.Value())/math.Sqrt2, true; c.Group == group {
					break
				}
			}
		}
		if known {
			all = append(all, value-shared)
		}
	}
	return all
}
