package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that docs/threats.md names exist, in the packages that it names.
func TestThreatsAreTested(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "threats.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:internal|controllers|test)[a-z/]*)` ((?:Test[A-Za-z]+(?:, )?)+)")
	found := 0
	for _, m := range named.FindAllStringSubmatch(string(page), -1) {
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
		for _, name := range strings.Split(strings.Trim(m[2], ", "), ", ") {
			found++
			if !strings.Contains(all.String(), "func "+name+"(") {
				t.Errorf("docs/threats.md names %s, which %s does not have", name, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("docs/threats.md names %d tests", found)
	}
}
