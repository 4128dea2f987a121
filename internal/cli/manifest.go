package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// stdinName is the file name that means standard input.
const stdinName = "-"

// fileFlag adds the flag that names the manifest of a verb.
func fileFlag(cmd *cobra.Command, file *string, kinds ...*kind) {
	cmd.Flags().StringVarP(file, "filename", "f", "", "YAML or JSON of the "+kindNames(kinds)+"; - is standard input")
}

func kindNames(kinds []*kind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// readManifest reads the only object of a file, which has one of the kinds, without what an API server added to it.
func readManifest(file string, stdin io.Reader, kinds ...*kind) (*unstructured.Unstructured, error) {
	content, err := readFile("--filename", file, stdin, maxManifest)
	if err != nil {
		return nil, err
	}
	objects, err := parseObjects(content)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("%s has %d objects: give one %s, and apply the other objects with kubectl", file, len(objects), kindNames(kinds))
	}
	u := objects[0]
	switch {
	case u.GetAPIVersion() != v1alpha1.GroupVersion.String() || !slices.ContainsFunc(kinds, func(k *kind) bool { return k.name == u.GetKind() }):
		return nil, fmt.Errorf("%s has apiVersion %q, kind %q; expected %s, %s",
			file, u.GetAPIVersion(), u.GetKind(), v1alpha1.GroupVersion, kindNames(kinds))
	case u.GetName() == "":
		return nil, fmt.Errorf("%s: metadata.name: the %s has no name; add one", file, u.GetKind())
	case len(u.GetOwnerReferences()) > 0:
		owner := u.GetOwnerReferences()[0]
		return nil, fmt.Errorf("%s: metadata.ownerReferences: it was made for %s %s, and is deleted with it; remove this field and the labels of %s to run it on its own",
			file, owner.Kind, owner.Name, v1alpha1.GroupVersion.Group)
	}
	withoutServerFields(u)
	return u, nil
}

// withoutServerFields removes the fields that an API server sets. An exported object has them, and none of them can be applied to
// another object, or to a later version of the same object.
func withoutServerFields(u *unstructured.Unstructured) {
	unstructured.RemoveNestedField(u.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
}

const (
	// maxManifest bounds a file with one object: it is the largest request that an API server accepts.
	maxManifest = 3 << 20
	// maxNodes bounds a file with nodes: 5,000 nodes with their images take 100 MiB.
	maxNodes = 256 << 20
)

func kindOf(u *unstructured.Unstructured) *kind {
	for _, k := range kinds() {
		if k.name == u.GetKind() {
			return k
		}
	}
	return benchmarks
}

// readFile reads a file, or standard input. It returns an error if the input has more bytes than most.
func readFile(flag, file string, stdin io.Reader, most int64) ([]byte, error) {
	switch file {
	case "":
		return nil, fmt.Errorf("%s: name a file, or - for standard input", flag)
	case stdinName:
	default:
		if strings.Contains(file, "://") {
			return nil, fmt.Errorf("%s: %s is a URL, and only files are read; use `curl -fsSL %[2]s | %s ... %[1]s -`", flag, file, name)
		}
		opened, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		defer opened.Close()
		if info, err := opened.Stat(); err == nil && info.IsDir() {
			return nil, fmt.Errorf("%s: %s is a directory; name a file, or use `kubectl kustomize %[2]s | %s ... %[1]s -`", flag, file, name)
		}
		stdin = opened
	}
	content, err := io.ReadAll(atMost(stdin, most))
	if err != nil {
		return nil, fmt.Errorf("%s: reading %s: %w", flag, file, err)
	}
	return content, nil
}

// atMost returns a reader that fails if r has more bytes than most.
func atMost(r io.Reader, most int64) io.Reader {
	return io.MultiReader(io.LimitReader(r, most), &tooLarge{r, most})
}

// tooLarge returns no data, and an error if rest has any.
type tooLarge struct {
	rest io.Reader
	most int64
}

func (t *tooLarge) Read([]byte) (int, error) {
	n, err := io.ReadFull(t.rest, make([]byte, 1))
	if n > 0 {
		return 0, fmt.Errorf("it has more than %d MiB", t.most>>20)
	}
	return 0, err
}

// manifest reads the only object of a file, of one of the kinds, and gives it the namespace of the command if it has none.
func (c *cluster) manifest(file string, stdin io.Reader, kinds ...*kind) (*unstructured.Unstructured, error) {
	u, err := readManifest(file, stdin, kinds...)
	if err != nil || kindOf(u) == gates {
		return u, err
	}
	namespace, flagged, err := c.namespace()
	if err != nil {
		return nil, err
	}
	return u, inNamespace(u, namespace, flagged)
}

// inNamespace sets the namespace of a manifest without one. If the manifest has a namespace, a flag must name the same one.
func inNamespace(u *unstructured.Unstructured, namespace string, flagged bool) error {
	switch own := u.GetNamespace(); {
	case own == "":
		u.SetNamespace(namespace)
	case flagged && own != namespace:
		return fmt.Errorf("--namespace is %s, but the file has metadata.namespace: %s; remove one of the two", namespace, own)
	}
	return nil
}
