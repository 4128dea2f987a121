package verdicthttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	realclock "k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// cluster is an API server with objects. The token "good" is user alice, who has the rights in may, and the token "bob's" is user
// bob, who has no rights.
type cluster struct {
	objects []client.Object
	may     map[authorizationv1.ResourceAttributes]bool
	// mayScrape is true if alice may get /metrics.
	mayScrape bool
	// fails reports whether a request fails.
	fails func(verb string, o client.Object) bool
	// reviews counts the answered reviews, by type.
	reviews map[string]int
	// denies is true if an authorizer denies a request that another allows.
	denies bool
	// now is the clock; nil: the real one.
	now cache.Clock
}

func (c cluster) handler(t *testing.T) *Handler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	down := errors.New("the API server does not answer")
	ofGate := func(o client.Object) []string { return []string{o.(*v1alpha1.LatencyVerification).Spec.GateName} }
	if c.now == nil {
		c.now = realclock.RealClock{}
	}
	return New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.objects...).WithIndex(&v1alpha1.LatencyVerification{}, "spec.gateName", ofGate).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if c.fails != nil && c.fails("get", o) {
				return down
			}
			return api.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if c.fails != nil && c.fails("list", nil) {
				return down
			}
			return api.List(ctx, list, options...)
		},
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if c.fails != nil && c.fails("create", o) {
				return down
			}
			if c.reviews != nil {
				c.reviews[fmt.Sprintf("%T", o)]++
			}
			switch review := o.(type) {
			case *authenticationv1.TokenReview:
				review.Status.Authenticated, review.Status.User.Username = review.Spec.Token == "good" || review.Spec.Token == "bob's", "alice"
				if review.Spec.Token == "bob's" {
					review.Status.User.Username = "bob"
				}
			case *authorizationv1.SubjectAccessReview:
				review.Status.Allowed, review.Status.Denied = review.Spec.User == "alice" && c.allows(review.Spec), c.denies
			}
			return nil
		},
	}).Build(), c.now, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1\n") }))
}

// allows reports whether alice may do what a review asks.
func (c cluster) allows(asked authorizationv1.SubjectAccessReviewSpec) bool {
	if path := asked.NonResourceAttributes; path != nil {
		return c.mayScrape && *path == (authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"})
	}
	return c.may[*asked.ResourceAttributes]
}

// isA reports whether an object is of a type.
func isA[T client.Object](o client.Object) bool {
	_, ok := o.(T)
	return ok
}

// right returns the right to get an object.
func right(resource, namespace, name string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: "get", Group: "tailgate.dev", Version: "v1alpha1", Resource: resource, Namespace: namespace, Name: name}
}

// makeGate returns a gate with a condition Passed whose observed generation is behind by a number of generations.
func makeGate(name string, status metav1.ConditionStatus, reason string, behind int64, nodes v1alpha1.NodeCounts) *v1alpha1.LatencyGate {
	g := &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2 - behind}}
	g.Spec.NodeSelector.MatchLabels, g.Status.Nodes = map[string]string{"gated": ""}, nodes
	g.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, "told"))
	g.Generation = 2
	return g
}

func makeVerification(node, uid string, state v1alpha1.VerificationState, reason string) *v1alpha1.LatencyVerification {
	return &v1alpha1.LatencyVerification{
		ObjectMeta: metav1.ObjectMeta{Name: "gate." + node},
		Spec:       v1alpha1.LatencyVerificationSpec{GateName: "gate", NodeName: node},
		Status: v1alpha1.LatencyVerificationStatus{
			State: state, NodeUID: uid, Identity: map[string]string{"BootID": ""},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionVerified, Reason: reason, Message: "told"}},
		},
	}
}

func makeBenchmark(name string, gated bool, change func(*v1alpha1.LatencyBenchmark)) *v1alpha1.LatencyBenchmark {
	b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: name, Generation: 1}}
	if gated {
		b.Spec.Criteria = &v1alpha1.Criteria{}
	}
	if change != nil {
		change(b)
	}
	return b
}

func makeMatrix(status metav1.ConditionStatus, reason string) *v1alpha1.LatencyMatrix {
	m := &v1alpha1.LatencyMatrix{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "mesh", Generation: 1}}
	m.Spec.Template.Spec.Criteria = &v1alpha1.Criteria{}
	m.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, "told"))
	return m
}

// ask sends a request with a token, if it is not empty.
func ask(h http.Handler, method, path, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func decode(t *testing.T, w *httptest.ResponseRecorder) Answer {
	t.Helper()
	var a Answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%v in %q", err, w.Body)
	}
	return a
}

func TestVerdicts(t *testing.T) {
	all := v1alpha1.NodeCounts{Total: 3, Verified: 3}
	one := func(count func(*v1alpha1.NodeCounts)) v1alpha1.NodeCounts {
		n := v1alpha1.NodeCounts{Total: 3, Verified: 2}
		count(&n)
		return n
	}
	passed := func(status metav1.ConditionStatus, reason string) func(*v1alpha1.LatencyBenchmark) {
		return func(b *v1alpha1.LatencyBenchmark) {
			b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, "told"))
		}
	}
	const gates, benchmarks, matrices = "/verdict/latencygates/gate", "/verdict/namespaces/perf/latencybenchmarks/sweep", "/verdict/namespaces/perf/latencymatrices/mesh"
	cases := map[string]struct {
		object client.Object
		path   string
		want   Verdict
		reason string
	}{
		"a gate that passed":                     {makeGate("gate", "True", v1alpha1.ReasonAllVerified, 0, all), gates, Pass, "AllVerified"},
		"a gate that passed, booted since":       {makeGate("gate", "True", v1alpha1.ReasonAllVerified, 0, all), gates, Pending, "IdentityChanged"},
		"a node that was verified, booted since": {nil, gates + "/nodes/b", Pending, "IdentityChanged"},
		"a node that is as it was verified":      {nil, gates + "/nodes/b", Pass, "Passed"},
		"a gate with a node that failed":         {makeGate("gate", "False", v1alpha1.ReasonNodesFailed, 0, one(func(n *v1alpha1.NodeCounts) { n.Failed = 1 })), gates, Fail, "NodesFailed"},
		"a gate with too many unverified":        {makeGate("gate", "False", v1alpha1.ReasonTooManyUnverified, 0, one(func(n *v1alpha1.NodeCounts) { n.Unverified = 1 })), gates, Pending, "TooManyUnverified"},
		"a gate that measures":                   {makeGate("gate", "Unknown", v1alpha1.ReasonNotAllVerified, 0, one(func(n *v1alpha1.NodeCounts) { n.Measuring = 1 })), gates, Pending, "NotAllVerified"},
		"a gate of which nothing can be concluded": {makeGate("gate", "Unknown", v1alpha1.ReasonNotAllVerified, 0, one(func(n *v1alpha1.NodeCounts) { n.Inconclusive = 1 })),
			gates, Inconclusive, "NotAllVerified"},
		"a gate without nodes":                           {makeGate("gate", "Unknown", v1alpha1.ReasonNoNodes, 0, v1alpha1.NodeCounts{}), gates, Pending, "NoNodes"},
		"a gate that was edited since":                   {makeGate("gate", "True", v1alpha1.ReasonAllVerified, 1, all), gates, Pending, "NotObserved"},
		"a gate that the operator has not observed":      {&v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: "gate", Generation: 1}}, gates, Pending, "NotObserved"},
		"a node that is verified":                        {makeVerification("a", "uid-a", v1alpha1.VerificationVerified, "Passed"), gates + "/nodes/a", Pass, "Passed"},
		"a node that was made again":                     {makeVerification("a", "another", v1alpha1.VerificationVerified, "Passed"), gates + "/nodes/a", Pending, "NodeReplaced"},
		"a node that failed":                             {makeVerification("a", "uid-a", v1alpha1.VerificationFailed, "Fail"), gates + "/nodes/a", Fail, "Fail"},
		"a node that waits":                              {makeVerification("a", "uid-a", v1alpha1.VerificationUnverified, "IdentityChanged"), gates + "/nodes/a", Pending, "IdentityChanged"},
		"a node that is measured":                        {makeVerification("a", "uid-a", v1alpha1.VerificationMeasuring, "Measuring"), gates + "/nodes/a", Pending, "Measuring"},
		"a node of which nothing can be concluded":       {makeVerification("a", "uid-a", v1alpha1.VerificationInconclusive, "TooFewRounds"), gates + "/nodes/a", Inconclusive, "TooFewRounds"},
		"a node that the operator has not observed":      {makeVerification("a", "", "", ""), gates + "/nodes/a", Pending, "NotObserved"},
		"a matrix that passed":                           {makeMatrix("True", v1alpha1.ReasonPass), matrices, Pass, "Pass"},
		"a matrix that failed":                           {makeMatrix("False", v1alpha1.ReasonFail), matrices, Fail, "Fail"},
		"a benchmark that passed":                        {makeBenchmark("sweep", true, passed("True", v1alpha1.ReasonPass)), benchmarks, Pass, "Pass"},
		"a benchmark that failed":                        {makeBenchmark("sweep", true, passed("False", v1alpha1.ReasonFail)), benchmarks, Fail, "Fail"},
		"a benchmark from which nothing follows":         {makeBenchmark("sweep", true, passed("Unknown", v1alpha1.ReasonInconclusive)), benchmarks, Inconclusive, "Inconclusive"},
		"a benchmark that is being measured":             {makeBenchmark("sweep", true, passed("Unknown", v1alpha1.ReasonNotJudged)), benchmarks, Pending, "NotJudged"},
		"a benchmark without rules":                      {makeBenchmark("sweep", false, nil), benchmarks, Inconclusive, "NoCriteria"},
		"a benchmark whose rules were edited since":      {makeBenchmark("sweep", true, func(b *v1alpha1.LatencyBenchmark) { passed("True", "Pass")(b); b.Generation++ }), benchmarks, Pending, "NotJudged"},
		"a benchmark that the operator has not observed": {makeBenchmark("sweep", true, nil), benchmarks, Pending, "NotJudged"},
	}
	may := map[authorizationv1.ResourceAttributes]bool{
		right("latencygates", "", "gate"): true, right("latencyverifications", "", "gate.a"): true, right("latencyverifications", "", "gate.b"): true, right("latencybenchmarks", "perf", "sweep"): true,
		right("latencymatrices", "perf", "mesh"): true,
	}
	nodeA := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}}
	nodeA.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	// Two nodes of the gate: one has not changed since it was verified, the other has rebooted.
	gated := map[string]string{"gated": ""}
	nodeB := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "uid-b", Labels: gated}}
	nodeB.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	booted := nodeB.DeepCopy()
	booted.Status.NodeInfo.BootID = "another"
	verifiedB := makeVerification("b", "uid-b", v1alpha1.VerificationVerified, "Passed")
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := nodeB
			if strings.HasSuffix(name, ", booted since") {
				b = booted
			}
			objects := []client.Object{nodeA, b, verifiedB}
			if c.object != nil {
				objects = append(objects, c.object)
			}
			h := cluster{objects: objects, may: may}.handler(t)
			w := ask(h, http.MethodGet, c.path, "good")
			a := decode(t, w)
			if w.Code != http.StatusOK || a.Verdict != c.want || a.Reason != c.reason || a.Message == "" || a.Passed != (c.want == Pass) {
				t.Errorf("GET: %d, %s; want %s, %s", w.Code, w.Body, c.want, c.reason)
			}
			post := ask(h, http.MethodPost, c.path, "good")
			want := http.StatusPreconditionFailed
			if c.want == Pass {
				want = http.StatusOK
			}
			if post.Code != want {
				t.Errorf("POST: %d, want %d", post.Code, want)
			}
			if diff := cmp.Diff(a, decode(t, post)); diff != "" {
				t.Errorf("POST against GET (-GET +POST):\n%s", diff)
			}
		})
	}
}

// Only a Pass that was read for an authorized caller gives a body with Pass, or a POST with 200.
func TestNoVerdict(t *testing.T) {
	is := func(verb string, match func(client.Object) bool) func(string, client.Object) bool {
		return func(v string, o client.Object) bool { return v == verb && match(o) }
	}
	passes := makeGate("gate", "True", v1alpha1.ReasonAllVerified, 0, v1alpha1.NodeCounts{Total: 1, Verified: 1})
	going := passes.DeepCopy()
	going.Finalizers, going.DeletionTimestamp = []string{v1alpha1.FinalizerNode}, new(metav1.Now())
	gateRight := map[authorizationv1.ResourceAttributes]bool{right("latencygates", "", "gate"): true}
	nodeRight := map[authorizationv1.ResourceAttributes]bool{right("latencyverifications", "", "gate.a"): true}
	verified := makeVerification("a", "uid-a", v1alpha1.VerificationVerified, "Passed")
	const path = "/verdict/latencygates/gate"
	cases := map[string]struct {
		cluster             cluster
		method, path, token string
		code                int
		reason              string
	}{
		"no token":               {cluster{objects: []client.Object{passes}, may: gateRight}, "GET", path, "", 401, ReasonUnauthorized},
		"another token":          {cluster{objects: []client.Object{passes}, may: gateRight}, "POST", path, "bad", 401, ReasonUnauthorized},
		"no right":               {cluster{objects: []client.Object{passes}}, "POST", path, "good", 403, ReasonForbidden},
		"a right that is denied": {cluster{objects: []client.Object{passes}, may: gateRight, denies: true}, "POST", path, "good", 403, ReasonForbidden},
		"a right to the node":    {cluster{objects: []client.Object{passes}, may: nodeRight}, "GET", path, "good", 403, ReasonForbidden},
		"no right to absent":     {cluster{}, "GET", path, "good", 403, ReasonForbidden},
		"no such gate":           {cluster{may: gateRight}, "POST", path, "good", 404, ReasonNotFound},
		"a gate that goes":       {cluster{objects: []client.Object{going}, may: gateRight}, "POST", path, "good", 404, ReasonNotFound},
		"no such node":           {cluster{objects: []client.Object{verified}, may: nodeRight}, "POST", path + "/nodes/a", "good", 404, ReasonNotFound},
		"no such path":           {cluster{}, "GET", "/verdict/latencygates", "good", 404, ReasonNotFound},
		"an invalid name":        {cluster{may: map[authorizationv1.ResourceAttributes]bool{right("latencygates", "", "a/b"): true}, fails: is("get", func(client.Object) bool { return true })}, "GET", "/verdict/latencygates/a%2Fb", "good", 404, ReasonNotFound},
		"a method that changes":  {cluster{objects: []client.Object{passes}, may: gateRight}, "DELETE", path, "good", 405, ReasonMethodNotAllowed},
		"tokens cannot be checked": {cluster{objects: []client.Object{passes}, may: gateRight, fails: is("create", isA[*authenticationv1.TokenReview])},
			"POST", path, "good", 503, ReasonUnavailable},
		"rights cannot be checked": {cluster{objects: []client.Object{passes}, may: gateRight, fails: is("create", isA[*authorizationv1.SubjectAccessReview])},
			"POST", path, "good", 503, ReasonUnavailable},
		"the gate cannot be read": {cluster{objects: []client.Object{passes}, may: gateRight, fails: is("get", func(client.Object) bool { return true })}, "POST", path, "good", 503, ReasonUnavailable},
		"the nodes of a gate cannot be read": {cluster{objects: []client.Object{passes}, may: gateRight, fails: is("list", func(client.Object) bool { return true })},
			"POST", path, "good", 503, ReasonUnavailable},
		"a token that is too long": {cluster{objects: []client.Object{passes}, may: gateRight}, "POST", path, strings.Repeat("a", maxToken+1), 401, ReasonUnauthorized},
		"the node cannot be read": {cluster{objects: []client.Object{verified}, may: nodeRight, fails: is("get", isA[*corev1.Node])},
			"POST", path + "/nodes/a", "good", 503, ReasonUnavailable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := ask(c.cluster.handler(t), c.method, c.path, c.token)
			a := decode(t, w)
			if w.Code != c.code || a.Verdict != Unknown || a.Passed || a.Reason != c.reason || a.Message == "" {
				t.Errorf("%d, %s; want %d, %s", w.Code, w.Body, c.code, c.reason)
			}
		})
	}
}

func TestBasicPasswordIsTheToken(t *testing.T) {
	passes := makeGate("gate", "True", v1alpha1.ReasonAllVerified, 0, v1alpha1.NodeCounts{Total: 1, Verified: 1})
	h := cluster{objects: []client.Object{passes}, may: map[authorizationv1.ResourceAttributes]bool{right("latencygates", "", "gate"): true}}.handler(t)
	for password, want := range map[string]int{"good": 200, "bad": 401, "": 401} {
		r := httptest.NewRequest(http.MethodPost, "/verdict/latencygates/gate", nil)
		r.SetBasicAuth("flagger", password)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("password %q: %d, want %d", password, w.Code, want)
		}
	}
}

// Tools are configured for this schema.
func TestSchema(t *testing.T) {
	failed := makeGate("gate", "False", v1alpha1.ReasonNodesFailed, 0, v1alpha1.NodeCounts{Total: 2, Verified: 1, Failed: 1})
	failed.Status.NotVerified = []v1alpha1.NodeLine{{Name: "b", State: v1alpha1.VerificationFailed, Message: "p99 is 12 % higher"}}
	h := cluster{objects: []client.Object{failed}, may: map[authorizationv1.ResourceAttributes]bool{right("latencygates", "", "gate"): true}}.handler(t)
	w := ask(h, http.MethodGet, "/verdict/latencygates/gate", "good")
	const want = `{"kind":"LatencyGate","name":"gate","verdict":"Fail","passed":false,"reason":"NodesFailed","message":"told",` +
		`"details":["b: Failed, p99 is 12 % higher"],"nodes":{"total":2,"verified":1,"unverified":0,"measuring":0,"failed":1,"inconclusive":0,"away":0}}` + "\n"
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
}
