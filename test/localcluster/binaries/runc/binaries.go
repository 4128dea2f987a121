//go:build binaries

// Package binaries pins runc of the local cluster, so that go.mod lists it.
package binaries

import (
	_ "github.com/opencontainers/runc"
)
