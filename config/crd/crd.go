// Package crd has the definitions of Tailgate's kinds, for programs without an API server.
package crd

import _ "embed"

// LatencyBenchmarks is the CustomResourceDefinition of LatencyBenchmark, in YAML.
//
//go:embed bases/tailgate.dev_latencybenchmarks.yaml
var LatencyBenchmarks []byte

// LatencyMatrices is the CustomResourceDefinition of LatencyMatrix, in YAML.
//
//go:embed bases/tailgate.dev_latencymatrices.yaml
var LatencyMatrices []byte

// LatencyGates is the CustomResourceDefinition of LatencyGate, in YAML.
//
//go:embed bases/tailgate.dev_latencygates.yaml
var LatencyGates []byte

// LatencyVerifications is the CustomResourceDefinition of LatencyVerification, in YAML.
//
//go:embed bases/tailgate.dev_latencyverifications.yaml
var LatencyVerifications []byte
