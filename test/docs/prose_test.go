package docs

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// examples holds sentences that earlier texts of the project contained, with their meaning.
var examples = []struct{ bad, good string }{
	{"A LatencyBenchmark asks; the operator proves that the pods got what was asked.", "The operator verifies that the pods received the CPUs and devices they requested."},
	{"All that follows works there as it stands.", "Every example below runs unchanged on that cluster."},
	{"Of p99 nothing is shown, since the bounds of its ratio include 1.", "The p99 difference is not significant: its interval includes 1."},
	{"It refuses what is none.", "It rejects unknown values."},
	{"Who waits is told for whom.", "The status of a waiting benchmark names the one that it waits for."},
	{"Load that is not a benchmark's the queue does not know.", "The queue ignores other workloads."},
	{"What drifts meets all alike.", "Drift affects all variants equally."},
	{"All ways are closed as long as nothing is known.", "All integrations fail closed."},
	{"Absent: what comes, comes.", "If unset, no percentile is guaranteed."},
	{"These are the CPUs that nobody has to himself.", "These CPUs are the shared CPU pool."},
	{"What rounds share, no number of them shows.", "More rounds cannot reveal a bias that all of them share."},
	{"It goes on with the runs that lack.", "It resumes with the remaining runs."},
	{"This is a second string to the watches.", "This is a fallback resync."},
	{"Who looked twice looked twice.", "Extended runs keep the error budget of two looks."},
	{"So few rounds can show nothing.", "Too few rounds; need at least 5."},
	{"The address is none.", "The address is invalid."},
	{"The time is over.", "The command timed out."},
	{"It is doubtful, or wrong; mend it.", "This is a warning or an error; the remedy follows."},
	{"The driver: none told.", "The driver was not reported."},
	{"It has a certificate which nobody can verify.", "The certificate is self-signed."},
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

// alerts returns the rules that a text in Markdown breaks, by line from 1.
func alerts(t *testing.T, text string) map[int][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+root+"/hack/tools/vale.mod", "vale",
		"--config="+root+"/hack/vale/vale.ini", "--output=JSON", "--ext=.md")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1") // vale parses comments by a library in C
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 { // 1: with alerts
		t.Fatalf("%v: %s", err, out)
	}
	var files map[string][]struct {
		Check, Match string
		Line         int
	}
	if err := json.Unmarshal(out, &files); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := map[int][]string{}
	for _, list := range files {
		for _, a := range list {
			lines[a.Line] = append(lines[a.Line], a.Check+": "+a.Match)
		}
	}
	return lines
}
