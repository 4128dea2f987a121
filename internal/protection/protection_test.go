package protection

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tailgate-dev/tailgate/test/policyfiles"
)

const folder = "../../config/policy"

func TestConfigPolicyIsWhole(t *testing.T) {
	policies, bindings := policyfiles.Read(t, folder)
	if missing := Missing(policies, bindings); missing != "" {
		t.Error("missing: ", missing)
	}
	var names []string
	for _, p := range policies {
		names = append(names, p.Labels[Label])
	}
	slices.Sort(names)
	if !slices.Equal(names, Policies) {
		t.Errorf("config/policy has %v, and %v are checked", names, Policies)
	}
}

func TestMissing(t *testing.T) {
	type binding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for _, name := range Policies {
		for what, c := range map[string]struct {
			policy  func(*admissionregistrationv1.ValidatingAdmissionPolicy)
			binding func(*binding)
			want    string
		}{
			"no label": {policy: func(p *admissionregistrationv1.ValidatingAdmissionPolicy) { p.Labels = nil }, want: "not installed"},
			"fails open": {policy: func(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
				p.Spec.FailurePolicy = new(admissionregistrationv1.Ignore)
			}, want: "failurePolicy Ignore"},
			"no binding": {binding: func(b *binding) { b.Spec.PolicyName = "other" }, want: "no binding that denies everywhere"},
			"only warns": {binding: func(b *binding) {
				b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn, admissionregistrationv1.Audit}
			}, want: "no binding that denies everywhere"},
			"bound to a part": {binding: func(b *binding) { b.Spec.MatchResources = &admissionregistrationv1.MatchResources{} }, want: "no binding that denies everywhere"},
		} {
			policies, bindings := policyfiles.Read(t, folder)
			for i := range policies {
				if p := &policies[i]; p.Labels[Label] == name {
					for k := range bindings {
						if b := &bindings[k]; b.Spec.PolicyName == p.Name && c.binding != nil {
							c.binding(b)
						}
					}
					if c.policy != nil {
						c.policy(p)
					}
				}
			}
			got := Missing(policies, bindings)
			if !strings.HasPrefix(got, name+" (") || !strings.HasSuffix(got, c.want+")") || strings.Contains(got, "), ") {
				t.Errorf("%s, %s: %q", name, what, got)
			}
		}
	}
	if got := Missing(nil, nil); strings.Count(got, "not installed") != len(Policies) {
		t.Errorf("nothing is installed: %q", got)
	}
}

// With a prefix of Kustomize, the objects have other names.
func TestOtherNames(t *testing.T) {
	policies, bindings := policyfiles.Read(t, folder)
	for i := range policies {
		policies[i].Name = "a-" + policies[i].Name
	}
	for i := range bindings {
		bindings[i].Spec.PolicyName = "a-" + bindings[i].Spec.PolicyName
	}
	if missing := Missing(policies, bindings); missing != "" {
		t.Error("missing: ", missing)
	}
}
