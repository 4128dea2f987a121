package pods

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// networks are the ways to the peer for which there are golden files, by their name.
var networks = map[string]v1alpha1.Network{
	"pod":     {Type: v1alpha1.NetworkPod},
	"host":    {Type: v1alpha1.NetworkHost},
	"vf":      {Type: v1alpha1.NetworkVF, NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf", Namespace: "networks"}, ResourceName: "amd.com/sf_vf"},
	"macvlan": {Type: v1alpha1.NetworkNAD, NetworkRef: &v1alpha1.NetworkRef{Name: "macvlan"}},
}

func benchmark(network v1alpha1.Network) *v1alpha1.LatencyBenchmark {
	return &v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: "x2522", Namespace: "perf", UID: "c0ffee"},
		Spec: v1alpha1.LatencyBenchmarkSpec{
			Tool:      v1alpha1.ToolSfntPingpong,
			Placement: v1alpha1.Placement{CPUs: 2, Memory: resource.MustParse("512Mi")},
			Network:   network,
		},
	}
}

func endpoint(network v1alpha1.Network, role string) Endpoint {
	e := Endpoint{
		Benchmark: benchmark(network), Variant: plan.Variants(benchmark(network).Spec)[0], Image: "registry.example.com/tailgate/bench:v0", PullPolicy: corev1.PullIfNotPresent, Node: "node-" + role,
		Task: plan.Task{
			Run: "x2522-r3", Variant: plan.DefaultVariant, Attempt: 2, Role: role, Tool: v1alpha1.ToolSfntPingpong,
			Cells:    []tool.Cell{{Name: "tcp-64", Protocol: v1alpha1.ProtocolTCP, MessageSize: 64, Duration: 3 * time.Second, Warmup: time.Second}},
			Deadline: 90 * time.Second,
		},
	}
	if network.Type.Attached() {
		e.Task.Interface = Interface
	}
	if role == v1alpha1.RoleClient {
		e.Task.ServerAddress, e.Task.Token = "192.168.100.12", "6f1c"
	}
	return e
}

// eachPod builds the pod of every network and role.
func eachPod(t *testing.T, test func(t *testing.T, name string, e Endpoint, pod *corev1.Pod)) {
	t.Helper()
	for network, n := range networks {
		for _, role := range []string{v1alpha1.RoleClient, v1alpha1.RoleServer} {
			t.Run(network+" "+role, func(t *testing.T) {
				e := endpoint(n, role)
				pod, err := Build(e)
				if err != nil {
					t.Fatal(err)
				}
				test(t, network+"-"+role, e, pod)
			})
		}
	}
}

// After a wanted change: go test ./internal/pods -update, and read the difference.
func TestGolden(t *testing.T) {
	eachPod(t, func(t *testing.T, name string, _ Endpoint, pod *corev1.Pod) {
		got, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	})
}

// A kubelet with the static CPU manager gives exclusive CPUs to guaranteed pods that ask for whole ones.
func TestPodsAreGuaranteedWholeCPUs(t *testing.T) {
	eachPod(t, func(t *testing.T, _ string, e Endpoint, pod *corev1.Pod) {
		if n := len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers); n != 1 {
			t.Fatalf("%d containers, want one: each of them must be guaranteed", n)
		}
		r := pod.Spec.Containers[0].Resources
		if diff := cmp.Diff(r.Requests, r.Limits); diff != "" {
			t.Errorf("requests and limits differ (-requests +limits):\n%s", diff)
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q := r.Limits[name]; q.Sign() <= 0 {
				t.Errorf("%s is %s, want more", name, q.String())
			}
		}
		if cpu := r.Limits[corev1.ResourceCPU]; cpu.MilliValue() != 2000 {
			t.Errorf("%s CPUs, want 2", cpu.String())
		}
		device := corev1.ResourceName(e.Benchmark.Spec.Network.ResourceName)
		if q := r.Limits[device]; device != "" && q.Value() != 1 {
			t.Errorf("%s of %s, want 1", q.String(), device)
		}
		if want := 2; device == "" && len(r.Limits) != want {
			t.Errorf("%d resources, want %d: %v", len(r.Limits), want, r.Limits)
		}
	})
}

// The pods pass the restricted Pod Security Standard, but for the host's network where it was asked for.
func TestPodsHaveNothingTheyDoNotNeed(t *testing.T) {
	eachPod(t, func(t *testing.T, _ string, e Endpoint, pod *corev1.Pod) {
		c, s := pod.Spec.Containers[0], pod.Spec.SecurityContext
		for what, ok := range map[string]bool{
			"no token":                  pod.Spec.AutomountServiceAccountToken != nil && !*pod.Spec.AutomountServiceAccountToken,
			"no service links":          pod.Spec.EnableServiceLinks != nil && !*pod.Spec.EnableServiceLinks,
			"not root":                  s.RunAsNonRoot != nil && *s.RunAsNonRoot && s.RunAsUser != nil && *s.RunAsUser != 0,
			"the runtime's seccomp":     s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
			"no escalation":             c.SecurityContext.AllowPrivilegeEscalation != nil && !*c.SecurityContext.AllowPrivilegeEscalation,
			"no privilege":              c.SecurityContext.Privileged == nil,
			"a root that is read only":  c.SecurityContext.ReadOnlyRootFilesystem != nil && *c.SecurityContext.ReadOnlyRootFilesystem,
			"no capability":             len(c.SecurityContext.Capabilities.Add) == 0 && cmp.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}),
			"no other namespaces":       !pod.Spec.HostPID && !pod.Spec.HostIPC,
			"the network that is asked": pod.Spec.HostNetwork == (e.Benchmark.Spec.Network.Type == v1alpha1.NetworkHost),
			"only scratch space":        len(pod.Spec.Volumes) == 1 && pod.Spec.Volumes[0].EmptyDir != nil,
			"no probe while measuring":  c.LivenessProbe == nil && c.ReadinessProbe == nil,
			"a startup probe if server": (c.StartupProbe != nil) == (e.Task.Role == v1alpha1.RoleServer),
			"no probe by connection":    c.StartupProbe == nil || c.StartupProbe.Exec != nil,
			"no restart":                pod.Spec.RestartPolicy == corev1.RestartPolicyNever,
			"an end in any case":        pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds == 690,
			"no shell":                  cmp.Equal(c.Command, []string{"/usr/local/bin/tailgate-agent"}) && cmp.Equal(c.Args, []string{e.Task.Role}),
		} {
			if !ok {
				t.Errorf("not so: %s", what)
			}
		}
	})
}

func TestPodsBelongToTheirBenchmark(t *testing.T) {
	eachPod(t, func(t *testing.T, _ string, e Endpoint, pod *corev1.Pod) {
		if !metav1.IsControlledBy(pod, e.Benchmark) {
			t.Error("the benchmark does not control it")
		}
		if owner := metav1.GetControllerOf(pod); owner.BlockOwnerDeletion == nil || !*owner.BlockOwnerDeletion {
			t.Error("a foreground deletion of the benchmark would not wait for it")
		}
		want := map[string]string{
			"app.kubernetes.io/managed-by": "tailgate", "tailgate.dev/benchmark": "x2522", "tailgate.dev/run": "x2522-r3",
			"tailgate.dev/attempt": "2", "tailgate.dev/role": e.Task.Role,
		}
		if diff := cmp.Diff(want, pod.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if got, want := pod.Namespace+"/"+pod.Name, "perf/x2522-r3-a2-"+e.Task.Role; got != want {
			t.Errorf("it is %s, want %s", got, want)
		}
	})
}

func TestPodsCarryTheirTaskAndNode(t *testing.T) {
	eachPod(t, func(t *testing.T, _ string, e Endpoint, pod *corev1.Pod) {
		env := map[string]corev1.EnvVar{}
		for _, v := range pod.Spec.Containers[0].Env {
			env[v.Name] = v
		}
		task, err := plan.DecodeTask(env[EnvTask].Value)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e.Task, task); diff != "" {
			t.Errorf("task (-want +got):\n%s", diff)
		}
		for name, path := range map[string]string{EnvNode: "spec.nodeName", EnvPodIP: "status.podIP", EnvPodUID: "metadata.uid"} {
			if from := env[name].ValueFrom; from == nil || from.FieldRef == nil || from.FieldRef.FieldPath != path {
				t.Errorf("%s is not from %s: %+v", name, path, env[name])
			}
		}
		if pod.Spec.NodeName != "" {
			t.Error("it goes past the scheduler")
		}
		if got, want := Node(pod), "node-"+e.Task.Role; got != want {
			t.Errorf("it is built for node %q, want %q", got, want)
		}
	})
}

func TestNode(t *testing.T) {
	cases := map[string]struct {
		pod  corev1.PodSpec
		want string
	}{
		"a pod that is scheduled":          {pod: corev1.PodSpec{NodeName: "a", Affinity: onNode("b")}, want: "a"},
		"one that is not":                  {pod: corev1.PodSpec{Affinity: onNode("b")}, want: "b"},
		"one without affinity":             {},
		"one without an affinity to nodes": {pod: corev1.PodSpec{Affinity: &corev1.Affinity{}}},
		"one with only a preference":       {pod: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}}},
		"one that may go to one of two": {pod: corev1.PodSpec{Affinity: func() *corev1.Affinity {
			a := onNode("b")
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values = []string{"b", "c"}
			return a
		}()}},
		"one that asks for another property": {pod: corev1.PodSpec{Affinity: func() *corev1.Affinity {
			a := onNode("b")
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Key = "metadata.uid"
			return a
		}()}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Node(&corev1.Pod{Spec: c.pod}); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAddress(t *testing.T) {
	const status = `[{"name":"cbr0","interface":"eth0","ips":["10.244.1.17"],"default":true},
		{"name":"perf/macvlan","interface":"net1","ips":["192.168.100.12"]},
		{"name":"networks/sf-vf","interface":"net1"}]`
	cases := map[string]struct {
		network    string
		podIP      string
		annotation string
		want       string
		// wantMissing is part of what is still missing.
		wantMissing string
	}{
		"the pod network's is the pod's":                     {network: "pod", podIP: "10.244.1.17", want: "10.244.1.17"},
		"the host network's is the pod's, which is the node": {network: "host", podIP: "10.0.0.1", want: "10.0.0.1"},
		"a pod without an address yet":                       {network: "pod", wantMissing: "no address"},
		"a secondary network's is in the status":             {network: "macvlan", podIP: "10.244.1.17", annotation: status, want: "192.168.100.12"},
		"a pod of which Multus knows nothing":                {network: "macvlan", podIP: "10.244.1.17", wantMissing: "Multus"},
		"a network without addresses":                        {network: "vf", podIP: "10.244.1.17", annotation: status, wantMissing: "ipam"},
		"a network that was not attached":                    {network: "vf", annotation: "[]", wantMissing: "networks/sf-vf"},
		"a status that is no JSON":                           {network: "vf", annotation: "?", wantMissing: foreign.AnnotationNetworkStatus},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "perf"}, Status: corev1.PodStatus{PodIP: c.podIP}}
			if c.annotation != "" {
				pod.Annotations = map[string]string{foreign.AnnotationNetworkStatus: c.annotation}
			}
			got, missing := Address(plan.Variants(benchmark(networks[c.network]).Spec)[0], pod)
			if got != c.want || (missing == "") != (c.wantMissing == "") || !strings.Contains(missing, c.wantMissing) {
				t.Errorf("got %q, missing %q; want %q, missing %q", got, missing, c.want, c.wantMissing)
			}
		})
	}
}

// Capturing packets takes one capability, at the server's end only, and root to hold it.
func TestCapture(t *testing.T) {
	for role, want := range map[string][]corev1.Capability{v1alpha1.RoleServer: {"NET_RAW"}, v1alpha1.RoleClient: nil} {
		e := endpoint(networks["vf"], role)
		e.Variant.Capture = new(true)
		pod, err := Build(e)
		if err != nil {
			t.Fatal(err)
		}
		c := pod.Spec.Containers[0].SecurityContext
		if diff := cmp.Diff(&corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: want}, c.Capabilities); diff != "" {
			t.Errorf("%s: capabilities (-want +got):\n%s", role, diff)
		}
		if root := *pod.Spec.SecurityContext.RunAsUser == 0; root != (want != nil) || root == *pod.Spec.SecurityContext.RunAsNonRoot {
			t.Errorf("%s: runs as %d, runAsNonRoot %t", role, *pod.Spec.SecurityContext.RunAsUser, *pod.Spec.SecurityContext.RunAsNonRoot)
		}
		if *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem {
			t.Errorf("%s: %+v", role, c)
		}
	}
}
