package benchmark

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func TestSeen(t *testing.T) {
	vf := v1alpha1.Variant{Network: &v1alpha1.Network{Type: v1alpha1.NetworkVF, NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf"}}}
	requests := map[string]string{"cpu": "2", "amd.com/sf_vf": "1"}
	cases := map[string]struct {
		variant v1alpha1.Variant
		status  string
		want    result.Seen
	}{
		"a network that is not attached": {
			variant: v1alpha1.Variant{Network: &v1alpha1.Network{Type: v1alpha1.NetworkPod}},
			status:  `[{"name":"cbr0","interface":"eth0","default":true}]`,
			want:    result.Seen{PodUID: "u", ImageID: "sha256:ab", Requests: requests},
		},
		"a VF, by name and interface": {
			variant: vf,
			status:  `[{"name":"perf/sf-vf","interface":"net2","mac":"a"},{"name":"perf/other","interface":"net1","mac":"b"},{"name":"perf/sf-vf","interface":"net1","mac":"c"}]`,
			want:    result.Seen{PodUID: "u", ImageID: "sha256:ab", Requests: requests, Network: &foreign.Status{Name: "perf/sf-vf", Interface: "net1", MAC: "c"}},
		},
		"a VF of which nothing is told": {
			variant: vf, status: "[]", want: result.Seen{PodUID: "u", ImageID: "sha256:ab", Requests: requests},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "perf", UID: "u", Annotations: map[string]string{foreign.AnnotationNetworkStatus: c.status}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{
					{Name: "injected", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("9")}}},
					{Name: pods.Container, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						"cpu": resource.MustParse("2"), "amd.com/sf_vf": resource.MustParse("1"),
					}}},
				}},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "injected", ImageID: "sha256:cd"}, {Name: pods.Container, ImageID: "sha256:ab"}}},
			}
			if diff := cmp.Diff(c.want, seen(c.variant, pod)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
