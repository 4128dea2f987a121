// Package protection finds what is missing of the admission policies of config/policy in a cluster.
package protection

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Label has the policy's name in config/policy; an installation may have renamed the object.
const Label = "tailgate.dev/policy"

// Policies are the values of Label in config/policy.
var Policies = []string{
	"gate-operate", "graces", "manager-budgets", "manager-events", "manager-finalizers", "manager-nodes", "manager-objects", "manager-own-pods", "manager-pods",
	"manager-secrets", "requests", "secrets", "sizes",
}

// Missing returns which of Policies is missing or refuses nothing: without a binding that denies,
// with one that an error ends, or that does not apply to everything; empty if all are whole.
func Missing(policies []admissionregistrationv1.ValidatingAdmissionPolicy, bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding) string {
	var missing []string
	for _, name := range Policies {
		if why := missingOf(name, policies, bindings); why != "" {
			missing = append(missing, name+" ("+why+")")
		}
	}
	return strings.Join(missing, ", ")
}

func missingOf(name string, policies []admissionregistrationv1.ValidatingAdmissionPolicy, bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding) string {
	why := "not installed"
	for i := range policies {
		p := &policies[i]
		if p.Labels[Label] != name {
			continue
		}
		if f := p.Spec.FailurePolicy; f != nil && *f != admissionregistrationv1.Fail {
			why = fmt.Sprintf("%s has failurePolicy %s", p.Name, *f)
			continue
		}
		if slices.ContainsFunc(bindings, func(b admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
			return b.Spec.PolicyName == p.Name && b.Spec.MatchResources == nil && b.Spec.ParamRef == nil &&
				slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny)
		}) {
			return ""
		}
		why = p.Name + " has no binding that denies everywhere"
	}
	return why
}
