package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each line of docs/internals/threats.md names tests or specs that exist, in the packages that it names, or "none".
func TestThreatsAreTested(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "internals", "threats.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| (.*) \| .* \| (.*) \|$`)
	named := regexp.MustCompile("`((?:cmd|internal|controllers|test|bench-image)[a-z0-9/]*)` ((?:(?:Test[A-Za-z]+|\"[^\"]+\")(?:, )?)+)")
	found := 0
	for _, r := range row.FindAllStringSubmatch(string(page), -1) {
		attack, tests := r[1], r[2]
		if attack == "the attacker tries" || tests == "none" {
			continue
		}
		if left := named.ReplaceAllString(tests, ""); left != "" {
			t.Errorf("%s: docs/internals/threats.md has neither tests nor \"none\" but %q", attack, left)
		}
		for _, m := range named.FindAllStringSubmatch(tests, -1) {
			files, err := filepath.Glob(filepath.Join(root, m[1], "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			for _, file := range files {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				all.Write(content)
			}
			for _, name := range regexp.MustCompile(`Test[A-Za-z]+|"[^"]+"`).FindAllString(m[2], -1) {
				found++
				text := "func " + name + "("
				if strings.HasPrefix(name, `"`) {
					text = "(" + strings.TrimSuffix(name, `"`)
				}
				if !strings.Contains(all.String(), text) {
					t.Errorf("%s: docs/internals/threats.md names %s, which %s does not have", attack, name, m[1])
				}
			}
		}
	}
	if found < 35 {
		t.Errorf("docs/internals/threats.md names %d tests", found)
	}
}
