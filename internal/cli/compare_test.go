package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/compare"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// newComparedCluster returns a cluster with perf/sweep, and perf/after that was measured with another kernel after another boot;
// only perf/sweep is complete.
func newComparedCluster(t *testing.T) *apiServer {
	t.Helper()
	s := newCluster(t)
	succeeded(metav1.ConditionTrue, v1alpha1.ReasonComplete, "1 of 1 runs")(s.benchmarks[sweep])
	after := s.benchmarks[sweep].DeepCopy()
	after.Name, after.UID = "after", "of-after"
	succeeded(metav1.ConditionUnknown, v1alpha1.ReasonRunning, "measuring round 2 of 2")(after)
	cm, stored := storedRun(t, "after-r1", func(e *result.Evidence) { e.Kernel, e.BootID = "6.6.0", e.BootID+"-2" })
	after.Status.Stored = []v1alpha1.StoredResult{stored}
	s.benchmarks[types.NamespacedName{Namespace: "perf", Name: "after"}] = after
	s.configMaps[types.NamespacedName{Namespace: "perf", Name: cm.Name}] = cm
	return s
}

func TestCompare(t *testing.T) {
	cases := map[string]struct {
		args []string
		// want are parts of the output, in this order; not are texts that it must not contain.
		want, not []string
	}{
		"the conditions come first": {
			args: []string{"sweep", "after"},
			want: []string{
				"after against sweep, HalfRTT; differences that need not be equal: 2\n", "kernel.release", "6.6.0", "all ends",
				"tcp-1 of default, 1 rounds against 1", "p99", "~", "tcp-64 of default", "after is not complete: Running (measuring round 2 of 2)\n", "sweep: CPUsNotExclusive",
			},
			not: []string{"kernel.boot-id"},
		},
		"all of them": {args: []string{"sweep", "after", "--all"}, want: []string{"kernel.release", "kernel.boot-id", "boot-client", "boot-client-2"}},
		"of variants": {args: []string{"sweep/default", "after"}, want: []string{"after against sweep/default, HalfRTT", "tcp-1 of default"}},
		"with itself": {args: []string{"sweep", "sweep"}, want: []string{"under conditions that are equal where they must be\n"}, not: []string{"DIFFERENT", "not complete"}},
		"ignored": {args: []string{"sweep", "after", "-o", "ignoreDifferences"},
			want: []string{"ignoreDifferences:\n", `- kernelUpgrade  # kernel.release absent, then "6.6.0", at all ends`}, not: []string{"boot", "tcp-1"}},
		"nothing to ignore": {args: []string{"sweep", "sweep", "-o", "ignoreDifferences"}, want: []string{"ignoreDifferences: []\n"}},
		"comma-separated":   {args: []string{"sweep", "after", "--output=csv"}, want: []string{"baseline,candidate,", "sweep,after,default,default,tcp-1,mean,Nanoseconds,1,1,5500,5500,1,,,,too few"}, not: []string{"kernel"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newComparedCluster(t)
			code, stdout, stderr := run(append([]string{"compare", "--kubeconfig", s.serve(t)}, c.args...)...)
			if code != 0 || stderr != "" {
				t.Fatalf("exit code %d, it said %q", code, stderr)
			}
			rest := stdout
			for _, want := range c.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("no %q in its place in\n%s", want, stdout)
				}
				rest = after
			}
			for _, not := range c.not {
				if strings.Contains(stdout, not) {
					t.Errorf("there is %q in\n%s", not, stdout)
				}
			}
		})
	}
	s := newComparedCluster(t)
	code, stdout, stderr := run("compare", "sweep", "after", "-o", "json", "--kubeconfig", s.serve(t))
	var got compare.Comparison
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || got.Explaining != 2 || len(got.Differences) != 1 || len(got.Figures) != 10 {
		t.Errorf("exit code %d, %q, %v: %+v", code, stderr, err, got)
	}
}

func TestCompareRefuses(t *testing.T) {
	cases := map[string]struct {
		args   []string
		change func(*apiServer)
		want   []string
	}{
		"one name":                 {args: []string{"sweep"}, want: []string{"the names of two LatencyBenchmarks", "compare BASELINE CANDIDATE..."}},
		"an unknown format":        {args: []string{"sweep", "after", "-o", "html"}, want: []string{`--output: unknown format "html"`, "table, json, csv, ignoreDifferences"}},
		"an unknown name":          {args: []string{"sweep", "swoop"}, want: []string{"no LatencyBenchmark swoop"}},
		"an unknown variant":       {args: []string{"sweep", "after/vf"}, want: []string{"no such variant: after/vf; there are default"}},
		"no variant after a slash": {args: []string{"sweep", "after/"}, want: []string{`"after/"`, "NAME/VARIANT"}},
		"a variant of a variant":   {args: []string{"sweep", "after/x/y"}, want: []string{`"after/x/y"`, "NAME/VARIANT"}},
		"a matrix":                 {args: []string{"sweep", "lmatrix/mesh"}, change: (*apiServer).addMesh, want: []string{"perf/mesh measures many pairs", "tailgate.dev/matrix=mesh"}},
		"no results":               {args: []string{"sweep", "mesh-a-b"}, change: (*apiServer).addMesh, want: []string{"perf/mesh-a-b has no results yet"}},
		"a result that was changed": {
			args: []string{"sweep", "after"}, want: []string{"after-r1", "corrupt result"},
			change: func(s *apiServer) {
				s.configMaps[types.NamespacedName{Namespace: "perf", Name: "after-r1"}].BinaryData[result.KeyServer][20] ^= 1
			},
		},
		"another tool": {
			args: []string{"published/netperf-sparc-t7-1/native-1500", "sweep"},
			want: []string{"nothing to compare: tool: published/netperf-sparc-t7-1/native-1500 was measured by netperf and sweep by ", "measure both with the same tool"},
		},
		"an unknown published result": {args: []string{"published/x", "sweep"}, want: []string{"no such published result: published/x", "kubectl tailgate published"}},
		"candidates of two latency types": {
			args: []string{"sweep", "sweep", "after"}, want: []string{"latencyType: sweep is of HalfRTT and after of RTT", "compare each with the baseline alone"},
			change: func(s *apiServer) {
				s.benchmarks[types.NamespacedName{Namespace: "perf", Name: "after"}].Spec.LatencyType = v1alpha1.LatencyRTT
			},
		},
		"nothing in common": {
			args: []string{"sweep", "after"}, want: []string{"nothing to compare", "sweep and after"},
			change: func(s *apiServer) {
				s.benchmarks[types.NamespacedName{Namespace: "perf", Name: "after"}].Spec.Workload.MessageSizes = []int32{7}
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newComparedCluster(t)
			if c.change != nil {
				c.change(s)
			}
			code, stdout, stderr := run(append([]string{"compare", "--kubeconfig", s.serve(t)}, c.args...)...)
			if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, it printed %q and said %q; want 1, nothing and one line", code, stdout, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("it said %q, want %q in it", stderr, want)
				}
			}
		})
	}
}
