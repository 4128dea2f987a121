package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

type kind struct {
	name string
	// short is the short name, plural the name of the resource; the singular is accepted too.
	short, plural string
	scope         meta.RESTScope
	object        func() client.Object
}

var benchmarks = &kind{
	name: "LatencyBenchmark", short: "lbench", plural: "latencybenchmarks", scope: meta.RESTScopeNamespace,
	object: func() client.Object { return &v1alpha1.LatencyBenchmark{} },
}

var matrices = &kind{
	name: "LatencyMatrix", short: "lmatrix", plural: "latencymatrices", scope: meta.RESTScopeNamespace,
	object: func() client.Object { return &v1alpha1.LatencyMatrix{} },
}

// overviewOf returns a benchmark, or the overview of a matrix, which has the form of a benchmark.
func overviewOf(o client.Object) *v1alpha1.LatencyBenchmark {
	if m, ok := o.(*v1alpha1.LatencyMatrix); ok {
		return m.Overview()
	}
	return o.(*v1alpha1.LatencyBenchmark)
}

var gates = &kind{
	name: "LatencyGate", short: "lgate", plural: "latencygates", scope: meta.RESTScopeRoot,
	object: func() client.Object { return &v1alpha1.LatencyGate{} },
}

// verifications have no verdict that the verb gate prints.
var verifications = &kind{
	name: "LatencyVerification", short: "lver", plural: "latencyverifications", scope: meta.RESTScopeRoot,
	object: func() client.Object { return &v1alpha1.LatencyVerification{} },
}

func kinds() []*kind { return []*kind{benchmarks, matrices, gates} }

// resource is the kind's full name: of two groups with one short name, kubectl takes the first.
func (k *kind) resource() string { return k.plural + "." + v1alpha1.GroupVersion.Group }

func (k *kind) is(word string) bool {
	word = strings.TrimSuffix(strings.ToLower(word), "."+v1alpha1.GroupVersion.Group)
	return slices.Contains([]string{k.short, k.plural, strings.ToLower(k.name)}, word)
}

// key returns an object's key, without the namespace if the kind has none.
func (k *kind) key(namespace, name string) types.NamespacedName {
	if k.scope == meta.RESTScopeRoot {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

type subject struct {
	kind *kind
	key  types.NamespacedName
}

func (s subject) String() string {
	if s.key.Namespace == "" {
		return s.kind.name + " " + s.key.Name
	}
	return s.kind.name + " " + s.key.String()
}

// parseSubject reads NAME of a benchmark, or KIND/NAME. For the namespace see kind.key.
func parseSubject(arg string) (subject, error) {
	word, name, qualified := strings.Cut(arg, "/")
	if !qualified {
		word, name = benchmarks.short, arg
	}
	var known []string
	for _, k := range kinds() {
		known = append(known, k.short+"/NAME")
		if k.is(word) && name != "" && !strings.Contains(name, "/") {
			return subject{k, types.NamespacedName{Name: name}}, nil
		}
	}
	return subject{}, fmt.Errorf("%q is not an object that can have a verdict: give NAME of a LatencyBenchmark, or %s", arg, strings.Join(known, ", "))
}

func parseMeasured(arg string) (subject, error) {
	of, err := parseSubject(arg)
	if err != nil || of.kind == gates {
		return subject{}, fmt.Errorf("%q is neither NAME of a LatencyBenchmark nor %s/NAME", arg, matrices.short)
	}
	return of, nil
}

// names completes the name of a LatencyBenchmark, or of an object of the kind before a slash.
func (c *cluster) names(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	of, prefix := benchmarks, ""
	if word, _, qualified := strings.Cut(begun, "/"); qualified {
		i := slices.IndexFunc(kinds(), func(k *kind) bool { return k.is(word) })
		if i < 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		of, prefix = kinds()[i], word+"/"
	}
	api, namespace, err := c.client()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(of.name))
	if err != nil || api.List(cmd.Context(), list, client.InNamespace(of.key(namespace, "").Namespace)) != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var all []string
	for _, o := range list.Items {
		if strings.HasPrefix(prefix+o.Name, begun) {
			all = append(all, prefix+o.Name)
		}
	}
	slices.Sort(all)
	return all, cobra.ShellCompDirectiveNoFileComp
}

type reworded struct {
	message string
	cause   error
}

func (e reworded) Error() string { return e.message }

func (e reworded) Unwrap() error { return e.cause }

func read(ctx context.Context, api client.Client, of subject, into client.Object) error {
	k, key := of.kind, of.key
	switch err := api.Get(ctx, key, into); {
	case err == nil:
		return nil
	case isAbsent(err) && key.Namespace == "":
		return reworded{fmt.Sprintf("there is no %s %s; see `kubectl get %s`", k.name, key.Name, k.resource()), err}
	case isAbsent(err):
		return reworded{fmt.Sprintf("there is no %s %s in namespace %s; see `kubectl get %s -A`", k.name, key.Name, key.Namespace, k.resource()), err}
	default:
		return inWords("getting", of, err)
	}
}

func inWords(doing string, of subject, err error) error {
	if apierrors.IsNotFound(err) && !isAbsent(err) {
		return reworded{fmt.Sprintf("the cluster does not have the kind %s: install Tailgate there, or choose another cluster with --context", of.kind.name), err}
	}
	return fmt.Errorf("%s %s: %w", doing, of, err)
}

// isAbsent reports whether an object does not exist; of a missing kind, only a path is missing.
func isAbsent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
