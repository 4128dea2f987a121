// Package pods builds a run's pods, which golden files in testdata show. It is pure. They have
// whole CPUs, which a static CPU manager makes exclusive, and nothing that is not needed: no API
// token, host path, probe, or capability except NET_RAW where the server captures packets.
package pods

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const (
	Container      = "agent"
	Interface      = "net1"           // measured on a secondary network; the pod requests the name
	StartAllowance = 10 * time.Minute // image and network; the operator's timeout must be shorter
	// GracePeriodSeconds is how long the operator's pods may take to end when they are deleted.
	GracePeriodSeconds = 2
	Agent              = "/usr/local/bin/tailgate-agent"
)

type Endpoint struct {
	Benchmark      *v1alpha1.LatencyBenchmark
	Image          string
	ToolImage      string // has tools used before Image's, or is empty; it only is mounted
	AgentImage     string // has the agent if Image is a user's own, or is empty; it only is mounted
	PullPolicy     corev1.PullPolicy
	ServiceAccount string // the pod's, without its token; empty: the namespace's default
	Node           string
	Variant        v1alpha1.Variant
	Task           plan.Task
	Scratch        bool   // the tool writes files at this end
	Name           string // of the pod; empty: the function Name gives it
}

func Name(run string, attempt int32, role string) string {
	return fmt.Sprintf("%s-a%d-%s", run, attempt, role)
}

func NameOf(a *v1alpha1.ActiveAttempt, role string) string {
	name := Name(a.Run, a.Attempt, role)
	if a.PodSuffix != "" {
		name += "-" + a.PodSuffix
	}
	return name
}

func Labels(benchmark string) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate,
		v1alpha1.LabelBenchmark: benchmark,
	}
}

// Owner returns the owner reference that makes the cluster delete an object with its benchmark.
func Owner(b *v1alpha1.LatencyBenchmark) metav1.OwnerReference {
	return *metav1.NewControllerRef(b, v1alpha1.GroupVersion.WithKind("LatencyBenchmark"))
}

const secretKey = "key"

// SecretName names a benchmark's Secret. No earlier benchmark had one of this name.
func SecretName(b *v1alpha1.LatencyBenchmark) string { return "tailgate-" + string(b.UID) }

// Secret has the key of a benchmark's agents, which a pod's spec would show to more users.
func Secret(b *v1alpha1.LatencyBenchmark, key string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Namespace, Name: SecretName(b), Labels: Labels(b.Name), OwnerReferences: []metav1.OwnerReference{Owner(b)},
		},
		Immutable:  new(true),
		StringData: map[string]string{secretKey: key},
	}
}

func agentPod(image string, pull corev1.PullPolicy, serviceAccount, node, verb string, deadline time.Duration) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy:         corev1.RestartPolicyNever,
		ServiceAccountName:    serviceAccount,
		ActiveDeadlineSeconds: new(int64(deadline.Seconds())),
		Affinity:              onNode(node),
		Containers: []corev1.Container{{
			Name:            Container,
			Image:           image,
			ImagePullPolicy: pull,
			Command:         []string{Agent},
			Args:            []string{verb},
			Env:             []corev1.EnvVar{fromField(plan.EnvNode, "spec.nodeName"), fromField(plan.EnvPodIP, "status.podIP")},
		}},
	}}
}

func Build(e Endpoint) (*corev1.Pod, error) {
	labels := foreign.OptOutLabels()
	maps.Copy(labels, Labels(e.Benchmark.Name))
	labels[v1alpha1.LabelRun] = e.Task.Run
	labels[v1alpha1.LabelAttempt] = strconv.Itoa(int(e.Task.Attempt))
	labels[v1alpha1.LabelRole] = e.Task.Role
	annotations := foreign.OptOutAnnotations()
	maps.Copy(annotations, foreign.StayAnnotations())

	// The deadline is a last resort that works even when no manager is running.
	pod := agentPod(e.Image, e.PullPolicy, e.ServiceAccount, e.Node, e.Task.Role, e.Task.Deadline+StartAllowance)
	pod.Name, pod.Namespace = cmp.Or(e.Name, Name(e.Task.Run, e.Task.Attempt, e.Task.Role)), e.Benchmark.Namespace
	pod.Labels, pod.Annotations, pod.OwnerReferences = labels, annotations, []metav1.OwnerReference{Owner(e.Benchmark)}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(GracePeriodSeconds))
	// The agent compares its CPUs with those of the pod's sandbox, which has no CPU manager.
	pod.Spec.ShareProcessNamespace = new(true)
	c := &pod.Spec.Containers[0]
	key := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: SecretName(e.Benchmark)}, Key: secretKey}
	c.Env = append([]corev1.EnvVar{{Name: plan.EnvTask, Value: e.Task.Encode()}}, c.Env...)
	c.Env = append(c.Env, corev1.EnvVar{Name: plan.EnvKey, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: key}})
	c.Resources = resources(e.Benchmark, e.Benchmark.CPUs().Of(e.Task.Role), *e.Benchmark.Spec.Placement.Of(e.Task.Role).Memory, e.Variant.Resources())
	var needed []corev1.Capability
	if e.Variant.Capture == v1alpha1.CaptureServer && e.Task.Role == v1alpha1.RoleServer {
		needed = append(needed, "NET_RAW")
	}
	Restrict(&pod.Spec, needed...)
	if e.Scratch {
		scratch := &corev1.EmptyDirVolumeSource{}
		if e.AgentImage != "" {
			scratch.SizeLimit = new(scratchLimit.DeepCopy())
		}
		addVolume(&pod.Spec, "scratch", plan.Scratch, corev1.VolumeSource{EmptyDir: scratch})
	}
	if e.AgentImage != "" {
		addImage(&pod.Spec, "agent", agentFolder, e.AgentImage, e.PullPolicy)
		c.Command = []string{agentFolder + Agent}
	}
	if e.ToolImage != "" {
		addImage(&pod.Spec, "tools", toolFolder, e.ToolImage, e.PullPolicy)
		c.Env = append(c.Env, corev1.EnvVar{Name: "PATH", Value: toolPath})
	}

	adopt(pod, e.Benchmark, e.Task.Role)
	switch network := e.Variant.Network; {
	case network.Type == v1alpha1.NetworkHost:
		pod.Spec.HostNetwork = true
	case network.Type.Attached():
		selection, err := selection(e)
		if err != nil {
			return nil, err
		}
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, foreign.AnnotationNetworks, foreign.Annotation(selection))
	}
	return pod, nil
}

func adopt(pod *corev1.Pod, b *v1alpha1.LatencyBenchmark, roles ...string) {
	if t := b.Spec.Pods.DeepCopy(); t != nil {
		maps.Copy(pod.Annotations, t.Annotations)
		if t.RuntimeClassName != "" {
			pod.Spec.RuntimeClassName = &t.RuntimeClassName
		}
		pod.Spec.PriorityClassName = t.PriorityClassName
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, Tolerations(b, roles...)...)
}

func Tolerations(b *v1alpha1.LatencyBenchmark, roles ...string) []corev1.Toleration {
	var all []corev1.Toleration
	if t := b.Spec.Pods.DeepCopy(); t != nil {
		all = t.Tolerations
	}
	for _, role := range roles {
		placement := b.Spec.Placement.Of(role)
		all = append(all, placement.DeepCopy().Tolerations...)
	}
	return all
}

// toolFolder has Endpoint.ToolImage's files; in toolPath, they precede those of the bench image.
const (
	toolFolder = "/opt/tools"
	toolPath   = toolFolder + "/usr/local/bin:" + toolFolder + "/usr/bin:" + toolFolder + "/bin:" +
		"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// agentFolder has the files of Endpoint.AgentImage.
const agentFolder = "/opt/tailgate"

// scratchLimit bounds what a user's program writes.
var scratchLimit = resource.MustParse("1Gi")

func addImage(spec *corev1.PodSpec, name, path, image string, pull corev1.PullPolicy) {
	addVolume(spec, name, path, corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: pull}})
	mounts := spec.Containers[0].VolumeMounts
	mounts[len(mounts)-1].ReadOnly = true
}

func addVolume(spec *corev1.PodSpec, name, path string, source corev1.VolumeSource) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	c := &spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
}

// Restrict takes API token, variables of services, and capabilities but the given. The user is the
// image's, not root, or the cluster's, as with OpenShift. Only root keeps a capability at exec,
// because none is ambient, so the capturing server is root with that one.
func Restrict(spec *corev1.PodSpec, add ...corev1.Capability) {
	spec.AutomountServiceAccountToken, spec.EnableServiceLinks = new(false), new(false)
	spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot:   new(len(add) == 0),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if len(add) > 0 {
		spec.SecurityContext.RunAsUser = new(int64(0))
	}
	spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: add},
	}
}

// resources returns equal requests and limits. Huge pages are not mounted: Onload gets them by
// memfd_create with MFD_HUGETLB (init_resource_alloc in netif_init.c), which the request allows.
func resources(b *v1alpha1.LatencyBenchmark, cpus int32, memory resource.Quantity, devices []string) corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceMemory: memory}
	if cpus > 0 {
		list[corev1.ResourceCPU] = *resource.NewQuantity(int64(cpus), resource.DecimalSI)
	}
	for _, device := range devices {
		list[corev1.ResourceName(device)] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	if t := b.Spec.Pods; t != nil && t.Hugepages != nil {
		list[corev1.ResourceName(corev1.ResourceHugePagesPrefix+t.Hugepages.Size)] = t.Hugepages.Amount
	}
	return corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

// onNode binds by affinity, not spec.nodeName: a pod that does not fit waits, and is not rejected.
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

// Ended reports whether a pod has ended for good. Its sandbox is stopped before.
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

// LabelDoctor is on every inspect pod. Its value identifies one call of kubectl tailgate doctor.
const LabelDoctor = "tailgate.dev/doctor"

type Inspection struct {
	Namespace, Name string
	Call            string
	// Node is the node on which the pod must run. If it is Named, its taints do not matter.
	Node  string
	Named bool
	// Benchmark is a benchmark whose pods this one resembles; nil: one without settings.
	Benchmark      *v1alpha1.LatencyBenchmark
	Image          string // contains the agent; PullPolicy says when it is pulled
	PullPolicy     corev1.PullPolicy
	ServiceAccount string             // the pod's; empty: the namespace's default
	CPUs           int32              // whole and exclusive; 0: shared ones, which always fit
	Devices        []string           // extended resources; the pod requests one of each
	Network        *foreign.Selection // attached at Interface; nil: no network is attached
	Answers        bool               // a pod that others reach; Peer is its address, or empty
	Peer           string
	Deadline       time.Duration
}

var inspectMemory = resource.MustParse("64Mi") // plenty for the agent alone

// Inspect returns the pod, like a benchmark's, that inspects a node for kubectl tailgate doctor.
func Inspect(i Inspection) *corev1.Pod {
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
	pod := agentPod(i.Image, i.PullPolicy, i.ServiceAccount, i.Node, verb, i.Deadline)
	pod.Namespace, pod.Name, pod.Labels, pod.Annotations = i.Namespace, i.Name, labels, foreign.OptOutAnnotations()
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	// The doctor also inspects nodes that Tailgate itself has tainted as unverified.
	pod.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.NodeTaintUnverified, Operator: corev1.TolerationOpExists}}
	c := &pod.Spec.Containers[0]
	c.Resources = asked
	Restrict(&pod.Spec)
	adopt(pod, b, v1alpha1.RoleClient, v1alpha1.RoleServer)
	if i.Named {
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	if i.Peer != "" {
		c.Env = append(c.Env, corev1.EnvVar{Name: plan.EnvPeer, Value: i.Peer})
	}
	if i.Network != nil {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, foreign.AnnotationNetworks, foreign.Annotation(*i.Network))
		c.Env = append(c.Env, corev1.EnvVar{Name: plan.EnvInterface, Value: i.Network.Interface})
	}
	return pod
}

// EphemeralMemory is what an inspection needs within the memory limit of the pod.
var EphemeralMemory = *resource.NewQuantity(plan.EphemeralMemory, resource.BinarySI)

// maxEphemeral bounds ephemeral containers, which stay: an API object has some 1.5 MiB at most.
const maxEphemeral = 200

// ContainerOf returns a container and its status: the one with a name, or else the pod's first.
func ContainerOf(p *corev1.Pod, name string) (*corev1.Container, *corev1.ContainerStatus, error) {
	if name == "" {
		name = cmp.Or(p.Annotations["kubectl.kubernetes.io/default-container"], p.Spec.Containers[0].Name)
	}
	// A sidecar is among the init containers.
	all, statuses := slices.Concat(p.Spec.Containers, p.Spec.InitContainers), slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses)
	at := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	if at < 0 {
		names := text.Of(p.Spec.Containers, func(c corev1.Container) string { return c.Name })
		return nil, nil, fmt.Errorf("it has no container %q; there are %s", name, strings.Join(names, ", "))
	}
	status := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if status < 0 { // no kubelet has started it
		return &all[at], &corev1.ContainerStatus{Name: name}, nil
	}
	return &all[at], &statuses[status], nil
}

// Uninspectable says why a container cannot be inspected, beside it or from its node, and what to
// do; nil: it can.
func Uninspectable(p *corev1.Pod, s *corev1.ContainerStatus, fromNode bool) error {
	waiting, terminated := s.State.Waiting, s.LastTerminationState.Terminated
	switch {
	case p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows:
		return errors.New("it runs on Windows; only Linux shows where threads run")
	case p.Annotations[corev1.MirrorPodAnnotationKey] != "" && !fromNode:
		return errors.New("it is a static pod, which takes no ephemeral container; inspect it with --from node")
	case p.DeletionTimestamp != nil:
		return errors.New("it is being deleted; inspect the pod that replaces it")
	case Ended(p):
		return fmt.Errorf("it has ended (%s); inspect it while it runs", cmp.Or(p.Status.Reason, string(p.Status.Phase)))
	case len(p.Spec.EphemeralContainers) >= maxEphemeral && !fromNode:
		return fmt.Errorf("it has %d ephemeral containers, which Kubernetes cannot remove: start the pod again, or inspect it with --from node", len(p.Spec.EphemeralContainers))
	case waiting != nil && terminated != nil:
		return fmt.Errorf("container %s restarts again and again (%s, last exit code %d): repair it first, see kubectl logs --previous", s.Name, waiting.Reason, terminated.ExitCode)
	case s.State.Running == nil && waiting != nil:
		return fmt.Errorf("container %s does not run (%s); wait until it runs, see kubectl describe pod", s.Name, waiting.Reason)
	case s.State.Running == nil, s.ContainerID == "":
		return fmt.Errorf("container %s does not run; wait until it runs", s.Name)
	}
	return nil
}

// MemoryLimit returns what all containers may use together; nil: one of them has no limit.
func MemoryLimit(p *corev1.Pod) *resource.Quantity {
	limited := true
	limits := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{ContainerFn: func(of corev1.ResourceList, _ resourcehelper.ContainerType) {
		_, has := of[corev1.ResourceMemory]
		limited = limited && has
	}})
	if r := p.Spec.Resources; r != nil {
		_, has := r.Limits[corev1.ResourceMemory]
		limited = limited || has
	}
	if limit := limits[corev1.ResourceMemory]; limited {
		return &limit
	}
	return nil
}

// InspectPrefix is the prefix of the names of containers that Ephemeral returns.
const InspectPrefix = "tailgate-inspect-"

// InspectCommand inspects once; a watch adds arguments.
var InspectCommand = []string{Agent, "inspect"}

// Ephemeral returns a container with the target's user and group and no more rights: it sees what
// the target may, and conforms to Pod Security level restricted if the target does.
func Ephemeral(p *corev1.Pod, target *corev1.Container, s *corev1.ContainerStatus, name, image string, pull corev1.PullPolicy, iface string) corev1.EphemeralContainer {
	own := &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true)}
	if c := target.SecurityContext; c != nil {
		own.RunAsUser, own.RunAsGroup, own.RunAsNonRoot = c.RunAsUser, c.RunAsGroup, c.RunAsNonRoot
		own.SeccompProfile, own.AppArmorProfile, own.SELinuxOptions, own.Capabilities = c.SeccompProfile, c.AppArmorProfile, c.SELinuxOptions, c.Capabilities.DeepCopy()
	}
	if c := p.Spec.SecurityContext; c != nil {
		own.RunAsUser, own.RunAsGroup = cmp.Or(own.RunAsUser, c.RunAsUser), cmp.Or(own.RunAsGroup, c.RunAsGroup)
	}
	// The image of the target may name the user.
	if s.User != nil && s.User.Linux != nil {
		own.RunAsUser, own.RunAsGroup = &s.User.Linux.UID, &s.User.Linux.GID
	}
	// Only root gets capabilities: to read root's processes, the agent needs the target's.
	if own.RunAsUser == nil || *own.RunAsUser != 0 {
		own.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
	return corev1.EphemeralContainer{
		TargetContainerName: target.Name,
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: name, Image: image, ImagePullPolicy: pull, Command: slices.Clone(InspectCommand), SecurityContext: own,
			TerminationMessagePolicy: corev1.TerminationMessageReadFile, Env: inspectEnv(p, s, iface),
		},
	}
}

func inspectEnv(p *corev1.Pod, s *corev1.ContainerStatus, iface string) []corev1.EnvVar {
	_, id, _ := strings.Cut(s.ContainerID, "://")
	return []corev1.EnvVar{
		{Name: plan.EnvContainer, Value: id}, {Name: plan.EnvInterface, Value: iface}, {Name: plan.EnvNode, Value: p.Spec.NodeName}, {Name: plan.EnvPodIP, Value: p.Status.PodIP},
	}
}

// FromNode returns a pod with the rights of the node that inspects a container of a pod there. In the
// namespace of that pod, the API server deletes both together.
func FromNode(p *corev1.Pod, s *corev1.ContainerStatus, namespace, name, image string, pull corev1.PullPolicy, iface string, deadline time.Duration) *corev1.Pod {
	helper := agentPod(image, pull, "", p.Spec.NodeName, "inspect", deadline)
	helper.Spec.NodeName, helper.Spec.Affinity = p.Spec.NodeName, nil // without the scheduler, which could evict others for it
	helper.Namespace, helper.Name, helper.Labels, helper.Annotations = namespace, name, foreign.OptOutLabels(), foreign.OptOutAnnotations()
	helper.Labels[LabelDoctor] = name // a later doctor there deletes what no call has deleted
	if namespace == p.Namespace {
		helper.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}}
		helper.Spec.ImagePullSecrets = p.Spec.ImagePullSecrets
	}
	helper.Spec.HostPID, helper.Spec.AutomountServiceAccountToken, helper.Spec.EnableServiceLinks = true, new(false), new(false)
	helper.Spec.TerminationGracePeriodSeconds = new(int64(1))
	helper.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	c := &helper.Spec.Containers[0]
	c.Env = append(inspectEnv(p, s, iface), corev1.EnvVar{Name: plan.EnvView, Value: plan.ViewNode})
	c.SecurityContext = &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0)), ReadOnlyRootFilesystem: new(true)}
	c.Resources = resources(&v1alpha1.LatencyBenchmark{}, 0, inspectMemory, nil)
	c.Resources.Requests[corev1.ResourceCPU] = resource.Quantity{} // it must run on the CPUs that all share
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	return helper
}
