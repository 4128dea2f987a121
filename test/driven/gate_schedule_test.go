package driven

import (
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A gate", func() {
	It("measures by its schedule, one node at a time, and repeats a measurement with a date in the future", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		zone, err := time.LoadLocation("Asia/Kolkata")
		Expect(err).NotTo(HaveOccurred())
		// Half a day from now, because this spec puts the clock forward by hours, which must not make the schedule due.
		daily := fmt.Sprintf("0 %d * * *", w.Clock.Now().Add(12*time.Hour).In(zone).Hour())
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Schedule, s.TimeZone = daily, zone.String() }))
		measuredAt := func(node string, when time.Time) {
			GinkgoHelper()
			eventually(func() error {
				v := w.Verification(ctx, node)
				v.Status.LastMeasurementTime = &metav1.Time{Time: when}
				return k8s.Status().Update(ctx, v)
			}).Should(Succeed())
		}
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, w.B, IsVerified)
		w.Stays(ctx, w.A, IsVerified)
		w.Stays(ctx, w.B, IsVerified)
		Expect(w.Accepted(ctx, w.A) + w.Accepted(ctx, w.B)).To(Equal("-1 since -1-1 since -1"))
		By("yesterday's results, and a schedule that is older than they are")
		eventually(func() error {
			if err := k8s.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
				return err
			}
			g.Status.Schedule.StartTime = metav1.Time{Time: w.Clock.Now().Add(-72 * time.Hour)}
			return k8s.Status().Update(ctx, g)
		}).Should(Succeed())
		for _, node := range []string{w.A, w.B} {
			measuredAt(node, w.Clock.Now().Add(-25*time.Hour))
		}
		eventually(func() int {
			both := 0
			for _, node := range []string{w.A, w.B} {
				if !strings.HasPrefix(w.Says(ctx, node), "Verified") {
					both++
				}
				Expect(w.Says(ctx, node)).To(Or(HavePrefix("Verified"), HavePrefix("Unverified ScheduleDue"), HavePrefix("Measuring")))
			}
			Expect(both).To(BeNumerically("<", 2), "the nodes take turns")
			return both
		}).Should(Equal(1))
		for _, node := range []string{w.A, w.B} {
			eventually(func() string { return w.Accepted(ctx, node) }).Should(Equal("-2 since -1"))
			w.Expect(ctx, node, IsVerified)
		}
		By("a result of a clock that had jumped")
		measuredAt(w.A, w.Clock.Now().Add(365*24*time.Hour))
		eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal("-3 since -1"))
		w.Expect(ctx, w.A, IsVerified)
	})

	It("holds no full node for its schedule, and measures when pods end or only placeholders are in the way", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		daily := fmt.Sprintf("0 %d * * *", w.Clock.Now().Add(12*time.Hour).UTC().Hour())
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Schedule = daily }))
		nodes := []string{w.A, w.B}
		for _, node := range nodes {
			w.Expect(ctx, node, IsVerified)
		}
		// fill takes all CPUs of both nodes.
		fill := func(name, class string) (free func()) {
			GinkgoHelper()
			var all []*corev1.Pod
			for _, node := range nodes {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name + "-" + node}, Spec: corev1.PodSpec{
					NodeName: node, PriorityClassName: class, Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
						Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("1Gi")},
					}}},
				}}
				Expect(k8s.Create(ctx, p)).To(Succeed())
				all = append(all, p)
			}
			return func() {
				GinkgoHelper()
				for _, p := range all {
					Expect(k8s.Delete(ctx, p, client.GracePeriodSeconds(0))).To(Succeed())
				}
			}
		}
		yesterday := func() {
			GinkgoHelper()
			eventually(func() error {
				if err := k8s.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
					return err
				}
				g.Status.Schedule.StartTime = metav1.Time{Time: w.Clock.Now().Add(-72 * time.Hour)}
				return k8s.Status().Update(ctx, g)
			}).Should(Succeed())
			for _, node := range nodes {
				eventually(func() error {
					v := w.Verification(ctx, node)
					v.Status.LastMeasurementTime = &metav1.Time{Time: w.Clock.Now().Add(-25 * time.Hour)}
					return k8s.Status().Update(ctx, v)
				}).Should(Succeed())
			}
		}
		unplaced := func() int32 {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
			return g.Status.Nodes.Unplaced
		}
		free := fill("app", "")
		yesterday()
		eventually(unplaced).Should(BeEquivalentTo(2))
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(And(
			HavePrefix("False NoRoom: 2 nodes are due by the schedule or by a request, keep their state"), ContainSubstring("/app-")))
		for _, node := range nodes {
			w.Stays(ctx, node, IsVerified)
			Expect(w.Benchmarks(ctx, node)).To(ConsistOf("-1"), "nothing was created for it")
		}

		By("the pods end")
		free()
		for _, node := range nodes {
			eventually(func() string { return w.Accepted(ctx, node) }).WithTimeout(6 * time.Minute).Should(Equal("-2 since -1"))
			w.Expect(ctx, node, IsVerified)
		}
		eventually(unplaced).Should(BeZero())

		By("placeholders fill the nodes")
		sample, err := os.ReadFile("../../config/samples/gates/reserve.yaml")
		Expect(err).NotTo(HaveOccurred())
		for document := range strings.SplitSeq(strings.ReplaceAll(string(sample), "namespace: gates", "namespace: "+w.Namespace), "\n---\n") {
			o := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal([]byte(document), &o.Object)).To(Succeed())
			Expect(k8s.Create(ctx, o)).To(Succeed())
		}
		free = fill("placeholder", "tailgate-placeholder")
		yesterday()
		for _, node := range nodes {
			eventually(func() string { return w.Accepted(ctx, node) }).Should(Equal("-3 since -1"))
		}
		Expect(unplaced()).To(BeZero())
		free()
	})
})
