package pods

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func TestSeen(t *testing.T) {
	const networks = `[{"name":"networks/sf-vf","interface":"net2","mac":"a"},{"name":"networks/other","interface":"net1","mac":"b"},
		{"name":"networks/sf-vf","interface":"net1","mac":"c"}]`
	pod := map[string]string{"cpu": "2", "memory": "512Mi"}
	vf := map[string]string{"cpu": "2", "memory": "512Mi", "amd.com/sf_vf": "1"}
	cases := map[string]struct {
		benchmark string
		// change and changeTask modify the pod and its task after it was built.
		change     func(p *corev1.Pod)
		changeTask func(task *plan.Task)
		status     string
		want       result.Seen
	}{
		"a network that is not attached": {
			benchmark: "pod", status: `[{"name":"cbr0","interface":"eth0","default":true}]`,
			want: result.Seen{PodUID: "u", ImageID: "sha256:ab", Requests: pod},
		},
		"a VF, by name and interface": {
			benchmark: "vf-ref", status: networks,
			want: result.Seen{PodUID: "u", ImageID: "sha256:ab", Requests: vf, Network: &foreign.Status{Name: "networks/sf-vf", Interface: "net1", MAC: "c"}},
		},
		"a VF of a network that the operator made": {
			benchmark: "vf-static", status: `[{"name":"perf/x2522-tagged","interface":"net1"}]`,
			want: result.Seen{PodUID: "u", ImageID: "sha256:ab", Requests: vf, Network: &foreign.Status{Name: "perf/x2522-tagged", Interface: "net1"}},
		},
		"a VF without device information": {
			benchmark: "vf-ref", status: "[]", want: result.Seen{PodUID: "u", ImageID: "sha256:ab", Requests: vf},
		},
		"a pod that was changed": {
			benchmark: "pod",
			change: func(p *corev1.Pod) {
				injected := corev1.Container{Name: "injected", Image: "x:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("9")}}}
				p.Spec.Containers = append([]corev1.Container{injected}, p.Spec.Containers...)
			},
			want: result.Seen{PodUID: "u", ImageID: "sha256:ab", Requests: pod, Changed: []string{"container injected: added x:1"}},
		},
		"a task that would be another today": {
			benchmark: "pod", changeTask: func(task *plan.Task) { task.Deadline *= 2 },
			want: result.Seen{PodUID: "u", ImageID: "sha256:ab", Requests: pod},
		},
		"a task of the other end": {
			benchmark: "pod", changeTask: func(task *plan.Task) { task.Role = v1alpha1.RoleServer },
			want: result.Seen{PodUID: "u", ImageID: "sha256:ab", Requests: pod, Changed: []string{"env TAILGATE_TASK: changed"}},
		},
		"a task that cannot be read": {
			benchmark: "pod", change: func(p *corev1.Pod) { p.Spec.Containers[0].Env[0].Value = "?" },
			want: result.Seen{PodUID: "u", ImageID: "sha256:ab", Requests: pod, Changed: []string{"env TAILGATE_TASK: changed"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := endpoint(c.benchmark, v1alpha1.RoleClient)
			pod := build(t, e)
			if c.changeTask != nil {
				task := e.Task
				c.changeTask(&task)
				value := task.Encode()
				pod.Spec.Containers[0].Env[0].Value = value
			}
			if c.change != nil {
				c.change(pod)
			}
			pod.UID = "u"
			if c.status != "" {
				if pod.Annotations == nil {
					pod.Annotations = map[string]string{}
				}
				pod.Annotations[foreign.AnnotationNetworkStatus] = c.status
			}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "injected", ImageID: "sha256:cd"}, {Name: Container, ImageID: "sha256:ab"}}

			e.Task = plan.Task{Role: v1alpha1.RoleClient}
			got, err := Seen(e, pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestSeenOfWhatCannotBeBuilt(t *testing.T) {
	e := endpoint("vf-static", v1alpha1.RoleServer)
	pod := build(t, e)
	e.Variant.Network.IPAM().Range = "?"
	if seen, err := Seen(e, pod); err == nil {
		t.Errorf("got %+v", seen)
	}
}
