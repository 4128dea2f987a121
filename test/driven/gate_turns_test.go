package driven

import (
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

var _ = Describe("A gate whose turns end without results", func() {
	// denies refuses the writes of objects of a type, by anybody.
	type deny = func(w *World)
	denies := func(of func(r Request) bool) deny {
		return func(w *World) {
			w.Store.Admit(func(r Request) error {
				if of(r) {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, r.Object.GetName(), errors.New("the webhook does not answer"))
				}
				return nil
			})
		}
	}
	// meets acts on each benchmark of the gate when it is created.
	meets := func(act func(ctx SpecContext, w *World, b *v1alpha1.LatencyBenchmark)) func(SpecContext, *World) {
		return func(ctx SpecContext, w *World) {
			seen := map[string]bool{}
			w.Actors = append(w.Actors, func(time.Time) (bool, time.Time) {
				list := &v1alpha1.LatencyBenchmarkList{}
				Expect(k8s.List(ctx, list)).To(Succeed())
				for i := range list.Items {
					if b := &list.Items[i]; b.Status.CompletionTime == nil && b.DeletionTimestamp.IsZero() && !seen[string(b.UID)] {
						seen[string(b.UID)] = true
						act(ctx, w, b)
						return true, time.Time{}
					}
				}
				return false, time.Time{}
			})
		}
	}
	always := func(d deny) func(SpecContext, *World) { return func(_ SpecContext, w *World) { d(w) } }

	DescribeTable("gives each node back as it was, holds no more than maxParallel of them at once, and pauses:",
		func(ctx SpecContext, begin func(SpecContext, *World)) {
			const parallel = 2
			w := NewGateWorld(ctx, "c", "d", "e", "f")
			w.Start()
			daily := fmt.Sprintf("0 %d * * *", w.Clock.Now().Add(2*time.Hour).UTC().Hour())
			g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
				s.Schedule, s.MaxParallel = daily, new(intstr.FromInt32(parallel))
			}))
			eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).WithTimeout(time.Hour).Should(HavePrefix("True AllVerified"))
			was := map[string]string{}
			nodes := &corev1.NodeList{}
			Expect(k8s.List(ctx, nodes, client.MatchingLabels{gateLabel: w.Namespace})).To(Succeed())
			for _, n := range nodes.Items {
				was[n.Name] = w.Says(ctx, n.Name) + w.Verification(ctx, n.Name).Status.Verified().Message
			}
			tainted, most, turns := map[string]bool{}, 0, 0
			follow(w, func(before, after *corev1.Node) {
				if after == nil {
					return
				}
				if held := isTainted(after); held && !tainted[after.Name] {
					turns++
				}
				tainted[after.Name] = isTainted(after)
				now := 0
				for _, held := range tainted {
					if held {
						now++
					}
				}
				most = max(most, now)
			})
			begin(ctx, w)
			w.Pass(3*time.Hour + 5*time.Minute)
			AddReportEntry(fmt.Sprintf("%d turns, at most %d nodes held at once; %s", turns, most, gateSays(ctx, g, v1alpha1.ConditionOperational)))
			Expect(most).To(BeNumerically("<=", parallel))
			Expect(gateSays(ctx, g, v1alpha1.ConditionPassed)).NotTo(HavePrefix("False"))
			for name, says := range was {
				v := w.Verification(ctx, name)
				if n := Get(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); n.Spec.Unschedulable {
					continue // It is a node that a user cordoned, and was compared before.
				}
				Expect(w.Says(ctx, name)+v.Status.Verified().Message).To(Equal(says), "an hour after the time of the schedule")
			}
			if turns > 0 {
				Expect(gateSays(ctx, g, v1alpha1.ConditionOperational)).To(HavePrefix("False "), "and the gate says why")
			}
			Expect(turns).To(BeNumerically("<=", v1alpha1.MaxFruitless+parallel))
		},
		Entry("a webhook refuses the pods", always(denies(func(r Request) bool { _, ok := r.Object.(*corev1.Pod); return ok && r.Verb == "create" }))),
		Entry("a webhook refuses the benchmarks", always(denies(func(r Request) bool {
			_, ok := r.Object.(*v1alpha1.LatencyBenchmark)
			return ok && r.Verb == "create"
		}))),
		Entry("results cannot be stored", always(denies(func(r Request) bool { _, ok := r.Object.(*corev1.ConfigMap); return ok && r.Verb == "create" }))),
		Entry("the taint is refused", always(denies(func(r Request) bool {
			n, ok := r.Object.(*corev1.Node)
			return ok && ofObjects(r.Verb) && isTainted(n)
		}))),
		Entry("the agents fail", func(_ SpecContext, w *World) { w.Kubelet.Agents(func(d *result.Document) { d.Cells = nil }) }),
		Entry("no kubelet starts a pod", func(_ SpecContext, w *World) { w.Kubelet.Late(100 * time.Hour) }),
		Entry("a user deletes the benchmarks", meets(func(ctx SpecContext, _ *World, b *v1alpha1.LatencyBenchmark) {
			Expect(client.IgnoreNotFound(k8s.Delete(ctx, b))).To(Succeed())
		})),
		Entry("a user suspends the benchmarks", meets(func(ctx SpecContext, _ *World, b *v1alpha1.LatencyBenchmark) {
			Edit(ctx, b, func(b *v1alpha1.LatencyBenchmark) { b.Spec.Suspend = true })
		})),
		Entry("the nodes are cordoned in their turns", meets(func(ctx SpecContext, w *World, b *v1alpha1.LatencyBenchmark) {
			w.ChangeNode(ctx, b.Labels[v1alpha1.LabelNode], func(n *corev1.Node) {
				n.Spec.Unschedulable = true
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
			})
		})),
		Entry("a user deletes the pods", func(ctx SpecContext, w *World) {
			w.Actors = append(w.Actors, func(time.Time) (bool, time.Time) {
				list := &corev1.PodList{}
				Expect(k8s.List(ctx, list, client.InNamespace(w.Namespace))).To(Succeed())
				for i := range list.Items {
					if p := &list.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp.IsZero() && p.Labels[v1alpha1.LabelRun] != "" {
						return k8s.Delete(ctx, p) == nil, time.Time{}
					}
				}
				return false, time.Time{}
			})
		}),
		Entry("the API server does not answer in the turns", meets(func(_ SpecContext, w *World, _ *v1alpha1.LatencyBenchmark) {
			w.Outage = true
			until := w.Clock.Now().Add(20 * time.Minute)
			w.Actors = append(w.Actors, func(now time.Time) (bool, time.Time) {
				if w.Outage && !now.Before(until) {
					w.Outage = false
					return true, time.Time{}
				}
				return false, until
			})
			w.Kubelet.Agents(func(d *result.Document) { d.Cells = nil })
		})),
	)
})
