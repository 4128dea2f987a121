package localcluster

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

// Owns reports whether a kubeconfig is one of a local cluster.
func Owns(kubeconfig string) bool {
	for s := range workersSite + 1 {
		if strings.HasPrefix(kubeconfig, sitePaths(s).state+"/") {
			return true
		}
	}
	return false
}

// RESTConfig reads a kubeconfig. Clients of a local cluster use no proxy: it is on this machine.
func RESTConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if Owns(kubeconfig) {
		config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	return config, nil
}

// Environment returns the environment of a kubectl, or another client of a cluster, with additional variables. A client of a local
// cluster does not receive the user's environment, and keeps its cache in the state folder.
func Environment(kubeconfig string, extra ...string) []string {
	extra = append([]string{"KUBECONFIG=" + kubeconfig}, extra...)
	if Owns(kubeconfig) {
		return environment.Cluster(filepath.Dir(kubeconfig), extra...)
	}
	return append(append(os.Environ(), "KUBERC=off"), extra...)
}

func (c *cluster) client() (*kubernetes.Clientset, error) {
	config, err := RESTConfig(c.kubeconfig("admin"))
	if err != nil {
		return nil, err
	}
	config.Timeout = 10 * time.Second
	config.QPS = -1 // No limit on the client's side.
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// environment returns the environment of the cluster's processes and of its own commands.
func (c *cluster) environment(extra ...string) []string {
	return environment.Cluster(c.state, append([]string{"PATH=" + c.binaries + ":" + environment.SystemPath}, extra...)...)
}

// command returns one of the pinned commands, to be run on the host.
func (c *cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.binaries, name), args...)
	cmd.Env = c.environment()
	return cmd
}

// commandsFile names the folder with the commands of the running cluster.
func (p paths) commandsFile() string { return p.join("commands-folder") }

// useOwnCommands makes this command use the same files as the running cluster, which can be in another user's cache: its nodes see no
// other folder below /var/lib, /var/log and /run.
func (c *cluster) useOwnCommands() {
	noted, err := os.ReadFile(c.commandsFile())
	if folder := string(noted); err == nil && filepath.Base(folder) == filepath.Base(c.binaries) && exists(filepath.Join(folder, "kubectl")) {
		c.binaries = folder
	}
}

// userCommands is the folder with links to the commands of the user. Its path needs no quotes in a shell, wherever the checkout and the
// cache are.
func (p paths) userCommands() string { return p.join("user-bin") }

// linkUserCommands links kubectl, and kubectl-tailgate from `make build`. Where a checkout has not built it yet, the link to that of
// another checkout stays.
func (c *cluster) linkUserCommands() error {
	err := os.MkdirAll(c.userCommands(), 0o755)
	for name, target := range map[string]string{
		"kubectl": filepath.Join(c.binaries, "kubectl"), "kubectl-tailgate": filepath.Join(c.root, "bin", "kubectl-tailgate"),
	} {
		link := filepath.Join(c.userCommands(), name)
		if present, readErr := os.Readlink(link); err != nil || readErr == nil && (present == target || exists(link) && !exists(target)) {
			continue
		}
		if err = os.RemoveAll(link); err == nil {
			err = os.Symlink(target, link)
		}
	}
	if err != nil {
		return fmt.Errorf("linking the commands for the user: %w", err)
	}
	return nil
}

// Usage returns what to enter in a shell to use the cluster, and to stop it. It holds in a shell with a proxy.
func Usage(o Options) string {
	// A shell evaluates all words of the line before it sets the first variable.
	direct := fmt.Sprintf(`"%s,${NO_PROXY:-${no_proxy:-}}"`, environment.Direct)
	return fmt.Sprintf("To use it:\n  export KUBECONFIG=%s PATH=%s:\"$PATH\" NO_PROXY=%s no_proxy=%s\nTo stop it:\n  make %s-down\n",
		Kubeconfig(o), o.paths().userCommands(), direct, direct, map[bool]string{false: "cluster", true: "lab"}[o.Lab])
}

// Killed is the first line of a command that leaves something if it is killed.
const Killed = "If this command is killed, make cluster-down (for the lab: make lab-down) removes what it left."

// Interrupted is the last line of a command that was interrupted.
const Interrupted = "It was interrupted. The same command can go on; make cluster-down (for the lab: make lab-down) removes all that is left."

// checkout returns the root of the checkout, or why there is none.
func checkout() string {
	root, err := images.RepositoryRoot()
	if err != nil {
		return err.Error()
	}
	return root
}
