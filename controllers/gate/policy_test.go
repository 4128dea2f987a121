package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clientrecord "k8s.io/client-go/tools/record"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/turns"
	"github.com/tailgate-dev/tailgate/test/policy"
)

var (
	managerPolicies = filepath.Join("..", "..", "config", "policy", "manager.yaml")
	podResource     = corev1.SchemeGroupVersion.WithResource("pods")
)

// uid is the UID of the owner of the pods in golden files of internal/pods, as the API server makes it.
const uid = "8d3f6a2e-0c1b-4c55-9f0e-0123456789ab"

// managerPods returns each pod that the manager builds, by name: those of internal/pods as its golden files have them, and hold pods.
func managerPods(t *testing.T) map[string]*corev1.Pod {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "internal", "pods", "testdata", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*corev1.Pod{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, document := range bytes.Split(content, []byte("---\n")) {
			pod := &corev1.Pod{}
			if err := yaml.Unmarshal(bytes.ReplaceAll(document, []byte("c0ffee"), []byte(uid)), pod); err != nil {
				t.Fatal(err)
			}
			if len(pod.OwnerReferences) == 1 && len(pod.Spec.Containers) == 1 && pod.UID == "" { // neither a network, nor the doctor's, nor returned.yaml
				all[fmt.Sprint(filepath.Base(file), i)] = pod
			}
		}
	}
	b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "x", UID: uid}}
	b.Spec.Network.Type = v1alpha1.NetworkPod
	variant := plan.Variants(b.Spec)[0]
	variant.Capture = v1alpha1.CaptureServer
	if all["capture"], err = pods.Build(pods.Endpoint{Benchmark: b, Image: "bench", Node: "a", Variant: variant, Task: plan.Task{Run: "x-r1", Role: v1alpha1.RoleServer}}); err != nil {
		t.Fatal(err)
	}
	gate := makeGate()
	for _, state := range []v1alpha1.VerificationState{v1alpha1.VerificationVerified, v1alpha1.VerificationFailed} {
		v := makeVerification("a", func(v *v1alpha1.LatencyVerification) { v.UID, v.Status.State = uid, state })
		all["hold "+string(state)] = holdPodOf(gate, v, "bench", corev1.PullAlways, "default")
	}
	return all
}

func fields(t *testing.T, o any) map[string]any {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func created(o map[string]any) policy.Request {
	return policy.Request{User: policy.Manager, Resource: podResource, Object: &unstructured.Unstructured{Object: o}}
}

// places are the parts of a pod of which the policy lists the fields: the lists, and how a part is found.
var places = []struct {
	path     []any
	typ      reflect.Type
	variable string
}{
	{[]any{"spec"}, reflect.TypeFor[corev1.PodSpec](), "specFields"},
	{[]any{"spec", "containers", 0}, reflect.TypeFor[corev1.Container](), "containerFields"},
	{[]any{"spec", "securityContext"}, reflect.TypeFor[corev1.PodSecurityContext](), "podSecurityFields"},
	{[]any{"spec", "containers", 0, "securityContext"}, reflect.TypeFor[corev1.SecurityContext](), "securityFields"},
	{[]any{"spec", "volumes", 0}, reflect.TypeFor[corev1.VolumeSource](), "volumeKinds"},
	{[]any{"spec", "containers", 0, "volumeMounts", 0}, reflect.TypeFor[corev1.VolumeMount](), "mountFields"},
	{[]any{"spec", "containers", 0, "readinessProbe"}, reflect.TypeFor[corev1.Probe](), "probeFields"},
}

func part(o any, path []any) map[string]any {
	for _, key := range path {
		switch k := key.(type) {
		case string:
			of, _ := o.(map[string]any)
			o = of[k]
		case int:
			of, _ := o.([]any)
			if len(of) <= k {
				return nil
			}
			o = of[k]
		}
	}
	of, _ := o.(map[string]any)
	return of
}

// TestManagerPods: the policy lists the fields that the manager writes, and no others; what it lists besides is what the API server and
// webhooks add.
func TestManagerPods(t *testing.T) {
	set, built := policy.Load(t, managerPolicies), managerPods(t)
	if len(built) < 20 {
		t.Fatalf("%d pods", len(built))
	}
	for name, pod := range built {
		if got := set.Refusals(t, created(fields(t, pod))); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	crd, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "tailgate.dev_latencybenchmarks.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	annotations := sets.New(regexp.MustCompile(`[a-z-]+[.]crio[.]io`).FindAllString(string(crd), -1)...) // those of spec.pods
	for _, pod := range built {
		annotations = annotations.Union(sets.KeySet(pod.Annotations))
	}
	if diff := cmp.Diff(sets.List(annotations), set.List(t, "tailgate-manager-pods", "annotations")); diff != "" {
		t.Errorf("annotations (-code +policy):\n%s", diff)
	}
	paths := sets.New[string]()
	for _, pod := range built {
		for _, m := range pod.Spec.Containers[0].VolumeMounts {
			paths.Insert(m.MountPath)
		}
	}
	if diff := cmp.Diff(sets.List(paths), set.List(t, "tailgate-manager-pods", "mountPaths")); diff != "" {
		t.Errorf("mountPaths (-code +policy):\n%s", diff)
	}
	if diff := cmp.Diff(set.List(t, "tailgate-manager-pods", "annotationsOfOthers"), set.List(t, "tailgate-manager-objects", "annotationsOfOthers")); diff != "" {
		t.Errorf("annotations of webhooks (-pods +objects):\n%s", diff)
	}
	for _, place := range places {
		written, sample := sets.New[string](), map[string]any(nil)
		for _, pod := range built {
			o := fields(t, pod)
			for key := range part(o, place.path) {
				written.Insert(key)
				sample = o
			}
		}
		if place.variable == "volumeKinds" {
			written.Delete("name")
		}
		listed := set.List(t, "tailgate-manager-pods", place.variable)
		if diff := cmp.Diff(sets.List(written), listed); diff != "" {
			t.Errorf("%s (-code +policy):\n%s", place.variable, diff)
		}
		listed = append(listed, "name")
		for _, other := range []string{"specFields", "containerFields", "podSecurityFields", "securityFields", "volumeKinds", "probeFields"} {
			if other == place.variable {
				listed = append(listed, set.List(t, "tailgate-manager-pods", other+"OfOthers")...)
			}
		}
		for i := range place.typ.NumField() {
			name, _, _ := strings.Cut(place.typ.Field(i).Tag.Get("json"), ",")
			if name == "" || slices.Contains(listed, name) {
				continue
			}
			changed := (&unstructured.Unstructured{Object: sample}).DeepCopy().Object
			of := part(changed, place.path)
			if place.variable == "volumeKinds" {
				for kind := range of {
					if kind != "name" {
						delete(of, kind)
					}
				}
			}
			of[name] = map[string]any{"a": "b"}
			if set.Refusals(t, created(changed)) == nil {
				t.Errorf("field %s of %v is allowed", name, place.path)
			}
		}
	}
}

// TestManagerWrites tries, as the manager, writes that its job does not need, and its own.
func TestManagerWrites(t *testing.T) {
	set, built := policy.Load(t, managerPolicies), managerPods(t)
	pod := built["vf-static.yaml2"]
	if pod == nil {
		t.Fatal("no pod vf-static.yaml2")
	}
	change := func(o map[string]any, value any, path ...any) {
		of := part(o, path[:len(path)-1])
		if of == nil {
			t.Fatalf("no %v", path)
		}
		of[path[len(path)-1].(string)] = value
	}
	type m = map[string]any
	list := func(all ...any) []any { return all }
	for name, with := range map[string]func(o m){
		"no label":                 func(o m) { change(o, m{}, "metadata", "labels") },
		"no owner":                 func(o m) { change(o, nil, "metadata", "ownerReferences") },
		"a ConfigMap as the owner": func(o m) { change(o, "ConfigMap", "metadata", "ownerReferences", 0, "kind") },
		"another owner":            func(o m) { change(o, "v1", "metadata", "ownerReferences", 0, "apiVersion") },
		"a finalizer":              func(o m) { change(o, list("a/b"), "metadata", "finalizers") },
		"a generated name":         func(o m) { change(o, "t-", "metadata", "generateName") },
		"AppArmor by annotation": func(o m) {
			change(o, "unconfined", "metadata", "annotations", "container.apparmor.security.beta.kubernetes.io/agent")
		},
		"a device by annotation":     func(o m) { change(o, "a.b/c=d", "metadata", "annotations", "cdi.k8s.io/x") },
		"a plugin's annotation":      func(o m) { change(o, "x", "metadata", "annotations", "devices.nri.io/pod") },
		"an annotation of kata":      func(o m) { change(o, "x", "metadata", "annotations", "io.katacontainers.config.runtime.x") },
		"an annotation of a seccomp": func(o m) { change(o, "x", "metadata", "annotations", "seccomp-profile.kubernetes.cri-o.io") },
		"an unknown annotation":      func(o m) { change(o, "x", "metadata", "annotations", "runtime.example.com/device") },
		"CPUs of the management":     func(o m) { change(o, "x", "metadata", "annotations", "target.workload.openshift.io/management") },
		"another default network":    func(o m) { change(o, "x", "metadata", "annotations", "v1.multus-cni.io/default-network") },
		"a label of an agent":        func(o m) { change(o, "LSE", "metadata", "labels", "koordinator.sh/qosClass") },
		"another name":               func(o m) { change(o, "db-0", "metadata", "name") },
		"the name of another's pod":  func(o m) { change(o, "y-r1-a1-client", "metadata", "name") },
		"two containers": func(o m) {
			change(o, append(o["spec"].(m)["containers"].([]any), m{"name": "b", "image": "i"}), "spec", "containers")
		},
		"an init container":    func(o m) { change(o, list(m{"name": "b", "image": "i"}), "spec", "initContainers") },
		"another program":      func(o m) { change(o, list("sh", "-c", "true"), "spec", "containers", 0, "command") },
		"other arguments":      func(o m) { change(o, list("client", "x"), "spec", "containers", 0, "args") },
		"a token":              func(o m) { change(o, true, "spec", "automountServiceAccountToken") },
		"a token by default":   func(o m) { delete(o["spec"].(m), "automountServiceAccountToken") },
		"a node by name":       func(o m) { change(o, "node-a", "spec", "nodeName") },
		"a priority of system": func(o m) { change(o, "system-node-critical", "spec", "priorityClassName") },
		"memory as a directory": func(o m) {
			change(o, list(m{"name": "v", "emptyDir": m{"medium": "Memory"}}), "spec", "volumes")
		},
		"two kinds in a volume": func(o m) {
			change(o, list(m{"name": "v", "emptyDir": m{}, "hostPath": m{"path": "/"}}), "spec", "volumes")
		},
		"the key of another benchmark": func(o m) {
			change(o, list(m{"name": "K", "valueFrom": m{"secretKeyRef": m{"name": "tailgate-abc", "key": "key"}}}), "spec", "containers", 0, "env")
		},
		"another key of the Secret": func(o m) {
			change(o, list(m{"name": "K", "valueFrom": m{"secretKeyRef": m{"name": "tailgate-" + uid, "key": "other"}}}), "spec", "containers", 0, "env")
		},
		"an owner whose UID names a Secret": func(o m) {
			change(o, "serving-cert", "metadata", "ownerReferences", 0, "uid")
			change(o, list(m{"name": "K", "valueFrom": m{"secretKeyRef": m{"name": "tailgate-serving-cert", "key": "key"}}}), "spec", "containers", 0, "env")
		},
		"a ConfigMap in a variable": func(o m) {
			change(o, list(m{"name": "K", "valueFrom": m{"configMapKeyRef": m{"name": "a", "key": "b"}}}), "spec", "containers", 0, "env")
		},
		"a subpath": func(o m) {
			change(o, list(m{"name": "v", "mountPath": "/v", "subPath": "a"}), "spec", "containers", 0, "volumeMounts")
		},
		"a claim":          func(o m) { change(o, list(m{"name": "c"}), "spec", "containers", 0, "resources", "claims") },
		"affinity to pods": func(o m) { change(o, m{}, "spec", "affinity", "podAffinity") },
		"privileged":       func(o m) { change(o, true, "spec", "containers", 0, "securityContext", "privileged") },
		"escalation":       func(o m) { change(o, true, "spec", "containers", 0, "securityContext", "allowPrivilegeEscalation") },
		"no word of escalation": func(o m) {
			delete(part(o, list("spec", "containers", 0, "securityContext")), "allowPrivilegeEscalation")
		},
		"SYS_ADMIN": func(o m) {
			change(o, list("SYS_ADMIN"), "spec", "containers", 0, "securityContext", "capabilities", "add")
		},
		"NET_RAW of a client": func(o m) {
			change(o, list("NET_RAW"), "spec", "containers", 0, "securityContext", "capabilities", "add")
		},
		"kept capabilities":        func(o m) { change(o, list("KILL"), "spec", "containers", 0, "securityContext", "capabilities", "drop") },
		"root":                     func(o m) { change(o, 0, "spec", "containers", 0, "securityContext", "runAsUser") },
		"root of the pod":          func(o m) { change(o, false, "spec", "securityContext", "runAsNonRoot") },
		"SELinux":                  func(o m) { change(o, m{"type": "spc_t"}, "spec", "securityContext", "seLinuxOptions") },
		"SELinux of the container": func(o m) { change(o, m{"type": "spc_t"}, "spec", "containers", 0, "securityContext", "seLinuxOptions") },
		"seccomp":                  func(o m) { change(o, m{"type": "Unconfined"}, "spec", "securityContext", "seccompProfile") },
		"seccomp of the container": func(o m) {
			change(o, m{"type": "Unconfined"}, "spec", "containers", 0, "securityContext", "seccompProfile")
		},
		"AppArmor": func(o m) {
			change(o, m{"type": "Unconfined"}, "spec", "containers", 0, "securityContext", "appArmorProfile")
		},
		"procMount": func(o m) { change(o, "Unmasked", "spec", "containers", 0, "securityContext", "procMount") },
		"Windows":   func(o m) { change(o, m{"hostProcess": true}, "spec", "securityContext", "windowsOptions") },
		"a probe of another host": func(o m) {
			change(o, m{"httpGet": m{"host": "192.0.2.1", "port": 80}}, "spec", "containers", 0, "readinessProbe")
		},
		"a port of the node":          func(o m) { change(o, list(m{"containerPort": 80, "hostPort": 80}), "spec", "containers", 0, "ports") },
		"a readiness gate of another": func(o m) { change(o, list(m{"conditionType": "a/b"}), "spec", "readinessGates") },
		"a hold pod of a benchmark":   func(o m) { change(o, "LatencyVerification", "metadata", "ownerReferences", 0, "kind") },
		"the label of a hold pod":     func(o m) { change(o, "true", "metadata", "labels", v1alpha1.LabelHold) },
		"a MAC address": func(o m) {
			change(o, `[{"name":"x2522","namespace":"perf","interface":"net1","mac":"02:00:00:00:00:01"}]`, "metadata", "annotations", foreign.AnnotationNetworks)
		},
		"a default route": func(o m) {
			change(o, `[{"name":"x2522","namespace":"perf","interface":"net1","default-route":["192.0.2.1"]}]`, "metadata", "annotations", foreign.AnnotationNetworks)
		},
		"arguments of a plugin": func(o m) {
			change(o, `[{"name":"x2522","namespace":"perf","interface":"net1","cni-args":{"a":"b"}}]`, "metadata", "annotations", foreign.AnnotationNetworks)
		},
		"two networks": func(o m) {
			s := foreign.Selection{Name: "x2522", Namespace: "perf", Interface: pods.Interface}
			change(o, foreign.Annotation(s, s), "metadata", "annotations", foreign.AnnotationNetworks)
		},
		"another interface": func(o m) {
			change(o, foreign.Annotation(foreign.Selection{Name: "x2522", Namespace: "perf", Interface: "eth0"}), "metadata", "annotations", foreign.AnnotationNetworks)
		},
		"two addresses": func(o m) {
			s := foreign.Selection{Name: "x2522", Namespace: "perf", Interface: pods.Interface, IPs: []string{"192.0.2.1/24", "192.0.2.2/24"}}
			change(o, foreign.Annotation(s), "metadata", "annotations", foreign.AnnotationNetworks)
		},
		"networks in a line":   func(o m) { change(o, "perf/x2522@net1", "metadata", "annotations", foreign.AnnotationNetworks) },
		"a mesh's redirection": func(o m) { change(o, "enabled", "metadata", "annotations", "ambient.istio.io/redirection") },
		"no deadline":          func(o m) { delete(o["spec"].(m), "activeDeadlineSeconds") },
		"a year of grace":      func(o m) { change(o, 365*24*3600, "spec", "terminationGracePeriodSeconds") },
		"eleven minutes":       func(o m) { change(o, 660, "spec", "terminationGracePeriodSeconds") },
		"restarts":             func(o m) { change(o, "Always", "spec", "restartPolicy") },
		"restarts on failure":  func(o m) { change(o, "OnFailure", "spec", "restartPolicy") },
		"restarts by default":  func(o m) { delete(o["spec"].(m), "restartPolicy") },
		"service links":        func(o m) { change(o, true, "spec", "enableServiceLinks") },
		"links by default":     func(o m) { delete(o["spec"].(m), "enableServiceLinks") },
		"a readiness gate": func(o m) {
			change(o, list(m{"conditionType": "tailgate.dev/LatencyVerified"}), "spec", "readinessGates")
		},
		"the group of root": func(o m) { change(o, 0, "spec", "securityContext", "fsGroup") },
		"a group of root":   func(o m) { change(o, list(0), "spec", "securityContext", "supplementalGroups") },
		"a mount over the image": func(o m) {
			change(o, list(m{"name": "v", "mountPath": "/usr/local/bin"}), "spec", "containers", 0, "volumeMounts")
		},
	} {
		o := fields(t, pod)
		with(o)
		if set.Refusals(t, created(o)) == nil {
			t.Errorf("%s: allowed", name)
		}
	}
	probe := list("spec", "containers", 0, "readinessProbe", "exec")
	for name, with := range map[string]func(o m){
		"no readiness gate": func(o m) { delete(o["spec"].(m), "readinessGates") },
		"two readiness gates": func(o m) {
			change(o, list(m{"conditionType": "tailgate.dev/LatencyVerified"}, m{"conditionType": "a/b"}), "spec", "readinessGates")
		},
		"no restarts":         func(o m) { change(o, "Never", "spec", "restartPolicy") },
		"another probe":       func(o m) { part(o, probe)["command"] = list(pods.Agent, "client") },
		"a probe's arguments": func(o m) { part(o, probe)["command"] = list(pods.Agent, "verified", "BootID=a", "--x") },
		"many arguments": func(o m) {
			part(o, probe)["command"] = list(pods.Agent, "verified", "BootID=a", "Kernel=b", "Kernel=c")
		},
		"unverified, with more": func(o m) { part(o, probe)["command"] = list(pods.Agent, "unverified", "BootID=a") },
		"the agent alone":       func(o m) { part(o, probe)["command"] = list(pods.Agent) },
		"a probe of a program":  func(o m) { part(o, probe)["command"] = list("sh", "-c", "true") },
		"the label of another":  func(o m) { delete(part(o, list("metadata", "labels")), v1alpha1.LabelHold) },
	} {
		o := fields(t, built["hold "+string(v1alpha1.VerificationVerified)])
		with(o)
		if set.Refusals(t, created(o)) == nil {
			t.Errorf("hold pod, %s: allowed", name)
		}
	}
	for name, with := range map[string]func(o m){
		"an IPv6 address": func(o m) {
			s := foreign.Selection{Name: "a.b-c", Namespace: "n-1", Interface: pods.Interface, IPs: []string{"fd00:40::ffff/64"}}
			change(o, foreign.Annotation(s), "metadata", "annotations", foreign.AnnotationNetworks)
		},
		"a longer grace period": func(o m) { change(o, 30, "spec", "terminationGracePeriodSeconds") },
		"OpenShift's groups": func(o m) {
			change(o, 1000680000, "spec", "securityContext", "fsGroup")
			change(o, list(1000680000), "spec", "securityContext", "supplementalGroups")
		},
	} {
		o := fields(t, pod)
		with(o)
		if got := set.Refusals(t, created(o)); got != nil {
			t.Errorf("%s: %.500q", name, got)
		}
	}

	owner := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: name, UID: uid, Controller: new(true)}}
	}
	b := turns.Benchmark(makeGate(), makeVerification("a"), "b", 4)
	b.OwnerReferences[0].UID = uid
	own := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "x", UID: uid}}
	secret := fields(t, pods.Secret(own, ""))
	secret["data"], secret["type"] = m{"key": "a2V5"}, "Opaque"
	delete(secret, "stringData")
	budget := budgetOf(makeGate(), 3)
	budget.OwnerReferences[0].UID = uid
	finalized, plain := makeGate(), makeGate()
	finalized.Finalizers, plain.Finalizers = []string{v1alpha1.FinalizerNode}, nil
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "victim", Name: "db"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Command: []string{"sh"}}}}}
	stranger.Labels = pod.Labels
	held := built["hold "+string(v1alpha1.VerificationVerified)]
	bare := held.DeepCopy()
	bare.Labels, bare.OwnerReferences = nil, nil
	event := func(about, related runtime.Object) m { return sentEvent(t, about, related) }
	electionEvent := sentElectionEvent(t)
	lease := func(name string) m {
		return m{"metadata": m{"name": name, "namespace": "elsewhere"}, "spec": m{"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0}}
	}
	network := func(config string) m {
		o := fields(t, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "x", Labels: pods.Labels("x"), OwnerReferences: owner("LatencyBenchmark", "x")}})
		o["spec"] = m{"config": config}
		return o
	}
	stored := func(change func(*corev1.ConfigMap)) m {
		c := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "perf", Name: "x-r1-abcdefgh23", Labels: pods.Labels("x"), OwnerReferences: owner("LatencyBenchmark", "x"), Annotations: map[string]string{result.AnnotationFormat: "1"},
			},
			Immutable: new(true),
			Data:      map[string]string{"pods.json": "{}"}, BinaryData: map[string][]byte{"client.json.gz": {1}, "server.json.gz": {1}},
		}
		change(c)
		return fields(t, c)
	}
	with := func(o any, value any, path ...any) m {
		all := fields(t, o)
		if metadata := part(all, list("metadata")); len(path) == 3 && metadata != nil && metadata[path[1].(string)] == nil {
			metadata[path[1].(string)] = m{}
		}
		change(all, value, path...)
		return all
	}
	of := func(group, version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	secrets, configMaps, networks := of("", "v1", "secrets"), of("", "v1", "configmaps"), of("k8s.cni.cncf.io", "v1", "network-attachment-definitions")
	benchmarks, gates := of("tailgate.dev", "v1alpha1", "latencybenchmarks"), of("tailgate.dev", "v1alpha1", "latencygates")
	matrices, verifications := of("tailgate.dev", "v1alpha1", "latencymatrices"), of("tailgate.dev", "v1alpha1", "latencyverifications")
	budgets, events, coreEvents, leases := of("policy", "v1", "poddisruptionbudgets"), of("events.k8s.io", "v1", "events"), of("", "v1", "events"), of("coordination.k8s.io", "v1", "leases")
	touched := func(o any) m { // what a user of the namespace may write
		all := with(o, "x", "metadata", "labels", "user.example/any")
		all = with(all, "x", "metadata", "annotations", "user.example/any")
		return with(all, list("user.example/f"), "metadata", "finalizers")
	}
	const device = `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"host-device"`
	v := &v1alpha1.LatencyVerification{ObjectMeta: metav1.ObjectMeta{Name: "g-a", Finalizers: []string{v1alpha1.FinalizerNode}}, Spec: v1alpha1.LatencyVerificationSpec{GateName: "g", NodeName: "a"}}
	told := event(v, nil)
	for _, c := range []struct {
		name     string
		resource schema.GroupVersionResource
		now, old any
		allowed  bool
	}{
		{"a key with a company's label", secrets, with(secret, "perf", "metadata", "labels", "company.example/team"), nil, true},
		{"a key with a plain label", secrets, with(secret, "perf", "metadata", "labels", "owner"), nil, true},
		{"a key with Kyverno's note", secrets, with(secret, "x", "metadata", "annotations", "policies.kyverno.io/last-applied-patches"), nil, true},
		{"a key that another controller copies", secrets, with(secret, "true", "metadata", "annotations", "reflector.v1.k8s.emberstack.com/reflection-allowed"), nil, false},
		{"a key with an unknown annotation", secrets, with(secret, "x", "metadata", "annotations", "company.example/x"), nil, false},
		{"a key that is the credentials of another", secrets, with(secret, "usernamePassword", "metadata", "labels", "jenkins.io/credentials-type"), nil, false},
		{"a key that is a cluster", secrets, with(secret, "cluster", "metadata", "labels", "argocd.argoproj.io/secret-type"), nil, false},
		{"a key that is a release", secrets, with(secret, "helm", "metadata", "labels", "owner"), nil, false},
		{"a key with an own label of a hold pod", secrets, with(secret, "true", "metadata", "labels", v1alpha1.LabelHold), nil, false},
		{"a key of another manager", secrets, with(secret, "Helm", "metadata", "labels", "app.kubernetes.io/managed-by"), nil, false},
		{"a result with a company's label", configMaps, with(stored(func(*corev1.ConfigMap) {}), "a", "metadata", "labels", "company.example/cost-center"), nil, true},
		{"a result that is a dashboard", configMaps, with(stored(func(*corev1.ConfigMap) {}), "1", "metadata", "labels", "grafana_dashboard"), nil, false},
		{"a result that an addon manager keeps", configMaps, with(stored(func(*corev1.ConfigMap) {}), "Reconcile", "metadata", "labels", "addonmanager.kubernetes.io/mode"), nil, false},
		{"a result with an unknown annotation", configMaps, with(stored(func(*corev1.ConfigMap) {}), "x", "metadata", "annotations", "a.b/c"), nil, false},
		{"a network with an unknown annotation", networks, with(network(device+`}]}`), "x", "metadata", "annotations", "a.b/c"), nil, false},
		{"a network with its resource", networks, with(network(device+`}]}`), "x.y/z", "metadata", "annotations", foreign.AnnotationResourceName), nil, true},
		{"a benchmark with the labels of its template", benchmarks, with(b, "q", "metadata", "labels", "kueue.x-k8s.io/queue-name"), nil, true},
		{"a benchmark with the annotations of its template", benchmarks, with(b, "q", "metadata", "annotations", "a.b/c"), nil, true},
		{"a benchmark with the label of a hold pod", benchmarks, with(b, "true", "metadata", "labels", v1alpha1.LabelHold), nil, false},
		{"the end of a gate's benchmark of which a user changed the owner's group", benchmarks, nil, with(b, "x/v1", "metadata", "ownerReferences", 0, "apiVersion"), true},
		{"the end of a user's that its series outnumbers", benchmarks, nil, with(own, 5, "spec", "historyLimit"), true},
		{"another priority of one that a user changed", benchmarks, with(touched(b), 7, "spec", "priority"), touched(b), true},
		{"a label of a benchmark", benchmarks, with(b, "x", "metadata", "labels", "a"), b, false},
		{"a verification that a webhook labels", verifications, with(v, "perf", "metadata", "labels", "company.example/team"), nil, true},
		{"a verification that Kyverno annotates", verifications, with(v, "x", "metadata", "annotations", "policies.kyverno.io/last-applied-patches"), nil, true},
		{"a verification with a label of another controller", verifications, with(v, "x", "metadata", "labels", "kustomize.toolkit.fluxcd.io/name"), nil, false},
		{"a verification with an owner", verifications, with(v, owner("LatencyGate", "g"), "metadata", "ownerReferences"), nil, false},
		{"the end of the finalizer of a verification that a user changed", verifications, with(touched(v), list("user.example/f"), "metadata", "finalizers"),
			with(touched(v), list("user.example/f", v1alpha1.FinalizerNode), "metadata", "finalizers"), true},
		{"its finalizer of a gate that a user changed", gates, with(touched(plain), list("user.example/f", v1alpha1.FinalizerNode), "metadata", "finalizers"), touched(plain), true},
		{"a label of a gate", gates, with(finalized, "x", "metadata", "labels", "a"), plain, false},
		{"its finalizer of a matrix", matrices, m{"metadata": m{"name": "m", "finalizers": list(v1alpha1.FinalizerNode)}, "spec": m{}}, m{"metadata": m{"name": "m"}, "spec": m{}}, false},
		{"a budget that a webhook labels", budgets, with(budget, "perf", "metadata", "labels", "company.example/team"), nil, true},
		{"a budget with a label of another controller", budgets, with(budget, "x", "metadata", "labels", "argocd.argoproj.io/instance"), nil, false},
		{"a budget that a user changed", budgets, touched(budget), touched(budget), true},
		{"a budget to which a user added an owner", budgets, with(budget, append(budget.OwnerReferences, owner("LatencyBenchmark", "b")...), "metadata", "ownerReferences"),
			with(budget, append(budget.OwnerReferences, owner("LatencyBenchmark", "b")...), "metadata", "ownerReferences"), true},
		{"the end of a budget that a user changed", budgets, nil, touched(budget), true},
		{"a budget of two owners", budgets, with(budget, append(budget.OwnerReferences, owner("LatencyBenchmark", "b")...), "metadata", "ownerReferences"), nil, false},
		{"a budget with a finalizer", budgets, with(budget, list("a/b"), "metadata", "finalizers"), nil, false},
		{"a finalizer of a budget", budgets, with(budget, list("a/b"), "metadata", "finalizers"), budget, false},
		{"the end of a user's finalizer of a budget", budgets, budget, with(budget, list("a/b"), "metadata", "finalizers"), false},
		{"an owner of a budget", budgets, with(budget, append(budget.OwnerReferences, owner("LatencyBenchmark", "b")...), "metadata", "ownerReferences"), budget, false},
		{"another's budget, as the gate's", budgets, budget, with(budget, "Deployment", "metadata", "ownerReferences", 0, "kind"), false},
		{"another's budget, of no owner", budgets, budget, with(budget, nil, "metadata", "ownerReferences"), false},
		{"a budget over the pods of all gates", budgets, with(budget, m{"matchLabels": m{v1alpha1.LabelHold: "true"}}, "spec", "selector"), nil, false},
		{"a budget over the pods of another gate", budgets, with(budget, m{"matchLabels": m{v1alpha1.LabelHold: "true", v1alpha1.LabelGate: "other"}}, "spec", "selector"), budget, false},
		{"a budget that keeps pods that are not ready", budgets, with(budget, "IfHealthyBudget", "spec", "unhealthyPodEvictionPolicy"), nil, false},
		{"a series of an event", events, with(told, m{"count": 2, "lastObservedTime": "2026-05-04T12:00:00.000000Z"}, "series"), told, true},
		{"the same of one that a user changed", events, with(touched(told), m{"count": 2}, "series"), touched(told), true},
		{"an event after its series", events, with(told, m{"count": 2}, "series"), nil, true},
		{"another note of an event", events, with(told, "x", "note"), told, false},
		{"an event of another controller, made its own", events, told, with(told, "kubelet", "reportingController"), false},
		{"an event with a finalizer", events, with(told, list("a/b"), "metadata", "finalizers"), nil, false},
		{"an event with an owner", events, with(told, owner("LatencyGate", "g"), "metadata", "ownerReferences"), nil, false},
		{"an event with a label", events, with(told, "x", "metadata", "labels", "a"), nil, false},
		{"an event with an annotation", events, with(told, "x", "metadata", "annotations", "a"), nil, false},
		{"an event with a source", events, with(told, m{"component": "kubelet"}, "deprecatedSource"), nil, false},
		{"an event with a count", events, with(told, 5, "deprecatedCount"), nil, false},
		{"an event about a Node of another group", events, with(told, m{"kind": "Node", "apiVersion": "metal.example/v1"}, "regarding"), nil, false},
		{"an event with another's object", events, with(told, m{"kind": "Secret", "apiVersion": "v1", "name": "s"}, "related"), nil, false},
		{"an event of another instance", events, with(told, "kubelet-a", "reportingInstance"), nil, false},
		{"an event of the election by another", coreEvents, with(with(electionEvent, m{"component": "kube-scheduler"}, "source"), "kube-scheduler", "reportingComponent"), nil, false},
		{"the same by a source alone", coreEvents, with(electionEvent, m{"component": "kube-scheduler"}, "source"), nil, false},
		{"the same with a host", coreEvents, with(electionEvent, "node-a", "source", "host"), nil, false},
		{"an event of another election", coreEvents, with(electionEvent, "kube-scheduler", "involvedObject", "name"), nil, false},
		{"any text about the election", coreEvents, with(electionEvent, "x", "message"), nil, false},
		{"any reason", coreEvents, with(electionEvent, "Evicted", "reason"), nil, false},
		{"an event of the election with a label", coreEvents, with(electionEvent, "x", "metadata", "labels", "a"), nil, false},
		{"an event of the election with a finalizer", coreEvents, with(electionEvent, list("a/b"), "metadata", "finalizers"), nil, false},
		{"an event of the election with an object", coreEvents, with(electionEvent, m{"kind": "Secret"}, "related"), nil, false},
		{"a new Lease", leases, lease("manager.tailgate.dev"), nil, true},
		{"a new Lease that a webhook labels", leases, with(lease("manager.tailgate.dev"), "perf", "metadata", "labels", "company.example/team"), nil, true},
		{"a new Lease with a label of another controller", leases, with(lease("manager.tailgate.dev"), "perf", "metadata", "labels", "argocd.argoproj.io/instance"), nil, false},
		{"its Lease that a user changed", leases, touched(lease("manager.tailgate.dev")), touched(lease("manager.tailgate.dev")), true},
		{"a finalizer of its Lease", leases, with(lease("manager.tailgate.dev"), list("a/b"), "metadata", "finalizers"), lease("manager.tailgate.dev"), false},
		{"an owner of its Lease", leases, with(lease("manager.tailgate.dev"), owner("LatencyGate", "g"), "metadata", "ownerReferences"), nil, false},
		{"an annotation of its Lease", leases, with(lease("manager.tailgate.dev"), "x", "metadata", "annotations", "a"), lease("manager.tailgate.dev"), false},
		{"its Lease for a year", leases, with(lease("manager.tailgate.dev"), 365*24*3600, "spec", "leaseDurationSeconds"), lease("manager.tailgate.dev"), false},
		{"another strategy", leases, with(lease("manager.tailgate.dev"), "OldestEmulationVersion", "spec", "strategy"), lease("manager.tailgate.dev"), false},
		{"its own benchmark pod", podResource, nil, pod, true},
		{"its hold pod without label and owner", podResource, nil, bare, true},
		{"a pod of another with its labels", podResource, nil, stranger, false},
		{"the key", secrets, secret, nil, true},
		{"a key of an owner without a UID", secrets, with(with(secret, "tailgate-abc", "metadata", "name"), "abc", "metadata", "ownerReferences", 0, "uid"), nil, false},
		{"a key that can change", secrets, with(secret, false, "immutable"), nil, false},
		{"a key with more", secrets, with(secret, m{"key": "a", "token": "b"}, "data"), nil, false},
		{"a token", secrets, with(secret, "kubernetes.io/service-account-token", "type"), nil, false},
		{"a key with annotations of a service account", secrets, with(secret, list("a/b"), "metadata", "finalizers"), nil, false},
		{"another key", secrets, secret, secret, false},
		{"the end of a Secret", secrets, nil, secret, false},
		{"a result", configMaps, stored(func(*corev1.ConfigMap) {}), nil, true},
		{"a ConfigMap that can change", configMaps, stored(func(c *corev1.ConfigMap) { c.Immutable = nil }), nil, false},
		{"a ConfigMap of any content", configMaps, stored(func(c *corev1.ConfigMap) { c.Data["config.yaml"] = "x" }), nil, false},
		{"a ConfigMap of any name", configMaps, stored(func(c *corev1.ConfigMap) { c.Name = "kube-root-ca.crt" }), nil, false},
		{"a ConfigMap of another benchmark", configMaps, stored(func(c *corev1.ConfigMap) { c.Name = "y-r1-0123456789" }), nil, false},
		{"a ConfigMap of no owner", configMaps, stored(func(c *corev1.ConfigMap) { c.OwnerReferences = nil }), nil, false},
		{"a change of a ConfigMap", configMaps, stored(func(*corev1.ConfigMap) {}), stored(func(*corev1.ConfigMap) {}), false},
		{"the end of a ConfigMap", configMaps, nil, stored(func(*corev1.ConfigMap) {}), false},
		{"a network", networks, network(device + `,"ipam":{"type":"static"},"capabilities":{"ips":true}},{"type":"tuning","mtu":9000}]}`), nil, true},
		{"a network of any name", networks, with(network(device+`}]}`), "y", "metadata", "name"), nil, false},
		{"a network that names another", networks, network(strings.Replace(device, `"x"`, `"y"`, 1) + `}]}`), nil, false},
		{"a network of the host", networks, network(`{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge"}]}`), nil, false},
		{"a network with another program", networks, network(device + `},{"type":"firewall"}]}`), nil, false},
		{"a device of the node by name", networks, network(device + `,"device":"eth0"}]}`), nil, false},
		{"the same with escapes", networks, network(device + `,"\u0064evice":"eth0"}]}`), nil, false},
		{"a benchmark", benchmarks, b, nil, true},
		{"a benchmark of no owner", benchmarks, with(b, nil, "metadata", "ownerReferences"), nil, false},
		{"another priority", benchmarks, with(b, 7, "spec", "priority"), b, true},
		{"another tool", benchmarks, with(b, "netperf", "spec", "tool"), b, false},
		{"a finalizer of a benchmark", benchmarks, with(b, list("a/b"), "metadata", "finalizers"), b, false},
		{"the end of its benchmark", benchmarks, nil, b, true},
		{"the end of a user's", benchmarks, nil, own, false},
		{"the end of a user's that expires", benchmarks, nil, with(own, 5, "spec", "ttlSecondsAfterFinished"), true},
		{"a verification", verifications, v, nil, true},
		{"an accepted one", verifications, with(v, m{"benchmark": "b"}, "spec", "accept"), nil, false},
		{"a request", verifications, with(v, m{"requestedBy": "b"}, "spec", "verify"), v, false},
		{"the end of its finalizer", verifications, with(v, []any{}, "metadata", "finalizers"), v, true},
		{"another's finalizer", verifications, with(v, list("a/b"), "metadata", "finalizers"), v, false},
		{"its finalizer of a gate", gates, finalized, plain, true},
		{"another gate's mode", gates, with(plain, "other", "spec", "namespace"), plain, false},
		{"the end of a gate", gates, nil, plain, false},
		{"a gate", gates, plain, nil, false},
		{"the end of a matrix", matrices, nil, m{"metadata": m{"name": "m"}, "spec": m{}}, false},
		{"the end of one that expires", matrices, nil, m{"metadata": m{"name": "m"}, "spec": m{"ttlSecondsAfterFinished": 1}}, true},
		{"a budget", budgets, budget, nil, true},
		{"another minimum", budgets, budget, budget, true},
		{"a budget over all pods", budgets, with(budget, m{}, "spec", "selector"), nil, false},
		{"the end of another's budget", budgets, nil, with(budget, "db", "metadata", "name"), false},
		{"an event", events, event(finalized, nil), nil, true},
		{"an event about a Node", events, event(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, v), nil, true},
		{"an event about a Pod", events, event(pod, nil), nil, false},
		{"an event of another", events, with(told, "kubelet", "reportingController"), nil, false},
		{"an event of the election", coreEvents, electionEvent, nil, true},
		{"an event about a Pod", coreEvents, with(electionEvent, "Pod", "involvedObject", "kind"), nil, false},
		{"its Lease", leases, lease("manager.tailgate.dev"), lease("manager.tailgate.dev"), true},
		{"another Lease", leases, lease("kube-controller-manager"), nil, false},
	} {
		request := policy.Request{User: policy.Manager, Resource: c.resource}
		if c.now != nil {
			request.Object = &unstructured.Unstructured{Object: fields(t, c.now)}
		}
		if c.old != nil {
			request.Old = &unstructured.Unstructured{Object: fields(t, c.old)}
		}
		if got := set.Refusals(t, request); c.allowed != (got == nil) {
			t.Errorf("%s: %.500q, want allowed %t", c.name, got, c.allowed)
		}
		if request.User = "system:serviceaccount:elsewhere:other"; set.Refusals(t, request) != nil {
			t.Errorf("%s: refused to another user", c.name)
		}
	}
}

// sentEvent returns the event that the manager's recorder sends.
func sentEvent(t *testing.T, about, related runtime.Object) map[string]any {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	broadcaster, sent := events.NewBroadcaster(&events.EventSinkImpl{}), make(chan runtime.Object, 1)
	defer broadcaster.Shutdown()
	stop, err := broadcaster.StartEventWatcher(func(o runtime.Object) { sent <- o })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	broadcaster.NewRecorder(scheme, "tailgate").Eventf(about, related, corev1.EventTypeNormal, "Reason", "Action", "note")
	return fields(t, <-sent)
}

// sentElectionEvent returns the event that the recorder of the election sends.
func sentElectionEvent(t *testing.T) map[string]any {
	t.Helper()
	broadcaster, sent := clientrecord.NewBroadcaster(), make(chan *corev1.Event, 1)
	defer broadcaster.Shutdown()
	defer broadcaster.StartEventWatcher(func(e *corev1.Event) { sent <- e }).Stop()
	id := "manager-5f7d_" + uid
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "manager.tailgate.dev"}, Client: fake.NewClientset().CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: id, EventRecorder: broadcaster.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: id})},
	}
	if err := lock.Create(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
		t.Fatal(err)
	}
	lock.RecordEvent("became leader")
	return fields(t, <-sent)
}

// The manager writes the condition of its hold pods, whatever a user wrote before.
func TestManagerWritesHoldPods(t *testing.T) {
	set, built := policy.Load(t, managerPolicies), managerPods(t)
	write := func(pod *corev1.Pod) []string {
		old := pod.DeepCopy()
		old.Labels = map[string]string{"user.example/any": "x"}
		old.Status.Phase = corev1.PodRunning
		now := old.DeepCopy()
		now.Status.Conditions = append(now.Status.Conditions, corev1.PodCondition{Type: v1alpha1.NodeConditionVerified, Status: corev1.ConditionFalse})
		return set.Refusals(t, policy.Request{User: policy.Manager, Resource: podResource, Subresource: "status", Object: now, Old: old})
	}
	if got := write(built["hold "+string(v1alpha1.VerificationVerified)]); got != nil {
		t.Errorf("a hold pod without labels: %.500q", got)
	}
	labelled := built["vf-static.yaml2"].DeepCopy()
	labelled.Labels[v1alpha1.LabelHold] = "true"
	if write(labelled) == nil {
		t.Error("the status of a pod that is no hold pod: allowed")
	}
}

// A pod with a user's program runs the agent of an image that is mounted, and nothing else.
func TestManagerPodOfAProgram(t *testing.T) {
	set, built := policy.Load(t, managerPolicies), managerPods(t)
	pod := built["custom.yaml1"]
	if pod == nil {
		t.Fatal("no pod custom.yaml1")
	}
	for name, change := range map[string]func(*corev1.Pod){
		"the agent of the user's image by its path": func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[1].MountPath = "/opt/other" },
		"an agent from an empty folder": func(p *corev1.Pod) {
			p.Spec.Volumes[1].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		},
		"a folder that can be written": func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[1].ReadOnly = false },
		"no volume":                    func(p *corev1.Pod) { p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = nil, nil },
		"a second mount over the program": func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: c.VolumeMounts[0].Name, MountPath: "/opt/tailgate/usr/local/bin"})
		},
		"a mount of the parent": func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: c.VolumeMounts[0].Name, MountPath: "/opt"})
		},
		"a mount of the root": func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath = "/" },
		"a mount by a path with two slashes": func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts[0].MountPath = "/opt//tailgate/usr/local/bin"
		},
		"a mount by a path with a dot":         func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath = "/opt/./tailgate/usr" },
		"a mount by a path with two dots":      func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath = "/x/../opt/tailgate/usr" },
		"a mount elsewhere":                    func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath = "/etc" },
		"another program of the mounted image": func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/opt/tailgate/bin/sh"} },
		"the user's program itself":            func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/app/engine"} },
	} {
		other := pod.DeepCopy()
		change(other)
		if got := set.Refusals(t, created(fields(t, other))); got == nil {
			t.Errorf("%s is allowed", name)
		}
	}
}
