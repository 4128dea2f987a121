package foreign

import "strings"

// OptOutLabels returns the labels that, with OptOutAnnotations, ask admission webhooks not to add anything to a pod that
// takes CPUs or changes its network: the proxies of Istio, Kuma, Linkerd and Consul, the collector of OpenTelemetry, and
// everything that Datadog's admission controller injects. They have no effect in a namespace without injection.
func OptOutLabels() map[string]string {
	return map[string]string{
		"sidecar.istio.io/inject":         "false",
		"kuma.io/sidecar-injection":       "disabled",
		"admission.datadoghq.com/enabled": "false",
	}
}

// OptOutAnnotations returns the annotations with the same purpose; see OptOutLabels.
func OptOutAnnotations() map[string]string {
	return map[string]string{
		"linkerd.io/inject":                   "disabled",
		"consul.hashicorp.com/connect-inject": "false",
		"sidecar.opentelemetry.io/inject":     "false",
	}
}

// SetsUpPod reports whether an annotation of a pod changes its networks, their bandwidth, or how the container runtime sets
// up its CPUs: the annotations of Multus, the bandwidth plugin and CRI-O.
func SetsUpPod(annotation string) bool {
	switch annotation {
	case AnnotationNetworks, "v1.multus-cni.io/default-network", "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth":
		return true
	}
	return strings.HasSuffix(annotation, ".crio.io")
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
