package driven

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/internal/result"
)

// remade returns a copy of a ConfigMap, with changes, that can be created in its place.
func remade(cm corev1.ConfigMap, changes ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	made := cm.DeepCopy()
	made.ObjectMeta = metav1.ObjectMeta{
		Name: cm.Name, Namespace: cm.Namespace, Labels: made.Labels, Annotations: made.Annotations, OwnerReferences: made.OwnerReferences,
	}
	for _, change := range changes {
		change(made)
	}
	return made
}

// flipBit changes one bit of the client's result.
func flipBit(cm *corev1.ConfigMap) { cm.BinaryData[result.KeyClient][20] ^= 1 }
