// Package sessions keeps what a LatencyGate knows of a node's earlier boots, and says how much boots differ. It is pure.
//
// A session is all rounds of one node on one boot with one peer. The rounds of one boot are not independent observations of the node:
// another boot may be faster or slower although nothing changed. Therefore a node's reference is several accepted sessions, and the
// difference between sessions, which is estimated over all nodes of a gate, is part of the interval of a verdict.
package sessions

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

const (
	// FirstRounds is the number of rounds that the first session of a reference keeps, and LaterRounds that of every later one. They are
	// the first that were measured, whatever they show, so that a second look cannot bias the reference.
	FirstRounds, LaterRounds = 12, 6
	// maxSessions bounds a reference, maxPeers the peers with which a node keeps one, and maxRecent the sessions whose levels are kept.
	maxSessions, maxPeers, maxRecent = 5, 2, 9
)

// Measured are the rounds of a finished measurement in the order of measurement, by Key.
type Measured map[string][]stats.Observation

// Key names a compared value in a status.
func Key(variant, cell string, m v1alpha1.Metric) string {
	return variant + "/" + cell + "/" + string(m)
}

func (m Measured) first() []string {
	keys := slices.Sorted(maps.Keys(m))
	return keys[:min(len(keys), v1alpha1.MaxSeries)]
}

// Level returns the median of the first rounds of a session; 0 if there is none, because messages were lost or nothing was measured.
func Level(rounds []stats.Observation) int64 {
	values := make([]int64, 0, LaterRounds)
	for _, r := range rounds[:min(len(rounds), LaterRounds)] {
		values = append(values, r.Value)
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	low, high := values[(len(values)-1)/2], values[len(values)/2]
	if high == stats.Infinite {
		return 0
	}
	return low + (high-low)/2
}

// Levels returns the levels of a measurement, by key, without those that do not exist.
func (m Measured) Levels() map[string]int64 {
	levels := map[string]int64{}
	for _, key := range m.first() {
		if level := Level(m[key]); level > 0 {
			levels[key] = level
		}
	}
	return levels
}

// Extend returns a reference with an accepted measurement. A second session of a boot adds nothing: it does not show another boot. With
// a peer that is not among the last two, the reference with the peer that was accepted longer ago is forgotten. If the gate leaves out the
// warm-up, a session keeps as many rounds after it, and replaces those that have only the warm-up.
func Extend(reference []v1alpha1.ReferenceSession, s v1alpha1.ReferenceSession, m Measured, g *v1alpha1.LatencyGateStatus) []v1alpha1.ReferenceSession {
	warm := WarmUp(g) != ""
	if warm {
		reference = slices.DeleteFunc(slices.Clone(reference), onlyWarmUp)
	}
	own := with(reference, s.Peer)
	if len(own) >= maxSessions || slices.ContainsFunc(own, func(r v1alpha1.ReferenceSession) bool { return r.BootID == s.BootID }) {
		return reference
	}
	keep := LaterRounds
	if len(own) == 0 || warm {
		keep = FirstRounds
	}
	s.Rounds = map[string]v1alpha1.SessionRounds{}
	for _, key := range m.first() {
		s.Rounds[key] = format(m[key][:min(len(m[key]), keep)])
	}
	reference = append(slices.Clone(reference), s)
	var peers []string
	for _, r := range slices.Backward(reference) {
		if !slices.Contains(peers, r.Peer) {
			peers = append(peers, r.Peer)
		}
	}
	peers = peers[:min(len(peers), maxPeers)]
	return slices.DeleteFunc(reference, func(r v1alpha1.ReferenceSession) bool { return !slices.Contains(peers, r.Peer) })
}

func onlyWarmUp(s v1alpha1.ReferenceSession) bool {
	for _, rounds := range s.Rounds {
		if len(parse(rounds)) > LaterRounds {
			return false
		}
	}
	return true
}

func with(reference []v1alpha1.ReferenceSession, peer string) []v1alpha1.ReferenceSession {
	return slices.DeleteFunc(slices.Clone(reference), func(r v1alpha1.ReferenceSession) bool { return r.Peer != peer })
}

// Peers returns the peers with which there is a reference, the one with the most sessions first.
func Peers(reference []v1alpha1.ReferenceSession) []string {
	count := map[string]int{}
	var peers []string
	for _, r := range reference {
		if count[r.Peer]++; count[r.Peer] == 1 {
			peers = append(peers, r.Peer)
		}
	}
	slices.SortStableFunc(peers, func(a, b string) int { return cmp.Compare(count[b], count[a]) })
	return peers
}

// Remember adds the levels of a measurement, whatever its outcome was. Another look at a boot is added
// only if it was the first to be accepted: later sessions are compared with it.
func Remember(recent []v1alpha1.MeasuredSession, s v1alpha1.MeasuredSession) []v1alpha1.MeasuredSession {
	if slices.ContainsFunc(recent, func(r v1alpha1.MeasuredSession) bool { return sameBoot(r, s) && (r.Accepted || !s.Accepted) }) {
		return recent
	}
	recent = append(slices.Clone(recent), s)
	return recent[max(0, len(recent)-maxRecent):]
}

// sameBoot reports whether two sessions are looks at one boot, in which nothing changed, with one peer.
func sameBoot(a, b v1alpha1.MeasuredSession) bool {
	return a.Peer == b.Peer && a.BootID == b.BootID && len(identity.Changes(a.Identity, b.Identity)) == 0
}

// format returns rounds for a status. Longer text than a status takes is cut at a round.
func format(rounds []stats.Observation) v1alpha1.SessionRounds {
	var out string
	for _, r := range rounds {
		next := strconv.FormatInt(r.Value, 10)
		if r.Low != r.Value || r.High != r.Value {
			next += fmt.Sprintf("-%d+%d", r.Value-r.Low, r.High-r.Value)
		}
		if len(out)+1+len(next) > 512 {
			break
		}
		out = strings.TrimPrefix(out+" "+next, " ")
	}
	return v1alpha1.SessionRounds(out)
}

// parse returns the rounds of a status; nil if one cannot be read.
func parse(s v1alpha1.SessionRounds) []stats.Observation {
	var rounds []stats.Observation
	for _, word := range strings.Fields(string(s)) {
		value, rest, ranged := strings.Cut(word, "-")
		below, above, _ := strings.Cut(rest, "+")
		if !ranged {
			below, above = "0", "0"
		}
		v, err := strconv.ParseInt(value, 10, 64)
		b, errBelow := strconv.ParseInt(below, 10, 64)
		a, errAbove := strconv.ParseInt(above, 10, 64)
		if err != nil || errBelow != nil || errAbove != nil || v < 0 || b < 0 || b > v || a < 0 || a > stats.Infinite-v {
			return nil
		}
		rounds = append(rounds, stats.Observation{Value: v, Low: v - b, High: v + a})
	}
	return rounds
}

// Reference is what a measurement is compared with.
type Reference struct {
	// Sessions are the accepted sessions, and SamePeer is false if they are of another peer.
	Sessions []v1alpha1.ReferenceSession
	SamePeer bool
	// LeaveOut is the number of the first rounds of each session, also of the measured one, that are not compared: a warm-up of the gate.
	LeaveOut int
	// Spread is what the gate knows of the difference between sessions, by key.
	Spread map[string]v1alpha1.SessionSpread

	bootID  string
	warmUp  string
	recent  []v1alpha1.MeasuredSession
	changes []v1alpha1.FleetChange
}

// For returns the reference of a node for a measurement of a boot with a peer.
func For(v *v1alpha1.LatencyVerificationStatus, g *v1alpha1.LatencyGateStatus, bootID, peer string) Reference {
	r := Reference{Spread: map[string]v1alpha1.SessionSpread{}, bootID: bootID, changes: g.Changes, warmUp: WarmUp(g)}
	// An earlier measurement of this boot says nothing about how much boots differ: a Fail that is measured again would excuse itself.
	r.recent = slices.DeleteFunc(slices.Clone(v.Recent), func(s v1alpha1.MeasuredSession) bool { return s.BootID == bootID })
	for _, s := range g.Spread {
		r.Spread[s.Of] = s
	}
	r.Sessions = with(v.Reference, peer)
	if r.SamePeer = len(r.Sessions) > 0; !r.SamePeer && len(v.Reference) > 0 {
		// A pair of nodes differs from another pair, so that neither a Pass nor a Fail will be final.
		r.Sessions = with(v.Reference, Peers(v.Reference)[0])
	}
	if settled := slices.DeleteFunc(slices.Clone(r.Sessions), onlyWarmUp); r.warmUp != "" && len(settled) > 0 {
		r.Sessions, r.LeaveOut = settled, LaterRounds
	}
	return r
}

// SameBoot reports whether the only session of the reference is of the boot that is measured: then the rounds alone decide.
func (r Reference) SameBoot() bool {
	return len(r.Sessions) == 1 && r.Sessions[0].BootID == r.bootID && r.bootID != ""
}

// Of returns the pooled rounds of a compared value, nil if no session has it, and what is known of the difference between sessions.
func (r Reference) Of(key string) ([]stats.Observation, stats.Between) {
	spread := r.Spread[key]
	b := stats.Between{SD: float64(spread.PartsPerMillion) / 1e6, Differences: int(spread.Differences), Share: 1}
	if spread.Differences < fewestDifferences {
		b.Differences = 0
	}
	var pooled []stats.Observation
	squares := 0.0
	for _, s := range r.Sessions {
		rounds := parse(s.Rounds[key])
		if len(rounds) <= r.LeaveOut {
			continue
		}
		rounds = rounds[r.LeaveOut:]
		b.Sessions++
		squares += float64(len(rounds) * len(rounds))
		pooled = append(pooled, rounds...)
	}
	for _, o := range pooled {
		if o.Value > 0 && o.High != stats.Infinite {
			b.Step = max(b.Step, float64(o.High-o.Low)/float64(o.Value))
		}
	}
	if m := float64(len(pooled)); m > 0 {
		b.Share = squares / (m * m)
	}
	if r.SameBoot() {
		b.Share = 0
	}
	for _, d := range successive(r.recent, key) {
		// What a change did to the node is no difference between boots, and a Fail after it would excuse the next one. What all nodes share
		// belongs to the change; the rest is the node's own.
		change := identity.Key(d.changed)
		shared, known := 0.0, change == ""
		for _, c := range r.changes {
			if median, err := strconv.ParseFloat(c.Median, 64); err == nil && change == identity.Key(c.Changed) && c.Of == key && c.Nodes >= FewestNodes {
				shared, known = math.Log(median)/math.Sqrt2, true
			}
		}
		if known {
			b.Own = append(b.Own, d.value-shared)
		}
	}
	return pooled, b
}

// Provisional returns why a Pass in comparison with the reference is no promise; empty if it is one.
func (r Reference) Provisional() string {
	nodes := int32(0)
	if len(r.Spread) > 0 {
		nodes = slices.MinFunc(slices.Collect(maps.Values(r.Spread)), func(a, b v1alpha1.SessionSpread) int { return cmp.Compare(a.Nodes, b.Nodes) }).Nodes
	}
	switch {
	case len(r.Sessions) == 0:
		return ""
	case !r.SamePeer:
		return fmt.Sprintf("its reference is with peer %s, and another pair of nodes may differ", r.Sessions[0].Peer)
	case r.warmUp != "" && r.LeaveOut == 0:
		return fmt.Sprintf("the first rounds of this gate's sessions are %s slower than later ones, and its reference has no others", r.warmUp)
	case r.SameBoot():
		return ""
	case len(r.Sessions) == 1:
		return "its reference is one boot: if that was a slow one, slow boots pass"
	case nodes < FewestNodes:
		return fmt.Sprintf("%d of %d nodes show how much boots differ", nodes, FewestNodes)
	}
	return ""
}
