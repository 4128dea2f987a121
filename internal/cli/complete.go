package cli

import (
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// completionLimit is how long a shell completion waits for a cluster.
const completionLimit = 3 * time.Second

// names lists the names of objects, in the user's namespace if they are namespaced. It returns nil if the cluster does not respond.
func (c *cluster) names(cmd *cobra.Command, list *metav1.PartialObjectMetadataList, namespaced bool) []string {
	api, namespace, err := c.client()
	if err != nil {
		return nil
	}
	if !namespaced {
		namespace = ""
	}
	ctx, cancel := timeLimit(cmd.Context(), completionLimit)
	defer cancel()
	if err := api.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names
}

// completeResults completes the first n arguments with objects of kinds and paths of exports.
func (c *cluster) completeResults(n int, kinds ...*kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if isPath(begun) && len(args) < n {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return c.completeNames(n, kinds...)(cmd, args, begun)
	}
}

// completeNames completes the first n arguments with objects of kinds: NAME of the first kind, KIND/NAME of the others.
func (c *cluster) completeNames(n int, kinds ...*kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for i, k := range kinds {
			for _, name := range c.names(cmd, k.names(), k.scope == meta.RESTScopeNamespace) {
				if i > 0 {
					name = k.short + "/" + name
				}
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes a flag with the values that it can have.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // There is no such flag.
	}
}
