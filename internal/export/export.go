// Package export stores results in a directory, where they outlive a cluster, and reads them.
//
// The directory of a benchmark has
//
//	manifest.json        the list of files, with their sizes and SHA-256
//	benchmark.json       the LatencyBenchmark: spec and status; matrix.json for a LatencyMatrix
//	runs/RUN/            client.json.gz, server.json.gz and pods.json: the stored result of each run, as the agents sent it
//	evidence.json        the observations of both endpoints of each run, uncompressed
//	results.json, .csv   the results, as kubectl tailgate get prints them
//	histograms/VARIANT/  CELL.hgrm (all rounds), CELL-round-N.hgrm and CELL.hlog for each cell
//	slowest/VARIANT/     CELL.csv for each cell whose tool reports them: the slowest samples of each round
//	pairs/NAME/          the same for the benchmark of each pair of a LatencyMatrix
//
// Only the first three are read again, the others by people; all are verified.
package export

import (
	"errors"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Errors of an export, for errors.Is.
var (
	ErrNone = errors.New("no export")
	// ErrDamaged is returned for an export that is incomplete or was changed.
	ErrDamaged = errors.New("damaged export; copy it again, or export again")
	ErrExists  = errors.New("it already exists")
)

// Benchmark is a LatencyBenchmark or LatencyMatrix with its results, in a cluster or an export.
type Benchmark struct {
	// Object is the LatencyBenchmark itself, or the overview of the LatencyMatrix.
	Object *v1alpha1.LatencyBenchmark
	// Runs are oldest first, each verified by the digests in the status.
	Runs []result.Stored
	// Matrix is the LatencyMatrix; nil for a LatencyBenchmark.
	Matrix *v1alpha1.LatencyMatrix
	// Pairs holds the benchmarks of the pairs of a matrix, in the order of their names.
	Pairs []Benchmark
	// Dir is the export's directory; empty for a cluster's benchmark.
	Dir string
}

// manifest is a Manifest that was read; paths holds its files.
type manifest struct {
	result.Manifest
	paths map[string]result.File
}

// The files that are read again, and their limits.
const (
	manifestFile  = result.ExportManifest
	benchmarkFile = result.ExportBenchmark
	matrixFile    = "matrix.json"
	runsDir       = result.ExportRuns
	pairsDir      = "pairs"
	maxFileBytes  = 256 << 20
	maxTotalBytes = 16 << 30
	maxFiles      = 1_000_000
)
