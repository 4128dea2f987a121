//go:build binaries

// Package binaries pins Prometheus 2, which tests the rules as Prometheus 3 does, so that go.mod lists it.
package binaries

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
