package cached_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
