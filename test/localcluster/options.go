package localcluster

import (
	"fmt"
	"io"
	"os"
)

// stateDir is the folder for all files of the first cluster. Down removes it.
const stateDir = "/var/lib/tailgate-localcluster"

// Options configures the local cluster. The zero value is ready for use.
type Options struct {
	// Number distinguishes clusters that run side by side, 0 to maxClusters-1. Cluster 0 starts first and ends last: it alone
	// prepares the machine and builds the commands of all nodes, and its Down takes down the others. The lab has no number.
	Number int
	// Lab makes the nodes guests: emulated machines with their own kernels and network cards; see docs/internals/lab.md.
	Lab bool
	// Workers names the nodes worker-1 and worker-2 and the resource of the first VFs ResourceX2, as the tutorials do. Such a cluster
	// runs beside the others and has no number.
	Workers bool
	// Images are tarballs that the guests of the lab get in addition to the sandbox image. Up puts them onto the disks that it makes,
	// which takes less time than Load.
	Images []string
	// Log receives a line for each slow step. Nil means standard error.
	Log io.Writer
}

// maxClusters is how many clusters can run side by side.
const maxClusters = 4

// labSite is the site of the lab, which runs beside the other clusters.
const labSite = site(maxClusters)

// workersSite is the site of the cluster of the tutorials, which runs beside the other clusters.
const workersSite = labSite + 1

func (o Options) site() site {
	switch {
	case o.Lab:
		return labSite
	case o.Workers:
		return workersSite
	}
	return site(o.Number)
}

func (o Options) paths() paths { return sitePaths(o.site()) }

func sitePaths(s site) paths {
	if s == 0 {
		return paths{stateDir, s}
	}
	return paths{fmt.Sprintf("%s-%d", stateDir, s), s}
}

func (o Options) log() io.Writer {
	if o.Log == nil {
		return os.Stderr
	}
	return o.Log
}

// Cgroup returns the name of the cgroup of all pods of a node. With "node-", it returns the common prefix of these names.
func Cgroup(o Options, node string) string { return "/" + o.site().name(node) }

// Kubeconfig returns the path of the cluster administrator's kubeconfig. The file exists when the cluster is up.
func Kubeconfig(o Options) string { return o.paths().kubeconfig("admin") }
