package benchmark

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

// mountsTools adds the volume with the image of the sfnt tools.
func mountsTools(p *corev1.Pod) {
	source := corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "onload/sfnettest@sha256:0f"}}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "tools", VolumeSource: source})
}

func TestStartTrouble(t *testing.T) {
	event := func(reason, message string) corev1.Event { return corev1.Event{Reason: reason, Message: message} }
	const sandbox = `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "9f": plugin type="multus" failed (add): [perf/x-r1-a1-server:sf-vf]: error adding container to network "sf-vf": VF pci addr is required`
	// sandboxCRIO is the same error from CRI-O, with Multus as a daemon.
	const sandboxCRIO = `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to create pod network sandbox k8s_x-r1-a1-server_perf_d412daf1-cf3e-11e9-bd0c-2a0a29181891_0(37f14c5b023b1167937881afda453ffec91fdcf046d88d664f5ddda02ba07af5): error adding pod perf_x-r1-a1-server to CNI network "multus-cni-network": plugin type="multus-shim" name="multus-cni-network" failed (add): CmdAdd (shim): CNI request failed with status 400: 'ContainerID:"37f14c5b023b1167937881afda453ffec91fdcf046d88d664f5ddda02ba07af5" Netns:"/var/run/netns/0fc6eb2c-5b0a-4d4c-a1c1-6a7f2a0b7a53" IfName:"eth0" Args:"IgnoreUnknown=1;K8S_POD_NAMESPACE=perf;K8S_POD_NAME=x-r1-a1-server" Path:"" ERRORED: error configuring pod [perf/x-r1-a1-server] networking: [perf/x-r1-a1-server/d412daf1-cf3e-11e9-bd0c-2a0a29181891:sf-vf]: error adding container to network "sf-vf": VF pci addr is required
'`
	cases := map[string]struct {
		pod    []func(*corev1.Pod)
		events []corev1.Event
		want   string
		// wantMessage are parts of the message; nil: nothing is wrong yet.
		wantMessage []string
		wantFinal   bool
	}{
		"a pod that is on its way": {
			want: v1alpha1.OutcomeStartTimeout,
		},
		"a container that is being made": {
			pod:  []func(*corev1.Pod){waiting("ContainerCreating", "")},
			want: v1alpha1.OutcomeStartTimeout,
		},
		"an image that could not be pulled": {
			pod:  []func(*corev1.Pod){waiting("ErrImagePull", `rpc error: code = NotFound desc = failed to pull and unpack image "bench:v0"`)},
			want: v1alpha1.OutcomeImagePullFailed, wantMessage: []string{"bench:v0", "ErrImagePull", "--bench-image"},
		},
		"an image that is not tried again yet": {
			pod:  []func(*corev1.Pod){waiting("ImagePullBackOff", `Back-off pulling image "bench:v0"`)},
			want: v1alpha1.OutcomeImagePullFailed, wantMessage: []string{"bench:v0"},
		},
		"the image with the tools is not tried again yet": {
			pod:  []func(*corev1.Pod){mountsTools, waiting("ImagePullBackOff", `Back-off pulling image "onload/sfnettest@sha256:0f": ErrImagePull: not found`)},
			want: v1alpha1.OutcomeImagePullFailed, wantMessage: []string{"image onload/sfnettest@sha256:0f cannot be pulled", "the operator's --sfnettest-image and"},
		},
		"the bench image of a pod with tools": {
			pod:  []func(*corev1.Pod){mountsTools, waiting("ImagePullBackOff", `Back-off pulling image "bench:v0"`)},
			want: v1alpha1.OutcomeImagePullFailed, wantMessage: []string{"image bench:v0 cannot be pulled", "the operator's --bench-image and"},
		},
		"a runtime that names neither image": {
			pod:  []func(*corev1.Pod){mountsTools, waiting("ErrImagePull", "unexpected status 503")},
			want: v1alpha1.OutcomeImagePullFailed, wantMessage: []string{"image bench:v0 or onload/sfnettest@sha256:0f", "--bench-image and --sfnettest-image"},
		},
		"an image without the signature that CRI-O's policy requires": {
			pod:  []func(*corev1.Pod){waiting("SignatureValidationFailed", "image pull failed for bench:v0 because the signature validation failed: Source image rejected")},
			want: v1alpha1.OutcomeImagePullFailed, wantMessage: []string{"SignatureValidationFailed"},
		},
		"a registry that CRI-O does not reach": {
			pod:  []func(*corev1.Pod){waiting("RegistryUnavailable", "image pull failed for bench:v0 because the registry is unavailable")},
			want: v1alpha1.OutcomeImagePullFailed, wantMessage: []string{"RegistryUnavailable"},
		},
		"a device that CRI-O's Multus was not given": {
			events: []corev1.Event{event("FailedCreatePodSandBox", sandboxCRIO)},
			want:   v1alpha1.OutcomeDeviceMissing, wantFinal: true, wantMessage: []string{"VF pci addr is required", `network "sf-vf"`},
		},
		"an executable that CRI-O's crun does not find": {
			pod:  []func(*corev1.Pod){waiting("CreateContainerError", "container create failed: executable file `/usr/local/bin/agent` not found: No such file or directory")},
			want: v1alpha1.OutcomeContainerConfig, wantMessage: []string{"CreateContainerError", "container create failed", "not found"},
		},
		"an image that must not be pulled": {
			pod:  []func(*corev1.Pod){waiting("ErrImageNeverPull", "")},
			want: v1alpha1.OutcomeImagePullFailed, wantMessage: []string{"ErrImageNeverPull"},
		},
		"an image that is not a bench image": {
			pod:  []func(*corev1.Pod){waiting("InvalidImageName", "")},
			want: v1alpha1.OutcomeImagePullFailed,
		},
		"an image that cannot be read": {
			pod:  []func(*corev1.Pod){waiting("ImageInspectError", "")},
			want: v1alpha1.OutcomeImagePullFailed,
		},
		"a container that cannot be configured": {
			pod:  []func(*corev1.Pod){waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")},
			want: v1alpha1.OutcomeContainerConfig, wantMessage: []string{"runAsNonRoot"},
		},
		"a container that cannot be created": {
			pod:  []func(*corev1.Pod){waiting("CreateContainerError", "context deadline exceeded")},
			want: v1alpha1.OutcomeContainerConfig,
		},
		"a pod that fits nowhere": {
			pod:  []func(*corev1.Pod){unscheduled("0/2 nodes are available: 1 Insufficient amd.com/sf_vf, 1 node(s) didn't match Pod's node affinity/selector.")},
			want: v1alpha1.OutcomeUnschedulable, wantMessage: []string{"on b", "Insufficient amd.com/sf_vf", "free what the message names"},
		},
		"a network that cannot be set up": {
			events: []corev1.Event{event("FailedCreatePodSandBox", sandbox)},
			want:   v1alpha1.OutcomeDeviceMissing, wantMessage: []string{"VF pci addr is required", "on b", "resourceName"}, wantFinal: true,
		},
		"a PF that is not in the plugin's configuration": {
			events: []corev1.Event{event("FailedCreatePodSandBox", `plugin type="multus" failed (add): error adding container to network "sf-pf": specify either "device", "hwaddr", "kernelpath" or "pciBusID"`)},
			want:   v1alpha1.OutcomeDeviceMissing, wantMessage: []string{"pciBusID", "no device"}, wantFinal: true,
		},
		"a device that is still being reset": {
			events: []corev1.Event{event("FailedCreatePodSandBox", `error adding container to network "sf-vf": pci address 0000:3b:02.0 is already allocated`)},
			want:   v1alpha1.OutcomeNetworkFailed, wantMessage: []string{"already allocated", "on b", "/var/lib/cni/sriov/pci"},
		},
		"a network that Multus does not find": {
			events: []corev1.Event{event("NoNetworkFound", "cannot find a network-attachment-definition (sf-vf) in namespace (perf)")},
			want:   v1alpha1.OutcomeNetworkMissing, wantMessage: []string{"sf-vf", "create the NetworkAttachmentDefinition"}, wantFinal: true,
		},
		"a volume that cannot be mounted": {
			events: []corev1.Event{event("FailedMount", "MountVolume.SetUp failed")},
			want:   v1alpha1.OutcomeContainerConfig, wantMessage: []string{"MountVolume.SetUp"},
		},
		"the newest event with a known reason is reported": {
			events: []corev1.Event{event("FailedCreatePodSandBox", "the old one"), event("FailedCreatePodSandBox", "the new one"), event("Unhealthy", "Startup probe failed")},
			want:   v1alpha1.OutcomeNetworkFailed, wantMessage: []string{"the new one"},
		},
		"an event with an unknown reason": {
			events: []corev1.Event{event("Unhealthy", "Startup probe failed")},
			want:   v1alpha1.OutcomeStartTimeout,
		},
		"the kubelet's own word comes before an event's": {
			pod:    []func(*corev1.Pod){waiting("ImagePullBackOff", "")},
			events: []corev1.Event{event("FailedCreatePodSandBox", sandbox)},
			want:   v1alpha1.OutcomeImagePullFailed,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := pods.StartTrouble(makePod(makeWorld().benchmark, v1alpha1.RoleServer, c.pod...), c.events)
			if got.Outcome != c.want || (got.Message() == "") != (c.wantMessage == nil && c.want == v1alpha1.OutcomeStartTimeout) {
				t.Errorf("got %s (%q), want %s", got.Outcome, got.Message(), c.want)
			}
			if got.Final != c.wantFinal {
				t.Errorf("final: %t", got.Final)
			}
			for _, part := range c.wantMessage {
				if !strings.Contains(got.Message(), part) {
					t.Errorf("message %q does not say %q", got.Message(), part)
				}
			}
		})
	}
}

// asking makes a pod request extended resources.
func asking(names ...corev1.ResourceName) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		for _, name := range names {
			list[name] = resource.MustParse("1")
		}
		p.Spec.Containers = []corev1.Container{{Name: pods.Container, Resources: corev1.ResourceRequirements{Requests: list}}}
	}
}

func TestPodFailure(t *testing.T) {
	// ended makes the container one that ended without a message of the agent.
	ended := func(reason string, exitCode int32, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			failed(0, message)(p)
			p.Status.ContainerStatuses[0].State.Terminated.Reason = reason
			p.Status.ContainerStatuses[0].State.Terminated.ExitCode = exitCode
		}
	}
	cases := map[string]struct {
		pod  []func(*corev1.Pod)
		want string
		// wantMessage are parts of the message.
		wantMessage []string
	}{
		"CPUs and device on two NUMA nodes": {
			pod:  []func(*corev1.Pod){refused("TopologyAffinityError", "Resources cannot be allocated with Topology locality")},
			want: v1alpha1.OutcomeTopologyAffinity, wantMessage: []string{"kubelet of b", "server", "NUMA", "free CPUs"},
		},
		"half a core was asked for": {
			pod:  []func(*corev1.Pod){refused("SMTAlignmentError", "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2")},
			want: v1alpha1.OutcomeSMTAlignment, wantMessage: []string{"whole cores", "cpus per core = 2", "placement.cpus"},
		},
		"a device that went away": {
			pod:  []func(*corev1.Pod){asking("amd.com/sf_vf"), refused("UnexpectedAdmissionError", "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices amd.com/sf_vf, which is unexpected")},
			want: v1alpha1.OutcomeDevicePluginUnavailable, wantMessage: []string{"kubelet of b", "no healthy devices", "device plugin"},
		},
		"a device plugin that has just ended": {
			pod:  []func(*corev1.Pod){asking("amd.com/sf_vf", "amd.com/onload"), refused("UnexpectedAdmissionError", "Allocate failed due to rpc error: code = Unavailable desc = connection error, which is unexpected")},
			want: v1alpha1.OutcomeDevicePluginUnavailable, wantMessage: []string{"no device of amd.com/onload or amd.com/sf_vf", "does not count"},
		},
		"another resource that cannot be allocated": {
			pod:  []func(*corev1.Pod){asking("amd.com/sf_vf"), refused("UnexpectedAdmissionError", "Allocate failed due to not enough cpus available to satisfy request: requested=2, available=1, which is unexpected")},
			want: v1alpha1.OutcomeUnexpectedAdmission, wantMessage: []string{"not enough cpus"},
		},
		"CPUs that another pod took": {
			pod:  []func(*corev1.Pod){refused("OutOfcpu", "Node didn't have enough resource: cpu, requested: 2000, used: 3100, capacity: 4000")},
			want: v1alpha1.OutcomeAdmissionRejected, wantMessage: []string{"OutOfcpu"},
		},
		"evicted": {
			pod:  []func(*corev1.Pod){refused("Evicted", "The node was low on resource: memory.")},
			want: v1alpha1.OutcomeEvicted, wantMessage: []string{"from b", "low on resource"},
		},
		"preempted by the kubelet": {
			pod:  []func(*corev1.Pod){refused("Preempting", "Preempted in order to admit critical pod")},
			want: v1alpha1.OutcomeEvicted,
		},
		"shut down with its node": {
			pod:  []func(*corev1.Pod){refused("Terminated", "Pod was terminated in response to imminent node shutdown.")},
			want: v1alpha1.OutcomeEvicted, wantMessage: []string{"imminent node shutdown"},
		},
		"its node was lost": {
			pod:  []func(*corev1.Pod){refused("NodeLost", "Node b which was running pod is unresponsive")},
			want: v1alpha1.OutcomeNodeLost, wantMessage: []string{"node b"},
		},
		"its own deadline passed": {
			pod:  []func(*corev1.Pod){refused("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")},
			want: v1alpha1.OutcomeDeadlineExceeded, wantMessage: []string{"active deadline"},
		},
		"the agent says why": {
			pod:  []func(*corev1.Pod){failed(0, `{"reason":"WrongNetwork","message":"the pod has no interface net1: the network was not attached"}`)},
			want: v1alpha1.OutcomeWrongNetwork, wantMessage: []string{"server on b", "net1"},
		},
		"the agent's word comes before how its container ended": {
			pod:  []func(*corev1.Pod){ended("OOMKilled", 137, `{"reason":"ToolFailed","message":"sockperf: killed"}`)},
			want: v1alpha1.OutcomeToolFailed,
		},
		"out of memory": {
			pod:  []func(*corev1.Pod){ended("OOMKilled", 137, "")},
			want: v1alpha1.OutcomeOOMKilled, wantMessage: []string{"placement.memory"},
		},
		"an image without an agent": {
			pod:  []func(*corev1.Pod){ended("StartError", 128, `failed to create containerd task: failed to create shim task: OCI runtime create failed: exec: "/usr/local/bin/tailgate-agent": stat: no such file or directory`)},
			want: v1alpha1.OutcomeContainerConfig, wantMessage: []string{"tailgate-agent", "--bench-image"},
		},
		"an image of another processor": {
			pod:  []func(*corev1.Pod){ended("ContainerCannotRun", 126, "exec format error")},
			want: v1alpha1.OutcomeContainerConfig, wantMessage: []string{"exec format error"},
		},
		"an agent that died without a word": {
			pod:  []func(*corev1.Pod){ended("Error", 139, "")},
			want: v1alpha1.OutcomeAgentFailed, wantMessage: []string{"exit code 139", "server"},
		},
		"a message that is not the agent's": {
			pod:  []func(*corev1.Pod){ended("Error", 2, "panic: something")},
			want: v1alpha1.OutcomeAgentFailed, wantMessage: []string{"exit code 2"},
		},
		"a digest is no reason": {
			pod:  []func(*corev1.Pod){ended("Error", 1, `{"digest":"00"}`)},
			want: v1alpha1.OutcomeAgentFailed,
		},
		"another container does not count": {
			pod: []func(*corev1.Pod){ended("Error", 1, ""), func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].Name = "injected"
			}},
			want: v1alpha1.OutcomePodLost, wantMessage: []string{"for an unknown reason"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			trouble := pods.FailureOf(makePod(makeWorld().benchmark, v1alpha1.RoleServer, c.pod...))
			reason, message := trouble.Outcome, trouble.Message()
			if reason != c.want {
				t.Errorf("got %s (%s), want %s", reason, message, c.want)
			}
			for _, part := range c.wantMessage {
				if !strings.Contains(message, part) {
					t.Errorf("message %q does not say %q", message, part)
				}
			}
		})
	}
}

// Text from outside is bounded, whole and on one line: messages of conditions are read in tables.
func TestOneLine(t *testing.T) {
	if got, want := oneLine("  two\n\tlines \r\n"), "two lines"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	long := oneLine(strings.Repeat("ä", 5000))
	if len(long) > 410 || !utf8.ValidString(long) || !strings.HasSuffix(long, "ä…") {
		t.Errorf("a long one became %d bytes, valid: %t, ending in %q", len(long), utf8.ValidString(long), long[len(long)-6:])
	}
}

// A pod that is refused before it has a node in its spec is reported with the node for which it was created.
func TestFailureOfAnUnboundPod(t *testing.T) {
	p := makePod(makeWorld().benchmark, v1alpha1.RoleClient, refused("Evicted", ""), func(p *corev1.Pod) { p.Spec.NodeName = "" })
	b := makeWorld().benchmark
	built, err := pods.Build(pods.Endpoint{Benchmark: b, Node: "a", Variant: plan.Variants(b.Spec)[0]})
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.Affinity = built.Spec.Affinity
	if message := pods.FailureOf(p).Message(); !strings.Contains(message, "from a") {
		t.Errorf("message %q does not name node a", message)
	}
}
