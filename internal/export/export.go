// Package export keeps what a benchmark measured in a directory, so that results outlive their cluster, and reads it
// again.
//
// The directory of a benchmark has
//
//	manifest.json        which files there are, with their sizes and SHA-256
//	benchmark.json       the LatencyBenchmark: spec and status; of a LatencyMatrix matrix.json
//	runs/RUN/            client.json.gz, server.json.gz and pods.json: the stored result of each run, as the agents sent it
//	evidence.json        what both ends of each run observed, in the plain
//	results.json, .csv   the results, as kubectl tailgate get prints them
//	histograms/VARIANT/  of each cell CELL.hgrm (all rounds), CELL-round-N.hgrm and CELL.hlog
//	slowest/VARIANT/     of each cell whose tool tells them CELL.csv: the slowest samples of each round, one by one
//	pairs/NAME/          of a LatencyMatrix the same of the benchmark of each pair
//
// Only the first three are read again; the others are for people and other programs. All are verified.
package export

import (
	"errors"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// What can be wrong with an export, for errors.Is.
var (
	// ErrNone is returned for a directory that is no export.
	ErrNone = errors.New("no export")
	// ErrDamaged is returned for an export that is not whole, or not as it was written.
	ErrDamaged = errors.New("damaged export")
	// ErrExists is returned if the destination exists.
	ErrExists = errors.New("it already exists")
)

// Benchmark is a LatencyBenchmark or LatencyMatrix with its results, in a cluster or an export.
type Benchmark struct {
	// Object is the LatencyBenchmark itself, or the overview of the LatencyMatrix.
	Object *v1alpha1.LatencyBenchmark
	// Runs are the stored results of a benchmark, oldest first, each verified against the digests in the status.
	Runs []result.Stored
	// Matrix is the LatencyMatrix; nil for a LatencyBenchmark.
	Matrix *v1alpha1.LatencyMatrix
	// Pairs are the benchmarks of the pairs of a matrix, in the order of their names.
	Pairs []Benchmark
	// Dir is the directory of the export that it was read from; empty for one from a cluster.
	Dir string
}

// The Format and Version of a Manifest. A reader refuses any other version.
const (
	Format  = "tailgate-export"
	Version = 1
)

// Manifest is the content of manifest.json.
type Manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Namespace, Name and UID are those of the LatencyBenchmark or LatencyMatrix.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Files are all but manifest.json itself, those of pairs included, in the order of their paths.
	Files []File `json:"files"`
	// Pairs are the names of the benchmarks of the pairs of a LatencyMatrix, in order.
	Pairs []string `json:"pairs,omitempty"`

	// paths are the paths of Files of a manifest that was read.
	paths map[string]bool
}

// File describes a file of an export.
type File struct {
	// Path is relative to the manifest, with slashes.
	Path string `json:"path"`
	// Bytes is its size, SHA256 its digest in hex.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// The names of the files that are read again.
const (
	manifestFile  = "manifest.json"
	benchmarkFile = "benchmark.json"
	matrixFile    = "matrix.json"
	runsDir       = "runs"
	pairsDir      = "pairs"
	maxFileBytes  = 256 << 20
	maxFiles      = 1_000_000
)
