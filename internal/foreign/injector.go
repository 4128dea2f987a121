package foreign

import corev1 "k8s.io/api/core/v1"

// The network resources injector of the SR-IOV operator adds these to each pod whose network names a resource
// (github.com/k8snetworkplumbingwg/network-resources-injector, pkg/webhook/webhook.go and pkg/types/types.go at commit
// 61d01b9): a volume with the pod's labels, annotations and hugepages, and, for a container with hugepages, a variable with
// the container's name.
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
	for _, v := range pod.Spec.Volumes {
		if v.Name == m.Name {
			return v.DownwardAPI != nil
		}
	}
	return false
}

func InjectedVariable(c corev1.Container, e corev1.EnvVar) bool {
	return e.Name == injectorVariable && e.Value == c.Name && e.ValueFrom == nil
}
