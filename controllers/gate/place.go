package gate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

const (
	// maxPlacings is how often a reconcile chooses other pairs because nodes have no room. The next reconcile, after nextPlacing, continues.
	maxPlacings, nextPlacing = 4, time.Second
	// shortageFor is how long a node is known to have no room: the gate does not see the pods of others.
	shortageFor = 5 * time.Minute
)

// shortages has the nodes that were found without room. It is only in memory: a manager that starts looks again.
type shortages struct{ found sync.Map }

// shortageOf is a gate, a node and the role of the pod for which it has no room, and shortage is the reason, and until when it is known.
type (
	shortageOf struct{ gate, node, role string }
	shortage   struct {
		why   string
		until time.Time
	}
)

func (k *shortages) add(of shortageOf, why string, now time.Time) {
	k.found.Store(of, shortage{why, now.Add(shortageFor)})
}

// known fills in what is known of a gate's nodes, and returns the time until the first of that is looked at again.
func (k *shortages) known(s *snapshot) time.Duration {
	s.full, s.unplaced = map[string]string{}, map[string]string{}
	var again time.Duration
	due := s.outdated(s.fired)
	for key, value := range k.found.Range {
		of, at := key.(shortageOf), value.(shortage)
		isDue := slices.ContainsFunc(due, func(v *v1alpha1.LatencyVerification) bool { return v.Spec.NodeName == of.node })
		switch {
		case !at.until.After(s.now), at.until.After(s.now.Add(shortageFor)):
			k.found.CompareAndDelete(key, value)
			continue
		case of.gate == s.gate.Name && of.role == v1alpha1.RoleServer:
			s.full[of.node] = at.why
		case of.gate == s.gate.Name && isDue:
			s.unplaced[of.node] = at.why
		default:
			continue
		}
		again = controllers.Soonest(again, at.until.Sub(s.now))
	}
	return again
}

// place chooses the next pairs among the nodes that have room. A node that is due by the schedule keeps its state until its pair has room.
// A node that waits is measured with a peer without room if there is no other, because the benchmark says what it lacks.
func (r *Gates) place(ctx context.Context, s *snapshot) choice {
	if r.Cluster == nil {
		return choose(s)
	}
	busy, checked := maps.Clone(s.busy), map[[2]string]bool{}
	for round := 1; ; round++ {
		s.busy = maps.Clone(busy)
		again := r.shortages.known(s)
		chosen := choose(s)
		chosen.again = controllers.Soonest(chosen.again, again)
		lacking := false
		for i, pair := range slices.Concat(chosen.starts, chosen.due) {
			of := [2]string{pair.verification.Spec.NodeName, pair.peer}
			if checked[of] {
				continue
			}
			checked[of] = true
			why, server := r.roomless(ctx, s.gate, pair)
			switch {
			case why == "":
				continue
			case server && s.full[pair.peer] == "":
				r.shortages.add(shortageOf{s.gate.Name, pair.peer, v1alpha1.RoleServer}, why, s.now)
			case !server && i >= len(chosen.starts):
				r.shortages.add(shortageOf{s.gate.Name, of[0], v1alpha1.RoleClient}, why, s.now)
			default:
				continue
			}
			lacking = true
		}
		switch {
		case !lacking:
			return chosen
		case round == maxPlacings:
			chosen.due, chosen.again = nil, nextPlacing // Some of them have no room.
			return chosen
		}
	}
}

// roomless returns why the benchmark of a pair would not be accepted now, and whether that is because of the peer; empty if it would.
func (r *Gates) roomless(ctx context.Context, gate *v1alpha1.LatencyGate, pair start) (why string, server bool) {
	o, err := r.Cluster.Preflight(ctx, benchmarkOf(gate, pair.verification, pair.peer, pair.verification.Status.Number+1))
	if err == nil {
		err = r.Cluster.Room(ctx, &o)
	}
	if err != nil {
		return fmt.Sprintf("reading whether it has room: %v", err), false
	}
	if _, rejection := preflight.Accept(o); rejection != nil {
		return rejection.String(), strings.HasPrefix(rejection.Path, "spec.placement.server")
	}
	return "", false
}
