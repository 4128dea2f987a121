package admit

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A field of the wrong place is named with its path.
func TestMisplacedField(t *testing.T) {
	u := gate(nil)
	u.Object["rounds"] = int64(6)
	err := Object(t.Context(), u)
	if err == nil {
		t.Fatal("it is admitted")
	}
	_, path, _ := strings.Cut(err.Error(), "rounds: unknown field; write ")
	if path != "spec.template.spec.rounds" {
		t.Error(err)
	}
}

// What the API server would say of a field without a path, or of a kind of value, gets advice only where advice is known.
func TestAdvice(t *testing.T) {
	template := func(field string, value any) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(u.Object, value, "spec", "template", field); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*unstructured.Unstructured)
		want   string
	}{
		"a field beside spec": {
			func(u *unstructured.Unstructured) { u.Object["extra"] = int64(1) },
			"extra: unknown field; write one of apiVersion, kind, metadata, spec, status",
		},
		"a number for labels, whose rule is about keys": {
			template("metadata", map[string]any{"labels": int64(3)}),
			`spec.template.metadata.labels: Invalid value: "integer": spec.template.metadata.labels in body must be of type object: "integer"`,
		},
	} {
		u := gate(nil)
		c.change(u)
		if err := Object(t.Context(), u); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
