package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// makeNodes returns ready nodes with eight CPUs and four VFs each.
func makeNodes(names ...string) []corev1.Node {
	var all []corev1.Node
	for _, name := range names {
		all = append(all, corev1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{
					"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110"), "tailgate.test/sf_vf": resource.MustParse("4"),
				},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		})
	}
	return all
}

// newEmptyCluster returns a cluster with nodes and a network, but without a benchmark.
func newEmptyCluster(t *testing.T) *apiServer {
	t.Helper()
	s := newCluster(t)
	s.benchmarks, s.nodes = map[types.NamespacedName]*v1alpha1.LatencyBenchmark{}, makeNodes("node-a", "node-b", "node-c", "node-d")
	s.networks = map[types.NamespacedName]*metav1.PartialObjectMetadata{{Namespace: "perf", Name: "sf-vf"}: {
		TypeMeta: metav1.TypeMeta{APIVersion: "k8s.cni.cncf.io/v1", Kind: "NetworkAttachmentDefinition"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "sf-vf", Annotations: map[string]string{
			"k8s.v1.cni.cncf.io/resourceName": "tailgate.test/sf_vf",
		}},
	}}
	return s
}

// compared has two variants, and criteria that may add rounds.
const compared = `
apiVersion: tailgate.dev/v1alpha1
kind: LatencyBenchmark
metadata: {name: x}
spec:
  tool: pinger
  workload: {protocols: [TCP], messageSizes: [64, 1024], duration: 2s}
  rounds: 2
  placement: {client: {}, server: {}}
  variants:
  - {name: pod}
  - {name: vf, wait: Spin, network: {type: VF, vf: {networkRef: {name: sf-vf}, resourceName: tailgate.test/sf_vf}}}
  maxRounds: 6
  criteria: {rules: [{metric: p50, max: 2us}]}
`

// mesh is all pairs of four nodes, two pairs at the same time.
const mesh = `
apiVersion: tailgate.dev/v1alpha1
kind: LatencyMatrix
metadata: {name: mesh}
spec:
  topology: AllPairs
  nodes: {}
  parallelism: 2
  template:
    spec:
      tool: pinger
      workload: {duration: 2s, warmup: 0s}
      rounds: 2
`

func TestPlan(t *testing.T) {
	const runs = `
VARIANT  WAY
pod      network Pod, block
vf       network VF sf-vf (tailgate.test/sf_vf), spin

RUN       ROUND  VARIANT  MEASURES  CELLS
x-pod-r1  1      pod      5s        tcp-64 tcp-1024
x-vf-r1   1      vf       5s        tcp-64 tcp-1024
x-vf-r2   2      vf       5s        tcp-1024 tcp-64
x-pod-r2  2      pod      5s        tcp-1024 tcp-64

total measuring time 20s: 4 runs, without the start and end of the pods of each run
if the verdict is Inconclusive, 4 more rounds, once: 40s
`
	const says = "rule p50 max 2µs: can pass with 6 rounds, and fail with as many if all 4 comparisons do, with 8 rounds if one does; each round needs 200 samples\n"
	const where = "perf/x: pinger, HalfRTT\nclient on node-a, server on node-b\n"
	x := types.NamespacedName{Namespace: "perf", Name: "x"}
	cases := map[string]struct {
		file   string
		change func(*apiServer)
		code   int
		stdout string
		// stderr is part of the only line.
		stderr string
	}{
		"two variants": {file: compared, stdout: where + runs + says},
		"many pairs": {file: mesh, stdout: `perf/mesh: pinger, HalfRTT

VARIANT  WAY
default  network Pod, block

SLOT  PAIRS (client to server)
1     node-a to node-d, node-b to node-c
2     node-d to node-b, node-c to node-a
3     node-c to node-d, node-a to node-b

RUN         ROUND  VARIANT  MEASURES  CELLS
mesh-p1-r1  1      default  2s        tcp-64
mesh-p1-r2  2      default  2s        tcp-64

total measuring time 12s: 12 runs, 2 of each of 6 pairs in 3 slots, without the start and end of the pods of each run
`},
		"a tool that the bench image does not have": {
			file: strings.Replace(compared, "pinger", "sockperf", 1), code: 1,
			change: func(s *apiServer) { s.managerArgs = []string{"--bench-image=bench:v1", "--bench-tools=pinger,netperf"} },
			stdout: "perf/x: sockperf, HalfRTT\nobstacle: spec.tool: the bench image has no sockperf, only pinger, netperf (--bench-tools of the manager): " +
				"use a bench image that has it, or another tool (CellUnsupported)\n" + runs + says,
			stderr: "LatencyBenchmark perf/x would not be accepted now (CellUnsupported): spec.tool: the bench image has no sockperf",
		},
		"a tool of an operator that cannot be seen": {
			file: strings.Replace(compared, "pinger", "sockperf", 1), change: func(s *apiServer) { s.forbidden = []string{"/deployments"} },
			stdout: strings.Replace(where, "pinger", "sockperf", 1) + runs + says + "not checked, because you have no right to read it: Deployment\n",
		},
		"a network that does not exist": {
			file: compared, code: 1, change: func(s *apiServer) { delete(s.networks, types.NamespacedName{Namespace: "perf", Name: "sf-vf"}) },
			stdout: "perf/x: pinger, HalfRTT\nobstacle: spec.variants[1].network.vf.networkRef: NetworkAttachmentDefinition perf/sf-vf does not exist; create it, or name one of " +
				"`kubectl get network-attachment-definitions -A` (NetworkNotFound)\n" + runs + says,
			stderr: "LatencyBenchmark perf/x would not be accepted now (NetworkNotFound): spec.variants[1].network.vf.networkRef: NetworkAttachmentDefinition perf/sf-vf does not exist",
		},
		"a cluster without Multus": {
			file: compared, code: 1, change: func(s *apiServer) { s.networks = nil },
			stdout: "perf/x: pinger, HalfRTT\nobstacle: spec.variants[1].network.type: the cluster has no kind NetworkAttachmentDefinition; install Multus to use attached networks (NetworkNotFound)\n" + runs + says,
			stderr: "(NetworkNotFound)",
		},
		"unreadable objects are not obstacles": {
			file: compared, change: func(s *apiServer) {
				s.forbidden = []string{"/pods", "/priorityclasses", "/network-attachment-definitions", "/v1alpha1/latencybenchmarks"}
			},
			stdout: where + runs + says + "not checked, because you have no right to read it: LatencyBenchmark, NetworkAttachmentDefinition perf/sf-vf, PriorityClass, Pod\n",
		},
		"a user who may not create it": {
			file: compared, change: func(s *apiServer) { s.forbidden = []string{"PATCH"} },
			stdout: where + runs + "you have no right to create it, so the API server did not check it: applying LatencyBenchmark perf/x: x is forbidden: User \"alice\" cannot PATCH it\n" + says,
		},
		"one that is measured already, on other nodes": {
			file: compared, change: func(s *apiServer) {
				b := &v1alpha1.LatencyBenchmark{
					TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyBenchmark"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "x", UID: "x"},
				}
				b.Status.Pair = &v1alpha1.Pair{ClientNode: "node-d", ServerNode: "node-c"}
				b.Status.Stored = []v1alpha1.StoredResult{{Run: "x-pod-r1"}}
				b.Status.Active = &v1alpha1.ActiveAttempt{Run: "x-vf-r1"}
				s.benchmarks[x] = b
			},
			stdout: "perf/x: pinger, HalfRTT\nclient on node-d, server on node-c\n" + runs + "it exists, and 1 of 4 runs are measured\n" + says,
		},
		"conditions that only the operator knows": {
			file:   strings.Replace(strings.Replace(compared, "{name: pod}", "{name: pod, network: {type: Host}, capture: Server}", 1), "  maxRounds: 6\n  criteria: {rules: [{metric: p99, max: 2us}]}\n", "", 1),
			stdout: "variant pod needs an operator with --allow-host-network\nvariant pod needs an operator with --allow-packet-capture\n",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newEmptyCluster(t)
			if c.change != nil {
				c.change(s)
			}
			code, stdout, stderr := run("plan", "-f", written(t, c.file), "--kubeconfig", s.serve(t))
			if code != c.code || !strings.Contains(stderr, c.stderr) || strings.Count(stderr, "\n") != c.code {
				t.Errorf("exit code %d, it said %q", code, stderr)
			}
			if !strings.HasPrefix(c.stdout, "perf/") {
				stdout = stdout[max(0, len(stdout)-len(c.stdout)):]
			}
			if diff := cmp.Diff(c.stdout, stdout); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, w := range s.written {
				if !strings.Contains(w, "dryRun=All") {
					t.Errorf("it wrote %q", w)
				}
			}
		})
	}
}

// Without a cluster the plan is the same, as far as the nodes decide it.
func TestPlanWithoutACluster(t *testing.T) {
	list, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": makeNodes("node-a", "node-b", "node-c", "node-d")})
	if err != nil {
		t.Fatal(err)
	}
	nodes := filepath.Join(t.TempDir(), "nodes.yaml")
	if err := os.WriteFile(nodes, list, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, manifest := range map[string]string{"two variants": compared, "many pairs": mesh} {
		t.Run(name, func(t *testing.T) {
			file := written(t, manifest)
			plan := func(args ...string) Planned {
				code, stdout, stderr := run(append([]string{"plan", "-f", file, "-o", "json"}, args...)...)
				var p Planned
				if err := json.Unmarshal([]byte(stdout), &p); err != nil || code != 0 || stderr != "" {
					t.Fatalf("exit code %d, %v, it said %q", code, err, stderr)
				}
				return p
			}
			without := plan("--nodes", nodes, "--kubeconfig", os.DevNull, "-n", "perf", "--server=http://127.0.0.1:1")
			last := len(without.Notes) - 1
			if last < 0 || !strings.HasPrefix(without.Notes[last], "not checked, because no cluster is configured: ") {
				t.Fatalf("it notes %q", without.Notes)
			}
			without.Notes = slices.Clip(without.Notes[:last])
			if last == 0 {
				without.Notes = nil
			}
			if diff := cmp.Diff(plan("--kubeconfig", newEmptyCluster(t).serve(t)), without); diff != "" {
				t.Errorf("(-with a cluster +without):\n%s", diff)
			}
		})
	}
}

// The datagrams that Onload does not accelerate are known without a cluster.
func TestPlanOfLargeDatagrams(t *testing.T) {
	const benchmark = `
apiVersion: tailgate.dev/v1alpha1
kind: LatencyBenchmark
metadata: {name: x}
spec:
  tool: pinger
  workload: {protocols: [UDP], messageSizes: [64, 2000]}
  placement: {client: {}, server: {}}
  network: {type: VF, vf: {networkRef: {name: sf-vf}, resourceName: tailgate.test/sf_vf}}
  acceleration: {type: Onload}
`
	nodes, err := yaml.Marshal(corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: makeNodes("node-a", "node-b")})
	if err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr := run("plan", "-f", written(t, benchmark), "--nodes", written(t, string(nodes)), "--kubeconfig", os.DevNull)
	if !strings.Contains(stdout, "variant default: unless the interface has a larger MTU, datagrams of more than 1472 bytes") {
		t.Errorf("it says %q, %q", stdout, stderr)
	}
}

func TestPlanRefuses(t *testing.T) {
	cases := map[string]struct {
		file, nodes string
		args        []string
		change      func(*apiServer)
		want        []string
	}{
		"an argument":                {args: []string{"x.yaml"}, want: []string{"plan takes a file by -f"}},
		"an unknown format":          {file: compared, args: []string{"-o", "yaml"}, want: []string{`--output: unknown format "yaml"`, "table, json"}},
		"no file":                    {args: []string{"--kubeconfig", os.DevNull}, want: []string{"--filename"}},
		"one input for two":          {args: []string{"-f", "-", "--nodes", "-"}, want: []string{"--nodes", "standard input"}},
		"objects that are not nodes": {file: compared, nodes: manifest, want: []string{`kind "LatencyBenchmark"`, "kubectl get nodes -o yaml"}},
		"no nodes":                   {file: compared, nodes: "apiVersion: v1\nkind: List\nitems: []\n", want: []string{"has no nodes"}},
		"nodes of another form":      {file: compared, nodes: "apiVersion: v1\nkind: Node\nstatus: {allocatable: 7}\n", want: []string{"node"}},
		"nodes that are no YAML":     {file: compared, nodes: "a: [", want: []string{"reading", "yaml"}},
		"an unknown field":           {file: strings.Replace(compared, "rounds:", "round:", 1), nodes: "-", want: []string{"spec.round: unknown field; write spec.rounds"}},
		"a value out of range":       {file: strings.Replace(compared, "rounds: 2", "rounds: 200", 1), nodes: "-", want: []string{"spec.rounds", "200"}},
		"a rule that is broken":      {file: strings.Replace(compared, "2us", "2h", 1), nodes: "-", want: []string{"max: Invalid value: \"2h\" is not a duration"}},
		"a value that comes twice":   {file: strings.Replace(compared, "[64, 1024]", "[64, 64]", 1), nodes: "-", want: []string{"spec.workload.messageSizes[1]", "Duplicate value"}},
		"refused by the API server":  {file: strings.Replace(compared, "rounds: 2", "rounds: 200", 1), want: []string{"applying LatencyBenchmark perf/x", "spec.rounds"}},
		"nodes that may not be read": {
			file: compared, change: func(s *apiServer) { s.forbidden = []string{"/nodes"} }, want: []string{"you may not list nodes", "--nodes"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newEmptyCluster(t)
			if c.change != nil {
				c.change(s)
			}
			args := append([]string{"plan", "--kubeconfig", s.serve(t)}, c.args...)
			if c.file != "" {
				args = append(args, "-f", written(t, c.file))
			}
			if c.nodes == "-" {
				c.nodes = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
			}
			if c.nodes != "" {
				args = append(args, "--nodes", written(t, c.nodes))
			}
			code, stdout, stderr := run(args...)
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

// Every sample can be planned from the file alone: the obstacle is never the file.
func TestPlanOfTheSamples(t *testing.T) {
	nodes := written(t, "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n")
	planned := 0
	err := filepath.WalkDir("../../config/samples", func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(content), "\nkind: LatencyBenchmark\n") && !strings.Contains(string(content), "\nkind: LatencyMatrix\n") {
			return err
		}
		planned++
		if _, stdout, stderr := run("plan", "-f", path, "--nodes", nodes, "--kubeconfig", os.DevNull); !strings.Contains(stdout, "measuring time ") || !strings.Contains(stderr, "would not be accepted now") {
			t.Errorf("%s: it printed %q and said %q", path, stdout, stderr)
		}
		return nil
	})
	if err != nil || planned < 9 {
		t.Errorf("%d samples, %v", planned, err)
	}
}

// fleet is a gate that measures two nodes at once.
const fleet = `
apiVersion: tailgate.dev/v1alpha1
kind: LatencyGate
metadata: {name: up}
spec:
  nodeSelector: {matchLabels: {role: fast}}
  namespace: gates
  maxParallel: 2
  template:
    spec:
      tool: pinger
      workload: {protocols: [TCP], messageSizes: [64], duration: 2s, warmup: 0s}
      rounds: 2
      placement: {client: {}, server: {}}
      criteria: {rules: [{metric: p99, maxIncrease: 10%}], baseline: {type: Gate}}
`

// A plan of a gate shows its waves without a cluster, what it would hold back, and what its rules cannot decide.
func TestPlanOfALatencyGate(t *testing.T) {
	cases := map[string]struct {
		spec   string
		change func([]corev1.Node)
		code   int
		want   []string
	}{
		"four nodes, two at once": {"", func([]corev1.Node) {}, 0, []string{
			"up: pinger, HalfRTT", "4 nodes are too few to show", "4 nodes, of which it would measure 4, and hold back 4 now: node-a, node-b, node-c, node-d",
			"1     node-a to node-b, node-c to node-d", "2     node-b to ", "total measuring time 16s", "of each of 4 pairs in 2 slots",
			"no rule has an absolute limit for default/tcp-64, so that the next result of 4 nodes without an accepted result is Inconclusive", "accept up -l SELECTOR",
		}},
		"mode Observe": {"  enforcement: {mode: Observe, taint: {effect: NoSchedule}}\n", func([]corev1.Node) {}, 0, []string{"and hold back 0 now: none"}},
		"nodes that were there before": {"  enforcement: {mode: EnforceChanges}\n", func(nodes []corev1.Node) {
			for i := range nodes[:3] {
				nodes[i].CreationTimestamp = metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			}
			nodes[3].CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
		}, 0, []string{"hold back 1 now: node-d"}},
		"a taint that the template does not tolerate": {"", func(nodes []corev1.Node) {
			nodes[3].Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}, 0, []string{"of which it would measure 3", "not measured: node-d: the node is tainted with gpu"}},
		"two nodes": {"", func(nodes []corev1.Node) {
			for i := range nodes[2:] {
				nodes[i+2].Labels = nil
			}
		}, 0, []string{"2 nodes are too few to show how much boots differ", "there is no second peer to confirm a Fail"}},
		"one node": {"", func(nodes []corev1.Node) {
			for i := range nodes[1:] {
				nodes[i+1].Labels = nil
			}
		}, 1, []string{"hold back 0 now: none", "obstacle: node-a: there is no other node to measure it with", "CannotSettle", "LatencyGate up would not be accepted now"}},
		"peers without CPUs": {"", func(nodes []corev1.Node) {
			for i := range nodes {
				nodes[i].Status.Allocatable["cpu"] = resource.MustParse("500m")
			}
		}, 1, []string{"obstacle: spec.template.spec.placement.client: ", "whole CPUs", "InsufficientCPU"}},
		"no node of the gate": {"", func(nodes []corev1.Node) {
			for i := range nodes {
				nodes[i].Labels = nil
			}
		}, 0, []string{"0 nodes, of which it would measure 0"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			nodes := makeNodes("node-a", "node-b", "node-c", "node-d")
			for i := range nodes {
				nodes[i].Labels = map[string]string{"role": "fast"}
			}
			c.change(nodes)
			list, err := yaml.Marshal(corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: nodes})
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for file, content := range map[string][]byte{"gate.yaml": []byte(strings.Replace(fleet, "  template:", c.spec+"  template:", 1)), "nodes.yaml": list} {
				if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			code, stdout, stderr := run("plan", "-f", filepath.Join(dir, "gate.yaml"), "--nodes", filepath.Join(dir, "nodes.yaml"))
			if code != c.code {
				t.Errorf("exit code %d; it printed\n%s\nand said %q", code, stdout, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("no %q in\n%s%s", want, stdout, stderr)
				}
			}
		})
	}
}
