// Package admit checks a LatencyBenchmark or a LatencyMatrix as an API server would, without one.
package admit

import (
	"context"
	"fmt"
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

// Object processes a manifest as an API server that has this version of the kind does: it rejects unknown fields, fills in
// the defaults, and checks the schema and its rules. Its error is an Aggregate of errors with a line each.
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
