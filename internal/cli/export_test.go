package cli

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// exportSweep exports perf/sweep with a verdict, and stops the cluster.
func exportSweep(t *testing.T) (results string) {
	t.Helper()
	s := newCluster(t)
	b := s.benchmarks[sweep]
	b.Spec.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "6us"}}}}
	b.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonComplete, LastTransitionTime: metav1.Now()},
		{Type: v1alpha1.ConditionPassed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFail, Message: "it is slow", LastTransitionTime: metav1.Now()},
	}
	results = filepath.Join(t.TempDir(), "results")
	kubeconfig := s.serve(t)
	code, stdout, stderr := run("export", "sweep", "-o", results, "--kubeconfig", kubeconfig)
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "LatencyBenchmark perf/sweep: ") || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("exit code %d, %q, it said %q", code, stdout, stderr)
	}
	s.server.Close()
	return results
}

// The contents of an export are printed, compared and judged as in the cluster, without a request to a cluster.
func TestExportIsRead(t *testing.T) {
	s := newCluster(t)
	_, table, _ := run("get", "sweep", "--kubeconfig", s.serve(t))
	results := exportSweep(t)
	own := filepath.Join(results, "sweep")
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"get":                            {[]string{"get", own}, 0, []string{table}},
		"the only one of a directory":    {[]string{"get", results}, 0, []string{table}},
		"with a slash at the end":        {[]string{"get", own + "/", "-o", "csv"}, 0, []string{"perf,sweep,pinger,", ",all,"}},
		"compare":                        {[]string{"compare", own, own}, 0, []string{"tcp-64 of default"}},
		"a variant":                      {[]string{"compare", own + "/default", results}, 0, []string{"tcp-64 of default"}},
		"gate":                           {[]string{"gate", own, "--wait"}, 1, []string{"LatencyBenchmark perf/sweep of " + own + ": Fail: it is slow"}},
		"export of an export":            {[]string{"export", own, "-o", filepath.Join(results, "again")}, 0, []string{"perf/sweep"}},
		"which is one that is read, too": {[]string{"get", filepath.Join(exportSweep(t), "sweep"), "-o", "sfnt"}, 0, []string{"\t64\t5500\t5000\t"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(append(c.args, "--kubeconfig", os.DevNull)...)
			if code != c.code || stderr != "" {
				t.Fatalf("exit code %d, it said %q", code, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in\n%s", want, stdout)
				}
			}
		})
	}
}

// The export of a matrix contains the results of its pairs.
func TestExportOfPairs(t *testing.T) {
	s := newCluster(t)
	s.addMesh()
	results := filepath.Join(t.TempDir(), "results")
	kubeconfig := s.serve(t)
	if code, _, stderr := run("export", "lmatrix/mesh", "sweep", "-o", results, "--kubeconfig", kubeconfig); code != 0 {
		t.Fatal(stderr)
	}
	_, want, _ := run("get", "lmatrix/mesh", "--kubeconfig", kubeconfig)
	if code, got, stderr := run("get", filepath.Join(results, "mesh")); code != 0 || got != want {
		t.Errorf("exit code %d, %q, got\n%s\nwant\n%s", code, stderr, got, want)
	}
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"which of them":                {[]string{"get", results}, []string{"2 exports", filepath.Join(results, "mesh")}},
		"a form for stored results":    {[]string{"get", filepath.Join(results, "mesh"), "-o", "sfnt"}, []string{"many pairs", "ls " + filepath.Join(results, "mesh", "pairs")}},
		"many pairs":                   {[]string{"compare", results + "/sweep", results + "/mesh"}, []string{"many pairs"}},
		"a pair that was not measured": {[]string{"get", filepath.Join(results, "mesh", "pairs", "mesh-b-c")}, []string{"has no results yet"}},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c.args, 1, c.want) })
	}
}

// refused calls the command, which must fail with one line.
func refused(t *testing.T, args []string, wantCode int, want []string) {
	t.Helper()
	code, stdout, stderr := run(args...)
	if code != wantCode || stdout != "" || strings.Count(stderr, "\n") != 1 {
		t.Errorf("%q: exit code %d with %q, it said %q; want %d and one line", args, code, stdout, stderr, wantCode)
	}
	for _, part := range want {
		if !strings.Contains(stderr, part) {
			t.Errorf("%q: it said %q, want %q in it", args, stderr, part)
		}
	}
}

// complete makes the benchmark of a cluster one that others can be compared with: its end has been reached, and its run has evidence.
func complete(t *testing.T, s *apiServer) {
	t.Helper()
	b := s.benchmarks[sweep]
	b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonComplete, LastTransitionTime: metav1.Now()}}
	cm, stored := storedRun(t, "sweep-r1", func(e *result.Evidence) {
		e.Kernel, e.Paths = "6.1.0", []result.Path{{Cell: "tcp-1"}, {Cell: "tcp-64"}}
	})
	s.configMaps[types.NamespacedName{Namespace: "perf", Name: cm.Name}], b.Status.Stored = cm, []v1alpha1.StoredResult{stored}
}

// The digest of an export is the same in a ConfigMap, whether that is made from the cluster or from the directory.
func TestExportToConfigMap(t *testing.T) {
	s := newCluster(t)
	complete(t, s)
	kubeconfig, results := s.serve(t), filepath.Join(t.TempDir(), "results")
	if code, _, stderr := run("export", "sweep", "-o", results, "--kubeconfig", kubeconfig); code != 0 {
		t.Fatal(stderr)
	}
	manifest, err := os.ReadFile(filepath.Join(results, "sweep", "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(manifest))
	code, stdout, stderr := run("export", results, "--configmap", "elsewhere", "--kubeconfig", kubeconfig)
	if code != 0 || stderr != "baseline: {type: Export, export: {configMapName: elsewhere, sha256: "+sum+"}}\n" {
		t.Fatalf("exit code %d, it said %q, want digest %s", code, stderr, sum)
	}
	cm := &corev1.ConfigMap{}
	if err := json.Unmarshal([]byte(stdout), cm); err != nil {
		t.Fatal(err)
	}
	runs := 0
	err = export.ReadConfigMap(t.Context(), cm, sum, func(b *v1alpha1.LatencyBenchmark) error { return nil }, func(result.Stored) error { runs++; return nil })
	if err != nil || runs == 0 || cm.Name != "elsewhere" || cm.Immutable == nil || !*cm.Immutable {
		t.Errorf("%d runs of %s: %v", runs, cm.Name, err)
	}
	if code, _, stderr := run("export", "sweep", "--configmap", "elsewhere", "--kubeconfig", kubeconfig); code != 0 || !strings.HasPrefix(stderr, "baseline: {type: Export, export: ") {
		t.Errorf("from the cluster: exit code %d, it said %q", code, stderr)
	}
}

func TestExportRefuses(t *testing.T) {
	s := newCluster(t)
	kubeconfig := s.serve(t)
	exists := t.TempDir()
	if err := os.Mkdir(filepath.Join(exists, "sweep"), 0o755); err != nil {
		t.Fatal(err)
	}
	aFile := written(t, "x")
	results := exportSweep(t)
	damaged := exportSweep(t)
	if err := os.Truncate(filepath.Join(damaged, "sweep", "results.csv"), 10); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want []string
		// code is the exit code; 0 stands for 1.
		code int
	}{
		"no directory":                                {args: []string{"export", "sweep"}, want: []string{"--output"}},
		"a benchmark that there is not":               {args: []string{"export", "sweep", "swoop", "-o", exists + "/new"}, want: []string{"no LatencyBenchmark swoop"}},
		"twice the same":                              {args: []string{"export", "sweep", "sweep", "-o", exists + "/new"}, want: []string{"two of them are named sweep"}},
		"an existing export":                          {args: []string{"export", "sweep", "-o", exists}, want: []string{"sweep", "already exists", "--overwrite"}},
		"an existing directory that is not an export": {args: []string{"export", "sweep", "-o", exists, "--overwrite"}, want: []string{"is not an export that could be replaced"}},
		"a file as the directory":                     {args: []string{"export", "sweep", "-o", aFile}, want: []string{filepath.Base(aFile)}},
		"no export":                                   {args: []string{"get", exists}, want: []string{"is not an export", "manifest.json"}},
		"a path that there is not":                    {args: []string{"get", "./nowhere/results"}, want: []string{"nowhere/results"}},
		"a path without ./":                           {args: []string{"get", "results/sweep"}, want: []string{"begins with ./"}},
		"compare without ./":                          {args: []string{"compare", "results/sweep/default", "sweep"}, want: []string{"begins with ./"}},
		"a variant that there is not":                 {args: []string{"compare", results + "/sweep/fast", results}, want: []string{"no such variant", "default"}},
		"a damaged export":                            {args: []string{"get", damaged}, want: []string{"damaged export", "results.csv", "10 bytes"}},
		"a damaged export, compared":                  {args: []string{"compare", results, damaged}, want: []string{"damaged export"}},
		"a damaged export, judged":                    {args: []string{"gate", damaged}, want: []string{"damaged export"}, code: 3},
		"a damaged export, exported":                  {args: []string{"export", damaged, "-o", exists + "/new"}, want: []string{"damaged export"}},
		"a ConfigMap of two":                          {args: []string{"export", "sweep", "sweep", "--configmap", "x"}, want: []string{"--configmap", "one LatencyBenchmark"}},
		"a ConfigMap and a directory":                 {args: []string{"export", "sweep", "--configmap", "x", "-o", exists + "/new"}, want: []string{"configmap", "output"}},
		"a ConfigMap of another name":                 {args: []string{"export", "sweep", "--configmap", "X_Y"}, want: []string{"--configmap", `"X_Y"`}},
		"a ConfigMap of a benchmark that is not complete": {
			args: []string{"export", "sweep", "--configmap", "x"}, want: []string{"no benchmark can be compared with sweep", `condition Succeeded ""`, "export a benchmark that is complete"},
		},
		"a ConfigMap without evidence": {args: []string{"export", results, "--configmap", "x"}, want: []string{"run sweep-r1 has no evidence", "name an export of a benchmark"}},
		"a ConfigMap of a published result": {
			args: []string{"export", "published/ember-onload", "--configmap", "x"}, want: []string{"published/ember-onload is part of this command", "cannot be a criteria.baseline"},
		},
		"a ConfigMap of a damaged export":    {args: []string{"export", damaged, "--configmap", "x"}, want: []string{"damaged export"}},
		"a gate that there is not, exported": {args: []string{"gate", filepath.Join(results, "gate")}, want: []string{"gate"}, code: 3},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, append(c.args, "--kubeconfig", kubeconfig), max(1, c.code), c.want)
			if entries, _ := os.ReadDir(exists); len(entries) != 1 {
				t.Errorf("it wrote %v", entries)
			}
		})
	}
	if len(s.written) > 0 {
		t.Errorf("it wrote %q to the cluster", s.written)
	}
}

func TestExportOverwrites(t *testing.T) {
	s := newCluster(t)
	kubeconfig := s.serve(t)
	results := exportSweep(t)
	if code, _, stderr := run("export", "sweep", "-o", results, "--overwrite", "--kubeconfig", kubeconfig); code != 0 {
		t.Fatal(stderr)
	}
	if code, stdout, _ := run("gate", results); code != 2 || !strings.Contains(stdout, "it has no criteria") {
		t.Errorf("exit code %d, %q: it is the old one", code, stdout)
	}
}
