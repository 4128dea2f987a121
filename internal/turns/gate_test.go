package turns

import (
	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/gatetest"
)

var (
	noon             = gatetest.Noon
	ago, at          = gatetest.Ago, gatetest.At
	makeGate         = gatetest.Gate
	makeNode         = gatetest.Node
	makeVerification = gatetest.Verification
	unverified, in   = gatetest.Unverified, gatetest.In
	waitingSince     = gatetest.WaitingSince
	lent             = gatetest.Lent
)

// makeSnapshot returns a snapshot with the nodes of the verifications, each with the marks that it
// should have.
func makeSnapshot(g *v1alpha1.LatencyGate, verifications ...*v1alpha1.LatencyVerification) *Snapshot {
	s := New(g, nil, nil, nil, nil, noon)
	s.Verifications = verifications
	for _, v := range verifications {
		name := v.Spec.NodeName
		s.Nodes[name], s.States[name] = PublicationOf(g, v).On(makeNode(name)), v.Status.State
	}
	return s
}
