//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntpingpong"
)

// experimentTime is the time limit for a whole experiment in its small size.
const experimentTime = 8 * time.Minute

// The Serial specs need all their messages: netperf does not survive a lost datagram, and a stream of another cluster fills
// the queues of the same CPUs.
var _ = Describe("A published experiment in a small size prints its table", Label("measurement"), func() {
	It("a sweep of sfnt-pingpong over 17 sizes", func(ctx context.Context) {
		b := experiment("pingpong-sweep.yaml", 1, 100*time.Millisecond, 20*time.Millisecond, func(s *v1alpha1.LatencyBenchmarkSpec) {
			if os.Getenv("SFNETTEST_BIN") == "" {
				AddReportEntry("the image has no sfnt-pingpong, as SFNETTEST_BIN is not set: the sweep is measured with pinger")
				s.Tool = v1alpha1.ToolPinger
			}
		})
		create(ctx, b)
		b = completesWithin(ctx, experimentTime, b)
		sweepHolds(b, printed(ctx, b, "sfnt"))
	})

	It("request/response and streams over several networks and MTUs", needs("networks of two MTUs"), Serial, func(ctx context.Context) {
		// netperf measures whole seconds.
		b := experiment("networks.yaml", 1, time.Second, 0)
		create(ctx, b)
		b = completesWithin(ctx, experimentTime, b)
		networksHold(printed(ctx, b, "networks"))
	})

	It("a matrix of rates and sizes", Serial, func(ctx context.Context) {
		b := experiment("rate-size-matrix.yaml", 1, 300*time.Millisecond, 100*time.Millisecond, func(s *v1alpha1.LatencyBenchmarkSpec) {
			AddReportEntry("two nodes on one machine do not carry 50,000 messages a second for sure: the highest rate is 20,000")
			s.Workload.RatesPerSecond = []int32{4_000, 20_000}
			s.HighestPercentile = v1alpha1.P99
		})
		create(ctx, b)
		b = completesWithin(ctx, experimentTime, b)
		matrixHolds(b, printed(ctx, b, "matrix"))
	})

	It("23,000 messages a second without and with spinning, as a ladder of percentiles", needs("packet capture"), Serial, func(ctx context.Context) {
		cpus := min(wholeCPUs(ctx), 2)
		b := experiment("percentile-ladder.yaml", 3, 2*time.Second, 200*time.Millisecond, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.HighestPercentile = v1alpha1.P9999
			s.Capture, s.Placement.CPUs = v1alpha1.CaptureServer, int32(cpus)
		})
		create(ctx, b)
		b = completesWithin(ctx, experimentTime, b)
		laddersHold(printed(ctx, b, "ladder"))
		Expect(warning(b, v1alpha1.WarningCaptureSharesCPU).Message != "").To(Equal(cpus < 2), "a capture on the measuring CPU has a warning")
		Expect(warning(b, v1alpha1.WarningCaptureIncomplete).Message).To(BeEmpty())
	})
})

// completed writes limits for the percentiles of sizes that have too few samples for them on a busy machine: the tool itself always prints
// all, and its parser refuses a table without them.
func completed(table string) string {
	lines := strings.Split(table, "\n")
	for i, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 8 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		for missing, instead := range map[int]int{3: 2, 5: 4} { // the median by the minimum, the percentile by the maximum
			if fields[missing] == "-" {
				fields[missing] = fields[instead]
			}
		}
		lines[i] = "\t" + strings.Join(fields, "\t")
	}
	return strings.Join(lines, "\n")
}

// sweepHolds checks the table of each variant: 17 sizes, each with consistent numbers.
func sweepHolds(b *v1alpha1.LatencyBenchmark, text string) {
	GinkgoHelper()
	blocks := strings.Split(text, "\n\n")
	for i, variant := range b.Spec.Variants {
		By("the 17 rows of variant " + variant.Name)
		Expect(blocks[i]).To(ContainSubstring("# variant: " + variant.Name + ": "))
		header, rows, err := sfntpingpong.ParseTable([]byte(completed(blocks[i]) + "\n"))
		Expect(err).NotTo(HaveOccurred())
		Expect(header.FullRTT()).To(BeFalse())
		Expect(rows).To(HaveLen(17))
		for k, row := range rows {
			Expect(row.Size).To(BeEquivalentTo(b.Spec.Workload.MessageSizes[k]))
			line := fmt.Sprintf("(?m)^\t%d\t.*$", row.Size)
			fields := strings.Fields(regexp.MustCompile(line).FindString(blocks[i]))
			Expect(fields).To(HaveLen(8))
			if row.Iterations < 20 {
				// An even busier machine leaves too few samples for the median, and the mean of a single sample equals its maximum.
				Expect([]string{fields[3], fields[5]}).To(HaveEach("-"), "%d samples are too few for p50", row.Iterations)
				Expect(row.Min).To(And(BeNumerically(">", 250), BeNumerically("<=", row.Max)))
				continue
			}
			Expect(fields[5] == "-").To(Equal(row.Iterations < 1_000), "%d samples, p99 %s", row.Iterations, fields[5])
			ladder := []int64{row.Min, row.Median, row.Percentile, row.Max}
			Expect(slices.IsSorted(ladder)).To(BeTrue(), "size %d: %v", row.Size, ladder)
			Expect(row.Min).To(BeNumerically(">", 250), "no message crosses a kernel in less")
			Expect(row.Mean).To(And(BeNumerically(">", row.Min), BeNumerically("<", row.Max)))
			Expect(row.StdDev).To(BeNumerically(">", 0))
		}
	}
}

// networksHold checks the table of each protocol: a row for each network, and a number at each MTU of the network.
func networksHold(text string) {
	GinkgoHelper()
	for _, protocol := range []string{"TCP", "UDP"} {
		By(protocol)
		rows := rowsBelow(text, protocol+": mean latency")
		Expect(rows).To(ContainElement([]string{"NETWORK", "MTU=1500", "MTU=9000", "MTU=1500", "MTU=9000"}))
		for _, network := range []string{"host", "pf", "vf", "pod", "macvlan"} {
			row := rowOf(rows, network)
			Expect(row).To(HaveLen(5))
			for i, field := range row[1:] {
				if (network == "pod" || network == "host") && i%2 == 1 {
					Expect(field).To(Equal("-"), "the network %s has one MTU", network)
					continue
				}
				Expect(number(field)).To(BeNumerically(">", 1), "%s: %v", network, row)
			}
		}
	}
}

// matrixHolds checks that there is a line for each variant, rate and size, with consistent numbers.
func matrixHolds(b *v1alpha1.LatencyBenchmark, text string) {
	GinkgoHelper()
	for _, variant := range b.Spec.Variants {
		rows := rowsBelow(text, "variant "+variant.Name+" ")
		Expect(rows[0][:13]).To(Equal(strings.Fields("RATE/S SIZE ROUNDS SAMPLES LOST MIN MEAN P50 P75 P90 P95 P99 P99.9")))
		rows = rows[1:]
		for _, size := range b.Spec.Workload.MessageSizes {
			for _, rate := range b.Spec.Workload.RatesPerSecond {
				By(fmt.Sprintf("%s: %d messages a second of %d bytes", variant.Name, rate, size))
				Expect(rows).NotTo(BeEmpty())
				row := rows[0]
				rows = rows[1:]
				Expect(row[:3]).To(Equal([]string{fmt.Sprint(rate), fmt.Sprint(size), "1"}))
				sent := float64(rate) * b.Spec.Workload.Duration.Seconds()
				Expect(number(row[3])).To(BeNumerically("~", sent, sent/10), "samples of %v", row)
				Expect(number(row[6])).To(BeNumerically(">", number(row[5])), "mean and min of %v", row)
				ladder := numbers(slices.Concat(row[5:6], row[7:12], row[len(row)-1:]))
				Expect(ladder[0]).To(BeNumerically(">", 0.5), "no message crosses a kernel twice in less")
				Expect(slices.IsSorted(ladder)).To(BeTrue(), "%v", row)
			}
		}
		Expect(rows).To(BeEmpty())
	}
}

// laddersHold checks the ladders of both variants, from the intended and from the actual send, and the ladder of a capture.
func laddersHold(text string) {
	GinkgoHelper()
	kinds := []string{"RTT from the intended send", "RTT from the actual send", "IN to OUT, captured by the server"}
	for _, variant := range []string{"off", "on"} {
		for _, kind := range kinds {
			By(variant + ": " + kind)
			heading := ""
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "variant "+variant+" ") && strings.Contains(line, kind) {
					heading = strings.TrimSpace(line)
				}
			}
			Expect(heading).NotTo(BeEmpty())
			ladderHolds(rowsBelow(text, heading))
		}
	}
}

// ladderHolds checks a ladder of three rounds of 46,000 messages: numbers that increase up to the highest percentile that so
// many samples support, and the samples that higher ones need.
func ladderHolds(rows [][]string) {
	GinkgoHelper()
	Expect(rows[0]).To(Equal(strings.Fields("PERCENTILE ROUND 1 EVENTS ROUND 2 EVENTS ROUND 3 EVENTS ALL EVENTS")))
	// All rounds together have ten samples beyond p99.99; each alone has four.
	highest := rowOf(rows, "99.99%")
	Expect(highest).To(HaveLen(12))
	Expect(highest[:10]).To(Equal(strings.Fields("99.99% needs 100000 - needs 100000 - needs 100000 -")))
	Expect(number(highest[10])).To(And(BeNumerically(">=", number(rowOf(rows, "99.9%")[7])), BeNumerically("<=", number(rowOf(rows, "MAX")[7]))))
	for _, name := range []string{"99.999%", "99.9999%", "99.99999%", "99.999999%"} {
		Expect(rowOf(rows, name)).To(HaveLen(13), "%s: what each column needs", name)
	}
	for column := 1; column <= 8; column++ {
		var ladder []float64
		for _, name := range []string{"MIN", "50%", "75%", "90%", "95%", "99%", "99.9%", "MAX"} {
			row := rowOf(rows, name)
			Expect(row).To(HaveLen(9))
			ladder = append(ladder, number(row[column]))
		}
		Expect(ladder[0]).To(BeNumerically(">", 0.5), "no message crosses a kernel in less")
		Expect(slices.IsSorted(ladder)).To(BeTrue(), "column %d: %v", column, ladder)
	}
	// A round that a busy machine delays at its end continues until all messages are answered.
	for i, want := range []int{46_000, 46_000, 46_000, 138_000} {
		Expect(number(rowOf(rows, "MAX")[2+2*i])).To(BeNumerically("~", want, want/10))
	}
}

// experiment returns a sample in a small size: fewer rounds of a shorter duration, and further changes.
func experiment(file string, rounds int32, duration, warmup time.Duration, change ...func(*v1alpha1.LatencyBenchmarkSpec)) *v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	b := sample(filepath.Join("experiments", file), duration, warmup)
	b.Spec.Rounds = rounds
	for _, f := range change {
		f(&b.Spec)
	}
	return b
}

// sample reads a benchmark of config/samples and shortens its measurements.
func sample(file string, duration, warmup time.Duration) *v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	b := &v1alpha1.LatencyBenchmark{}
	readSample(file, b)
	b.Namespace = namespace
	b.Spec.Workload.Duration = metav1.Duration{Duration: duration}
	b.Spec.Workload.Warmup = metav1.Duration{Duration: warmup}
	// The API's default; a typed object would send 0.
	b.Spec.Placement.Memory.Set(512 << 20)
	if elsewhere {
		onTheseNodes(&b.Spec)
	}
	return b
}

// onTheseNodes adapts a sample, which is written for the local cluster, to the nodes, networks and variants of another
// cluster.
func onTheseNodes(s *v1alpha1.LatencyBenchmarkSpec) {
	s.Placement.Client, s.Placement.Server, s.Placement.CPUs = hostname(here.Client), hostname(here.Server), here.CPUs
	if s.Network.Type == v1alpha1.NetworkVF {
		s.Network = vfs()
	}
	s.Variants = slices.DeleteFunc(s.Variants, func(v v1alpha1.Variant) bool {
		switch v.Network.Type {
		case v1alpha1.NetworkVF:
			*v.Network = vfs()
		case v1alpha1.NetworkPF:
			if here.PF == nil {
				return true
			}
			v.Network.PF.DeviceNetwork = *here.PF
		case v1alpha1.NetworkHost:
			v.Network.Host = nil // the interface of the default route
			return !here.HostNetwork
		}
		return false
	})
}

// readSample reads an object of config/samples.
func readSample(file string, into client.Object) {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(root, "config", "samples", file))
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.UnmarshalStrict(content, into)).To(Succeed())
}

// printed returns the stored results of a benchmark as the command line prints them.
func printed(ctx context.Context, b *v1alpha1.LatencyBenchmark, form string) string {
	GinkgoHelper()
	return tailgate(ctx, "get", b.Name, "--output", form)
}

// tailgate runs kubectl-tailgate in the namespace of the specs and returns its output.
func tailgate(ctx context.Context, args ...string) string {
	GinkgoHelper()
	var stdout, stderr bytes.Buffer
	code := cli.Run(ctx, append(args, "--namespace", namespace, "--kubeconfig", kubeconfig), &stdout, &stderr)
	Expect(code).To(BeZero(), stderr.String())
	GinkgoWriter.Printf("\n$ kubectl tailgate %s\n%s", strings.Join(args, " "), &stdout)
	return stdout.String()
}

// wholeCPUs returns the number of whole CPUs that each node of the experiments can provide.
func wholeCPUs(ctx context.Context) int64 {
	GinkgoHelper()
	return min(allocatable(ctx, here.Client, corev1.ResourceCPU), allocatable(ctx, here.Server, corev1.ResourceCPU))
}

// rowsBelow returns the words of the lines between the line that begins with heading and the next empty line.
func rowsBelow(text, heading string) [][]string {
	GinkgoHelper()
	_, table, found := strings.Cut("\n"+text, "\n"+heading)
	Expect(found).To(BeTrue(), "no %q in\n%s", heading, text)
	table, _, _ = strings.Cut(table, "\n\n")
	var rows [][]string
	for _, line := range strings.Split(table, "\n")[1:] { // The first line is the rest of the heading.
		if words := strings.Fields(line); len(words) > 0 {
			rows = append(rows, words)
		}
	}
	Expect(rows).NotTo(BeEmpty(), "nothing below %q", heading)
	return rows
}

// rowOf returns the row with a name.
func rowOf(rows [][]string, name string) []string {
	GinkgoHelper()
	for _, row := range rows {
		if len(row) > 0 && row[0] == name {
			return row
		}
	}
	Fail(fmt.Sprintf("no row %s in %v", name, rows))
	return nil
}

func number(text string) float64 {
	GinkgoHelper()
	n, err := strconv.ParseFloat(text, 64)
	Expect(err).NotTo(HaveOccurred())
	return n
}

func numbers(texts []string) []float64 {
	GinkgoHelper()
	all := make([]float64, 0, len(texts))
	for _, text := range texts {
		all = append(all, number(text))
	}
	return all
}
