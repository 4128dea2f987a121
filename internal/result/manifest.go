package result

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// The format and version of a Manifest. A reader refuses any other version.
const (
	ExportFormat  = "tailgate-export"
	ExportVersion = 1
)

// Files of an export that are read again; each run's KeyClient and so on in ExportRuns/RUN.
const (
	ExportManifest  = "manifest.json"
	ExportBenchmark = "benchmark.json"
	ExportRuns      = "runs"
)

type Manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Namespace, Name and UID identify the LatencyBenchmark or LatencyMatrix.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Files are all but the manifest itself, also of pairs, by path.
	Files []File `json:"files"`
	// Pairs lists the names of the benchmarks of the pairs of a LatencyMatrix, in order.
	Pairs []string `json:"pairs,omitempty"`
}

type File struct {
	// Path is relative to the manifest, with slashes.
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func NewFile(path string, content []byte) File {
	return File{Path: path, Bytes: int64(len(content)), SHA256: digestOf(content)}
}

// EncodeJSON returns a value as exports and kubectl tailgate get contain it: JSON with two spaces.
func EncodeJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding JSON: %w", err)
	}
	return out.Bytes(), nil
}
