package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// recipe returns the numbered steps of a recipe in CONTRIBUTING.md.
func recipe(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\n### "+name+"\n\n")
	if !found {
		t.Fatalf("there is no recipe %q", name)
	}
	steps, _, _ := strings.Cut(after, "\n#")
	if i := strings.Index(steps, "\n\n"); i >= 0 {
		steps = steps[:i]
	}
	return steps
}

// pathsOf returns the files and folders that a text names.
func pathsOf(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile("`((?:[a-z0-9_-]+/)+[A-Za-z0-9_.-]+|\\.golangci\\.yml)`").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// Each recipe names files that exist.
func TestRecipesNameFiles(t *testing.T) {
	for name, least := range map[string]int{
		"Adding a tool": 10, "Adding a metric": 3, "Adding a property of traffic": 8, "Adding a network type": 11, "Adding a page of the report": 5, "Adding a doctor check": 5,
	} {
		paths := pathsOf(recipe(t, name))
		if len(paths) < least {
			t.Errorf("%s names %d files, want at least %d: %s", name, len(paths), least, paths)
		}
		for _, p := range paths {
			if _, err := os.Stat(filepath.Join("../..", p)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// dummy is a test that judges a rule of the metric that the recipe has added.
const dummy = `package judge

import (
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func TestDummy(t *testing.T) {
	for limit, want := range map[string]v1alpha1.VerdictOutcome{"1s": v1alpha1.VerdictPass, "1us": v1alpha1.VerdictFail} {
		rule := v1alpha1.Rule{Metric: v1alpha1.MetricDummy, Max: v1alpha1.Limit{Text: limit}}
		of := map[string]result.Histogram{"default": histogram(t, 10_000, 0, 1000)}
		j, err := Evaluate(v1alpha1.Criteria{Rules: []v1alpha1.Rule{rule}}, six(t, spec(), "x", of), nil)
		if err != nil || j.Outcome != want {
			t.Errorf("%s: %+v, %v; want %s", limit, j, err, want)
		}
	}
}
`

// A metric that is added as the recipe says, to a copy of the files that it names and to no other Go file, is judged.
func TestAddingAMetric(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	edits := map[string][][2]string{
		"api/v1alpha1/criteria_types.go": {
			{"lost;throughput\ntype Metric", "lost;throughput;dummy\ntype Metric"},
			{`	MetricLost Metric = "lost"` + "\n", `	MetricLost Metric = "lost"` + "\n\tMetricDummy Metric = \"dummy\"\n"},
			{"	{Metric: MetricLost,", "	{Metric: MetricDummy, Unit: UnitNanoseconds, OfAnswers: true},\n	{Metric: MetricLost,"},
		},
		"internal/judge/judge.go": {{
			"		round.Values[v1alpha1.MetricMean] = stats.Exact(s.Mean)\n",
			"		round.Values[v1alpha1.MetricMean] = stats.Exact(s.Mean)\n		round.Values[v1alpha1.MetricDummy] = stats.Exact(2 * s.Mean)\n",
		}},
	}
	var named []string
	for _, p := range pathsOf(recipe(t, "Adding a metric")) {
		if strings.HasSuffix(p, ".go") {
			named = append(named, p)
		}
	}
	folder, replace := t.TempDir(), map[string]string{}
	put := func(path, content string) {
		copied := filepath.Join(folder, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(copied, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, path)] = copied
	}
	for path, changes := range edits {
		if !slices.Contains(named, path) {
			t.Errorf("the recipe does not name %s", path)
		}
		content, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if strings.Count(string(content), c[0]) != 1 {
				t.Fatalf("%s has %q %d times", path, c[0], strings.Count(string(content), c[0]))
			}
			content = []byte(strings.Replace(string(content), c[0], c[1], 1))
		}
		put(path, string(content))
	}
	if len(named) != len(edits) {
		t.Errorf("the recipe names %d Go files, and %d are enough: %s", len(named), len(edits), named)
	}
	put("internal/judge/dummy_test.go", dummy)
	overlay := filepath.Join(folder, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	judged := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-run", "^TestDummy$", "./internal/judge")
	judged.Dir = root
	if out, err := judged.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "ok") {
		t.Errorf("%v\n%s", err, out)
	}
}
