package flaky

import (
	"os"
	"testing"
)

// TestSecond passes when it runs for the second time, in a folder that the variable names.
func TestSecond(t *testing.T) {
	mark := os.Getenv("SUITE_MARKS") + "/flaky"
	t.Run("sub", func(t *testing.T) {
		if _, err := os.Stat(mark); err != nil {
			if err := os.WriteFile(mark, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Error("the first time")
		}
	})
	t.Run("other", func(*testing.T) {})
}

func TestFirst(*testing.T) {}
