package v1alpha1

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// +kubebuilder:validation:Enum=Required;Preferred;Ignore
type NUMAPolicy string

const (
	NUMARequired  NUMAPolicy = "Required"
	NUMAPreferred NUMAPolicy = "Preferred"
	NUMAIgnore    NUMAPolicy = "Ignore"
)

// The rules of quantities begin with a pattern, because an API server and Go compute 1e99999999 for minutes.

// Placement selects the nodes, CPUs and memory of the endpoints. Settings of client or server override the common ones.
type Placement struct {
	// client selects the node of the client (default any node), and has the client's settings.
	// +kubebuilder:default={}
	Client *EndpointPlacement `json:"client,omitempty"`

	// server selects the node of the server (default any other than the client's), and has the server's settings.
	// +kubebuilder:default={}
	Server *EndpointPlacement `json:"server,omitempty"`

	// cpus is the number of exclusive CPUs of each endpoint; default 2, or 1 if a node has no second CPU (status.cpus).
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	CPUs int32 `json:"cpus,omitempty"`

	// memory is the memory of each endpoint, 128Mi to 64Gi; default 512Mi, enough for 10s. Accepted says if it is too low.
	// +kubebuilder:default="512Mi"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[0-9]{1,12}([.][0-9]{1,3})?([kMG]|[KMG]i)?$') && quantity(string(self)).compareTo(quantity('128Mi')) >= 0 && quantity(string(self)).compareTo(quantity('64Gi')) <= 0",message="must be a quantity from 128Mi to 64Gi, such as 512Mi"
	Memory resource.Quantity `json:"memory,omitempty"`

	// numaPolicy is the effect of a measuring CPU that is not on the device's NUMA node: Inconclusive (Required), a
	// warning (Preferred) or none (Ignore). Default is Required with network type VF or PF or alignWith, else Preferred.
	NUMAPolicy NUMAPolicy `json:"numaPolicy,omitempty"`
}

// EndpointPlacement selects the node of one endpoint, and its CPUs and memory.
type EndpointPlacement struct {
	NodeSelection `json:",inline"`

	// cpus is the number of whole, exclusive CPUs of this endpoint, 1 to 64; default placement.cpus.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	CPUs int32 `json:"cpus,omitempty"`

	// memory is the memory of this endpoint, 128Mi to 64Gi; default placement.memory.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[0-9]{1,12}([.][0-9]{1,3})?([kMG]|[KMG]i)?$') && quantity(string(self)).compareTo(quantity('128Mi')) >= 0 && quantity(string(self)).compareTo(quantity('64Gi')) <= 0",message="must be a quantity from 128Mi to 64Gi, such as 512Mi"
	Memory *resource.Quantity `json:"memory,omitempty"`

	// numaPolicy is the NUMA policy of this endpoint: Required, Preferred or Ignore; default placement.numaPolicy.
	NUMAPolicy NUMAPolicy `json:"numaPolicy,omitempty"`

	// tolerations let this pod run on tainted nodes, at most 16, in addition to pods.tolerations.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

func (e *EndpointPlacement) On(nodes NodeSelection) *EndpointPlacement {
	own := cmp.Or(e, &EndpointPlacement{}).DeepCopy()
	own.NodeSelection = nodes
	return own
}

// Of returns the placement of a role with the common settings; CPUs and NUMAPolicy are empty if the spec is silent.
func (p Placement) Of(role string) EndpointPlacement {
	given := p.Server
	if role == RoleClient {
		given = p.Client
	}
	own := *cmp.Or(given, &EndpointPlacement{})
	own.CPUs = cmp.Or(own.CPUs, p.CPUs)
	own.Memory = cmp.Or(own.Memory, &p.Memory)
	own.NUMAPolicy = cmp.Or(own.NUMAPolicy, p.NUMAPolicy)
	return own
}

// NUMAPolicyOf returns the NUMA policy of the endpoint with a role in a variant that has everything filled in.
func (p Placement) NUMAPolicyOf(v Variant, role string) NUMAPolicy {
	usual := NUMAPreferred
	if v.Network.Type.HasDevice() || v.Network.AlignWith() != "" {
		usual = NUMARequired
	}
	return cmp.Or(v.NUMAPolicy, p.Of(role).NUMAPolicy, usual)
}

type EndpointCPUs struct {
	// client is the number of CPUs of the client.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Client int32 `json:"client"`
	// server is the number of CPUs of the server.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Server int32 `json:"server"`
}

// CPUs returns the number of CPUs of each endpoint, by the spec or the operator's choice; 0 while it is unknown.
func (b *LatencyBenchmark) CPUs() EndpointCPUs {
	chosen := cmp.Or(b.Status.CPUs, &EndpointCPUs{})
	return EndpointCPUs{
		Client: cmp.Or(b.Spec.Placement.Of(RoleClient).CPUs, chosen.Client),
		Server: cmp.Or(b.Spec.Placement.Of(RoleServer).CPUs, chosen.Server),
	}
}

func (c EndpointCPUs) Of(role string) int32 {
	if role == RoleClient {
		return c.Client
	}
	return c.Server
}

// +kubebuilder:validation:XValidation:rule="[has(self.nodeName), has(self.nodeNames), has(self.nodeSelector)].filter(given, given).size() <= 1",message="give only one of nodeName, nodeNames and nodeSelector"
type NodeSelection struct {
	// nodeName is the name of the one node.
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// nodeNames are the names of the nodes to choose from, at most 500.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=253
	NodeNames []string `json:"nodeNames,omitempty"`

	// nodeSelector selects nodes by their labels. If nodeName and nodeNames are unset, too, any node may be selected.
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && self.matchLabels.size() > 0 || has(self.matchExpressions) && self.matchExpressions.size() > 0",message="nodeSelector: must have matchLabels or matchExpressions; to select any node, remove nodeSelector"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="matchExpressions: operator must be In or NotIn with 1 to 64 values, or Exists or DoesNotExist without values"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, k.size() <= 317)",message="matchLabels: a key has at most 317 characters"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

func (s *NodeSelection) Any() bool {
	return s.NodeName == "" && len(s.NodeNames) == 0 && s.NodeSelector == nil
}

// Matcher returns a function that reports whether the selection contains a node: none, if nodeSelector is invalid.
func (s *NodeSelection) Matcher() (matches func(*corev1.Node) bool, err error) {
	switch {
	case s.NodeName != "":
		return func(n *corev1.Node) bool { return n.Name == s.NodeName }, nil
	case len(s.NodeNames) > 0:
		return func(n *corev1.Node) bool { return slices.Contains(s.NodeNames, n.Name) }, nil
	case s.NodeSelector == nil:
		return func(*corev1.Node) bool { return true }, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s.NodeSelector)
	if err != nil {
		return func(*corev1.Node) bool { return false }, err
	}
	return func(n *corev1.Node) bool { return selector.Matches(labels.Set(n.Labels)) }, nil
}

// PodSettings are additional settings of benchmark pods. None of them raises the privileges of a pod.
// +kubebuilder:validation:XValidation:rule="!has(self.annotations) || self.annotations.all(k, k in ['irq-load-balancing.crio.io', 'cpu-load-balancing.crio.io', 'cpu-quota.crio.io', 'cpu-c-states.crio.io', 'cpu-freq-governor.crio.io'])",message="annotations: only CRI-O's for low latency are allowed: irq-load-balancing.crio.io, cpu-load-balancing.crio.io, cpu-quota.crio.io, cpu-c-states.crio.io, cpu-freq-governor.crio.io"
// +kubebuilder:validation:XValidation:rule="!has(self.annotations) || self.annotations.all(k, self.annotations[k].size() <= 64)",message="annotations: a value has at most 64 characters"
// +kubebuilder:validation:XValidation:rule="!has(self.priorityClassName) || !self.priorityClassName.startsWith('system-')",message="priorityClassName: must not be a class of the system; create your own PriorityClass"
type PodSettings struct {
	// annotations are CRI-O's for low latency, such as irq-load-balancing.crio.io. runtimeClassName must allow them.
	// +kubebuilder:validation:MaxProperties=5
	Annotations map[string]string `json:"annotations,omitempty"`

	// runtimeClassName is the RuntimeClass, such as performance-PROFILE on OpenShift.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	RuntimeClassName string `json:"runtimeClassName,omitempty"`

	// priorityClassName is the PriorityClass. System classes (system-) are not allowed.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// tolerations let the pods run on tainted nodes, at most 16; on cordoned ones, by node.kubernetes.io/unschedulable.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// hugepages are huge pages for each endpoint, which Onload uses for its buffers.
	Hugepages *Hugepages `json:"hugepages,omitempty"`

	// env are environment variables of the tools, at most 32: settings of Onload, VMA, XLIO and the sfnt tools.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Env []EnvVar `json:"env,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="!string(self.amount).matches('^[0-9]{1,12}([.][0-9]{1,3})?([kMG]|[KMG]i)?$') || quantity(string(self.amount)).isInteger() && quantity(string(self.amount)).asInteger() % quantity(self.size).asInteger() == 0",message="amount must be a multiple of size"
type Hugepages struct {
	// size of a page: 2Mi, the size that Onload uses, or 1Gi.
	// +required
	// +kubebuilder:validation:Enum="2Mi";"1Gi"
	Size string `json:"size"`

	// amount is the total amount, a multiple of size, up to 64Gi.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[0-9]{1,12}([.][0-9]{1,3})?([kMG]|[KMG]i)?$') && quantity(string(self)).isGreaterThan(quantity('0')) && quantity(string(self)).compareTo(quantity('64Gi')) <= 0",message="must be a quantity up to 64Gi, such as 64Mi"
	Amount resource.Quantity `json:"amount"`
}

// EnvVar is an environment variable of the tools.
type EnvVar struct {
	// name is the name of a setting of Onload (EF_), VMA or XLIO (VMA_, XLIO_, MLX_), or the sfnt tools (SFNT_).
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^(EF|VMA|XLIO|MLX4|MLX5|MLX|SFNT)_[A-Z0-9_]+$`
	Name string `json:"name"`
	// value of the variable, in printable ASCII.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[ -~]*$`
	Value string `json:"value,omitempty"`
}
