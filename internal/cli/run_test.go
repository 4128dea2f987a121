package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// manifest is the file of benchmark sweep, without a namespace.
const manifest = `# a comment
apiVersion: tailgate.dev/v1alpha1
kind: LatencyBenchmark
metadata: {name: sweep}
spec:
  tool: pinger
  workload: {protocols: [TCP], messageSizes: [1, 64], duration: 1s}
  rounds: 1
  placement: {client: {}, server: {}}
  network: {type: Pod}
  latencyType: HalfRTT
`

// written writes a file and returns its path.
func written(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "benchmark.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// succeeded returns a change of a benchmark's condition Succeeded.
func succeeded(status metav1.ConditionStatus, reason, message string) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) {
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, status, reason, message))
	}
}

// Each case begins without the benchmark; the test updates its status as the operator would.
func TestRun(t *testing.T) {
	const gate = "  criteria: {rules: [{metric: p99, max: 2us}]}\n"
	running := func(b *v1alpha1.LatencyBenchmark) {
		succeeded(metav1.ConditionUnknown, v1alpha1.ReasonRunning, "measuring round 1 of 1")(b)
		b.Status.Active = &v1alpha1.ActiveAttempt{Run: "sweep-r1", Round: 1, Attempt: 1}
		b.Status.Progress = &v1alpha1.Progress{Runs: "0/1", Total: 1, MeasuringSecondsLeft: 2}
	}
	complete := func(b *v1alpha1.LatencyBenchmark) {
		succeeded(metav1.ConditionTrue, v1alpha1.ReasonComplete, "1 of 1 runs measured and stored")(b)
		b.Status.Active, b.Status.Progress = nil, &v1alpha1.Progress{Runs: "1/1", Done: 1, Total: 1}
		b.Status.Summary = &v1alpha1.Summary{Cell: "tcp-1", P50: "5.50µs", P99: "5.99µs"}
	}
	cases := map[string]struct {
		file    string
		changes []func(*v1alpha1.LatencyBenchmark)
		// stored is true if the run's result exists at the end.
		stored bool
		code   int
		stdout []string
		// stderr are all lines.
		stderr []string
	}{
		"measured": {
			file: manifest, changes: []func(*v1alpha1.LatencyBenchmark){running, complete}, stored: true,
			stdout: []string{"perf/sweep: pinger, HalfRTT\n", "tcp-64"},
			stderr: []string{
				"Waiting: the operator has not processed it yet; is it running?",
				"Running: measuring round 1 of 1; run 1 of 1; 2s to measure",
				"Complete: 1 of 1 runs measured and stored; 1 of 1 runs done; tcp-1 so far p50 5.50µs p99 5.99µs",
			},
		},
		"failed": {
			file:    manifest,
			changes: []func(*v1alpha1.LatencyBenchmark){succeeded(metav1.ConditionFalse, v1alpha1.ReasonFailed, "run sweep-r1 failed (OOMKilled)")},
			code:    1,
			stderr: []string{
				"Waiting: the operator has not processed it yet; is it running?",
				"Failed: run sweep-r1 failed (OOMKilled)",
				"kubectl tailgate: LatencyBenchmark perf/sweep failed: run sweep-r1 failed (OOMKilled)",
			},
		},
		"not accepted": {
			file: manifest, stored: true,
			changes: []func(*v1alpha1.LatencyBenchmark){
				func(b *v1alpha1.LatencyBenchmark) {
					b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, "NoMatchingNode", "spec.placement.client: no node"))
				},
				func(b *v1alpha1.LatencyBenchmark) { b.Status.Conditions = nil; complete(b) },
			},
			stdout: []string{"tcp-64"},
			stderr: []string{
				"Waiting: the operator has not processed it yet; is it running?",
				"NotAccepted: spec.placement.client: no node (NoMatchingNode)",
				"Complete: 1 of 1 runs measured and stored; 1 of 1 runs done; tcp-1 so far p50 5.50µs p99 5.99µs",
			},
		},
		"measured, and judged a moment later": {
			file: manifest + gate, changes: []func(*v1alpha1.LatencyBenchmark){complete, fails}, stored: true, code: 1,
			stdout: []string{"tcp-64", "p99 max 2us: p99 of default/tcp-64: 5µs: Fail, beyond max 2us (BeyondLimit)"},
		},
		"inconclusive": {
			file: manifest + gate, changes: []func(*v1alpha1.LatencyBenchmark){inconclusive}, stored: true, code: 2, stdout: []string{"tcp-64"},
		},
		"failed, with criteria": {
			file: manifest + gate, code: 2,
			changes: []func(*v1alpha1.LatencyBenchmark){func(b *v1alpha1.LatencyBenchmark) {
				finish(metav1.ConditionUnknown, v1alpha1.ReasonBenchmarkFailed, "the benchmark failed")(b)
				succeeded(metav1.ConditionFalse, v1alpha1.ReasonFailed, "OOMKilled")(b)
			}},
		},
		"deleted": {file: manifest, changes: []func(*v1alpha1.LatencyBenchmark){nil}, code: 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			measured := s.benchmarks[sweep].Status.Stored
			delete(s.benchmarks, sweep)
			kubeconfig := s.serve(t)
			changed := make(chan struct{})
			go func() {
				defer close(changed)
				// The requests are apply and three times get.
				s.await(t, 4)
				for i, to := range c.changes {
					s.change(func() {
						if to == nil {
							delete(s.benchmarks, sweep)
							return
						}
						b := s.benchmarks[sweep]
						to(b)
						if c.stored && i == len(c.changes)-1 {
							b.Status.Stored = measured
						}
					})
					// Wait, so that the client sees each change, and not only the last.
					s.awaitTold(t)
				}
			}()
			code, stdout, stderr := run("run", "-f", written(t, c.file), "--kubeconfig", kubeconfig)
			<-changed
			if code != c.code {
				t.Errorf("exit code %d, want %d; it said\n%s", code, c.code, stderr)
			}
			for _, want := range c.stdout {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in\n%s", want, stdout)
				}
			}
			if (stdout == "") != (c.stdout == nil) {
				t.Errorf("it printed %q", stdout)
			}
			if want := strings.Join(c.stderr, "\n") + "\n"; c.stderr != nil && stderr != want {
				t.Errorf("it said\n%swant\n%s", stderr, want)
			}
			if len(s.written) != 1 || !strings.Contains(s.written[0], "fieldManager=kubectl-tailgate") {
				t.Errorf("it wrote %q", s.written)
			}
		})
	}
}

// A matrix is judged as one, and its pairs are printed.
func TestRunOfAMatrix(t *testing.T) {
	s := newCluster(t)
	s.addMesh()
	for _, m := range s.matrices {
		m.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, "2 of 3 pairs failed"))
	}
	code, stdout, stderr := run("run", "-f", written(t, mesh), "--kubeconfig", s.serve(t))
	if code != exitFail || !strings.Contains(stdout, "AllPairs of 3 pairs, 1 of them with results") {
		t.Errorf("exit code %d, it printed %q", code, stdout)
	}
	for _, want := range []string{
		"LatencyMatrix perf/mesh was measured before; `kubectl tailgate rerun lmatrix/mesh` measures again", "LatencyMatrix perf/mesh failed: 2 of 3 pairs failed",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("it said %q, want %q in it", stderr, want)
		}
	}
}

// A benchmark that was measured before is not measured again, and the command does not wait.
func TestRunComesBack(t *testing.T) {
	s := newCluster(t)
	succeeded(metav1.ConditionTrue, v1alpha1.ReasonComplete, "1 of 1 runs")(s.benchmarks[sweep])
	code, stdout, stderr := run("run", "-f", written(t, manifest), "--kubeconfig", s.serve(t))
	if code != 0 || !strings.Contains(stdout, "tcp-64") || !strings.HasPrefix(stderr, "LatencyBenchmark perf/sweep was measured before; `kubectl tailgate rerun lbench/sweep` measures again\n") {
		t.Errorf("exit code %d, it printed %q and said %q", code, stdout, stderr)
	}
}

// Neither an interrupt nor the timeout ends the benchmark.
func TestRunLeavesTheBenchmark(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"interrupted": {want: "kubectl tailgate: interrupted; LatencyBenchmark perf/sweep continues: `kubectl tailgate run -f FILE -n perf` watches it again, `kubectl delete latencybenchmarks.tailgate.dev sweep -n perf` ends it\n"},
		"late":        {flags: []string{"--timeout=200ms"}, want: "kubectl tailgate: timed out; LatencyBenchmark perf/sweep continues: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			delete(s.benchmarks, sweep)
			kubeconfig, file := s.serve(t), written(t, manifest)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			if c.flags == nil {
				go func() {
					s.await(t, 4)
					interrupt()
				}()
			}
			var stdout, stderr bytes.Buffer
			code := Run(ctx, append([]string{"run", "-f", file, "--kubeconfig", kubeconfig}, c.flags...), &stdout, &stderr)
			if want := strings.ReplaceAll(c.want, "FILE", file); code != 3 || stdout.Len() > 0 || !strings.Contains(stderr.String(), want) {
				t.Errorf("exit code %d, it printed %q and said %q, want %q", code, stdout.String(), stderr.String(), want)
			}
			if s.benchmarks[sweep] == nil || len(s.written) != 1 {
				t.Errorf("it wrote %q", s.written)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	cases := map[string]struct {
		file string
		args []string
		want []string
	}{
		"no file":                    {args: []string{"run"}, want: []string{"--filename", "-f"}},
		"a file that does not exist": {args: []string{"run", "-f", "/nowhere/x.yaml"}, want: []string{"--filename", "/nowhere/x.yaml"}},
		"an argument":                {args: []string{"run", "x.yaml"}, want: []string{"run takes a file by -f, not 1 arguments", "run -f FILE"}},
		"no YAML":                    {file: "a: [", want: []string{"reading", "yaml"}},
		"a large file":               {file: manifest + strings.Repeat("# more\n", 1<<19), want: []string{"--filename", "more than 3 MiB"}},
		"a list":                     {file: "- a", want: []string{"reading"}},
		"nothing":                    {file: "# nothing\n---\n", want: []string{"has 0 objects"}},
		"two objects":                {file: manifest + "---\n" + manifest, want: []string{"has 2 objects", "kubectl"}},
		"a key twice":                {file: manifest + "kind: LatencyBenchmark\n", want: []string{"reading", `"kind"`}},
		"another kind":               {file: "apiVersion: v1\nkind: Pod\nmetadata: {name: x}", want: []string{`apiVersion "v1", kind "Pod"`, "tailgate.dev/v1alpha1, LatencyBenchmark"}},
		"no name":                    {file: strings.Replace(manifest, "name: sweep", "", 1), want: []string{"metadata.name"}},
		"another namespace": {
			file: strings.Replace(manifest, "name: sweep", "name: sweep, namespace: other", 1), args: []string{"-n", "perf"},
			want: []string{"--namespace", "perf", "other"},
		},
		"an unknown form":            {file: manifest, args: []string{"-o", "tabel"}, want: []string{"--output", "tabel"}},
		"a time before now":          {file: manifest, args: []string{"--timeout=-1s"}, want: []string{"--timeout"}},
		"a cluster without Tailgate": {file: manifest, want: []string{"does not have the kind LatencyBenchmark"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			s.benchmarks = nil
			args := c.args
			if c.file != "" {
				args = append([]string{"run", "-f", written(t, c.file)}, c.args...)
			}
			code, stdout, stderr := run(append(args, "--kubeconfig", s.serve(t))...)
			if code != 3 || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, it printed %q and said %q; want 3, nothing and one line", code, stdout, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("it said %q, want %q in it", stderr, want)
				}
			}
			if name != "a cluster without Tailgate" && len(s.asked) > 0 {
				t.Errorf("it asked for %v", s.asked)
			}
		})
	}
}

func TestProgressLine(t *testing.T) {
	b := newCluster(t).benchmarks[sweep]
	b.Spec.Rounds = 3
	succeeded(metav1.ConditionUnknown, v1alpha1.ReasonRunning, "measuring round 2 of 3")(b)
	b.Status.Active = &v1alpha1.ActiveAttempt{Run: "sweep-r2", Round: 2, Attempt: 1}
	b.Status.Progress = &v1alpha1.Progress{Runs: "1/3", Done: 1, Total: 3, MeasuringSecondsLeft: 4}
	b.Status.Summary = &v1alpha1.Summary{Cell: "tcp-1", P50: "5.50µs", P99: "5.99µs", P999: "6.00µs"}
	const start, end = ": measuring round 2 of 3; run 2 of 3; ", "tcp-1 so far p50 5.50µs p99 5.99µs p99.9 6.00µs"
	for name, c := range map[string]struct {
		measured time.Duration
		want     string
	}{
		"the time left is that of the runs":               {0, start + "4s to measure; " + end},
		"it runs down while a run is measured":            {1300 * time.Millisecond, start + "3s to measure; " + end},
		"and no further than the run, which takes longer": {time.Minute, start + "2s to measure; " + end},
	} {
		t.Run(name, func(t *testing.T) {
			word, c2, got := progressLine(b, c.measured)
			if word != v1alpha1.ReasonRunning || c2 != green || got != c.want {
				t.Errorf("got %s%s in %q, want %s", word, got, c2, c.want)
			}
		})
	}
}

func TestScreen(t *testing.T) {
	draw := func(s *screen) {
		s.show("Starting", yellow, ": pods")
		s.show("Starting", yellow, ": pods")
		s.show("Running", green, ": round 1 of 1")
		s.say("a line that stays")
		s.clear()
	}
	width := func() int { return 14 }
	for name, c := range map[string]struct {
		screen *screen
		want   string
	}{
		"elsewhere":             {&screen{}, "Starting: pods\nRunning: round 1 of 1\na line that stays\n"},
		"a terminal":            {&screen{width: width}, "\r\x1b[KStarting: pod\r\x1b[KRunning: roun\r\x1b[Ka line that stays\n\r\x1b[K"},
		"a terminal in colours": {&screen{width: width, colored: true}, "\r\x1b[K\x1b[33mStarting\x1b[0m: pod\r\x1b[K\x1b[32mRunning\x1b[0m: roun\r\x1b[Ka line that stays\n\r\x1b[K"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c.screen.out = &out
			draw(c.screen)
			if out.String() != c.want {
				t.Errorf("got %q, want %q", out.String(), c.want)
			}
		})
	}
	if s := newScreen(io.Discard); s.live() || s.colored {
		t.Error("a buffer is taken for a terminal")
	}
}

// terminal emulates a terminal: it supports the return to the beginning of the line, the erasing of a line, and the next line.
type terminal struct {
	lines []string
	// most is the largest number of lines that were not empty at the same time.
	most int
}

func (t *terminal) Write(p []byte) (int, error) {
	if t.lines == nil {
		t.lines = []string{""}
	}
	for text := string(p); text != ""; {
		last := &t.lines[len(t.lines)-1]
		switch {
		case strings.HasPrefix(text, eraseLine):
			*last, text = "", text[len(eraseLine):]
		case text[0] == '\n':
			t.lines, text = append(t.lines, ""), text[1:]
		default:
			*last, text = *last+text[:1], text[1:]
		}
		shown := 0
		for _, line := range t.lines {
			if line != "" {
				shown++
			}
		}
		t.most = max(t.most, shown)
	}
	return len(p), nil
}

// A benchmark of eight runs has one line on a terminal, and a few elsewhere, whatever states each run has.
func TestProgress(t *testing.T) {
	b := newCluster(t).benchmarks[sweep]
	b.Spec.Rounds = 8
	states := []func(){func() { b.Status.Conditions = nil }}
	set := func(done int32, status metav1.ConditionStatus, reason, message string) {
		states = append(states, func() {
			succeeded(status, reason, message)(b)
			b.Status.Active = &v1alpha1.ActiveAttempt{Run: "sweep-r1", Round: done + 1, Attempt: 1}
			b.Status.Progress = &v1alpha1.Progress{Done: done, Total: 8}
		})
	}
	for done := range int32(8) {
		set(done, metav1.ConditionUnknown, v1alpha1.ReasonStarting, "pods of a round")
		if done == 4 {
			set(done, metav1.ConditionUnknown, v1alpha1.ReasonRetrying, "after NodeLost")
		}
		set(done, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "a round")
		set(done, metav1.ConditionUnknown, v1alpha1.ReasonEnding, "a round")
	}
	states = append(states, func() {
		succeeded(metav1.ConditionTrue, v1alpha1.ReasonComplete, "8 of 8 runs measured and stored")(b)
		b.Status.Active, b.Status.Progress = nil, &v1alpha1.Progress{Done: 8, Total: 8}
	})
	for name, c := range map[string]struct {
		width func() int
		// shown are the states of the lines that remain, and most is the largest number of lines at the same time.
		shown string
		most  int
	}{
		"a terminal": {width: func() int { return 40 }, most: 1},
		"elsewhere":  {shown: "Waiting Starting Starting Starting Retrying Running Starting Complete", most: 8},
	} {
		t.Run(name, func(t *testing.T) {
			out := &terminal{}
			p := &progress{screen: &screen{out: out, width: c.width}}
			for _, to := range states {
				to()
				p.look(b)
			}
			p.clear()
			var shown []string
			for _, line := range out.lines {
				if word, _, ok := strings.Cut(line, ":"); ok {
					shown = append(shown, word)
				}
			}
			if got := strings.Join(shown, " "); got != c.shown || out.most != c.most {
				t.Errorf("it left %q and showed %d lines at a time, want %q and %d", got, out.most, c.shown, c.most)
			}
		})
	}
}

// The command does not take over fields of another field manager, and does not take every conflict for one about fields.
func TestRunConflicts(t *testing.T) {
	for want, refusal := range map[string]*apierrors.StatusError{
		"LatencyBenchmark perf/sweep differs, and another field manager owns the difference": apierrors.NewApplyConflict([]metav1.StatusCause{{
			Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.rounds", Message: `conflict with "kubectl"`,
		}}, `Apply failed with 1 conflict: conflict with "kubectl": .spec.rounds`),
		"LatencyBenchmark perf/sweep was changed or created again at the same moment: run the command again": apierrors.NewConflict(
			benchmarkResource, "sweep", errors.New("the object has been modified")),
	} {
		s := newCluster(t)
		s.refusals = []*apierrors.StatusError{refusal}
		code, stdout, stderr := run("run", "-f", written(t, manifest), "--kubeconfig", s.serve(t))
		if code != 3 || stdout != "" || !strings.Contains(stderr, want+"; ") && !strings.Contains(stderr, want+": ") || !strings.Contains(stderr, refusal.ErrStatus.Message) {
			t.Errorf("exit code %d, it printed %q and said %q", code, stdout, stderr)
		}
		if len(s.asked) != 1 || strings.Contains(s.written[0], "force=true") {
			t.Errorf("it asked for %v, and wrote %q", s.asked, s.written)
		}
	}
}
