// Package specs has what the specs of test/driven and test/integration have in common: builders of benchmarks, matrices, gates and
// nodes, what specs read of them, do to them and expect of them, the steps of kubelets and agents, and the bodies of specs that both
// suites have. A Suite and a Place do the rest in their own ways.
package specs

import (
	"context"
	"time"

	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Suite is what each suite does in its own way.
type Suite struct {
	// Client is the client of users, and User the name of one.
	Client client.Client
	User   string
	// Await waits until what a function returns matches.
	Await func(actual any, matcher gomegatypes.GomegaMatcher, description ...any)
	// Write performs a write of a user. It tries again where other writes, or the API server, can make one fail.
	Write func(write func() error)
	// AddNode creates a node with the taints and status of the builder.
	AddNode func(ctx context.Context, n *NodeBuilder) *corev1.Node
	// AddGate creates a gate, and removes it at the end of the spec where something else would find it.
	AddGate func(ctx context.Context, g *GateBuilder) *v1alpha1.LatencyGate
	// Ready is the time at which nodes that are made now became ready.
	Ready func() time.Time
}

var suite Suite

// Use sets the suite of the specs that run.
func Use(s Suite) { suite = s }

// Place has the names of the objects of one spec, and its kubelets. The World of each suite has one.
type Place struct {
	Namespace string
	// A and B are the names of two nodes.
	A, B     string
	Kubelets *Kubelets
	// Patiently checks that a condition holds however long the controllers wait; it may wake them by a write to an object.
	Patiently func(ctx context.Context, o client.Object, actual func() any, matcher gomegatypes.GomegaMatcher)
	// Stays checks that a node's state does not change however long the controllers wait: longer than any of their intervals and time
	// limits. No version of the Node in between may let it in.
	Stays func(ctx context.Context, node, says string)
	// LetIn watches every version of a Node, and of its hold pods, from now on. found returns the changes by which a version lets the
	// node in (by its condition, label or taint, or because a hold pod reports it as verified) and the version before did not. A Node
	// that is deleted and created again is another Node.
	LetIn func(ctx context.Context, node string) (found func() []string)
	// Manage starts a manager.
	Manage func() (stop func())
}
