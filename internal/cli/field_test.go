package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tailgate-dev/tailgate/test/field"
)

// TestField reads the files of the corpus: manifests as run and plan read them, and nodes as plan --nodes reads them.
func TestField(t *testing.T) {
	field.Run(t, "use", "internal/cli", func(t *testing.T, c field.Case) map[string]string {
		if c.Arguments["read"] == "nodes" {
			nodes, err := readNodes(c.Path(), nil)
			if err != nil {
				return map[string]string{"error": err.Error()}
			}
			var names []string
			for _, n := range nodes {
				names = append(names, n.Name)
			}
			return map[string]string{"nodes": strings.Join(names, " ")}
		}
		u, err := readManifest(c.Path(), nil, benchmarks, matrices)
		if err == nil {
			err = inNamespace(u, "current", false)
		}
		if err != nil {
			return map[string]string{"error": err.Error()}
		}
		end := func(role string) string {
			name, _, _ := unstructured.NestedString(u.Object, "spec", "placement", role, "nodeName")
			return name
		}
		return map[string]string{
			"name": u.GetName(), "namespace": u.GetNamespace(), "placement": fmt.Sprintf("%s to %s", end("client"), end("server")),
			"fields": strings.Join(fieldsOf("", u.Object), " "),
		}
	})
}

// fieldsOf returns the paths of the fields of an object, without those within spec.
func fieldsOf(prefix string, object map[string]any) []string {
	var all []string
	for key, value := range object {
		within, is := value.(map[string]any)
		if path := prefix + key; !is || path == "spec" {
			all = append(all, path)
		} else {
			all = append(all, fieldsOf(path+".", within)...)
		}
	}
	slices.Sort(all)
	return all
}
