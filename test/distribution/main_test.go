package main

import (
	"os"
	"slices"
	"testing"
)

// TestSharedFolders finds folders whose names have blanks, and makes no other ones.
func TestSharedFolders(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("GOMODCACHE", dir+"/my modules")
	shared, err := sharedFolders(t.Context(), dir)
	if err != nil || !slices.Contains(shared, dir+"/my modules") {
		t.Errorf("%q, %v", shared, err)
	}
	entries, err := os.ReadDir(".")
	if err != nil || len(entries) != 1 || entries[0].Name() != "my modules" {
		t.Errorf("it made %v, %v", entries, err)
	}
}
