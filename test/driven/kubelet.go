package driven

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/specs"
)

// runTime is how long a run takes.
const runTime = time.Second

// Kubelet is the stand-in for the scheduler, kubelets and agents: pods follow the spec or, after Auto, behave like agents. The
// steps are those of specs.Kubelets.
type Kubelet struct {
	*specs.Kubelets
	cluster *Cluster
	all     bool
	auto    map[string]bool
	paused  map[string]bool
	dead    string // the node whose pods do nothing
	deaf    bool   // processes ignore SIGTERM
	// wholeCores: the CPU managers of the nodes allocate only whole cores.
	wholeCores bool
}

func newKubelet(c *Cluster, namespace string) *Kubelet {
	api := c.Store.Client("kubelet")
	k := &Kubelet{
		Kubelets: &specs.Kubelets{
			Namespace: namespace, Client: api, Now: c.Clock.Now,
			Report: func(ctx context.Context, pod *corev1.Pod) error { return api.Status().Update(ctx, pod) },
			Remove: func(ctx context.Context, pod *corev1.Pod) error {
				return client.IgnoreNotFound(api.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
			},
		},
		cluster: c, auto: map[string]bool{}, paused: map[string]bool{},
	}
	c.Store.watch(func(ch change) {
		o := ch.after
		if o == nil {
			o = ch.before
		}
		if ch.kind.Kind == "Pod" && o.GetNamespace() == namespace && (ch.before == nil || ch.after == nil) {
			k.Note(o, ch.after == nil)
		}
	})
	return k
}

// Threads gives the nodes eight CPUs on four cores, and sets the option full-pcpus-only of their CPU managers.
func (k *Kubelet) Threads(fullPCPUsOnly bool) { k.Observe, k.wholeCores = onThreads, fullPCPUsOnly }

// Deaf makes the processes in pods ignore SIGTERM: they end when their grace periods are over.
func (k *Kubelet) Deaf() { k.deaf = true }

// Die stops everything on a node.
func (k *Kubelet) Die(node string) { k.dead = node }

// Auto starts the pods of some benchmarks, or of all if none are given, lets them measure and succeed, and removes them. Both pods
// of an attempt end together, a second after both run.
func (k *Kubelet) Auto(benchmarks ...string) {
	k.all = k.all || len(benchmarks) == 0
	for _, name := range benchmarks {
		k.auto[name] = true
	}
}

// Logs is a LogReader of the agents' logs. A log that has no result yet cannot be followed: the agents have ended before a manager
// would have found the result.
func (k *Kubelet) Logs(ctx context.Context, pod types.NamespacedName, follow bool) (io.ReadCloser, error) {
	if follow {
		return nil, fmt.Errorf("no log of %s", pod)
	}
	return k.Kubelets.Logs(ctx, pod, follow)
}

// act does the next thing that kubelets and agents do on their own.
func (k *Kubelet) act(now time.Time) (acted bool, next time.Time) {
	list := &corev1.PodList{}
	if err := k.cluster.Store.List(context.Background(), list); err != nil {
		panic(err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if k.dead != "" && pods.Node(pod) == k.dead || !k.all && !k.auto[pod.Labels[v1alpha1.LabelBenchmark]] || pod.Namespace != k.Namespace {
			continue
		}
		done, again, err := k.turn(pod, list.Items, now)
		if err != nil {
			k.cluster.note("kubelet: %s: %v", pod.Name, err)
		}
		if done {
			k.cluster.note("kubelet: %s", pod.Name)
			return true, next
		}
		if !again.IsZero() && (next.IsZero() || again.Before(next)) {
			next = again
		}
	}
	return false, next
}

func (k *Kubelet) turn(pod *corev1.Pod, all []corev1.Pod, now time.Time) (done bool, again time.Time, err error) {
	ctx := context.Background()
	switch {
	case k.deaf && !pod.DeletionTimestamp.IsZero() && now.Before(pod.DeletionTimestamp.Time):
		return false, pod.DeletionTimestamp.Time, nil
	case !pod.DeletionTimestamp.IsZero():
		return true, again, k.Remove(ctx, pod)
	case pod.Status.Phase == corev1.PodPending && pods.Node(pod) != "":
		if k.wholeCores && pod.Spec.Containers[0].Resources.Requests.Cpu().Value()%2 != 0 && pod.Labels[v1alpha1.LabelRun] != "" {
			pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "SMTAlignmentError"
			pod.Status.Message = "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"
			return true, again, k.Report(ctx, pod)
		}
		if len(pod.Spec.Containers) == 0 || pod.Labels[v1alpha1.LabelManagedBy] == "" {
			return false, again, nil
		}
		if err := cmp.Or(k.Bind(ctx, pod), k.Attach(ctx, pod)); err != nil {
			return false, again, err
		}
		k.SetLog(pod, specs.ListenLine+"\n")
		return true, again, k.Begin(ctx, pod)
	case pod.Status.Phase == corev1.PodRunning && pod.Labels[v1alpha1.LabelRun] != "":
		if k.paused[pod.Labels[v1alpha1.LabelRun]] {
			return false, again, nil
		}
		ends, ok := k.endOf(pod, all)
		if !ok {
			return false, again, nil
		}
		if now.Before(ends) && !now.Before(ends.Add(-runTime)) { // Otherwise the clock was set back.
			return false, ends, nil
		}
		return true, again, k.Finish(ctx, pod)
	}
	return false, again, nil
}

// endOf returns when an agent has its result: a second after both pods of its attempt run.
func (k *Kubelet) endOf(pod *corev1.Pod, all []corev1.Pod) (time.Time, bool) {
	runsSince := func(p *corev1.Pod) time.Time {
		if all := p.Status.ContainerStatuses; p.Status.Phase == corev1.PodRunning && len(all) > 0 && all[0].State.Running != nil {
			return all[0].State.Running.StartedAt.Time
		}
		return time.Time{}
	}
	own := runsSince(pod)
	if own.IsZero() {
		return own, false
	}
	for i := range all {
		peer := &all[i]
		if peer.UID == pod.UID || peer.Labels[v1alpha1.LabelRun] != pod.Labels[v1alpha1.LabelRun] || peer.Labels[v1alpha1.LabelAttempt] != pod.Labels[v1alpha1.LabelAttempt] {
			continue
		}
		if peer.Status.Phase == corev1.PodSucceeded {
			return time.Time{}, true
		}
		if since := runsSince(peer); !since.IsZero() {
			if own.After(since) {
				since = own
			}
			return since.Add(runTime), true
		}
	}
	return time.Time{}, false
}

// onThreads sets the agent's observations of the CPUs of its pod, which are allocated core by core. The first core is reserved.
func onThreads(pod *corev1.Pod, d *result.Document) {
	var cpus []string
	requested := int(pod.Spec.Containers[0].Resources.Requests.Cpu().Value())
	for i := range requested {
		cpus = append(cpus, fmt.Sprint(1+i/2+4*(i%2)))
	}
	e := &d.Evidence
	e.CPUsAllowed, e.ThreadSiblings = strings.Join(cpus, ","), "1,5"
	e.Facts["cgroup.cpus-set"] = e.CPUsAllowed
	e.Facts["cpu.smt.active"], e.Facts["cpu.smt.sibling"] = "1", "own"
	if requested == 1 {
		e.Facts["cpu.smt.sibling"] = "others"
	}
}
