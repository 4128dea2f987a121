package admit

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/config/crd"
)

func TestCRDsAreValid(t *testing.T) {
	for _, text := range [][]byte{crd.LatencyBenchmarks, crd.LatencyMatrices, crd.LatencyGates, crd.LatencyVerifications} {
		kind := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, kind); err != nil {
			t.Fatal(err)
		}
		apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(kind)
		in := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(kind, in, nil); err != nil {
			t.Fatal(err)
		}
		in.Status.StoredVersions = []string{in.Spec.Versions[0].Name}
		for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), in) {
			t.Error(kind.Name, err)
		}
	}
}

// boundedByRules matches the paths of fields that rules of their parents bound; see TestLongTextsAreRefused.
var boundedByRules = regexp.MustCompile(`\.annotations\{\}$`)

// Every string, list and map of a spec has a bound.
func TestSpecsAreBounded(t *testing.T) {
	for _, text := range [][]byte{crd.LatencyBenchmarks, crd.LatencyMatrices, crd.LatencyGates, crd.LatencyVerifications} {
		kind := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, kind); err != nil {
			t.Fatal(err)
		}
		fields := 0
		var walk func(path string, s apiextensionsv1.JSONSchemaProps)
		walk = func(path string, s apiextensionsv1.JSONSchemaProps) {
			fields++
			within := s.MaxLength != nil || len(s.Enum) > 0
			switch {
			case s.Type == "array":
				within = s.MaxItems != nil
				walk(path+"[]", *s.Items.Schema)
			case s.AdditionalProperties != nil:
				within = s.MaxProperties != nil
				walk(path+"{}", *s.AdditionalProperties.Schema)
			case s.Type != "string" && !s.XIntOrString:
				within = true
			}
			if !within && !boundedByRules.MatchString(path) {
				t.Errorf("%s: %s has no bound", kind.Name, path)
			}
			for name, field := range s.Properties {
				walk(path+"."+name, field)
			}
		}
		walk("spec", kind.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
		if fields < 3 {
			t.Errorf("%s: %d fields", kind.Name, fields)
		}
	}
}

func TestLongTextsAreRefused(t *testing.T) {
	long := strings.Repeat("x", 2000)
	object := func(values ...any) map[string]any {
		all := map[string]any{}
		for i := 0; i < len(values); i += 2 {
			all[values[i].(string)] = values[i+1]
		}
		return all
	}
	// change is made to the template of a gate.
	for name, change := range map[string]func(spec, template map[string]any){
		"a label's key":   func(spec, _ map[string]any) { spec["nodeSelector"] = object("matchLabels", object(long, "x")) },
		"a label's value": func(spec, _ map[string]any) { spec["nodeSelector"] = object("matchLabels", object("x", long)) },
		"an expression's key": func(spec, _ map[string]any) {
			spec["nodeSelector"] = object("matchExpressions", []any{object("key", long, "operator", "Exists")})
		},
		"an expression's value": func(spec, _ map[string]any) {
			spec["nodeSelector"] = object("matchExpressions", []any{object("key", "x", "operator", "In", "values", []any{long})})
		},
		"a client's label": func(_, template map[string]any) {
			template["placement"] = object("client", object("nodeSelector", object("matchLabels", object("x", long))))
		},
		"a server's expression": func(_, template map[string]any) {
			template["placement"] = object("server", object("nodeSelector", object("matchExpressions", []any{object("key", "x", "operator", "NotIn", "values", []any{long})})))
		},
		"a toleration's key": func(_, template map[string]any) { template["pods"] = object("tolerations", []any{object("key", long)}) },
		"a toleration's value": func(_, template map[string]any) {
			template["pods"] = object("tolerations", []any{object("value", long)})
		},
		"a toleration's operator": func(_, template map[string]any) {
			template["pods"] = object("tolerations", []any{object("operator", long)})
		},
		"a toleration's effect": func(_, template map[string]any) {
			template["pods"] = object("tolerations", []any{object("effect", long)})
		},
		"a client's toleration": func(_, template map[string]any) {
			template["placement"] = object("client", object("tolerations", []any{object("value", long)}))
		},
		"an annotation of pods": func(_, template map[string]any) {
			template["pods"] = object("annotations", object("cpu-quota.crio.io", long))
		},
		"an annotation": func(spec, _ map[string]any) {
			spec["template"].(map[string]any)["metadata"] = object("annotations", object("x", long))
		},
		"an annotation's key": func(spec, _ map[string]any) {
			spec["template"].(map[string]any)["metadata"] = object("annotations", object(long, "x"))
		},
		"a label's key of the template": func(spec, _ map[string]any) {
			spec["template"].(map[string]any)["metadata"] = object("labels", object(long, "x"))
		},
	} {
		g := gate(nil)
		spec := g.Object["spec"].(map[string]any)
		change(spec, spec["template"].(map[string]any)["spec"].(map[string]any))
		if err := Object(t.Context(), g); err == nil || !strings.Contains(err.Error(), "characters") && !strings.Contains(err.Error(), "may not be more than") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A quantity is refused before it is computed: an API server needs minutes for 1e99999999.
func TestQuantities(t *testing.T) {
	for amount, want := range map[any]bool{
		"128Mi": true, "1.5Gi": true, "64Gi": true, "512M": true, "1G": true, int64(1 << 30): true, "134217728": true, "200000k": true, "262144Ki": true,
		"127Mi": false, "65Gi": false, "1e99999999": false, "1e-99999999": false, "1e9": false, "1E": false, "-1Gi": false, "": false, "0": false, ".5Gi": false,
		strings.Repeat("9", 30): false, "1." + strings.Repeat("0", 30): false, int64(1): false, "1Gi\n": false,
	} {
		for _, path := range [][]string{{"placement", "memory"}, {"placement", "client", "memory"}, {"placement", "server", "memory"}, {"pods", "hugepages", "amount"}} {
			u := gate(nil)
			spec, _, err := unstructured.NestedMap(u.Object, "spec", "template", "spec")
			if err != nil {
				t.Fatal(err)
			}
			if path[0] == "pods" {
				if amount == "127Mi" || amount == "1.5Gi" || amount == "512M" || amount == "1G" || amount == "200000k" {
					continue // These are no multiples of a page, or fit into huge pages.
				}
				spec["pods"] = map[string]any{"hugepages": map[string]any{"size": "2Mi"}}
			}
			if err := unstructured.SetNestedField(spec, amount, path...); err != nil {
				t.Fatal(err)
			}
			if err := unstructured.SetNestedMap(u.Object, spec, "spec", "template", "spec"); err != nil {
				t.Fatal(err)
			}
			if err := Object(t.Context(), u); (err == nil) != want {
				t.Errorf("%v in %s: %v", amount, strings.Join(path, "."), err)
			}
		}
	}
}

// A spec has a limit for all its texts, not only for each: an editor of a namespace could otherwise make a thousand objects of a megabyte,
// which the manager caches.
func TestSumsAreBounded(t *testing.T) {
	bomb := "\U0001F4A3"
	many := func(n int, make func(i int) any) (all []any) {
		for i := range n {
			all = append(all, make(i))
		}
		return all
	}
	rule := func(cells int, text string) any {
		return map[string]any{"metric": "p99", "max": "1us", "cells": many(cells, func(i int) any { return fmt.Sprint(text, i) })}
	}
	variables := func(n int, value string) []any {
		return many(n, func(i int) any { return map[string]any{"name": fmt.Sprint("EF_X", i), "value": value} })
	}
	variant := func(i, n int) any {
		return map[string]any{"name": fmt.Sprint("v", i), "env": variables(n, strings.Repeat("x", 256))}
	}
	for name, c := range map[string]struct {
		change func(template map[string]any)
		want   string
	}{
		"few cells": {func(s map[string]any) {
			s["criteria"].(map[string]any)["rules"] = many(8, func(int) any { return rule(32, "tcp-") })
		}, ""},
		"the cells of all rules": {func(s map[string]any) {
			s["criteria"].(map[string]any)["rules"] = many(9, func(int) any { return rule(32, "tcp-") })
		}, "at most 256 cells and variants"},
		"characters of four bytes in cells": {func(s map[string]any) {
			s["criteria"].(map[string]any)["rules"] = []any{rule(1, bomb)}
		}, "should match"},
		"few variables": {func(s map[string]any) { s["variants"] = many(2, func(i int) any { return variant(i, 32) }) }, ""},
		"the variables of all variants": {func(s map[string]any) {
			s["variants"] = many(3, func(i int) any { return variant(i, 32) })
		}, "at most 64 variables"},
		"characters of four bytes in variables": {func(s map[string]any) {
			s["pods"] = map[string]any{"env": variables(1, bomb)}
		}, "should match"},
		"characters of four bytes in tolerations": {func(s map[string]any) {
			s["pods"] = map[string]any{"tolerations": []any{map[string]any{"key": bomb}}}
		}, "should match"},
	} {
		g := gate(nil)
		template, _, err := unstructured.NestedMap(g.Object, "spec", "template", "spec")
		if err != nil {
			t.Fatal(err)
		}
		template["tool"] = "pinger"
		c.change(template)
		if err := unstructured.SetNestedMap(g.Object, template, "spec", "template", "spec"); err != nil {
			t.Fatal(err)
		}
		err = Object(t.Context(), g)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
