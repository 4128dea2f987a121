package cached_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/test/cached"
)

func TestOnceIsWholeOrAbsent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "built")
	fill := func(fails bool) func(string) error {
		return func(tmp string) error {
			if err := os.WriteFile(filepath.Join(tmp, "part"), nil, 0o644); err != nil {
				return err
			}
			if fails {
				return os.ErrInvalid
			}
			return nil
		}
	}
	if err := cached.Once(t.Context(), dir, fill(true)); err == nil {
		t.Fatal("a failed build succeeded")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Fatal("a failed build left a folder")
	}
	if err := os.Mkdir(dir+".tmp", 0o755); err != nil { // The folder of a builder that was killed.
		t.Fatal(err)
	}
	if err := cached.Once(t.Context(), dir, fill(false)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "part")); err != nil {
		t.Fatal("nothing was built")
	}
	if err := cached.Once(t.Context(), dir, fill(true)); err != nil {
		t.Errorf("what is there was built again: %v", err)
	}
}

// TestTemporary removes the folder of a process that was killed, and neither that of one that runs nor what only has such a name.
func TestTemporary(t *testing.T) {
	parent := t.TempDir()
	used, remove, err := cached.Temporary(parent)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(parent, "tailgate-temporary-link")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(parent, "tailgate-temporary-new-1", "src"), 0o700); err != nil { // The lock of a killed process is gone.
		t.Fatal(err)
	}
	if err := cached.RemoveTemporary(parent); err != nil {
		t.Fatal(err)
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(parent)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if got, want := left(), []string{"tailgate-temporary-link", filepath.Base(used)}; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("left: %q, want %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "kept")); err != nil {
		t.Error(err)
	}
	remove()
	if got := left(); len(got) != 1 {
		t.Errorf("left: %q", got)
	}
	if err := cached.RemoveTemporary(filepath.Join(parent, "missing")); err != nil {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

// TestUnfinished removes what a killed process was filling, and not what another one fills.
func TestUnfinished(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cache, err := cached.Dir()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"killed.tmp", "whole"} {
		if err := os.MkdirAll(filepath.Join(cache, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err = cached.Folder(t.Context(), "filled", func(tmp string) error {
		if err := cached.RemoveUnfinished(); err != nil {
			t.Error(err)
		}
		_, err := os.Stat(tmp)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	dirs, err := filepath.Glob(filepath.Join(cache, "*[a-z]"))
	if err != nil {
		t.Fatal(err)
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return filepath.Ext(dir) == ".lock" })
	if want := []string{filepath.Join(cache, "filled"), filepath.Join(cache, "whole")}; !slices.Equal(dirs, want) {
		t.Errorf("the cache has %q, want %q", dirs, want)
	}
}

// TestTemporaryIsUsed: a folder that another function makes would be left by a killed process.
func TestTemporaryIsUsed(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), `os.MkdirTemp("",`) {
			t.Errorf("%s makes a temporary folder that make cluster-down does not find", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestLockWaitsUntilTheContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "lock")
	unlock, err := cached.Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, os.ErrDeadlineExceeded)
	defer cancel()
	if _, err := cached.Lock(ctx, path); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v from a lock that is taken, want the cause of the end of the context", err)
	}
	unlock()
	if unlock, err = cached.Lock(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	unlock()
}
