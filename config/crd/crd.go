// Package crd has the definition of LatencyBenchmark, for programs that look at one without an API server.
package crd

import _ "embed"

// LatencyBenchmarks is the CustomResourceDefinition of LatencyBenchmark, in YAML.
//
//go:embed tailgate.dev_latencybenchmarks.yaml
var LatencyBenchmarks []byte
