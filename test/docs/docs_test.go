package docs

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// root is the root of the repository.
const root = "../.."

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		source  []string
		want    Page
		wantErr string
	}{
		"commands and files, in order": {
			source: []string{"# Title", "", "```yaml", "# vf.yaml", "kind: X", "```", "text", "", "```sh", "kubectl apply -f vf.yaml", "", "kubectl get pods", "```"},
			want: Page{
				Anchors: []string{"title"},
				Steps: []Step{
					{Line: 4, File: "vf.yaml", Text: "# vf.yaml\nkind: X\n"},
					{Line: 10, Text: "kubectl apply -f vf.yaml\n\nkubectl get pods\n"},
				},
				YAML: []Step{{Line: 4, File: "vf.yaml", Text: "# vf.yaml\nkind: X\n"}},
			},
		},
		"commands that only read": {source: []string{"```console", "make demo", "```", "", "```text", "A", "```", "", "    sh"}},
		"a comment that is no file's name": {
			source: []string{"```yaml", "# of vf.yaml only", "kind: X", "```"},
			want:   Page{YAML: []Step{{Line: 2, Text: "# of vf.yaml only\nkind: X\n"}}},
		},
		"a file's name that leads elsewhere": {
			source: []string{"```yaml", "# ../vf.yaml", "```"},
			want:   Page{YAML: []Step{{Line: 2, Text: "# ../vf.yaml\n"}}},
		},
		"in a list, without its indentation": {
			source: []string{"- first", "", "  ```sh", "  a", "    b", "  ```"},
			want:   Page{Steps: []Step{{Line: 4, Text: "a\n  b\n"}}},
		},
		"an unknown language":     {source: []string{"```sh", "a", "```", "", "```bash", "b", "```"}, wantErr: `page.md:6: a fenced block of language "bash"`},
		"no language":             {source: []string{"```", "a", "```"}, wantErr: `page.md:2: a fenced block of language ""`},
		"the language in capital": {source: []string{"~~~SH", "a", "~~~"}, wantErr: `page.md:2: a fenced block of language "SH"`},
		"nothing in a block":      {source: []string{"```sh", "```"}, wantErr: "page.md: a fenced block is empty"},
		"links, images and headings": {
			source: []string{"See [a](docs/a.md#b) and", "![p](docs/p.png).", "", "## What it *is*", "", "| x |", "|---|", "| [t](t.md) |"},
			want: Page{
				Anchors: []string{"what-it-is"},
				Links:   []Link{{Line: 1, To: "docs/a.md#b"}, {Line: 1, To: "docs/p.png"}, {Line: 8, To: "t.md"}},
			},
		},
		"the first column's code": {
			source: []string{"| `head` | |", "|---|---|", "| `A`, `B` | `C` |", "| D | `E` |", "", "`F`"},
			want:   Page{Terms: []Term{{Line: 3, Name: "A"}, {Line: 3, Name: "B"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse("page.md", []byte(strings.Join(test.source, "\n")+"\n"))
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("error %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			test.want.Path = "page.md"
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPagesHaveCommands(t *testing.T) {
	pages := pagesOf(t)
	if !slices.ContainsFunc(pages, Page.Commands) {
		t.Error("no page has a block of language sh")
	}
}

// TestLinks: each link to this repository leads to an existing file or folder, and to an existing heading in it.
func TestLinks(t *testing.T) {
	pages := pagesOf(t)
	anchors := map[string][]string{}
	for _, p := range pages {
		anchors[p.Path] = p.Anchors
	}
	for _, name := range []string{"CONTRIBUTING.md", "CHANGELOG.md", "MAINTAINERS.md", "ROADMAP.md", "SECURITY.md", "config/samples/sriov/README.md"} {
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(name, source)
		if err != nil {
			t.Fatal(err)
		}
		pages, anchors[name] = append(pages, p), p.Anchors
	}
	for _, p := range pages {
		for _, link := range p.Links {
			if strings.Contains(link.To, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(link.To, "#")
			target := path.Join(path.Dir(p.Path), file)
			if file == "" {
				target = p.Path
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s:%d: a link to %s: %v", p.Path, link.Line, link.To, err)
			}
			if anchor != "" && !slices.Contains(anchors[target], anchor) {
				t.Errorf("%s:%d: a link to %s, which has no such heading", p.Path, link.Line, link.To)
			}
		}
	}
}

// foreign holds the kinds of other projects on the pages, except those of Kubernetes itself. TestForeignSchemas validates
// the objects whose CRD is in the repository.
var foreign = []string{
	"cert-manager.io/v1 Certificate",
	"machineconfiguration.openshift.io/v1 MachineConfig", "machineconfiguration.openshift.io/v1 MachineConfigPool",
	"operators.coreos.com/v1 OperatorGroup", "operators.coreos.com/v1alpha1 Subscription",
	"performance.openshift.io/v2 PerformanceProfile",
	"sriovnetwork.openshift.io/v1 SriovNetwork", "sriovnetwork.openshift.io/v1 SriovNetworkNodePolicy", "sriovnetwork.openshift.io/v1 SriovOperatorConfig",
}

// TestYAML: every yaml block is valid YAML, and its objects are of known kinds and have only fields of the API. A part of an
// object is part of a LatencyBenchmark's spec.
func TestYAML(t *testing.T) {
	seen := 0
	for _, p := range pagesOf(t) {
		for _, block := range p.YAML {
			from := fmt.Sprintf("%s:%d", p.Path, block.Line)
			objects, err := Documents(from, block.Text)
			if err != nil {
				t.Error(err)
			}
			for _, o := range objects {
				var into any
				switch found := o.Content; {
				case found["kind"] == "LatencyMatrix":
					into = &v1alpha1.LatencyMatrix{}
				case found["kind"] == "LatencyGate":
					into = &v1alpha1.LatencyGate{}
				case found["kind"] == "LatencyBenchmark", found["kind"] == nil && found["spec"] != nil:
					into = &v1alpha1.LatencyBenchmark{}
				case found["placement"] != nil || found["variants"] != nil || found["criteria"] != nil || found["workload"] != nil:
					into = &v1alpha1.LatencyBenchmarkSpec{}
				case found["kind"] == "KubeletConfiguration":
					into = &kubeletv1beta1.KubeletConfiguration{}
				case found["kind"] != nil:
					version, kind := fmt.Sprint(found["apiVersion"]), fmt.Sprint(found["kind"])
					if builtIn, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(version, kind)); err == nil {
						into = builtIn
					} else if !slices.Contains(foreign, version+" "+kind) {
						t.Errorf("%s: %s of %s is no known kind: correct it, or add it to the list in test/docs", from, kind, version)
					}
				}
				if into == nil {
					continue
				}
				seen++
				content, err := yaml.Marshal(o.Content)
				if err != nil {
					t.Fatal(err)
				}
				if err := yaml.UnmarshalStrict(content, into); err != nil {
					t.Errorf("%s: %v", from, err)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no page has an object of this API")
	}
}

// record names the version under which the objects are written for test/integration.
var record = flag.String("record", "", "write Tailgate's objects of the samples and pages to test/integration/testdata/objects/NAME.yaml")

// TestObjects: the samples and the pages have objects, and a release can record them.
func TestObjects(t *testing.T) {
	objects, err := Objects(root, v1alpha1.GroupVersion.Group)
	if err != nil {
		t.Fatal(err)
	}
	var manifest strings.Builder
	kinds := map[any]int{}
	for _, o := range objects {
		content, err := yaml.Marshal(o.Content)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&manifest, "---\n# %s\n%s", o.From, content)
		kinds[o.Content["kind"]]++
	}
	if kinds["LatencyBenchmark"] < 8 || kinds["LatencyMatrix"] < 2 || kinds["LatencyGate"] < 2 {
		t.Errorf("found %v: the samples and the pages have more objects", kinds)
	}
	if *record != "" {
		if err := os.WriteFile(filepath.Join(root, "test/integration/testdata/objects", *record+".yaml"), []byte(manifest.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// internals is the folder of the pages for contributors.
const internals = "docs/internals"

// TestPagesAreListed: docs/README.md links to every other page for users, and to the index of the pages for contributors, which
// links to all of these.
func TestPagesAreListed(t *testing.T) {
	pages := pagesOf(t)
	listed := map[string]bool{}
	for _, p := range pages {
		for _, l := range p.Links {
			if p.Path == "docs/README.md" || p.Path == internals+"/README.md" {
				listed[p.Path+" "+path.Join(path.Dir(p.Path), l.To)] = true
			}
		}
	}
	for _, p := range pages {
		index := "docs/README.md"
		if path.Dir(p.Path) == internals && path.Base(p.Path) != "README.md" {
			index = internals + "/README.md"
		}
		if p.Path != index && !listed[index+" "+p.Path] {
			t.Errorf("%s has no link to %s", index, p.Path)
		}
	}
}

// mostWords is the limit of all pages for users, without the generated reference of the API.
const mostWords = 30_000

// TestWords: the pages for users have at most mostWords words. What only contributors need stands in docs/internals.
func TestWords(t *testing.T) {
	total := 0
	for _, p := range pagesOf(t) {
		if path.Dir(p.Path) == internals || p.Path == "docs/api.md" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, p.Path))
		if err != nil {
			t.Fatal(err)
		}
		words := len(strings.Fields(string(content)))
		t.Logf("%6d %s", words, p.Path)
		total += words
	}
	if total > mostWords {
		t.Errorf("README.md and docs/ have %d words, more than %d: shorten a page, link to the reference, or move what only contributors need to %s", total, mostWords, internals)
	}
}

// TestCodeMap: CONTRIBUTING.md names every package directory of the first two levels.
func TestCodeMap(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, codeMap, found := strings.Cut(string(page), "\n## Layout\n")
	if !found {
		t.Fatal("CONTRIBUTING.md has no section Layout")
	}
	words := strings.FieldsFunc(codeMap, func(r rune) bool { return strings.ContainsRune(" \n`,|;", r) })
	for _, parent := range []string{"controllers", "internal", "test"} {
		entries, err := os.ReadDir(filepath.Join(root, parent))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if folder := parent + "/" + e.Name(); e.IsDir() && !slices.Contains(words, folder) {
				t.Errorf("CONTRIBUTING.md's map of the code does not name %s", folder)
			}
		}
	}
	for _, word := range words {
		parent, _, _ := strings.Cut(word, "/")
		if !slices.Contains([]string{"controllers", "internal", "test", "api", "config", "hack", "cmd"}, parent) {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, word)); err != nil {
			t.Errorf("CONTRIBUTING.md's map of the code names %s, which is not there", word)
		}
	}
}

// command matches a line of a console block that is entered on the workstation or on a node.
var command = regexp.MustCompile(`(?m)^(?:\$|worker-1#) .+$`)

// TestCommands: from an empty cluster to the first result of a VF, a reader enters few commands.
func TestCommands(t *testing.T) {
	for page, most := range map[string]int{"tutorial-kubeadm.md": 15, "tutorial-openshift.md": 12} {
		content, err := os.ReadFile(filepath.Join(root, "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		commands := command.FindAllString(string(content), -1)
		if i := slices.IndexFunc(commands, func(c string) bool { return strings.Contains(c, " tailgate run ") }) + 1; i == 0 || i > most {
			t.Errorf("docs/%s has the first result after %d commands, want 1 to %d:\n%s", page, i, most, strings.Join(commands[:i], "\n"))
		}
	}
}

// TestSimulations: docs/internals has a link to each table that the tests of verdicts and sessions simulate.
func TestSimulations(t *testing.T) {
	for _, tables := range []struct{ page, files string }{
		{internals + "/error-rates.md", "internal/verdict/testdata/error-rates*.md"},
		{internals + "/boots.md", "internal/sessions/testdata/*.md"},
	} {
		files, err := filepath.Glob(filepath.Join(root, tables.files))
		if err != nil || len(files) < 4 {
			t.Fatalf("%d tables in %s: %v", len(files), tables.files, err)
		}
		pages := pagesOf(t)
		links := pages[slices.IndexFunc(pages, func(p Page) bool { return p.Path == tables.page })].Links
		for _, file := range files {
			if !slices.ContainsFunc(links, func(l Link) bool { return filepath.Join(root, internals, l.To) == file }) {
				t.Errorf("%s has no link to %s", tables.page, file)
			}
		}
	}
}

// TestMetrics: the table of metrics in docs/verdicts.md is that of the API.
func TestMetrics(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "verdicts.md"))
	if err != nil {
		t.Fatal(err)
	}
	limits := map[v1alpha1.Unit][]string{
		v1alpha1.UnitNanoseconds:   {"a duration: `2us`, `1.75ms`", "a percentage: `5%`, `2.5%`"},
		v1alpha1.UnitMessages:      {"a number of messages in a round", "a number of messages in a round"},
		v1alpha1.UnitBitsPerSecond: {"bits per second: `9G`, `2.5G` or `9000000000`", "a percentage"},
	}
	var units []v1alpha1.Unit
	names, percentiles, lower := map[v1alpha1.Unit][]string{}, []string{}, map[v1alpha1.Unit]bool{}
	for _, k := range v1alpha1.MetricKinds() {
		if k.NeverJudged {
			continue
		}
		if !slices.Contains(units, k.Unit) {
			units = append(units, k.Unit)
		}
		lower[k.Unit] = k.LowerIsWorse
		name := "`" + string(k.Metric) + "`"
		if k.Percentile {
			percentiles = append(percentiles, name)
			if name = percentiles[0] + " to " + name; len(percentiles) > 1 {
				names[k.Unit] = names[k.Unit][:len(names[k.Unit])-1]
			}
		}
		names[k.Unit] = append(names[k.Unit], name)
	}
	table := "| metric | absolute limit | against the baseline |\n|---|---|---|\n"
	for _, unit := range units {
		absolute, change := "max", "maxIncrease"
		if lower[unit] {
			absolute, change = "min", "maxDecrease"
		}
		table += fmt.Sprintf("| %s | `%s`, %s | `%s`, %s |\n", strings.Join(names[unit], ", "), absolute, limits[unit][0], change, limits[unit][1])
	}
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/verdicts.md does not have the table of the API's metrics:\n%s", table)
	}
}

// TestReasons: docs/internals/reasons.md has a row for every reason that a status, an attempt, a warning or an event can have, and
// no rows for reasons that no longer exist, nor has docs/troubleshooting.md. A reason with two meanings has two rows. kubectl tailgate
// explain prints the rows.
func TestReasons(t *testing.T) {
	terms := map[string]map[string]int{}
	for _, p := range pagesOf(t) {
		terms[p.Path] = map[string]int{}
		for _, term := range p.Terms {
			terms[p.Path][term.Name]++
		}
	}
	const full, short = internals + "/reasons.md", "docs/troubleshooting.md"
	names := map[string][]string{}
	for name, value := range reasons(t) {
		names[value] = append(names[value], name)
	}
	for value, constants := range names {
		slices.Sort(constants)
		if terms[full][value] != len(constants) {
			t.Errorf("%s has %d rows for `%s`, want %d (%s in api/v1alpha1)", full, terms[full][value], value, len(constants), strings.Join(constants, ", "))
		}
	}
	content, err := os.ReadFile(filepath.Join(root, full))
	if err != nil {
		t.Fatal(err)
	}
	remedies := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| .* \\| [^|]+ \\|$").FindAllStringSubmatch(string(content), -1)
	if len(remedies) < 140 {
		t.Errorf("%s has %d remedies", full, len(remedies))
	}
	for _, path := range []string{full, short} {
		for name := range terms[path] {
			if names[name] == nil {
				t.Errorf("%s has a row for `%s`, which is no reason in api/v1alpha1", path, name)
			}
		}
	}
}

// reasons returns the values of the constants of api/v1alpha1 that are reasons, by the names of the constants.
func reasons(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "api", "v1alpha1", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of the API (%v)", err)
	}
	found := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			constants, ok := declaration.(*ast.GenDecl)
			if !ok || constants.Tok != token.CONST {
				continue
			}
			for _, spec := range constants.Specs {
				for i, name := range spec.(*ast.ValueSpec).Names {
					if !strings.HasPrefix(name.Name, "Reason") && !strings.HasPrefix(name.Name, "Outcome") && !strings.HasPrefix(name.Name, "Warning") {
						continue
					}
					value, err := strconv.Unquote(spec.(*ast.ValueSpec).Values[i].(*ast.BasicLit).Value)
					if err != nil {
						t.Fatalf("%s: constant %s: %v", file, name.Name, err)
					}
					found[name.Name] = value
				}
			}
		}
	}
	return found
}

func pagesOf(t *testing.T) []Page {
	t.Helper()
	pages, err := Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	return pages
}
