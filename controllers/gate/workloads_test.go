package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// TestWorkloads follows the status of a gate while its pods are inspected, restart, move and end.
func TestWorkloads(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	at := func(minutes int) metav1.Time { return metav1.NewTime(now.Add(time.Duration(minutes) * time.Minute)) }
	const none = "no inspection since its container started; use kubectl tailgate inspect"
	inspectedBy := func(name string, started, ended int, code int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
				TargetContainerName: "app", EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name},
			})
			p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, corev1.ContainerStatus{Name: name, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: code, StartedAt: at(started), FinishedAt: at(ended)},
			}})
		}
	}
	first := inspectedBy("tailgate-inspect-a", 1, 2, 0)
	inspectedAt := func(minutes int) *metav1.Time { return new(at(minutes)) }
	for name, test := range map[string]struct {
		require  string
		selector string
		change   []func(*corev1.Pod)
		log      string
		err      error
		pods     int32
		proved   int32
		message  string
		want     *v1alpha1.WorkloadPod
	}{
		"without an inspection":         {pods: 1, want: &v1alpha1.WorkloadPod{Message: none}},
		"an inspection":                 {change: []func(*corev1.Pod){first}, require: "ThreadsOnCPUs", pods: 1, proved: 1},
		"another MTU":                   {change: []func(*corev1.Pod){first}, require: "ThreadsOnCPUs,MTU=1234", pods: 1, want: &v1alpha1.WorkloadPod{InspectionTime: inspectedAt(2), Failed: []string{"MTU"}}},
		"what it cannot prove":          {change: []func(*corev1.Pod){first}, pods: 1, want: &v1alpha1.WorkloadPod{InspectionTime: inspectedAt(2), Unknown: []string{"CPUsExclusive"}}},
		"an inspection that failed":     {change: []func(*corev1.Pod){inspectedBy("tailgate-inspect-a", 1, 2, 1)}, pods: 1, want: &v1alpha1.WorkloadPod{Message: none}},
		"another ephemeral container":   {change: []func(*corev1.Pod){inspectedBy("debugger", 1, 2, 0)}, pods: 1, want: &v1alpha1.WorkloadPod{Message: none}},
		"before the container's start":  {change: []func(*corev1.Pod){inspectedBy("tailgate-inspect-a", -2, -1, 0)}, pods: 1, want: &v1alpha1.WorkloadPod{Message: none}},
		"two, of which the last failed": {change: []func(*corev1.Pod){first, inspectedBy("tailgate-inspect-b", 3, 4, 1)}, require: "ThreadsOnCPUs", pods: 1, proved: 1},
		"a watch": {change: []func(*corev1.Pod){first, func(p *corev1.Pod) {
			p.Spec.EphemeralContainers[0].Command = append(slices.Clone(pods.InspectCommand), "10s", "10m")
		}}, pods: 1, want: &v1alpha1.WorkloadPod{Message: none}},
		"another container": {change: []func(*corev1.Pod){first, func(p *corev1.Pod) {
			p.Spec.EphemeralContainers[0].TargetContainerName = "sidecar"
		}}, pods: 1, want: &v1alpha1.WorkloadPod{Message: none}},
		"one interface": {change: []func(*corev1.Pod){first, func(p *corev1.Pod) {
			p.Spec.EphemeralContainers[0].Env = []corev1.EnvVar{{Name: plan.EnvInterface, Value: "eth0"}}
		}}, pods: 1, want: &v1alpha1.WorkloadPod{Message: none}},
		"the later of two":       {change: []func(*corev1.Pod){inspectedBy("tailgate-inspect-b", 3, 4, 0), first}, pods: 1, want: &v1alpha1.WorkloadPod{InspectionTime: inspectedAt(4), Unknown: []string{"CPUsExclusive"}}},
		"a kubelet that is away": {change: []func(*corev1.Pod){first}, err: errors.New("no route"), pods: 1, want: &v1alpha1.WorkloadPod{InspectionTime: inspectedAt(2), Message: "reading the inspection: no route"}},
		"a log of something else": {change: []func(*corev1.Pod){first}, log: "hello\n", pods: 1, want: &v1alpha1.WorkloadPod{
			InspectionTime: inspectedAt(2), Message: "reading the inspection: " + result.ErrMissing.Error() + " in the log; is the image a Tailgate bench image?",
		}},
		"a pod that ended":        {change: []func(*corev1.Pod){func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }}},
		"a node of another gate":  {change: []func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.NodeName = "z" }}},
		"a selector that is none": {selector: "app in feed", message: "selector: "},
		"a selector of all pods":  {selector: " ", message: "selector: it must select by a label"},
		"an unknown requirement":  {require: "Fast", message: "require: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := makeGate(func(g *v1alpha1.LatencyGate) {
				g.Spec.Workloads = []v1alpha1.GateWorkload{{Name: "feed", Namespace: "trading", Selector: cmp.Or(test.selector, "app=feed"), Require: cmp.Or(test.require, "CPUsExclusive,ThreadsOnCPUs")}}
			})
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "trading", Name: "feed", UID: "u", Labels: map[string]string{"app": "feed"}},
				Spec:       corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Name: "app"}}},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
					Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(0)}},
				}}},
			}
			for _, change := range test.change {
				change(pod)
			}
			v := makeVerification("a")
			api := gateServer(t, g, pod, v, makeNode("a"), makeNode("z"))
			reads := 0
			r := &Workloads{API: controllers.API{Client: api, Live: api, Clock: clocktesting.NewFakeClock(now)}, Logs: func(_ context.Context, pod types.NamespacedName, container string) (io.ReadCloser, error) {
				reads++
				if pod.Name != "feed" || !strings.HasPrefix(container, "tailgate-inspect-") {
					t.Errorf("the log of %s in %s", container, pod)
				}
				log := test.log
				if log == "" {
					log = resulttest.InspectionLog(resulttest.Workload())
				}
				return io.NopCloser(strings.NewReader(log)), test.err
			}}
			for range 2 {
				got, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(g)})
				if err != nil || got.RequeueAfter != workloadsAgain {
					t.Fatalf("%+v, %v", got, err)
				}
			}
			if reads > 1 {
				t.Errorf("the log was read %d times", reads)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
				t.Fatal(err)
			}
			status := g.Status.Workloads[0]
			if status.Pods != test.pods || status.Proved != test.proved || !strings.HasPrefix(status.Message, test.message) || test.message == "" && status.Message != "" {
				t.Errorf("%+v", status)
			}
			var want []v1alpha1.WorkloadPod
			if test.want != nil {
				test.want.Name, test.want.NodeName = "feed", "a"
				want = append(want, *test.want)
			}
			if diff := gocmp.Diff(want, status.Others); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWorkloadsFit: a status of many pods with long names is one that the API server takes, also if the list of pods ends in an error, and a log
// that cannot be read is read again after ten minutes. The pods of a namespace without rights are not listed.
func TestWorkloadsFit(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	long := strings.Repeat("x", 240)
	g := makeGate(func(g *v1alpha1.LatencyGate) {
		g.Spec.Workloads = []v1alpha1.GateWorkload{
			{Name: "feed", Namespace: "trading", Selector: "app=feed", Require: "ThreadsOnCPUs"}, {Name: "other", Namespace: "other", Selector: "app=feed", Require: "ThreadsOnCPUs"},
			{Name: "twice", Namespace: "trading", Selector: "app=feed", Require: "MTU=9,MTU=9"},
		}
	})
	objects := []client.Object{g, makeNode("a"), makeVerification("a")}
	for n := range 60 {
		objects = append(objects, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "trading", Name: fmt.Sprint(long, n), UID: types.UID(fmt.Sprint(n)), Labels: map[string]string{"app": "feed"}},
			Spec: corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Name: "app"}}, EphemeralContainers: []corev1.EphemeralContainer{{
				TargetContainerName: "app", EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "tailgate-inspect-a"},
			}}},
			Status: corev1.PodStatus{
				Phase:             corev1.PodRunning,
				ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
				EphemeralContainerStatuses: []corev1.ContainerStatus{{Name: "tailgate-inspect-a", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.Now(), FinishedAt: metav1.Now()},
				}}},
			},
		})
	}
	api, failed, reads := gateServer(t, objects...), false, 0
	cached := interceptor.NewClient(api, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ok := o.(*v1alpha1.LatencyVerification); ok && failed {
			return errors.New(long)
		}
		return c.Get(ctx, key, o, opts...)
	}})
	r := &Workloads{API: controllers.API{Client: cached, Live: api, Clock: clock}, Namespaces: controllers.Named{"trading"}, Logs: func(context.Context, types.NamespacedName, string) (io.ReadCloser, error) {
		reads++
		return nil, errors.New(long)
	}}
	look := func() v1alpha1.LatencyGateStatus {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(g)}); err != nil {
			t.Fatal(err)
		}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
			t.Fatal(err)
		}
		for _, w := range g.Status.Workloads {
			if len(w.Others) > 20 || len(w.Message) > 256 {
				t.Errorf("%d others, a message of %d bytes", len(w.Others), len(w.Message))
			}
			for _, p := range w.Others {
				if len(p.Message) > 256 {
					t.Errorf("a message of %d bytes", len(p.Message))
				}
			}
		}
		return g.Status
	}
	if got := look(); got.Workloads[0].Pods != 60 || reads != maxInspections || got.Workloads[1].Message != "the operator has no rights in namespace other" ||
		!strings.Contains(got.Workloads[2].Message, "MTU is there twice") {
		t.Errorf("%d reads: %+v", reads, got.Workloads)
	}
	for range 3 {
		look()
	}
	if reads != 60 { // the others at the second look
		t.Errorf("%d reads", reads)
	}
	clock.Step(unreadAgain)
	if look(); reads != 60+maxInspections {
		t.Errorf("%d reads after ten minutes", reads)
	}
	if failed = true; !strings.HasPrefix(look().Workloads[0].Message, "reading whether node a") {
		t.Error(g.Status.Workloads[0].Message)
	}
}
