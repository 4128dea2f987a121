// Package cli is kubectl-tailgate, with a file for each verb.
//
// What a verb prints goes to standard output, whole or not at all. An error is one line on standard error that says
// what to do, and exit code 1.
package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// name is how users call the command.
const name = "kubectl tailgate"

// Run carries out a command line without its program's name and returns the exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", name, oneLine(err))
		return 1
	}
	return 0
}

// newRoot is the command with all its verbs.
func newRoot() *cobra.Command {
	cluster := &cluster{flags: genericclioptions.NewConfigFlags(false)}
	// What is asked of the API server is known, so nothing is discovered that could be kept in a cache.
	cluster.flags.CacheDir = nil
	root := &cobra.Command{
		Use:         "kubectl-tailgate",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:       "Results of Tailgate's latency benchmarks",
		// Run prints the error; whoever mistyped a flag need not read all of them.
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	cluster.flags.AddFlags(root.PersistentFlags())
	root.AddCommand(newGet(cluster))
	return root
}

// oneLine is an error's message without its line breaks.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// cluster is the one that kubeconfig and flags name, as with kubectl.
type cluster struct {
	flags *genericclioptions.ConfigFlags
}

// client talks to the API server; namespace is the one to look in.
func (c *cluster) client() (api client.Client, namespace string, err error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if namespace, _, err = c.flags.ToRawKubeConfigLoader().Namespace(); err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// The API server itself sees to fairness. The default of 5 requests a second would make results of 100 runs wait.
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, "", err
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, "", err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("LatencyBenchmark"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	if api, err = client.New(config, client.Options{Scheme: scheme, Mapper: mapper}); err != nil {
		return nil, "", fmt.Errorf("making a client: %w", err)
	}
	return api, namespace, nil
}
