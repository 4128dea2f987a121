package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

func newRerun(c *cluster) *cobra.Command {
	r := &rerunner{cluster: c}
	cmd := &cobra.Command{
		Use:   "rerun NAME|lmatrix/NAME (--name NEWNAME | --replace)",
		Short: "Measure again with the spec of an existing LatencyBenchmark or LatencyMatrix",
		Long: "Create a LatencyBenchmark or LatencyMatrix with the spec, the labels and the annotations of an existing object. --name\n" +
			"gives the copy a new name; --replace deletes the existing object with its results, and keeps the name.",
		Example: "  " + name + " rerun before --name after -n perf",
		Args:    takes("the name of one LatencyBenchmark or LatencyMatrix", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := r.run(cmd.Context(), args[0])
			if failed := emit(cmd.OutOrStdout(), text, nil); err == nil {
				err = failed
			}
			return err
		},
	}
	// The flag is not --as, which kubectl uses for impersonation.
	cmd.Flags().StringVar(&r.newName, "name", "", "name of the new LatencyBenchmark or LatencyMatrix")
	cmd.Flags().BoolVar(&r.replace, "replace", false, "delete the LatencyBenchmark or LatencyMatrix with its results, and create it again")
	return cmd
}

type rerunner struct {
	*cluster
	newName string
	replace bool
}

func (r *rerunner) run(ctx context.Context, of string) (string, error) {
	source, err := parseMeasured(of)
	switch {
	case err != nil:
		return "", err
	case (r.newName == "") == !r.replace:
		return "", fmt.Errorf("give either --name with the name of the new %s, or --replace to delete %s and its results", source.kind.name, of)
	case r.newName == source.key.Name:
		return "", fmt.Errorf("--name: %s is the name of the present one; give another name, or --replace to delete it and its results", of)
	}
	api, namespace, err := r.client()
	if err != nil {
		return "", err
	}
	old := newUnstructured(source.kind)
	source.key.Namespace = namespace
	if err := read(ctx, api, source, old); err != nil {
		return "", err
	}
	if r.replace {
		return replace(ctx, api, source, old)
	}
	target := subject{source.kind, source.kind.key(namespace, r.newName)}
	switch err := api.Create(ctx, copied(source.kind, old, r.newName), fieldOwner); {
	case apierrors.IsAlreadyExists(err):
		return "", fmt.Errorf("--name: there is a %s already; give another name", target)
	case err != nil:
		return "", inWords("making", target, err)
	}
	return fmt.Sprintf("%s created, with the spec of %s\n", target, source), nil
}

func newUnstructured(k *kind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(k.name))
	return u
}

// copied returns a copy under another name, with unknown fields too. It drops the labels and
// annotations of the old owner, from Tailgate except the series, and of the apply, from kubectl.
func copied(k *kind, old *unstructured.Unstructured, name string) *unstructured.Unstructured {
	u := newUnstructured(k)
	u.SetNamespace(old.GetNamespace())
	u.SetName(name)
	u.Object["spec"] = old.DeepCopy().Object["spec"]
	foreign := func(key, _ string) bool {
		ours := strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") || key == v1alpha1.LabelManagedBy
		return ours && key != v1alpha1.LabelSeries || strings.HasPrefix(key, "kubectl.kubernetes.io/")
	}
	for _, part := range []struct {
		of  map[string]string
		set func(map[string]string)
	}{{old.GetLabels(), u.SetLabels}, {old.GetAnnotations(), u.SetAnnotations}} {
		maps.DeleteFunc(part.of, foreign)
		if len(part.of) > 0 {
			part.set(part.of)
		}
	}
	return u
}

// A deletion's time limit, with pods and results, and the interval of checks.
const (
	goneWithin = 5 * time.Minute
	goneLook   = 500 * time.Millisecond
)

func replace(ctx context.Context, api client.Client, of subject, old *unstructured.Unstructured) (string, error) {
	if owner := metav1.GetControllerOf(old); owner != nil {
		return "", fmt.Errorf("--replace: %s belongs to %s %s, which decides when it is measured; rerun that one, or give --name", of, owner.Kind, owner.Name)
	}
	// A dry run validates the spec before the old object, whose name still exists, is deleted.
	made := copied(of.kind, old, old.GetName())
	if err := api.Create(ctx, made.DeepCopy(), fieldOwner, client.DryRunAll); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", inWords("dry run of", of, err)
	}
	uid := old.GetUID()
	err := api.Delete(ctx, old, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return "", inWords("deleting", of, err)
	}
	if err := makeAgain(ctx, api, of, made); err != nil {
		text, failed := yaml.Marshal(made.Object)
		return string(text), errors.Join(fmt.Errorf("%s was deleted, but could not be created again: %w; its manifest is on standard output", of, err), failed)
	}
	return fmt.Sprintf("%s deleted with its results, and created again\n", of), nil
}

func makeAgain(ctx context.Context, api client.Client, of subject, made *unstructured.Unstructured) error {
	err := wait.PollUntilContextTimeout(ctx, goneLook, goneWithin, true, func(ctx context.Context) (bool, error) {
		err := api.Get(ctx, of.key, newUnstructured(of.kind))
		return isAbsent(err), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for its deletion: %w", err)
	}
	return api.Create(ctx, made.DeepCopy(), fieldOwner)
}
