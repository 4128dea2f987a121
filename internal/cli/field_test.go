package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tailgate-dev/tailgate/internal/export"
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

// TestFieldImport imports the files of the corpus, and reads the exports.
func TestFieldImport(t *testing.T) {
	field.Run(t, "tools", "internal/cli", func(t *testing.T, c field.Case) map[string]string {
		dir := t.TempDir()
		code, _, stderr := run(append([]string{"import", c.Path(), "--name", "x", "-o", dir}, strings.Fields(c.Arguments["flags"])...)...)
		if code != 0 {
			return map[string]string{"error": stderr}
		}
		b, err := export.ReadDir(t.Context(), filepath.Join(dir, "x"))
		if err != nil {
			t.Fatal(err)
		}
		var cells, notes []string
		for _, cell := range b.Runs[0].Client.Cells {
			cells = append(cells, cell.Name)
		}
		for _, n := range b.Object.Spec.Notes {
			notes = append(notes, n.Name+"="+n.Value)
		}
		return map[string]string{
			"cells": strings.Join(cells, " "), "notes": strings.Join(notes, " "), "type": string(b.Object.Spec.LatencyType), "tool": string(b.Object.Spec.Tool),
			"at": b.Runs[0].Client.Cells[0].StartedAt.Format(time.RFC3339),
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
