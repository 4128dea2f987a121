package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/localcluster/install"
)

// steps are the events between the last cell of a run and the first cell of the next run, in this order.
var steps = [...]string{
	"the last cell ends",
	"both containers are reported as terminated",
	"both pods have given their CPUs and devices back",
	"the next server's pod is created",
	"its address is known",
	"the client's pod is created",
	"both containers are reported as running",
	"the first cell starts",
}

// timeline holds the times of the steps between two runs; the zero time if a step was not seen.
type timeline [len(steps)]time.Time

// transit records when the pods of one benchmark were first seen in a state. Its clock and the clocks of the nodes must agree, as
// they do on the local cluster.
type transit struct {
	// runs are the names of the runs, in the order of their first pods.
	runs []string
	// seen holds the time at which the pod of a role was first seen in a state, by "run/state/role".
	seen map[string]time.Time
}

// see records the states of a pod that it was not seen in before.
func (t *transit) see(now time.Time, p *corev1.Pod, gone bool) {
	run := p.Labels[v1alpha1.LabelRun]
	if !slices.Contains(t.runs, run) {
		t.runs = append(t.runs, run)
	}
	note := func(state string, is bool) {
		key := run + "/" + state + "/" + p.Labels[v1alpha1.LabelRole]
		if _, known := t.seen[key]; is && !known {
			t.seen[key] = now
		}
	}
	note("created", true)
	note("addressed", p.Annotations[foreign.AnnotationNetworkStatus] != "")
	note("free", gone || pods.Ended(p) && !p.DeletionTimestamp.IsZero())
	for _, c := range p.Status.ContainerStatuses {
		note("running", c.State.Running != nil || c.State.Terminated != nil)
		note("terminated", c.State.Terminated != nil)
	}
}

// both returns the time from which both ends of a run were in a state; the zero time if one was never seen in it.
func (t *transit) both(run, state string) time.Time {
	server, client := t.seen[run+"/"+state+"/"+v1alpha1.RoleServer], t.seen[run+"/"+state+"/"+v1alpha1.RoleClient]
	if server.IsZero() || client.IsZero() {
		return time.Time{}
	}
	return slices.MaxFunc([]time.Time{server, client}, time.Time.Compare)
}

// between returns the timeline from a run to the next one. cells holds, for each run, when the first cell began and the last cell
// ended.
func (t *transit) between(run, next string, cells map[string][2]time.Time) timeline {
	return timeline{
		cells[run][1], t.both(run, "terminated"), t.both(run, "free"),
		t.seen[next+"/created/"+v1alpha1.RoleServer], t.seen[next+"/addressed/"+v1alpha1.RoleServer], t.seen[next+"/created/"+v1alpha1.RoleClient],
		t.both(next, "running"), cells[next][0],
	}
}

// timelineRounds is the number of runs that -timeline measures; the first run has no predecessor.
const timelineRounds = 11

// printTimeline measures a sample over VFs on the cluster of a kubeconfig, and prints the median, minimum and maximum time of
// each step from the end of a run's measurement to the start of the next.
func printTimeline(ctx context.Context, kubeconfig string, stdout io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	api, err := install.Client(kubeconfig)
	if err != nil {
		return err
	}
	sample, err := os.ReadFile("config/samples/vf.yaml")
	if err != nil {
		return err
	}
	// The API server sets the defaults that the sample leaves out; the zero values of the Go type would be explicitly set fields.
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(sample, &o.Object); err != nil {
		return fmt.Errorf("config/samples/vf.yaml: %w", err)
	}
	o.SetNamespace("default")
	o.SetName("timeline")
	if err := errors.Join(
		unstructured.SetNestedField(o.Object, int64(timelineRounds), "spec", "rounds"),
		unstructured.SetNestedField(o.Object, "1s", "spec", "workload", "duration"),
		unstructured.SetNestedStringSlice(o.Object, []string{string(v1alpha1.ProtocolTCP)}, "spec", "workload", "protocols"),
	); err != nil {
		return err
	}
	if err := api.Create(ctx, o); err != nil {
		return fmt.Errorf("creating the benchmark: %w", err)
	}
	b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
	defer func() { err = errors.Join(err, api.Delete(context.WithoutCancel(ctx), b)) }()
	seen, err := watchRuns(ctx, api, b)
	if err != nil {
		return err
	}
	cells := map[string][2]time.Time{}
	for _, s := range b.Status.Stored {
		cm := &corev1.ConfigMap{}
		if err := api.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: s.ConfigMap}, cm); err != nil {
			return fmt.Errorf("getting ConfigMap %s: %w", s.ConfigMap, err)
		}
		stored, err := result.Open(cm, s)
		if err != nil {
			return fmt.Errorf("ConfigMap %s: %w", s.ConfigMap, err)
		}
		all := stored.Client.Cells
		cells[s.Run] = [2]time.Time{all[0].StartedAt, all[len(all)-1].FinishedAt}
	}
	var timelines []timeline
	for i := range seen.runs[1:] {
		timelines = append(timelines, seen.between(seen.runs[i], seen.runs[i+1], cells))
	}
	return printSteps(stdout, timelines)
}

// watchRuns watches the pods of a benchmark until it has finished.
func watchRuns(ctx context.Context, api client.WithWatch, b *v1alpha1.LatencyBenchmark) (*transit, error) {
	t := &transit{seen: map[string]time.Time{}}
	w, err := api.Watch(ctx, &corev1.PodList{}, client.InNamespace(b.Namespace), client.MatchingLabels(pods.Labels(b.Name)))
	if err != nil {
		return nil, fmt.Errorf("watching the pods: %w", err)
	}
	defer w.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case e, ok := <-w.ResultChan():
			p, isPod := e.Object.(*corev1.Pod)
			if !ok || !isPod {
				return nil, fmt.Errorf("the watch of the pods ended: %v", e.Object)
			}
			t.see(time.Now(), p, e.Type == watch.Deleted)
		case <-look.C:
			if err := api.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
				return nil, fmt.Errorf("getting the benchmark: %w", err)
			}
			if meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionSucceeded) {
				return t, nil
			}
			if b.Finished() {
				return nil, fmt.Errorf("the benchmark failed: %s", meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded).Message)
			}
		}
	}
}

// printSteps prints the time of each step after the end of the last cell, in seconds.
func printSteps(w io.Writer, timelines []timeline) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "seconds after the last cell of a run\tmedian of %d\tmin\tmax\n", len(timelines))
	for i, step := range steps[1:] {
		var after []float64
		for _, t := range timelines {
			if at := t[i+1]; !at.IsZero() {
				after = append(after, at.Sub(t[0]).Seconds())
			}
		}
		if len(after) == 0 {
			fmt.Fprintf(table, "%s\tnot seen\t\t\n", step)
			continue
		}
		slices.Sort(after)
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.2f\n", step, median(after), after[0], after[len(after)-1])
	}
	return table.Flush()
}
