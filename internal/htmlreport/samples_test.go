package htmlreport

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/imported"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// sample reads a benchmark of config/samples, with the defaults that the API server would set.
func sample(t *testing.T, name string) *v1alpha1.LatencyBenchmark {
	t.Helper()
	b := &v1alpha1.LatencyBenchmark{}
	readSample(t, name, b)
	b.Namespace = "perf"
	setDefaults(&b.Spec.MeasurementSpec)
	return b
}

func readSample(t *testing.T, name string, into any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../config/samples", name))
	if err == nil {
		err = yaml.UnmarshalStrict(content, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func setDefaults(s *v1alpha1.MeasurementSpec) {
	if s.Rounds == 0 {
		s.Rounds = 5
	}
	if s.Network.Type == "" {
		s.Network.Type = v1alpha1.NetworkPod
	}
	if s.LatencyType == "" {
		s.LatencyType = v1alpha1.LatencyHalfRTT
	}
	if s.Placement.CPUs == 0 {
		s.Placement.CPUs = 1
	}
	if len(s.Workload.Protocols) == 0 {
		s.Workload.Protocols = []v1alpha1.Protocol{v1alpha1.ProtocolTCP}
	}
}

// shape is a distribution of round trips: most of them near a median, some in a slower mode, and a tail.
type shape struct {
	median, sigma float64
	// slow is the share of a second mode, which is slower by a factor.
	slow, factor float64
	// tail is the share of samples in a Pareto tail with an exponent, which begins at a multiple of the median.
	tail, from, exponent float64
}

var (
	quick = shape{median: 9_400, sigma: 0.045, slow: 0.02, factor: 1.35, tail: 0.0012, from: 1.7, exponent: 2.6}
	slow  = shape{median: 15_800, sigma: 0.11, slow: 0.05, factor: 1.6, tail: 0.004, from: 2, exponent: 2.2}
)

// scaled returns the shape with another median.
func (s shape) scaled(by float64) shape { s.median *= by; return s }

// draw returns one round trip.
func (s shape) draw(r *rand.Rand) float64 {
	switch u := r.Float64(); {
	case u < s.tail:
		return s.median * s.from * math.Pow(1-r.Float64(), -1/s.exponent)
	case u < s.tail+s.slow:
		return s.median * s.factor * math.Exp(s.sigma*1.6*r.NormFloat64())
	default:
		return s.median * math.Exp(s.sigma*r.NormFloat64())
	}
}

// drawn returns a histogram of count round trips. Only those of the tail are drawn individually.
func (s shape) drawn(t *testing.T, r *rand.Rand, count int64, extra ...int64) result.Histogram {
	t.Helper()
	const draws = 4_000
	body := s
	body.tail = 0
	recorder := result.NewRecorder()
	inTail := int64(float64(count) * s.tail)
	n := min(count-inTail, draws)
	for i := range n {
		recorder.RecordN(int64(body.draw(r)), (count-inTail)/n+boolean(i < (count-inTail)%n))
	}
	only := s
	only.tail = 1
	for range inTail {
		recorder.Record(min(int64(only.draw(r)), 4_000_000))
	}
	for _, ns := range extra {
		recorder.Record(ns)
	}
	h, err := recorder.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// hardware returns the observations of an agent on a server with an SR-IOV NIC.
func hardware(role string, v v1alpha1.Variant) result.Evidence {
	node, cpu := "hft-a", int32(8)
	if role == v1alpha1.RoleServer {
		node, cpu = "hft-b", 10
	}
	e := result.Evidence{
		Node: node, Kernel: "5.14.0-503.11.1.el9_5.x86_64", BootID: "boot-of-" + node, CPUModel: "Intel(R) Xeon(R) Gold 6246R CPU @ 3.40GHz",
		CPUsAllowed: fmt.Sprint(cpu), OnlineCPUs: "0-31", MeasuringCPU: cpu, AgentCPU: cpu, CPUNUMANode: 1, DeviceNUMANode: -1, ThreadSiblings: fmt.Sprint(cpu),
		Clocksource: "tsc", Interface: "eth0", Address: "10.244.1.7", MTU: 1500, Driver: "veth", AgentVersion: "3f2a91c",
		Facts: map[string]string{
			"cpu.smt.sibling": "none", "cgroup.cpus-set": fmt.Sprint(cpu), "cgroup.cpu-max": "max 100000", "nic.carrier": "1", "cpu.hypervisor": "no", "cpu.governor": "performance", "cpu.turbo": "off",
			"cpu.isolated": "yes", "cpu.nohz-full": "yes", "cpu.cstates": "POLL 0us; C1 2us; [C1E 10us]; [C6 133us]", "kernel.arg.isolcpus": "8-15", "kernel.arg.nohz_full": "8-15",
			"dmi.sys_vendor": "HPE", "dmi.product_name": "ProLiant DL380 Gen10", "mm.thp": "never", "sysctl.kernel.numa_balancing": "0", "cpu.microcode": "0x5003707",
			"nic.speed": "25000", "irq.on-cpu": map[string]string{"hft-a": "1", "hft-b": "3"}[node],
		},
		Deltas:            map[string]int64{"elapsed-ms": 95_204, "cgroup.stopped-us": 0, "nic.carrier-changes": 0, "irq": 12, "interrupt.loc": 9_540, "interrupt.res": 3, "softirq.net_rx": 2_160_012, "cpu.irq-ms": 40, "tcp.RetransSegs": 0},
		VoluntarySwitches: 2_160_000, InvoluntarySwitches: 3,
	}
	if v.Network.Type.Attached() {
		e.Interface, e.Address, e.MTU, e.Driver = "net1", "192.168.40.7", 1500, "macvlan"
	}
	if v.Network.Type.HasDevice() {
		e.Driver, e.Firmware, e.DeviceNUMANode, e.PCIAddress, e.PCISource = "sfc", "8.5.2.1000 rx1 tx1", 1, "0000:3b:02.3", result.PCIFromSysfs
		e.AllocatedDevices = map[string]string{"PCIDEVICE_" + strings.NewReplacer(".", "_", "/", "_").Replace(strings.ToUpper(v.Network.ResourceName())): e.PCIAddress}
		e.Facts["nic.function"], e.Facts["nic.firmware-variant"], e.Facts["nic.port"] = "VF", "full-feature", "0000:3b:00.0"
	}
	if strings.Contains(v.Name, "9000") {
		e.MTU = 9000
	}
	return e
}

// measured returns a complete benchmark with all its runs. fill sets the results of each cell.
func measured(b *v1alpha1.LatencyBenchmark, fill func(run plan.Run, c *result.Cell)) export.Benchmark {
	begin := metav1.NewTime(time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC))
	out := export.Benchmark{Object: b}
	now := begin.Time
	for i, run := range plan.Runs(b) {
		s := result.Stored{
			Client:     result.Document{Run: run.Name, Variant: run.Variant.Name, Role: v1alpha1.RoleClient, Evidence: hardware(v1alpha1.RoleClient, run.Variant)},
			Server:     result.Document{Run: run.Name, Variant: run.Variant.Name, Role: v1alpha1.RoleServer, Evidence: hardware(v1alpha1.RoleServer, run.Variant)},
			ClientSeen: result.Seen{PodUID: "c", ImageID: "sha256:ab"}, ServerSeen: result.Seen{PodUID: "s", ImageID: "sha256:ab"},
		}
		s.Client.Evidence.Deltas["interrupt.loc"] += int64(i) * 7
		for _, cell := range run.Cells {
			c := result.Cell{Cell: cell, Tool: string(b.Spec.Tool), ToolVersion: "1.0"}
			fill(run, &c)
			s.Client.Cells = append(s.Client.Cells, c)
			now = now.Add(cell.Warmup + cell.Duration)
		}
		s.Client.Evidence.Paths = resulttest.ThroughKernel(s.Client.Cells)
		s.Server.Evidence.Paths = s.Client.Evidence.Paths
		now = now.Add(7 * time.Second)
		out.Runs = append(out.Runs, s)
		b.Status.Stored = append(b.Status.Stored, v1alpha1.StoredResult{ConfigMap: run.Name, Run: run.Name,
			SHA256: strings.Repeat(fmt.Sprintf("%08x", i*2654435761), 8), ServerSHA256: strings.Repeat(fmt.Sprintf("%08x", i*40503+7), 8)})
	}
	b.Status.StartTime, b.Status.CompletionTime = &begin, new(metav1.NewTime(now))
	b.Status.Pair = &v1alpha1.Pair{ClientNode: "hft-a", ServerNode: "hft-b"}
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, "Complete", "all runs are measured"))
	return out
}

// judged adds the verdict of its criteria to a benchmark.
func judged(t *testing.T, b export.Benchmark, baseline *judge.Results) export.Benchmark {
	t.Helper()
	collected, err := rounds.Of(b.Object.Spec, b.Runs...)
	if err != nil {
		t.Fatal(err)
	}
	j, err := judge.Evaluate(*b.Object.Spec.Criteria, judge.Results{Collection: collected}, baseline)
	if err != nil {
		t.Fatal(err)
	}
	b.Object.Status.Verdict = j.Status()
	status := map[v1alpha1.VerdictOutcome]metav1.ConditionStatus{v1alpha1.VerdictPass: metav1.ConditionTrue, v1alpha1.VerdictFail: metav1.ConditionFalse}[j.Outcome]
	if status == "" {
		status = metav1.ConditionUnknown
	}
	b.Object.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, status, string(j.Outcome), b.Object.Status.Verdict.Message))
	return b
}

// course returns the intervals of a round, one of which has an interruption.
func course(r *rand.Rand, s shape, n int, length time.Duration, perInterval int64, interrupted int) []tool.Interval {
	var all []tool.Interval
	for i := range n {
		wobble := 1 + 0.015*r.NormFloat64()
		in := tool.Interval{StartNs: int64(i) * int64(length), LengthNs: int64(length), Count: perInterval,
			P50Ns: int64(s.median * wobble), P99Ns: int64(s.median * wobble * math.Exp(2.3*s.sigma+0.2)), P999Ns: int64(s.median * 2.1), MaxNs: int64(s.median * (3 + 5*r.ExpFloat64()))}
		if i == interrupted {
			in.MaxNs, in.P99Ns = 1_870_000, in.P99Ns*4
		}
		all = append(all, in)
	}
	return all
}

// slowestOf adds the slowest sample of each interval to an attribution, as the tool reports them: at most 64, the slowest
// first.
func slowestOf(r *rand.Rand, intervals []tool.Interval, a tool.Attribution) *tool.Attribution {
	for _, in := range intervals {
		o := tool.Outlier{AtNs: in.StartNs + r.Int64N(in.LengthNs), RTTNs: in.MaxNs, Samples: 1 + r.Int64N(4), Where: places[r.IntN(len(places))].where, ClientGapNs: r.Int64N(in.MaxNs)}
		if o.Where != tool.WhereUndetermined {
			o.ServerGapNs = new(r.Int64N(in.MaxNs))
		}
		a.Slowest = append(a.Slowest, o)
	}
	slices.SortFunc(a.Slowest, func(x, y tool.Outlier) int { return int(y.RTTNs - x.RTTNs) })
	a.Slowest = a.Slowest[:min(64, len(a.Slowest))]
	return &a
}

func ladderSample(t *testing.T) []export.Benchmark {
	b := sample(t, "experiments/percentile-ladder.yaml")
	r := rand.New(rand.NewPCG(1, 1))
	return []export.Benchmark{measured(b, func(run plan.Run, c *result.Cell) {
		s := slow
		if run.Variant.Name == "on" {
			s = quick
		}
		s = s.scaled(1 + 0.02*r.NormFloat64())
		interrupted := -1
		var extra []int64
		if run.Round == 2 && run.Variant.Name == "off" {
			interrupted, extra = 61, []int64{1_870_000, 1_722_000, 1_410_000}
		}
		c.Start, c.Histogram = tool.StartIntended, s.drawn(t, r, 2_162_000, extra...)
		actual := s.scaled(0.99).drawn(t, r, 2_162_000)
		c.ActualStart = &actual
		c.Intervals = course(r, s, 94, time.Second, 23_000, interrupted)
		c.Attribution = slowestOf(r, c.Intervals, tool.Attribution{Beyond: 2_162, Examined: 1_000, Client: 412, Server: 367, Both: 61, Neither: 148, Undetermined: 12, ClientSeesGaps: run.Variant.Name == "on", ServerSeesGaps: run.Variant.Name == "on"})
	})}
}

// shortSample has rounds of half a second, which are one interval each, with some slow samples.
func shortSample(t *testing.T) []export.Benchmark {
	b := sample(t, "first.yaml")
	r := rand.New(rand.NewPCG(10, 10))
	return []export.Benchmark{measured(b, func(run plan.Run, c *result.Cell) {
		s := slow.scaled(1 + 0.05*r.NormFloat64())
		c.Histogram = s.drawn(t, r, 30_000)
		parts := course(r, s, 30, 500*time.Millisecond/30, 1_000, int(run.Round))
		c.Attribution = slowestOf(r, parts, tool.Attribution{Beyond: 30, Examined: 30, Client: 30, ClientSeesGaps: true, ServerSeesGaps: true})
		c.Intervals = course(r, s, 1, 500*time.Millisecond, 30_000, -1)
		c.Intervals[0].MaxNs = c.Attribution.Slowest[0].RTTNs
	})}
}

func sweepSample(t *testing.T) []export.Benchmark {
	b := sample(t, "experiments/pingpong-sweep.yaml")
	b.Spec.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{
		{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "5%"}, Variants: []string{"vf"}},
		{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}, Variants: []string{"vf"}},
	}, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: "pod"}}}
	r := rand.New(rand.NewPCG(2, 2))
	return []export.Benchmark{judged(t, measured(b, func(run plan.Run, c *result.Cell) {
		s := shape{median: 3_440, sigma: 0.03, slow: 0.01, factor: 1.2, tail: 0.0008, from: 1.4, exponent: 3}
		if run.Variant.Name == "pod" {
			s = s.scaled(1.9)
		}
		s = s.scaled((1 + float64(c.MessageSize)/2_800) * (1 + 0.01*r.NormFloat64()))
		count := int64(3e9 / s.median / 1.1)
		c.Histogram = s.drawn(t, r, min(count, 842_000))
	}), nil)}
}

func networksSample(t *testing.T) []export.Benchmark {
	b := sample(t, "experiments/networks.yaml")
	r := rand.New(rand.NewPCG(3, 3))
	return []export.Benchmark{measured(b, func(run plan.Run, c *result.Cell) {
		mean, rate := 58_000.0, 9.4e9
		switch {
		case run.Variant.Name == "pod":
			mean, rate = 91_000, 4.8e9
		case strings.HasPrefix(run.Variant.Name, "macvlan"):
			mean, rate = 66_000, 8.9e9
		}
		if strings.HasSuffix(run.Variant.Name, "9000") {
			rate = 9.9e9
		}
		mean *= 1 + 0.012*r.NormFloat64()
		if c.Stream {
			c.Bandwidth = &tool.Bandwidth{BitsPerSecond: rate * (1 - 0.004*r.ExpFloat64()), SentBitsPerSecond: rate}
			if c.Protocol == v1alpha1.ProtocolTCP {
				c.Bandwidth.Retransmits = new(int64(r.IntN(4)))
			}
			return
		}
		whole := func(ns float64) int64 { return int64(ns/1000) * 1000 }
		c.Own = &tool.Own{Count: int64(30e9 / mean), MeanNs: mean, MinNs: whole(mean * 0.8), MaxNs: whole(mean * 9), StdDevNs: whole(mean * 0.07), P50Ns: whole(mean * 0.99), P90Ns: whole(mean * 1.08), P99Ns: whole(mean * 1.3), StepNs: 1000}
	})}
}

func matrixSample(t *testing.T) []export.Benchmark {
	b := sample(t, "experiments/rate-size-matrix.yaml")
	b.Spec.Variants = nil
	r := rand.New(rand.NewPCG(4, 4))
	return []export.Benchmark{measured(b, func(run plan.Run, c *result.Cell) {
		s := quick.scaled((0.9 + float64(c.MessageSize)/2_500 + float64(c.RatePerSecond)/400_000) * (1 + 0.015*r.NormFloat64()))
		c.Start, c.Histogram = tool.StartIntended, s.drawn(t, r, int64(c.RatePerSecond)*1200)
		c.Intervals = course(r, s, 120, 10*time.Second, int64(c.RatePerSecond)*10, r.IntN(400))
		c.Attribution = &tool.Attribution{Beyond: int64(c.RatePerSecond) * 12 / 10, Examined: 1_000, Client: 300 + r.Int64N(100), Server: 300 + r.Int64N(100), Both: 40, Neither: 160, ClientSeesGaps: true, ServerSeesGaps: true}
	})}
}

// gatedSample measures UDP over VFs, with criteria whose candidate is slower by a factor, in rounds that differ.
func gatedSample(t *testing.T, by, spread float64, change ...func(*export.Benchmark)) []export.Benchmark {
	b := sample(t, "gated.yaml")
	b.Name = "example"
	b.Spec.Rounds, b.Spec.Workload.Protocols = 10, []v1alpha1.Protocol{v1alpha1.ProtocolUDP}
	b.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_vf", NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf"}}}}
	b.Spec.Criteria.Rules = []v1alpha1.Rule{
		{Metric: v1alpha1.MetricP50, Max: v1alpha1.Limit{Text: "40us"}}, {Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "10%"}, Variants: []string{"spin"}},
		{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "10%"}, Variants: []string{"spin"}}, {Metric: v1alpha1.MetricLost, Max: v1alpha1.Limit{Text: "500", Number: true}},
	}
	r := rand.New(rand.NewPCG(5, 5))
	out := measured(b, func(run plan.Run, c *result.Cell) {
		s := slow
		if run.Variant.Name == "spin" {
			s = s.scaled(by)
		}
		s = s.scaled(1 + spread*r.NormFloat64())
		c.Histogram = s.drawn(t, r, 125_000)
		if run.Variant.Name == "block" && run.Round == 4 {
			c.Lost = 37
		}
		c.Intervals = course(r, s, 8, 250*time.Millisecond, 15_000, -1)
		if c.Lost > 0 {
			c.Intervals[5].Lost = 37
		}
	})
	for _, f := range change {
		f(&out)
	}
	return []export.Benchmark{judged(t, out, nil)}
}

// simulated puts both endpoints on one kernel.
func simulated(b *export.Benchmark) {
	for i := range b.Runs {
		b.Runs[i].Server.Evidence.BootID = b.Runs[i].Client.Evidence.BootID
	}
}

// beforeAfterSample has two benchmarks with different kernels. The second has a failed attempt.
func beforeAfterSample(t *testing.T) []export.Benchmark {
	var all []export.Benchmark
	for i, name := range []string{"before-the-upgrade", "after-the-upgrade"} {
		b := sample(t, "vf.yaml")
		b.Name, b.Spec.Rounds, b.Spec.Variants = name, 10, nil
		r := rand.New(rand.NewPCG(6, uint64(i)))
		one := measured(b, func(_ plan.Run, c *result.Cell) {
			s := quick.scaled((1 + 0.07*float64(i)) * (1 + 0.01*r.NormFloat64()))
			c.Histogram = s.drawn(t, r, 400_000)
		})
		if i == 1 {
			for k := range one.Runs {
				for _, e := range []*result.Evidence{&one.Runs[k].Client.Evidence, &one.Runs[k].Server.Evidence} {
					e.Kernel, e.BootID = "5.14.0-570.12.1.el9_6.x86_64", e.BootID+"-2"
				}
			}
			one.Runs[6].Server.Evidence.Facts["cpu.governor"] = "powersave"
			one.Runs[6].Server.Evidence.CPUsAllowed = "0-31"
			b.Status.Attempts = []v1alpha1.Attempt{{Run: name + "-r3", Attempt: 1, Outcome: v1alpha1.Outcome{
				Reason: "TopologyAffinityError", Message: "the kubelet of hft-b found no CPUs on the NUMA node of the device; it was tried again",
				CompletionTime: metav1.NewMicroTime(b.Status.StartTime.Add(41 * time.Second)),
			}}}
		}
		all = append(all, one)
	}
	return all
}

// pairsSample measures all pairs of a number of nodes, one of which is slow as a server.
func pairsSample(t *testing.T, nodes int) []export.Benchmark {
	m := &v1alpha1.LatencyMatrix{}
	readSample(t, "all-pairs.yaml", m)
	m.Namespace = "perf"
	setDefaults(&m.Spec.Template.Spec)
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("rack-%02d", i+1))
	}
	out := export.Benchmark{Matrix: m}
	r := rand.New(rand.NewPCG(7, 7))
	for _, slot := range plan.Matrix(v1alpha1.LatencyMatrixSpec{Topology: v1alpha1.TopologyAllPairs, Parallelism: int32(nodes)}, names, "") {
		for _, pair := range slot {
			one := &v1alpha1.LatencyBenchmark{Spec: m.Spec.Template.DeepCopy().Benchmark()}
			one.Namespace, one.Name = m.Namespace, m.PairName(int32(len(out.Pairs)+1))
			one.Spec.Placement = v1alpha1.Placement{CPUs: 1, Client: &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: pair.ClientNode}}, Server: &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: pair.ServerNode}}}
			by := 1 + 0.03*r.NormFloat64()
			if pair.ServerNode == "rack-03" || pair.ClientNode == "rack-03" {
				by *= 1.4
			}
			if nodes < 20 && len(out.Pairs) < 20 {
				m := measured(one, func(_ plan.Run, c *result.Cell) { c.Histogram = quick.scaled(by).drawn(t, r, 30_000) })
				collected, err := rounds.Of(one.Spec, m.Runs...)
				if err != nil {
					t.Fatal(err)
				}
				s := summary.Summarize(collected)
				one.Status.Results, one.Status.Endpoints, one.Status.Warnings = s.Results, s.Endpoints, s.Warnings
			} else {
				line := v1alpha1.CellResult{Variant: plan.DefaultVariant, Name: "tcp-64", LatencyType: v1alpha1.ResultLatencyType(one.Spec.LatencyType), Rounds: 3, Samples: 90_000,
					Percentiles: []v1alpha1.PercentileResult{
						{Name: v1alpha1.P50, Nanoseconds: int64(4_700 * by)}, {Name: v1alpha1.P99, Nanoseconds: int64(6_900 * by * (1 + 0.1*r.ExpFloat64()))},
					}, NeedsSamples: 100_000}
				one.Status.Results = []v1alpha1.CellResult{line}
			}
			one.Status.Pair = &v1alpha1.Pair{ClientNode: pair.ClientNode, ServerNode: pair.ServerNode}
			out.Pairs = append(out.Pairs, export.Benchmark{Object: one})
		}
	}
	last := out.Pairs[len(out.Pairs)-1].Object
	last.Status.Results = nil
	last.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonQueued, "its nodes are taken by perf/other"))
	m.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonQueued, fmt.Sprintf("%d of %d pairs are measured", len(out.Pairs)-1, len(out.Pairs))))
	out.Object = m.Overview()
	return []export.Benchmark{out}
}

// roundsSample has many rounds of one cell.
func roundsSample(t *testing.T, n int32, median float64) []export.Benchmark {
	b := sample(t, "vf.yaml")
	b.Name, b.Spec.Rounds, b.Spec.Variants = fmt.Sprintf("rounds-%d", n), n, nil
	r := rand.New(rand.NewPCG(11, 11))
	return []export.Benchmark{measured(b, func(_ plan.Run, c *result.Cell) {
		c.Histogram = shape{median: median, sigma: 0.04}.drawn(t, r, 120_000)
	})}
}

// named replaces the nodes of a matrix by long names, and sets the p50 of its first pairs.
func named(all []export.Benchmark, format string, first ...int64) []export.Benchmark {
	for i, p := range all[0].Pairs {
		pair := p.Object.Status.Pair
		for _, node := range []*string{&pair.ClientNode, &pair.ServerNode} {
			*node = fmt.Sprintf(format, strings.TrimPrefix(*node, "rack-"))
		}
		for j := range p.Object.Status.Results {
			for k := range p.Object.Status.Results[j].Percentiles {
				if q := &p.Object.Status.Results[j].Percentiles[k]; i < len(first) && q.Name == v1alpha1.P50 {
					q.Nanoseconds = first[i]
				}
			}
		}
	}
	return all
}

// mixedSample has one benchmark measured as half round trips, with ten rounds, and one as full ones, with two.
func mixedSample(t *testing.T) []export.Benchmark {
	all := beforeAfterSample(t)
	all[1].Object.Spec.LatencyType = v1alpha1.LatencyRTT
	return all
}

// emptySample has too few samples for any percentile, or none.
func emptySample(t *testing.T, samples int64) []export.Benchmark {
	b := sample(t, "first.yaml")
	r := rand.New(rand.NewPCG(12, 12))
	return []export.Benchmark{measured(b, func(_ plan.Run, c *result.Cell) {
		c.Histogram, c.Lost = quick.drawn(t, r, samples), 9
		c.Intervals = []tool.Interval{{LengthNs: 1e9}, {StartNs: 1e9, LengthNs: 1e9, Lost: 9}, {StartNs: 2e9, LengthNs: 1e9}}
	})}
}

// largeSample has twenty cells in ten rounds with courses of 128 intervals and slow samples: the largest report that must
// stay below a megabyte.
func largeSample(t *testing.T) []export.Benchmark {
	b := sample(t, "experiments/rate-size-matrix.yaml")
	b.Name, b.Spec.Rounds, b.Spec.Variants = "large", 10, nil
	b.Spec.Workload.MessageSizes, b.Spec.Workload.RatesPerSecond = []int32{16, 64, 256, 512, 1024}, []int32{1000, 5000, 10000, 50000}
	r := rand.New(rand.NewPCG(8, 8))
	var drawn []result.Histogram
	for range 5 {
		drawn = append(drawn, quick.scaled(1+0.02*r.NormFloat64()).drawn(t, r, 1_200_000))
	}
	return []export.Benchmark{measured(b, func(_ plan.Run, c *result.Cell) {
		s := quick.scaled((1 + float64(c.MessageSize)/3_000) * (1 + 0.02*r.NormFloat64()))
		c.Start, c.Histogram = tool.StartIntended, drawn[r.IntN(len(drawn))]
		c.Intervals = course(r, s, 128, 10*time.Second, 10_000, r.IntN(1_000))
		c.Attribution = slowestOf(r, c.Intervals, tool.Attribution{Beyond: 1_200, Examined: 1_000, Client: 300, Server: 400, Both: 40, Neither: 160, Undetermined: 100, ClientSeesGaps: true, ServerSeesGaps: true})
	})}
}

// hostileSample has markup in every field that people or pods can write.
func hostileSample(t *testing.T) []export.Benchmark {
	const evil = `</script><script>document.title="owned"</script><img src=x onerror=alert(1)>`
	b := sample(t, "vf.yaml")
	b.Name, b.Spec.Rounds = evil, 1
	b.Spec.Variants = []v1alpha1.Variant{{Name: evil}, {Name: `"'><b>`}}
	r := rand.New(rand.NewPCG(9, 9))
	out := measured(b, func(_ plan.Run, c *result.Cell) {
		c.Histogram, c.Warnings = quick.drawn(t, r, 5_000), []string{evil}
		c.Intervals = course(r, quick, 4, time.Second, 1_000, -1)
	})
	for i := range out.Runs {
		out.Runs[i].Client.Evidence.Facts["nic.firmware"] = evil
		out.Runs[i].Client.Evidence.Facts[evil] = "x"
		out.Runs[i].Server.Evidence.Node = evil
	}
	return []export.Benchmark{out}
}

// samples returns a sample of each kind, by name.
func samples() map[string]func(*testing.T) []export.Benchmark {
	return map[string]func(*testing.T) []export.Benchmark{
		"percentile-ladder": ladderSample, "pingpong-sweep": sweepSample, "networks": networksSample, "rate-size-matrix": matrixSample,
		"pass":         func(t *testing.T) []export.Benchmark { return gatedSample(t, 0.6, 0.02) },
		"fail":         func(t *testing.T) []export.Benchmark { return gatedSample(t, 1.35, 0.03, simulated) },
		"inconclusive": func(t *testing.T) []export.Benchmark { return gatedSample(t, 1.09, 0.06) },
		"before-after": beforeAfterSample, "short": shortSample,
		"all-pairs":      func(t *testing.T) []export.Benchmark { return pairsSample(t, 7) },
		"many-pairs":     func(t *testing.T) []export.Benchmark { return pairsSample(t, 60) },
		"published":      publishedSample,
		"hostile":        hostileSample,
		"half-and-full":  mixedSample,
		"long-words":     longWordsSample,
		"thousandfold":   thousandfoldSample,
		"set-back":       setBackSample,
		"twenty-nodes":   func(t *testing.T) []export.Benchmark { return pairsSample(t, 20) },
		"lost":           lostSample,
		"twenty-rounds":  func(t *testing.T) []export.Benchmark { return roundsSample(t, 20, 9_400) },
		"hundred-rounds": func(t *testing.T) []export.Benchmark { return roundsSample(t, 100, 40_000_000) },
		"long-names": func(t *testing.T) []export.Benchmark {
			return named(pairsSample(t, 8), "ip-10-0-17-1%s.eu-central-1.compute.internal", 4_700_000)
		},
		"sixteen-nodes": func(t *testing.T) []export.Benchmark {
			return named(pairsSample(t, 16), "worker-%s.cluster.example.com", 1_234_567_890)
		},
	}
}

// publishedSample returns published tables, whose tools reported some percentiles and no samples.
func publishedSample(t *testing.T) (all []export.Benchmark) {
	t.Helper()
	for _, name := range []string{"sfnt-e5-2620v4-ull", "sfnt-e5-2620v4-full-feature", "sfnt-gold-6246-vm", "netperf-sparc-t7-1"} {
		b, err := imported.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// names returns the names in order.
func names(all map[string]func(*testing.T) []export.Benchmark) []string {
	var out []string
	for name := range all {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// longWordsSample has notes, names of nodes and an error that are one long word each.
func longWordsSample(t *testing.T) []export.Benchmark {
	t.Helper()
	all := beforeAfterSample(t)
	all[0].Object.Spec.Notes = []v1alpha1.Note{{Name: "switch", Value: "交换机-七号"}, {Name: "ticket", Value: "https://tickets.example.test/browse?q=" + strings.Repeat("a", 218)}}
	all[1].Object.Spec.Notes = []v1alpha1.Note{{Name: "switch", Value: "交换机-八号"}, {Name: "ticket", Value: strings.Repeat("y", 256)}}
	node := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 61)
	all[0].Object.Status.Pair = &v1alpha1.Pair{ClientNode: node, ServerNode: "hft-b"}
	all[1].Object.Name = strings.Repeat("n", 52)
	all[1].Object.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionFalse, Reason: "Failed", Message: "/srv/" + strings.Repeat("p", 300),
	}}
	return all
}

// thousandfoldSample compares two benchmarks whose ratios are beyond every axis.
func thousandfoldSample(t *testing.T) []export.Benchmark {
	t.Helper()
	var all []export.Benchmark
	for i, name := range []string{"onload", "pod-network-with-a-stall"} {
		b := sample(t, "first.yaml")
		b.Name, b.Spec.Rounds = name, 10
		r := rand.New(rand.NewPCG(6, uint64(i)))
		all = append(all, measured(b, func(_ plan.Run, c *result.Cell) {
			if i == 0 {
				c.Histogram = quick.scaled(1+0.01*r.NormFloat64()).drawn(t, r, 400_000)
				return
			}
			recorder := result.NewRecorder()
			recorder.RecordN(int64(9500+r.IntN(100)), 400_000)
			recorder.RecordN(int64(14_000_000+r.IntN(1_000_000)), 90_000)
			var err error
			if c.Histogram, err = recorder.Histogram(); err != nil {
				t.Fatal(err)
			}
		}))
	}
	return all
}

// setBackSample is a benchmark during which the clock of the cluster was set back.
func setBackSample(t *testing.T) []export.Benchmark {
	t.Helper()
	all := gatedSample(t, 0.6, 0.02)
	all[0].Object.Status.CompletionTime = new(metav1.NewTime(all[0].Object.Status.StartTime.Add(-3 * time.Minute)))
	return all
}

// lostSample has a rule on lost messages, and a latency that is unbounded because messages were lost.
func lostSample(t *testing.T) []export.Benchmark {
	t.Helper()
	b := sample(t, "first.yaml")
	b.Name, b.Spec.Rounds = "lost", 10
	b.Spec.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{
		{Metric: v1alpha1.MetricP50, Max: v1alpha1.Limit{Text: "10us"}}, {Metric: "p99", Max: v1alpha1.Limit{Text: "20us"}}, {Metric: "lost", Max: v1alpha1.Limit{Text: "0"}},
	}}
	r := rand.New(rand.NewPCG(14, 14))
	return []export.Benchmark{judged(t, measured(b, func(_ plan.Run, c *result.Cell) {
		c.Histogram, c.Lost = quick.scaled(1+0.01*r.NormFloat64()).drawn(t, r, 100_000), 4_000+r.Int64N(100)
	}), nil)}
}
