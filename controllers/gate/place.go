package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

const (
	// maxPlacings bounds how often a reconcile chooses again for lack of room; the next continues.
	maxPlacings, nextPlacing = 4, time.Second
	// They bound when it looks again at a node without room: it does not see others' pods.
	looksFirst, shortageFor = 5 * time.Second, 5 * time.Minute
)

// place chooses pairs with room. A due node keeps its state till then; one that waits may get a
// peer without room, because the benchmark says what it lacks.
func (r *Gates) place(ctx context.Context, s *snapshot) turns.Choice {
	if r.Cluster == nil {
		return s.Choose(nil)
	}
	checked := map[[2]string]bool{}
	for round := 1; ; round++ {
		known := r.Memory.knownShortages(s.Gate.Name, s.Now)
		chosen := s.Choose(known)
		lacking := false
		for i, pair := range slices.Concat(chosen.Starts, chosen.Due) {
			client, server := turns.Place{Node: pair.Verification.Spec.NodeName, Role: v1alpha1.RoleClient}, turns.Place{Node: pair.Peer, Role: v1alpha1.RoleServer}
			of := [2]string{client.Node, server.Node}
			if checked[of] {
				continue
			}
			checked[of] = true
			why, ofServer := r.roomless(ctx, s.Gate, pair)
			_, isKnown := known[server]
			switch {
			case why == "":
				r.Memory.removeShortage(s.Gate.Name, client)
				r.Memory.removeShortage(s.Gate.Name, server)
			case ofServer && !isKnown:
				r.Memory.addShortage(s.Gate.Name, server, why, s.Now)
				lacking = true
			case !ofServer && i >= len(chosen.Starts):
				r.Memory.addShortage(s.Gate.Name, client, why, s.Now)
				lacking = true
			}
		}
		switch {
		case !lacking:
			return chosen
		case round == maxPlacings:
			chosen.Due, chosen.Again = nil, nextPlacing // Some of them have no room.
			return chosen
		}
	}
}

// roomless returns why a pair's benchmark would not be accepted now, and whether the peer is why.
func (r *Gates) roomless(ctx context.Context, gate *v1alpha1.LatencyGate, pair turns.Start) (why string, server bool) {
	o, err := r.Cluster.Preflight(ctx, turns.Benchmark(gate, pair.Verification, pair.Peer, pair.Verification.Status.Number+1))
	if err == nil {
		err = r.Cluster.Room(ctx, &o)
	}
	if err != nil {
		return fmt.Sprintf("reading whether it has room: %v", err), false
	}
	if _, rejection := preflight.Accept(o); rejection != nil {
		return rejection.InTemplate().String(), strings.HasPrefix(rejection.Path, "spec.placement.server")
	}
	return "", false
}
