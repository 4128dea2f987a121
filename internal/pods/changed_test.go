package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// returned returns the server's pod of the benchmark "template" as it was built, and as kube-apiserver 1.36.3 returned it, in a
// cluster with a RuntimeClass that selects nodes and a PriorityClass.
func returned(t *testing.T) (built, pod *corev1.Pod) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "returned.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pod = &corev1.Pod{}
	if err := yaml.UnmarshalStrict(data, pod); err != nil {
		t.Fatal(err)
	}
	e := endpoint("template", v1alpha1.RoleServer)
	// This server has a volume, although only clients have one today.
	e.Scratch = true
	built = build(t, e)
	// The task may have changed since the pod was recorded.
	pod.Spec.Containers[0].Env[0] = built.Spec.Containers[0].Env[0]
	return built, pod
}

// inject changes a pod as the network resources injector does: see foreign.InjectedMount.
func inject(p *corev1.Pod, c *corev1.Container) {
	field := func(path, of string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: of}}
	}
	hugepages := corev1.DownwardAPIVolumeFile{
		Path:             "hugepages_2M_request_" + c.Name,
		ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "requests.hugepages-2Mi", ContainerName: c.Name, Divisor: resource.MustParse("1Mi")},
	}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "podnetinfo", VolumeSource: corev1.VolumeSource{
		DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{field("labels", "metadata.labels"), field("annotations", "metadata.annotations"), hugepages},
		},
	}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "podnetinfo", ReadOnly: true, MountPath: "/etc/podnetinfo"})
}

func TestChanged(t *testing.T) {
	long := strings.Repeat("x", 300)
	cases := map[string]struct {
		change func(p *corev1.Pod, c *corev1.Container)
		want   []string
	}{
		"only defaults of the API server": {change: func(*corev1.Pod, *corev1.Container) {}},
		"additions that every pod of a cluster may get": {change: func(p *corev1.Pod, c *corev1.Container) {
			p.Labels["team"], p.Annotations["team"] = "perf", "perf"
			p.Spec.NodeName = "node-server"
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
			p.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("100m")}
			p.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c26,c5"}
			c.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c26,c5"}
			c.SecurityContext.ProcMount = new(corev1.DefaultProcMount)
			c.ImagePullPolicy = corev1.PullAlways
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "of-a-sidecar", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		}},
		"equal quantities in other words": {change: func(_ *corev1.Pod, c *corev1.Container) {
			c.Resources.Requests["cpu"], c.Resources.Requests["memory"] = resource.MustParse("2000m"), resource.MustParse("524288Ki")
		}},
		"an injector that adds to the request": {
			change: func(_ *corev1.Pod, c *corev1.Container) {
				c.Resources.Requests["amd.com/sf_pf"], c.Resources.Limits["amd.com/sf_pf"] = resource.MustParse("2"), resource.MustParse("2")
			},
			want: []string{"limits amd.com/sf_pf: 2 instead of 1", "requests amd.com/sf_pf: 2 instead of 1"},
		},
		"a request that is gone, and another": {
			change: func(_ *corev1.Pod, c *corev1.Container) {
				delete(c.Resources.Requests, "example.com/onload")
				c.Resources.Requests["example.com/gpu"] = resource.MustParse("1")
				c.Resources.Claims = []corev1.ResourceClaim{{Name: "nic", Request: "vf"}}
			},
			want: []string{"claim nic: added vf", "requests example.com/gpu: added 1", "requests example.com/onload: removed 1"},
		},
		"resources of the whole pod": {
			change: func(p *corev1.Pod, _ *corev1.Container) {
				p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("3")}}
			},
			want: []string{"pod limits cpu: added 3"},
		},
		"more containers": {
			change: func(p *corev1.Pod, _ *corev1.Container) {
				p.Spec.InitContainers = []corev1.Container{{Name: "istio-proxy", Image: "proxy:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
				p.Spec.Containers = append([]corev1.Container{{Name: "vault", Image: "vault:2", Args: []string{"a"}}}, p.Spec.Containers...)
				p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "busybox"}}}
			},
			want: []string{"container vault: added vault:2", "ephemeral container debugger: added busybox", "init container istio-proxy: added proxy:1"},
		},
		"another program": {
			change: func(_ *corev1.Pod, c *corev1.Container) {
				c.Image = "mirror.example.com/bench:v0"
				c.Command = append([]string{"/sbin/tini", "--"}, c.Command...)
				c.Args = nil
			},
			want: []string{
				"args: removed server", "command: /sbin/tini -- /usr/local/bin/tailgate-agent instead of /usr/local/bin/tailgate-agent",
				"image: mirror.example.com/bench:v0 instead of registry.example.com/tailgate/bench:v0",
			},
		},
		"another environment, without its values": {
			change: func(_ *corev1.Pod, c *corev1.Container) {
				c.Env[0].Value = "{}"
				c.Env[1].ValueFrom.FieldRef.FieldPath = "metadata.name"
				c.Env = append(c.Env[:2], corev1.EnvVar{Name: "PASSWORD", Value: "secret"})
				c.EnvFrom = []corev1.EnvFromSource{{Prefix: "X"}}
			},
			want: []string{
				"env PASSWORD: added", "env TAILGATE_KEY: removed", "env TAILGATE_NODE: changed", "env TAILGATE_POD_IP: removed",
				"env TAILGATE_TASK: changed", "envFrom: added",
			},
		},
		"the node's namespaces": {
			change: func(p *corev1.Pod, _ *corev1.Container) {
				p.Spec.HostNetwork, p.Spec.HostPID, p.Spec.HostIPC, p.Spec.ShareProcessNamespace = true, true, true, nil
			},
			want: []string{"hostIPC: added", "hostNetwork: added", "hostPID: added", "shareProcessNamespace: removed"},
		},
		"other privileges": {
			change: func(p *corev1.Pod, c *corev1.Container) {
				p.Spec.SecurityContext.RunAsUser, p.Spec.SecurityContext.FSGroup = new(int64(0)), nil
				c.SecurityContext.Privileged = new(true)
				c.SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
			},
			want: []string{
				`securityContext capabilities: {"add":["SYS_ADMIN"],"drop":["ALL"]} instead of {"drop":["ALL"]}`, "securityContext privileged: added true",
				"user: root instead of not root",
			},
		},
		"no security contexts": {
			change: func(p *corev1.Pod, c *corev1.Container) {
				p.Spec.SecurityContext, c.SecurityContext = nil, nil
			},
			want: []string{
				"securityContext allowPrivilegeEscalation: removed false", `securityContext capabilities: removed {"drop":["ALL"]}`,
				"securityContext readOnlyRootFilesystem: removed true", `securityContext seccompProfile: removed {"type":"RuntimeDefault"}`,
				"user: removed not root",
			},
		},
		"another node": {
			change: func(p *corev1.Pod, _ *corev1.Container) { p.Spec.Affinity = onNode("elsewhere") },
			want:   []string{"node affinity nodeSelectorTerms: changed"},
		},
		"any node": {
			change: func(p *corev1.Pod, _ *corev1.Container) { p.Spec.Affinity = nil },
			want:   []string{"node affinity nodeSelectorTerms: removed"},
		},
		"a capability that is added and dropped": {
			change: func(_ *corev1.Pod, c *corev1.Container) {
				c.SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_RAW"}, Drop: []corev1.Capability{"ALL", "KILL", "NET_RAW"}}
			},
			want: []string{`securityContext capabilities: {"add":["NET_RAW"],"drop":["ALL","NET_RAW"]} instead of {"drop":["ALL"]}`},
		},
		"an image of another tag, resolved to a digest": {
			change: func(_ *corev1.Pod, c *corev1.Container) { c.Image = "registry.example.com/tailgate/bench:v1@" + digest },
			want:   []string{"image: changed"},
		},
		"a pod that is started again": {
			change: func(p *corev1.Pod, _ *corev1.Container) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways },
			want:   []string{"restartPolicy: Always instead of Never"},
		},
		"other networks": {
			change: func(p *corev1.Pod, _ *corev1.Container) { p.Annotations["k8s.v1.cni.cncf.io/networks"] = "macvlan" },
			want:   []string{"annotation k8s.v1.cni.cncf.io/networks: changed"},
		},
		"the network resources injector, with hugepages and a network's nodeSelector": {change: func(p *corev1.Pod, c *corev1.Container) {
			p.Spec.NodeSelector = map[string]string{"feature.node.kubernetes.io/network-sriov.capable": "true"}
			c.Env = append(c.Env, corev1.EnvVar{Name: "CONTAINER_NAME", Value: c.Name})
			inject(p, c)
		}},
		"the injector's path on a volume that can hold anything": {
			change: func(p *corev1.Pod, c *corev1.Container) {
				inject(p, c)
				p.Spec.Volumes[len(p.Spec.Volumes)-1].VolumeSource = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}
			},
			want: []string{"mount /etc/podnetinfo: added podnetinfo"},
		},
		"the injector's volume at another path": {
			change: func(p *corev1.Pod, c *corev1.Container) {
				inject(p, c)
				c.VolumeMounts[len(c.VolumeMounts)-1].MountPath = "/etc/ld.so.preload"
			},
			want: []string{"mount /etc/ld.so.preload: added podnetinfo"},
		},
		"a variable of the injector's name with another value": {
			change: func(_ *corev1.Pod, c *corev1.Container) {
				c.Env = append(c.Env, corev1.EnvVar{Name: "CONTAINER_NAME", Value: "other"})
			},
			want: []string{"env CONTAINER_NAME: added"},
		},
		"another runtime, and a selector": {
			change: func(p *corev1.Pod, _ *corev1.Container) {
				p.Spec.RuntimeClassName = nil
				p.Spec.NodeSelector = map[string]string{"pool": "a"}
			},
			want: []string{"runtimeClassName: removed performance-low-latency"},
		},
		"volumes": {
			change: func(p *corev1.Pod, c *corev1.Container) {
				token := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}
				p.Spec.Volumes = []corev1.Volume{
					{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
					{Name: "dev", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev"}}},
					{Name: "api", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{token}}}},
				}
				c.VolumeMounts = []corev1.VolumeMount{{Name: "dev", MountPath: "/scratch"}, {Name: "api", MountPath: "/var/run/secrets"}}
				c.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/sdz"}}
			},
			want: []string{
				"device /dev/sdz: added disk", "mount /scratch: dev instead of scratch",
				"mount /var/run/secrets: added api", "volume api: added API token", "volume dev: added host path /dev",
				`volume scratch emptyDir: {"medium":"Memory"} instead of {}`,
			},
		},
		"probes": {
			change: func(_ *corev1.Pod, c *corev1.Container) {
				c.StartupProbe, c.LivenessProbe, c.ReadinessProbe, c.Lifecycle = &corev1.Probe{}, &corev1.Probe{}, &corev1.Probe{}, &corev1.Lifecycle{}
			},
			want: []string{"lifecycle: added", "livenessProbe: added", "readinessProbe: added", "startupProbe: added"},
		},
		"a long or multi-line value": {
			change: func(p *corev1.Pod, c *corev1.Container) {
				c.Args = []string{"server", "a\nb\x1b[1m"}
				c.Image = long
				p.Spec.InitContainers = []corev1.Container{{Name: long}}
			},
			want: []string{"args: server a b [1m instead of server", "image: changed", "init container " + strings.Repeat("x", 182) + "…"},
		},
		"no container of ours": {
			change: func(p *corev1.Pod, c *corev1.Container) { *c = corev1.Container{Name: "other", Image: "other:1"} },
			want: []string{
				"args: removed server", "command: removed /usr/local/bin/tailgate-agent", "container other: added other:1",
				"env TAILGATE_KEY: removed", "env TAILGATE_NODE: removed", "env TAILGATE_POD_IP: removed", "env TAILGATE_TASK: removed",
				"image: removed registry.example.com/tailgate/bench:v0",
				"limits amd.com/sf_pf: removed 1", "limits cpu: removed 2", "limits example.com/onload: removed 1", "limits hugepages-2Mi: removed 64Mi",
				"limits memory: removed 512Mi", "mount /scratch: removed scratch",
				"requests amd.com/sf_pf: removed 1", "requests cpu: removed 2", "requests example.com/onload: removed 1", "requests hugepages-2Mi: removed 64Mi",
				"requests memory: removed 512Mi", "securityContext allowPrivilegeEscalation: removed false",
				`securityContext capabilities: removed {"drop":["ALL"]}`, "securityContext readOnlyRootFilesystem: removed true",
				`securityContext seccompProfile: removed {"type":"RuntimeDefault"}`, "user: removed not root",
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			built, pod := returned(t)
			c.change(pod, &pod.Spec.Containers[0])
			if diff := cmp.Diff(c.want, Changed(built, pod)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// A pod that was not changed equals the pod that was built, for every benchmark and role.
func TestUnchanged(t *testing.T) {
	eachPod(t, func(t *testing.T, e Endpoint, pod *corev1.Pod) {
		if changes := Changed(build(t, e), pod); changes != nil {
			t.Errorf("got %q", changes)
		}
	})
}

func TestChangesAreBounded(t *testing.T) {
	built, pod := returned(t)
	for i := range 100 {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("X%02d", i)})
	}
	got := Changed(built, pod)
	if len(got) != 33 || got[0] != "env X00: added" || got[32] != "and 68 more" {
		t.Errorf("got %d entries: %q", len(got), got)
	}
}
