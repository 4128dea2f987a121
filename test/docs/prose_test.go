package docs

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/internal/cli"
)

// examples holds sentences that earlier texts of the project contained, with their meaning.
var examples = []struct{ bad, good string }{
	{"A LatencyBenchmark asks; the operator proves that the pods got what was asked.", "The operator verifies that the pods received the CPUs and devices they requested."},
	{"All that follows works there as it stands.", "Every example below runs unchanged on that cluster."},
	{"Of p99 nothing is shown, since the bounds of its ratio include 1.", "The p99 difference is not significant: its interval includes 1."},
	{"It refuses what is none.", "The webhook rejects unknown values."},
	{"Who waits is told for whom.", "The status of a waiting benchmark names the one that it waits for."},
	{"Load that is not a benchmark's the queue does not know.", "The queue ignores other workloads."},
	{"What drifts meets all alike.", "Drift affects all variants equally."},
	{"All ways are closed as long as nothing is known.", "All integrations fail closed."},
	{"Absent: what comes, comes.", "If unset, no percentile is guaranteed."},
	{"These are the CPUs that nobody has to himself.", "These CPUs are the shared CPU pool."},
	{"What rounds share, no number of them shows.", "More rounds cannot reveal a bias that all of them share."},
	{"It goes on with the runs that lack.", "The operator resumes with the remaining runs."},
	{"This is a second string to the watches.", "The resync is a fallback."},
	{"Who looked twice looked twice.", "Extended runs keep the error budget of two looks."},
	{"So few rounds can show nothing.", "Too few rounds; need at least 5."},
	{"The address is none.", "The address is invalid."},
	{"The time is over.", "The command timed out."},
	{"It is doubtful, or wrong; mend it.", "The check reports a warning or an error; the remedy follows."},
	{"The driver: none told.", "The driver was not reported."},
	{"It has a certificate which nobody can verify.", "The certificate is self-signed."},

	{"It also needs a token.", "Each client needs a token."},
	{"These are repeated at most twice.", "The operator repeats these runs at most twice."},
	{"The mtu also needs tuning.", "With mtu, the nodes need the plugin tuning in addition."},
	{"The capture adds the latency of the server, for kernel sockets only.", "The capture adds the latency of the server, but only for kernel sockets."},
	{"A frame while the queue is not empty does so.", "Onload sends all frames by DMA while the queue is not empty."},
	{"Another gate, and the same.", "Another gate owns the node, and the reason is the same as above."},
	{"The interval is that of the median round.", "The interval belongs to the median round."},
	{"Apply the new gate, and then delete the old one.", "Apply the new gate first, and then delete the old gate."},
	{"The pinger counts; sockperf stops; netperf shows nothing of this.", "The pinger counts losses; sockperf stops."},
	{"The gate holds back a node that is not verified, unless the node is as it was when the gate was created or joined while the gate was in mode Observe, and has not changed since then in another mode.",
		"The gate holds back a node that is not verified. A node that is older than the gate is free until it changes."},
}

// TestProse checks that the rules of hack/vale find each bad example, and nothing in the good ones.
func TestProse(t *testing.T) {
	var paragraphs []string
	for _, e := range examples {
		paragraphs = append(paragraphs, e.bad, e.good)
	}
	found := alerts(t, strings.Join(paragraphs, "\n\n"))
	for i, e := range examples {
		bad, good := 4*i+1, 4*i+3 // an empty line follows each
		if len(found[bad]) == 0 {
			t.Errorf("no rule finds %q", e.bad)
		}
		if len(found[good]) != 0 {
			t.Errorf("%q: %v", e.good, found[good])
		}
	}
}

// TestFiles: the files that `make lint` gives to vale have no alert.
func TestFiles(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	prose := regexp.MustCompile(`(?m)^PROSE := \$\(wildcard \*\.md\) (.+)$`).FindSubmatch(makefile)
	glob := regexp.MustCompile(`vale .*--glob='([^']+)'`).FindSubmatch(makefile)
	if prose == nil || glob == nil {
		t.Fatal("the Makefile has no line PROSE, or no command with vale")
	}
	pages, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--glob=" + string(glob[1])}
	for _, page := range pages {
		args = append(args, filepath.Base(page))
	}
	for file, lines := range vale(t, "", append(args, strings.Fields(string(prose[1]))...)...) {
		for line, found := range lines {
			t.Errorf("%s:%d: %s", file, line, strings.Join(found, ", "))
		}
	}
}

// TestTexts: the texts that users read outside the pages hold the rules of the pages: the command's help, the alerts, the notes of the
// chart, and the comments of the samples.
func TestTexts(t *testing.T) {
	var from, paragraphs []string
	add := func(source, text string) {
		for paragraph := range strings.SplitSeq(text, "\n\n") {
			command := "  " // The indentation of a command: more than that of the text or of the item before.
			for item := range strings.SplitSeq("\n"+paragraph, "\n- ") {
				var lines []string
				for line := range strings.SplitSeq(item, "\n") {
					if !strings.HasPrefix(line, command) && strings.TrimSpace(line) != "" {
						lines = append(lines, strings.TrimSpace(line))
					}
				}
				if len(lines) > 0 {
					from = append(from, source)
					paragraphs = append(paragraphs, strings.NewReplacer("<", "", ">", "", "*", "", "_", "-", "#", "").Replace(strings.Join(lines, " ")))
				}
				command = "   "
			}
		}
	}
	var help func(c *cobra.Command)
	help = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" { // cobra's own
			return
		}
		add(c.CommandPath(), c.Short+"\n\n"+c.Long)
		for _, child := range c.Commands() {
			help(child)
		}
	}
	help(cli.Command())
	for _, a := range annotations(t) {
		add("config/prometheus/rules.yaml", a)
	}
	add("config/helm/templates/NOTES.txt", template.ReplaceAllString(read(t, "config/helm/templates/NOTES.txt"), "X"))
	for source, text := range comments(t, "config/samples") {
		add(source, text)
	}
	if len(paragraphs) < 150 {
		t.Fatalf("%d paragraphs", len(paragraphs))
	}
	found := alerts(t, strings.Join(paragraphs, "\n\n"))
	for line := range found {
		t.Errorf("%s: %q: %s", from[line/2], paragraphs[line/2], strings.Join(found[line], ", "))
	}
}

// template matches what a template of Prometheus or Helm replaces.
var template = regexp.MustCompile(`\{\{.*?\}\}`)

// read returns the text of a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// annotations returns the summaries and descriptions of the alerts.
func annotations(t *testing.T) []string {
	t.Helper()
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Annotations map[string]string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "config/prometheus/rules.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			for _, a := range rule.Annotations {
				// Each branch of a template is a text of its own.
				for _, branch := range regexp.MustCompile(`\{\{ (?:with .*?|else|end) \}\}`).Split(a, -1) {
					all = append(all, template.ReplaceAllString(branch, "X"))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// comments returns the comments of whole lines in the YAML files of a folder, by file.
func comments(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(read(t, name), "\n") {
			comment, is := strings.CutPrefix(strings.TrimLeft(line, " "), "#")
			if !is {
				comment = "\n"
			}
			all[name] += strings.TrimPrefix(comment, " ") + "\n"
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// alerts returns the rules that a text in Markdown breaks, by line from 1.
func alerts(t *testing.T, text string) map[int][]string {
	t.Helper()
	for _, lines := range vale(t, text, "--ext=.md") {
		return lines
	}
	return nil
}

// vale returns the rules that files, or a text, break, by file and line from 1.
func vale(t *testing.T, text string, args ...string) map[string]map[int][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "-modfile=hack/tools/vale.mod", "vale",
		"--config=hack/vale/vale.ini", "--output=JSON"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1") // vale parses comments by a library in C
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 { // 1: with alerts
		t.Fatalf("%v: %s", err, out)
	}
	var files map[string][]struct {
		Check, Match, Message string
		Line                  int
	}
	if err := json.Unmarshal(out, &files); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all := map[string]map[int][]string{}
	for file, list := range files {
		all[file] = map[int][]string{}
		for _, a := range list {
			all[file][a.Line] = append(all[file][a.Line], a.Check+": "+a.Message)
		}
	}
	return all
}
