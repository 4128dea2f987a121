//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/test/faults"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

const (
	agentProgram = "tailgate-agent"
	// lasting is the duration of a fault that does not end the attempt. measuring is longer, because containerd does not
	// learn how a container ended in the meantime.
	lasting, measuring = time.Second, 3 * time.Second
	// nextWithin is the longest time that the next benchmark of the same nodes may take after the last fault.
	nextWithin = time.Minute
)

// trial holds the objects of a fault: benchmark x, with a run for each state, and benchmark next, which needs the same nodes
// and waits until x is over, or until x waits for a device plugin. The scheduler is stopped and only started to schedule
// single pods, so that a state lasts until the spec continues.
type trial struct {
	fault   faults.Fault
	x, next *v1alpha1.LatencyBenchmark
	watch   *podWatch
	// serverUp is true if the server of the first run was started to check what is absent then.
	serverUp bool
	// attempts holds the outcomes that the attempts at a run must have, by its state. They are known when the fault is
	// injected.
	attempts map[faults.State][]string
}

// strike is a fault of the local cluster.
type strike struct {
	// change modifies the benchmark as the fault requires; it may be nil.
	change func(*v1alpha1.LatencyBenchmarkSpec)
	begin  func(ctx context.Context, t *trial, state faults.State)
	// heal is nil if the fault is permanent.
	heal func(ctx context.Context, state faults.State)
}

// endOf returns the node at which a fault is injected: the node of the pod that is about to start, otherwise the node of the
// client.
func endOf(state faults.State) string {
	if state == faults.Claimed {
		return "node-b"
	}
	return "node-a"
}

// processOf returns a fault that kills a process of a node, and starts it again.
func processOf(kind string, change func(*v1alpha1.LatencyBenchmarkSpec)) strike {
	return strike{
		change: change,
		begin: func(ctx context.Context, _ *trial, state faults.State) {
			Expect(localcluster.KillProcess(ctx, options, kind+"-"+endOf(state))).To(Succeed())
		},
		heal: func(ctx context.Context, state faults.State) {
			Expect(localcluster.StartProcess(ctx, options, kind+"-"+endOf(state))).To(Succeed())
		},
	}
}

var strikes = map[faults.Fault]strike{
	faults.Agent: {begin: func(_ context.Context, _ *trial, state faults.State) {
		node := "node-a"
		if state == faults.ServerUp {
			node = "node-b"
		}
		signalOne(node, agentProgram, syscall.SIGKILL)
	}},
	faults.Tool: {begin: func(_ context.Context, t *trial, _ faults.State) {
		signalOne("node-a", programOf(t.x.Spec.Tool), syscall.SIGKILL)
	}},
	faults.Kubelet:      processOf("kubelet", nil),
	faults.Containerd:   processOf("containerd", nil),
	faults.DevicePlugin: processOf("deviceplugin", overVFs),
	faults.Cable: {
		change: overVFs,
		begin: func(context.Context, *trial, faults.State) {
			Expect(localcluster.SetFabric(options, false)).To(Succeed())
		},
		heal: func(context.Context, faults.State) { Expect(localcluster.SetFabric(options, true)).To(Succeed()) },
	},
}

// signalOne signals the only process of a program on a node.
func signalOne(node, program string, signal syscall.Signal) {
	GinkgoHelper()
	var pids []int
	Eventually(func() []int { pids = processesIn(node, program); return pids }).
		WithTimeout(soon).WithPolling(20*time.Millisecond).Should(HaveLen(1), "processes of %s on %s", program, node)
	Expect(syscall.Kill(pids[0], signal)).To(Succeed())
}

var _ = Describe("The fault table:", Label("faults"), needs("processes to kill"), SpecPriority(1), func() {
	for _, fault := range faults.Faults {
		if faults.Find(fault, faults.Measuring).Suite != faults.E2E {
			continue
		}
		It(string(fault), func(ctx context.Context) {
			s, ok := strikes[fault]
			Expect(ok).To(BeTrue(), "no spec injects this fault")
			t := newTrial(ctx, fault, s)
			run := 0
			for _, state := range faults.States {
				cell := faults.Find(fault, state)
				switch {
				case cell.Never != "":
					t.expectAbsent(ctx, cell)
				case state == faults.Waiting: // next waits during the faults of x
				case state == faults.Judging:
					t.judge(ctx, s)
				default:
					run++
					t.strikeIn(ctx, s, cell, run)
				}
				if state == faults.HandingOver {
					t.finish(ctx)
				}
			}
			t.expect(ctx)
		})
	}
})

func newTrial(ctx context.Context, fault faults.Fault, s strike) *trial {
	GinkgoHelper()
	t := &trial{fault: fault, watch: watchPods(ctx), attempts: map[faults.State][]string{}}
	scheduler(ctx, false)
	DeferCleanup(func(ctx context.Context) {
		scheduler(ctx, true)
		signalInNode("manager", syscall.SIGCONT)
		Expect(localcluster.SetFabric(options, true)).To(Succeed())
		Expect(localcluster.Up(ctx, options)).To(Succeed())
	})
	changes := []func(*v1alpha1.LatencyBenchmarkSpec){short}
	if s.change != nil {
		changes = append(changes, s.change)
	}
	t.next = benchmark("next", changes...)
	t.x = benchmark("x", append(changes, func(s *v1alpha1.LatencyBenchmarkSpec) {
		s.Rounds = 0
		for _, state := range faults.States[1:5] {
			if faults.Find(fault, state).Never == "" {
				s.Rounds++
			}
		}
		s.Workload.Duration.Duration = measuring
		if faults.Find(fault, faults.Judging).Never == "" {
			// A verdict needs at least six rounds. It must be Fail, so that a Pass can only be a mistake.
			s.Rounds = 6
			s.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, Max: v1alpha1.Limit{Text: "1ns"}}}}
		}
	})...)
	create(ctx, t.x)
	t.awaitPod(ctx, 1, 1, v1alpha1.RoleServer)
	create(ctx, t.next)
	Eventually(func() string { return condition(get(ctx, t.next), v1alpha1.ConditionSucceeded).Reason }).
		WithTimeout(soon).Should(Equal(v1alpha1.ReasonQueued))
	return t
}

// scheduler continues or stops the scheduler.
func scheduler(ctx context.Context, on bool) {
	GinkgoHelper()
	if on {
		Expect(localcluster.ResumeProcess(ctx, options, localcluster.Scheduler)).To(Succeed())
	} else {
		Expect(localcluster.PauseProcess(ctx, options, localcluster.Scheduler)).To(Succeed())
	}
}

// awaitPod waits until a pod of x exists that has no node yet. While x waits for a device plugin, next may take the nodes.
func (t *trial) awaitPod(ctx context.Context, run int, attempt int32, role string) {
	GinkgoHelper()
	Eventually(func() error {
		p, err := t.pod(ctx, run, attempt, role)
		if err == nil && p.Spec.NodeName != "" {
			StopTrying(p.Name + " has a node already").Now()
		}
		if apierrors.IsNotFound(err) && t.fault == faults.DevicePlugin {
			t.letNextGo(ctx)
		}
		return err
	}).WithTimeout(measured).WithPolling(50 * time.Millisecond).Should(Succeed())
}

// letNextGo schedules the pods of next if it has taken the nodes. The scheduler does not run while next measures, because x
// may create its pod at the moment next is done.
func (t *trial) letNextGo(ctx context.Context) {
	GinkgoHelper()
	scheduled := func() bool {
		b := &v1alpha1.LatencyBenchmark{}
		Expect(client.IgnoreNotFound(kube.Get(ctx, client.ObjectKeyFromObject(t.next), b))).To(Succeed())
		active := b.Status.Active
		if active == nil || active.Outcome != nil {
			return true
		}
		p := &corev1.Pod{}
		err := kube.Get(ctx, types.NamespacedName{Namespace: namespace, Name: pods.Name(active.Run, active.Attempt, v1alpha1.RoleClient)}, p)
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		return p.Spec.NodeName != ""
	}
	if scheduled() {
		return
	}
	scheduler(ctx, true)
	Eventually(scheduled).WithTimeout(measured).WithPolling(50 * time.Millisecond).Should(BeTrue())
	scheduler(ctx, false)
}

func (t *trial) pod(ctx context.Context, run int, attempt int32, role string) (*corev1.Pod, error) {
	p := &corev1.Pod{}
	key := types.NamespacedName{Namespace: namespace, Name: pods.Name(fmt.Sprintf("x-r%d", run), attempt, role)}
	return p, kube.Get(ctx, key, p)
}

// schedule lets the scheduler bind a pod of x to its node. The client's pod may exist before the scheduler is stopped again,
// and must not get a node then.
func (t *trial) schedule(ctx context.Context, run int, attempt int32, role string) {
	GinkgoHelper()
	t.awaitPod(ctx, run, attempt, role)
	if role == v1alpha1.RoleServer {
		Expect(kubectl(ctx, GinkgoWriter, "cordon", "node-a")).To(Succeed())
		defer func() { Expect(kubectl(ctx, GinkgoWriter, "uncordon", "node-a")).To(Succeed()) }()
	}
	scheduler(ctx, true)
	Eventually(func(g Gomega) {
		p, err := t.pod(ctx, run, attempt, role)
		if apierrors.IsNotFound(err) {
			return // The kubelet refused it, and the attempt is over.
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(p.Spec.NodeName).NotTo(BeEmpty(), "%v", p.Status.Conditions)
	}).WithTimeout(time.Minute).WithPolling(20 * time.Millisecond).Should(Succeed())
	scheduler(ctx, false)
}

// strikeIn lets a run of x reach a state, injects the fault there, and waits for the result of the run.
func (t *trial) strikeIn(ctx context.Context, s strike, cell faults.Cell, run int) {
	GinkgoHelper()
	By(cell.Name())
	began := time.Now()
	hit := func() {
		s.begin(ctx, t, cell.State)
		began = time.Now()
		t.attempts[cell.State] = cell.Attempts
		if cell.Or != nil {
			free, err := localcluster.FreeCPUs(ctx, options, endOf(cell.State))
			Expect(err).NotTo(HaveOccurred())
			if free < int(t.x.Spec.Placement.CPUs) {
				t.attempts[cell.State] = cell.Or
			}
		}
	}
	// over ends the fault after the attempt has failed, or after a while.
	over := func() {
		if len(cell.Attempts) > 1 {
			t.awaitAttempt(ctx, run, 1, cell.Attempts[0])
		} else {
			time.Sleep(lasting)
		}
		if s.heal != nil {
			s.heal(ctx, cell.State)
		}
	}
	t.reach(ctx, cell, run, hit, over)
	attempts := t.attempts[cell.State]
	if len(attempts) > 1 {
		t.awaitAttempt(ctx, run, 1, attempts[0])
		t.schedule(ctx, run, 2, v1alpha1.RoleServer)
		t.schedule(ctx, run, 2, v1alpha1.RoleClient)
	}
	t.awaitAttempt(ctx, run, int32(len(attempts)), v1alpha1.OutcomeMeasured)
	AddReportEntry(fmt.Sprintf("%s: %v, %s after the fault", cell.Name(), attempts, time.Since(began).Round(100*time.Millisecond)))
}

// reach runs an attempt, calls hit in the state of the cell, and calls over after the cluster had time to notice.
func (t *trial) reach(ctx context.Context, cell faults.Cell, run int, hit, over func()) {
	GinkgoHelper()
	if cell.State == faults.Claimed {
		t.awaitPod(ctx, run, 1, v1alpha1.RoleServer)
		hit()
	}
	if run > 1 || !t.serverUp {
		t.schedule(ctx, run, 1, v1alpha1.RoleServer)
	}
	if cell.State == faults.Claimed {
		if over(); len(t.attempts[cell.State]) > 1 {
			return
		}
	}
	t.awaitPod(ctx, run, 1, v1alpha1.RoleClient)
	if cell.State == faults.ServerUp {
		if hit(); t.fault != faults.Agent {
			t.schedule(ctx, run, 1, v1alpha1.RoleClient)
		}
		over()
		return
	}
	t.schedule(ctx, run, 1, v1alpha1.RoleClient)
	if cell.State == faults.Claimed {
		return
	}
	Eventually(func() []int { return processesIn("node-a", programOf(t.x.Spec.Tool)) }).
		WithTimeout(time.Minute).WithPolling(20 * time.Millisecond).Should(HaveLen(1))
	switch {
	case cell.State == faults.Measuring:
		hit()
		over()
	case t.fault == faults.Agent || t.fault == faults.Cable:
		t.afterTool(ctx, hit, over)
	default:
		t.afterPods(ctx, run, hit, over)
	}
}

// afterTool calls hit and over after the client's tool has ended and before its agent continues.
func (t *trial) afterTool(ctx context.Context, hit, over func()) {
	GinkgoHelper()
	signalOne("node-a", agentProgram, syscall.SIGSTOP)
	Eventually(func() []int { return processesIn("node-a", programOf(t.x.Spec.Tool)) }).
		WithTimeout(soon).WithPolling(20 * time.Millisecond).Should(BeEmpty())
	hit()
	if t.fault == faults.Cable {
		signalOne("node-a", agentProgram, syscall.SIGCONT)
	}
	over()
}

// afterPods calls hit after both pods have ended and before the manager reads their logs, and calls over when the manager
// tries to.
func (t *trial) afterPods(ctx context.Context, run int, hit, over func()) {
	GinkgoHelper()
	Expect(signalInNode("manager", syscall.SIGSTOP)).To(BeNumerically(">=", 1))
	for _, role := range []string{v1alpha1.RoleClient, v1alpha1.RoleServer} {
		Eventually(func() bool {
			p, err := t.pod(ctx, run, 1, role)
			return err == nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Terminated != nil
		}).WithTimeout(soon).WithPolling(50 * time.Millisecond).Should(BeTrue())
	}
	hit()
	signalInNode("manager", syscall.SIGCONT)
	over()
}

// awaitAttempt waits for the end of an attempt of x.
func (t *trial) awaitAttempt(ctx context.Context, run int, attempt int32, reason string) {
	GinkgoHelper()
	Eventually(func() string {
		for _, a := range get(ctx, t.x).Status.Attempts {
			if a.Run != fmt.Sprintf("x-r%d", run) || a.Attempt != attempt {
				continue
			}
			if !faults.Ends(reason, a.Outcome.Reason) {
				StopTrying(fmt.Sprintf("attempt %d of %s ended with %s: %s", attempt, a.Run, a.Outcome.Reason, a.Outcome.Message)).Now()
			}
			return reason
		}
		return ""
	}).WithTimeout(2 * time.Minute).WithPolling(50 * time.Millisecond).Should(Equal(reason))
}

// expectAbsent checks a fault that cannot occur according to the table: there is no such process.
func (t *trial) expectAbsent(ctx context.Context, cell faults.Cell) {
	GinkgoHelper()
	By(cell.Name())
	program := map[faults.Fault]string{faults.Agent: agentProgram, faults.Tool: programOf(t.x.Spec.Tool)}[t.fault]
	switch cell.State {
	case faults.ServerUp:
		t.schedule(ctx, 1, 1, v1alpha1.RoleServer)
		t.awaitPod(ctx, 1, 1, v1alpha1.RoleClient)
		signalOne("node-b", agentProgram, 0)
		t.serverUp = true
	case faults.HandingOver: // the whole state comes after the tool
		return
	}
	Expect(processesIn("node-", program)).To(BeEmpty())
}

// finish lets the remaining runs complete undisturbed.
func (t *trial) finish(ctx context.Context) {
	GinkgoHelper()
	scheduler(ctx, true)
	t.x = eventuallyCompletes(ctx, t.x)
	began := time.Now()
	t.next = completesWithin(ctx, nextWithin, t.next)
	AddReportEntry(fmt.Sprintf("%s: the next benchmark was measured %s later", t.fault, time.Since(began).Round(100*time.Millisecond)))
	if t.x.Spec.Criteria != nil {
		Expect(passed(ctx, t.x)).To(HaveField("Reason", v1alpha1.ReasonFail))
	}
}

// judge changes the rules while the fault lasts, which requires no node.
func (t *trial) judge(ctx context.Context, s strike) {
	GinkgoHelper()
	By(faults.Find(t.fault, faults.Judging).Name())
	s.begin(ctx, t, faults.Judging)
	setRules(ctx, t.x, v1alpha1.Rule{Metric: v1alpha1.MetricP50, Max: v1alpha1.Limit{Text: "2ns"}})
	Eventually(passed).WithArguments(ctx, t.x).WithTimeout(soon).Should(And(
		HaveField("ObservedGeneration", BeEquivalentTo(2)), HaveField("Reason", v1alpha1.ReasonFail)))
	s.heal(ctx, faults.Judging)
}

// setRules replaces the rules of a benchmark.
func setRules(ctx context.Context, b *v1alpha1.LatencyBenchmark, rules ...v1alpha1.Rule) {
	GinkgoHelper()
	Eventually(func() error {
		current := get(ctx, b)
		current.Spec.Criteria.Rules = rules
		return kube.Update(ctx, current)
	}).WithTimeout(soon).Should(Succeed())
}

// expect checks that every run was measured once, after the attempts in the table.
func (t *trial) expect(ctx context.Context) {
	GinkgoHelper()
	t.watch.end()
	var want []string
	run := 0
	for _, state := range faults.States[1:5] {
		if cell := faults.Find(t.fault, state); cell.Never == "" {
			run++
			for i, reason := range t.attempts[state] {
				want = append(want, fmt.Sprintf("x-r%d a%d", run, i+1))
				t.awaitAttempt(ctx, run, int32(i+1), reason)
			}
		}
	}
	for run++; run <= int(t.x.Spec.Rounds); run++ {
		reasons := []string{v1alpha1.OutcomeMeasured}
		// The device plugin that was killed during the previous run may not have returned when this run started.
		if slices.ContainsFunc(t.x.Status.Attempts, func(a v1alpha1.Attempt) bool {
			return t.fault == faults.DevicePlugin && a.Run == fmt.Sprintf("x-r%d", run) && a.Outcome.Reason == v1alpha1.OutcomeDevicePluginUnavailable
		}) {
			reasons = slices.Insert(reasons, 0, v1alpha1.OutcomeDevicePluginUnavailable)
		}
		for i, reason := range reasons {
			want = append(want, fmt.Sprintf("x-r%d a%d", run, i+1))
			t.awaitAttempt(ctx, run, int32(i+1), reason)
		}
	}
	var got []string
	for _, a := range t.x.Status.Attempts {
		got = append(got, fmt.Sprintf("%s a%d", a.Run, a.Attempt))
	}
	Expect(got).To(Equal(want), "no other attempts")
	Expect(t.x.Status.Stored).To(HaveLen(int(t.x.Spec.Rounds)))
	measuredOnce(t.next, t.watch)
	Eventually(benchmarkPods).WithArguments(ctx).WithTimeout(soon).Should(BeEmpty())
}
