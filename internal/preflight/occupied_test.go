package preflight

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

func TestOccupying(t *testing.T) {
	requesting := func(cpu, memory string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100"), corev1.ResourceMemory: resource.MustParse("100Gi")},
		}}
	}
	sidecar := func(cpu, memory string) corev1.Container {
		c := requesting(cpu, memory)
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		return c
	}
	labelled := func(labels map[string]string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = labels }
	}
	inPhase := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Phase = phase }
	}
	taking := func(milliCPU, memory int64) map[corev1.ResourceName]int64 {
		return map[corev1.ResourceName]int64{corev1.ResourceCPU: milliCPU, corev1.ResourceMemory: memory}
	}
	const mi = 1 << 20

	cases := map[string]struct {
		change func(*corev1.Pod)
		// want is nil for a pod that takes nothing.
		want map[corev1.ResourceName]int64
	}{
		"its containers together": {
			change: func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, requesting("250m", "64Mi")) },
			want:   taking(1250, 192*mi),
		},
		"a device": {
			change: func(p *corev1.Pod) {
				p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{vf: resource.MustParse("2")}}}}
			},
			want: map[corev1.ResourceName]int64{vf: 2},
		},
		"one that asks for nothing": {
			change: func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{{}} },
			want:   map[corev1.ResourceName]int64{},
		},
		"an init container that needs more": {
			change: func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{requesting("3", "1Mi")} },
			want:   taking(3000, 128*mi),
		},
		"init containers one after the other": {
			change: func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{requesting("800m", "1Mi"), requesting("900m", "256Mi")}
			},
			want: taking(1000, 256*mi),
		},
		"a sidecar": {
			change: func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{sidecar("500m", "16Mi")} },
			want:   taking(1500, 144*mi),
		},
		"an init container beside the sidecar that was started before it": {
			change: func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{requesting("1900m", "1Mi"), sidecar("500m", "16Mi"), requesting("1800m", "1Mi")}
			},
			want: taking(2300, 144*mi),
		},
		"the overhead of its runtime": {
			change: func(p *corev1.Pod) {
				p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
			},
			want: taking(1000, 160*mi),
		},
		"requests of the pod as a whole": {
			change: func(p *corev1.Pod) {
				p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
				p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("4"), "hugepages-2Mi": resource.MustParse("2Mi"), "example.com/none": resource.MustParse("1"),
				}}
			},
			want: map[corev1.ResourceName]int64{corev1.ResourceCPU: 4010, corev1.ResourceMemory: 128 * mi, "hugepages-2Mi": 2 * mi},
		},
		"one that is ending": {
			change: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
			want:   taking(1000, 128*mi),
		},
		"one that has succeeded":     {change: inPhase(corev1.PodSucceeded)},
		"one that has failed":        {change: inPhase(corev1.PodFailed)},
		"one that is not placed":     {change: func(p *corev1.Pod) { p.Spec.NodeName = "" }},
		"one of a benchmark":         {change: labelled(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate, v1alpha1.LabelRole: v1alpha1.RoleServer})},
		"a pod with an unknown role": {change: labelled(map[string]string{v1alpha1.LabelRole: v1alpha1.RoleServer}), want: taking(1000, 128*mi)},
		"one of the operator itself": {change: labelled(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate}), want: taking(1000, 128*mi)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "x"},
				Spec:       corev1.PodSpec{NodeName: "a", Priority: new(int32(7)), Containers: []corev1.Container{requesting("1", "128Mi")}},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning},
			}
			c.change(p)
			got, ok := Occupying(p)
			if ok != (c.want != nil) {
				t.Fatalf("counts: %t", ok)
			}
			if c.want == nil {
				return
			}
			c.want[corev1.ResourcePods] = 1
			if diff := cmp.Diff(Pod{Name: "perf/x", Node: "a", Requests: c.want, Priority: 7}, got); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}
