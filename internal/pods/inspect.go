package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

const (
	// LabelDoctor is on every inspect pod. Its value is that of one call of kubectl tailgate doctor.
	LabelDoctor = "tailgate.dev/doctor"
)

// Inspection is what an inspect pod is made of.
type Inspection struct {
	Namespace, Name string
	// Call is the value of LabelDoctor.
	Call string
	// Node on which the pod has to run. A named node's taints do not matter.
	Node  string
	Named bool
	// Image of the agent, and when it is pulled.
	Image      string
	PullPolicy corev1.PullPolicy
	// ServiceAccount of the pod; empty: the namespace's default.
	ServiceAccount string
	// CPU asks for a whole one, which makes the pod guaranteed. Without it the pod runs on the CPUs that no pod has to
	// himself, and fits where none is left.
	CPU bool
	// Devices are the extended resources of which the pod asks one.
	Devices []string
	// Network, if there is one, is attached at Interface.
	Network *foreign.Selection
	// Deadline is after how long the kubelet ends it.
	Deadline time.Duration
}

// inspectMemory is plenty for the agent alone.
var inspectMemory = resource.MustParse("64Mi")

// Inspect makes the pod that looks at a node for kubectl tailgate doctor. It is as a benchmark's, and has nothing that
// looking does not need.
func Inspect(i Inspection) (*corev1.Pod, error) {
	asked := corev1.ResourceList{corev1.ResourceMemory: inspectMemory}
	if i.CPU {
		asked[corev1.ResourceCPU] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	for _, device := range i.Devices {
		asked[corev1.ResourceName(device)] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	labels := foreign.OptOutLabels()
	labels[LabelDoctor] = i.Call
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Name, Labels: labels, Annotations: foreign.OptOutAnnotations()},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			ServiceAccountName:            i.ServiceAccount,
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(int64(1)),
			ActiveDeadlineSeconds:         new(int64(i.Deadline.Seconds())),
			Affinity:                      onNode(i.Node),
			// What Tailgate itself holds back, it measures all the same.
			Tolerations:     []corev1.Toleration{{Key: v1alpha1.NodeTaintUnverified, Operator: corev1.TolerationOpExists}},
			SecurityContext: identity(false),
			Containers: []corev1.Container{{
				Name:            Container,
				Image:           i.Image,
				ImagePullPolicy: i.PullPolicy,
				Command:         []string{agent},
				Args:            []string{"inspect"},
				Env:             []corev1.EnvVar{fromField(plan.EnvNode, "spec.nodeName"), fromField(plan.EnvPodIP, "status.podIP")},
				Resources:       corev1.ResourceRequirements{Requests: asked, Limits: asked.DeepCopy()},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					ReadOnlyRootFilesystem:   new(true),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	if i.Named {
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	if i.Network != nil {
		annotation, err := foreign.Annotation(*i.Network)
		if err != nil {
			return nil, err
		}
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, foreign.AnnotationNetworks, annotation)
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: plan.EnvInterface, Value: i.Network.Interface})
	}
	return pod, nil
}
