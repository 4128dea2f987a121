package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// Kubelet simulates the scheduler, kubelets and agents of a namespace: pods follow the spec or, while Auto runs,
// behave like agents. The steps are those of Kubelets, which see the time of the managers.
type Kubelet struct {
	*Kubelets

	mu sync.Mutex
	// seen holds the pods of the namespace as the watch saw them last; changed is closed, and replaced, when they change.
	seen    map[types.UID]*corev1.Pod
	changed chan struct{}
	dead    string // the node whose pods do nothing
}

// NewKubelet watches the pods of a namespace until the spec ends.
func NewKubelet(ctx SpecContext, namespace string, now func() time.Time) *Kubelet {
	GinkgoHelper()
	k := &Kubelet{
		Kubelets: &Kubelets{Namespace: namespace, Client: k8s, Now: now, Remove: remove},
		seen:     map[types.UID]*corev1.Pod{}, changed: make(chan struct{}),
	}
	k.Report = k.report
	follow(ctx, &corev1.PodList{}, func(event watch.EventType, o client.Object) { k.note(event, o.(*corev1.Pod)) }, client.InNamespace(namespace))
	return k
}

// note records an event of a pod.
func (k *Kubelet) note(event watch.EventType, pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if event == watch.Added || event == watch.Deleted {
		k.Note(pod, event == watch.Deleted)
	}
	switch {
	case event == watch.Deleted:
		delete(k.seen, pod.UID)
	case !k.isOld(pod):
		k.seen[pod.UID] = pod
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// isOld reports whether a newer version of a pod is known.
func (k *Kubelet) isOld(pod *corev1.Pod) bool {
	known := k.seen[pod.UID]
	if known == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(known.ResourceVersion, pod.ResourceVersion)
	return err == nil && order > 0
}

// report updates a pod's status. The next turn sees the new status even before the watch does.
func (k *Kubelet) report(ctx context.Context, pod *corev1.Pod) error {
	err := k8s.Status().Update(ctx, pod)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && k.seen[pod.UID] != nil && !k.isOld(pod) {
		k.seen[pod.UID] = pod.DeepCopy()
	}
	return err
}

// present returns copies of the existing pods, and a channel that is closed when they change.
func (k *Kubelet) present() (all []*corev1.Pod, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pod := range k.seen {
		all = append(all, pod.DeepCopy())
	}
	return all, k.changed
}

// remove removes a pod that is being deleted, unless it has no grace period, as when it has ended: then the API server removes it.
func remove(ctx context.Context, pod *corev1.Pod) error {
	if grace := pod.DeletionGracePeriodSeconds; grace != nil && *grace == 0 {
		return nil
	}
	return client.IgnoreNotFound(k8s.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
}

// Auto starts the pods of some benchmarks, or of all if none are given, lets them measure and succeed, and removes them, until the
// spec ends. Both pods of an attempt end together, once both run.
func (k *Kubelet) Auto(ctx SpecContext, benchmarks ...string) {
	ctxAuto, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	DeferCleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctxAuto.Err() == nil {
			all, changed := k.present()
			var again <-chan time.Time
			// The next turn handles pods that have changed meanwhile.
			if err := k.turn(ctxAuto, all, benchmarks); err != nil {
				fmt.Fprintln(GinkgoWriter, "kubelet:", err)
				again = time.After(20 * time.Millisecond)
			}
			select {
			case <-changed:
			case <-again:
			case <-ctxAuto.Done():
			}
		}
	}()
}

// Die stops the simulation of the pods of a node.
func (k *Kubelet) Die(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = node
}

func (k *Kubelet) isDead(pod *corev1.Pod) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead != "" && pods.Node(pod) == k.dead
}

func (k *Kubelet) turn(ctx context.Context, all []*corev1.Pod, benchmarks []string) error {
	running := map[string][]*corev1.Pod{}
	for _, pod := range all {
		if k.isDead(pod) || len(benchmarks) > 0 && !slices.Contains(benchmarks, pod.Labels[v1alpha1.LabelBenchmark]) {
			continue
		}
		var err error
		switch {
		case !pod.DeletionTimestamp.IsZero():
			err = remove(ctx, pod)
		case pod.Status.Phase == corev1.PodPending:
			if err = k.Bind(ctx, pod); err == nil {
				err = k.Attach(ctx, pod)
			}
			if err == nil {
				k.SetLog(pod, ListenLine+"\n")
				err = k.Begin(ctx, pod)
			}
		case pod.Status.Phase == corev1.PodRunning && pod.Labels[v1alpha1.LabelRun] != "":
			attempt := pod.Labels[v1alpha1.LabelRun] + "/" + pod.Labels[v1alpha1.LabelAttempt]
			running[attempt] = append(running[attempt], pod)
		}
		if err != nil {
			return err
		}
	}
	for _, both := range running {
		// One of them may have ended in a turn that was interrupted.
		if len(both) == 2 || peerEnded(all, both[0]) {
			for _, pod := range both {
				if err := k.Finish(ctx, pod); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func peerEnded(all []*corev1.Pod, pod *corev1.Pod) bool {
	for _, other := range all {
		if other.UID != pod.UID && other.Status.Phase == corev1.PodSucceeded &&
			other.Labels[v1alpha1.LabelRun] == pod.Labels[v1alpha1.LabelRun] && other.Labels[v1alpha1.LabelAttempt] == pod.Labels[v1alpha1.LabelAttempt] {
			return true
		}
	}
	return false
}
