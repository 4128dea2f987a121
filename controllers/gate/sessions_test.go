package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/turns"
	"github.com/tailgate-dev/tailgate/test/gatetest"
)

// upgraded boots the node with a kernel and measures it.
func upgraded(t *testing.T, w *world, boot, kernel string, passed metav1.ConditionStatus, reason string, level int64) {
	t.Helper()
	take := func() {
		next, err := w.next(decide(w))
		if err != nil {
			t.Fatal(err)
		}
		w.verification.Status = next
	}
	w.now = w.now.Add(time.Hour)
	w.node.Status.NodeInfo.BootID, w.node.Status.NodeInfo.KernelVersion = boot, kernel
	w.benchmark = nil
	take()
	measured(passed, reason)(w)
	w.otherPeer = false
	w.benchmark.Status.Session = &v1alpha1.Session{BootID: boot, Rounds: gatetest.Rounds(slices.Repeat([]int64{level}, 10)...)}
	compared(w)
	take()
}

// shifted returns condition ChangeShifted of a gate with eight such nodes.
func shifted(g *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) *metav1.Condition {
	s := makeSnapshot(g)
	s.Verifications = slices.Repeat([]*v1alpha1.LatencyVerification{v}, 8)
	s.pool()
	return meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionChangeShifted)
}

// A kernel fails, and the next one passes: the fleet compares both with the kernel that was accepted. A node
// that is booted again after a Fail counts once.
func TestAChangeAfterAFail(t *testing.T) {
	const pass, fail = metav1.ConditionTrue, metav1.ConditionFalse
	for name, c := range map[string]struct {
		upgrades func(w *world)
		message  string
	}{
		"another kernel passes": {func(w *world) {
			upgraded(t, w, "boot-2", "6.2.0", fail, v1alpha1.ReasonFail, 1300)
			upgraded(t, w, "boot-3", "6.3.0", pass, v1alpha1.ReasonPass, 1070)
		}, `Kernel was "6.1.0" and is "6.3.0": ` + p99.String() + " of 8 nodes is 1.0700 times as much as before [1.0700, 1.0700]"},
		"a plain boot": {func(w *world) {
			upgraded(t, w, "boot-2", "6.2.0", fail, v1alpha1.ReasonFail, 1300)
			upgraded(t, w, "boot-3", "6.2.0", fail, v1alpha1.ReasonFail, 1310)
		}, `Kernel was "6.1.0" and is "6.2.0": ` + p99.String() + " of 8 nodes is 1.3000 times as much as before [1.3000, 1.3000]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := makeWorld()
			c.upgrades(w)
			if got := shifted(w.gate, w.verification); got.Status != metav1.ConditionTrue || !strings.HasPrefix(got.Message, c.message) {
				t.Errorf("%s %s", got.Status, got.Message)
			}
		})
	}
}

// A change of one cell is within the tolerance of that cell, although a rule allows another cell less.
func TestTheToleranceOfACell(t *testing.T) {
	tcp, udp := v1alpha1.ComparedValue{Variant: "default", Cell: "tcp-64", Metric: v1alpha1.MetricP99}, p99
	for _, c := range []struct {
		key  v1alpha1.ComparedValue
		want metav1.ConditionStatus
	}{{tcp, metav1.ConditionTrue}, {udp, metav1.ConditionFalse}} {
		g := makeGate(func(g *v1alpha1.LatencyGate) {
			g.Spec.Template.Spec.Workload = v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}, MessageSizes: []int32{64}}
			g.Spec.Template.Spec.Criteria.Rules = []v1alpha1.Rule{
				{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}, Cells: []string{"tcp-64"}},
				{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "50%"}, Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}},
			}
		})
		v := makeVerification("a")
		for i, level := range []int64{1000, 1100} {
			v.Status.Recent[3+i].Levels = []v1alpha1.ValueLevel{{ComparedValue: c.key, Level: level}}
		}
		if got := shifted(g, v); got == nil || got.Status != c.want {
			t.Errorf("%s: %+v", c.key, got)
		}
		// The first session of a node, 30 % slower than those of its group.
		others := makeVerification("c")
		others.Status.Reference[0].Rounds = []v1alpha1.ValueRounds{{ComparedValue: c.key, Values: slices.Repeat([]int64{1000}, 6)}}
		w := makeWorld(measured(metav1.ConditionTrue, v1alpha1.ReasonPass), func(w *world) {
			w.gate = g
			w.benchmark.Status.Session.Rounds = []v1alpha1.ValueRounds{{ComparedValue: c.key, Values: slices.Repeat([]int64{1300}, 6)}}
			w.others = slices.Repeat([]sessions.Node{sessions.OfNode(others)}, 8)
		})
		if slower, note := w.first(sessions.Levels(w.benchmark.Status.Session.Rounds), turns.Tolerances(g.Spec.Template.Benchmark())); (slower != "") != (c.key == tcp) || note != "" {
			t.Error(fmt.Sprint(c.key, ": ", slower, note))
		}
	}
}

// A kernel makes 200 nodes 8 % slower, with a tolerance of 10 %: the gate stops the upgrade, whatever single nodes change afterwards. A
// setting that no version shows does the same.
func TestAFleetThatIsSlower(t *testing.T) {
	for name, kernel := range map[string]string{"a kernel": "6.1.1", "a setting": "6.1.0"} {
		t.Run(name, func(t *testing.T) {
			g := makeGate(func(g *v1alpha1.LatencyGate) { g.Spec.Template.Spec.Criteria.Rules[1].MaxIncrease.Text = "10%" })
			s := makeSnapshot(g)
			add := func(v *v1alpha1.LatencyVerification, hour int, boot, kernel, runtime string, level int64) {
				v.Status.Recent = sessions.Remember(v.Status.Recent, v1alpha1.MeasuredSession{
					Time: *at(time.Duration(48-hour) * time.Hour), BootID: boot, Peer: "p", Accepted: true, Levels: gatetest.Levels(level),
					Identity: map[string]string{"Kernel": kernel, "ContainerRuntime": runtime},
				})
			}
			for i := range 200 {
				v := makeVerification(fmt.Sprintf("n%03d", i), in(v1alpha1.VerificationVerified))
				v.Status.Recent = nil
				add(v, 1, "1", "6.1.0", "1.7.27", int64(1000+i%3))
				add(v, 2, "2", kernel, "1.7.27", int64(1080+i%3))
				s.Verifications = append(s.Verifications, v)
			}
			for i := range 6 {
				summarize(s, turns.Choice{})
				for _, condition := range []string{v1alpha1.ConditionChangeShifted, v1alpha1.ConditionPassed} {
					c := meta.FindStatusCondition(g.Status.Conditions, condition)
					if c == nil || c.Reason != v1alpha1.ReasonChangeShifted {
						t.Fatalf("after %d more changes: %+v", i, c)
					}
				}
				add(s.Verifications[i], 3+i, "3", kernel, fmt.Sprint("1.7.28-", i), 1082)
			}
		})
	}
}
