//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

const (
	// rate is the number of messages per second that are sent for seconds. Two nodes that share two cores sustain it, and
	// percentiles up to p99.9 have enough samples.
	rate, seconds = 5_000, 5
	// An endpoint is stopped for frozen out of stallSeconds, during which every fourth message at stallRate is due. These
	// are late by between 0 and 1200 ms, so that p90 is 700 ms and p99 is 1150 ms. The slowest samples are those that the
	// stop delays for nearly all of its duration. Its cause is named unless another interruption takes half as long, and a
	// busy machine does not stop a process for so long. So few messages fit into the sockets of an endpoint that does not
	// read.
	frozen, stallRate, stallSeconds = 1200 * time.Millisecond, 2_000, 5
	// cut is the time for which the cable is cut; every fiftieth message at rate is sent in it.
	cut = 100 * time.Millisecond
	// Over TCP, the slowest messages are those that wait for resentCut and for the segment that is sent again after it, longer than
	// a busy machine stops a process. At resentRate, the client's socket has room for the messages of that time: a client that waits
	// for room would be the cause, and not the network.
	resentRate, resentCut = 500, 400 * time.Millisecond
	// starts is the longest time from a benchmark's creation to the start of its tool, ends from the cut to the end of the
	// attempt. Otherwise the tools would be killed at their deadlines after 25 to 36 s, which gives a different outcome.
	starts, ends = time.Minute, time.Minute
)

// middle is the time from the start of a tool's client until it has measured for a second, of seconds.
var middle = map[v1alpha1.Tool]time.Duration{
	v1alpha1.ToolPinger:       2 * time.Second,
	v1alpha1.ToolSockperf:     3900 * time.Millisecond, // it sleeps for two seconds, and excludes 400 ms
	v1alpha1.ToolNetperf:      1500 * time.Millisecond,
	v1alpha1.ToolSfntPingpong: 2200 * time.Millisecond, // it has its own warm-up of half a second
	v1alpha1.ToolSfntStream:   2 * time.Second,
}

// Serial specs ensure that the report is of the cut or the freeze, and not of a spec in another cluster that uses the same
// CPUs. Tools that send one message at a time report no cause, and other specs run while they wait for the end of the
// attempt.
var _ = Describe("What holds messages up, or loses them, is reported", Label("faults"), needs("processes to stop and a cable to cut"), func() {
	DescribeTable("an end that is frozen for more than a second", Serial,
		func(ctx context.Context, f freeze) {
			b := disturbed(f.name, v1alpha1.ToolPinger, f.protocol)
			b.Spec.Workload.Wait, b.Spec.Workload.RatesPerSecond = f.wait, []int32{stallRate}
			b.Spec.Workload.Duration.Duration = stallSeconds * time.Second
			create(ctx, b)
			inTheMiddle(ctx, b)
			f.freeze()
			b = eventuallyCompletes(ctx, b)
			cell := onlyResult(b)
			attempted(b, v1alpha1.OutcomeMeasured)

			By("latencies from when messages should have been sent, in the status")
			Expect(cell.CountedFrom).To(Equal("Intended"))
			Expect(cell.Samples+cell.Lost).To(BeEquivalentTo(stallRate*stallSeconds), "no message is left out")
			Expect(cell.MaxNanoseconds).To(HaveValue(BeNumerically(">=", frozen*9/10)))
			Expect(cell.Percentile(v1alpha1.P99)).To(HaveValue(BeNumerically(">=", frozen*8/10)))
			Expect(cell.Percentile(v1alpha1.P90)).To(HaveValue(BeNumerically(">=", frozen/5)))
			By("the reported cause: " + cell.Outliers)
			Expect(cell.Outliers).To(MatchRegexp(f.reported))
			By("latencies from when messages were really sent, in the stored result")
			stored := storedCell(ctx, b)
			f.actually(stored)
			By("the slowest sample one by one, which stands for the stall")
			first := stored.Attribution.Slowest[0]
			Expect(first.RTTNs).To(Equal(stored.Histogram.MaxNs))
			Expect(first.Where).To(Equal(f.where))
			Expect(first.Samples).To(BeNumerically(">", stored.Attribution.Examined/2))
		},
		// Datagrams can be sent without room in the window of the other endpoint.
		Entry("the client, asleep while it waits: it shows from the intended time alone, and it is named", freeze{
			name: "frozen-client", role: v1alpha1.RoleClient, protocol: v1alpha1.ProtocolUDP, wait: v1alpha1.WaitBlock,
			reported: `\b([89]\d|100) % coincide with an interruption of the client's CPU,.*; the ends sleep while they wait`,
			where:    tool.WhereClient,
			actually: looksQuick,
		}),
		// With TCP: datagrams that no process reads are lost as soon as the server's socket is full.
		Entry("the server, polling: it shows from either time, and it is named", freeze{
			name: "frozen-server", role: v1alpha1.RoleServer, protocol: v1alpha1.ProtocolTCP, wait: v1alpha1.WaitSpin,
			reported: `\b([89]\d|100) % of the server's, [^;]*$`,
			where:    tool.WhereServer,
			actually: looksSlow,
		}),
		Entry("the server, asleep while it waits: it shows from either time, and what cannot be seen is reported", freeze{
			name: "frozen-sleeper", role: v1alpha1.RoleServer, protocol: v1alpha1.ProtocolTCP, wait: v1alpha1.WaitBlock,
			reported: `\b([89]\d|100) % of neither.*; ` +
				`the ends sleep while they wait, so that only interruptions in send are visible`,
			where:    tool.WhereNeither,
			actually: looksSlow,
		}),
	)

	DescribeTable("datagrams that a cut of the cable drops are counted, by a tool that goes on", Serial,
		func(ctx context.Context, tool v1alpha1.Tool, cpus int32) {
			if most := wholeCPUs(ctx); int64(cpus) > most {
				Skip(fmt.Sprintf("%s needs %d CPUs at the client's end, and a node of this machine gives %d", tool, cpus, most))
			}
			b := disturbed("dropped-"+string(tool), tool, v1alpha1.ProtocolUDP, atRate, func(s *v1alpha1.LatencyBenchmarkSpec) {
				s.Placement.CPUs = cpus
			})
			create(ctx, b)
			inTheMiddle(ctx, b)
			cutCable(cut)
			b = eventuallyCompletes(ctx, b)
			cell := onlyResult(b)
			attempted(b, v1alpha1.OutcomeMeasured)
			Expect(cell.Lost).To(BeNumerically(">=", rate*cut/time.Second/2), "half of the messages sent meanwhile")
			Expect(warning(b, v1alpha1.WarningMessagesLost).Message).To(ContainSubstring(fmt.Sprintf("%d of %d messages were lost", cell.Lost, cell.Samples+cell.Lost)))
			By("a percentile that losses reach has no number")
			Expect(cell.Percentile(v1alpha1.P50)).NotTo(BeNil())
			Expect(cell.Percentile(v1alpha1.P99)).To(BeNil())
			reached, sent := v1alpha1.P99, cell.Samples+cell.Lost
			switch { // where the cut took longer than intended
			case 4*cell.Lost > sent:
				reached = v1alpha1.P75
			case 10*cell.Lost > sent:
				reached = v1alpha1.P90
			case 20*cell.Lost > sent:
				reached = v1alpha1.P95
			}
			Expect(cell.LostFrom).To(Equal(reached))
			Expect(b.Status.Summary.P99).To(Equal("lost"))
			if tool == v1alpha1.ToolPinger {
				By("when it was, in the stored result")
				Expect(cell.Samples + cell.Lost).To(BeEquivalentTo(rate * seconds))
				var lost int64
				for _, i := range storedCell(ctx, b).Intervals {
					lost += i.Lost
				}
				Expect(lost).To(Equal(cell.Lost), "in all intervals")
			}
		},
		Entry("pinger", v1alpha1.ToolPinger, int32(1)),
		Entry("sockperf, under load", v1alpha1.ToolSockperf, int32(2)),
		Entry("sfnt-stream", v1alpha1.ToolSfntStream, int32(2)),
	)

	DescribeTable("a datagram that a cut of the cable drops ends the attempt of a tool that waits, and the next counts",
		func(ctx context.Context, tool v1alpha1.Tool) {
			b := disturbed("waits-"+string(tool), tool, v1alpha1.ProtocolUDP)
			create(ctx, b)
			inTheMiddle(ctx, b)
			cutCable(cut)
			Eventually(func() []v1alpha1.Attempt { return get(ctx, b).Status.Attempts }).
				WithTimeout(ends).WithPolling(200*time.Millisecond).
				ShouldNot(BeEmpty(), "attempts that have ended: that in which a datagram was lost hangs")
			b = eventuallyCompletes(ctx, b)
			attempted(b, v1alpha1.OutcomeToolFailed, v1alpha1.OutcomeMeasured)
			Expect(b.Status.Attempts[0].Outcome.Message).To(And(
				ContainSubstring(string(tool)), ContainSubstring("a datagram was lost")))
			By("nothing of the first attempt in the result")
			cell := onlyResult(b)
			Expect(cell.Rounds).To(BeEquivalentTo(1))
			Expect(cell.Samples).To(BeNumerically(">=", 1_000))
			Expect(cell.Lost).To(BeZero())
			Expect(warning(b, v1alpha1.WarningMessagesLost).Message).To(BeEmpty())
		},
		Entry("sockperf", v1alpha1.ToolSockperf),
		Entry("netperf", v1alpha1.ToolNetperf),
		Entry("sfnt-pingpong", v1alpha1.ToolSfntPingpong),
	)

	DescribeTable("TCP lives through a cut of the cable, and the result shows it",
		func(ctx context.Context, tool v1alpha1.Tool) {
			b := disturbed("resent-"+string(tool), tool, v1alpha1.ProtocolTCP)
			if tool == v1alpha1.ToolPinger {
				b.Spec.Workload.RatesPerSecond = []int32{resentRate}
			}
			create(ctx, b)
			inTheMiddle(ctx, b)
			cutCable(resentCut)
			b = eventuallyCompletes(ctx, b)
			cell := onlyResult(b)
			attempted(b, v1alpha1.OutcomeMeasured)
			Expect(cell.Lost).To(BeZero())
			Expect(cell.MaxNanoseconds).To(HaveValue(BeNumerically(">=", resentCut)))
			if tool == v1alpha1.ToolPinger {
				By("all messages counted, segments sent again, and neither end the cause: " + cell.Outliers)
				Expect(cell.Samples).To(BeEquivalentTo(resentRate * seconds))
				Expect(warning(b, v1alpha1.WarningTool).Message).To(MatchRegexp(`sent \d+ segments again`))
				Expect(cell.Outliers).To(MatchRegexp(`\b([5-9]\d|100) % of neither`))
			}
		},
		Entry("pinger", Serial, v1alpha1.ToolPinger),
		Entry("sockperf", v1alpha1.ToolSockperf),
		Entry("netperf", v1alpha1.ToolNetperf),
		Entry("sfnt-pingpong", v1alpha1.ToolSfntPingpong),
	)
})

// disturbed returns a benchmark of one round over the VFs, which is to be disturbed in the middle.
func disturbed(
	name string, tool v1alpha1.Tool, protocol v1alpha1.Protocol, change ...func(*v1alpha1.LatencyBenchmarkSpec),
) *v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	if strings.HasPrefix(string(tool), "sfnt-") && os.Getenv("SFNETTEST_BIN") == "" {
		Skip("the image has no " + string(tool) + ", as SFNETTEST_BIN is not set")
	}
	b := benchmark(name, append([]func(*v1alpha1.LatencyBenchmarkSpec){overVFs, pingPong}, change...)...)
	b.Spec.Tool = tool
	b.Spec.Rounds = 1
	b.Spec.LatencyType = v1alpha1.LatencyRTT
	b.Spec.Workload.Protocols = []v1alpha1.Protocol{protocol}
	b.Spec.Workload.Duration = metav1.Duration{Duration: seconds * time.Second}
	return b
}

// atRate changes a benchmark to an open loop.
func atRate(s *v1alpha1.LatencyBenchmarkSpec) { s.Workload.RatesPerSecond = []int32{rate} }

// programOf returns the name of a tool's client program.
func programOf(tool v1alpha1.Tool) string {
	if tool == v1alpha1.ToolPinger {
		return "tailgate-pinger"
	}
	return string(tool)
}

// inTheMiddle returns when a benchmark's tool is in the middle of its measurement. It looks for the process itself, because
// the status shows running pods only after a while.
func inTheMiddle(ctx context.Context, b *v1alpha1.LatencyBenchmark) {
	GinkgoHelper()
	Eventually(func() []int {
		pids := processesIn("node-a", programOf(b.Spec.Tool))
		if len(pids) == 0 {
			fresh := get(ctx, b)
			if len(fresh.Status.Attempts) > 0 {
				StopTrying("its first attempt ended before the tool was seen: " + fresh.Status.Attempts[0].Outcome.Message).Now()
			}
			if c := condition(fresh, v1alpha1.ConditionAccepted); c.Status == metav1.ConditionFalse {
				StopTrying("it was not accepted: " + c.Message).Now()
			}
		}
		return pids
	}).WithTimeout(starts).WithPolling(50*time.Millisecond).
		ShouldNot(BeEmpty(), "processes of the client of %s", b.Spec.Tool)
	time.Sleep(middle[b.Spec.Tool])
}

// freeze stops one endpoint of the pinger for a while.
type freeze struct {
	// name is the name of the benchmark, role the endpoint that is stopped.
	name, role string
	protocol   v1alpha1.Protocol
	wait       v1alpha1.WaitMode
	// reported is a regular expression for the text about the slowest samples in the result, where the cause of the slowest.
	reported string
	where    tool.Where
	// actually checks the round trips counted from the actual send.
	actually func(stored result.Cell)
}

func (f freeze) freeze() {
	GinkgoHelper()
	node := map[string]string{v1alpha1.RoleClient: "node-a", v1alpha1.RoleServer: "node-b"}[f.role]
	pids := processesIn(node, programOf(v1alpha1.ToolPinger))
	Expect(pids).To(HaveLen(1), "processes of the pinger's %s on %s", f.role, node)
	By(fmt.Sprintf("stopping the %s on %s, process %d, for %s", f.role, node, pids[0], frozen))
	Expect(syscall.Kill(pids[0], syscall.SIGSTOP)).To(Succeed())
	time.Sleep(frozen)
	Expect(syscall.Kill(pids[0], syscall.SIGCONT)).To(Succeed())
}

// looksQuick checks that a percentile counted from the actual send is far below that counted from the intended send.
func looksQuick(stored result.Cell) {
	GinkgoHelper()
	actual := percentile(*stored.ActualStart, stored.Lost, "p90")
	intended := percentile(stored.Histogram, stored.Lost, "p90")
	Expect(3*actual).To(BeNumerically("<", intended), "thrice p90 from the actual time, and p90 from the intended time")
}

// looksSlow checks that messages in flight when the server stopped are slow when counted from the actual send.
func looksSlow(stored result.Cell) {
	GinkgoHelper()
	actual := percentile(*stored.ActualStart, stored.Lost, "p99")
	Expect(actual).To(BeNumerically(">=", frozen*6/10), "p99 from the actual time")
}

// cutCable cuts the cable between the VFs of the two nodes for a while.
func cutCable(duration time.Duration) {
	GinkgoHelper()
	By(fmt.Sprintf("cutting the cable for %s", duration))
	Expect(localcluster.CutFabric(options, duration)).To(Succeed())
}

// onlyResult prints and returns the result of a benchmark with one cell.
func onlyResult(b *v1alpha1.LatencyBenchmark) v1alpha1.CellResult {
	GinkgoHelper()
	Expect(report.Table(GinkgoWriter, b)).To(Succeed())
	Expect(b.Status.Results).To(HaveLen(1))
	return b.Status.Results[0]
}

// attempted checks the outcomes of the attempts of a benchmark.
func attempted(b *v1alpha1.LatencyBenchmark, reasons ...string) {
	GinkgoHelper()
	var got []string
	for _, a := range b.Status.Attempts {
		GinkgoWriter.Printf("%s, attempt %d: %s %s\n", a.Run, a.Attempt, a.Outcome.Reason, a.Outcome.Message)
		got = append(got, a.Outcome.Reason)
	}
	Expect(got).To(Equal(reasons))
}

// storedCell returns the stored cell of a benchmark with one cell and one round.
func storedCell(ctx context.Context, b *v1alpha1.LatencyBenchmark) result.Cell {
	GinkgoHelper()
	Expect(b.Status.Stored).To(HaveLen(1))
	cm := &corev1.ConfigMap{}
	key := types.NamespacedName{Namespace: b.Namespace, Name: b.Status.Stored[0].ConfigMap}
	Expect(kube.Get(ctx, key, cm)).To(Succeed())
	stored, err := result.Open(cm, b.Status.Stored[0])
	Expect(err).NotTo(HaveOccurred())
	Expect(stored.Client.Cells).To(HaveLen(1))
	return stored.Client.Cells[0]
}

// percentile returns a percentile of the round trips in a histogram.
func percentile(h result.Histogram, lost int64, name string) time.Duration {
	GinkgoHelper()
	d, err := resulttest.Merge(h)
	Expect(err).NotTo(HaveOccurred())
	p, ok := stats.Named(name)
	Expect(ok).To(BeTrue(), name)
	r := d.Percentile(p, lost)
	Expect(r.Lost).To(BeFalse(), "%s is reached by %d lost messages", name, lost)
	Expect(r.Needs).To(BeZero(), "samples that %s needs", name)
	return time.Duration(r.Ns)
}
