package field

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCorpus requires that each case can be understood, has its input, and is tried by a test.
func TestCorpus(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join(Folder(), "*", "cases.yaml"))
	if err != nil || len(folders) == 0 {
		t.Fatal("no areas", err)
	}
	for _, path := range folders {
		area := filepath.Base(filepath.Dir(path))
		cases, err := Cases(area)
		if err != nil {
			t.Error(err)
		}
		names, inputs := map[string]bool{}, map[string]bool{"cases.yaml": true}
		for _, c := range cases {
			where := area + "/" + c.Name
			if c.Name == "" || names[c.Name] {
				t.Errorf("%s: a case has a name of its own", where)
			}
			names[c.Name] = true
			if c.Source == "" || c.Situation == "" || (c.Want == nil) == (c.Spec == "") {
				t.Errorf("%s: a case has a source, a situation, and either want or spec", where)
			}
			if c.Input != "" {
				inputs[strings.Split(c.Input, "/")[0]] = true
				if _, err := os.Stat(c.Path()); err != nil {
					t.Errorf("%s: %v", where, err)
				}
			}
			if text := c.Spec; text != "" && !tested(t, c.Package, text) {
				t.Errorf("%s: no test of %s contains %q", where, c.Package, text)
			}
			if c.Want != nil && !tested(t, c.Package, `field.Run(t, "`+area+`", "`+c.Package+`"`) {
				t.Errorf("%s: no test of %s runs the cases of %s", where, c.Package, area)
			}
		}
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !inputs[e.Name()] {
				t.Errorf("%s/%s belongs to no case", area, e.Name())
			}
		}
	}
}

// tested says whether a test file of the package contains the text.
func tested(t *testing.T, pkg, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Folder(), "..", "..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if raw, err := os.ReadFile(f); err == nil && bytes.Contains(raw, []byte(text)) {
			return true
		}
	}
	return false
}

func TestDifferences(t *testing.T) {
	c := Case{Want: map[string]string{"same": "a", "pattern": "/^a+$/", "absent": "b", "wrong": "/x/"}}
	got := c.differences(map[string]string{"same": "a", "pattern": "aa", "wrong": "y", "more": "z"})
	if len(got) != 2 || !strings.HasPrefix(got[0], "absent:") || !strings.HasPrefix(got[1], "wrong:") {
		t.Errorf("got %q", got)
	}
}

func TestRoot(t *testing.T) {
	dir := t.TempDir()
	input := filepath.Join(dir, "machine.root")
	if err := os.WriteFile(input, []byte("\n# a machine\n== proc/version\nLinux\n== sys/class/net/a\n-> ../b\n== sys/empty\n\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	rel, err := filepath.Rel(Folder(), input)
	if err != nil {
		t.Fatal(err)
	}
	root := Case{Input: rel}.Root(t)
	if raw, err := os.ReadFile(filepath.Join(root, "proc/version")); err != nil || string(raw) != "Linux\n" {
		t.Errorf("%q, %v", raw, err)
	}
	if target, err := os.Readlink(filepath.Join(root, "sys/class/net/a")); err != nil || target != "../b" {
		t.Errorf("%q, %v", target, err)
	}
}
