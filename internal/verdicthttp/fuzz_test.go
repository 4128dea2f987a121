package verdicthttp

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	realclock "k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tokenReviews is an API server that accepts every token as that of a user with the same name.
type tokenReviews struct {
	client.Client
	asked []string
}

func (r *tokenReviews) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	review := o.(*authenticationv1.TokenReview)
	r.asked = append(r.asked, review.Spec.Token)
	review.Status.Authenticated, review.Status.User.Username = true, review.Spec.Token
	return nil
}

// FuzzToken sends any Authorization header. The reviewed token is part of the header, or the password in it, and of limited
// length; a password is not changed, and errors contain nothing of the header.
func FuzzToken(f *testing.F) {
	f.Add("Bearer good")
	f.Add("bearer  good ")
	f.Add("Basic YW55Omdvb2Q=")
	f.Add("Basic bm8gY29sb24=")
	f.Add("Digest username=good")
	f.Add("Bearer " + strings.Repeat("x", maxToken+1))
	f.Fuzz(func(t *testing.T, header string) {
		api := &tokenReviews{}
		h := New(api, realclock.RealClock{}, nil)
		r := &http.Request{Header: http.Header{"Authorization": {header}}}
		given := token(r)
		user, err := h.authenticate(t.Context(), r)
		if reviewed := len(api.asked) == 1 && api.asked[0] == given; reviewed != (err == nil) || reviewed != (given != "" && len(given) <= maxToken) {
			t.Errorf("%q: reviewed %q, %v", header, api.asked, err)
		}
		if err == nil && user.Username != given || err != nil && !errors.Is(err, errUnauthorized) {
			t.Errorf("%q: user %q, %v", header, user.Username, err)
		}
		scheme, rest, _ := strings.Cut(header, " ")
		if given != "" && !strings.EqualFold(scheme, "Basic") && (!strings.EqualFold(scheme, "Bearer") || given != strings.TrimSpace(rest)) {
			t.Errorf("%q: token %q", header, given)
		}
		r.SetBasicAuth("flagger", header)
		if got := token(r); got != header {
			t.Errorf("password %q is read as %q", header, got)
		}
	})
}
