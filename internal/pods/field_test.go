package pods

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/test/field"
)

// fieldOfPod returns the changes of a pod to which a patch was applied, or an annotation added, and the labels and annotations with
// which it was built.
func fieldOfPod(t *testing.T, c field.Case) map[string]string {
	built, pod := returned(t)
	if key, value, ok := strings.Cut(c.Arguments["annotation"], "="); ok {
		pod.Annotations[key] = value
	}
	if c.Input != "" {
		pod = patched(t, pod, strings.Trim(strings.TrimSpace(string(c.Read(t))), "[]"))
	}
	answer := map[string]string{"changed": strings.Join(Changed(built, pod), "; ")}
	ours := build(t, endpoint("pod", v1alpha1.RoleServer))
	for key, value := range ours.Labels {
		answer["label "+key] = value
	}
	for key, value := range ours.Annotations {
		answer["annotation "+key] = value
	}
	return answer
}

// fieldOfAddress returns the address of an end with a pod, or with a network-status, or why it is missing.
func fieldOfAddress(t *testing.T, c field.Case) map[string]string {
	kind := c.Arguments["network"]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Annotations: map[string]string{foreign.AnnotationNetworkStatus: string(c.Read(t))}}}
	if strings.HasSuffix(c.Input, "-pod.yaml") {
		if err := yaml.Unmarshal(c.Read(t), pod); err != nil {
			t.Fatal(err)
		}
	}
	b := benchmark(kind)
	address, missing := Address(b, plan.Variants(b.Spec)[0], pod)
	return map[string]string{"address": fmt.Sprint(address), "missing": missing}
}

// Cases of other projects' objects on real clusters, and of Onload (test/field).
func TestField(t *testing.T) {
	field.Run(t, "neighbours", "internal/pods", func(t *testing.T, c field.Case) map[string]string {
		if c.Arguments["network"] != "" {
			return fieldOfAddress(t, c)
		}
		return fieldOfPod(t, c)
	})
	field.Run(t, "onload", "internal/pods", fieldOfPod)
}
