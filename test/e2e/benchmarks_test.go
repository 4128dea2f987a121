//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

// hostname selects a node by its name.
func hostname(node string) *v1alpha1.EndpointPlacement {
	return &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node}}}}
}

// benchmark returns a small benchmark between the two nodes over the pod network; specs change what they test. It sends at a
// rate that leaves the CPUs idle most of the time: specs of other clusters use the same CPUs, and ping-pong would occupy
// one.
func benchmark(name string, change ...func(*v1alpha1.LatencyBenchmarkSpec)) *v1alpha1.LatencyBenchmark {
	b := &v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Tool: v1alpha1.ToolPinger,
			Workload: v1alpha1.Workload{
				Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64}, RatesPerSecond: []int32{500},
				Duration: metav1.Duration{Duration: time.Second}, Warmup: metav1.Duration{Duration: 100 * time.Millisecond},
			},
			Rounds:    2,
			Placement: v1alpha1.Placement{Client: hostname(here.Client), Server: hostname(here.Server), CPUs: here.CPUs},
		}},
	}
	b.Spec.Placement.Memory.Set(512 << 20)
	for _, f := range change {
		f(&b.Spec)
	}
	return b
}

// vfs returns a network of the cluster's VFs.
func vfs() v1alpha1.Network {
	GinkgoHelper()
	if here.VF == nil {
		Skip("the values have no vf")
	}
	return v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: *here.VF.DeepCopy()}}
}

// pingPong changes a benchmark to the closed loop.
func pingPong(s *v1alpha1.LatencyBenchmarkSpec) { s.Workload.RatesPerSecond = nil }

// overVFs changes a benchmark to the cluster's VFs.
func overVFs(s *v1alpha1.LatencyBenchmarkSpec) { s.Network = vfs() }

// pfs returns a network of the cluster's PFs, which the values must have.
func pfs() v1alpha1.Network {
	return v1alpha1.Network{Type: v1alpha1.NetworkPF, PF: &v1alpha1.PFNetwork{DeviceNetwork: *here.PF.DeepCopy()}}
}

// overPFs changes a benchmark to the cluster's PFs.
func overPFs(s *v1alpha1.LatencyBenchmarkSpec) { s.Network = pfs() }

// create creates a benchmark.
func create(ctx context.Context, b *v1alpha1.LatencyBenchmark) {
	GinkgoHelper()
	Expect(kube.Create(ctx, b)).To(Succeed())
}

// get reads a benchmark again.
func get(ctx context.Context, b *v1alpha1.LatencyBenchmark) *v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	fresh := &v1alpha1.LatencyBenchmark{}
	Expect(kube.Get(ctx, client.ObjectKeyFromObject(b), fresh)).To(Succeed())
	return fresh
}

// condition returns a condition of a benchmark; the zero value if it has none of that type.
func condition(b *v1alpha1.LatencyBenchmark, conditionType string) metav1.Condition {
	if c := meta.FindStatusCondition(b.Status.Conditions, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// passed reads the current condition Passed of a benchmark.
func passed(ctx context.Context, b *v1alpha1.LatencyBenchmark) metav1.Condition {
	GinkgoHelper()
	return condition(get(ctx, b), v1alpha1.ConditionPassed)
}

// eventuallyCompletes waits until a benchmark of a few short runs has succeeded, and returns it.
func eventuallyCompletes(ctx context.Context, b *v1alpha1.LatencyBenchmark) *v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	return completesWithin(ctx, measured, b)
}

// completesWithin waits until a benchmark has succeeded, and returns it. A failure ends the wait.
func completesWithin(ctx context.Context, timeout time.Duration, b *v1alpha1.LatencyBenchmark) *v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	var fresh *v1alpha1.LatencyBenchmark
	Eventually(func() string {
		fresh = get(ctx, b)
		c := condition(fresh, v1alpha1.ConditionSucceeded)
		if c.Status == metav1.ConditionFalse {
			StopTrying("the benchmark failed: " + c.Message).Now()
		}
		return c.Reason
	}).WithTimeout(timeout).WithPolling(200 * time.Millisecond).Should(Equal(v1alpha1.ReasonComplete))
	return fresh
}

// eventuallyMeasures waits until both pods of a benchmark's active attempt run.
func eventuallyMeasures(ctx context.Context, b *v1alpha1.LatencyBenchmark) {
	GinkgoHelper()
	Eventually(func() string {
		return condition(get(ctx, b), v1alpha1.ConditionSucceeded).Reason
	}).WithTimeout(measured).WithPolling(50 * time.Millisecond).Should(Equal(v1alpha1.ReasonRunning))
}

// measuredOnce checks that every run was measured by exactly one attempt, and that no other pod was ever created.
func measuredOnce(b *v1alpha1.LatencyBenchmark, w *podWatch) {
	GinkgoHelper()
	Expect(b.Status.Attempts).To(HaveLen(int(b.Spec.Rounds)))
	for _, a := range b.Status.Attempts {
		Expect(a.Outcome.Reason).To(Equal(v1alpha1.OutcomeMeasured), "%s, attempt %d: %s", a.Run, a.Attempt, a.Outcome.Message)
		Expect(a.Attempt).To(Equal(int32(1)), "attempt of %s", a.Run)
	}
	Expect(w.created(b.Name)).To(HaveLen(2*int(b.Spec.Rounds)), "pods ever made for %s", b.Name)
	Expect(w.overlaps).To(BeEmpty(), "two runs on one node")
}

// podWatch follows all benchmark pods from its creation.
type podWatch struct {
	stop func()
	done chan struct{}
	// all holds all pods ever seen, by UID, in their last state.
	all map[string]*corev1.Pod
	// live holds the live pods by node: UID to name. A deleted pod that has ended occupies nothing on its node, although its
	// object exists for a moment more.
	live map[string]map[string]string
	// overlaps lists the moments at which two runs had live pods on one node.
	overlaps []string
}

// watchPods follows all benchmark pods until the spec ends or end is called. When the API server ends the watch, it starts
// again with a list.
func watchPods(ctx context.Context) *podWatch {
	GinkgoHelper()
	stream, err := kube.Watch(ctx, &corev1.PodList{}, managed, ours)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &podWatch{stop: cancel, done: make(chan struct{}), all: map[string]*corev1.Pod{}, live: map[string]map[string]string{}}
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			w.follow(ctx, stream)
			for stream, err = w.again(ctx); err != nil && ctx.Err() == nil; stream, err = w.again(ctx) {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	DeferCleanup(w.end)
	return w
}

// follow reads what a stream reports until it ends.
func (w *podWatch) follow(ctx context.Context, stream watch.Interface) {
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-stream.ResultChan():
			if !ok || e.Type == watch.Error {
				return
			}
			if p, ok := e.Object.(*corev1.Pod); ok {
				w.see(p, e.Type == watch.Deleted)
			}
		}
	}
}

// again lists all benchmark pods, forgets live pods that no longer exist, and watches from there.
func (w *podWatch) again(ctx context.Context) (watch.Interface, error) {
	list := &corev1.PodList{}
	if err := kube.List(ctx, list, managed, ours); err != nil {
		return nil, err
	}
	w.live = map[string]map[string]string{}
	for i := range list.Items {
		w.see(&list.Items[i], false)
	}
	return kube.Watch(ctx, &corev1.PodList{}, managed, ours, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
}

func (w *podWatch) see(p *corev1.Pod, deleted bool) {
	uid, node := string(p.UID), pods.Node(p)
	w.all[uid] = p
	if deleted || pods.Ended(p) && !p.DeletionTimestamp.IsZero() {
		delete(w.live[node], uid)
		return
	}
	if w.live[node] == nil {
		w.live[node] = map[string]string{}
	}
	w.live[node][uid] = p.Name
	for other, name := range w.live[node] {
		if other != uid {
			w.overlaps = append(w.overlaps, p.Name+" and "+name+" on "+node)
		}
	}
}

// end ends the watch. The fields may be read only after that.
func (w *podWatch) end() {
	w.stop()
	<-w.done
}

// created returns the names of all pods ever created for a benchmark.
func (w *podWatch) created(benchmark string) []string {
	var names []string
	for _, p := range w.all {
		if p.Labels[v1alpha1.LabelBenchmark] == benchmark {
			names = append(names, p.Name)
		}
	}
	return names
}
