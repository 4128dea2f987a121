package specs

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// SamplesPerRun is the number of samples in each cell of a run.
const SamplesPerRun = 2000

// documentOf returns the result of a pod's agent, whose cells took the second until then.
func documentOf(pod *corev1.Pod, finished time.Time) (result.Document, error) {
	task, err := TaskOf(pod)
	if err != nil {
		return result.Document{}, err
	}
	d := result.Document{
		Version: result.Version, Run: task.Run, Variant: task.Variant, Attempt: task.Attempt, Role: task.Role,
		Evidence: result.Evidence{
			Node: pod.Spec.NodeName, Kernel: "6.1.0-37-amd64", BootID: "boot-" + pod.Spec.NodeName, CPUsAllowed: "1", OnlineCPUs: "0-7",
			MeasuringCPU: 1, DeviceNUMANode: -1, Interface: "eth0", Address: "10.244.0.2", MTU: 1500,
			Facts:  map[string]string{"cpu.smt.sibling": "none", "cgroup.cpus-set": "1", "cgroup.cpu-max": "max 100000", "nic.carrier": "1"},
			Deltas: map[string]int64{"cgroup.stopped-us": 0, "nic.carrier-changes": 0},
		},
	}
	for _, cell := range task.Cells {
		histogram, err := HistogramFrom(10_000)
		if err != nil {
			return result.Document{}, err
		}
		d.Cells = append(d.Cells, result.Cell{
			Cell: cell, Tool: string(task.Tool), ToolVersion: "sockperf, version 3.10", Command: []string{"sockperf"},
			StartedAt: finished.Add(-time.Second), FinishedAt: finished, Histogram: histogram,
		})
	}
	d.Evidence.Paths = resulttest.ThroughKernel(d.Cells)
	if task.Acceleration == v1alpha1.AccelerationOnload {
		d.Evidence.Paths = resulttest.PastKernel(d.Cells)
	}
	if task.Role == v1alpha1.RoleServer {
		d.Cells = nil
	}
	return d, nil
}

// TaskOf returns the task in a pod's environment.
func TaskOf(pod *corev1.Pod) (plan.Task, error) {
	for _, v := range pod.Spec.Containers[0].Env {
		if v.Name == plan.EnvTask {
			return plan.DecodeTask(v.Value)
		}
	}
	return plan.Task{}, fmt.Errorf("pod %s has no task", pod.Name)
}

// HistogramFrom returns a histogram with SamplesPerRun samples, one in each nanosecond from first on.
func HistogramFrom(first int64) (result.Histogram, error) {
	recorder := result.NewRecorder()
	for i := range SamplesPerRun {
		recorder.Record(first + int64(i))
	}
	return recorder.Histogram()
}

// sampleFrom replaces the samples of all cells.
func sampleFrom(d *result.Document, first int64) {
	for i := range d.Cells {
		var err error
		if d.Cells[i].Histogram, err = HistogramFrom(first); err != nil {
			panic(err)
		}
	}
}

// Slower returns a change for Kubelets.Agents that doubles the round trips of some runs.
func Slower(runs ...string) func(*result.Document) {
	return func(d *result.Document) {
		for _, run := range runs {
			if !strings.HasPrefix(d.Run, run) {
				continue
			}
			sampleFrom(d, 20_000)
		}
	}
}

// SamplesFrom changes the round trips that agents measure: from returns the first sample of a benchmark's runs.
func (p *Place) SamplesFrom(from func(b *v1alpha1.LatencyBenchmark) int64) {
	p.Kubelets.Agents(func(d *result.Document) {
		b := &v1alpha1.LatencyBenchmark{}
		name := d.Run[:strings.LastIndex(d.Run, "-")]
		if err := suite.Client.Get(context.Background(), types.NamespacedName{Namespace: p.Namespace, Name: name}, b); err != nil {
			// The benchmark was deleted meanwhile, and its results will not be read.
			return
		}
		sampleFrom(d, from(b))
	})
}

// SlowNode doubles the latency of every run with a node at one of its ends.
func (p *Place) SlowNode(node string) {
	p.SamplesFrom(func(b *v1alpha1.LatencyBenchmark) int64 {
		if p := b.Status.Pair; p != nil && (p.ClientNode == node || p.ServerNode == node) {
			return 20_000
		}
		return 10_000
	})
}

// ExpectApart checks the history of the pods: never two pairs on one node, never more pairs at once than allowed, and on each node
// in the order of the plan.
func (p *Place) ExpectApart(all map[string]v1alpha1.LatencyBenchmark, maxParallel int) {
	GinkgoHelper()
	present, last := map[string]int{}, map[string]string{}
	for _, e := range p.Kubelets.History() {
		if e.Gone {
			if present[e.Benchmark]--; present[e.Benchmark] == 0 {
				delete(present, e.Benchmark)
			}
			continue
		}
		present[e.Benchmark]++
		Expect(len(present)).To(BeNumerically("<=", maxParallel))
		used := map[string]string{}
		for name := range present {
			placement := all[name].Spec.Placement
			for _, node := range []string{placement.Client.NodeName, placement.Server.NodeName} {
				Expect(used).NotTo(HaveKey(node), "%s and %s were on %s at once", name, used[node], node)
				used[node] = name
			}
		}
		placement := all[e.Benchmark].Spec.Placement
		for _, node := range []string{placement.Client.NodeName, placement.Server.NodeName} {
			Expect(e.Benchmark >= last[node]).To(BeTrue(), "%s was on %s after %s", e.Benchmark, node, last[node])
			last[node] = e.Benchmark
		}
	}
}
