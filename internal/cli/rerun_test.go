package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const (
	collection = "/apis/tailgate.dev/v1alpha1/namespaces/perf/latencybenchmarks"
	owned      = "fieldManager=kubectl-tailgate"
)

// newMarkedCluster returns a cluster with perf/sweep, which has labels and annotations of the user and of others.
func newMarkedCluster(t *testing.T) *apiServer {
	t.Helper()
	s := newCluster(t)
	s.benchmarks[sweep].Labels = map[string]string{"team": "trading", v1alpha1.LabelMatrix: "mesh"}
	s.benchmarks[sweep].Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"}
	return s
}

func TestRerun(t *testing.T) {
	after := types.NamespacedName{Namespace: "perf", Name: "after"}
	cases := map[string]struct {
		args []string
		made types.NamespacedName
		// left is true if the old benchmark exists at the end.
		left    bool
		written []string
		stdout  string
	}{
		"under another name": {
			args: []string{"--name", "after"}, made: after, left: true, written: []string{"POST " + collection + "?" + owned},
			stdout: "LatencyBenchmark perf/after created, with the spec of LatencyBenchmark perf/sweep\n",
		},
		"in the place of the old one": {
			args: []string{"--replace"}, made: sweep,
			written: []string{
				"POST " + collection + "?dryRun=All&" + owned,
				"DELETE " + collection + "/sweep",
				"POST " + collection + "?" + owned,
			},
			stdout: "LatencyBenchmark perf/sweep deleted with its results, and created again\n",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newMarkedCluster(t)
			old := s.benchmarks[sweep].DeepCopy()
			code, stdout, stderr := run(append([]string{"rerun", "sweep", "--kubeconfig", s.serve(t)}, c.args...)...)
			if code != 0 || stdout != c.stdout || stderr != "" {
				t.Fatalf("exit code %d, it printed %q and said %q", code, stdout, stderr)
			}
			if diff := cmp.Diff(c.written, s.written); diff != "" {
				t.Errorf("it wrote (-want +got):\n%s", diff)
			}
			made := s.benchmarks[c.made]
			if diff := cmp.Diff(old.Spec, made.Spec); diff != "" {
				t.Errorf("the spec (-old +new):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{"team": "trading"}, made.Labels); diff != "" || len(made.Annotations) > 0 || made.UID == old.UID || len(made.Status.Stored) > 0 {
				t.Errorf("it made %+v", made)
			}
			if there := s.benchmarks[sweep]; c.left != (there != nil && there.UID == old.UID) {
				t.Errorf("there is %+v", there)
			}
		})
	}
}

func TestRerunOfAMatrix(t *testing.T) {
	s := newCluster(t)
	s.addMesh()
	old := types.NamespacedName{Namespace: "perf", Name: "mesh"}
	code, stdout, stderr := run("rerun", "lmatrix/mesh", "--name", "after", "--kubeconfig", s.serve(t))
	if want := "LatencyMatrix perf/after created, with the spec of LatencyMatrix perf/mesh\n"; code != 0 || stdout != want {
		t.Fatalf("exit code %d, it printed %q and said %q", code, stdout, stderr)
	}
	made := s.matrices[types.NamespacedName{Namespace: "perf", Name: "after"}]
	if made == nil {
		t.Fatalf("it wrote %q", s.written)
	}
	if diff := cmp.Diff(s.matrices[old].Spec, made.Spec); diff != "" {
		t.Errorf("the spec (-old +new):\n%s", diff)
	}
}

func TestRerunRefuses(t *testing.T) {
	cases := map[string]struct {
		args   []string
		change func(*apiServer)
		want   []string
	}{
		"nothing to be done":     {args: []string{"sweep"}, want: []string{"--name", "--replace"}},
		"both":                   {args: []string{"sweep", "--name=x", "--replace"}, want: []string{"--name", "--replace"}},
		"its own name":           {args: []string{"sweep", "--name=sweep"}, want: []string{"--name", "another name", "--replace"}},
		"a gate":                 {args: []string{"lgate/upgrade", "--name=x"}, want: []string{`"lgate/upgrade" is neither NAME of a LatencyBenchmark nor lmatrix/NAME`}},
		"no name":                {args: []string{"--replace"}, want: []string{"rerun takes the name of one LatencyBenchmark or LatencyMatrix, not 0"}},
		"an unknown name":        {args: []string{"swoop", "--name=x"}, want: []string{"no LatencyBenchmark swoop"}},
		"a name that is taken":   {args: []string{"sweep", "--name=mesh-a-b"}, change: (*apiServer).addMesh, want: []string{"--name", "perf/mesh-a-b already"}},
		"a spec that is refused": {args: []string{"sweep", "--name=x"}, change: func(s *apiServer) { s.benchmarks[sweep].Spec.Rounds = 13 }, want: []string{"making LatencyBenchmark perf/x", "no luck"}},
		"a spec that is refused, before the old one is deleted": {
			args: []string{"sweep", "--replace"}, change: func(s *apiServer) { s.benchmarks[sweep].Spec.Rounds = 13 },
			want: []string{"dry run of LatencyBenchmark perf/sweep", "no luck"},
		},
		"a benchmark of another": {
			args: []string{"sweep", "--replace"}, change: func(s *apiServer) {
				s.benchmarks[sweep].OwnerReferences = []metav1.OwnerReference{{Kind: "LatencyMatrix", Name: "mesh", Controller: new(true)}}
			},
			want: []string{"--replace", "belongs to LatencyMatrix mesh", "--name"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			if c.change != nil {
				c.change(s)
			}
			code, stdout, stderr := run(append([]string{"rerun", "--kubeconfig", s.serve(t)}, c.args...)...)
			if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, it printed %q and said %q; want 1, nothing and one line", code, stdout, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("it said %q, want %q in it", stderr, want)
				}
			}
			if s.benchmarks[sweep] == nil || slices.ContainsFunc(s.written, func(w string) bool { return strings.HasPrefix(w, "DELETE") }) {
				t.Errorf("it wrote %q", s.written)
			}
		})
	}
}

// If the new benchmark cannot be created after the old one was deleted, its manifest is printed.
func TestRerunPrintsWhatItCannotMake(t *testing.T) {
	s := newMarkedCluster(t)
	kubeconfig := s.serve(t)
	// The requests are get, dry run, delete, get until it is gone, create.
	s.refusals = []*apierrors.StatusError{nil, nil, nil, apierrors.NewNotFound(benchmarkResource, "sweep"), apierrors.NewForbidden(benchmarkResource, "sweep", nil)}
	code, stdout, stderr := run("rerun", "sweep", "--replace", "--kubeconfig", kubeconfig)
	if code != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "LatencyBenchmark perf/sweep was deleted, but could not be created again") {
		t.Errorf("exit code %d, it said %q", code, stderr)
	}
	again, err := parseObjects([]byte(stdout))
	if err != nil || len(again) != 1 || again[0].GetName() != "sweep" || again[0].GetLabels()["team"] != "trading" {
		t.Errorf("it printed, %v:\n%s", err, stdout)
	}
}
