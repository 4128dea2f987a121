package skips

import "testing"

func TestSkips(t *testing.T) { t.Skip("this machine lacks it") }
func TestElsewhere(t *testing.T) {
	t.Run("sub", func(t *testing.T) { t.Skip("it runs in a process of its own") })
}
func TestRuns(*testing.T) {}
