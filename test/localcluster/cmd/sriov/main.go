// Command sriov is the local cluster's CNI plugin that stands in for sriov-cni; see the package sriov.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/tailgate-dev/tailgate/test/localcluster/sriov"
)

func main() {
	skel.PluginMainFuncs(sriov.New().Funcs(), version.All, "sriov: the local cluster's stand-in for sriov-cni")
}
