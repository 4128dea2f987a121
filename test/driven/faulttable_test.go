package driven

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/faults"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// trial is a trial of this suite.
type trial struct {
	*World
	*Trial
	manager *Manager
}

func newTrial(ctx context.Context, state faults.State) *trial {
	GinkgoHelper()
	w := NewWorld(ctx)
	t := &trial{World: w, Trial: NewTrial(ctx, &w.Place, w.Kubelet.Auto, state)}
	watchVersions(w, t.Seen)
	t.manager = t.Start()
	return t
}

// inject starts a fault in a state, lets the kubelets continue where they can, and returns a function that ends the fault.
type inject func(ctx context.Context, t *trial, state faults.State) (heal func())

var injections = map[faults.Fault]inject{
	faults.Manager: func(ctx context.Context, t *trial, state faults.State) func() {
		t.manager.Stop()
		t.GoOn(ctx, state)
		return func() { t.Start() }
	},
	faults.Pod: func(ctx context.Context, t *trial, state faults.State) func() {
		victim, role := t.Server, v1alpha1.RoleServer
		if state == faults.Measuring || state == faults.HandingOver {
			victim, role = t.Client, v1alpha1.RoleClient
		}
		Expect(k8s.Delete(ctx, victim, client.GracePeriodSeconds(0))).To(Succeed())
		for _, p := range []*corev1.Pod{t.Server, t.Client} {
			if p != nil {
				t.Kubelet.Gone(ctx, p)
			}
		}
		ExpectSucceeded(ctx, t.X, "^Unknown Retrying: .*PodLost.*the "+role+"'s pod")
		t.OthersGoOn(ctx)
		return func() {}
	},
	faults.Node:  cutOff,
	faults.Store: refuseStore,
}

// cutOff disconnects the server's node: its kubelet reports nothing, and removes no pod.
func cutOff(ctx context.Context, t *trial, state faults.State) func() {
	GinkgoHelper()
	ready := func(status corev1.ConditionStatus) {
		GinkgoHelper()
		t.ChangeNodeStatus(ctx, t.B, func(n *corev1.Node) {
			n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = status, metav1.Time{Time: t.Clock.Now()}
		})
	}
	ready(corev1.ConditionUnknown)
	if state == faults.Judging {
		t.GoOn(ctx, state)
		t.OthersGoOn(ctx)
		return func() { ready(corev1.ConditionTrue) }
	}
	// The time for which a node may be unready counts from the moment when the manager has seen it.
	eventually(func() *metav1.MicroTime { return Get(ctx, t.X).Status.Active.NotReadyTime }).ShouldNot(BeNil())
	t.Pass(61 * time.Second)
	ExpectSucceeded(ctx, t.X, "^Unknown Ending")
	if t.Client != nil {
		t.Kubelet.Gone(ctx, t.Client)
	}
	t.OthersGoOn(ctx)
	return func() {
		ready(corev1.ConditionTrue)
		t.Kubelet.Gone(ctx, t.Server)
		t.Pass(6 * time.Second)
	}
}

// refuseStore makes the API server reject ConfigMaps, by a quota. If all of them are stored already, it deletes one.
func refuseStore(ctx context.Context, t *trial, state faults.State) func() {
	GinkgoHelper()
	if state == faults.Judging {
		stored := ConfigMaps(ctx, t.X)[0]
		Expect(k8s.Delete(ctx, &stored)).To(Succeed())
		ExpectPassed(ctx, t.X, "^Unknown "+faults.Find(faults.Store, state).Verdict)
		t.GoOn(ctx, state)
		t.OthersGoOn(ctx)
		return func() {
			stored.ResourceVersion, stored.UID = "", ""
			Expect(k8s.Create(ctx, &stored)).To(Succeed())
		}
	}
	t.OthersGoOn(ctx)
	heal := exceeded[*corev1.ConfigMap](t.World, "no-config-maps")
	t.GoOn(ctx, state)
	if state == faults.Claimed || state == faults.ServerUp {
		return heal
	}
	ExpectSucceeded(ctx, t.X, "^Unknown StoreRefused: .*quota")
	if state != faults.HandingOver {
		return heal
	}
	t.Pass(61 * time.Second)
	ExpectSucceeded(ctx, t.X, "^Unknown (Ending|Retrying): .*StoreRefused")
	t.Kubelet.Gone(ctx, t.Server, t.Client)
	return func() {
		heal()
		t.Pass(6 * time.Second)
	}
}

var _ = Describe("The fault table:", func() {
	for _, cell := range faults.Cells() {
		if cell.Suite != faults.Driven {
			continue
		}
		begin := injections[cell.Fault]
		It(cell.Name(), func(ctx SpecContext) {
			Expect(begin).NotTo(BeNil(), "no spec injects this fault")
			t := newTrial(ctx, cell.State)
			t.Run(ctx, cell, func() (heal func()) { return begin(ctx, t, cell.State) })
		})
	}
})

// watchVersions records all versions of the benchmarks of a world from now on.
func watchVersions(w *World, seen *Versions) {
	follow(w, func(_, after *v1alpha1.LatencyBenchmark) {
		if after != nil {
			seen.See(after)
		}
	})
}

// exceeded refuses to create objects of a type, in the words of an API server whose quota allows none, until lift is called.
func exceeded[O client.Object](w *World, quota string) (lift func()) {
	return w.Store.Admit(func(r Request) error {
		if _, ok := r.Object.(O); !ok || r.Verb != "create" {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{}, r.Object.GetName(), fmt.Errorf("exceeded quota: %s, requested: 1, used: 0, limited: 0", quota))
	})
}
