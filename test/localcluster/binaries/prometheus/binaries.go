//go:build binaries

// Package binaries pins Prometheus, so that go.mod lists it.
package binaries

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
)
