package bare

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// given is a LatencyBenchmark as an API server returns it.
const given = `{"apiVersion":"tailgate.dev/v1alpha1","kind":"LatencyBenchmark","metadata":{"name":"x","namespace":"perf","uid":"1","resourceVersion":"7"},
"spec":{"tool":"pinger","rounds":2,"latencyType":"HalfRTT","network":{"type":"VF","vf":{"resourceName":"amd.com/sf_vf","networkRef":{"name":"vf"}}},
"workload":{"protocols":["TCP"],"messageSizes":[64],"duration":"1s","warmup":"1s","wait":"Block","muxer":"None"},
"placement":{"memory":"512Mi","numaPolicy":"Preferred","client":{"nodeName":"a"},"server":{"nodeName":"b"}},
"criteria":{"rules":[{"metric":"p50","max":"1ms"}]}},
"status":{"observedGeneration":1}}`

// with returns the file with a variant.
func with(variant string) string {
	return strings.Replace(given, `"criteria"`, `"variants":[{"name":"plain"},`+variant+`],"criteria"`, 1)
}

func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", given)
	if err := os.Mkdir(filepath.Join(dir, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	server := func(args ...string) []string {
		return append([]string{"server", "--server", "127.0.0.1", "--cpus", "0"}, args...)
	}
	client := func(args ...string) []string {
		return append([]string{"client", "--server", "127.0.0.1", "--cpus", "0", "-f", good}, args...)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no end":                  {nil, "usage: tailgate-agent bare server"},
		"another end":             {[]string{"both"}, "usage: "},
		"an unknown flag":         {server("--port", "1"), "port"},
		"an argument":             {server("-f", good, "more"), `"more" is not a flag`},
		"no file":                 {server(), "-f: name the file"},
		"a file that is not":      {server("-f", filepath.Join(dir, "none")), "no such file"},
		"no CPUs":                 {server("-f", good, "--cpus", ""), `--cpus: "" is not a list of CPUs`},
		"CPUs that are not":       {server("-f", good, "--cpus", "3-1"), `--cpus: "3-1" is not`},
		"a name":                  {server("-f", good, "--server", "host"), `--server: "host" is not an IP address`},
		"too few CPUs":            {client("-o", dir, "-f", file("rate", strings.Replace(strings.Replace(given, "pinger", "sockperf", 1), `"wait"`, `"ratesPerSecond":[500],"wait"`, 1))), "--cpus: sockperf needs 2 CPUs"},
		"no directory":            {client(), "-o: name the directory"},
		"an export that is there": {client("-o", dir), "exists; remove it"},
		"too large":               {server("-f", file("large", strings.Repeat(" ", maxFile+1))), "at most 3 MiB"},
		"YAML":                    {server("-f", file("yaml", "kind: LatencyBenchmark")), "is not the JSON of a LatencyBenchmark"},
		"a later version":         {server("-f", file("later", strings.Replace(given, `"tool"`, `"more":1,"tool"`, 1))), `unknown field "more"`},
		"another kind":            {server("-f", file("kind", strings.Replace(given, "LatencyBenchmark", "LatencyGate", 1))), "is not a LatencyBenchmark of tailgate.dev/v1alpha1"},
		"no defaults":             {server("-f", file("defaults", strings.Replace(given, `"rounds":2,`, "", 1))), "kubectl get lbench NAME -o json"},
		"a tool that is not":      {server("-f", file("tool", strings.Replace(given, "pinger", "ping", 1))), "spec.tool: "},
		"a cell that is not":      {server("-f", file("cell", strings.Replace(given, "[64]", "[-1]", 1))), "spec.workload: "},
		"a variant that is not":   {server("-f", good, "--variant", "vf"), `--variant: "vf" is not one of its variants ()`},
		"no variant":              {server("-f", file("variants", with(`{"name":"b"}`))), `--variant: "" is not one of its variants (plain, b)`},
		"a profile of a ConfigMap": {server("--variant", "b", "-f", file("profile", with(`{"name":"b","acceleration":{"type":"Onload","onload":{"profileRef":{"name":"p"}}}}`))),
			"a host has no ConfigMaps"},
		"CPUs that the host lacks": {server("-f", good, "--cpus", "999"), "--cpus: "},
	} {
		t.Run(name, func(t *testing.T) {
			err := Run(t.Context(), c.args, "key", all.Registry(), io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
		})
	}
	if err := Run(context.Background(), client("-o", t.TempDir()), "", all.Registry(), io.Discard); err == nil || !strings.Contains(err.Error(), "TAILGATE_KEY is not set") {
		t.Errorf("without a key: %v", err)
	}
}

// The export that is written has the spec that two hosts measured, and is one that a cluster could have: it is read again.
func TestWritesAnExport(t *testing.T) {
	b, err := parse([]byte(with(`{"name":"b","network":{"type":"Pod"}}`)), "b")
	if err != nil {
		t.Fatal(err)
	}
	var runs []result.Stored
	for _, run := range plan.Runs(b) {
		var log bytes.Buffer
		for _, role := range []string{v1alpha1.RoleServer, v1alpha1.RoleClient} {
			d := result.Document{Version: result.Version, Run: run.Name, Variant: run.Variant.Name, Attempt: 1, Role: role, Evidence: result.Evidence{
				Node: "host-" + role, Kernel: "6.1", CPUsAllowed: "2-3", OnlineCPUs: "0-7", MeasuringCPU: 2, Interface: "eth1", Facts: map[string]string{"cpu.isolated-cpus": "2-3"}}}
			if role == v1alpha1.RoleClient {
				r := result.NewRecorder()
				r.RecordN(10_000, 2_000)
				h, err := r.Histogram()
				if err != nil {
					t.Fatal(err)
				}
				d.Cells = []result.Cell{{Cell: run.Cells[0], Tool: "pinger", Histogram: h}}
			}
			d.Evidence.Paths = resulttest.ThroughKernel(d.Cells)
			if err := result.WriteFrame(&log, d); err != nil {
				t.Fatal(err)
			}
		}
		stored, err := both(log.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, stored)
	}
	dir := filepath.Join(t.TempDir(), "results", "x")
	sum, err := write(dir, b, runs)
	if err != nil {
		t.Fatal(err)
	}
	got, err := export.ReadDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	spec := got.Object.Spec
	if spec.Network.Type != v1alpha1.NetworkHost || spec.Criteria != nil || len(spec.Variants) != 1 || spec.Variants[0].Network != nil || spec.Placement.Client.CPUs != 2 ||
		spec.Placement.Client.NodeName != "" || got.Object.Status.Pair.ServerNode != "host-server" {
		t.Errorf("it is of %+v, %+v", spec, got.Object.Status.Pair)
	}
	if len(got.Runs) != 2 || !got.Runs[0].ClientSeen.Bare || len(got.Object.Status.Results) != 1 || got.Object.Status.Results[0].Samples != 4_000 {
		t.Errorf("got %d runs, %+v", len(got.Runs), got.Object.Status.Results)
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v", entries, err)
	}
	if cm, named, err := export.ConfigMap(got, "x"); err != nil || named != sum || len(cm.BinaryData) != 8 {
		t.Errorf("the ConfigMap has digest %s, not %s: %v", named, sum, err)
	}
}

// Any file is refused, or gives runs.
func FuzzParse(f *testing.F) {
	f.Add([]byte(given), "")
	f.Add([]byte(with(`{"name":"b","acceleration":{"type":"Onload"}}`)), "b")
	f.Fuzz(func(t *testing.T, content []byte, variant string) {
		if len(content) > 64<<10 {
			return
		}
		if b, err := parse(content, variant); err == nil && len(plan.Runs(b)) != int(b.Spec.Rounds) {
			t.Errorf("%d runs of %d rounds", len(plan.Runs(b)), b.Spec.Rounds)
		}
	})
}
