//go:build binaries

// Package binaries pins the etcd server of the local cluster, so that go.mod lists it.
package binaries

import (
	_ "go.etcd.io/etcd/server/v3"
)
