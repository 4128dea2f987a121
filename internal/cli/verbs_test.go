package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// verbs returns all verbs of the command, each with arguments that are valid for a cluster with perf/sweep, and the exit code of
// an error.
func verbs(t *testing.T) map[string]struct {
	args  []string
	error int
} {
	file := written(t, manifest)
	return map[string]struct {
		args  []string
		error int
	}{
		"accept":    {[]string{"upgrade", "node-a", "upgrade-node-a-1"}, 1},
		"attempts":  {[]string{"sweep"}, 1},
		"calibrate": {[]string{"upgrade"}, 1},
		"compare":   {[]string{"sweep", "sweep"}, 1},
		"export":    {[]string{"sweep", "-o", t.TempDir()}, 1},
		"gate":      {[]string{"sweep"}, 3},
		"get":       {[]string{"sweep"}, 1},
		"plan":      {[]string{"-f", file}, 1},
		"report":    {[]string{"sweep", "-o", "-"}, 1},
		"rerun":     {[]string{"sweep", "--replace"}, 1},
		"run":       {[]string{"-f", file}, 3},
		"verify":    {[]string{"upgrade", "node-a"}, 1},
	}
}

// For every verb, invalid input and a failing cluster give an error of one line, and change nothing.
func TestVerbsRefuse(t *testing.T) {
	var known []string
	for _, c := range Command().Commands() {
		known = append(known, c.Name())
	}
	all := verbs(t)
	for _, name := range known {
		if _, ok := all[name]; !ok && !slices.Contains([]string{"help", "completion", "doctor", "inspect", "version", "import", "published", "report-bug", "verdict", "capture", "status", "explain"}, name) { // these have their own tests
			t.Errorf("verb %s is not tested", name)
		}
	}
	faults := map[string]struct {
		// args changes a verb's arguments; nil: no change.
		args   func([]string) []string
		change func(*apiServer)
		want   string
	}{
		"no arguments":           {args: func([]string) []string { return nil }},
		"too many arguments":     {args: func(args []string) []string { return append(args, "and", "/another/") }},
		"an unknown flag":        {args: func(args []string) []string { return append(args, "--fast") }, want: "unknown flag: --fast"},
		"a flag without a value": {args: func(args []string) []string { return append(args, "--namespace") }, want: "--namespace"},
		"an unknown context":     {args: func(args []string) []string { return append(args, "--context=nowhere") }, want: "nowhere"},
		"no kubeconfig":          {args: func(args []string) []string { return append(args, "--kubeconfig", filepath.Join(t.TempDir(), "none")) }},
		"an API server that does not answer": {
			args: func(args []string) []string { return append(args, "--server=https://127.0.0.1:1") }, want: "refused",
		},
		"a user without rights":      {change: func(s *apiServer) { s.forbidden = []string{""} }},
		"a cluster without Tailgate": {change: func(s *apiServer) { s.benchmarks = nil }, want: "does not have the kind Latency"},
		"an API server that is starting": {
			change: func(s *apiServer) {
				for range 9 {
					s.refusals = append(s.refusals, apierrors.NewServiceUnavailable("not yet"))
				}
			}, want: "not yet",
		},
	}
	for verb, v := range all {
		for name, fault := range faults {
			if verb == "get" && name == "no arguments" {
				continue // It lists all.
			}
			t.Run(verb+", "+name, func(t *testing.T) {
				s := newCluster(t)
				if fault.change != nil {
					fault.change(s)
				}
				before := s.benchmarks[sweep].DeepCopy()
				args := append([]string{verb, "--kubeconfig", s.serve(t)}, v.args...)
				if fault.args != nil {
					args = append(args[:3], fault.args(slices.Clone(v.args))...)
				}
				code, stdout, stderr := run(args...)
				if code != v.error || stdout != "" {
					t.Errorf("exit code %d, want %d; it printed %q", code, v.error, stdout)
				}
				if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "kubectl tailgate: ") || !strings.Contains(stderr, fault.want) {
					t.Errorf("it said %q, want one line with %q", stderr, fault.want)
				}
				if after := s.benchmarks[sweep]; before != nil && (after == nil || after.DeletionTimestamp != nil || len(s.benchmarks) != 1) {
					t.Errorf("there is %+v; it wrote %q", after, s.written)
				}
			})
		}
	}
}
