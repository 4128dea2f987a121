package cli

import (
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// completionLimit is how long who presses the tabulator waits for a cluster.
const completionLimit = 3 * time.Second

// names lists the objects of a kind, in the namespace; none when the cluster does not tell.
func (c *cluster) names(cmd *cobra.Command, k *kind, prefix string) []cobra.Completion {
	api, namespace, err := c.client()
	if err != nil {
		return nil
	}
	ctx, cancel := timeLimit(cmd.Context(), completionLimit)
	defer cancel()
	list := k.names()
	if err := api.List(ctx, list, client.InNamespace(k.key(namespace, "").Namespace)); err != nil {
		return nil
	}
	var names []cobra.Completion
	for _, item := range list.Items {
		names = append(names, prefix+item.Name)
	}
	return names
}

// completeResults completes the first n arguments by objects of kinds and paths of exports.
func (c *cluster) completeResults(n int, kinds ...*kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if isPath(begun) && len(args) < n {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return c.completeNames(n, kinds...)(cmd, args, begun)
	}
}

// completeNames completes the first n arguments by objects of kinds: NAME of the first kind, KIND/NAME of the others.
func (c *cluster) completeNames(n int, kinds ...*kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := c.names(cmd, kinds[0], "")
		for _, k := range kinds[1:] {
			names = append(names, c.names(cmd, k, k.short+"/")...)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes a flag by the values that it can have.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // There is no such flag.
	}
}
