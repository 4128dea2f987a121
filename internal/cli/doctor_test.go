package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/doctor"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/policyfiles"
)

const testVF = "amd.com/sf_vf"

// ward is a cluster whose nodes run inspect pods at once. Its fields may be changed before it serves.
type ward struct {
	nodes    []corev1.Node
	manager  []appsv1.Deployment
	networks []map[string]any
	classes  []resourcev1.DeviceClass
	policies []admissionregistrationv1.ValidatingAdmissionPolicy
	bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	// unbound admission policies have no binding.
	unbound int
	slices  []resourcev1.ResourceSlice
	gates   []v1alpha1.LatencyGate
	modules []map[string]any
	// others are pods that are not inspect pods.
	others []corev1.Pod
	// become changes an inspect pod to its final state; nil: it succeeds.
	become func(*corev1.Pod)
	// inspect changes the inspection of a pod; nil: no change.
	inspect func(*corev1.Pod, *result.Inspection)
	// forbidden are parts of METHOD PATH that are refused.
	forbidden []string

	sync.Mutex
	pods map[string]*corev1.Pod
	// made are all pods that were ever created, deleted the names of the deleted pods, and most is the largest number of pods at
	// the same time.
	made    []corev1.Pod
	deleted []string
	most    int
}

// newWard returns a cluster with two suitable nodes, Tailgate and a network of VFs.
func newWard() *ward {
	w := &ward{pods: map[string]*corev1.Pod{}, manager: []appsv1.Deployment{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tailgate-system", Name: "manager"},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{ServiceAccountName: "manager", Containers: []corev1.Container{
			{Name: "proxy", Image: "proxy:v1"},
			{Name: "manager", Image: "tailgate:v1", Args: []string{"--bench-image=bench:v1", "--bench-image-pull-policy", "Never"}},
		}}}},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 1},
	}}}
	for _, name := range []string{"node-b", "node-a"} {
		amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), testVF: resource.MustParse("4")}
		w.nodes = append(w.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}})
	}
	w.networks = []map[string]any{{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"namespace": "perf", "name": "sf-vf", "annotations": map[string]any{foreign.AnnotationResourceName: testVF}},
		"spec":     map[string]any{"config": `{"cniVersion": "1.0.0", "type": "sriov", "ipam": {"type": "whereabouts"}}`},
	}}
	return w
}

func (w *ward) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.Lock()
	defer w.Unlock()
	answer := func(code int, object any) {
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(code)
		_ = json.NewEncoder(out).Encode(object)
	}
	refuse := func(err *apierrors.StatusError) {
		status := err.Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		answer(int(status.Code), status)
	}
	if slices.ContainsFunc(w.forbidden, func(part string) bool { return strings.Contains(r.Method+" "+r.URL.Path, part) }) {
		refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", nil))
		return
	}
	list := func(apiVersion, kind string, items any) {
		answer(http.StatusOK, map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{}, "items": items})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/nodes", func(http.ResponseWriter, *http.Request) { list("v1", "NodeList", w.nodes) })
	selects := func(field, value string) bool {
		selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
		wanted, given := "", false
		if err == nil {
			wanted, given = selector.RequiresExactMatch(field)
		}
		return !given || wanted == value
	}
	mux.HandleFunc("GET /api/v1/pods", func(http.ResponseWriter, *http.Request) {
		list("v1", "PodList", slices.DeleteFunc(slices.Clone(w.others), func(p corev1.Pod) bool { return !selects("spec.nodeName", p.Spec.NodeName) }))
	})
	mux.HandleFunc("GET /apis/apps/v1/deployments", func(http.ResponseWriter, *http.Request) { list("apps/v1", "DeploymentList", w.manager) })
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(_ http.ResponseWriter, r *http.Request) {
		review := authorizationv1.SubjectAccessReview{}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review)
		}
		if err != nil {
			panic(err)
		}
		review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"}
		review.Status.Allowed = review.Spec.User == "system:serviceaccount:tailgate-system:manager" && *review.Spec.ResourceAttributes ==
			authorizationv1.ResourceAttributes{Group: "tailgate.dev", Resource: "managers", Verb: "act"}
		answer(http.StatusCreated, review)
	})
	mux.HandleFunc("GET /apis/apps/v1/daemonsets", func(http.ResponseWriter, *http.Request) {
		list("apps/v1", "DaemonSetList", []appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-multus-ds"}}})
	})
	mux.HandleFunc("GET /apis/tailgate.dev/v1alpha1/latencygates", func(http.ResponseWriter, *http.Request) {
		list("tailgate.dev/v1alpha1", "LatencyGateList", w.gates)
	})
	mux.HandleFunc("GET /apis/kmm.sigs.x-k8s.io/v1beta1/modules", func(http.ResponseWriter, *http.Request) {
		list("kmm.sigs.x-k8s.io/v1beta1", "ModuleList", w.modules)
	})
	mux.HandleFunc("GET /apis/resource.k8s.io/v1/deviceclasses", func(http.ResponseWriter, *http.Request) {
		list("resource.k8s.io/v1", "DeviceClassList", w.classes)
	})
	mux.HandleFunc("GET /apis/resource.k8s.io/v1/resourceslices", func(http.ResponseWriter, *http.Request) {
		list("resource.k8s.io/v1", "ResourceSliceList", slices.DeleteFunc(slices.Clone(w.slices), func(s resourcev1.ResourceSlice) bool {
			return !selects(resourcev1.ResourceSliceSelectorNodeName, *s.Spec.NodeName)
		}))
	})
	const admission, version = "/apis/admissionregistration.k8s.io/v1/", "admissionregistration.k8s.io/v1"
	mux.HandleFunc("GET "+admission+"validatingadmissionpolicies", func(http.ResponseWriter, *http.Request) {
		list(version, "ValidatingAdmissionPolicyList", w.policies)
	})
	mux.HandleFunc("GET "+admission+"validatingadmissionpolicybindings", func(http.ResponseWriter, *http.Request) {
		list(version, "ValidatingAdmissionPolicyBindingList", w.bindings[:len(w.bindings)-w.unbound])
	})
	mux.HandleFunc("GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", func(http.ResponseWriter, *http.Request) {
		known, _ := ownDefinitions()
		for _, d := range known {
			if d = d.DeepCopy(); strings.HasSuffix(r.URL.Path, "/"+d.Name) {
				d.APIVersion, d.Kind = apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition"
				d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
				answer(http.StatusOK, d)
			}
		}
	})
	const networks = "/apis/k8s.cni.cncf.io/v1/namespaces/perf/network-attachment-definitions"
	if w.networks != nil {
		mux.HandleFunc("GET "+networks, func(http.ResponseWriter, *http.Request) {
			list("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinitionList", w.networks)
		})
		mux.HandleFunc("GET "+networks+"/{name}", func(_ http.ResponseWriter, r *http.Request) {
			for _, n := range w.networks {
				if n["metadata"].(map[string]any)["name"] == r.PathValue("name") {
					answer(http.StatusOK, n)
					return
				}
			}
			refuse(apierrors.NewNotFound(schema.GroupResource{Resource: "network-attachment-definitions"}, r.PathValue("name")))
		})
	}
	const inspectPods = "/api/v1/namespaces/perf/pods"
	mux.HandleFunc("GET "+inspectPods, func(http.ResponseWriter, *http.Request) {
		selector, _ := labels.Parse(r.URL.Query().Get("labelSelector"))
		found := []corev1.Pod{}
		for _, p := range w.pods {
			if selector.Matches(labels.Set(p.Labels)) {
				found = append(found, *p)
			}
		}
		list("v1", "PodList", found)
	})
	mux.HandleFunc("POST "+inspectPods, func(http.ResponseWriter, *http.Request) {
		// Clients write Kubernetes' built-in kinds in protobuf.
		p := &corev1.Pod{}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, p)
		}
		if err != nil {
			refuse(apierrors.NewBadRequest(err.Error()))
			return
		}
		p.Status.Phase = corev1.PodPending
		w.pods[p.Name], w.made = p, append(w.made, *p.DeepCopy())
		w.most = max(w.most, len(w.pods))
		answer(http.StatusCreated, p)
	})
	mux.HandleFunc(inspectPods+"/{name}", func(_ http.ResponseWriter, r *http.Request) {
		p, found := w.pods[r.PathValue("name")]
		switch {
		case !found:
			refuse(apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, r.PathValue("name")))
			return
		case r.Method == http.MethodDelete:
			delete(w.pods, p.Name)
			w.deleted = append(w.deleted, p.Name)
		case w.become != nil:
			w.become(p)
		default:
			succeed(p)
		}
		answer(http.StatusOK, p)
	})
	mux.HandleFunc("GET "+inspectPods+"/{name}/log", func(_ http.ResponseWriter, r *http.Request) {
		p := w.pods[r.PathValue("name")]
		i := result.Inspection{Version: result.InspectionVersion, NUMA: map[string]string{"0": "0-7"}, Evidence: result.Evidence{
			Kernel: "6.1.0", CPUModel: "AMD EPYC 9374F",
			Node: pods.Node(p), BootID: pods.Node(p), CPUsAllowed: "3", OnlineCPUs: "0-7", MeasuringCPU: 3, DeviceNUMANode: -1, Clocksource: "tsc", Interface: "net1", MTU: 1500, Driver: "sfc",
			Facts: map[string]string{"cpu.hypervisor": "no", "numa.nodes": "0"},
		}}
		switch p.Spec.Containers[0].Resources.Requests.Cpu().Value() {
		case 0:
			i.Evidence.CPUsAllowed = "0-2,4-6"
		case 2:
			i.Evidence.CPUsAllowed = "3,7"
		}
		if peerOf(p) != "" {
			i.Reach = &result.Reach{Bytes: 1472}
		}
		if w.inspect != nil {
			w.inspect(p, &i)
		}
		_ = i.Write(out)
	})
	mux.HandleFunc("GET /api/v1/namespaces/perf/events", func(http.ResponseWriter, *http.Request) { list("v1", "EventList", []corev1.Event{}) })
	mux.ServeHTTP(out, r)
}

// succeed gives an inspect pod the state after its success; one that answers goes on running.
func succeed(p *corev1.Pod) {
	p.Status.Phase, p.Status.PodIP = corev1.PodSucceeded, "10.42.0.7"
	if p.Spec.Containers[0].Args[0] == "answer" {
		p.Status.Phase = corev1.PodRunning
	}
	if p.Annotations[foreign.AnnotationNetworks] != "" {
		p.Annotations[foreign.AnnotationNetworkStatus] = `[{"name":"perf/sf-vf","interface":"net1","ips":["192.168.40.7"]}]`
	}
}

// peerOf returns the address that an inspect pod tries to reach; empty if there is none.
func peerOf(p *corev1.Pod) string {
	for _, e := range p.Spec.Containers[0].Env {
		if e.Name == plan.EnvPeer {
			return e.Value
		}
	}
	return ""
}

// serve starts the server, and returns the arguments of a call.
func (w *ward) serve(t *testing.T, args ...string) []string {
	t.Helper()
	w.policies, w.bindings = policyfiles.Read(t, "../../config/policy")
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "config")
	content := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, namespace: perf}}], clusters: [{name: k, cluster: {server: %q}}]}", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{"doctor", "--kubeconfig", kubeconfig, "-o", "json"}, args...)
}

// diagnosed returns the report that was printed.
func diagnosed(t *testing.T, stdout string) doctor.Report {
	t.Helper()
	var r doctor.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v: %q", err, stdout)
	}
	return r
}

// levelOf returns the level of a line; empty if there is no such line.
func levelOf(r doctor.Report, node, check string) doctor.Level {
	for _, l := range r.Lines {
		if l.Node == node && l.Check == check {
			return l.Level
		}
	}
	return ""
}

func TestDoctorLooksAndCleansUp(t *testing.T) {
	// Any editor of a namespace can give a Deployment the manager's labels.
	imposter := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "manager"}}
	imposter.Spec.Template.Spec = corev1.PodSpec{ServiceAccountName: "manager", Containers: []corev1.Container{{Image: "evil:v1", Args: []string{"--bench-image=evil:v1"}}}}
	w := newWard()
	w.manager = append([]appsv1.Deployment{imposter}, w.manager...)
	code, stdout, stderr := run(w.serve(t)...)
	r := diagnosed(t, stdout)
	if code != 0 || stderr != "" || r.Result != doctor.Good {
		t.Errorf("exit code %d, result %s, it said %q: %+v", code, r.Result, stderr, r.Lines)
	}
	for _, check := range []string{"cpu-manager", "attachment"} {
		if levelOf(r, "node-a", check) != doctor.Good || levelOf(r, "node-b", check) != doctor.Good {
			t.Errorf("%s: %+v", check, r.Lines)
		}
	}
	if len(w.pods) != 0 || len(w.made) != 10 || len(w.deleted) != 10 {
		t.Errorf("%d pods are left of %d; %d were deleted", len(w.pods), len(w.made), len(w.deleted))
	}
	for _, p := range w.made {
		if c := p.Spec.Containers[0]; c.Image != "bench:v1" || c.ImagePullPolicy != corev1.PullNever || p.Labels[pods.LabelDoctor] == "" {
			t.Errorf("pod %+v", p)
		}
	}
}

// VFs that a driver of Dynamic Resource Allocation provides as an extended resource are checked like those of a device plugin.
// The doctor names what would not run, or be unloaded, on nodes with the taint of their gate.
func TestDoctorKnowsWhatAGatesTaintStops(t *testing.T) {
	w := newWard()
	for i := range w.nodes {
		w.nodes[i].Labels = map[string]string{"latency": "gated"}
	}
	gate := v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: "fast-nodes"}}
	gate.Spec.NodeSelector.MatchLabels = map[string]string{"latency": "gated"}
	free := *gate.DeepCopy()
	free.Name = "without-taint"
	gate.Spec.Enforcement.Taint = &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}
	w.gates = []v1alpha1.LatencyGate{gate, free}
	module := func(name, selects string) map[string]any {
		return map[string]any{
			"apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "Module", "metadata": map[string]any{"namespace": "onload", "name": name},
			"spec": map[string]any{"selector": map[string]any{"latency": selects}},
		}
	}
	w.modules = []map[string]any{module("onload", "gated"), module("gpu", "other")}
	code, stdout, _ := run(w.serve(t)...)
	var found []string
	for _, l := range diagnosed(t, stdout).Lines {
		if l.Check == "gate-taint" {
			found = append(found, l.Subject+" "+string(l.Level)+" "+l.Found)
		}
	}
	want := []string{"fast-nodes warning these do not tolerate the gate's taint: DaemonSet kube-system/kube-multus-ds, Module onload/onload"}
	if code != 2 || !slices.Equal(found, want) {
		t.Errorf("exit code %d, got %q", code, found)
	}
}

func TestDoctorKnowsDriversOfDevices(t *testing.T) {
	claimed := func(w *ward) {
		for i := range w.nodes {
			w.nodes[i].Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
			w.nodes[i].Status.Allocatable = w.nodes[i].Status.Capacity.DeepCopy()
			w.slices = append(w.slices, resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
				Driver: "sriov.example.com", NodeName: &w.nodes[i].Name, Pool: resourcev1.ResourcePool{Name: w.nodes[i].Name}, Devices: []resourcev1.Device{{Name: "vf-0"}, {Name: "vf-1"}},
			}})
		}
		w.classes = []resourcev1.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "sf-vf"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new(testVF)}}}
	}
	for name, c := range map[string]struct {
		change        func(*ward)
		code          int
		check, found  string
		level         doctor.Level
		attachedPods  int
		nodeOfTheLine string
	}{
		"devices on both nodes": {func(*ward) {}, 0, "devices", "2 of DeviceClass sf-vf, 0 in use", doctor.Good, 4, "node-a"},
		"devices on one node":   {func(w *ward) { w.slices = w.slices[:1] }, 2, "devices", "DeviceClass sf-vf selects no device", doctor.Warning, 1, "node-a"},
		"no device":             {func(w *ward) { w.slices = nil }, 1, "network", "but selects no device", doctor.Error, 0, ""},
		"no class":              {func(w *ward) { w.classes = nil }, 1, "network", "no DeviceClass provides it", doctor.Error, 0, ""},
		"classes out of sight":  {func(w *ward) { w.forbidden = []string{"/deviceclasses"} }, 3, "network", "you may not list deviceclasses", doctor.Unknown, 0, ""},
		"slices out of sight":   {func(w *ward) { w.forbidden = []string{"/resourceslices"} }, 3, "network", "you may not list resourceslices", doctor.Unknown, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard()
			claimed(w)
			c.change(w)
			code, stdout, stderr := run(w.serve(t)...)
			r := diagnosed(t, stdout)
			if code != c.code || stderr != "" {
				t.Errorf("exit code %d, it said %q: %+v", code, stderr, r.Lines)
			}
			if !slices.ContainsFunc(r.Lines, func(l doctor.Line) bool {
				return l.Node == c.nodeOfTheLine && l.Check == c.check && l.Level == c.level && strings.Contains(l.Found, c.found)
			}) {
				t.Errorf("no line %s of %q is %s with %q: %+v", c.check, c.nodeOfTheLine, c.level, c.found, r.Lines)
			}
			attached := 0
			for _, p := range w.made {
				if q := p.Spec.Containers[0].Resources.Requests[testVF]; q.Sign() > 0 {
					attached++
				}
			}
			if attached != c.attachedPods {
				t.Errorf("%d pods requested a VF, want %d", attached, c.attachedPods)
			}
		})
	}
}

// The devices of all containers of a pod are in use, also of a sidecar, which is an init container.
func TestDoctorSparesTheLastDevices(t *testing.T) {
	w := newWard()
	always := corev1.ContainerRestartPolicyAlways
	w.others = []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "x"},
		Spec: corev1.PodSpec{NodeName: "node-a", InitContainers: []corev1.Container{{
			RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{testVF: resource.MustParse("4")}},
		}}},
	}}
	_, stdout, stderr := run(w.serve(t)...)
	if r := diagnosed(t, stdout); levelOf(r, "node-a", "devices") == doctor.Good || levelOf(r, "node-b", "devices") != doctor.Good || stderr != "" {
		t.Errorf("it said %q: %+v", stderr, r.Lines)
	}
	for _, p := range w.made {
		if q := p.Spec.Containers[0].Resources.Requests[testVF]; q.Sign() > 0 && pods.Node(&p) == "node-a" {
			t.Errorf("pod %s requests a VF of node-a", p.Name)
		}
	}
}

func TestDoctorExitCodes(t *testing.T) {
	cases := map[string]struct {
		change func(*ward)
		args   []string
		want   int
		// node, check and level describe a line that must exist; an empty check: nothing is printed.
		node, check string
		level       doctor.Level
		// stderr is part of the only line on standard error; empty: nothing is printed there.
		stderr string
	}{
		"an error": {
			change: func(w *ward) {
				w.inspect = func(_ *corev1.Pod, i *result.Inspection) { i.Evidence.CPUsAllowed = "0-7" }
			},
			want: 1, node: "node-a", check: "cpu-manager", level: doctor.Error,
		},
		"a warning": {
			change: func(w *ward) {
				w.inspect = func(_ *corev1.Pod, i *result.Inspection) { i.Evidence.Facts["cpu.hypervisor"] = "yes" }
			},
			want: 2, node: "node-a", check: "hypervisor", level: doctor.Warning,
		},
		"something cannot be seen": {change: func(w *ward) { w.forbidden = []string{"/deployments"} }, args: []string{"--image", "bench:v1"}, want: 3, check: "manager", level: doctor.Unknown},
		"the image cannot be pulled": {
			change: func(w *ward) {
				w.become = func(p *corev1.Pod) {
					p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull"}}}}
				}
			},
			want: 1, node: "node-b", check: "inspect", level: doctor.Error,
		},
		"pods may not be made":            {change: func(w *ward) { w.forbidden = []string{"POST"} }, want: 3, node: "node-a", check: "inspect", level: doctor.Unknown},
		"no Tailgate":                     {change: func(w *ward) { w.manager = nil }, want: 1, node: "node-a", check: "inspect", level: doctor.Unknown},
		"no Multus":                       {change: func(w *ward) { w.networks = nil }, want: 2, check: "multus", level: doctor.Warning},
		"no Multus, though asked for":     {change: func(w *ward) { w.networks = nil }, args: []string{"--network", "sf-vf"}, want: 1, check: "multus", level: doctor.Error},
		"a policy without a binding":      {change: func(w *ward) { w.unbound = 1 }, want: 1, check: "policies", level: doctor.Error},
		"a network that there is not":     {args: []string{"--network", "other"}, want: 1, check: "network", level: doctor.Error},
		"a cordoned node":                 {change: func(w *ward) { w.nodes[0].Spec.Unschedulable = true }, want: 1, node: "node-b", check: "node", level: doctor.Error},
		"a cordoned node that is named":   {change: func(w *ward) { w.nodes[0].Spec.Unschedulable = true }, args: []string{"node-b"}, want: 2, node: "node-b", check: "cpu-manager", level: doctor.Good},
		"a node that others run on alone": {change: tainted(0), want: 0, check: "left-out", level: doctor.Good},
		"a node where a benchmark measures": {
			change: func(w *ward) {
				w.others = []corev1.Pod{{
					ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "x", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate, v1alpha1.LabelRole: v1alpha1.RoleClient}},
					Spec:       corev1.PodSpec{NodeName: "node-a"},
				}}
			},
			want: 3, node: "node-a", check: "inspect", level: doctor.Unknown,
		},
		"all nodes are others'": {change: func(w *ward) { tainted(0)(w); tainted(1)(w) }, want: 3, stderr: "name those to check"},
		"a node that is not":    {args: []string{"node-a", "node-z"}, want: 3, stderr: "no node node-z"},
		"no rights at all":      {change: func(w *ward) { w.forbidden = []string{""} }, want: 3, stderr: "listing the nodes"},
		"an unknown format":     {args: []string{"-o", "xml"}, want: 3, stderr: "table, wide, json"},
		"nothing at a time":     {args: []string{"--parallel", "0"}, want: 3, stderr: "--parallel"},
		"no time":               {args: []string{"--timeout", "1s"}, want: 3, stderr: "--timeout"},
		"Onload of no resource": {args: []string{"--onload", "onload"}, want: 3, stderr: "--onload"},
		"an invalid network":    {args: []string{"--network", "a/b/c"}, want: 3, stderr: "--network"},
		"an unknown flag":       {args: []string{"--fast"}, want: 3, stderr: "--fast"},
		"a strange pull policy": {
			change: func(w *ward) { w.manager[0].Spec.Template.Spec.Containers[1].Args[2] = "Sometimes" }, want: 3, stderr: "Sometimes",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWard()
			if c.change != nil {
				c.change(w)
			}
			code, stdout, stderr := run(w.serve(t, c.args...)...)
			if code != c.want {
				t.Errorf("exit code %d, want %d: %s%s", code, c.want, stdout, stderr)
			}
			if c.check == "" {
				if stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.stderr) || len(w.made) != 0 {
					t.Errorf("it printed %q and said %q, and made %d pods", stdout, stderr, len(w.made))
				}
				return
			}
			if r := diagnosed(t, stdout); levelOf(r, c.node, c.check) != c.level || stderr != "" {
				t.Errorf("it said %q: %+v", stderr, r.Lines)
			}
			if len(w.pods) != 0 {
				t.Errorf("%d pods are left", len(w.pods))
			}
		})
	}
}

// tainted gives a node a taint that keeps pods away.
func tainted(i int) func(*ward) {
	return func(w *ward) {
		w.nodes[i].Spec.Taints = []corev1.Taint{{Key: "latency", Value: "only", Effect: corev1.TaintEffectNoSchedule}}
	}
}

func TestDoctorBoundsNodes(t *testing.T) {
	w := newWard()
	w.networks = nil
	for i := range 6 {
		n := w.nodes[0].DeepCopy()
		n.Name = fmt.Sprintf("more-%d", i)
		w.nodes = append(w.nodes, *n)
	}
	if code, _, stderr := run(w.serve(t, "--parallel", "2")...); code != 2 || stderr != "" {
		t.Errorf("exit code %d, it said %q", code, stderr)
	}
	// There are two pods on each node, on two nodes at a time, and then two for each pair of nodes, of two pairs at a time.
	if len(w.made) != 24 || w.most > 4 {
		t.Errorf("%d pods, %d at the same time", len(w.made), w.most)
	}
}

// An interrupted call removes a pod that never starts, and a pod of an earlier call that was killed.
func TestDoctorInterrupted(t *testing.T) {
	w := newWard()
	ctx, cancel := context.WithCancel(t.Context())
	w.become = func(*corev1.Pod) {
		if len(w.made) == 4 {
			cancel()
		}
	}
	for name, age := range map[string]time.Duration{"lost": time.Hour, "of-another-call": time.Second} {
		w.pods[name] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: name, Labels: map[string]string{pods.LabelDoctor: name}, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))},
			Spec:       corev1.PodSpec{ActiveDeadlineSeconds: new(int64(180))},
		}
	}
	var stdout, stderr bytes.Buffer
	code := Run(ctx, w.serve(t), &stdout, &stderr)
	if code != 3 || stdout.Len() > 0 || stderr.String() != "kubectl tailgate: "+errInterrupted.Error()+"\n" {
		t.Errorf("exit code %d, it printed %q and said %q", code, &stdout, &stderr)
	}
	if len(w.made) != 4 || len(w.pods) != 1 || w.pods["of-another-call"] == nil {
		t.Errorf("of %d pods and two of before, %d are left", len(w.made), len(w.pods))
	}
}

// A kubelet that gives only whole cores rejects a pod with other CPUs, and says how many CPUs a core has.
func TestDoctorAsksForAWholeCore(t *testing.T) {
	w := newWard()
	cpus := func(p *corev1.Pod) int64 { return p.Spec.Containers[0].Resources.Requests.Cpu().Value() }
	w.become = func(p *corev1.Pod) {
		succeed(p)
		if cpus(p) == 2 {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "SMTAlignmentError"
			p.Status.Message = "Pod was rejected: SMT Alignment Error: requested 2 cpus not multiple cpus per core = 4"
		}
	}
	w.inspect = func(p *corev1.Pod, i *result.Inspection) {
		if i.Evidence.CPUsAllowed = "0-1,4-5"; cpus(p) == 4 {
			i.Evidence.CPUsAllowed = "2-3,6-7"
		}
	}
	code, stdout, stderr := run(w.serve(t)...)
	r := diagnosed(t, stdout)
	if code != 0 || stderr != "" || levelOf(r, "node-a", "cpu-manager") != doctor.Good || levelOf(r, "node-a", "attachment") != doctor.Good || len(w.made) != 12 {
		t.Errorf("exit code %d, it said %q, %d pods: %+v", code, stderr, len(w.made), r.Lines)
	}
}

// With a benchmark, the pods have what its pods would have, on the nodes that it selects, over its networks.
func TestDoctorResemblesABenchmark(t *testing.T) {
	const manifest = `apiVersion: tailgate.dev/v1alpha1
kind: LatencyBenchmark
metadata: {name: x, namespace: perf}
spec: {tool: pinger,
  placement: {cpus: 4, memory: 128Mi, client: {nodeSelector: {matchLabels: {latency: "yes"}}, tolerations: [{key: latency, operator: Exists}]}, server: {nodeName: node-b}},
  pods: {runtimeClassName: performance, annotations: {cpu-quota.crio.io: disable}},
  variants: [{name: pod}, {name: vf, network: {type: VF, vf: {resourceName: amd.com/sf_vf, networkRef: {name: sf-vf}}}},
    {name: own, network: {type: VF, vf: {resourceName: amd.com/sf_vf, ipam: {type: Static, range: 192.168.41.0/24}}}}]}`
	w := newWard()
	w.nodes[1].Labels = map[string]string{"latency": "yes"}
	w.nodes[1].Spec.Taints = []corev1.Taint{{Key: "latency", Effect: corev1.TaintEffectNoSchedule}}
	other := *w.nodes[0].DeepCopy()
	other.Name = "node-c"
	w.nodes = append(w.nodes, other)
	w.inspect = func(p *corev1.Pod, i *result.Inspection) {
		if i.Evidence.CPUsAllowed = "0-3"; !p.Spec.Containers[0].Resources.Requests.Cpu().IsZero() {
			i.Evidence.CPUsAllowed = "4-7"
		}
	}
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(w.serve(t, "-f", file)...)
	if stdout == "" {
		t.Fatalf("exit code %d, it said %q", code, stderr)
	}
	r := diagnosed(t, stdout)
	if code != 2 || stderr != "" || !slices.Equal(r.Nodes, []string{"node-a", "node-b"}) || levelOf(r, "node-a", "cpu-manager") != doctor.Good {
		t.Errorf("exit code %d, it said %q: %+v", code, stderr, r)
	}
	attached := 0
	for _, p := range w.made {
		c := p.Spec.Containers[0].Resources.Requests
		if p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName != "performance" || p.Annotations["cpu-quota.crio.io"] != "disable" ||
			!slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == "latency" }) ||
			!c.Cpu().IsZero() && (c.Cpu().Value() != 4 || c.Memory().String() != "128Mi") {
			t.Errorf("pod %+v", p)
		}
		if q := c[testVF]; q.Value() == 1 {
			attached++
		}
	}
	if attached != 4 || !slices.ContainsFunc(r.Lines, func(l doctor.Line) bool {
		return l.Subject == "perf/x-own" && strings.Contains(l.Found, "the operator creates it")
	}) {
		t.Errorf("%d pods with a VF: %+v", attached, r.Lines)
	}
}

// Pairs of nodes try the way to each other on each network; with three nodes, one of them twice.
func TestDoctorConnectsNodes(t *testing.T) {
	w := newWard()
	third := *w.nodes[0].DeepCopy()
	third.Name = "node-c"
	w.nodes = append(w.nodes, third)
	w.inspect = func(p *corev1.Pod, i *result.Inspection) {
		if peerOf(p) == "192.168.40.7" && pods.Node(p) == "node-a" {
			i.Reach = &result.Reach{Bytes: 1472, Control: "no route to host", Datagram: "a datagram of 1472 bytes does not return"}
		}
	}
	code, stdout, _ := run(w.serve(t)...)
	var lines []string
	for _, l := range diagnosed(t, stdout).Lines {
		if l.Check == "connection" {
			lines = append(lines, string(l.Level)+" "+l.Subject+": "+l.Found)
		}
	}
	want := []string{
		"good pod network: 2 pairs of nodes reach each other: both ports, and a datagram of the MTU's size",
		"error perf/sf-vf: control port: node-a to node-c: no route to host",
		"error perf/sf-vf: datagram: node-a to node-c: a datagram of 1472 bytes does not return",
	}
	if code != 1 || !slices.Equal(lines, want) {
		t.Errorf("exit code %d, lines %q", code, lines)
	}
	w = newWard()
	w.become = func(p *corev1.Pod) {
		if succeed(p); p.Spec.Containers[0].Args[0] == "answer" {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
		}
	}
	code, stdout, _ = run(w.serve(t)...)
	if r := diagnosed(t, stdout); code != 3 || levelOf(r, "", "connection") != doctor.Unknown {
		t.Errorf("a server that fails: exit code %d: %+v", code, r.Lines)
	}
}

func TestDoctorForms(t *testing.T) {
	for form, want := range map[string]string{"table": "good     cluster  11 good\ngood     node-a   17 good\n", "wide": "\ngood     node-a   cpu-manager ", "json": `"result": "good"`} {
		code, stdout, stderr := run(newWard().serve(t, "-o", form)...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, want) || !strings.HasSuffix(stdout, "\n") || strings.Contains(stdout, "\x1b") {
			t.Errorf("%s: exit code %d, it said %q and printed:\n%s", form, code, stderr, stdout)
		}
	}
}

func TestFlagValue(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--image=a"}, "a"}, {[]string{"-image", "a"}, "a"}, {[]string{"--other", "image", "--image", "b"}, "b"}, {[]string{"--image"}, ""},
		{[]string{"image=a"}, ""}, {[]string{"--images=a"}, ""}, {nil, ""},
	} {
		if got := flagValue(c.args, "image"); got != c.want {
			t.Errorf("%v: got %q, want %q", c.args, got, c.want)
		}
	}
}
