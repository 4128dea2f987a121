//go:build binaries

// Package binaries pins the controller of Argo Rollouts, so that go.mod lists it.
package binaries

import (
	_ "github.com/argoproj/argo-rollouts/cmd/rollouts-controller"
)
