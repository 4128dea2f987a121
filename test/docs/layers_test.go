package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
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

// TestToolNames: outside of its own package, a tool is known by the properties that its driver states, never by its name.
func TestToolNames(t *testing.T) {
	for _, room := range []string{"cmd", "controllers", "internal"} {
		if err := filepath.WalkDir(filepath.Join("../..", room), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "../../internal/tool/") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				named := ""
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if of, ok := n.X.(*ast.Ident); ok && of.Name == "v1alpha1" && strings.HasPrefix(n.Sel.Name, "Tool") && n.Sel.Name != "Tool" && n.Sel.Name != "Tools" {
						named = n.Sel.Name
					}
				case *ast.BasicLit:
					if text, err := strconv.Unquote(n.Value); err == nil && slices.Contains(v1alpha1.Tools, v1alpha1.Tool(text)) {
						named = text
					}
				}
				if named != "" {
					t.Errorf("%s names the tool %s: make what it needs a property of tool.Base", path, named)
				}
				return true
			})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
