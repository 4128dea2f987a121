package driven

import (
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A rolling upgrade", func() {
	It("stops at the one slow node of ten, and does not disturb the others", func(ctx SpecContext) {
		var names []string
		for i := 3; i <= 10; i++ {
			names = append(names, fmt.Sprintf("n%02d", i))
		}
		w := NewGateWorld(ctx, names...)
		nodes := []string{w.A, w.B}
		for _, name := range names {
			nodes = append(nodes, w.Namespace+"-"+name)
		}
		bad := nodes[4]
		// The latencies are pseudo-random for each benchmark and depend only on its name. The bad node is slow with its new kernel.
		w.SamplesFrom(func(b *v1alpha1.LatencyBenchmark) int64 {
			draw := int64(crc32.ChecksumIEEE([]byte(b.Name)) % 400)
			if strings.HasPrefix(b.Name, w.Namespace+"-"+bad) && !strings.HasSuffix(b.Name, "-1") {
				return 15_000 + draw
			}
			return 9_800 + draw
		})
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.MaxParallel, s.MaxUnverified = new(intstr.FromInt32(5)), new(int32(1))
		}))
		began := w.Clock.Now()
		line := func(format string, args ...any) {
			AddReportEntry(fmt.Sprintf("%5.1fs  %s", time.Since(began).Seconds(), fmt.Sprintf(format, args...)))
		}
		passed := func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }
		eventually(passed).WithTimeout(10 * time.Minute).Should(HavePrefix("True AllVerified"))
		line("%s", passed())

		upgraded := 0
		for _, node := range nodes {
			// As long as the gate has not seen that the last node passed, another one would be one too many.
			eventually(passed).Should(HavePrefix("True AllVerified"))
			w.Upgrade(ctx, node, "6.2.0")
			line("upgraded %s", node)
			upgraded++
			// The tool waits for the node, and stops when the gate has failed.
			eventually(func() string { return w.Says(ctx, node) }).Should(HaveSuffix(HeldBack))
			eventually(func() string {
				if strings.HasPrefix(passed(), "False") {
					return "stop"
				}
				return w.Says(ctx, node)
			}).Should(Or(Equal("stop"), Equal(IsVerified)))
			line("%s: %s", node, w.Says(ctx, node))
			if strings.HasPrefix(passed(), "False") {
				line("stopped: %s", passed())
				break
			}
		}
		Expect(upgraded).To(Equal(5))
		Expect(passed()).To(HavePrefix("False NodesFailed: 1 of 10 nodes failed: " + bad))
		for i, node := range nodes {
			switch {
			case node == bad:
				w.Expect(ctx, node, "Failed Fail"+HeldBack)
			case i < upgraded:
				Expect(w.Says(ctx, node)).To(Equal(IsVerified))
				Expect(w.Accepted(ctx, node)).To(Equal("-2 since -1"))
			default:
				Expect(w.Says(ctx, node)).To(Equal(IsVerified))
				Expect(w.Accepted(ctx, node)).To(Equal("-1 since -1"), "it was left alone")
			}
		}
	})
})
