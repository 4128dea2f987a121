package localcluster

import (
	"fmt"
	"io"
	"os"
)

// stateDir is the folder of everything that the first cluster writes, removed by Down.
const stateDir = "/var/lib/tailgate-localcluster"

// Options of the local cluster. The zero value is ready for use.
type Options struct {
	// Number tells clusters apart that run side by side, 0 to maxClusters-1. That with 0 starts first and ends last: it alone
	// prepares the machine, and Down of it takes down the others. The lab has none.
	Number int
	// Lab makes the nodes guests, emulated machines with kernels and network cards of their own; see docs/lab.md.
	Lab bool
	// Images are tarballs that the guests of the lab are to have, besides that of sandboxes: Up puts them onto the disks that it makes,
	// which takes less time than Load.
	Images []string
	// Log gets a line for each slow step. Nil means standard error.
	Log io.Writer
}

// maxClusters is how many clusters can run side by side.
const maxClusters = 4

// labSite is the lab's: it runs beside the other clusters.
const labSite = site(maxClusters)

func (o Options) site() site {
	if o.Lab {
		return labSite
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

// Cgroup is the name of the cgroup of all pods of a node, or, with "node-", how those of all nodes begin.
func Cgroup(o Options, node string) string { return "/" + o.site().name(node) }

// Kubeconfig returns the path of the cluster administrator's kubeconfig. The file exists when the cluster is up.
func Kubeconfig(o Options) string { return o.paths().kubeconfig("admin") }
