package docs

import (
	"path"
	"path/filepath"
	"slices"
	"testing"
)

// TestIntegrations: each page of a tool has the same four parts, in their order.
func TestIntegrations(t *testing.T) {
	found := 0
	for _, p := range pagesOf(t) {
		if path.Dir(p.Path) != "docs/integrations" {
			continue
		}
		found++
		if want := []string{"needs", "steps", "what-you-see", "limits"}; len(p.Anchors) < 1 || !slices.Equal(p.Anchors[1:], want) {
			t.Errorf("%s has the headings %q, want its title and %q", p.Path, p.Anchors, want)
		}
	}
	if found < 9 {
		t.Errorf("docs/integrations has %d pages", found)
	}
}

// TestSamplesOfGatesAreLinked: a page for users leads to each sample for tools, with the step that needs it.
func TestSamplesOfGatesAreLinked(t *testing.T) {
	linked := map[string]bool{}
	for _, p := range pagesOf(t) {
		if path.Dir(p.Path) == internals {
			continue
		}
		for _, l := range p.Links {
			linked[path.Join(path.Dir(p.Path), l.To)] = true
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "config", "samples", "gates", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples (%v)", err)
	}
	for _, file := range files {
		if sample := "config/samples/gates/" + filepath.Base(file); !linked[sample] {
			t.Errorf("no page has a link to %s", sample)
		}
	}
}
