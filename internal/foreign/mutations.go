package foreign

import "strings"

// OptOutLabels and OptOutAnnotations of a pod ask admission webhooks not to add to it what takes CPUs and changes its
// network: the proxies of Istio, Kuma, Linkerd and Consul, the collector of OpenTelemetry, and what Datadog's admission
// controller injects. Where a namespace does not inject, they mean nothing.
func OptOutLabels() map[string]string {
	return map[string]string{
		"sidecar.istio.io/inject":         "false",
		"kuma.io/sidecar-injection":       "disabled",
		"admission.datadoghq.com/enabled": "false",
	}
}

// OptOutAnnotations are those that are annotations; see OptOutLabels.
func OptOutAnnotations() map[string]string {
	return map[string]string{
		"linkerd.io/inject":                   "disabled",
		"consul.hashicorp.com/connect-inject": "false",
		"sidecar.opentelemetry.io/inject":     "false",
	}
}

// SetsUpPod says whether an annotation of a pod changes its networks, their bandwidth, or how the container runtime sets up
// its CPUs: Multus', the bandwidth plugin's and CRI-O's.
func SetsUpPod(annotation string) bool {
	switch annotation {
	case AnnotationNetworks, "v1.multus-cni.io/default-network", "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth":
		return true
	}
	return strings.HasSuffix(annotation, ".crio.io")
}

// UnreadVariable says whether an environment variable is of those that observability and proxy webhooks add to every
// container, and that neither the agent nor any tool reads.
func UnreadVariable(name string) bool {
	switch name = strings.ToUpper(name); name {
	case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY":
		return true
	}
	return strings.HasPrefix(name, "DD_") || strings.HasPrefix(name, "OTEL_")
}
