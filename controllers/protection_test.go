package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/test/policyfiles"
)

func TestProtection(t *testing.T) {
	policies, bindings := policyfiles.Read(t, "../config/policy")
	var objects []client.Object
	for i := range policies {
		objects = append(objects, &policies[i])
	}
	for i := range bindings {
		objects = append(objects, &bindings[i])
	}
	allowed := map[string]bool{"act": true}
	var listErr error
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if listErr != nil {
				return listErr
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			review := o.(*authorizationv1.SelfSubjectAccessReview)
			review.Status.Allowed = allowed[review.Spec.ResourceAttributes.Verb]
			return nil
		},
	}).Build()
	p := NewProtection(t.Context(), api, api)
	expect := func(what, want string, changed bool) {
		t.Helper()
		if got := p.Problem(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		select {
		case <-p.Changed:
			if !changed {
				t.Errorf("%s: gates are woken for nothing", what)
			}
		default:
			if changed {
				t.Errorf("%s: gates are not woken", what)
			}
		}
	}
	expect("whole", "", false)

	allowed["act"] = false
	p.check(t.Context())
	expect("an account without the right", "its right act on managers.tailgate.dev is false", true)
	allowed["act"], allowed["exempt"] = true, true
	p.check(t.Context())
	expect("an account with all rights", "its right exempt on managers.tailgate.dev is true", true)
	allowed["exempt"] = false
	p.check(t.Context())
	expect("repaired", "", true)

	listErr = errors.New("the API server is away")
	p.check(t.Context())
	expect("no answer now", "", false)
	listErr = apierrors.NewForbidden(admissionregistrationv1.Resource("validatingadmissionpolicies"), "", errors.New("no role"))
	p.check(t.Context())
	expect("no right to look", "cannot check its admission policies: ", true)
	listErr = nil
	if err := api.Delete(t.Context(), &bindings[0]); err != nil {
		t.Fatal(err)
	}
	p.check(t.Context())
	expect("a binding is gone", bindings[0].Spec.PolicyName+" has no binding that denies everywhere", true)

	listErr = errors.New("the API server is away")
	first := NewProtection(t.Context(), api, api)
	if got := first.Problem(); !strings.Contains(got, "the API server is away") {
		t.Errorf("without any answer: %q", got)
	}
	if got := (*Protection)(nil).Problem(); got != "" {
		t.Errorf("without a check: %q", got)
	}
}
