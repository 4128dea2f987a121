package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocks(t *testing.T) {
	source := []string{
		"See `kubectl get x` and `x`.", "", "| do | see |", "|---|---|", "| `oc get x \\| grep y` | `y` |", "",
		"```console", "$ for n in a b; do", "    echo $n", "  done", "a", "b", "worker-1# reboot", "$ false              # refused: no", "$ echo \\", "  x   # y", "```",
	}
	blocks, err := Blocks([]byte(strings.Join(source, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{1, "code", "kubectl get x\n"}, {5, "code", "oc get x | grep y\n"}, {8, "console", strings.Join(source[7:16], "\n") + "\n"},
	}
	if diff := cmp.Diff(want, blocks); diff != "" {
		t.Fatal(diff)
	}
	commands, err := blocks[2].Commands()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Command{
		{Line: 8, Text: "for n in a b; do\n    echo $n\n  done\n", Prints: []string{"a", "b"}},
		{Line: 13, Node: "worker-1", Text: "reboot\n"},
		{Line: 14, Text: "false\n", Says: "refused: no"},
		{Line: 15, Text: "echo \\\n  x\n", Says: "y"},
	}, commands); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{"x\n$ y\n", "$ for n in a; do\n"} {
		if _, err := (Block{Text: text}).Commands(); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
