package evaluate

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// managerMemory is the limit of the manager's container, in MiB.
const managerMemory = 512

// inChild names the case of TestMemory that a child process runs.
const inChild = "TAILGATE_MEMORY_CASE"

// After each run only its own result is read: the number of reads is linear in the number of runs, not quadratic.
func TestResultsAreReadOnce(t *testing.T) {
	const runs = 40
	b := makeBenchmark()
	k := &keeper{content: func(string) map[string][]byte { return nil }}
	r := &Store{Live: k}
	for n := range runs {
		name := fmt.Sprintf("x-r%d", n+1)
		b.Status.Stored = append(b.Status.Stored, v1alpha1.StoredResult{Run: name, ConfigMap: name})
		k.benchmarks = map[string]*v1alpha1.LatencyBenchmark{b.Name: b}
		held, release := r.hold(b)
		if _, _, err := r.gather(t.Context(), held[b.UID], b, n%2 == 0); err != nil {
			t.Fatal(err)
		}
		release()
	}
	if read := k.read.Load(); read != runs {
		t.Errorf("%d results were read %d times", runs, read)
	}
}

// TestMemory runs the code that reads stored results in separate processes, whose peak memory the kernel reports.
func TestMemory(t *testing.T) {
	cases := map[string]func(*testing.T){
		"the largest results":         func(t *testing.T) { judgeTheLargest(t) },
		"1000 hostile ConfigMaps":     func(t *testing.T) { readHostile(t, false) },
		"hostile results of the pods": func(t *testing.T) { readHostile(t, true) },
	}
	if name := os.Getenv(inChild); name != "" {
		cases[name](t)
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(regexp.MustCompile(`VmHWM:\s+\d+`).FindString(string(status)))
		return
	}
	for name := range cases {
		t.Run(name, func(t *testing.T) {
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestMemory$", "-test.timeout", "60m")
			child.Env = append(os.Environ(), inChild+"="+name, "GOMEMLIMIT=off", "GOGC=100")
			begin := time.Now()
			out, err := child.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			peak := regexp.MustCompile(`VmHWM:\s+(\d+)`).FindSubmatch(out)
			if peak == nil {
				t.Fatalf("no peak in\n%s", out)
			}
			kib, _ := strconv.Atoi(string(peak[1]))
			t.Logf("peak of %d MiB, %s", kib>>10, time.Since(begin).Round(time.Second/10))
			if kib>>10 > managerMemory*3/4 {
				t.Errorf("a peak of %d MiB, more than three quarters of the manager's %d MiB", kib>>10, managerMemory)
			}
		})
	}
}

// memoryRounds returns the number of rounds of the largest benchmarks: 5 take seconds, and the 100 that the API allows with four
// variants take minutes.
func memoryRounds() int32 {
	if n, err := strconv.Atoi(os.Getenv("TAILGATE_MEMORY_ROUNDS")); err == nil {
		return int32(n)
	}
	return 5
}

// largest returns a benchmark of 4 variants with 100 cells each, the maximum of a status.
func largest(name string) *v1alpha1.LatencyBenchmark {
	b := makeBenchmark()
	b.Name, b.UID = name, types.UID("uid-"+name)
	b.Spec.Tool, b.Spec.Rounds = v1alpha1.ToolPinger, memoryRounds()
	b.Spec.LatencyType = v1alpha1.LatencyHalfRTT
	b.Spec.Workload.MessageSizes, b.Spec.Workload.RatesPerSecond = nil, nil
	for i := range int32(25) {
		b.Spec.Workload.MessageSizes = append(b.Spec.Workload.MessageSizes, 64+i)
	}
	for i := range int32(4) {
		b.Spec.Workload.RatesPerSecond = append(b.Spec.Workload.RatesPerSecond, 1000+i)
		b.Spec.Variants = append(b.Spec.Variants, v1alpha1.Variant{Name: fmt.Sprintf("v%d", i)})
	}
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, "Complete", ""))
	return b
}

// keeper is an API server with the ConfigMaps of benchmarks, which it creates when they are requested: 800 MiB of them
// must not be in memory at the same time.
type keeper struct {
	client.Reader
	benchmarks map[string]*v1alpha1.LatencyBenchmark
	content    func(run string) map[string][]byte
	// version is the version of all ConfigMaps.
	version string
	// strangers is the number of additional ConfigMaps, with all labels and a megabyte of annotations each.
	strangers int
	// read is the number of ConfigMaps that were read with their data.
	read atomic.Int32
}

func (k *keeper) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch o := into.(type) {
	case *v1alpha1.LatencyBenchmark:
		if b := k.benchmarks[key.Name]; b != nil {
			b.DeepCopyInto(o)
			return nil
		}
	case *corev1.ConfigMap:
		k.read.Add(1)
		o.ObjectMeta = k.meta(key.Name)
		o.BinaryData = k.content(key.Name)
		o.Data = map[string]string{result.KeyPods: string(o.BinaryData[result.KeyPods])}
		delete(o.BinaryData, result.KeyPods)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (k *keeper) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "perf", UID: types.UID("of-" + name), ResourceVersion: "1" + k.version}
}

// List returns pages like an API server, and fails if the request is not for pages of metadata.
func (k *keeper) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(options)
	list, ok := into.(*metav1.PartialObjectMetadataList)
	if !ok || o.Limit == 0 {
		return fmt.Errorf("%T is listed with its data, or without pages", into)
	}
	var b *v1alpha1.LatencyBenchmark
	for _, one := range k.benchmarks {
		if o.LabelSelector.Matches(labelsOf(pods.Labels(one.Name))) {
			b = one
		}
	}
	from, _ := strconv.Atoi(o.Continue)
	total := len(b.Status.Stored) + k.strangers
	for i := from; i < min(total, from+int(o.Limit)); i++ {
		m := metav1.PartialObjectMetadata{}
		if i < len(b.Status.Stored) {
			m.ObjectMeta = k.meta(b.Status.Stored[i].ConfigMap)
		} else {
			m.ObjectMeta = k.meta(fmt.Sprintf("stranger-%d", i))
			m.Annotations = map[string]string{"x": strings.Repeat(strconv.Itoa(i%10), 1<<20)}
		}
		list.Items = append(list.Items, m)
	}
	if next := from + int(o.Limit); next < total {
		list.Continue = strconv.Itoa(next)
	}
	return nil
}

type labelsOf map[string]string

func (l labelsOf) Has(label string) bool              { _, ok := l[label]; return ok }
func (l labelsOf) Get(label string) string            { return l[label] }
func (l labelsOf) Lookup(label string) (string, bool) { v, ok := l[label]; return v, ok }

func zipped(t *testing.T, text string) []byte { return zippedTimes(t, text, 1) }

// zippedTimes returns a repeated text, compressed; the repeated text itself is never in memory.
func zippedTimes(t *testing.T, text string, times int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for range times {
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// documents returns the documents of a run: a gzip member that names the run, and one that all runs of a role and variant share.
func documents(t *testing.T, fill func(variant string, cells []tool.Cell) []result.Cell, b *v1alpha1.LatencyBenchmark) func(run string) map[string][]byte {
	t.Helper()
	rest := map[string][]byte{}
	variantOf := map[string]string{}
	evidence := func(role string) result.Evidence {
		return result.Evidence{
			Node: "node-" + role, Kernel: "6.1.0", BootID: "boot-" + role, CPUsAllowed: "3", OnlineCPUs: "0-3", MeasuringCPU: 3, AgentCPU: 3,
			DeviceNUMANode: -1, Interface: "eth0", MTU: 1500,
			Facts:  map[string]string{"cpu.smt.sibling": "none", "cgroup.cpus-set": "3", "cgroup.cpu-max": "max 100000", "nic.carrier": "1"},
			Deltas: map[string]int64{"cgroup.stopped-us": 0, "nic.carrier-changes": 0},
		}
	}
	for _, run := range plan.Runs(b) {
		v := run.Variant.Name
		variantOf[run.Name] = v
		for _, role := range []string{v1alpha1.RoleClient, v1alpha1.RoleServer} {
			if rest[role+v] != nil {
				continue
			}
			d := result.Document{Version: result.Version, Variant: v, Attempt: 1, Role: role, Evidence: evidence(role)}
			cells := fill(v, run.Cells)
			d.Evidence.Paths = resulttest.ThroughKernel(cells)
			if role == v1alpha1.RoleClient {
				d.Cells = cells
			}
			text, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			// The field that is empty here is in the first member.
			rest[role+v] = zipped(t, strings.Replace(string(text[1:]), `"run":"",`, "", 1))
		}
	}
	return func(run string) map[string][]byte {
		begin := zipped(t, fmt.Sprintf(`{"run":%q,`, run))
		document := func(role string) []byte { return append(bytes.Clone(begin), rest[role+variantOf[run]]...) }
		return map[string][]byte{
			result.KeyClient: document(v1alpha1.RoleClient), result.KeyServer: document(v1alpha1.RoleServer),
			result.KeyPods: []byte(`{"client":{"podUID":"c"},"server":{"podUID":"s"}}`),
		}
	}
}

// store records the ConfigMaps and their digests in the status.
func store(b *v1alpha1.LatencyBenchmark, content func(run string) map[string][]byte) {
	for _, run := range plan.Runs(b) {
		c := content(run.Name)
		b.Status.Stored = append(b.Status.Stored, v1alpha1.StoredResult{
			ConfigMap: run.Name, Run: run.Name, SHA256: digest(c[result.KeyClient]), ServerSHA256: digest(c[result.KeyServer]), PodsSHA256: digest(c[result.KeyPods]),
		})
	}
}

// full returns cells whose documents have the maximum size of a client's document.
func full(t *testing.T) func(variant string, cells []tool.Cell) []result.Cell {
	random := rand.New(rand.NewPCG(7, 11))
	return func(_ string, cells []tool.Cell) []result.Cell {
		var out []result.Cell
		for _, planned := range cells {
			r := result.NewRecorder()
			for range 4_500 {
				r.Record(int64(1_000 * math.Exp(random.Float64()*17)))
			}
			h, err := r.Histogram()
			if err != nil {
				t.Fatal(err)
			}
			c := result.Cell{Cell: planned, Tool: "pinger", ToolVersion: "1", Histogram: h, Attribution: &tool.Attribution{Examined: 64}}
			for range 128 {
				c.Intervals = append(c.Intervals, tool.Interval{StartNs: random.Int64N(1e12), P50Ns: random.Int64N(1e6), P99Ns: random.Int64N(1e7)})
			}
			out = append(out, c)
		}
		return out
	}
}

// judgeTheLargest summarizes a benchmark with the largest results and judges it in comparison with an equally large one.
func judgeTheLargest(t *testing.T) {
	b, baseline := largest("after"), largest("before")
	api := &keeper{benchmarks: map[string]*v1alpha1.LatencyBenchmark{"after": b, "before": baseline}}
	contents := map[string]func(string) map[string][]byte{}
	for name, of := range api.benchmarks {
		contents[name] = documents(t, full(t), of)
		store(of, contents[name])
	}
	api.content = func(run string) map[string][]byte {
		name, _, _ := strings.Cut(run, "-")
		return contents[name](run)
	}
	if size := len(api.content(b.Status.Stored[0].Run)[result.KeyClient]); size < 500<<10 || size > 836<<10 {
		t.Fatalf("a result of %d KiB is not among the largest", size>>10)
	}
	r := &Store{Live: api}
	if err := r.Summarize(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(b.Status.Stored) != 4*int(memoryRounds()) || len(b.Status.Results) != 400 {
		t.Fatalf("%d runs with %d cells", len(b.Status.Stored), len(b.Status.Results))
	}
	v, err := judgedBy(t, r, b, &v1alpha1.Criteria{
		Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}}},
		Rules:    []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "5%"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if v.Outcome != v1alpha1.VerdictPass {
		t.Errorf("judged %s: %s", v.Outcome, v.Message)
	}
	for _, kept := range r.kept {
		if kept.benchmark == baseline.UID && kept.rounds.Merges {
			t.Error("the rounds of the baseline are merged")
		}
	}
}

// readHostile reads ConfigMaps with small texts that expand to large ones; named is true if the status has their digests.
func readHostile(t *testing.T, named bool) {
	b := largest("x")
	bombs := [][]byte{
		slices.Concat(zipped(t, `{"version":1,"cells":[`), zippedTimes(t, strings.Repeat("{},", 1<<10), 64<<10/3), zipped(t, "{}]}")),
		zippedTimes(t, strings.Repeat(" ", 1<<10), 128<<10),
	}
	content := func(run string) map[string][]byte {
		bomb := bombs[len(run)%2]
		return map[string][]byte{result.KeyClient: bomb, result.KeyServer: bomb, result.KeyPods: []byte("{}")}
	}
	store(b, content)
	if !named {
		for i := range b.Status.Stored {
			b.Status.Stored[i].SHA256 = digest(nil)
		}
	}
	r := &Store{Live: &keeper{benchmarks: map[string]*v1alpha1.LatencyBenchmark{"x": b}, content: content, strangers: 600}}
	if err := r.Summarize(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(b.Status.Stored) != 0 {
		t.Errorf("%d hostile results are taken", len(b.Status.Stored))
	}
}
