// Package policy evaluates the policies of config/policy as an API server does, for tests without one.
package policy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Manager is the user of the manager, who alone may do what makes a user the manager to the policies.
const Manager = "system:serviceaccount:elsewhere:acme-manager"

type rights struct{}

func (rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == Manager && a.GetAPIGroup() == "tailgate.dev" && a.GetResource() == "managers" && a.GetVerb() == "act" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// Set is the policies of a file.
type Set []compiled

type compiled struct {
	policy    *admissionv1.ValidatingAdmissionPolicy
	validator validating.Validator
}

// Load compiles the policies of a file.
func Load(t testing.TB, file string) Set {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all Set
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		p := &admissionv1.ValidatingAdmissionPolicy{}
		if err := documents.Decode(p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Kind == "ValidatingAdmissionPolicy" {
			all = append(all, compile(t, p))
		}
	}
}

// compile does what the package validating does for a policy.
func compile(t testing.TB, p *admissionv1.ValidatingAdmissionPolicy) compiled {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	declared := cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	for _, v := range p.Spec.Variables {
		variable := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declared, environment.StoredExpressions)
		if variable.Error != nil {
			t.Fatalf("%s, variable %s: %v", p.Name, v.Name, variable.Error)
		}
	}
	var conditions, validations []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
	}
	none := compiler.CompileCondition(nil, declared, environment.StoredExpressions)
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, declared, environment.StoredExpressions), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	return compiled{p, validating.NewValidator(compiler.CompileCondition(validations, declared, environment.StoredExpressions), matcher, none, none, p.Spec.FailurePolicy, nil)}
}

// Request is a write of an object; Object is nil for a deletion, Old for a creation.
type Request struct {
	User        string
	Resource    schema.GroupVersionResource
	Subresource string
	Object, Old runtime.Object
}

// Refusals returns why the policies refuse a request.
func (s Set) Refusals(t testing.TB, r Request) (all []string) {
	t.Helper()
	content := func(o runtime.Object) *unstructured.Unstructured {
		if o == nil {
			return nil
		}
		if u, ok := o.(*unstructured.Unstructured); ok {
			return u
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		return &unstructured.Unstructured{Object: fields}
	}
	operation, object, old := admission.Update, content(r.Object), content(r.Old)
	named := object
	switch {
	case old == nil:
		operation = admission.Create
	case object == nil:
		operation, named = admission.Delete, old
	}
	versioned := &admission.VersionedAttributes{VersionedKind: schema.GroupVersionKind{Group: r.Resource.Group, Version: r.Resource.Version, Kind: "Any"}}
	var now, before runtime.Object
	if object != nil {
		now, versioned.VersionedObject = object, object
	}
	if old != nil {
		before, versioned.VersionedOldObject = old, old
	}
	versioned.Attributes = admission.NewAttributesRecord(now, before, versioned.VersionedKind, named.GetNamespace(), named.GetName(), r.Resource, r.Subresource,
		operation, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: r.User})
	for _, c := range s {
		if !c.concerns(r, operation) {
			continue
		}
		for _, d := range c.validator.Validate(t.Context(), r.Resource, versioned, nil, nil, celconfig.RuntimeCELCostBudget, rights{}).Decisions {
			if d.Action == validating.ActionDeny {
				all = append(all, d.Message)
			}
		}
	}
	return all
}

func (c compiled) concerns(r Request, operation admission.Operation) bool {
	has := func(list []string, value string) bool {
		return slices.Contains(list, value) || slices.Contains(list, "*")
	}
	resource := r.Resource.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	for _, rule := range c.policy.Spec.MatchConstraints.ResourceRules {
		for _, o := range rule.Operations {
			if admission.Operation(o) == operation && has(rule.APIGroups, r.Resource.Group) && has(rule.Resources, resource) {
				return true
			}
		}
	}
	return false
}

// List returns the texts of a variable that is a list of them.
func (s Set) List(t testing.TB, policy, name string) (all []string) {
	t.Helper()
	for _, c := range s {
		for _, v := range c.policy.Spec.Variables {
			if c.policy.Name == policy && v.Name == name {
				if err := utilyaml.Unmarshal([]byte(v.Expression), &all); err != nil {
					t.Fatal(err)
				}
				return all
			}
		}
	}
	t.Fatalf("%s has no variable %s", policy, name)
	return nil
}
