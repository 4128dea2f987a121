package pods

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

// LabelDoctor is on every inspect pod. Its value identifies one call of kubectl tailgate doctor.
const LabelDoctor = "tailgate.dev/doctor"

// Inspection describes an inspect pod.
type Inspection struct {
	Namespace, Name string
	Call            string
	// Node is the node on which the pod must run. If it is Named, its taints do not matter.
	Node  string
	Named bool
	// Benchmark is a benchmark whose pods this one resembles; nil: one without settings.
	Benchmark *v1alpha1.LatencyBenchmark
	// Image contains the agent, and PullPolicy says when it is pulled.
	Image      string
	PullPolicy corev1.PullPolicy
	// ServiceAccount is the pod's; empty: the namespace's default.
	ServiceAccount string
	// CPUs are whole CPUs, which make the pod guaranteed. Without them it runs on those that no pod has exclusively, and always fits.
	CPUs int32
	// Devices are extended resources. The pod requests one of each.
	Devices []string
	// Network is attached at Interface; nil: no network is attached.
	Network *foreign.Selection
	// Answers makes a pod that only lets another one try the network between them; Peer is the address of such a pod, or empty.
	Answers  bool
	Peer     string
	Deadline time.Duration
}

// inspectMemory is plenty for the agent alone.
var inspectMemory = resource.MustParse("64Mi")

// Inspect returns the pod that inspects a node for kubectl tailgate doctor. It resembles the pod of a benchmark, and has
// nothing that the inspection does not need.
func Inspect(i Inspection) (*corev1.Pod, error) {
	verb, b := "inspect", cmp.Or(i.Benchmark, &v1alpha1.LatencyBenchmark{})
	asked := resources(&v1alpha1.LatencyBenchmark{}, 0, inspectMemory, i.Devices)
	if i.CPUs > 0 {
		memory := *b.Spec.Placement.Of(v1alpha1.RoleClient).Memory
		if memory.IsZero() {
			memory = inspectMemory
		}
		asked = resources(b, i.CPUs, memory, i.Devices)
	} else {
		asked.Requests[corev1.ResourceCPU] = resource.Quantity{} // no CPU, whatever a LimitRange has as its default
	}
	if i.Answers {
		verb = "answer"
	}
	labels := foreign.OptOutLabels()
	labels[LabelDoctor] = i.Call
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Name, Labels: labels, Annotations: foreign.OptOutAnnotations()},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			ServiceAccountName:            i.ServiceAccount,
			TerminationGracePeriodSeconds: new(int64(1)),
			ActiveDeadlineSeconds:         new(int64(i.Deadline.Seconds())),
			Affinity:                      onNode(i.Node),
			// The doctor also inspects nodes that Tailgate itself has tainted as unverified.
			Tolerations: []corev1.Toleration{{Key: v1alpha1.NodeTaintUnverified, Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name:            Container,
				Image:           i.Image,
				ImagePullPolicy: i.PullPolicy,
				Command:         []string{Agent},
				Args:            []string{verb},
				Env:             []corev1.EnvVar{fromField(plan.EnvNode, "spec.nodeName"), fromField(plan.EnvPodIP, "status.podIP")},
				Resources:       asked,
			}},
		},
	}
	Restrict(&pod.Spec)
	adopt(pod, b, v1alpha1.RoleClient, v1alpha1.RoleServer)
	if i.Named {
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	c := &pod.Spec.Containers[0]
	if i.Peer != "" {
		c.Env = append(c.Env, corev1.EnvVar{Name: plan.EnvPeer, Value: i.Peer})
	}
	if i.Network != nil {
		annotation, err := foreign.Annotation(*i.Network)
		if err != nil {
			return nil, err
		}
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, foreign.AnnotationNetworks, annotation)
		c.Env = append(c.Env, corev1.EnvVar{Name: plan.EnvInterface, Value: i.Network.Interface})
	}
	return pod, nil
}
