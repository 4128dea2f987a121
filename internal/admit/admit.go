// Package admit checks a LatencyBenchmark or a LatencyMatrix as an API server would, without one.
package admit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/config/crd"
)

type definition struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// definitions are built once each, because that compiles the rules.
var definitions = map[string]func() (definition, error){
	"LatencyBenchmark":    sync.OnceValues(func() (definition, error) { return newDefinition(crd.LatencyBenchmarks) }),
	"LatencyMatrix":       sync.OnceValues(func() (definition, error) { return newDefinition(crd.LatencyMatrices) }),
	"LatencyGate":         sync.OnceValues(func() (definition, error) { return newDefinition(crd.LatencyGates) }),
	"LatencyVerification": sync.OnceValues(func() (definition, error) { return newDefinition(crd.LatencyVerifications) }),
}

func newDefinition(text []byte) (definition, error) {
	kind := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, kind); err != nil {
		return definition{}, err
	}
	props := &apiextensions.JSONSchemaProps{}
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(kind.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil)
	if err != nil {
		return definition{}, err
	}
	structural, err := schema.NewStructural(props)
	if err != nil {
		return definition{}, err
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return definition{}, err
	}
	return definition{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// Object processes a manifest as an API server with this version of the kind: it rejects unknown
// fields, fills in defaults, and checks schema and rules. The Aggregate's errors have a line each.
func Object(ctx context.Context, u *unstructured.Unstructured) error { return object(ctx, u, true) }

// Known does the same, but removes unknown fields.
func Known(ctx context.Context, u *unstructured.Unstructured) error { return object(ctx, u, false) }

func object(ctx context.Context, u *unstructured.Unstructured, strict bool) error {
	define, ok := definitions[u.GetKind()]
	if !ok {
		return fmt.Errorf("there is no kind %.80q in this version", u.GetKind())
	}
	d, err := define()
	if err != nil {
		return fmt.Errorf("reading the definition of %s: %w", u.GetKind(), err)
	}
	var wrong []error
	unknown := pruning.PruneWithOptions(u.Object, d.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		if strict {
			wrong = append(wrong, unknownField(path, d.structural, u.Object))
		}
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, d.structural)
	defaulting.Default(u.Object, d.structural)
	problems := validation.ValidateCustomResource(nil, u.Object, d.schema)
	problems = append(problems, listtype.ValidateListSetsAndMaps(nil, d.structural, u.Object)...)
	if len(problems)+len(wrong) == 0 {
		// The rules assume that the object fits the schema.
		problems, _ = d.rules.Validate(ctx, nil, d.structural, u.Object, nil, celconfig.RuntimeCELCostBudget)
	}
	for _, e := range problems {
		if e.Type == field.ErrorTypeTypeInvalid {
			wrong = append(wrong, wrongType(e, d.structural, u.Object))
		} else {
			wrong = append(wrong, e)
		}
	}
	return utilerrors.NewAggregate(wrong)
}

// guesses are fields that people expect, with what to write instead.
var guesses = map[string]string{
	"protocol": "workload: {protocols: [TCP]}", "messageSize": "workload: {messageSizes: [64]}", "iterations": "rounds: 6", "resources": "placement: {cpus: 2, memory: 512Mi}",
	"onload": "acceleration: {type: Onload}", "dryRun": "enforcement: {mode: Observe}", "selector": "nodeSelector: {matchLabels: {KEY: VALUE}}",
}

// unknownField says what to write instead: a field of that name further down, or a similar name.
func unknownField(path string, root *schema.Structural, object map[string]any) error {
	parent, name := path[:max(strings.LastIndexByte(path, '.'), 0)], path[strings.LastIndexByte(path, '.')+1:]
	at, _ := resolve(parent, root, object)
	instead := guesses[name]
	switch _, labels := at.Properties["matchLabels"]; {
	case labels:
		instead = fmt.Sprintf("matchLabels: {%s: VALUE}", name)
	case instead == "":
		found := further(parent, name, at)
		if spec := root.Properties["spec"]; len(found) == 0 {
			found = further("spec", name, &spec)
		}
		if instead = strings.TrimPrefix(strings.ReplaceAll(strings.Join(found, " or "), " .", " "), "."); instead == "" {
			instead = "one of " + strings.Join(slices.Sorted(maps.Keys(at.Properties)), ", ")
		}
	}
	return fmt.Errorf("%s: unknown field; write %s", path, instead)
}

// further returns the shallowest paths that end with a name, its plural, or its beginning.
func further(path, name string, s *schema.Structural) []string {
	var below []string
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(s.Properties))) {
		if strings.EqualFold(key, name) || strings.EqualFold(key, name+"s") || strings.HasPrefix(name, key) && name != key+"s" {
			return []string{path + "." + key}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		if key == "custom" {
			continue // Who describes a program of their own has read of its fields.
		}
		property := s.Properties[key]
		below = append(below, further(path+"."+key, name, &property)...)
	}
	least := 0
	for _, p := range below {
		if depth := strings.Count(p, "."); least == 0 || depth < least {
			least = depth
		}
	}
	return slices.DeleteFunc(below, func(p string) bool { return strings.Count(p, ".") > least })
}

func wrongType(e *field.Error, root *schema.Structural, object map[string]any) error {
	s, value := resolve(e.Field, root, object)
	text, isText := value.(string)
	instead := ""
	switch _, named := s.Properties["name"]; {
	case isText && named:
		instead = fmt.Sprintf("write {name: %s}", text)
	case isText && s.Type == "object":
		kind := s.Properties["type"]
		instead = "write {type: TYPE} with one of"
		for _, each := range cmp.Or(kind.ValueValidation, &schema.ValueValidation{}).Enum {
			if each.Object == value {
				instead = fmt.Sprintf("write {type: %s}", text)
				break
			}
			instead += fmt.Sprintf(" %v", each.Object)
		}
	case s.Type != "object" && len(s.XValidations) > 0:
		instead = s.XValidations[0].Message
	case s.XIntOrString:
		instead = "write a whole number, or a text such as 10us, 9G or 5%"
	}
	if instead == "" {
		return e
	}
	return fmt.Errorf("%s: %v has the type %v; %s", e.Field, value, e.BadValue, instead)
}

// resolve returns the schema and the value of a path such as spec.criteria.rules[0].max.
func resolve(path string, s *schema.Structural, object map[string]any) (*schema.Structural, any) {
	value := any(object)
	for step := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		if list, ok := value.([]any); ok && s.Items != nil {
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(list) {
				break
			}
			s, value = s.Items, list[i]
			continue
		}
		property, ok := s.Properties[step]
		if !ok {
			break
		}
		fields, _ := value.(map[string]any)
		s, value = &property, fields[step]
	}
	return s, value
}
