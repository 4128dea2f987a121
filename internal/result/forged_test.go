package result

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

// What an agent may end an attempt with is what the code of agents and tools says, and nothing that a program in the pod writes.
func TestOfAgent(t *testing.T) {
	constants, err := os.ReadFile("../../api/v1alpha1/conditions.go")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, c := range regexp.MustCompile(`(Outcome\w+)\s+= "(\w+)"`).FindAllStringSubmatch(string(constants), -1) {
		values[c[1]] = c[2]
	}
	used := map[string]bool{}
	for _, dir := range []string{"../agent", "../tool", "../onload"} {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			code, err := os.ReadFile(path)
			for _, name := range regexp.MustCompile(`v1alpha1\.(Outcome[A-Z]\w+)`).FindAllStringSubmatch(string(code), -1) {
				used[name[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range used {
		if !OfAgent(values[name]) {
			t.Errorf("%s %q is not among the reasons of agents", name, values[name])
		}
	}
	if len(used) < 12 {
		t.Errorf("agents use only %v", used)
	}
	for _, name := range []string{"Measured", "Suspended", "NameTaken", "DevicePluginUnavailable", "", strings.Repeat("A", 64)} {
		if OfAgent(name) {
			t.Errorf("an agent may say %q", name)
		}
	}
}

// A program in the pod may write a result that a status cannot hold, or whose sum with others cannot be counted.
func TestForgedCells(t *testing.T) {
	for name, c := range map[string]Cell{
		"a start that is none": {Start: tool.StartTime("X")},
		"too many lost":        {Lost: 1<<50 + 1},
		"fewer than none":      {Lost: -1},
	} {
		framed, err := compress(Document{Version: Version, Role: "client", Cells: []Cell{c}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := expand(framed.Compressed, framed.Digest); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	recorder := NewRecorder()
	recorder.Record(highest + 1)
	h, err := recorder.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.decode(); err != nil {
		t.Fatal(err)
	}
	h.OverRange = 1<<50 + 1
	if _, err := h.decode(); err == nil {
		t.Error("more samples out of range than sums can hold")
	}
}
