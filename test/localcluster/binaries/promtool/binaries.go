//go:build binaries

// Package binaries pins promtool, with which the rules and the dashboard are tested, so that go.mod lists it.
package binaries

import (
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
