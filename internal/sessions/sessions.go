// Package sessions keeps what a gate knows of nodes' boots, and how much they differ. It is pure.
//
// A session is all rounds of a node on one boot with one peer. They depend on each other: another
// boot may be faster or slower. So a reference is several accepted sessions, and the difference
// between sessions, estimated over all nodes of a gate, is part of a verdict's interval.
package sessions

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

const (
	// A reference keeps FirstRounds of its first session and LaterRounds of each later one: the
	// first that were measured, so that a second look cannot bias it.
	FirstRounds, LaterRounds = 12, 6
	// The bounds of a reference, of the peers that have one, and of sessions whose levels are kept.
	maxSessions, maxPeers, maxRecent = 5, 2, 9
)

type key = v1alpha1.ComparedValue

// Level returns the median of a session's first rounds; 0: a message was lost, or nothing measured.
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

// Levels returns the levels of a session, without those that do not exist.
func Levels(session []v1alpha1.ValueRounds) (levels []v1alpha1.ValueLevel) {
	for _, r := range session {
		if level := Level(observations(r)); level > 0 {
			levels = append(levels, v1alpha1.ValueLevel{ComparedValue: r.ComparedValue, Level: level})
		}
	}
	return levels
}

func levelOf(s v1alpha1.MeasuredSession, of key) int64 {
	for _, l := range s.Levels {
		if l.ComparedValue == of {
			return l.Level
		}
	}
	return 0
}

// Extend returns a reference with an accepted measurement. A second session of a boot adds nothing.
// With a third peer, the one accepted longest ago is forgotten, but not the oldest session: this
// anchor keeps small regressions from adding up while peers are replaced. A gate that leaves out
// the warm-up keeps as many rounds after it, and replaces sessions that have only the warm-up.
func Extend(reference []v1alpha1.ReferenceSession, s v1alpha1.ReferenceSession, g *v1alpha1.LatencyGateStatus) []v1alpha1.ReferenceSession {
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
	s.Rounds = slices.Clone(s.Rounds)
	for i, r := range s.Rounds {
		s.Rounds[i] = Rounds(r.ComparedValue, observations(r), keep)
	}
	reference = append(slices.Clone(reference), s)
	var peers []string
	for _, r := range slices.Backward(reference) {
		if !slices.Contains(peers, r.Peer) {
			peers = append(peers, r.Peer)
		}
	}
	peers = peers[:min(len(peers), maxPeers)]
	return append(reference[:1], slices.DeleteFunc(reference[1:], func(r v1alpha1.ReferenceSession) bool { return !slices.Contains(peers, r.Peer) })...)
}

func onlyWarmUp(s v1alpha1.ReferenceSession) bool {
	return !slices.ContainsFunc(s.Rounds, func(rounds v1alpha1.ValueRounds) bool { return len(rounds.Values) > LaterRounds })
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

// Remember adds the levels of a measurement, whatever its outcome. Another look at a boot is added
// only if it is the first accepted one. The oldest session stays as long as the reference, so that
// what made all nodes slower is not forgotten with time.
func Remember(recent []v1alpha1.MeasuredSession, s v1alpha1.MeasuredSession) []v1alpha1.MeasuredSession {
	if slices.ContainsFunc(recent, func(r v1alpha1.MeasuredSession) bool {
		sameBoot := r.Peer == s.Peer && r.BootID == s.BootID && len(identity.Changes(r.Identity, s.Identity)) == 0
		return sameBoot && (r.Accepted || !s.Accepted)
	}) {
		return recent
	}
	recent = append(slices.Clone(recent), s)
	if len(recent) > maxRecent {
		recent = slices.Delete(recent, 1, 2)
	}
	return recent
}

// Rounds returns the first rounds of a compared value for a status.
func Rounds(of v1alpha1.ComparedValue, rounds []stats.Observation, keep int) v1alpha1.ValueRounds {
	out := v1alpha1.ValueRounds{ComparedValue: of}
	exact := true
	for _, r := range rounds[:min(len(rounds), keep)] {
		out.Values, out.Low, out.High = append(out.Values, r.Value), append(out.Low, r.Low), append(out.High, r.High)
		exact = exact && r == stats.Exact(r.Value)
	}
	if exact {
		out.Low, out.High = nil, nil
	}
	return out
}

// observations returns the rounds of a status; nil if their bounds contradict them.
func observations(s v1alpha1.ValueRounds) []stats.Observation {
	rounds := make([]stats.Observation, len(s.Values))
	bounded := len(s.Low) > 0 || len(s.High) > 0
	if bounded && (len(s.Low) != len(s.Values) || len(s.High) != len(s.Values)) {
		return nil
	}
	for i, v := range s.Values {
		if rounds[i] = stats.Exact(v); bounded {
			rounds[i] = stats.Observation{Value: v, Low: s.Low[i], High: s.High[i]}
		}
		if r := rounds[i]; r.Low < 0 || r.Low > v || r.High < v {
			return nil
		}
	}
	return rounds
}

func roundsOf(s v1alpha1.ReferenceSession, of key) []stats.Observation {
	for _, r := range s.Rounds {
		if r.ComparedValue == of {
			return observations(r)
		}
	}
	return nil
}

// Reference is what a measurement is compared with.
type Reference struct {
	// Sessions are the accepted sessions, and SamePeer is false if they are of another peer.
	Sessions []v1alpha1.ReferenceSession
	SamePeer bool
	LeaveOut int // first rounds of each session, also the measured one: a warm-up
	// Spread is what the gate knows of the difference between sessions, by key.
	Spread map[v1alpha1.ComparedValue]v1alpha1.SessionSpread

	warmUp v1alpha1.Factor
	own    map[key][]float64 // differences between the node's own boots
}

// For returns the reference of a node for a measurement of a boot with a peer.
func For(v *v1alpha1.LatencyVerificationStatus, g *v1alpha1.LatencyGateStatus, bootID, peer string) Reference {
	r := Reference{Spread: map[key]v1alpha1.SessionSpread{}, warmUp: WarmUp(g), own: map[key][]float64{}}
	// An earlier measurement of this boot says nothing of boots: a Fail would excuse itself.
	boots := successive(slices.DeleteFunc(slices.Clone(v.Recent), func(s v1alpha1.MeasuredSession) bool { return s.BootID == bootID }))
	group := groupOf(v)
	for _, s := range g.Spread {
		if s.Group == "" || s.Group == group {
			r.Spread[s.ComparedValue], r.own[s.ComparedValue] = s, own(boots, s.ComparedValue, group, g.Changes)
		}
	}
	r.Sessions = with(v.Reference, peer)
	if r.SamePeer = len(r.Sessions) > 0; !r.SamePeer && len(v.Reference) > 0 {
		// Pairs of nodes differ: neither Pass nor Fail will be final.
		r.Sessions = with(v.Reference, Peers(v.Reference)[0])
	}
	if settled := slices.DeleteFunc(slices.Clone(r.Sessions), onlyWarmUp); r.warmUp != "" && len(settled) > 0 {
		r.Sessions, r.LeaveOut = settled, LaterRounds
	}
	return r
}

// Of returns the pooled rounds of a value, nil if no session has it, and how sessions differ.
func (r Reference) Of(value v1alpha1.ComparedValue) ([]stats.Observation, stats.Between) {
	spread := r.Spread[value]
	b := stats.Between{SD: spread.Deviation.Value(), Differences: int(spread.Differences), Share: 1}
	if spread.Differences < fewestDifferences {
		b.Differences = 0
	}
	var pooled []stats.Observation
	squares := 0.0
	for _, s := range r.Sessions {
		rounds := roundsOf(s, value)
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
	b.Own, b.Doubt = r.own[value], len(pooled) == 0 || r.Provisional(nil) != ""
	return pooled, b
}

// Status returns the reference of a session with a peer for a status; nil if there is none.
func (r Reference) Status(peer string, session []v1alpha1.ValueRounds) *v1alpha1.SessionReference {
	out := &v1alpha1.SessionReference{SamePeer: r.SamePeer, Provisional: r.Provisional(session)}
	switch n := len(r.Sessions); {
	case n == 0:
		return nil
	case r.LeaveOut > 0:
		out.Description = fmt.Sprintf("compared with %d accepted boots with peer %s, each without its first %d rounds, which in this gate are %s times as much as later ones", n, peer, r.LeaveOut, r.warmUp)
	default:
		out.Description = fmt.Sprintf("compared with %d accepted boots with peer %s", n, peer)
	}
	return out
}

// Drifted says by how much more than the tolerance a session is slower than the oldest accepted
// one, if that is with a peer other than those with which it is compared; otherwise empty.
func Drifted(reference []v1alpha1.ReferenceSession, peer string, session []v1alpha1.ValueRounds, tolerances Tolerances) string {
	if len(reference) == 0 || reference[0].Peer == peer || len(with(reference, peer)) == 0 && Peers(reference)[0] == reference[0].Peer {
		return ""
	}
	for _, own := range Levels(session) {
		of := own.ComparedValue
		first := Level(roundsOf(reference[0], of))
		tolerance, compared := tolerances[of]
		if !compared || first <= 0 {
			continue
		}
		if change := float64(own.Level)/float64(first) - 1; worse(of)*change > 2*half(tolerance) {
			return fmt.Sprintf("%s is %+.1f %% of its oldest accepted session, of %s with peer %s", of, 100*change, reference[0].Time.UTC().Format(time.DateOnly), reference[0].Peer)
		}
	}
	return ""
}

// Provisional returns why a Pass of a session is no promise; empty if it is one.
func (r Reference) Provisional(session []v1alpha1.ValueRounds) string {
	nodes, differences, without := int32(0), 0, 0
	if len(r.Spread) > 0 {
		nodes, differences = math.MaxInt32, math.MaxInt
	}
	for key, s := range r.Spread {
		nodes, differences = min(nodes, s.Nodes), min(differences, len(r.own[key]))
	}
	for _, own := range session {
		if !slices.ContainsFunc(r.Sessions, func(s v1alpha1.ReferenceSession) bool { return len(roundsOf(s, own.ComparedValue)) > 0 }) {
			without++
		}
	}
	switch {
	case len(r.Sessions) == 0:
		return "its reference is one result, and how much boots differ is assumed"
	case without > 0:
		return fmt.Sprintf("%d of %d compared values are not in its reference, which keeps at most %d", without, len(session), v1alpha1.MaxSeries)
	case !r.SamePeer:
		return fmt.Sprintf("its reference is with peer %s, and another pair of nodes may differ", r.Sessions[0].Peer)
	case r.warmUp != "" && r.LeaveOut == 0:
		return fmt.Sprintf("the first rounds of this gate's sessions are %s times as much as later ones, and its reference has no others", r.warmUp)
	case len(r.Sessions) == 1:
		return "its reference is one boot: if that was a slow one, slow boots pass"
	case nodes < FewestNodes:
		return fmt.Sprintf("%d of %d nodes show how much boots differ", nodes, FewestNodes)
	case differences < fewestOwn:
		return fmt.Sprintf("%d of %d differences between its own boots show how much they differ", differences, fewestOwn)
	}
	return ""
}
