// Package specs has what the specs of test/driven and test/integration have in common: builders of benchmarks, matrices, gates and nodes, and what
// specs read of them, do to them and expect of them. Each suite says in a Suite how it does what differs.
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
	// Write performs a write, and repeats it if others write the same object at the same time.
	Write func(write func() error)
	// AddNode creates a node with the taints and status of the builder.
	AddNode func(ctx context.Context, n *NodeBuilder) *corev1.Node
	// Ready is the time at which nodes that are made now became ready.
	Ready func() time.Time
}

var suite Suite

// Use sets the suite of the specs that run.
func Use(s Suite) { suite = s }

// Place is where a spec takes place. The World of each suite has one.
type Place struct {
	Namespace string
	// A and B are the names of two nodes.
	A, B     string
	Kubelets *Kubelets
}
