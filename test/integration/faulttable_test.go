package integration

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/faults"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// trial is a trial of this suite.
type trial struct {
	*World
	*Trial
}

func newTrial(ctx SpecContext, state faults.State) *trial {
	GinkgoHelper()
	w := NewWorld(ctx)
	t := &trial{World: w, Trial: NewTrial(ctx, &w.Place, func(benchmarks ...string) { w.Kubelet.Auto(ctx, benchmarks...) }, state)}
	follow(ctx, &v1alpha1.LatencyBenchmarkList{}, func(event watch.EventType, o client.Object) {
		if event != watch.Deleted {
			t.Seen.See(o.(*v1alpha1.LatencyBenchmark))
		}
	}, client.InNamespace(t.Namespace))
	// Pods have creation times of the API server's clock, so they look older than they are to a manager whose clock is put forward.
	t.Settings.StartTimeout = time.Hour
	t.Start()
	return t
}

// inject starts a fault in a state, lets the kubelets continue where they can, and returns a function that ends the fault.
type inject func(ctx SpecContext, t *trial, state faults.State) (heal func())

var injections = map[faults.Fault]inject{
	faults.APIServer: func(ctx SpecContext, t *trial, state faults.State) func() {
		heal := t.FailAPI(apiServerAnswers)
		t.GoOn(ctx, state)
		return heal
	},
	faults.Etcd: func(ctx SpecContext, t *trial, state faults.State) func() {
		heal := t.FailAPI(etcdAnswers)
		t.GoOn(ctx, state)
		return heal
	},
}

var _ = Describe("The fault table:", func() {
	for _, cell := range faults.Cells() {
		if cell.Suite != faults.Integration {
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
