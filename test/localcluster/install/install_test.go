package install

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestOverlayThroughLinks writes the kustomization into a folder for temporary files that is a symbolic link, for a checkout that is one.
// kustomize resolves both before it follows the relative path.
func TestOverlayThroughLinks(t *testing.T) {
	dir := t.TempDir()
	overlay := filepath.Join(dir, "src", "overlay")
	temporary := filepath.Join(dir, "disk", "deep", "tmp")
	for _, folder := range []string{overlay, temporary} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"checkout": filepath.Join(dir, "src"), "tmp": temporary} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	made := filepath.Join(dir, "tmp")
	if err := withDigest(made, filepath.Join(dir, "checkout", "overlay"), "sha256:1"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(made, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		t.Fatal(err)
	}
	resolved, err := filepath.EvalSymlinks(made)
	if err != nil {
		t.Fatal(err)
	}
	if got := filepath.Join(resolved, kustomization.Resources[0]); got != overlay {
		t.Errorf("the overlay is %s, want %s", got, overlay)
	}
}
