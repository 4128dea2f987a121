package onload

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/field"
)

// fieldOfProfile returns why a ConfigMap is refused as a profile; empty if it is not.
func fieldOfProfile(t *testing.T, c field.Case) map[string]string {
	data := map[string]string{}
	if c.Input != "" {
		var cm struct {
			Data map[string]string `json:"data"`
		}
		if err := yaml.Unmarshal(c.Read(t), &cm); err != nil {
			t.Fatal(err)
		}
		data = cm.Data
	}
	if name, value, ok := strings.Cut(c.Arguments["setting"], "="); ok {
		data[name] = value
	}
	v := v1alpha1.Variant{Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{ProfileRef: &v1alpha1.ObjectName{Name: "mine"}}}}
	if _, err := Environment(v, data); err != nil {
		return map[string]string{"refused": err.Error()}
	}
	return map[string]string{"refused": ""}
}

// Cases of Onload (test/field).
func TestField(t *testing.T) {
	field.Run(t, "onload", "internal/onload", func(t *testing.T, c field.Case) map[string]string {
		if strings.HasPrefix(c.Input, "configmap-") || c.Arguments["setting"] != "" {
			return fieldOfProfile(t, c)
		}
		stderr := []byte(c.Arguments["stderr"])
		if c.Input != "" {
			stderr = c.Read(t)
		}
		answer := map[string]string{"banner": Read(stderr).Banner, "left": ""}
		for name, value := range Read(stderr).Settings {
			answer["setting "+name] = value
		}
		for l := range strings.Lines(string(stderr)) {
			if l = strings.TrimSpace(l); l != "" && !Chatter(l) {
				answer["left"] = l
			}
		}
		failure, _ := explain(stderr)
		answer["outcome"], answer["why"] = failure.Outcome, failure.Why
		return answer
	})
}
