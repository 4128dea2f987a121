package verdicthttp

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const gatePath = "/verdict/latencygates/gate"

// askFrom sends a request from an address.
func askFrom(h http.Handler, address, token string) int {
	r := httptest.NewRequest(http.MethodGet, gatePath, nil)
	r.RemoteAddr = address
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if (w.Code == http.StatusTooManyRequests) != (w.Header().Get("Retry-After") == "1") {
		panic(fmt.Sprint(w.Code, w.Header()))
	}
	return w.Code
}

func limited(t *testing.T, now cache.Clock) (http.Handler, cluster) {
	passes := makeGate("gate", "True", v1alpha1.ReasonAllVerified, 0, v1alpha1.NodeCounts{Total: 1, Verified: 1})
	c := cluster{
		objects: []client.Object{passes}, may: map[authorizationv1.ResourceAttributes]bool{right("latencygates", "", "gate"): true},
		now: now, reviews: map[string]int{},
	}
	return c.handler(t), c
}

func TestClientIsLimited(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	h, c := limited(t, now)
	count := func(address string, requests int) (codes map[int]int) {
		codes = map[int]int{}
		for range requests {
			codes[askFrom(h, address, "good")]++
		}
		return codes
	}
	expect := func(what string, got, want map[int]int) {
		t.Helper()
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("a burst", count("10.0.0.1:1", clientBurst+5), map[int]int{200: clientBurst, 429: 5})
	expect("another port of the same client", count("10.0.0.1:2", 1), map[int]int{429: 1})
	expect("another client", count("10.0.0.2:1", 1), map[int]int{200: 1})
	now.SetTime(now.Now().Add(time.Second))
	expect("a second later", count("10.0.0.1:1", 15), map[int]int{200: int(clientRate), 429: 5})
	if got, want := c.reviews["*v1.TokenReview"], clientBurst+1+int(clientRate); got != want {
		t.Errorf("%d TokenReviews, want %d: requests beyond the limit ask for nothing", got, want)
	}
}

func TestAllClientsAreLimited(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	h, _ := limited(t, now)
	codes := map[int]int{}
	for i := range totalBurst + 10 {
		codes[askFrom(h, fmt.Sprintf("10.0.%d.%d:1", i/200, i%200), "good")]++
	}
	if want := (map[int]int{200: totalBurst, 429: 10}); !maps.Equal(codes, want) {
		t.Errorf("%v, want %v", codes, want)
	}
}

// Metrics need a token and the right to get them, and requests for them count as requests for verdicts do.
func TestMetricsAreLimited(t *testing.T) {
	c := cluster{mayScrape: true, now: testingclock.NewFakePassiveClock(time.Unix(1e9, 0)), reviews: map[string]int{}}
	h := c.handler(t)
	if w := ask(h, http.MethodGet, "/metrics", "good"); w.Code != http.StatusOK || w.Body.String() != "up 1\n" {
		t.Errorf("%d, %q", w.Code, w.Body)
	}
	for token, want := range map[string]int{"": 401, "bad": 401, "bob's": 403} {
		if w := ask(h, http.MethodGet, "/metrics", token); w.Code != want || strings.Contains(w.Body.String(), "up 1") {
			t.Errorf("token %q: %d, %q, want %d", token, w.Code, w.Body, want)
		}
	}
	codes := map[int]int{}
	for range 100 {
		codes[ask(h, http.MethodGet, "/metrics", "bad").Code]++
	}
	if want := (map[int]int{401: clientBurst - 4, 429: 100 - clientBurst + 4}); !maps.Equal(codes, want) {
		t.Errorf("%v, want %v", codes, want)
	}
	// The request without a token causes no review.
	if got := c.reviews["*v1.TokenReview"]; got != clientBurst-1 {
		t.Errorf("%d TokenReviews, want %d", got, clientBurst-1)
	}
	c.fails = func(string, client.Object) bool { return true }
	if w := ask(c.handler(t), http.MethodGet, "/metrics", "good"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without an API server: %d", w.Code)
	}
}

// The memory of clients is bounded, however many clients there are.
func TestClientsAreForgotten(t *testing.T) {
	l := newLimiter(testingclock.NewFakePassiveClock(time.Unix(1e9, 0)))
	for i := range 2 * maxClients {
		l.client(fmt.Sprint(i))
	}
	if got := len(l.clients.Keys()); got > maxClients {
		t.Errorf("%d clients are known", got)
	}
}

// A token or a right that was withdrawn is of no use at once, and a request without a usable token causes no review.
func TestReviewsAreOfNow(t *testing.T) {
	h, c := limited(t, testingclock.NewFakePassiveClock(time.Unix(1e9, 0)))
	expect := func(what string, code, want, tokens, rights int) {
		t.Helper()
		if code != want || c.reviews["*v1.TokenReview"] != tokens || c.reviews["*v1.SubjectAccessReview"] != rights {
			t.Errorf("%s: %d after %v, want %d after %d and %d", what, code, c.reviews, want, tokens, rights)
		}
	}
	expect("the first", askFrom(h, "10.0.0.1:1", "good"), 200, 1, 1)
	expect("no token", askFrom(h, "10.0.0.1:1", ""), 401, 1, 1)
	expect("a token that is too long", askFrom(h, "10.0.0.1:1", strings.Repeat("a", maxToken+1)), 401, 1, 1)
	expect("a token that is not known", askFrom(h, "10.0.0.1:1", "bad"), 401, 2, 1)
	clear(c.may)
	expect("a right that was withdrawn", askFrom(h, "10.0.0.1:1", "good"), 403, 3, 2)
	c.may[right("latencygates", "", "gate")] = true
	expect("a right that was given", askFrom(h, "10.0.0.1:1", "good"), 200, 4, 3)
	expect("another user", askFrom(h, "10.0.0.1:1", "bob's"), 403, 5, 4)
}

// A request that the API server does not answer ends, and frees its place.
func TestRequestsHaveADeadline(t *testing.T) {
	h, _ := limited(t, testingclock.NewFakePassiveClock(time.Unix(1e9, 0)))
	handler := h.(*Handler)
	handler.api = unanswered{handler.api, t}
	if code := askFrom(h, "10.0.0.1:1", "good"); code != http.StatusServiceUnavailable {
		t.Errorf("%d", code)
	}
}

// unanswered is an API server that answers reviews, and no other request.
type unanswered struct {
	client.Client
	t *testing.T
}

func (u unanswered) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > patience {
		u.t.Errorf("deadline %s, %t", deadline, ok)
	}
	return context.DeadlineExceeded
}

// At most maxReading answers read the nodes of gates at the same time: the next one waits until its deadline.
func TestReadersOfGatesAreLimited(t *testing.T) {
	h, _ := limited(t, testingclock.NewFakePassiveClock(time.Unix(1e9, 0)))
	reading := h.(*Handler).reading
	for range maxReading {
		select {
		case reading <- struct{}{}:
		default:
			t.Fatalf("fewer than %d may read", maxReading)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, authorized(httptest.NewRequest(http.MethodGet, gatePath, nil).WithContext(ctx)))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d while %d others read", w.Code, maxReading)
	}
	<-reading
	if code := askFrom(h, "10.0.0.1:1", "good"); code != http.StatusOK {
		t.Errorf("%d when one has ended", code)
	}
}

func authorized(r *http.Request) *http.Request {
	r.Header.Set("Authorization", "Bearer good")
	return r
}
