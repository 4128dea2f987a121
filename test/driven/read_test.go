package driven

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/verdicthttp"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// What readers see: the command line, HTTP, and Prometheus.

// allowing is a client whose API server knows every token, and allows everything.
type allowing struct{ client.Client }

func (a allowing) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	switch review := o.(type) {
	case *authenticationv1.TokenReview:
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "reader"}}
		return nil
	case *authorizationv1.SubjectAccessReview:
		review.Status.Allowed = true
		return nil
	}
	return a.Client.Create(ctx, o, opts...)
}

// call requests a verdict.
func call(method, path string) (code int, body string) {
	GinkgoHelper()
	request := httptest.NewRequest(method, path, strings.NewReader(`{"name":"trading","namespace":"default","phase":"Progressing"}`))
	request.Header.Set("Authorization", "Bearer token")
	response := httptest.NewRecorder()
	verdicthttp.New(allowing{k8s}, present.Clock, http.NotFoundHandler()).ServeHTTP(response, request)
	return response.Code, response.Body.String()
}

// expectOpen checks that neither the command line nor a POST lets anything pass or fail because of a gate: its exit code would be 2, or
// 3 at the end of --wait if the standing that it returns is open.
func expectOpen(ctx context.Context, g *v1alpha1.LatencyGate) standing.Standing {
	GinkgoHelper()
	s, err := standing.Of(ctx, k8s, Get(ctx, g))
	Expect(err).NotTo(HaveOccurred())
	Expect(s.Outcome).NotTo(BeElementOf(v1alpha1.VerdictPass, v1alpha1.VerdictFail), s.String())
	code, body := call(http.MethodPost, "/verdict/latencygates/"+g.Name)
	Expect(code).To(Equal(http.StatusPreconditionFailed), body)
	return s
}
