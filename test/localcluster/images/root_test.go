package images

import (
	"path/filepath"
	"testing"
)

func TestRepositoryRootFromANestedModule(t *testing.T) {
	want, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join("..", "binaries", "runc"))
	if got, err := RepositoryRoot(); err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
