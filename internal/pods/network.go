package pods

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
)

// NetworkName names a variant's NetworkAttachmentDefinition: the referenced one or, with ipam, the
// operator's, after the benchmark and, if the variant has its own network, the variant.
func NetworkName(b *v1alpha1.LatencyBenchmark, v v1alpha1.Variant) (namespace, name string) {
	if ref := v.Network.NetworkRef(); ref != nil {
		return cmp.Or(ref.Namespace, b.Namespace), ref.Name
	}
	if slices.ContainsFunc(b.Spec.Variants, func(s v1alpha1.Variant) bool { return s.Name == v.Name && s.Network != nil }) {
		return b.Namespace, b.Name + "-" + v.Name
	}
	return b.Namespace, b.Name
}

// Network returns the NetworkAttachmentDefinition that the operator creates, nil without ipam.
func Network(b *v1alpha1.LatencyBenchmark, v v1alpha1.Variant) *unstructured.Unstructured {
	n, ipam := v.Network, v.Network.IPAM()
	if ipam == nil {
		return nil
	}
	device := foreign.CNIPlugin{Type: "host-device"}
	if n.VF != nil {
		device = foreign.CNIPlugin{Type: "sriov", VLAN: n.VF.VLAN}
	}
	switch ipam.Type {
	case v1alpha1.IPAMWhereabouts:
		device.IPAM = &foreign.CNIIPAM{Type: "whereabouts", Range: ipam.Range, RangeStart: ipam.RangeStart}
	case v1alpha1.IPAMStatic:
		device.IPAM = &foreign.CNIIPAM{Type: "static"}
		device.Capabilities = map[string]bool{"ips": true}
	}
	plugins := []foreign.CNIPlugin{device}
	if mtu := n.MTU(); mtu != 0 {
		plugins = append(plugins, foreign.CNIPlugin{Type: "tuning", MTU: mtu})
	}

	namespace, name := NetworkName(b, v)
	definition := foreign.Definition(namespace, name, n.ResourceName(), foreign.NetworkConfig{CNIVersion: foreign.CNIVersion, Name: name, Plugins: plugins})
	definition.SetLabels(Labels(b.Name))
	definition.SetOwnerReferences([]metav1.OwnerReference{Owner(b)})
	return definition
}

func selection(e Endpoint) (foreign.Selection, error) {
	namespace, name := NetworkName(e.Benchmark, e.Variant)
	s := foreign.Selection{Name: name, Namespace: namespace, Interface: Interface}
	if ipam := e.Variant.Network.IPAM(); ipam != nil && ipam.Type == v1alpha1.IPAMStatic {
		server, client, err := StaticAddresses(*ipam)
		if err != nil {
			return foreign.Selection{}, err
		}
		s.IPs = []string{server.String()}
		if e.Task.Role == v1alpha1.RoleClient {
			s.IPs = []string{client.String()}
		}
	}
	return s, nil
}

type FieldError struct {
	Path  string // below the member of the network's type
	Cause error
}

func (e *FieldError) Error() string { return e.Path + ": " + e.Cause.Error() }

// StaticAddresses returns both addresses in a range of type Static, or a FieldError of it.
func StaticAddresses(i v1alpha1.IPAM) (server, client netip.Prefix, err error) {
	subnet, err := netip.ParsePrefix(i.Range)
	if err != nil {
		return server, client, &FieldError{"ipam.range", fmt.Errorf("%w; give a subnet, such as 192.168.40.0/24", err)}
	}
	subnet = subnet.Masked()
	first := subnet.Addr().Next()
	if i.RangeStart != "" {
		if first, err = netip.ParseAddr(i.RangeStart); err != nil {
			return server, client, &FieldError{"ipam.rangeStart", fmt.Errorf("%w; give an address of %s", err, subnet)}
		}
	}
	second := first.Next()
	// The last address of an IPv4 subnet is its broadcast address.
	broadcast := second.Is4() && !subnet.Contains(second.Next())
	if first == subnet.Addr() || !subnet.Contains(first) || !subnet.Contains(second) || broadcast {
		return server, client, &FieldError{"ipam.rangeStart", fmt.Errorf(
			"%s and the address after it are not two host addresses of %s; give an earlier or later one, or a larger ipam.range", first, subnet)}
	}
	return netip.PrefixFrom(first, subnet.Bits()), netip.PrefixFrom(second, subnet.Bits()), nil
}

// StaticBlocks returns the rangeStart of up to limit pairs in a Static range: blocks of two.
func StaticBlocks(i v1alpha1.IPAM, limit int) []string {
	var starts []string
	for len(starts) < limit {
		server, client, err := StaticAddresses(i)
		if err != nil {
			break
		}
		starts = append(starts, server.Addr().String())
		i.RangeStart = client.Addr().Next().String()
	}
	return starts
}

// Address returns the server pod's address on the measured network, or "" and what is missing.
func Address(b *v1alpha1.LatencyBenchmark, v v1alpha1.Variant, pod *corev1.Pod) (address, missing string) {
	if !v.Network.Type.Attached() {
		// With host network the pod's address is the node's.
		return AddressOn(pod, "")
	}
	namespace, name := NetworkName(b, v)
	return AddressOn(pod, namespace+"/"+name)
}

// AddressOn returns a pod's address on namespace/name, or its own without one; or what is missing.
func AddressOn(pod *corev1.Pod, network string) (address, missing string) {
	if network == "" {
		if pod.Status.PodIP == "" {
			return "", "the server's pod has no address"
		}
		if other := foreign.OtherPrimary(pod.Annotations[foreign.AnnotationNetworkStatus], pod.Status.PodIP); other != "" {
			return "", fmt.Sprintf("the namespace has a primary user-defined network: the server's address there, %s, is not that of the pod's status, %s, which is locked; "+
				"measure in a namespace without one", other, pod.Status.PodIP)
		}
		return pod.Status.PodIP, ""
	}
	annotation, ok := pod.Annotations[foreign.AnnotationNetworkStatus]
	if !ok {
		return "", fmt.Sprintf("the server's pod has no annotation %s; is Multus the node's CNI plugin?", foreign.AnnotationNetworkStatus)
	}
	status, err := foreign.FindStatus(annotation, network, Interface)
	if err != nil {
		return "", err.Error()
	}
	if len(status.IPs) == 0 {
		return "", fmt.Sprintf("network %s gave the server no address; give its NetworkAttachmentDefinition an ipam section; if it has one, update Multus: 4.1.0 leaves out the addresses of some plugins, 4.1.2 does not", network)
	}
	// IPv4 is measured if there is one, as every tool supports it; so does the agent.
	for _, ip := range status.IPs {
		if parsed := net.ParseIP(ip); parsed != nil && parsed.To4() != nil {
			return ip, ""
		}
	}
	return status.IPs[0], ""
}
