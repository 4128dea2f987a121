//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

var _ = Describe("A LatencyGate under restarts", Label("gate", "faults"), needs("processes to kill"), SpecPriority(2), func() {
	AfterEach(endGate)

	It("keeps a verified node, and the benchmark that uses it, while its device plugin and its kubelet restart", func(ctx context.Context) {
		const plugins, kubelets = 10, 3
		labelNodes(ctx, gated, "")
		g := undemandingGate()
		g.Spec.Template.Spec.Workload.Duration.Duration = 3 * time.Second
		Expect(kube.Create(ctx, g)).To(Succeed())
		eventuallyConcludes(ctx, here.Client, v1alpha1.VerificationVerified)
		before := eventuallyConcludes(ctx, here.Server, v1alpha1.VerificationVerified)

		By("a benchmark of the other node, with this node as its peer")
		versions := watchNode(ctx, here.Server)
		verifyAgain(ctx, here.Client)
		b := runningBenchmark(ctx)
		t := newTimeline()
		for i := range plugins {
			Expect(localcluster.KillDevicePlugin(ctx, options, here.Server)).To(Succeed())
			time.Sleep(time.Second)
			Expect(localcluster.StartDevicePlugin(ctx, options, here.Server)).To(Succeed())
			t.add("device plugin %d was killed and started", i+1)
			if i%3 == 1 && i/3 < kubelets {
				Expect(localcluster.KillKubelet(ctx, options, here.Server)).To(Succeed())
				Expect(localcluster.StartKubelet(ctx, options, here.Server)).To(Succeed())
				t.add("kubelet %d was killed and started", i/3+1)
			}
			time.Sleep(2 * time.Second)
		}
		after := eventuallyConcludes(ctx, here.Client, v1alpha1.VerificationVerified)
		t.add("%s is verified again", here.Client)
		b = get(ctx, b)
		for _, a := range b.Status.Attempts {
			t.add("%s, attempt %d: %s %s", a.Run, a.Attempt, a.Outcome.Reason, a.Outcome.Message)
		}
		t.report("restarts")
		Expect(b.Status.Verdict.Outcome).To(Equal(v1alpha1.VerdictPass))
		Expect(after.Status.History[0].Benchmark).To(Equal(b.Name), "no other benchmark was needed")

		By("the versions of the Node")
		seen, away := map[string]int{}, 0
		// The first report of a kubelet that starts may be that it is not ready yet. The gate shows each of them once at most, and not
		// before it has read it.
		ready, verified, notReady, unverified := true, true, 0, 0
		for _, v := range versions() {
			wasReady, wasVerified := ready, verified
			ready, verified = readiness(v.node) == corev1.ConditionTrue, v.publish == isVerified
			if wasReady && !ready {
				notReady++
			}
			if wasVerified && !verified {
				unverified++
			}
			Expect(unverified).To(BeNumerically("<=", notReady), "%s without a report that it is not ready", v.publish)
			if !ready || !verified {
				Expect(v.publish).To(And(Not(HavePrefix("False")), HaveSuffix(" -")), "a node that is not ready is not held back as one that failed")
				continue
			}
			seen[fmt.Sprintf("%s, ready %s", v.publish, readiness(v.node))]++
			if vfs := v.node.Status.Allocatable[corev1.ResourceName(here.VF.ResourceName)]; vfs.IsZero() {
				away++
			}
		}
		AddReportEntry(fmt.Sprintf("versions of %s: %v, %d of them without VFs", here.Server, seen, away))
		Expect(away).To(BeNumerically(">", 0), "no report of the kubelet came while the plugin was away")
		Expect(seen).To(HaveLen(1))
		Expect(seen).To(HaveKey(isVerified + ", ready " + string(corev1.ConditionTrue)))
		Expect(ready && verified).To(BeTrue(), "it is ready and verified at the end")
		Expect(verification(ctx, here.Server).Status.Number).To(Equal(before.Status.Number), "it was not measured again")
	})
})
