package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/test/golden"
)

// CheckTable compares the table of a page, a name in docs/, with the table that a package prints, or writes it there. root
// is the root of the repository relative to the test's folder, and pkg is the package of the test, such as test/faults.
func CheckTable(t testing.TB, root, page, pkg, table string) {
	t.Helper()
	begin, end := fmt.Sprintf("<!-- the table is printed from %s: go test ./%[1]s -update -->\n\n", pkg), "\n<!-- end of the table -->"
	file := filepath.Join(root, "docs", page)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(content), begin)
	found, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("docs/%s has no place for the table, between %q and %q", page, begin, end)
	}
	if *golden.Update {
		if err := os.WriteFile(file, []byte(head+begin+table+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if found != table {
		t.Errorf("docs/%s has another table than the code; go test ./%s -update writes:\n%s", page, pkg, table)
	}
}
