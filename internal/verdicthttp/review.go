package verdicthttp

import (
	"context"
	"errors"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// maxToken is the length of the longest token that is reviewed. Tokens of service accounts have about a thousand bytes.
const maxToken = 16 << 10

var errUnauthorized = errors.New("a token that the API server accepts is required: Authorization: Bearer TOKEN, or Basic with the token as password")

// authenticate asks the API server for the user who sent a request.
func (h *Handler) authenticate(ctx context.Context, r *http.Request) (authenticationv1.UserInfo, error) {
	given := token(r)
	if given == "" || len(given) > maxToken {
		return authenticationv1.UserInfo{}, errUnauthorized
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: given}}
	if err := h.api.Create(ctx, review); err != nil {
		return authenticationv1.UserInfo{}, err
	}
	if !review.Status.Authenticated {
		return authenticationv1.UserInfo{}, errUnauthorized
	}
	return review.Status.User, nil
}

// token returns the token of a request; empty if there is no token. Tools that cannot send their own headers, such as Flagger,
// send the user and password of a URL: the password is then the token, and the user is ignored.
func token(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(value)
}

func (h *Handler) authorize(ctx context.Context, user authenticationv1.UserInfo, access authorizationv1.SubjectAccessReviewSpec) (
	bool, error) {
	access.User, access.UID, access.Groups = user.Username, user.UID, user.Groups
	access.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, value := range user.Extra {
		access.Extra[key] = authorizationv1.ExtraValue(value)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: access}
	if err := h.api.Create(ctx, review); err != nil {
		return false, err
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}
