package foreign

import (
	"os"
	"strings"
	"testing"
)

// What a runtime, a plugin of it or an agent of the node reads is known by its domain; what others report or schedule by is left out.
func TestSetsUpPod(t *testing.T) {
	for want, keys := range map[bool][]string{
		true: {
			"io.kubernetes.cri-o.UnifiedCgroup.agent", "io.kubernetes.cri-o.PodLinuxResources", "io.containers.trace-syscall", "io.kubernetes.cri-o.userns-mode",
			"unified-cgroup.crio.io/agent", "cpu-quota.crio.io", "seccomp-profile.kubernetes.cri-o.io/agent",
			"rdt.resources.beta.kubernetes.io/pod", "io.kubernetes.cri.rdt-class", "blockio.resources.beta.kubernetes.io/container.agent", "closid.rdt.noderesource.dev/container.agent",
			"prefer-shared-cpus.resource-policy.nri.io/pod", "balloon.balloons.resource-policy.nri.io/pod", "scheduling-class.resource-policy.nri.io/pod", "devices.nri.io/container.agent",
			"ulimits.nri.containerd.io/container.agent", "prefer-shared-cpus.cri-resource-manager.intel.com/pod", "cdi.k8s.io/x", "run.oci.handler",
			"io.katacontainers.config.hypervisor.default_vcpus", "dev.gvisor.flag.debug", "container.apparmor.security.beta.kubernetes.io/agent",
			"qos.projectcalico.org/egressBandwidth", "qos.projectcalico.org/ingressPacketRate", "k8s.aliyun.com/egress-bandwidth", "kubernetes.io/ingress-bandwidth",
			"koordinator.sh/qosClass", "qosclass.crane.io/cpuset", "qos.gocrane.io/cpu-manager", "katalyst.kubewharf.io/qos_level", "volcano.sh/qos-level", "ovn.kubernetes.io/mirror",
			"target.workload.openshift.io/management", "resources.workload.openshift.io/agent", "alibabacloud.com/qosClass", "cpuset-scheduler", "cpu-policy",
			"volcano.sh/preemptable", "volcano.sh/cache-limit", "volcano.sh/quota-turbo",
		},
		false: {
			"k8s.v1.cni.cncf.io/network-status", "cni.projectcalico.org/podIP", "k8s.ovn.org/pod-networks", "kubernetes.io/psp", "cluster-autoscaler.kubernetes.io/safe-to-evict",
			"scheduling.volcano.sh/group-name", "ovn.kubernetes.io/ip_address", "notcrio.io/x", "kyverno.io/nri.io", "control",
		},
	} {
		for _, key := range keys {
			if SetsUpPod(key, "x") != want {
				t.Errorf("%s: %t", key, !want)
			}
		}
	}
}

// The policy over the manager refuses annotations of the same domains.
func TestPolicyKnowsRuntimes(t *testing.T) {
	policy, err := os.ReadFile("../../config/policy/manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	domains := strings.ReplaceAll(strings.Join(runtimeDomains, "|"), ".", "[.]")
	if want := "(^|[.])(" + domains + ")$|^(" + domains + ")[.]"; !strings.Contains(string(policy), want) {
		t.Errorf("config/policy/manager.yaml lacks %s", want)
	}
}
