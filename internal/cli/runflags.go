package cli

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/admit"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// pairFlags describe a benchmark of two nodes without a file.
type pairFlags struct {
	client, server, network, tool, name string
	onload                              bool
	sizes                               []int32
	rounds                              int32
}

func (p *pairFlags) addFlags(cmd *cobra.Command, c *cluster) {
	f := cmd.Flags()
	f.StringVar(&p.client, "client", "", "node of the client, to run a benchmark without a file")
	f.StringVarP(&p.server, "server", "s", "", "node of the server; with -f, the API server, as of all verbs")
	f.StringVar(&p.network, "network", "", "Host, a NetworkAttachmentDefinition ([NAMESPACE/]NAME), or the resource of its devices, such as openshift.io/sf_x2_vf (default the pod network)")
	f.StringVar(&p.tool, "tool", string(v1alpha1.Tools[0]), "tool that measures")
	f.BoolVar(&p.onload, "onload", false, "accelerate the sockets with Onload")
	f.Int32SliceVar(&p.sizes, "size", []int32{64}, "message sizes in bytes")
	f.Int32Var(&p.rounds, "rounds", 0, "number of rounds (default that of the API)")
	f.StringVar(&p.name, "name", "", "name of the LatencyBenchmark (default one that follows from the other flags)")
	tools := text.Of(v1alpha1.Tools, func(t v1alpha1.Tool) string { return string(t) })
	nodes := func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list := &corev1.NodeList{}
		if api, _, err := c.client(); err != nil || api.List(cmd.Context(), list) != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return text.Of(list.Items, func(n corev1.Node) string { return n.Name }), cobra.ShellCompDirectiveNoFileComp
	}
	for flag, complete := range map[string]cobra.CompletionFunc{
		"client": nodes, "server": nodes, "tool": cobra.FixedCompletions(tools, cobra.ShellCompDirectiveNoFileComp),
	} {
		if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // the flag was added above
		}
	}
}

// benchmark returns the described benchmark, and says which network it found.
func (p *pairFlags) benchmark(ctx context.Context, c *cluster, say func(string)) (*unstructured.Unstructured, error) {
	switch {
	case p.client == "" || p.server == "":
		return nil, errors.New("--filename: name a file, or describe a benchmark by --client NODE and --server NODE")
	case strings.Contains(p.server, "://"):
		return nil, fmt.Errorf("--server: %s is no node; choose the API server by --context or --kubeconfig", p.server)
	}
	namespace, _, err := c.namespace()
	if err != nil {
		return nil, err
	}
	var sizes []any
	for _, s := range p.sizes {
		sizes = append(sizes, int64(s))
	}
	spec := map[string]any{
		"tool":      p.tool,
		"workload":  map[string]any{"protocols": []any{string(v1alpha1.ProtocolTCP)}, "messageSizes": sizes},
		"placement": map[string]any{"client": map[string]any{"nodeName": p.client}, "server": map[string]any{"nodeName": p.server}},
	}
	if p.rounds != 0 {
		spec["rounds"] = int64(p.rounds)
	}
	if p.onload {
		spec["acceleration"] = map[string]any{"type": string(v1alpha1.AccelerationOnload)}
	}
	if p.network != "" {
		api, _, err := c.client()
		if err != nil {
			return nil, err
		}
		network, found, err := p.networkIn(ctx, api, namespace)
		if err != nil {
			return nil, fmt.Errorf("--network: %w", err)
		}
		say(fmt.Sprintf("--network %s is %s", p.network, found))
		spec["network"] = network
	}
	u := newUnstructured(benchmarks)
	u.SetNamespace(namespace)
	u.SetName(p.name)
	u.Object["spec"] = spec
	if p.name == "" {
		digest, err := result.Digest(spec)
		if err != nil {
			return nil, err
		}
		u.SetName("run-" + digest[:8])
	}
	return u, admit.Object(ctx, u.DeepCopy())
}

// networkIn finds what --network names in a namespace, and describes it.
func (p *pairFlags) networkIn(ctx context.Context, api client.Client, namespace string) (network map[string]any, found string, err error) {
	for _, t := range []v1alpha1.NetworkType{v1alpha1.NetworkPod, v1alpha1.NetworkHost} {
		if strings.EqualFold(p.network, string(t)) {
			return map[string]any{"type": string(t)}, "the network of type " + string(t), nil
		}
	}
	ref := map[string]any{}
	within, name, qualified := strings.Cut(p.network, "/")
	if qualified = qualified && !strings.Contains(within, "."); qualified { // The prefix of a resource is a domain.
		ref["namespace"] = within
	} else {
		within, name = namespace, p.network
	}
	list := foreign.List(foreign.GroupVersionKind)
	if err := api.List(ctx, list, client.InNamespace(within)); err != nil {
		return nil, "", fmt.Errorf("listing the NetworkAttachmentDefinitions of namespace %s: %w", within, err)
	}
	var same, known []string
	var chosen *unstructured.Unstructured
	for i := range list.Items {
		d := &list.Items[i]
		resource := d.GetAnnotations()[foreign.AnnotationResourceName]
		known = append(known, strings.TrimSpace(d.GetName()+" "+resource))
		switch {
		case d.GetName() == name:
			same, chosen = nil, d
		case !qualified && names(p.network, resource) && (chosen == nil || chosen.GetName() != name):
			same, chosen = append(same, d.GetName()), d
		}
	}
	switch {
	case len(same) > 1:
		return nil, "", fmt.Errorf("%d NetworkAttachmentDefinitions of namespace %s have devices of %s: name one of %s", len(same), within, p.network, text.List(same, 8, ", "))
	case chosen == nil:
		return nil, "", fmt.Errorf("namespace %s has no NetworkAttachmentDefinition %s, and none with devices of this name; it has %s%s",
			within, p.network, text.List(append(known, "no other")[:max(len(known), 1)], 8, ", "), p.unattached(ctx, api))
	}
	ref["name"] = chosen.GetName()
	resource := chosen.GetAnnotations()[foreign.AnnotationResourceName]
	config, _, _ := unstructured.NestedString(chosen.Object, "spec", "config")
	found = fmt.Sprintf("NetworkAttachmentDefinition %s/%s, ", within, chosen.GetName())
	if resource == "" || foreign.Deviceless(config, resource) {
		return map[string]any{"type": string(v1alpha1.NetworkNAD), "nad": map[string]any{"networkRef": ref}}, found + "without a device", nil
	}
	kind := v1alpha1.NetworkVF
	if plugins, _ := foreign.Plugins[foreign.CNIPlugin](config); len(plugins) > 0 && plugins[0].Type == "host-device" {
		kind = v1alpha1.NetworkPF
	}
	return map[string]any{"type": string(kind), strings.ToLower(string(kind)): map[string]any{"resourceName": resource, "networkRef": ref}},
		fmt.Sprintf("%swith a %s of %s", found, kind, resource), nil
}

// names reports whether a word names a resource, with or without its prefix; - stands for _.
func names(word, resource string) bool {
	plain := strings.NewReplacer("_", "-").Replace
	return resource != "" && (word == resource || strings.EqualFold(plain(word), plain(path.Base(resource))))
}

// unattached says which resource of the client's node --network names, which no network uses.
func (p *pairFlags) unattached(ctx context.Context, api client.Client) string {
	n := &corev1.Node{}
	if api.Get(ctx, client.ObjectKey{Name: p.client}, n) != nil {
		return ""
	}
	for resource := range n.Status.Allocatable {
		if names(p.network, string(resource)) {
			return fmt.Sprintf("; node %s has devices of %s: create a NetworkAttachmentDefinition for them, or write network.vf.ipam into a file", n.Name, resource)
		}
	}
	return ""
}
