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
	// prepares the machine, and Down of it takes down the others.
	Number int
	// Lab makes the nodes guests, emulated machines with kernels and network cards of their own; see docs/lab.md.
	Lab bool
	// Log gets a line for each slow step. Nil means standard error.
	Log io.Writer
}

// maxClusters is how many clusters can run side by side.
const maxClusters = 4

func (o Options) paths() paths { return sitePaths(site(o.Number)) }

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
func Cgroup(o Options, node string) string { return "/" + site(o.Number).name(node) }

// Kubeconfig returns the path of the cluster administrator's kubeconfig. The file exists when the cluster is up.
func Kubeconfig(o Options) string { return o.paths().kubeconfig("admin") }
