package localcluster

import (
	"io"
	"os"
	"path/filepath"
)

// DefaultStateDir is where the cluster keeps its state unless Options say otherwise.
const DefaultStateDir = "/var/lib/tailgate-localcluster"

// Options of the local cluster. The zero value is ready for use.
type Options struct {
	// StateDir is an absolute path to the folder of everything the cluster writes, removed by Down. Empty means
	// DefaultStateDir. There is one cluster a machine at a time, whatever the folder.
	StateDir string
	// Log gets a line for each slow step. Nil means standard error.
	Log io.Writer
}

func (o Options) stateDir() string {
	if o.StateDir == "" {
		return DefaultStateDir
	}
	return filepath.Clean(o.StateDir)
}

func (o Options) log() io.Writer {
	if o.Log == nil {
		return os.Stderr
	}
	return o.Log
}

// Kubeconfig returns the path of the cluster administrator's kubeconfig. The file exists when the cluster is up.
func Kubeconfig(o Options) string { return filepath.Join(o.stateDir(), "admin.kubeconfig") }
