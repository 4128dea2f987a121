package v1alpha1

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LatencyBenchmarkTemplate is the template of the LatencyBenchmarks that another object creates.
type LatencyBenchmarkTemplate struct {
	// metadata of the benchmarks, in addition to their names and the operator's labels.
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitzero"`

	// spec of the benchmarks.
	// +required
	Spec MeasurementSpec `json:"spec"`
}

// Benchmark returns the spec of a benchmark that is made from the template. It shares memory with the template.
func (t *LatencyBenchmarkTemplate) Benchmark() LatencyBenchmarkSpec {
	return LatencyBenchmarkSpec{MeasurementSpec: t.Spec}
}

// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

type TemplateMetadata struct {
	// labels are the labels of the benchmarks, at most 16.
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 317)",message="a key has at most 317 characters"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k == 'tailgate.dev/series' || !k.startsWith('tailgate.dev/') && k != 'app.kubernetes.io/managed-by')",message="keys of tailgate.dev and app.kubernetes.io/managed-by are the operator's own, except tailgate.dev/series"
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// annotations are the annotations of the benchmarks, at most 16.
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('tailgate.dev/'))",message="keys of tailgate.dev are the operator's own"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 317 && self[k].size() <= 1024)",message="a key has at most 317 characters, a value 1024"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ObjectMeta returns own with the labels and annotations of the template.
func (t TemplateMetadata) ObjectMeta(own metav1.ObjectMeta) metav1.ObjectMeta {
	labels := map[string]string{}
	for key, value := range t.Labels {
		labels[key] = string(value)
	}
	maps.Copy(labels, own.Labels)
	own.Labels, own.Annotations = labels, maps.Clone(t.Annotations)
	return own
}
