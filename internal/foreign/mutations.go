package foreign

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// OptOutLabels and OptOutAnnotations ask webhooks not to add to a pod what takes CPUs or changes
// its network: the proxies of Istio, Kuma, Linkerd and Consul, OpenTelemetry's collector,
// Dynatrace's agent, all of Datadog's, Istio's ambient mode from 1.23 on, and Kmesh.
func OptOutLabels() map[string]string {
	return map[string]string{
		"sidecar.istio.io/inject":         "false",
		"istio.io/dataplane-mode":         "none",
		"kuma.io/sidecar-injection":       "disabled",
		"admission.datadoghq.com/enabled": "false",
	}
}

// OptOutAnnotations returns those of OptOutLabels' purpose: Istio's ambient mode up to 1.22.
func OptOutAnnotations() map[string]string {
	return map[string]string{
		annotationAmbient:                     "disabled",
		"linkerd.io/inject":                   "disabled",
		"consul.hashicorp.com/connect-inject": "false",
		"sidecar.opentelemetry.io/inject":     "false",
		"oneagent.dynatrace.com/inject":       "false",
	}
}

// Meshes that redirect traffic: Istio's ambient mode (pending until the proxy is ready), Kmesh.
const (
	annotationAmbient = "ambient.istio.io/redirection"
	annotationKmesh   = "kmesh.net/redirection"
)

// Domains of annotations and labels by which runtimes and agents of nodes set up a pod: CPUs,
// cache, cgroups, devices, hooks, system calls, networks, kernel. All below a domain belong to it.
var runtimeDomains = []string{
	"crio.io", "cri-o.io", "containerd.io", "nri.io", "noderesource.dev", "cdi.k8s.io", "io.kubernetes.cri", "io.kubernetes.cri-o", "io.containers", "run.oci",
	"io.katacontainers", "dev.gvisor", "rdt.resources.beta.kubernetes.io", "blockio.resources.beta.kubernetes.io",
	"seccomp.security.alpha.kubernetes.io", "container.seccomp.security.alpha.kubernetes.io", "container.apparmor.security.beta.kubernetes.io",
	"cri-resource-manager.intel.com", "koordinator.sh", "gocrane.io", "crane.io", "katalyst.kubewharf.io",
	"qos.projectcalico.org", "bandwidth.cilium.io", "networking.gke.io", "tke.cloud.tencent.com",
	"org.systemd", "org.criu", "org.opencontainers", "module.wasm.image", "multus-cni.io", "workload.openshift.io", "alibabacloud.com",
}

// ofRuntime is true for keys of these domains, and older ones: io.kubernetes.cri-o.userns-mode.
func ofRuntime(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return slices.ContainsFunc(runtimeDomains, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d) || strings.HasPrefix(domain, d+".")
	})
}

// SetsUpPod reports whether an annotation or label changes a pod's networks, their bandwidth, the
// path of packets, or its setup: those of Multus, of plugins that limit the bandwidth, Kube-OVN,
// meshes, Cilium's proxy (up to 1.16), runtimes, their plugins and agents of nodes.
func SetsUpPod(annotation, value string) bool {
	switch annotation {
	case AnnotationNetworks, "v1.multus-cni.io/default-network", "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth",
		"policy.cilium.io/proxy-visibility", "io.cilium.proxy-visibility", "cpuset-scheduler", "cpu-policy",
		"volcano.sh/qos-level", "volcano.sh/preemptable", "volcano.sh/cache-limit", "volcano.sh/quota-turbo", "volcano.sh/enable-quota-burst", "volcano.sh/quota-burst-time":
		return true
	case annotationAmbient, annotationKmesh:
		return value != "disabled"
	}
	// Kube-OVN puts the name of the network before its own.
	_, ovn, _ := strings.Cut(annotation, "ovn.kubernetes.io/")
	_, name, _ := strings.Cut(annotation, "/")
	return slices.Contains([]string{"ingress_rate", "egress_rate", "latency", "limit", "loss", "jitter", "mirror"}, ovn) ||
		strings.Contains(strings.ToLower(name), "bandwidth") || ofRuntime(annotation)
}

// UnreadVariable reports whether webhooks add a variable that neither agent nor tools read.
func UnreadVariable(name string) bool {
	switch name = strings.ToUpper(name); name {
	case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY":
		return true
	}
	return strings.HasPrefix(name, "DD_") || strings.HasPrefix(name, "OTEL_")
}

// The network resources injector of the SR-IOV operator adds these to a pod whose network names a
// resource (k8snetworkplumbingwg/network-resources-injector, pkg/webhook and pkg/types, commit 61d01b9):
// a volume with the pod's labels, annotations and hugepages, and a variable with a container's name.
const (
	injectorVolume   = "podnetinfo"
	injectorPath     = "/etc/podnetinfo"
	injectorVariable = "CONTAINER_NAME"
)

// InjectedMount reports whether the injector added a mount: its own read-only view of the pod's
// metadata. Any other mount there, or kind of volume, is not the injector's.
func InjectedMount(pod *corev1.Pod, m corev1.VolumeMount) bool {
	if m.MountPath != injectorPath || m.Name != injectorVolume || !m.ReadOnly || m.SubPath != "" || m.SubPathExpr != "" {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.DownwardAPI != nil })
}

func InjectedVariable(c corev1.Container, e corev1.EnvVar) bool {
	return e.Name == injectorVariable && e.Value == c.Name && e.ValueFrom == nil
}

// AnnotationMachineConfig is on each node that the Machine Config Operator of OpenShift manages.
const AnnotationMachineConfig = "machineconfiguration.openshift.io/currentConfig"

// StayAnnotations ask autoscalers and the descheduler to let a pod finish, which takes its time.
func StayAnnotations() map[string]string {
	return map[string]string{
		"cluster-autoscaler.kubernetes.io/safe-to-evict":     "false",
		"karpenter.sh/do-not-disrupt":                        "true",
		"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true",
	}
}
