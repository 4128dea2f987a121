package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// framed returns a document as its agent sent it.
func framed(t *testing.T, d result.Document) result.Framed {
	t.Helper()
	var sent bytes.Buffer
	if err := result.WriteFrame(&sent, d); err != nil {
		t.Fatal(err)
	}
	f, err := result.ReadFrame(&sent)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// sweep is the benchmark that every cluster has.
var sweep = types.NamespacedName{Namespace: "perf", Name: "sweep"}

// storedRun returns the only run of a benchmark, TCP in two sizes; change may change its evidence.
func storedRun(t *testing.T, run string, change func(*result.Evidence)) (*corev1.ConfigMap, v1alpha1.StoredResult) {
	t.Helper()
	r := result.NewRecorder()
	for i := range int64(2_000) {
		r.Record(10_000 + i)
	}
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	cell := func(name string, size int32) result.Cell {
		return result.Cell{Cell: tool.Cell{Name: name, Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: size}}, ToolVersion: "1", Histogram: h}
	}
	document := func(role string, cells ...result.Cell) result.Document {
		d := result.Document{Version: result.Version, Run: run, Variant: "default", Attempt: 1, Role: role,
			Evidence: result.Evidence{Node: "node-" + role, CPUsAllowed: "1", BootID: "boot-" + role, Interface: "eth0", MTU: 1500}, Cells: cells}
		if change != nil {
			change(&d.Evidence)
		}
		return d
	}
	stored, err := result.NewStored(framed(t, document(v1alpha1.RoleClient, cell("tcp-1", 1), cell("tcp-64", 64))), framed(t, document(v1alpha1.RoleServer)), result.Seen{}, result.Seen{})
	if err != nil {
		t.Fatal(err)
	}
	cm, err := stored.ConfigMap(run, "perf", nil, metav1.OwnerReference{})
	if err != nil {
		t.Fatal(err)
	}
	cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	return cm, stored.Named(cm.Name)
}

// newCluster returns a cluster with benchmark perf/sweep with one stored run of TCP in two sizes.
func newCluster(t *testing.T) *apiServer {
	t.Helper()
	b := &v1alpha1.LatencyBenchmark{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyBenchmark"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "sweep", UID: "u"},
		Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Tool: v1alpha1.ToolPinger, Rounds: 1, LatencyType: v1alpha1.LatencyHalfRTT, Network: v1alpha1.Network{Type: v1alpha1.NetworkPod},
			Workload: v1alpha1.Workload{
				Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{1, 64}, Duration: metav1.Duration{Duration: time.Second},
				Wait: v1alpha1.WaitBlock, Muxer: v1alpha1.MuxerNone,
			},
			Placement: v1alpha1.Placement{CPUs: 1, Memory: resource.MustParse("512Mi"), Client: &v1alpha1.EndpointPlacement{}, Server: &v1alpha1.EndpointPlacement{}},
		}},
	}
	cm, stored := storedRun(t, "sweep-r1", nil)
	b.Status.Stored = []v1alpha1.StoredResult{stored}
	return &apiServer{
		benchmarks: map[types.NamespacedName]*v1alpha1.LatencyBenchmark{sweep: b},
		configMaps: map[types.NamespacedName]*corev1.ConfigMap{{Namespace: "perf", Name: "sweep-r1"}: cm},
	}
}

// run calls the command.
func run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestGet(t *testing.T) {
	s := newCluster(t)
	kubeconfig := s.serve(t)
	// The same benchmark in another namespace, under another name.
	elsewhere := s.benchmarks[sweep].DeepCopy()
	elsewhere.Namespace = "other"
	s.benchmarks[types.NamespacedName{Namespace: "other", Name: "sweep"}] = elsewhere
	cm := s.configMaps[types.NamespacedName{Namespace: "perf", Name: "sweep-r1"}].DeepCopy()
	cm.Namespace = "other"
	s.configMaps[types.NamespacedName{Namespace: "other", Name: "sweep-r1"}] = cm

	cases := map[string]struct {
		args []string
		want []string
	}{
		"the table is the default":       {nil, []string{"perf/sweep: pinger, HalfRTT\n", "tcp-64", "node-client"}},
		"the namespace is the context's": {[]string{"-o", "table"}, []string{"perf/sweep"}},
		"another namespace":              {[]string{"-n", "other"}, []string{"other/sweep"}},
		"sfnt":                           {[]string{"-o", "sfnt"}, []string{"# reporting: 1/2 RTT\n", "\t1\t5500\t5000\t", "\t64\t5500\t5000\t"}},
		"networks":                       {[]string{"--output=networks"}, []string{"MTU=1500", "default"}},
		"matrix":                         {[]string{"-o", "matrix"}, []string{"ping-pong", "5.000"}},
		"ladder":                         {[]string{"-o=ladder"}, []string{"99.999999%", "needs 1000000000"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(append([]string{"get", "sweep", "--kubeconfig", kubeconfig}, c.args...)...)
			if code != 0 || stderr != "" {
				t.Fatalf("exit code %d, it said %q", code, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in\n%s", want, stdout)
				}
			}
		})
	}
	if want := 2 * len(cases); len(s.asked) != want {
		t.Errorf("it asked %d times, want %d: %v", len(s.asked), want, s.asked)
	}
}

// addMesh adds matrix perf/mesh of all pairs of three nodes, whose first pair is measured, and a benchmark that has the matrix's
// label but another owner.
func (s *apiServer) addMesh() {
	add := func(name string, change func(*v1alpha1.LatencyBenchmark)) {
		b := s.benchmarks[sweep].DeepCopy()
		b.Name, b.UID, b.Status = name, types.UID("of-"+name), v1alpha1.LatencyBenchmarkStatus{}
		change(b)
		s.benchmarks[types.NamespacedName{Namespace: "perf", Name: name}] = b
	}
	template := s.benchmarks[sweep].DeepCopy().Spec
	template.Placement.Client, template.Placement.Server = &v1alpha1.EndpointPlacement{}, &v1alpha1.EndpointPlacement{}
	m := &v1alpha1.LatencyMatrix{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyMatrix"}}
	m.Namespace, m.Name, m.UID = "perf", "mesh", "of-mesh"
	m.Spec = v1alpha1.LatencyMatrixSpec{
		Topology: v1alpha1.TopologyAllPairs, Nodes: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "1"}}}, Parallelism: 1,
		Template: v1alpha1.LatencyBenchmarkTemplate{Spec: template.MeasurementSpec},
	}
	s.matrices = map[types.NamespacedName]*v1alpha1.LatencyMatrix{client.ObjectKeyFromObject(m): m}
	for _, name := range []string{"mesh-a-b", "mesh-a-c", "mesh-b-c", "mesh-of-another"} {
		add(name, func(b *v1alpha1.LatencyBenchmark) {
			b.Labels = map[string]string{v1alpha1.LabelMatrix: "mesh"}
			if name == "mesh-of-another" {
				return
			}
			b.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyMatrix", Name: "mesh", UID: "of-mesh"}}
			b.Status.Pair = &v1alpha1.Pair{ClientNode: "node-" + name[5:6], ServerNode: "node-" + name[7:8]}
			if name == "mesh-a-b" {
				b.Status.Results = []v1alpha1.CellResult{{Variant: "default", Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP}, LatencyType: "HalfRTT", Rounds: 1, Samples: 1_000, Percentiles: []v1alpha1.PercentileResult{{Name: v1alpha1.P50, Nanoseconds: 4_250}}}}
			}
		})
	}
}

// The first interruption ends a command that does not notice it, such as one that reads a pipe without a writer.
func TestInterruptionEndsACommand(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	before := endGrace
	endGrace = 0
	t.Cleanup(func() { endGrace = before })
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var stderr strings.Builder
	if code := Run(ctx, []string{"plan", "-f", pipe}, io.Discard, &stderr); code != 1 || stderr.String() != "kubectl tailgate: interrupted\n" {
		t.Errorf("exit code %d, it said %q", code, &stderr)
	}
}

func TestGetPairs(t *testing.T) {
	s := newCluster(t)
	s.addMesh()
	kubeconfig := s.serve(t)
	code, stdout, stderr := run("get", "lmatrix/mesh", "--kubeconfig", kubeconfig)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, it said %q", code, stderr)
	}
	for _, want := range []string{"perf/mesh: pinger, HalfRTT, AllPairs of 3 pairs, 1 of them with results\n", "4.250", "node-b to node-c has no results"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "mesh-of-another") {
		t.Errorf("a benchmark that only has the label is among the pairs:\n%s", stdout)
	}
	if code, asked, stderr := run("get", "lmatrix/mesh", "-o", "pairs", "--kubeconfig", kubeconfig); code != 0 || asked != stdout {
		t.Errorf("-o pairs is not the default: exit code %d, %q", code, stderr)
	}
}

func TestGetRefuses(t *testing.T) {
	stored := types.NamespacedName{Namespace: "perf", Name: "sweep-r1"}
	cases := map[string]struct {
		args   []string
		change func(*apiServer)
		// want are parts of the only line.
		want []string
	}{
		"an unknown format":    {args: []string{"get", "sweep", "-o", "xml"}, want: []string{`unknown format "xml"`, "table, wide, sfnt, networks, matrix, ladder, json, csv, pairs"}},
		"two names":            {args: []string{"get", "a", "b"}, want: []string{"not 2 arguments"}},
		"an unknown verb":      {args: []string{"gte"}, want: []string{`unknown command "gte" for "kubectl tailgate" Did you mean this? get gate`}},
		"an unknown flag":      {args: []string{"get", "sweep", "--fast"}, want: []string{"--fast"}},
		"an unknown name":      {args: []string{"get", "swoop"}, want: []string{"no LatencyBenchmark swoop in namespace perf", "kubectl get latencybenchmarks.tailgate.dev -A"}},
		"an unknown namespace": {args: []string{"get", "sweep", "-n", "nowhere"}, want: []string{"no LatencyBenchmark sweep in namespace nowhere"}},
		"an unknown context":   {args: []string{"get", "sweep", "--context=nowhere"}, want: []string{"kubeconfig", `"nowhere"`}},
		"an unknown user":      {args: []string{"get", "sweep", "--token=of-nobody"}, want: []string{"perf/sweep", "Unauthorized"}},
		"a cluster without Tailgate": {
			change: func(s *apiServer) { s.benchmarks = nil }, want: []string{"does not have the kind LatencyBenchmark", "install Tailgate"},
		},
		"no results yet": {
			change: func(s *apiServer) {
				s.benchmarks[sweep].Status = v1alpha1.LatencyBenchmarkStatus{Conditions: []metav1.Condition{
					{Type: v1alpha1.ConditionSucceeded, Reason: v1alpha1.ReasonRunning, Message: "round 1 of 3 is measured"},
				}}
			},
			want: []string{"perf/sweep has no results yet", "Running", "round 1 of 3"},
		},
		"a benchmark that the operator has not observed": {
			change: func(s *apiServer) { s.benchmarks[sweep].Status = v1alpha1.LatencyBenchmarkStatus{} },
			want:   []string{"no results yet", "is it running?"},
		},
		"a result that was deleted": {
			change: func(s *apiServer) { delete(s.configMaps, stored) }, want: []string{"the result of run sweep-r1 is missing", "perf/sweep-r1"},
		},
		"a result that was changed": {
			change: func(s *apiServer) { s.configMaps[stored].BinaryData[result.KeyClient][20] ^= 1 },
			want:   []string{"run sweep-r1", "corrupt result", "digest"},
		},
		"a result that was put in its place": {
			change: func(s *apiServer) { s.benchmarks[sweep].Status.Stored[0].SHA256 = strings.Repeat("0", 64) },
			want:   []string{"run sweep-r1", result.KeyClient, "corrupt result", "the benchmark's status names 000"},
		},
		"a server's result that was put in its place": {
			change: func(s *apiServer) { s.benchmarks[sweep].Status.Stored[0].ServerSHA256 = strings.Repeat("0", 64) },
			want:   []string{"run sweep-r1", result.KeyServer, "corrupt result", "the benchmark's status names 000"},
		},
		"a ConfigMap that holds no result": {
			change: func(s *apiServer) { s.configMaps[stored].BinaryData = nil }, want: []string{"run sweep-r1", "no result", result.KeyClient},
		},
		"an unknown matrix": {args: []string{"get", "lmatrix/mesh"}, want: []string{"no LatencyMatrix mesh in namespace perf", "kubectl get latencymatrices.tailgate.dev -A"}},
		"a matrix by its name alone": {
			args: []string{"get", "mesh"}, change: (*apiServer).addMesh, want: []string{"no LatencyBenchmark mesh in namespace perf"},
		},
		"a format of stored results for a matrix": {
			args: []string{"get", "lmatrix/mesh", "-o", "sfnt"}, change: (*apiServer).addMesh,
			want: []string{"--output=sfnt", "perf/mesh measures many pairs", "--output=pairs", "`kubectl get latencybenchmarks.tailgate.dev -n perf -l tailgate.dev/matrix=mesh`"},
		},
		"the pairs of one pair": {
			args: []string{"get", "sweep", "-o", "pairs"}, want: []string{"--output=pairs", "one pair of nodes", "--output=table"},
		},
		"no pairs yet": {
			args: []string{"get", "lmatrix/mesh"},
			change: func(s *apiServer) {
				s.addMesh()
				for name := range s.benchmarks {
					delete(s.benchmarks, name)
				}
				for _, m := range s.matrices {
					m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Reason: "NoSuchNodes", Message: "two nodes are needed"}}
				}
			},
			want: []string{"perf/mesh has no pairs yet", "NoSuchNodes", "two nodes are needed"},
		},
		"a format that shows nothing of these results": {
			args: []string{"get", "sweep", "-o", "ladder"},
			change: func(s *apiServer) {
				s.benchmarks[sweep].Spec.Workload = v1alpha1.Workload{Streams: []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}}
			},
			want: []string{"--output=ladder", "nothing to show", "--output=table"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			if c.change != nil {
				c.change(s)
			}
			args := c.args
			if args == nil {
				args = []string{"get", "sweep"}
			}
			code, stdout, stderr := run(append(args, "--kubeconfig", s.serve(t))...)
			if code != 1 || stdout != "" {
				t.Errorf("exit code %d with output %q, want 1 and none", code, stdout)
			}
			if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "kubectl tailgate: ") {
				t.Errorf("it said %q, want one line", stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("it said %q, want %q in it", stderr, want)
				}
			}
		})
	}
}

// The format is checked before the cluster is contacted: an invalid one does not wait for a cluster that does not answer.
func TestGetLooksAtTheFormatFirst(t *testing.T) {
	s := newCluster(t)
	kubeconfig := s.serve(t)
	if code, _, stderr := run("get", "sweep", "-o", "ladders", "--kubeconfig", kubeconfig); code != 1 || len(s.asked) > 0 {
		t.Errorf("exit code %d, %q, and it asked for %v", code, stderr, s.asked)
	}
}

// A cluster that does not answer also gives an error of one line.
func TestGetWithoutACluster(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "config")
	for _, args := range [][]string{
		{"get", "sweep", "--kubeconfig", missing},
		{"get", "sweep", "--server=http://127.0.0.1:1", "--kubeconfig", os.DevNull},
	} {
		if code, _, stderr := run(args...); code != 1 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d, %q; want 1 and one line", args, code, stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	code, stdout, stderr := run("get", "--help")
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, it said %q", code, stderr)
	}
	for _, want := range []string{"kubectl tailgate get [NAME|lmatrix/NAME", "sfnt-pingpong", "ladder", "--kubeconfig", "-n, --namespace"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the help does not have %q:\n%s", want, stdout)
		}
	}
}
