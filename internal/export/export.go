// Package export keeps what a benchmark measured in a directory, so that results outlive their cluster, and reads it
// again.
package export

import (
	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Benchmark is a benchmark with what was measured of it, in a cluster or an export.
type Benchmark struct {
	// Object is the LatencyBenchmark itself.
	Object *v1alpha1.LatencyBenchmark
	// Runs are its stored results, oldest first, each verified against the digests in the status. A benchmark of many
	// pairs of nodes has none.
	Runs []result.Stored
	// Pairs are the benchmarks of the pairs of one of many pairs, in the order of their names.
	Pairs []Benchmark
}
