// Package field is a corpus of situations from public bug reports: what a machine, a tool or a cluster showed, and what the
// product must answer.
//
// Each area is a folder with a file cases.yaml and the inputs that its cases name. A case is tried in one of two ways:
//
//   - want: the test of a package computes the answer from the input (Run), and each wanted value must be in it;
//   - spec: a test, or a spec, of the package that tries the case has this text in its name.
//
// A case that the product does not answer correctly yet has the field open, which says what will correct it. Run requires that its
// answer is still wrong, so that the mark is removed with the correction.
package field

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A Case is one situation and its answer.
type Case struct {
	Name      string            `json:"name"`                // unique in its area
	Source    string            `json:"source"`              // reports, or files of other projects: "cri-o/cri-o#9251"
	Situation string            `json:"situation"`           // what was the case there
	Package   string            `json:"package"`             // whose test tries it: "internal/proof"
	Input     string            `json:"input,omitempty"`     // a file of the area's folder
	Arguments map[string]string `json:"arguments,omitempty"` // what the input does not contain; the package's test defines the keys
	Want      map[string]string `json:"want,omitempty"`      // parts of the answer; a value in slashes is a regular expression
	Spec      string            `json:"spec,omitempty"`
	Open      string            `json:"open,omitempty"`

	area string
}

// Folder returns the path of the corpus, wherever a test runs.
func Folder() string {
	_, file, _, _ := runtime.Caller(0)
	if filepath.IsAbs(file) {
		return filepath.Dir(file)
	}
	// Compiled without paths: the folder of the module that contains the test's working directory.
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return filepath.Join(dir, "test", "field")
}

// Cases reads the cases of an area.
func Cases(area string) ([]Case, error) {
	raw, err := os.ReadFile(filepath.Join(Folder(), area, "cases.yaml"))
	if err != nil {
		return nil, err
	}
	var cases []Case
	if err := yaml.UnmarshalStrict(raw, &cases); err != nil {
		return nil, fmt.Errorf("%s/cases.yaml: %w", area, err)
	}
	for i := range cases {
		cases[i].area = area
	}
	return cases, nil
}

// Run tries the cases of an area that have a wanted answer and belong to a package.
func Run(t *testing.T, area, pkg string, answer func(*testing.T, Case) map[string]string) {
	t.Helper()
	cases, err := Cases(area)
	if err != nil {
		t.Fatal(err)
	}
	cases = slices.DeleteFunc(cases, func(c Case) bool { return c.Package != pkg || c.Want == nil })
	if len(cases) == 0 {
		t.Fatalf("no case of %s belongs to %s", area, pkg)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			wrong := c.differences(answer(t, c))
			switch {
			case c.Open != "" && len(wrong) == 0:
				t.Errorf("the answer is right now: remove \"open\" from the case")
			case c.Open != "":
				t.Logf("open (%s): %s", c.Open, strings.Join(wrong, "; "))
			case len(wrong) > 0:
				t.Errorf("%s (%s):\n%s", c.Situation, c.Source, strings.Join(wrong, "\n"))
			}
		})
	}
}

// differences compares an answer with the wanted one.
func (c Case) differences(got map[string]string) []string {
	var all []string
	for key, want := range c.Want {
		value, ok := got[key]
		same := ok && value == want
		if pattern, ends := strings.CutPrefix(want, "/"); ends && ok && len(pattern) > 1 && strings.HasSuffix(pattern, "/") {
			same = regexp.MustCompile(strings.TrimSuffix(pattern, "/")).MatchString(value)
		}
		if !same {
			all = append(all, fmt.Sprintf("%s: %q, expected %s", key, value, want))
		}
	}
	slices.Sort(all)
	return all
}

// Read returns the content of the case's input.
func (c Case) Read(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile(c.Path())
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Path is the path of the case's input.
func (c Case) Path() string { return filepath.Join(Folder(), c.area, c.Input) }

// Root unpacks the case's input, a tree of /proc and /sys in one file, into a folder of the test: a line "== PATH" is followed by
// the content of the file PATH, or by "-> TARGET" if it is a symbolic link. A first line "# over FILE" makes it a change of the tree
// in another file of the area, in which "-> absent" removes a file or folder.
func (c Case) Root(t testing.TB) string {
	t.Helper()
	root := ""
	if first, _, _ := strings.Cut(string(c.Read(t)), "\n"); strings.HasPrefix(first, "# over ") {
		under := c
		under.Input = strings.TrimPrefix(first, "# over ")
		root = under.Root(t)
	} else {
		root = t.TempDir()
	}
	for part := range strings.SplitSeq("\n"+string(c.Read(t)), "\n== ") {
		name, content, _ := strings.Cut(part, "\n")
		if strings.HasPrefix(strings.TrimSpace(name), "#") || strings.TrimSpace(name) == "" {
			continue
		}
		target, link := strings.CutPrefix(strings.TrimSpace(content), "-> ")
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if link {
			err = errors.Join(err, os.RemoveAll(path))
		}
		if link && target == "absent" {
			continue
		}
		if err == nil && link {
			err = os.Symlink(target, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(content+"\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}
