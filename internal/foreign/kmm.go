package foreign

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ModuleKind is the kind Module of Kernel Module Management (KMM).
var ModuleKind = schema.GroupVersionKind{Group: "kmm.sigs.x-k8s.io", Version: "v1beta1", Kind: "Module"}

// Module is the part of KMM 2.6's kind that Tailgate reads. KMM 2 unloads the kernel module from a
// selected node with a taint NoSchedule or NoExecute, also a cordon's, that the Module does not
// tolerate; its own components tolerate only pressure. Before 2.3, there are no tolerations.
type Module struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              ModuleSpec `json:"spec"`
}

// ModuleSpec selects nodes.
type ModuleSpec struct {
	Selector    map[string]string   `json:"selector"`
	Tolerations []corev1.Toleration `json:"tolerations"`
}
