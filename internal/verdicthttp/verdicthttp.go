// Package verdicthttp serves verdicts over HTTP, at the URLs in docs/gate-reference.md, live, at a
// limited rate, and changes nothing. GET answers 200 for every verdict, which is in the body; POST only
// for Pass. Who may get the object with kubectl may read its verdict.
package verdicthttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/standing"
)

// Path is the prefix of verdicts; MetricsPath is that of the metrics, which need a right.
const (
	Path        = "/verdict/"
	MetricsPath = "/metrics"
)

// Verdict is Pass, Fail, Inconclusive, Pending or, if the verdict could not be read, Unknown.
type Verdict string

// The verdicts. Only Pass means that the object passed.
const (
	Pass                 = Verdict(v1alpha1.VerdictPass)
	Fail                 = Verdict(v1alpha1.VerdictFail)
	Inconclusive         = Verdict(v1alpha1.VerdictInconclusive)
	Pending      Verdict = "Pending" // the object is not judged yet
	Unknown      Verdict = "Unknown" // comes with a status code other than 200 and 412
)

// Answer is the body of every response.
type Answer struct {
	// Kind, Namespace and Name are those of the object; for a node, those of its LatencyGate.
	Kind      string  `json:"kind,omitempty"`
	Namespace string  `json:"namespace,omitempty"`
	Name      string  `json:"name,omitempty"`
	Node      string  `json:"node,omitempty"`
	Verdict   Verdict `json:"verdict"`
	Passed    bool    `json:"passed"`
	Reason    string  `json:"reason"` // one word, of the object's condition or state, if there is one
	Message   string  `json:"message"`
	// Details are about rules that did not pass, or at most 20 unverified nodes.
	Details []string             `json:"details,omitempty"`
	Nodes   *v1alpha1.NodeCounts `json:"nodes,omitempty"`
}

const (
	ReasonUnauthorized     = "Unauthorized"
	ReasonForbidden        = "Forbidden"
	ReasonNotFound         = "NotFound"
	ReasonMethodNotAllowed = "MethodNotAllowed"
	ReasonUnavailable      = "Unavailable"
	ReasonTooManyRequests  = "TooManyRequests"
)

const patience = 5 * time.Second

// Handler answers under Path and for MetricsPath, and authenticates and authorizes itself.
type Handler struct {
	api     client.Client
	mux     *http.ServeMux
	limit   *limiter
	reading chan struct{} // an element for each answer that reads all nodes of a gate
}

const maxReading = 4 // answers that read a gate's nodes, maybe thousands, at once

// New returns a handler of verdicts, and of metrics by another handler. The client must not use a
// cache, and knows Tailgate's kinds, Nodes, TokenReviews and SubjectAccessReviews.
func New(api client.Client, now cache.Clock, metrics http.Handler) *Handler {
	h := &Handler{
		api: api, mux: http.NewServeMux(), limit: newLimiter(now), reading: make(chan struct{}, maxReading),
	}
	for _, e := range endpoints {
		h.mux.HandleFunc(Path+e.path, h.serve(e))
	}
	h.mux.HandleFunc(MetricsPath, h.metrics(metrics))
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		write(w, r, http.StatusNotFound, unknown(Answer{}, ReasonNotFound, "there is no verdict at this path: request "+Path+"latencygates/GATE, "+
			Path+"latencygates/GATE/nodes/NODE, "+Path+"namespaces/NAMESPACE/latencybenchmarks/NAME or "+Path+"namespaces/NAMESPACE/latencymatrices/NAME"))
	})
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.limit.allows(r) {
		w.Header().Set("Retry-After", "1")
		write(w, r, http.StatusTooManyRequests, unknown(Answer{}, ReasonTooManyRequests, "too many requests; try again in a second"))
		return
	}
	h.mux.ServeHTTP(w, r)
}

type endpoint struct {
	path, kind, resource string
	object               client.Object
}

var endpoints = []endpoint{
	{"latencygates/{name}", "LatencyGate", "latencygates", &v1alpha1.LatencyGate{}},
	{"latencygates/{name}/nodes/{node}", "LatencyGate", "latencyverifications", &v1alpha1.LatencyVerification{}},
	{"namespaces/{namespace}/latencybenchmarks/{name}", "LatencyBenchmark", "latencybenchmarks", &v1alpha1.LatencyBenchmark{}},
	{"namespaces/{namespace}/latencymatrices/{name}", "LatencyMatrix", "latencymatrices", &v1alpha1.LatencyMatrix{}},
}

// standing returns an object's standing: a gate's, which reads others, for maxReading at a time.
func (h *Handler) standing(ctx context.Context, o client.Object, into *Answer) (standing.Standing, error) {
	if g, ok := o.(*v1alpha1.LatencyGate); ok {
		into.Nodes = &g.Status.Nodes
		select {
		case h.reading <- struct{}{}:
			defer func() { <-h.reading }()
		case <-ctx.Done():
			return standing.Standing{}, ctx.Err()
		}
	}
	return standing.Of(ctx, h.api, o)
}

func (h *Handler) serve(e endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		code, answer := h.answer(ctx, r, e)
		write(w, r, code, answer)
	}
}

func (h *Handler) metrics(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		code, answer := h.admit(ctx, r, Answer{}, authorizationv1.SubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: MetricsPath},
		}, "get "+MetricsPath+": ClusterRole tailgate-metrics-reader has that right")
		if code != http.StatusOK {
			write(w, r, code, answer)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// unavailable returns the answer without the error, which the caller may have no right to read.
func unavailable(ctx context.Context, about Answer, doing string, err error) (int, Answer) {
	log.FromContext(ctx).Error(err, "A request cannot be answered", "doing", doing,
		"kind", about.Kind, "namespace", about.Namespace, "name", about.Name)
	return http.StatusServiceUnavailable, unknown(about, ReasonUnavailable, doing+" failed; try again")
}

// admit returns 200 if the caller has the right; otherwise the status code and the answer.
func (h *Handler) admit(ctx context.Context, r *http.Request, about Answer, access authorizationv1.SubjectAccessReviewSpec, right string) (
	int, Answer) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		return http.StatusMethodNotAllowed, unknown(about, ReasonMethodNotAllowed, "only GET, HEAD and POST are supported")
	}
	user, err := h.authenticate(ctx, r)
	switch {
	case errors.Is(err, errUnauthorized):
		return http.StatusUnauthorized, unknown(about, ReasonUnauthorized, err.Error())
	case err != nil:
		return unavailable(ctx, about, "checking the token", err)
	}
	allowed, err := h.authorize(ctx, user, access)
	switch {
	case err != nil:
		return unavailable(ctx, about, "checking the rights", err)
	case !allowed:
		return http.StatusForbidden, unknown(about, ReasonForbidden, user.Username+" may not "+right)
	}
	return http.StatusOK, Answer{}
}

func (h *Handler) answer(ctx context.Context, r *http.Request, e endpoint) (int, Answer) {
	about := Answer{Kind: e.kind, Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), Node: r.PathValue("node")}
	name, o := about.Name, e.object.DeepCopyObject().(client.Object)
	if about.Node != "" {
		name = v1alpha1.VerificationName(about.Name, about.Node)
	}
	code, refused := h.admit(ctx, r, about, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: "get", Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: e.resource,
		Namespace: about.Namespace, Name: name,
	}}, fmt.Sprintf("get %s.%s %s: ClusterRole tailgate-gate-reader has that right", e.resource, v1alpha1.GroupVersion.Group, name))
	if code != http.StatusOK {
		return code, refused
	}
	absent := func() (int, Answer) {
		return http.StatusNotFound, unknown(about, ReasonNotFound, "it does not exist, or is being deleted")
	}
	// No object has such a name, and no request can be made for it.
	if len(content.IsPathSegmentName(about.Namespace))+len(content.IsPathSegmentName(name)) > 0 {
		return absent()
	}
	err := h.api.Get(ctx, client.ObjectKey{Namespace: about.Namespace, Name: name}, o)
	if err == nil && !o.GetDeletionTimestamp().IsZero() {
		return absent()
	}
	answer := about
	var st standing.Standing
	if err == nil {
		st, err = h.standing(ctx, o, &answer)
	}
	switch {
	case apierrors.IsNotFound(err):
		return absent()
	case err != nil:
		return unavailable(ctx, about, "reading it", err)
	}
	answer.Verdict, answer.Reason, answer.Message, answer.Details = Verdict(st.Outcome), st.Reason, st.Message, st.Details
	if st.Outcome == "" {
		answer.Verdict = Pending
	}
	answer.Passed = answer.Verdict == Pass
	if r.Method == http.MethodPost && !answer.Passed {
		return http.StatusPreconditionFailed, answer
	}
	return http.StatusOK, answer
}

func unknown(about Answer, reason, message string) Answer {
	about.Verdict, about.Reason, about.Message = Unknown, reason, message
	return about
}

func write(w http.ResponseWriter, r *http.Request, code int, answer Answer) {
	body, err := json.Marshal(answer)
	if err != nil {
		log.FromContext(r.Context()).Error(err, "Encoding a verdict")
		http.Error(w, "encoding the verdict failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	switch code {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", "GET, HEAD, POST")
	}
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // A client that has disconnected does not matter.
}

// maxToken bounds a token that is reviewed. Those of service accounts have a thousand bytes.
const maxToken = 16 << 10

var errUnauthorized = errors.New("a token that the API server accepts is required: Authorization: Bearer TOKEN, or Basic with the token as password")

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

// token returns a request's token, or nothing. Flagger sends it only as the password in a URL.
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

// The rates, in requests a second, and the bursts that are answered: for one client, by address,
// and for all. Requests beyond them are refused before any request to the API server.
const (
	clientRate, clientBurst = rate.Limit(10), 20
	totalRate, totalBurst   = rate.Limit(30), 60 // each takes three to the API server, or more
	// maxClients are counted separately; the longest quiet one is forgotten first.
	maxClients = 1024
	// quiet is when a client is forgotten. Its burst is full again long before.
	quiet = time.Minute
)

type limiter struct {
	now   func() time.Time
	total *rate.Limiter

	mu      sync.Mutex
	clients *cache.LRUExpireCache
}

func newLimiter(now cache.Clock) *limiter {
	return &limiter{now: now.Now, total: rate.NewLimiter(totalRate, totalBurst), clients: cache.NewLRUExpireCacheWithClock(maxClients, now)}
}

// allows reports whether a request is within the limits, its client's before the shared one.
func (l *limiter) allows(r *http.Request) bool {
	now := l.now()
	return l.client(hostOf(r.RemoteAddr)).AllowN(now, 1) && l.total.AllowN(now, 1)
}

func (l *limiter) client(host string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	client, ok := l.clients.Get(host)
	if !ok {
		client = rate.NewLimiter(clientRate, clientBurst)
	}
	l.clients.Add(host, client, quiet)
	return client.(*rate.Limiter)
}

// The limits of a port of the manager. They hold before a request is authenticated.
const (
	maxHeader = 20 << 10 // bytes of a request's header; net/http adds 4 KiB
	// They bound TLS handshake and header, request, its response, and pauses between requests.
	headerTimeout, readTimeout, writeTimeout, idleTimeout = 5 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second
	// maxConnections is a port's, maxOfClient an address's, so that probes get through.
	maxConnections, maxOfClient = 96, 16
)

func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}
}

// Bound returns a listener that closes the connections beyond the limits of a port.
func Bound(listener net.Listener) net.Listener {
	return &bounded{Listener: listener, open: map[string]int{}}
}

type bounded struct {
	net.Listener

	mu    sync.Mutex
	total int
	open  map[string]int
}

func (l *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if host := hostOf(conn.RemoteAddr().String()); l.enter(host) {
			return &counted{conn, sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		_ = conn.Close() // Nothing was sent.
	}
}

func (l *bounded) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxConnections || l.open[host] >= maxOfClient {
		return false
	}
	l.total++
	l.open[host]++
	return true
}

func (l *bounded) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.open[host]--; l.open[host] == 0 {
		delete(l.open, host)
	}
}

type counted struct {
	net.Conn
	left func()
}

func (c *counted) Close() error {
	defer c.left()
	return c.Conn.Close()
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
