// Package pods builds the two pods of a run. It is pure; golden files in testdata show what comes out.
//
// The pods are guaranteed (requests equal limits) with whole CPUs, so that a kubelet with the static CPU
// manager gives them CPUs of their own, and have nothing that a measurement does not need: no API token, no
// host path, no capability, no probe once they are ready.
package pods

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

const (
	// Container is the name of the only container.
	Container = "agent"
	// Interface is the name of the measured interface on a secondary network. It is asked for by name, so
	// that nothing depends on an order.
	Interface = "net1"
	// StartAllowance is added to a pod's active deadline for pulling the image and setting up the network. The
	// operator's own patience must not be longer.
	StartAllowance = 10 * time.Minute

	agent = "/usr/local/bin/tailgate-agent"
)

// Endpoint is one side of an attempt at a run.
type Endpoint struct {
	// Benchmark that owns the pod.
	Benchmark *v1alpha1.LatencyBenchmark
	// Image of the agent and the tools.
	Image string
	// PullPolicy of the image.
	PullPolicy corev1.PullPolicy
	// ServiceAccount of the pod, which gets no token of it; empty: the namespace's default.
	ServiceAccount string
	// Node on which the pod has to run.
	Node string
	// Variant that is measured.
	Variant v1alpha1.Variant
	// Task of the agent.
	Task plan.Task
	// Scratch says whether the tool writes files at this end.
	Scratch bool
	// Name of the pod; that of Name when it is empty.
	Name string
}

// Name of the pod of one role in an attempt at a run.
func Name(run string, attempt int32, role string) string {
	return fmt.Sprintf("%s-a%d-%s", run, attempt, role)
}

// NameOf is the name of the pod of one role in the active attempt.
func NameOf(a *v1alpha1.ActiveAttempt, role string) string {
	name := Name(a.Run, a.Attempt, role)
	if a.PodSuffix != "" {
		name += "-" + a.PodSuffix
	}
	return name
}

// Labels of everything that belongs to a benchmark.
func Labels(benchmark string) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate,
		v1alpha1.LabelBenchmark: benchmark,
	}
}

// Owner is the owner reference that makes an object go with its benchmark.
func Owner(b *v1alpha1.LatencyBenchmark) metav1.OwnerReference {
	return *metav1.NewControllerRef(b, v1alpha1.GroupVersion.WithKind("LatencyBenchmark"))
}

// secretKey is where the Secret of a benchmark has its key.
const secretKey = "key"

// SecretName is the name of the Secret of a benchmark, which no benchmark before it had.
func SecretName(b *v1alpha1.LatencyBenchmark) string { return "tailgate-" + string(b.UID) }

// Secret makes the Secret by which the agents of a benchmark know each other. Unlike what is in a pod's spec, only who may
// read Secrets, or create pods or run commands in them, can read it.
func Secret(b *v1alpha1.LatencyBenchmark, key string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Namespace, Name: SecretName(b), Labels: Labels(b.Name), OwnerReferences: []metav1.OwnerReference{Owner(b)},
		},
		Immutable:  new(true),
		StringData: map[string]string{secretKey: key},
	}
}

// Build makes the pod of an endpoint.
func Build(e Endpoint) (*corev1.Pod, error) {
	task, err := e.Task.Encode()
	if err != nil {
		return nil, err
	}

	labels := foreign.OptOutLabels()
	maps.Copy(labels, Labels(e.Benchmark.Name))
	labels[v1alpha1.LabelRun] = e.Task.Run
	labels[v1alpha1.LabelAttempt] = strconv.Itoa(int(e.Task.Attempt))
	labels[v1alpha1.LabelRole] = e.Task.Role

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            cmp.Or(e.Name, Name(e.Task.Run, e.Task.Attempt, e.Task.Role)),
			Namespace:       e.Benchmark.Namespace,
			Labels:          labels,
			Annotations:     foreign.OptOutAnnotations(),
			OwnerReferences: []metav1.OwnerReference{Owner(e.Benchmark)},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			ServiceAccountName:            e.ServiceAccount,
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(int64(2)),
			// A last resort that holds even when no manager is left to see it.
			ActiveDeadlineSeconds: new(int64((e.Task.Deadline + StartAllowance).Seconds())),
			Affinity:              onNode(e.Node),
			SecurityContext:       identity(len(capabilities(e)) > 0),
			Containers: []corev1.Container{{
				Name:            Container,
				Image:           e.Image,
				ImagePullPolicy: e.PullPolicy,
				Command:         []string{agent},
				Args:            []string{e.Task.Role},
				Env: []corev1.EnvVar{
					{Name: plan.EnvTask, Value: task},
					fromField(plan.EnvNode, "spec.nodeName"),
					fromField(plan.EnvPodIP, "status.podIP"),
					{Name: plan.EnvKey, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
						LocalObjectReference: corev1.LocalObjectReference{Name: SecretName(e.Benchmark)}, Key: secretKey,
					}}},
				},
				Resources: resources(e),
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					ReadOnlyRootFilesystem:   new(true),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities(e)},
				},
			}},
		},
	}
	if e.Scratch {
		addScratch(&pod.Spec)
	}

	if t := e.Benchmark.Spec.Pods.DeepCopy(); t != nil {
		maps.Copy(pod.Annotations, t.Annotations)
		if t.RuntimeClassName != "" {
			pod.Spec.RuntimeClassName = &t.RuntimeClassName
		}
		pod.Spec.PriorityClassName = t.PriorityClassName
		pod.Spec.Tolerations = t.Tolerations
	}
	placement := e.Benchmark.Spec.Placement.Of(e.Task.Role)
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, placement.DeepCopy().Tolerations...)
	switch network := e.Variant.Network; {
	case network.Type == v1alpha1.NetworkHost:
		pod.Spec.HostNetwork = true
	case network.Type.Attached():
		selection, err := selection(e)
		if err != nil {
			return nil, err
		}
		annotation, err := foreign.Annotation(selection)
		if err != nil {
			return nil, err
		}
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, foreign.AnnotationNetworks, annotation)
	}
	return pod, nil
}

func addScratch(spec *corev1.PodSpec) {
	spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: plan.Scratch}}
}

// identity is the user that the agent and the tools run as: the image's, which is not root, or one that the cluster chooses,
// as OpenShift does from the range of each namespace. A capability that a container adds reaches root only: any other user
// loses it at exec, as no container has it ambient. So the capturing server is root, with nothing but that one capability.
func identity(root bool) *corev1.PodSecurityContext {
	context := &corev1.PodSecurityContext{
		RunAsNonRoot:   new(!root),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if root {
		context.RunAsUser = new(int64(0))
	}
	return context
}

// capabilities is what an endpoint needs beyond nothing: the server of a variant with capture reads packets.
func capabilities(e Endpoint) []corev1.Capability {
	if e.Variant.Capture == v1alpha1.CaptureServer && e.Task.Role == v1alpha1.RoleServer {
		return []corev1.Capability{"NET_RAW"}
	}
	return nil
}

// resources asks the same of requests and limits: that makes the pod guaranteed. Of each device it asks one. Huge pages
// are not mounted: Onload takes its packet buffers from memfd_create with MFD_HUGETLB (init_resource_alloc in its
// netif_init.c), and the request is what lets the container have them.
func resources(e Endpoint) corev1.ResourceRequirements {
	list := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(e.Benchmark.CPUs().Of(e.Task.Role)), resource.DecimalSI),
		corev1.ResourceMemory: *e.Benchmark.Spec.Placement.Of(e.Task.Role).Memory,
	}
	for _, device := range e.Variant.Resources() {
		list[corev1.ResourceName(device)] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	if t := e.Benchmark.Spec.Pods; t != nil && t.Hugepages != nil {
		list[corev1.ResourceName(corev1.ResourceHugePagesPrefix+t.Hugepages.Size)] = t.Hugepages.Amount
	}
	return corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

// onNode binds a pod to a node by affinity rather than by spec.nodeName: the scheduler still checks that the
// node has what is asked, and a pod that does not fit waits instead of being rejected.
func onNode(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{
					Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				}},
			}},
		},
	}}
}

// Ended says whether a pod has ended, well or not, and never runs again. The kubelet says so after it stopped the sandbox.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Node returns the node for which a pod was built, whether or not it is scheduled yet.
func Node(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil || p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}
