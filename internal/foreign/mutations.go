package foreign

import (
	"slices"
	"strings"
)

// OptOutLabels and OptOutAnnotations ask admission webhooks not to add to a pod what takes CPUs or
// changes its network: the proxies of Istio, Kuma, Linkerd and Consul, OpenTelemetry's collector,
// Dynatrace's agent, all of Datadog's. They also ask meshes that redirect traffic without a
// container to leave it alone: Istio's ambient mode from 1.23 on, and Kmesh, read the mode's label.
// They have no effect in a namespace without either.
func OptOutLabels() map[string]string {
	return map[string]string{
		"sidecar.istio.io/inject":         "false",
		"istio.io/dataplane-mode":         "none",
		"kuma.io/sidecar-injection":       "disabled",
		"admission.datadoghq.com/enabled": "false",
	}
}

// OptOutAnnotations returns the annotations with the same purpose; see OptOutLabels. Istio's ambient mode up to 1.22 reads its
// annotation.
func OptOutAnnotations() map[string]string {
	return map[string]string{
		annotationAmbient:                     "disabled",
		"linkerd.io/inject":                   "disabled",
		"consul.hashicorp.com/connect-inject": "false",
		"sidecar.opentelemetry.io/inject":     "false",
		"oneagent.dynatrace.com/inject":       "false",
	}
}

// The annotations with which meshes report that they redirect a pod's traffic: Istio's ambient mode (enabled, or pending while
// the proxy does not take it over yet) and Kmesh (enabled).
const (
	annotationAmbient = "ambient.istio.io/redirection"
	annotationKmesh   = "kmesh.net/redirection"
)

// SetsUpPod reports whether an annotation of a pod changes its networks, their bandwidth, the path of its packets, or how the
// container runtime sets up its CPUs: the annotations of Multus, the bandwidth plugin, Kube-OVN, meshes, Cilium's proxy (up to
// 1.16) and CRI-O.
func SetsUpPod(annotation, value string) bool {
	switch annotation {
	case AnnotationNetworks, "v1.multus-cni.io/default-network", "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth",
		"policy.cilium.io/proxy-visibility", "io.cilium.proxy-visibility":
		return true
	case annotationAmbient, annotationKmesh:
		return value != "disabled"
	}
	// CRI-O also reads KEY.crio.io/CONTAINER, which wins over KEY.crio.io.
	domain, _, _ := strings.Cut(annotation, "/")
	// Kube-OVN puts the name of the network before its own.
	_, ovn, _ := strings.Cut(annotation, "ovn.kubernetes.io/")
	return slices.Contains([]string{"ingress_rate", "egress_rate", "latency", "limit", "loss", "jitter"}, ovn) ||
		strings.HasSuffix(domain, ".crio.io")
}

// UnreadVariable reports whether an environment variable is one that observability and proxy webhooks add to every
// container, and that neither the agent nor any tool reads.
func UnreadVariable(name string) bool {
	switch name = strings.ToUpper(name); name {
	case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY":
		return true
	}
	return strings.HasPrefix(name, "DD_") || strings.HasPrefix(name, "OTEL_")
}
