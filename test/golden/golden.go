// Package golden compares the output of a test with a file of its testdata.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update is true if the files, and the tables in the documentation, are written instead of compared.
var Update = flag.Bool("update", false, "write the files of testdata and the tables of the docs instead of comparing with them")

// Check compares a text with a file of testdata.
func Check(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *Update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s; go test -update writes it (-want +got):\n%s", path, diff)
	}
}
