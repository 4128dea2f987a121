//go:build binaries

// Package binaries pins promtool, which tests the rules and the dashboard, so that go.mod lists it.
package binaries

import (
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
