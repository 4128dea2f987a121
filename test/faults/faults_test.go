package faults

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/docs"
)

// TestTableIsWhole: there is one cell for each fault in each state, and each has exactly one kind of expectation.
func TestTableIsWhole(t *testing.T) {
	cells := Cells()
	if want := len(Faults) * len(States); len(cells) != want || want != 72 {
		t.Errorf("%d cells, want %d", len(cells), want)
	}
	for i, c := range cells {
		if fault, state := Faults[i/len(States)], States[i%len(States)]; c.Fault != fault || c.State != state {
			t.Errorf("cell %d is %q, want %s, %s", i, c.Name(), fault, state)
		}
		says := 0
		for _, said := range []bool{len(c.Attempts) > 0, c.Verdict != "", c.Never != ""} {
			if said {
				says++
			}
		}
		if says != 1 {
			t.Errorf("%s says %d things: %+v", c.Name(), says, c.Outcome)
		}
		if (c.State == Judging) != (len(c.Attempts) == 0) && c.Never == "" {
			t.Errorf("%s: attempts %v; only a benchmark that is judged makes none", c.Name(), c.Attempts)
		}
		for _, attempts := range [][]string{c.Attempts, c.Or} {
			if len(attempts) > 0 && slices.Index(attempts, v1alpha1.OutcomeMeasured) != len(attempts)-1 {
				t.Errorf("%s: attempts %v do not end with the only one that measures", c.Name(), attempts)
			}
		}
		if c.Verdict == v1alpha1.ReasonPass {
			t.Errorf("%s: a fault produces a pass", c.Name())
		}
	}
}

// TestPage: docs/internals/faults.md has the table that the specs check.
func TestPage(t *testing.T) {
	docs.CheckTable(t, filepath.Join("..", ".."), "internals/faults.md", "test/faults", Markdown())
}
