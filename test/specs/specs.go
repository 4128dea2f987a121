// Package specs has what the specs of test/driven and test/integration have in common: builders of benchmarks, matrices, gates and
// nodes, what specs read of them, do to them and expect of them, and the steps of kubelets and agents. A Suite does the rest.
package specs

import (
	"context"
	"time"

	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
}
