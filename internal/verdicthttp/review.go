package verdicthttp

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const (
	// remembered is how long the API server's answer to a review is remembered, a refusal as well as a grant.
	remembered = 10 * time.Second
	// maxReviews is how many reviews of each kind are remembered.
	maxReviews = 1024
	// maxToken is the length of the longest token that is reviewed. Tokens of service accounts have about a thousand bytes.
	maxToken = 16 << 10
)

// reviewer asks the API server for the identity and the rights of callers, and remembers the answers for some seconds.
type reviewer struct {
	api            client.Client
	users, allowed *cache.LRUExpireCache
}

func newReviewer(api client.Client, now cache.Clock) *reviewer {
	return &reviewer{
		api:   api,
		users: cache.NewLRUExpireCacheWithClock(maxReviews, now), allowed: cache.NewLRUExpireCacheWithClock(maxReviews, now),
	}
}

// errUnauthorized is for callers whose token is not valid.
var errUnauthorized = errors.New("a token that the API server accepts is required: Authorization: Bearer TOKEN, or Basic with the token as password")

// authenticate returns the user who sent a request.
func (v *reviewer) authenticate(ctx context.Context, r *http.Request) (authenticationv1.UserInfo, error) {
	given := token(r)
	if given == "" || len(given) > maxToken {
		return authenticationv1.UserInfo{}, errUnauthorized
	}
	// The key is a digest, so that tokens are not kept.
	key := sha256.Sum256([]byte(given))
	status, ok := v.users.Get(key)
	if !ok {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: given}}
		if err := v.api.Create(ctx, review); err != nil {
			return authenticationv1.UserInfo{}, err
		}
		status = review.Status
		v.users.Add(key, status, remembered)
	}
	if known := status.(authenticationv1.TokenReviewStatus); known.Authenticated {
		return known.User, nil
	}
	return authenticationv1.UserInfo{}, errUnauthorized
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

// authorize reports whether a user may get an object.
func (v *reviewer) authorize(ctx context.Context, user authenticationv1.UserInfo, s subject) (bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: s.resource,
			Namespace: s.object.GetNamespace(), Name: s.object.GetName(),
		},
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("encoding a review: %w", err)
	}
	key := sha256.Sum256(data)
	if allowed, ok := v.allowed.Get(key); ok {
		return allowed.(bool), nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: spec}
	if err := v.api.Create(ctx, review); err != nil {
		return false, err
	}
	allowed := review.Status.Allowed && !review.Status.Denied
	v.allowed.Add(key, allowed, remembered)
	return allowed, nil
}
