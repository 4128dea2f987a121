// Package crd has the definitions of Tailgate's kinds, for programs without an API server.
package crd

import _ "embed"

//go:embed bases/tailgate.dev_latencybenchmarks.yaml
var LatencyBenchmarks []byte

//go:embed bases/tailgate.dev_latencymatrices.yaml
var LatencyMatrices []byte

//go:embed bases/tailgate.dev_latencygates.yaml
var LatencyGates []byte

//go:embed bases/tailgate.dev_latencyverifications.yaml
var LatencyVerifications []byte
