package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestLayers: each package with code has its line in hack/layers.yaml, and may import only packages of earlier lines.
func TestLayers(t *testing.T) {
	text, err := os.ReadFile("../../hack/layers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var layers yaml.Node
	if err := yaml.Unmarshal(text, &layers); err != nil {
		t.Fatal(err)
	}
	var below []string
	for pair := range slices.Chunk(layers.Content[0].Content, 2) {
		for _, imported := range pair[1].Content {
			host, _, _ := strings.Cut(imported.Value, "/")
			if !strings.Contains(host, ".") && !slices.Contains(below, imported.Value) {
				t.Errorf("%s imports %s, which has no earlier line", pair[0].Value, imported.Value)
			}
		}
		below = append(below, pair[0].Value)
	}
	for _, room := range []string{"api", "cmd", "controllers", "internal", "config"} {
		if err := filepath.WalkDir(filepath.Join("../..", room), func(path string, _ os.DirEntry, err error) error {
			dir, _ := filepath.Rel("../..", filepath.Dir(path))
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !slices.Contains(below, dir) {
				t.Errorf("%s has no line", dir)
				below = append(below, dir)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
