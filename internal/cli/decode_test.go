package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/test/field"
)

// Files that are small and would become large are refused, as are structures that are too deep.
func TestParseObjectsRefusesBombs(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for _, pair := range []string{"ab", "bc", "cd", "de", "ef", "fg", "gh", "hi"} {
		bomb += string(pair[1]) + ": &" + string(pair[1]) + " [" + strings.Repeat("*"+string(pair[0])+", ", 8) + "*" + string(pair[0]) + "]\n"
	}
	for name, content := range map[string]string{
		"aliases":          bomb,
		"nested JSON":      strings.Repeat(`{"a":`, 50_000),
		"nested sequences": "a: " + strings.Repeat("[", 1_50_000),
		"nested mappings":  strings.Repeat("{a: ", 50_000),
		"a cycle":          "a: &a [*a]\n",
		"a merged cycle":   "a: &a {<<: *a}\n",
		"a wrong mark":     "\xff\xfe\x00\x00a",
	} {
		if objects, err := parseObjects([]byte(content)); err == nil {
			t.Errorf("%s: %d objects", name, len(objects))
		}
	}
	if objects, err := parseObjects(bytes.Repeat([]byte("---\n"), 50_000)); err != nil || len(objects) != 0 {
		t.Errorf("empty documents: %d objects, %v", len(objects), err)
	}
}

// FuzzParseObjects gives the decoder any file: it does not panic, and every object has metadata that its getters can read.
func FuzzParseObjects(f *testing.F) {
	files, err := filepath.Glob(filepath.Join(field.Folder(), "use", "*"))
	if err != nil || len(files) == 0 {
		f.Fatalf("there are no seeds: %v", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		objects, err := parseObjects(content)
		for _, u := range objects {
			metadata, _ := u.Object["metadata"].(map[string]any)
			if text, is := metadata["namespace"].(string); err == nil && metadata["namespace"] != nil && (!is || text != u.GetNamespace()) {
				t.Errorf("namespace %v is read as %q", metadata["namespace"], u.GetNamespace())
			}
		}
	})
}
