package cli

import (
	"fmt"
	"strings"
	"testing"
)

// TestMergeOrder refuses merges for which YAML's standard and kubectl disagree about the value that wins.
func TestMergeOrder(t *testing.T) {
	for name, text := range map[string]string{
		"nested merge behind a key": "apiVersion: v1\nx:\n  a: &a {nodeName: other}\n  b: &b {<<: *a}\n  c:\n    nodeName: own\n    <<: *b\n",
		"two merges":                "x: &a {k: 1}\ny: &b {k: 2}\nz:\n  <<: *a\n  <<: *b\n",
		"a scalar":                  "a:\n  <<: 3\n",
	} {
		if objects, err := parseObjects([]byte(text)); err == nil {
			t.Errorf("%s: read as %v", name, objects)
		}
	}
}

func TestMergeBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("a: &a\n")
	for i := range 2000 {
		fmt.Fprintf(&b, "  k%d: 1\n", i)
	}
	b.WriteString("b:\n  x: 1\n  <<: [" + strings.Repeat("*a,", 6000) + "*a]\n")
	if _, err := parseObjects([]byte(b.String())); err == nil {
		t.Error("6,001 merges of 2,000 keys were read")
	}
}
