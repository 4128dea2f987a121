package driven

import (
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("The log", func() {
	It("says who tainted a node, and why", func(ctx SpecContext) {
		log := &Journal{}
		w := NewGateWorld(ctx)
		w.Log = zap.New(zap.WriteTo(log))
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
		w.Expect(ctx, w.A, IsVerified)
		passed := func() []map[string]any {
			return log.Lines(func(l map[string]any) bool {
				return l["controller"] == "latencygate" && l["reason"] == v1alpha1.ReasonAllVerified
			})
		}
		eventually(passed).Should(HaveLen(1))
		w.Upgrade(ctx, w.A, "6.2.0")
		eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(HeldBack))
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NotAllVerified"))
		w.Expect(ctx, w.A, IsVerified)

		all := func(map[string]any) bool { return true }
		holdPod := func() (last string) {
			for _, l := range log.Lines(func(l map[string]any) bool { return strings.HasSuffix(fmt.Sprint(l["object"]), "-hold") }) {
				last = fmt.Sprintf("%s: %v > %v", l["msg"], l["from"], l["to"])
			}
			return last
		}
		eventually(holdPod).Should(Equal("condition of the hold pod:  > True Verified"))

		By("reading who tainted the node, who removed the taint, and why")
		var taints, messages []string
		for _, l := range log.Lines(func(l map[string]any) bool {
			return l["mark"] == "taint "+v1alpha1.NodeTaintUnverified && l["node"] == w.A
		}) {
			taints = append(taints, fmt.Sprintf("%s: %v > %v %v %v", l["gate"], l["from"], l["to"], l["state"], l["because"]))
			messages = append(messages, fmt.Sprint(l["message"]))
		}
		Expect(len(taints)).To(BeNumerically(">=", 2))
		Expect(taints[len(taints)-2:]).To(Equal([]string{
			g.Name + ":  > NoSchedule Unverified IdentityChanged", g.Name + ": NoSchedule >  Verified Provisional"}))
		Expect(messages[len(messages)-2]).To(Equal(`it was booted; Kernel was "6.1.0" and is "6.2.0"`))

		By("following the states of the node, and the benchmark between them")
		last := ""
		for _, l := range log.Lines(func(l map[string]any) bool { return l["msg"] == "state of the node" && l["node"] == w.A }) {
			Expect(l).To(And(HaveKeyWithValue("from", last), HaveKeyWithValue("gate", g.Name)))
			last = fmt.Sprint(l["to"])
		}
		Expect(last).To(Equal("Verified"))
		b := Get(ctx, w.Benchmark(w.A, 2))
		run := b.Status.Stored[0].Run
		var steps []string
		for _, l := range log.Lines(func(l map[string]any) bool {
			return l["benchmark"] == b.Namespace+"/"+b.Name && l["run"] == run
		}) {
			steps = append(steps, strings.ReplaceAll(fmt.Sprint(l["msg"], " ", l["kind"], " ", l["role"]), " <nil>", ""))
		}
		Expect(steps).To(HaveExactElements("nodes claimed", "created Pod server", "created Pod client", "created ConfigMap",
			HavePrefix("deleted Pod "), HavePrefix("deleted Pod "), "nodes released"))

		By("looking for what is logged twice, or at each look")
		eventually(passed).Should(HaveLen(2), "the gate looks at its nodes a moment later")
		lines := log.Lines(all)
		Expect(slices.CompactFunc(slices.Clone(lines), func(a, b map[string]any) bool {
			return !strings.HasPrefix(fmt.Sprint(a["msg"]), "Starting") && fmt.Sprint(a) == fmt.Sprint(b)
		})).To(HaveLen(len(lines)))
		w.Stays(ctx, w.A, IsVerified)
		Expect(log.Lines(all)[len(lines):]).To(BeEmpty())

		By("reading the events of the Node")
		eventually(func() []string {
			list := &eventsv1.EventList{}
			Expect(k8s.List(ctx, list)).To(Succeed())
			var told []string
			for _, e := range list.Items {
				if e.Regarding.Kind == "Node" && e.Regarding.Name == w.A {
					told = append(told, e.Reason+" "+e.Note)
				}
			}
			return told
		}).Should(ContainElements(
			fmt.Sprintf("NodeHeld held back by LatencyGate %s until its latency is verified: %s", g.Name, messages[len(messages)-2]),
			fmt.Sprintf("NodeReleased released by LatencyGate %s: %s", g.Name, messages[len(messages)-1])))
	})
})
