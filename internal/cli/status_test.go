package cli

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// busy gives a cluster one benchmark that waits and one that is finished, and a gate with a node that is held back.
func busy(t *testing.T) *apiServer {
	s := newCluster(t)
	s.benchmarks[sweep].Status.Conditions = []metav1.Condition{
		v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonNotAccepted, "spec.placement.client: node a: no free CPUs"),
	}
	done := s.benchmarks[sweep].DeepCopy()
	done.Name, done.UID = "done", "d"
	done.Status.Conditions = []metav1.Condition{v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, "all 6 runs are measured")}
	done.Status.CompletionTime = &metav1.Time{}
	done.Status.Summary = &v1alpha1.Summary{P50: "1.2µs", P99: "3.4µs"}
	name := sweep
	name.Name = "done"
	s.benchmarks[name] = done
	g := &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: "trading"}}
	g.Status.Conditions = []metav1.Condition{v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonNodesFailed, "1 of 2 nodes failed")}
	g.Status.NotVerified = []v1alpha1.NodeLine{{Name: "node-a", State: v1alpha1.VerificationFailed, Held: true, Message: "p99 ratio 1.4"}}
	s.gates = map[string]*v1alpha1.LatencyGate{"trading": g}
	return s
}

func TestStatus(t *testing.T) {
	cases := map[string]struct {
		args   []string
		change func(*apiServer)
		code   int
		want   []string
		not    string
	}{
		"what waits and is held": {args: []string{"status"}, want: []string{
			"OBJECT", "lbench/sweep", "NotAccepted", "no free CPUs", "lgate/trading", "Fail", "node/node-a", "Failed, held", "p99 ratio 1.4",
		}, not: "done"},
		"as JSON":    {args: []string{"status", "-o", "json"}, want: []string{`"object": "lbench/sweep"`, `"state": "Failed, held"`}},
		"a new form": {args: []string{"status", "-o", "yaml"}, code: 1, want: []string{"unknown format"}},
		"nothing": {args: []string{"status"}, change: func(s *apiServer) { s.benchmarks, s.gates = map[types.NamespacedName]*v1alpha1.LatencyBenchmark{}, nil },
			want: []string{"Nothing runs, waits or is held back in namespace perf.\n"}},
		"all names":        {args: []string{"get"}, want: []string{"lbench/done", "1.2µs", "3.4µs", "lbench/sweep"}, not: "trading"},
		"arguments":        {args: []string{"status", "x"}, code: 1, want: []string{"status takes no arguments"}},
		"a form for names": {args: []string{"get", "-o", "csv"}, code: 1, want: []string{`unknown format "csv"; known are table, json`}},
		"no right":         {args: []string{"status"}, change: func(s *apiServer) { s.forbidden = []string{"latencygates"} }, want: []string{"lbench/sweep", "you may not list them"}},
		"completion":       {args: []string{"__complete", "get", "d"}, want: []string{"done\n", ":4\n"}, not: "sweep"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := busy(t)
			if c.change != nil {
				c.change(s)
			}
			args := append([]string{"--kubeconfig", s.serve(t), "-n", "perf"}, c.args...)
			if c.args[0] == "__complete" {
				args = append(append([]string{"__complete"}, args[:4]...), c.args[1:]...)
			}
			code, stdout, stderr := run(args...)
			for _, want := range c.want {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("there is no %q", want)
				}
			}
			if code != c.code || c.not != "" && strings.Contains(stdout, c.not) || t.Failed() {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	for word, want := range map[string][]string{
		"nodebusy":  {"NodeBusy (Condition Accepted)\n  cause:  ", "remedy: move the pod that the message names"},
		"Suspended": {"Suspended (Condition", "Suspended (Attempts)"},
		"NodeBusi":  {"did you mean", "NodeBusy"},
		"Nonsense":  {"a reason is one word"},
	} {
		code, stdout, stderr := run("explain", word)
		for _, want := range want {
			if !strings.Contains(stdout+stderr, want) {
				t.Errorf("%s: %q%q lacks %q", word, stdout, stderr, want)
			}
		}
		if (code == 0) != (stderr == "") {
			t.Errorf("%s: exit code %d, %q", word, code, stderr)
		}
	}
	if n := len(reasons()); n < 160 {
		t.Errorf("%d reasons are known", n)
	}
}
