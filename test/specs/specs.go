// Package specs has what the specs of test/driven and test/integration have in common: builders of benchmarks, matrices, gates and nodes.
package specs

import "time"

// Suite is what each suite does in its own way.
type Suite struct {
	// Ready is the time at which nodes that are made now became ready.
	Ready func() time.Time
}

var suite Suite

// Use sets the suite of the specs that run.
func Use(s Suite) { suite = s }
