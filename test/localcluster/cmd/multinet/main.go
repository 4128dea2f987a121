// Command multinet is the local cluster's CNI plugin that stands in for Multus; see the package cni.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/tailgate-dev/tailgate/test/localcluster/cni"
)

func main() {
	skel.PluginMainFuncs(cni.New().Funcs(), version.All, "multinet: the local cluster's stand-in for Multus")
}
