package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/standing"
)

// judged gives a benchmark criteria, and the conditions that the operator writes while it runs.
func judged(b *v1alpha1.LatencyBenchmark, change ...func(*v1alpha1.LatencyBenchmark)) *v1alpha1.LatencyBenchmark {
	b.Generation = 1
	b.Spec.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "2us"}}}}
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "measuring round 2 of 3"))
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNotJudged, "the rules are evaluated when all runs are measured"))
	for _, f := range change {
		f(b)
	}
	return b
}

// finish returns the change that the operator makes at the end, with a verdict.
func finish(status metav1.ConditionStatus, reason, message string, rules ...v1alpha1.RuleVerdict) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) {
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, "3 of 3 runs"))
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, message))
		b.Status.Verdict = &v1alpha1.Verdict{Message: message, Rules: rules}
	}
}

var (
	passes       = finish(metav1.ConditionTrue, v1alpha1.ReasonPass, "all 3 rules pass, in 12 comparisons")
	fails        = finish(metav1.ConditionFalse, v1alpha1.ReasonFail, "on a simulated NIC: p99 of default/tcp-64: 5µs: Fail, beyond max 2us", failed, undecided, held)
	inconclusive = finish(metav1.ConditionUnknown, v1alpha1.ReasonInconclusive, "too near")

	failed    = v1alpha1.RuleVerdict{Rule: "p99 max 2us", Outcome: v1alpha1.VerdictFail, Reason: "BeyondLimit", Message: "p99 of default/tcp-64: 5µs: Fail, beyond max 2us"}
	undecided = v1alpha1.RuleVerdict{Rule: "p50 max 1us", Outcome: v1alpha1.VerdictInconclusive, Reason: "TooFewRounds", Message: "p50 of default/tcp-64: 1µs: Inconclusive, too few rounds"}
	held      = v1alpha1.RuleVerdict{Rule: "lost max 0", Outcome: v1alpha1.VerdictPass, Reason: "WithinLimit", Message: "none lost"}
)

// waitsFor returns a change that makes the verdict of a benchmark wait for the results of another benchmark.
func waitsFor(baseline string) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Criteria.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: baseline}}}
		finish(metav1.ConditionUnknown, v1alpha1.ReasonBaselineNotComplete, "the baseline, LatencyBenchmark "+baseline+", is not finished")(b)
	}
}

// newGatedCluster returns a cluster with benchmark perf/sweep with criteria, and perf/NAME for each name in others, changed by its
// function.
func newGatedCluster(t *testing.T, change func(*v1alpha1.LatencyBenchmark), others map[string]func(*v1alpha1.LatencyBenchmark)) *apiServer {
	t.Helper()
	s := newCluster(t)
	for name, f := range others {
		b := judged(s.benchmarks[sweep].DeepCopy())
		b.Name, b.UID = name, types.UID("of-"+name)
		f(b)
		s.benchmarks[types.NamespacedName{Namespace: "perf", Name: name}] = b
	}
	judged(s.benchmarks[sweep], change)
	return s
}

func nothing(*v1alpha1.LatencyBenchmark) {}

func TestGate(t *testing.T) {
	type others = map[string]func(*v1alpha1.LatencyBenchmark)
	cases := map[string]struct {
		// args are the arguments after gate; nil: sweep.
		args   []string
		sweep  func(*v1alpha1.LatencyBenchmark)
		others others
		code   int
		// stdout is compared exactly; stderr are parts of its only line.
		stdout string
		stderr []string
	}{
		"Pass": {sweep: passes, code: 0, stdout: "LatencyBenchmark perf/sweep: Pass: all 3 rules pass, in 12 comparisons\n"},
		"Fail, with the rules that did not pass": {sweep: fails, code: 1, stdout: "" +
			"LatencyBenchmark perf/sweep: Fail: on a simulated NIC: p99 of default/tcp-64: 5µs: Fail, beyond max 2us\n" +
			"  p99 max 2us: Fail, BeyondLimit\n" +
			"  p50 max 1us: Inconclusive, TooFewRounds: p50 of default/tcp-64: 1µs: Inconclusive, too few rounds\n"},
		"Inconclusive": {sweep: inconclusive, code: 2, stdout: "LatencyBenchmark perf/sweep: Inconclusive: too near\n"},
		"without a gate nothing passes": {sweep: func(b *v1alpha1.LatencyBenchmark) { passes(b); b.Spec.Criteria = nil }, code: 2,
			stdout: "LatencyBenchmark perf/sweep: Inconclusive: it has no criteria, so there is no verdict; add rules to spec.criteria\n"},
		"not judged": {sweep: nothing, code: 2, stdout: "LatencyBenchmark perf/sweep: not judged: Running (measuring round 2 of 3)\n"},
		"not observed yet": {sweep: func(b *v1alpha1.LatencyBenchmark) { b.Status = v1alpha1.LatencyBenchmarkStatus{} }, code: 2,
			stdout: "LatencyBenchmark perf/sweep: not judged: the operator has not processed it yet; is it running?\n"},
		"a verdict on rules that were edited since": {sweep: func(b *v1alpha1.LatencyBenchmark) { passes(b); b.Generation = 2 }, code: 2,
			stdout: "LatencyBenchmark perf/sweep: not judged: all runs are measured, but the rules are not evaluated yet\n"},
		"a baseline that is not finished": {sweep: waitsFor("before"), others: others{"before": nothing}, code: 2,
			stdout: "LatencyBenchmark perf/sweep: Inconclusive: the baseline, LatencyBenchmark before, is not finished\n"},
		"by kind": {args: []string{"LatencyBenchmarks.tailgate.dev/sweep"}, sweep: passes, code: 0,
			stdout: "LatencyBenchmark perf/sweep: Pass: all 3 rules pass, in 12 comparisons\n"},
		"the worst of several, in their order": {args: []string{"lbench/sweep", "bad", "good"}, sweep: inconclusive, code: 1,
			others: others{"good": passes, "bad": func(b *v1alpha1.LatencyBenchmark) { fails(b); b.Status.Verdict = nil }},
			stdout: "LatencyBenchmark perf/sweep: Inconclusive: too near\n" +
				"LatencyBenchmark perf/bad: Fail: on a simulated NIC: p99 of default/tcp-64: 5µs: Fail, beyond max 2us\n" +
				"LatencyBenchmark perf/good: Pass: all 3 rules pass, in 12 comparisons\n"},
		"one that does not exist weighs more than one that is not decided": {args: []string{"sweep", "swoop", "sleep"}, sweep: inconclusive, code: 3,
			stdout: "LatencyBenchmark perf/sweep: Inconclusive: too near\n",
			stderr: []string{"there is no LatencyBenchmark swoop in namespace perf; see", "; there is no LatencyBenchmark sleep"}},
		"and less than a Fail": {args: []string{"swoop", "sweep"}, sweep: func(b *v1alpha1.LatencyBenchmark) { fails(b); b.Status.Verdict = nil }, code: 1,
			stdout: "LatencyBenchmark perf/sweep: Fail: on a simulated NIC: p99 of default/tcp-64: 5µs: Fail, beyond max 2us\n",
			stderr: []string{"there is no LatencyBenchmark swoop"}},
	}
	for name, c := range cases {
		for _, wait := range []bool{false, true} {
			// With --wait, gate waits for a verdict that may still come: see TestGateWaits.
			if wait && strings.Contains(c.stdout, "not judged") || wait && c.others["before"] != nil {
				continue
			}
			t.Run(name, func(t *testing.T) {
				s := newGatedCluster(t, c.sweep, c.others)
				args := append([]string{"gate", "--kubeconfig", s.serve(t)}, c.args...)
				if c.args == nil {
					args = append(args, "sweep")
				}
				if wait {
					args = append(args, "--wait")
				}
				code, stdout, stderr := run(args...)
				if code != c.code || stdout != c.stdout {
					t.Errorf("exit code %d, want %d; it printed\n%swant\n%s", code, c.code, stdout, c.stdout)
				}
				if lines := min(1, len(c.stderr)); strings.Count(stderr, "\n") != lines {
					t.Errorf("it said %q, want %d lines", stderr, lines)
				}
				for _, want := range c.stderr {
					if !strings.Contains(stderr, want) {
						t.Errorf("it said %q, want %q in it", stderr, want)
					}
				}
				code, stdout, _ = run(append(args, "-o", "json")...)
				var lines []gateLine
				if err := json.Unmarshal([]byte(stdout), &lines); err != nil || code != c.code {
					t.Fatalf("exit code %d, want %d: %v: %s", code, c.code, err, stdout)
				}
				var said strings.Builder
				for _, l := range lines {
					if !strings.HasPrefix(l.Message, "there is no ") {
						fmt.Fprintf(&said, "%s: %s\n", l.Object, standing.Standing{Outcome: l.Verdict, Message: l.Message, Details: l.Details})
					}
				}
				if said.String() != c.stdout || len(lines) != max(1, len(c.args)) {
					t.Errorf("as JSON, %d objects: %s", len(lines), &said)
				}
			})
		}
	}
}

// Each case begins with a running benchmark, and changes it once the command has read it.
func TestGateWaits(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("etcd has no leader")
	cases := map[string]struct {
		sweep, baseline func(*v1alpha1.LatencyBenchmark)
		refusals        []*apierrors.StatusError
		// changes happen one after the other, each once the server has answered the number of requests in asked.
		changes []func(*apiServer)
		asked   []int
		code    int
		stdout  string
		stderr  []string
	}{
		"until it passes": {
			asked: []int{2}, changes: []func(*apiServer){func(s *apiServer) { passes(s.benchmarks[sweep]) }},
			stdout: "Pass: all 3 rules pass",
		},
		"until it fails": {
			asked: []int{2}, changes: []func(*apiServer){func(s *apiServer) { fails(s.benchmarks[sweep]) }},
			code: 1, stdout: "Fail: on a simulated NIC",
		},
		"until it can become neither": {
			asked: []int{2}, changes: []func(*apiServer){func(s *apiServer) { inconclusive(s.benchmarks[sweep]) }},
			code: 2, stdout: "Inconclusive: too near",
		},
		"until the measurement failed": {
			asked: []int{2}, changes: []func(*apiServer){func(s *apiServer) {
				b := s.benchmarks[sweep]
				finish(metav1.ConditionUnknown, v1alpha1.ReasonBenchmarkFailed, "the benchmark failed before all runs were measured")(b)
				b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, "OOMKilled"))
			}},
			code: 2, stdout: "Inconclusive: the benchmark failed",
		},
		"until its criteria are removed": {
			asked: []int{2}, changes: []func(*apiServer){func(s *apiServer) { s.benchmarks[sweep].Spec.Criteria = nil }},
			code: 2, stdout: "it has no criteria",
		},
		"until a user deletes it": {
			asked: []int{2}, changes: []func(*apiServer){func(s *apiServer) { delete(s.benchmarks, sweep) }},
			code: 3, stderr: []string{"LatencyBenchmark perf/sweep was deleted meanwhile"},
		},
		"until a user replaces it": {
			asked: []int{2}, changes: []func(*apiServer){func(s *apiServer) { s.benchmarks[sweep].UID = "another"; passes(s.benchmarks[sweep]) }},
			code: 3, stderr: []string{"deleted meanwhile"},
		},
		"past changes that decide nothing": {
			asked: []int{2, 2, 2}, changes: []func(*apiServer){
				func(s *apiServer) { s.benchmarks[sweep].Status.Progress = &v1alpha1.Progress{Runs: "2/3"} },
				func(s *apiServer) { passes(s.benchmarks[sweep]); s.benchmarks[sweep].Generation++ },
				func(s *apiServer) { passes(s.benchmarks[sweep]) },
			},
			stdout: "Pass: all 3 rules pass",
		},
		"for a baseline that is being measured": {
			sweep: waitsFor("before"), baseline: nothing,
			// The three requests are the candidate, its baseline, and the candidate again.
			asked: []int{3}, changes: []func(*apiServer){func(s *apiServer) { passes(s.benchmarks[sweep]) }},
			stdout: "Pass: all 3 rules pass",
		},
		"for the verdict on a baseline that was measured a moment ago": {
			sweep: waitsFor("before"), baseline: passes,
			asked: []int{3}, changes: []func(*apiServer){func(s *apiServer) { fails(s.benchmarks[sweep]) }},
			code: 1, stdout: "Fail: on a simulated NIC",
		},
		"not for a baseline that failed": {
			sweep: waitsFor("before"), baseline: func(b *v1alpha1.LatencyBenchmark) {
				meta.SetStatusCondition(&b.Status.Conditions, v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, "OOMKilled"))
			},
			code: 2, stdout: "Inconclusive: the baseline, LatencyBenchmark before,",
		},
		"not for a baseline that is gone": {
			sweep: waitsFor("before"), code: 2, stdout: "Inconclusive: the baseline, LatencyBenchmark before,",
		},
		"through an API server that is not up at first": {
			refusals: []*apierrors.StatusError{unavailable}, asked: []int{3},
			changes: []func(*apiServer){func(s *apiServer) { passes(s.benchmarks[sweep]) }},
			stdout:  "Pass: all 3 rules pass", stderr: []string{"etcd has no leader; trying again\n"},
		},
		"through a restart of the API server, which at first knows neither kinds nor rights": {
			asked: []int{2, 6}, changes: []func(*apiServer){
				func(s *apiServer) {
					s.refusals = []*apierrors.StatusError{
						apierrors.NewUnauthorized("not yet"),
						apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", benchmarkResource, "sweep", "404 page not found", 0, true),
					}
					go s.server.CloseClientConnections()
				},
				func(s *apiServer) { passes(s.benchmarks[sweep]) },
			},
			stdout: "Pass: all 3 rules pass", stderr: []string{"not yet; trying again\n"},
		},
		"not for rights that it does not have": {
			refusals: []*apierrors.StatusError{apierrors.NewForbidden(schema.GroupResource{Resource: "latencybenchmarks"}, "sweep", nil)},
			code:     3, stderr: []string{"getting LatencyBenchmark perf/sweep", "forbidden"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.sweep == nil {
				c.sweep = nothing
			}
			others := map[string]func(*v1alpha1.LatencyBenchmark){}
			if c.baseline != nil {
				others["before"] = c.baseline
			}
			s := newGatedCluster(t, c.sweep, others)
			s.refusals = c.refusals
			kubeconfig := s.serve(t)
			changed := make(chan struct{})
			go func() {
				defer close(changed)
				for i, to := range c.changes {
					s.await(t, c.asked[i])
					s.change(func() { to(s) })
				}
			}()
			code, stdout, stderr := run("gate", "sweep", "--wait", "--timeout=1m", "--kubeconfig", kubeconfig)
			<-changed
			if code != c.code || !strings.Contains(stdout, c.stdout) || c.stdout == "" != (stdout == "") {
				t.Errorf("exit code %d, want %d; it printed %q, want %q in it", code, c.code, stdout, c.stdout)
			}
			if strings.Count(stderr, "\n") != len(c.stderr) && len(c.stderr) < 2 {
				t.Errorf("it said %q, want %d lines", stderr, len(c.stderr))
			}
			for _, want := range c.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("it said %q, want %q in it", stderr, want)
				}
			}
		})
	}
}

// On a busy machine, reading the objects may take longer than the first of these timeouts.
func TestGateTimesOut(t *testing.T) {
	s := newGatedCluster(t, nothing, map[string]func(*v1alpha1.LatencyBenchmark){"good": passes})
	kubeconfig := s.serve(t)
	const (
		good = "LatencyBenchmark perf/good: Pass: all 3 rules pass, in 12 comparisons\n"
		want = "kubectl tailgate: timed out before the verdict of LatencyBenchmark perf/sweep: Running (measuring round 2 of 3)\n"
	)
	for _, timeout := range []string{"300ms", "3s", "30s"} {
		code, stdout, stderr := run("gate", "sweep", "good", "--wait", "--timeout="+timeout, "--kubeconfig", kubeconfig)
		if code != 3 {
			t.Errorf("exit code %d", code)
		}
		if stdout == good && stderr == want {
			return
		}
		t.Logf("within %s it printed %q and said %q", timeout, stdout, stderr)
	}
	t.Errorf("it never printed %q and said %q", good, want)
}

// A matrix that waits for its baseline, also a matrix, may still pass unless the baseline failed or does not exist.
func TestStillOpenOfAMatrix(t *testing.T) {
	m := &v1alpha1.LatencyMatrix{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "after"}}
	m.Spec.Template.Spec.Criteria = &v1alpha1.Criteria{Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineMatrix, Matrix: &v1alpha1.ObjectName{Name: "before"}}}
	m.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonBaselineNotComplete, "it is not finished"))
	before := func(status metav1.ConditionStatus) *v1alpha1.LatencyMatrix {
		b := &v1alpha1.LatencyMatrix{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "before"}}
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, status, "Reason", ""))
		return b
	}
	for name, c := range map[string]struct {
		baseline *v1alpha1.LatencyMatrix
		want     bool
	}{
		"no baseline":          {nil, false},
		"a baseline that runs": {before(metav1.ConditionUnknown), true},
		"one that is complete": {before(metav1.ConditionTrue), true},
		"one that failed":      {before(metav1.ConditionFalse), false},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := newScheme()
			if err != nil {
				t.Fatal(err)
			}
			api := fake.NewClientBuilder().WithScheme(scheme)
			if c.baseline != nil {
				api = api.WithObjects(c.baseline)
			}
			if open, err := stillOpen(t.Context(), api.Build(), "perf", standing.OfBenchmark(m.Overview())); err != nil || open != c.want {
				t.Errorf("open %t, %v; want %t", open, err, c.want)
			}
		})
	}
}
