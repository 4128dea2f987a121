//go:build binaries

// Package binaries pins Flagger, so that go.mod lists it.
package binaries

import (
	_ "github.com/fluxcd/flagger/cmd/flagger"
)
