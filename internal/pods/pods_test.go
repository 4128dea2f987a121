package pods

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// benchmarks are the benchmarks with golden files, by name: each function adds to the simplest benchmark.
var benchmarks = map[string]func(*v1alpha1.LatencyBenchmark){
	"pod":        func(*v1alpha1.LatencyBenchmark) {},
	"tool-image": func(*v1alpha1.LatencyBenchmark) {},
	"custom":     func(b *v1alpha1.LatencyBenchmark) { b.Spec.Tool = v1alpha1.ToolCustom },
	"host-interface": func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkHost, Host: &v1alpha1.HostNetwork{Interface: "ens1f0"}}
	},
	"host-aligned": func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkHost, Host: &v1alpha1.HostNetwork{Interface: "ens1f0", Alignment: v1alpha1.Alignment{AlignWith: "amd.com/sf_vf"}}}
	},
	"nad-aligned": func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{
			NetworkRef: v1alpha1.NetworkRef{Name: "macvlan"}, Alignment: v1alpha1.Alignment{AlignWith: "amd.com/sf_vf"},
		}}
	},
	"vf-ref": func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Network = v1alpha1.Network{
			Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_vf", NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf", Namespace: "networks"}}},
		}
	},
	"vf-static": func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Variants = []v1alpha1.Variant{{Name: "tagged", Network: &v1alpha1.Network{
			Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_vf", MTU: 9000, IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "192.168.40.0/24"}}, VLAN: 40},
		}}}
	},
	"pf-whereabouts": func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Network = v1alpha1.Network{
			Type: v1alpha1.NetworkPF, PF: &v1alpha1.PFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_pf", IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMWhereabouts, Range: "fd00:40::/64", RangeStart: "fd00:40::100"}}},
		}
	},
	"nad": func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: "macvlan"}}}
	},
	"onload": func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: "ipvlan"}}}
		b.Spec.Acceleration = &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Profile: v1alpha1.OnloadProfileLatency}}
	},
	"template": func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Network = v1alpha1.Network{
			Type: v1alpha1.NetworkPF, PF: &v1alpha1.PFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_pf", MTU: 9000, IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "fd00:40::/64", RangeStart: "fd00:40::ffff"}}},
		}
		b.Spec.Acceleration = &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Source: v1alpha1.OnloadFromImage, ResourceName: "example.com/onload"}}
		b.Spec.Pods = &v1alpha1.PodSettings{
			Annotations:       map[string]string{"irq-load-balancing.crio.io": "disable", "cpu-quota.crio.io": "disable"},
			RuntimeClassName:  "performance-low-latency",
			PriorityClassName: "benchmarks",
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
				{Key: "upgrade", Operator: corev1.TolerationOpEqual, Value: "running", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(600))},
			},
			Hugepages: &v1alpha1.Hugepages{Size: "2Mi", Amount: resource.MustParse("64Mi")},
			Env:       []v1alpha1.EnvVar{{Name: "EF_POLL_USEC", Value: "0"}},
		}
	},
}

func benchmark(name string) *v1alpha1.LatencyBenchmark {
	b := &v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: "x2522", Namespace: "perf", UID: "c0ffee"},
		Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Tool:      v1alpha1.ToolSfntPingpong,
			Placement: v1alpha1.Placement{CPUs: 2, Memory: resource.MustParse("512Mi")},
			Network:   v1alpha1.Network{Type: v1alpha1.NetworkPod},
		}},
	}
	benchmarks[name](b)
	return b
}

func endpoint(name, role string) Endpoint {
	b := benchmark(name)
	variant := plan.Variants(b.Spec)[0]
	e := Endpoint{
		Benchmark: b, Variant: variant, Image: "registry.example.com/tailgate/bench:v0", PullPolicy: corev1.PullIfNotPresent,
		ServiceAccount: "bench", Node: "node-" + role,
		Task: plan.Task{
			Run: "x2522-r3", Variant: variant.Name, Attempt: 2, Role: role, Tool: v1alpha1.ToolSfntPingpong,
			Cells:     []tool.Cell{{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}, Duration: 3 * time.Second, Warmup: time.Second}},
			Interface: variant.Network.Interface(), Deadline: 90 * time.Second,
		},
	}
	if variant.Network.Type.Attached() {
		e.Task.Interface = Interface
	}
	if role == v1alpha1.RoleClient {
		e.Task.ServerAddress, e.Scratch = "192.168.100.12", true
	}
	if name == "tool-image" {
		e.ToolImage = "registry.example.com/onload/sfnettest@sha256:0f"
	}
	if name == "custom" {
		e.Image, e.AgentImage, e.Scratch = "registry.example.com/trading/engine@sha256:0f", e.Image, true
	}
	return e
}

func build(t *testing.T, e Endpoint) *corev1.Pod {
	t.Helper()
	pod, err := Build(e)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// eachPod builds the pod of every benchmark and role.
func eachPod(t *testing.T, test func(t *testing.T, e Endpoint, pod *corev1.Pod)) {
	t.Helper()
	for name := range benchmarks {
		for _, role := range []string{v1alpha1.RoleServer, v1alpha1.RoleClient} {
			t.Run(name+" "+role, func(t *testing.T) {
				e := endpoint(name, role)
				test(t, e, build(t, e))
			})
		}
	}
}

// A golden file contains the network that the operator creates, if there is one, then server and client.
//
// After an intended change: go test ./internal/pods -update, and review the diff.
func TestGolden(t *testing.T) {
	for name := range benchmarks {
		t.Run(name, func(t *testing.T) {
			server, client := endpoint(name, v1alpha1.RoleServer), endpoint(name, v1alpha1.RoleClient)
			objects := []any{build(t, server), build(t, client)}
			if network := Network(server.Benchmark, server.Variant); network != nil {
				objects = append([]any{network}, objects...)
			}
			var documents []string
			for _, o := range objects {
				document, err := yaml.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				documents = append(documents, string(document))
			}
			golden.Check(t, name+".yaml", strings.Join(documents, "---\n"))
		})
	}
}

// A kubelet with the static CPU manager gives exclusive CPUs to guaranteed pods that request whole CPUs.
func TestPodsAreGuaranteedWholeCPUs(t *testing.T) {
	eachPod(t, func(t *testing.T, e Endpoint, pod *corev1.Pod) {
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
		want := 2
		for _, device := range e.Variant.Resources() {
			if device == "" {
				continue
			}
			want++
			if q := r.Limits[corev1.ResourceName(device)]; q.Value() != 1 {
				t.Errorf("%s of %s, want 1", q.String(), device)
			}
		}
		if e.Benchmark.Spec.Pods != nil {
			want++
			if q := r.Limits["hugepages-2Mi"]; q.Value() != 64<<20 {
				t.Errorf("%s of huge pages, want 64Mi", q.String())
			}
		}
		if len(r.Limits) != want {
			t.Errorf("%d resources, want %d: %v", len(r.Limits), want, r.Limits)
		}
	})
}

// Client and server may get different CPUs and memory, and tolerate different taints in addition to the template's.
func TestEndpointsDiffer(t *testing.T) {
	common := corev1.Toleration{Key: "common", Operator: corev1.TolerationOpExists}
	own := corev1.Toleration{Key: "own", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(5))}
	want := map[string]struct {
		cpus, memory string
		tolerations  []corev1.Toleration
	}{
		v1alpha1.RoleClient: {"4", "1Gi", []corev1.Toleration{common, own}},
		v1alpha1.RoleServer: {"2", "512Mi", []corev1.Toleration{common}},
	}
	for role, want := range want {
		e := endpoint("pod", role)
		e.Benchmark.Spec.Pods = &v1alpha1.PodSettings{Tolerations: []corev1.Toleration{common}}
		e.Benchmark.Spec.Placement.Client = &v1alpha1.EndpointPlacement{CPUs: 4, Memory: new(resource.MustParse("1Gi")), Tolerations: []corev1.Toleration{own}}
		before := e.Benchmark.DeepCopy()
		pod, err := Build(e)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(corev1.ResourceList{"cpu": resource.MustParse(want.cpus), "memory": resource.MustParse(want.memory)}, pod.Spec.Containers[0].Resources.Limits); diff != "" {
			t.Errorf("%s (-want +got):\n%s", role, diff)
		}
		if diff := cmp.Diff(want.tolerations, pod.Spec.Tolerations); diff != "" {
			t.Errorf("%s (-want +got):\n%s", role, diff)
		}
		for i := range pod.Spec.Tolerations {
			pod.Spec.Tolerations[i].Key = "changed"
		}
		if diff := cmp.Diff(before, e.Benchmark); diff != "" {
			t.Errorf("the benchmark was changed:\n%s", diff)
		}
	}
}

// One resource of a device plugin may provide both the VF and Onload's devices.
func TestOneDeviceForBoth(t *testing.T) {
	e := endpoint("vf-ref", v1alpha1.RoleServer)
	e.Variant.Acceleration = &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{ResourceName: e.Variant.Network.ResourceName()}}
	want := corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("512Mi"), "amd.com/sf_vf": resource.MustParse("1")}
	if diff := cmp.Diff(want, build(t, e).Spec.Containers[0].Resources.Requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// The API server's response is decoded into the pod that was built. That must not change the benchmark, which may be in a
// cache.
func TestPodsShareNothingWithTheirBenchmark(t *testing.T) {
	e := endpoint("template", v1alpha1.RoleServer)
	before := e.Benchmark.DeepCopy()
	pod := build(t, e)
	pod.Annotations["irq-load-balancing.crio.io"] = "changed"
	pod.Spec.Tolerations[0].Key = "changed"
	*pod.Spec.Tolerations[1].TolerationSeconds = 1
	*pod.Spec.RuntimeClassName = "changed"
	if diff := cmp.Diff(before, e.Benchmark); diff != "" {
		t.Errorf("the benchmark has changed (-before +after):\n%s", diff)
	}
}

// volumesOnly reports whether there are only the volumes that an endpoint needs: an empty folder, and the image with its tools.
func volumesOnly(volumes []corev1.Volume, e Endpoint) bool {
	for _, v := range volumes {
		if !(v.EmptyDir != nil && e.Scratch || v.Image != nil && (v.Image.Reference == e.ToolImage || v.Image.Reference == e.AgentImage)) {
			return false
		}
	}
	return true
}

// The pods pass the restricted Pod Security Standard, except for the host's network where the spec requests it.
func TestPodsHaveNothingTheyDoNotNeed(t *testing.T) {
	eachPod(t, func(t *testing.T, e Endpoint, pod *corev1.Pod) {
		c, s := pod.Spec.Containers[0], pod.Spec.SecurityContext
		for what, ok := range map[string]bool{
			"no token":                  pod.Spec.AutomountServiceAccountToken != nil && !*pod.Spec.AutomountServiceAccountToken,
			"no service links":          pod.Spec.EnableServiceLinks != nil && !*pod.Spec.EnableServiceLinks,
			"not root":                  s.RunAsNonRoot != nil && *s.RunAsNonRoot,
			"a user of any range":       s.RunAsUser == nil && s.RunAsGroup == nil && s.FSGroup == nil,
			"its service account":       pod.Spec.ServiceAccountName == e.ServiceAccount,
			"the runtime's seccomp":     s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
			"no escalation":             c.SecurityContext.AllowPrivilegeEscalation != nil && !*c.SecurityContext.AllowPrivilegeEscalation,
			"no privilege":              c.SecurityContext.Privileged == nil,
			"a root that is read only":  c.SecurityContext.ReadOnlyRootFilesystem != nil && *c.SecurityContext.ReadOnlyRootFilesystem,
			"no capability":             len(c.SecurityContext.Capabilities.Add) == 0 && cmp.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}),
			"no other namespaces":       !pod.Spec.HostPID && !pod.Spec.HostIPC,
			"the network that is asked": pod.Spec.HostNetwork == (e.Benchmark.Spec.Network.Type == v1alpha1.NetworkHost),
			"only files that it needs":  volumesOnly(pod.Spec.Volumes, e),
			"no probe":                  c.StartupProbe == nil && c.LivenessProbe == nil && c.ReadinessProbe == nil,
			"no restart":                pod.Spec.RestartPolicy == corev1.RestartPolicyNever,
			"an end in any case":        pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds == 690,
			"no shell":                  cmp.Equal(c.Command, []string{map[bool]string{true: "/opt/tailgate"}[e.AgentImage != ""] + "/usr/local/bin/tailgate-agent"}) && cmp.Equal(c.Args, []string{e.Task.Role}),
		} {
			if !ok {
				t.Errorf("not so: %s", what)
			}
		}
	})
}

func TestPodsBelongToTheirBenchmark(t *testing.T) {
	eachPod(t, func(t *testing.T, e Endpoint, pod *corev1.Pod) {
		if !metav1.IsControlledBy(pod, e.Benchmark) {
			t.Error("the benchmark does not control it")
		}
		if owner := metav1.GetControllerOf(pod); owner.BlockOwnerDeletion == nil || !*owner.BlockOwnerDeletion {
			t.Error("a foreground deletion of the benchmark would not wait for it")
		}
		want := map[string]string{
			"app.kubernetes.io/managed-by": "tailgate", "tailgate.dev/benchmark": "x2522", "tailgate.dev/run": "x2522-r3",
			"tailgate.dev/attempt": "2", "tailgate.dev/role": e.Task.Role,
			"sidecar.istio.io/inject": "false", "istio.io/dataplane-mode": "none", "kuma.io/sidecar-injection": "disabled", "admission.datadoghq.com/enabled": "false",
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
	eachPod(t, func(t *testing.T, e Endpoint, pod *corev1.Pod) {
		env := map[string]corev1.EnvVar{}
		for _, v := range pod.Spec.Containers[0].Env {
			env[v.Name] = v
		}
		task, err := plan.DecodeTask(env[plan.EnvTask].Value)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e.Task, task); diff != "" {
			t.Errorf("task (-want +got):\n%s", diff)
		}
		for name, path := range map[string]string{plan.EnvNode: "spec.nodeName", plan.EnvPodIP: "status.podIP"} {
			if from := env[name].ValueFrom; from == nil || from.FieldRef == nil || from.FieldRef.FieldPath != path {
				t.Errorf("%s is not from %s: %+v", name, path, env[name])
			}
		}
		if from := env[plan.EnvKey].ValueFrom; from == nil || from.SecretKeyRef == nil || from.SecretKeyRef.Name != "tailgate-"+string(e.Benchmark.UID) || env[plan.EnvKey].Value != "" {
			t.Errorf("the key is not from the benchmark's Secret: %+v", env[plan.EnvKey])
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

// Packet capture takes one capability, at the server's end only, and root to hold it.
func TestCapture(t *testing.T) {
	for role, want := range map[string][]corev1.Capability{v1alpha1.RoleServer: {"NET_RAW"}, v1alpha1.RoleClient: nil} {
		e := endpoint("vf-ref", role)
		e.Variant.Capture = v1alpha1.CaptureServer
		pod := build(t, e)
		c := pod.Spec.Containers[0].SecurityContext
		if diff := cmp.Diff(&corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: want}, c.Capabilities); diff != "" {
			t.Errorf("%s: capabilities (-want +got):\n%s", role, diff)
		}
		s := pod.Spec.SecurityContext
		if root := s.RunAsUser != nil && *s.RunAsUser == 0; root != (want != nil) || root == *s.RunAsNonRoot {
			t.Errorf("%s: %+v", role, s)
		}
		if *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem {
			t.Errorf("%s: %+v", role, c)
		}
	}
}
