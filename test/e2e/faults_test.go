//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

var _ = Describe("Whatever dies", Label("faults"), needs("processes to kill"), func() {
	It("a manager killed in the middle of a run and another between runs, an API server and an etcd cost nothing", SpecPriority(1), func(ctx context.Context) {
		w := watchPods(ctx)
		rounds := func(name string, n int32) *v1alpha1.LatencyBenchmark {
			return benchmark(name, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Rounds, s.Workload.Duration.Duration = n, 8*time.Second })
		}
		b := rounds("killed", 2)
		all := []*v1alpha1.LatencyBenchmark{b}
		create(ctx, b)
		By("killing the manager's process in the middle of a run")
		eventuallyMeasures(ctx, b)
		killManager()
		By("deleting the manager's pod, without grace, at the moment in which the first run is over and the next not begun")
		eventuallyReleases(ctx, b)
		deleteManagerPod(ctx)
		for _, process := range []string{localcluster.APIServer, localcluster.Etcd} {
			By("killing " + process + " in the middle of a run")
			b := rounds(process, 1)
			all = append(all, b)
			create(ctx, b)
			eventuallyMeasures(ctx, b)
			Expect(localcluster.KillProcess(ctx, options, process)).To(Succeed())
			began := time.Now()
			time.Sleep(time.Second) // The other components send requests in the meantime.
			Expect(localcluster.StartProcess(ctx, options, process)).To(Succeed())
			Expect(localcluster.Up(ctx, options)).To(Succeed())
			AddReportEntry(fmt.Sprintf("%s: answers again after %s", process, time.Since(began).Round(100*time.Millisecond)))
		}
		for i := range all {
			all[i] = eventuallyCompletes(ctx, all[i])
		}
		w.end()
		for _, b := range all {
			measuredOnce(b, w)
		}
		Eventually(benchmarkPods).WithArguments(ctx).WithTimeout(soon).Should(BeEmpty())
	})

	It("a benchmark deleted in the middle of a run leaves nothing", func(ctx context.Context) {
		b := benchmark("deleted", func(s *v1alpha1.LatencyBenchmarkSpec) { s.Workload.Duration.Duration = 8 * time.Second })
		create(ctx, b)
		By("waiting for the second run, so that there is a stored result as well")
		Eventually(func() int { return len(get(ctx, b).Status.Attempts) }).WithTimeout(measured).Should(Equal(1))
		eventuallyMeasures(ctx, b)
		Expect(storedResults(ctx)).To(HaveLen(1))
		began := time.Now()
		Expect(kube.Delete(ctx, b)).To(Succeed())
		Eventually(func() []string { return append(benchmarkPods(ctx), storedResults(ctx)...) }).
			WithTimeout(collected).WithPolling(100 * time.Millisecond).Should(BeEmpty())
		AddReportEntry(fmt.Sprintf("nothing left after %s", time.Since(began).Round(time.Second/10)))
	})

	It("a server's tool that is killed fails its attempt, and the next one counts", func(ctx context.Context) {
		b := benchmark("shot", func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Rounds, s.Workload.Duration.Duration = 1, 8*time.Second
		})
		create(ctx, b)
		inTheMiddle(ctx, b)
		signalOne("node-b", programOf(b.Spec.Tool), syscall.SIGKILL)
		b = eventuallyCompletes(ctx, b)
		attempted(b, v1alpha1.OutcomeToolFailed, v1alpha1.OutcomeMeasured)
		Expect(b.Status.Attempts[0].Outcome.Message).To(ContainSubstring("the server is gone"))
	})
})

// eventuallyReleases returns as soon as a benchmark's first run is over. It watches, because the next run is claimed a
// moment later.
func eventuallyReleases(ctx context.Context, b *v1alpha1.LatencyBenchmark) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, measured)
	defer cancel()
	stream, err := kube.Watch(ctx, &v1alpha1.LatencyBenchmarkList{}, client.InNamespace(b.Namespace))
	Expect(err).NotTo(HaveOccurred())
	defer stream.Stop()
	for e := range stream.ResultChan() {
		if seen, ok := e.Object.(*v1alpha1.LatencyBenchmark); ok && seen.Name == b.Name && len(seen.Status.Attempts) > 0 {
			return
		}
	}
	Fail("the first run of " + b.Name + " did not end")
}

var _ = Describe("A node goes to the next tenant", Label("faults", "grace"), needs("processes to stop"), func() {
	It("soon after a pod of another is deleted, although its process ignores SIGTERM", func(ctx context.Context) {
		b := benchmark("frozen", func(s *v1alpha1.LatencyBenchmarkSpec) { s.Rounds, s.Workload.Duration.Duration = 1, time.Minute })
		create(ctx, b)
		eventuallyMeasures(ctx, b)
		next := benchmark("next", short)
		create(ctx, next)
		for _, node := range []string{"node-a", "node-b"} {
			signalOne(node, agentProgram, syscall.SIGSTOP)
		}
		own := client.MatchingLabels{v1alpha1.LabelBenchmark: b.Name}
		By("a grace period of a year, which a kubelet would not shorten any more, is refused")
		Expect(kube.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), own, client.GracePeriodSeconds(365*24*3600))).
			To(MatchError(ContainSubstring("a grace period of at most 600 seconds")))
		By("the grace period of the pods")
		Expect(kube.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), own)).To(Succeed())
		from := time.Now()
		Expect(kube.Delete(ctx, b)).To(Succeed())
		eventuallyMeasures(ctx, next)
		AddReportEntry("the next benchmark measured after", time.Since(from).Round(100*time.Millisecond))
		Expect(time.Since(from)).To(BeNumerically("<", 2*time.Minute), "from the deletion to the next benchmark's measurement")
		eventuallyCompletes(ctx, next)
	})
})

// killManager kills the manager's process with SIGKILL.
func killManager() {
	GinkgoHelper()
	Eventually(func() int { return signalInNode("manager", syscall.SIGKILL) }).WithTimeout(soon).Should(Equal(1))
}

// deleteManagerPod deletes the manager's pod without grace.
func deleteManagerPod(ctx context.Context) {
	GinkgoHelper()
	Expect(kube.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(managerNamespace), client.GracePeriodSeconds(0))).To(Succeed())
}

// signalInNode signals all processes of a program in the containers of the local cluster, and returns their number.
func signalInNode(program string, signal syscall.Signal) int {
	GinkgoHelper()
	signalled := 0
	for _, pid := range processesIn("node-", program) {
		if syscall.Kill(pid, signal) == nil {
			fmt.Fprintf(GinkgoWriter, "sent %s to %s (%d)\n", signal, program, pid)
			signalled++
		}
	}
	return signalled
}

// processesIn returns the processes of a program in the containers of one node of the local cluster or, with "node-", of all
// nodes.
func processesIn(node, program string) []int {
	GinkgoHelper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	Expect(err).NotTo(HaveOccurred())
	var found []int
	for _, dir := range processes {
		// A process may end at any moment; one that cannot be read no longer exists.
		exe, _ := os.Readlink(dir + "/exe")
		cgroup, _ := os.ReadFile(dir + "/cgroup")
		if filepath.Base(exe) != program || !strings.Contains(string(cgroup), localcluster.Cgroup(options, node)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		Expect(err).NotTo(HaveOccurred())
		found = append(found, pid)
	}
	return found
}
