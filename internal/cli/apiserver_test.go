package cli

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/admit"
)

// apiServer serves the objects that it is given, and only the requests of the command: GET of one object, GET of the
// benchmarks of a parent or of a namespace, apply, create and delete of a benchmark, and the reads of a plan. The maps may be
// changed before it serves; later, use change.
type apiServer struct {
	benchmarks map[types.NamespacedName]*v1alpha1.LatencyBenchmark
	matrices   map[types.NamespacedName]*v1alpha1.LatencyMatrix
	gates      map[string]*v1alpha1.LatencyGate
	// verifications are the LatencyVerifications of gates; operator processes a request as the operator does; nil: not at all.
	verifications map[string]*v1alpha1.LatencyVerification
	operator      func(*v1alpha1.LatencyVerification)
	configMaps    map[types.NamespacedName]*corev1.ConfigMap
	pods          map[types.NamespacedName]*corev1.Pod
	// logs are the logs of the pods; reading any other log is refused.
	logs  map[types.NamespacedName]string
	nodes []corev1.Node
	// kubelet runs the ephemeral container that was added to a pod, kubeletSummary is what it knows of pods, and podMetrics what
	// metrics-server knows; empty: there is none.
	kubelet                    func(*corev1.Pod)
	followed                   func(*corev1.Pod) // happens when a log that is followed ends
	kubeletSummary, podMetrics string
	// forbiddenPatch is the answer to who patches or creates a pod; nil: it is allowed.
	forbiddenPatch *apierrors.StatusError
	created        []*corev1.Pod // as they came
	gone           bool          // the pod of the tests is no longer there
	// managerArgs are the arguments of the manager in its Deployment; nil: there is none.
	managerArgs []string
	// imposter is true if that Deployment does not have the rights of the manager.
	imposter bool
	// networks are NetworkAttachmentDefinitions.
	networks map[types.NamespacedName]*metav1.PartialObjectMetadata
	// forbidden are parts of paths that are refused.
	forbidden []string
	// fields is a JSON merge patch for every returned benchmark: fields that only another version has.
	fields string
	// token is the token that callers must send.
	token string

	sync.Mutex
	// asked are the paths of all requests, written the methods and URIs of the requests that write.
	asked, written []string
	// answered is the number of requests that were answered.
	answered int
	// refusals are the answers to the next requests, in order; nil does not refuse.
	refusals []*apierrors.StatusError
	// untold is true until a client gets a benchmark after the last change.
	untold bool
	server *httptest.Server
}

var benchmarkResource = schema.GroupResource{Group: "tailgate.dev", Resource: "latencybenchmarks"}

// response counts a request as answered when its handler flushes the response or ends.
type response struct {
	http.ResponseWriter
	done func()
}

func (r response) Flush() {
	r.ResponseWriter.(http.Flusher).Flush()
	r.done()
}

// ServeHTTP serves only certain requests: for any other request, the command would need more rights.
func (s *apiServer) ServeHTTP(plain http.ResponseWriter, r *http.Request) {
	w := response{plain, sync.OnceFunc(func() {
		s.Lock()
		defer s.Unlock()
		s.answered++
	})}
	defer w.done()
	s.Lock()
	s.asked = append(s.asked, r.URL.Path)
	if r.Method != http.MethodGet {
		s.written = append(s.written, r.Method+" "+r.URL.RequestURI())
	}
	var refusal *apierrors.StatusError
	if len(s.refusals) > 0 {
		refusal, s.refusals = s.refusals[0], s.refusals[1:]
	}
	s.Unlock()
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.token:
		s.refuse(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	case refusal != nil:
		s.refuse(w, refusal)
		return
	case slices.ContainsFunc(s.forbidden, func(part string) bool { return strings.Contains(r.Method+" "+r.URL.Path, part) }):
		s.refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: path.Base(r.URL.Path)}, "", fmt.Errorf("User %q cannot %s it", user, r.Method)))
		return
	}
	mux := http.NewServeMux()
	named := func(r *http.Request) types.NamespacedName {
		return types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	}
	if s.benchmarks != nil {
		mux.HandleFunc("PATCH /apis/tailgate.dev/v1alpha1/namespaces/{namespace}/latencybenchmarks/{name}", func(w http.ResponseWriter, r *http.Request) {
			s.apply(w, r, named(r))
		})
		mux.HandleFunc("POST /apis/tailgate.dev/v1alpha1/namespaces/{namespace}/latencybenchmarks", s.create)
		mux.HandleFunc("DELETE /apis/tailgate.dev/v1alpha1/namespaces/{namespace}/latencybenchmarks/{name}", func(w http.ResponseWriter, r *http.Request) {
			s.delete(w, r, named(r))
		})
		mux.HandleFunc("GET /apis/tailgate.dev/v1alpha1/namespaces/{namespace}/latencybenchmarks/{name}", func(w http.ResponseWriter, r *http.Request) {
			s.Lock()
			defer s.Unlock()
			object, found := s.benchmarks[named(r)]
			s.untold = false
			s.object(w, s.withFields(object), found, benchmarkResource, r.PathValue("name"))
		})
	}
	if s.benchmarks != nil {
		s.handleVerifications(mux)
		s.handleMatrices(mux)
	}
	mux.HandleFunc("GET /apis/tailgate.dev/v1alpha1/namespaces/{namespace}/latencybenchmarks", func(w http.ResponseWriter, r *http.Request) {
		s.list(w, r)
	})
	if s.benchmarks != nil || s.gates != nil { // otherwise the cluster does not have the kinds
		mux.HandleFunc("GET /apis/tailgate.dev/v1alpha1/latencygates/{name}", func(w http.ResponseWriter, r *http.Request) {
			object, found := s.gates[r.PathValue("name")]
			s.object(w, object, found, schema.GroupResource{Group: "tailgate.dev", Resource: "latencygates"}, r.PathValue("name"))
		})
	}
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/configmaps/{name}", func(w http.ResponseWriter, r *http.Request) {
		object, found := s.configMaps[named(r)]
		s.object(w, object, found, schema.GroupResource{Resource: "configmaps"}, r.PathValue("name"))
	})
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		object, found := s.pods[named(r)]
		s.object(w, object, found && !(s.gone && named(r) == feed), schema.GroupResource{Resource: "pods"}, r.PathValue("name"))
	})
	mux.HandleFunc("GET /api/v1/nodes/{name}/proxy/stats/summary", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("only_cpu_and_memory") != "true" { // a kubelet may not know the rest
			http.Error(w, "failed to get rootFs stats", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, s.kubeletSummary)
	})
	if s.podMetrics != "" {
		mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/{name}", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, s.podMetrics)
		})
	}
	for _, resource := range []string{"deployments", "statefulsets"} {
		mux.HandleFunc("GET /apis/apps/v1/namespaces/{namespace}/"+resource+"/{name}/scale", func(w http.ResponseWriter, r *http.Request) {
			scale := &autoscalingv1.Scale{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"}, Status: autoscalingv1.ScaleStatus{Selector: "app=" + r.PathValue("name")}}
			s.object(w, scale, r.PathValue("name") != "none", schema.GroupResource{Resource: resource}, r.PathValue("name"))
		})
	}
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods", func(w http.ResponseWriter, r *http.Request) {
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		for _, p := range s.pods {
			if err == nil && selector.Matches(labels.Set(p.Labels)) {
				list.Items = append(list.Items, *p)
			}
		}
		s.answer(w, http.StatusOK, list)
	})
	mux.HandleFunc("PATCH /api/v1/namespaces/{namespace}/pods/{name}/ephemeralcontainers", func(w http.ResponseWriter, r *http.Request) {
		if s.forbiddenPatch != nil {
			s.refuse(w, s.forbiddenPatch)
			return
		}
		pod := s.pods[named(r)]
		if err := json.NewDecoder(r.Body).Decode(pod); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.kubelet(pod)
		s.object(w, pod, true, schema.GroupResource{Resource: "pods"}, pod.Name)
	})
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/pods", func(w http.ResponseWriter, r *http.Request) {
		pod := &corev1.Pod{}
		if s.forbiddenPatch != nil {
			s.refuse(w, s.forbiddenPatch)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err == nil { // JSON or protobuf
			err = runtime.DecodeInto(clientgoscheme.Codecs.UniversalDeserializer(), body, pod)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.created = append(s.created, pod.DeepCopy())
		at := client.ObjectKeyFromObject(pod)
		s.pods[at], s.logs[at] = pod, s.logs[feed]
		s.kubelet(pod)
		s.object(w, pod, true, schema.GroupResource{Resource: "pods"}, pod.Name)
	})
	mux.HandleFunc("DELETE /api/v1/namespaces/{namespace}/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		pod, found := s.pods[named(r)]
		delete(s.pods, named(r))
		s.object(w, pod, found, schema.GroupResource{Resource: "pods"}, r.PathValue("name"))
	})
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{name}/log", func(w http.ResponseWriter, r *http.Request) {
		text, found := s.logs[named(r)]
		if container := r.URL.Query().Get("container"); !found || container != "agent" && !strings.HasPrefix(container, "tailgate-inspect-") {
			s.refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: "pods/log"}, r.PathValue("name"), nil))
			return
		}
		lines := strings.SplitAfter(text, "\n")
		if tail, err := strconv.Atoi(r.URL.Query().Get("tailLines")); err == nil {
			lines = lines[max(0, len(lines)-tail):]
		}
		_, _ = io.WriteString(w, strings.Join(lines, ""))
		if s.followed != nil && r.URL.Query().Get("follow") == "true" {
			s.followed(s.pods[named(r)])
		}
	})
	mux.HandleFunc("GET /apis/tailgate.dev/v1alpha1/latencygates", func(w http.ResponseWriter, _ *http.Request) {
		list := v1alpha1.LatencyGateList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyGateList"}}
		for _, g := range s.gates {
			list.Items = append(list.Items, *g)
		}
		s.answer(w, http.StatusOK, list)
	})
	mux.HandleFunc("GET /apis/apps/v1/deployments", func(w http.ResponseWriter, _ *http.Request) {
		list := appsv1.DeploymentList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DeploymentList"}}
		if s.managerArgs != nil {
			// The first of two with the manager's labels has no bench image.
			list.Items = append(list.Items, appsv1.Deployment{}, appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "proxy"}, {Name: "manager", Args: s.managerArgs}},
			}}}})
		}
		s.answer(w, http.StatusOK, list)
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, _ *http.Request) {
		s.answer(w, http.StatusCreated, authorizationv1.SubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"}, Status: authorizationv1.SubjectAccessReviewStatus{Allowed: !s.imposter},
		})
	})
	mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, r *http.Request) {
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			s.refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		found := slices.DeleteFunc(slices.Clone(s.nodes), func(n corev1.Node) bool { return !selector.Matches(labels.Set(n.Labels)) })
		s.answer(w, http.StatusOK, corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: found})
	})
	for path, kind := range map[string][2]string{
		"/api/v1/pods": {"v1", "PodList"}, "/apis/scheduling.k8s.io/v1/priorityclasses": {"scheduling.k8s.io/v1", "PriorityClassList"},
		"/apis/tailgate.dev/v1alpha1/latencybenchmarks": {"tailgate.dev/v1alpha1", "LatencyBenchmarkList"},
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			s.answer(w, http.StatusOK, map[string]any{"apiVersion": kind[0], "kind": kind[1], "metadata": map[string]any{}, "items": []any{}})
		})
	}
	if s.networks != nil {
		mux.HandleFunc("GET /apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions/{name}", func(w http.ResponseWriter, r *http.Request) {
			object, found := s.networks[named(r)]
			s.object(w, object, found, schema.GroupResource{Resource: "network-attachment-definitions"}, r.PathValue("name"))
		})
	}
	mux.ServeHTTP(w, r)
}

// user is the user whose token callers send.
const user = "alice"

// handleVerifications answers GET and PATCH of a LatencyVerification. The operator acts a moment after each patch.
func (s *apiServer) handleVerifications(mux *http.ServeMux) {
	resource := schema.GroupResource{Group: "tailgate.dev", Resource: "latencyverifications"}
	mux.HandleFunc("GET /apis/tailgate.dev/v1alpha1/latencyverifications/{name}", func(w http.ResponseWriter, r *http.Request) {
		s.Lock()
		defer s.Unlock()
		object, found := s.verifications[r.PathValue("name")]
		s.object(w, object, found, resource, r.PathValue("name"))
	})
	mux.HandleFunc("PATCH /apis/tailgate.dev/v1alpha1/latencyverifications/{name}", func(w http.ResponseWriter, r *http.Request) {
		s.Lock()
		defer s.Unlock()
		v := s.verifications[r.PathValue("name")]
		var patch map[string]v1alpha1.LatencyVerificationSpec
		err := json.NewDecoder(r.Body).Decode(&patch)
		if err != nil || v == nil || len(patch) != 1 || patch["spec"].GateName+patch["spec"].NodeName != "" {
			s.refuse(w, apierrors.NewBadRequest("no patch of the requests"))
			return
		}
		v.Spec.Accept = cmp.Or(patch["spec"].Accept, v.Spec.Accept)
		v.Spec.Verify = cmp.Or(patch["spec"].Verify, v.Spec.Verify)
		s.answer(w, http.StatusOK, v)
		if s.operator != nil {
			time.AfterFunc(10*time.Millisecond, func() {
				s.change(func() {
					s.operator(v)
					v.Status.Requests = &v1alpha1.ProcessedRequests{Accept: v.Spec.Accept, Verify: v.Spec.Verify}
				})
			})
		}
	})
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", func(w http.ResponseWriter, _ *http.Request) {
		self := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
		self.Status.UserInfo.Username = user
		s.answer(w, http.StatusCreated, self)
	})
	mux.HandleFunc("GET /apis/tailgate.dev/v1alpha1/latencyverifications", func(w http.ResponseWriter, r *http.Request) {
		s.listVerifications(w, strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "spec.gateName="))
	})
}

// handleMatrices answers GET, list, apply and create of LatencyMatrices.
func (s *apiServer) handleMatrices(mux *http.ServeMux) {
	const collection = "/apis/tailgate.dev/v1alpha1/namespaces/{namespace}/latencymatrices"
	resource := schema.GroupResource{Group: "tailgate.dev", Resource: "latencymatrices"}
	named := func(r *http.Request) types.NamespacedName {
		return types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	}
	mux.HandleFunc("GET "+collection+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		object, found := s.matrices[named(r)]
		s.object(w, object, found, resource, r.PathValue("name"))
	})
	mux.HandleFunc("GET "+collection, func(w http.ResponseWriter, _ *http.Request) {
		list := v1alpha1.LatencyMatrixList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyMatrixList"}}
		for _, m := range s.matrices {
			list.Items = append(list.Items, *m)
		}
		s.answer(w, http.StatusOK, list)
	})
	mux.HandleFunc("PATCH "+collection+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		u := &unstructured.Unstructured{}
		m := &v1alpha1.LatencyMatrix{}
		err := json.NewDecoder(r.Body).Decode(&u.Object)
		if err == nil {
			err = admit.Object(r.Context(), u)
		}
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, m)
		}
		if err != nil {
			s.refuse(w, apierrors.NewBadRequest(fmt.Sprintf("no apply: %v", err)))
			return
		}
		if there := s.matrices[named(r)]; there != nil {
			m.UID, m.Status = there.UID, there.Status
		}
		s.answer(w, http.StatusOK, m)
	})
	mux.HandleFunc("POST "+collection, func(w http.ResponseWriter, r *http.Request) {
		m := &v1alpha1.LatencyMatrix{}
		if err := json.NewDecoder(r.Body).Decode(m); err != nil {
			s.refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		s.matrices[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = m
		s.answer(w, http.StatusCreated, m)
	})
}

// listVerifications answers with the LatencyVerifications of a gate.
func (s *apiServer) listVerifications(w http.ResponseWriter, gate string) {
	s.Lock()
	defer s.Unlock()
	list := v1alpha1.LatencyVerificationList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyVerificationList"}}
	for _, v := range s.verifications {
		if v.Spec.GateName == gate {
			list.Items = append(list.Items, *v)
		}
	}
	s.answer(w, http.StatusOK, list)
}

// apply creates a benchmark, or changes the spec of the existing one.
func (s *apiServer) apply(w http.ResponseWriter, r *http.Request, name types.NamespacedName) {
	s.Lock()
	defer s.Unlock()
	body, err := io.ReadAll(r.Body)
	var objects []*unstructured.Unstructured
	if err == nil {
		objects, err = parseObjects(body)
	}
	given := &v1alpha1.LatencyBenchmark{}
	if err == nil {
		err = admit.Object(r.Context(), objects[0])
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(objects[0].Object, given)
	}
	if err != nil || r.Header.Get("Content-Type") != "application/apply-patch+yaml" || r.URL.Query().Get("fieldManager") == "" {
		s.refuse(w, apierrors.NewBadRequest(fmt.Sprintf("no apply: %v", err)))
		return
	}
	b, found := s.benchmarks[name]
	if !found {
		b = given
		b.UID, b.Generation = types.UID("new-"+name.Name), 1
	}
	if r.URL.Query().Get("dryRun") != "" {
		b = b.DeepCopy()
	} else {
		s.benchmarks[name] = b
	}
	b.Spec = given.Spec
	s.answer(w, http.StatusOK, b)
}

// create creates a benchmark. It refuses 13 rounds, before it checks whether the name exists already.
func (s *apiServer) create(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	defer s.Unlock()
	b := &v1alpha1.LatencyBenchmark{}
	if err := json.NewDecoder(r.Body).Decode(b); err != nil {
		s.refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	name := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: b.Name}
	switch {
	case b.Spec.Rounds == 13:
		s.refuse(w, apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("LatencyBenchmark").GroupKind(), b.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "rounds"), 13, "no luck"),
		}))
		return
	case s.benchmarks[name] != nil:
		s.refuse(w, apierrors.NewAlreadyExists(benchmarkResource, b.Name))
		return
	}
	b.UID, b.Generation = types.UID("new-"+b.Name), 1
	if r.URL.Query().Get("dryRun") == "" {
		s.benchmarks[name] = b
	}
	s.answer(w, http.StatusCreated, b)
}

// delete removes a benchmark a moment after the request, as if its pods and results were deleted first.
func (s *apiServer) delete(w http.ResponseWriter, r *http.Request, name types.NamespacedName) {
	s.Lock()
	defer s.Unlock()
	var o metav1.DeleteOptions
	b := s.benchmarks[name]
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || b == nil || *o.Preconditions.UID != b.UID || *o.PropagationPolicy != metav1.DeletePropagationForeground {
		s.refuse(w, apierrors.NewConflict(benchmarkResource, name.Name, nil))
		return
	}
	b.DeletionTimestamp = &metav1.Time{}
	time.AfterFunc(10*time.Millisecond, func() { s.change(func() { delete(s.benchmarks, name) }) })
	s.answer(w, http.StatusOK, b)
}

// list answers with the benchmarks of a namespace, all or those with a label, one per page if the request has a limit.
func (s *apiServer) list(w http.ResponseWriter, r *http.Request) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		s.refuse(w, apierrors.NewBadRequest("which benchmarks?"))
		return
	}
	list := v1alpha1.LatencyBenchmarkList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyBenchmarkList"}}
	for name, b := range s.benchmarks {
		if name.Namespace == r.PathValue("namespace") && selector.Matches(labels.Set(b.Labels)) && name.Name > r.URL.Query().Get("continue") {
			list.Items = append(list.Items, *b)
		}
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.LatencyBenchmark) int { return strings.Compare(a.Name, b.Name) })
	if len(list.Items) > 1 && r.URL.Query().Get("limit") != "" {
		list.Items = list.Items[:1]
		list.Continue = list.Items[0].Name
	}
	s.answer(w, http.StatusOK, list)
}

// change changes the objects.
func (s *apiServer) change(to func()) {
	s.Lock()
	defer s.Unlock()
	to()
	for _, b := range s.benchmarks {
		b.ResourceVersion += "+"
	}
	for _, v := range s.verifications {
		v.ResourceVersion += "+"
	}
	s.untold = true
}

// patience is how long to wait for a request that normally comes at once, on a busy machine.
const patience = time.Minute

// await waits until a number of requests has been answered.
func (s *apiServer) await(t *testing.T, requests int) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		s.Lock()
		n := s.answered
		s.Unlock()
		if n >= requests {
			return
		}
	}
	t.Errorf("there were never %d requests with an answer", requests)
}

// awaitTold waits until a client has got a benchmark after the last change.
func (s *apiServer) awaitTold(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		s.Lock()
		untold := s.untold
		s.Unlock()
		if !untold {
			return
		}
	}
	t.Error("no client ever got the change")
}

// withFields returns a benchmark with the fields of another version.
func (s *apiServer) withFields(b *v1alpha1.LatencyBenchmark) any {
	if s.fields == "" {
		return b
	}
	text, err := json.Marshal(b)
	if err == nil {
		text, err = jsonpatch.MergePatch(text, []byte(s.fields))
	}
	if err != nil {
		panic(err)
	}
	return json.RawMessage(text)
}

func (s *apiServer) object(w http.ResponseWriter, object any, found bool, resource schema.GroupResource, name string) {
	if !found {
		s.refuse(w, apierrors.NewNotFound(resource, name))
		return
	}
	s.answer(w, http.StatusOK, object)
}

func (s *apiServer) refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	s.answer(w, int(status.Code), status)
}

func (*apiServer) answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// serve starts the server and writes a kubeconfig for it, whose namespace is perf.
func (s *apiServer) serve(t *testing.T) (kubeconfig string) {
	t.Helper()
	s.token = "of-the-user"
	// Clients send credentials only over TLS.
	s.server = httptest.NewTLSServer(s)
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	kubeconfig = filepath.Join(t.TempDir(), "config")
	content := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: k, user: u, namespace: perf}}],
clusters: [{name: k, cluster: {server: "%s", certificate-authority-data: %s}}],
users: [{name: u, user: {token: %s}}]}`, s.server.URL, base64.StdEncoding.EncodeToString(ca), s.token)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}
