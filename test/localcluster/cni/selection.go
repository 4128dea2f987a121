package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
)

// Annotations of the network attachment specification.
const (
	// AnnotationNetworks, on a pod, lists the networks to attach.
	AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"
	// AnnotationStatus, on a pod, describes the attached networks.
	AnnotationStatus = "k8s.v1.cni.cncf.io/network-status"
	// AnnotationResource, on a NetworkAttachmentDefinition, names the extended resource of its devices.
	AnnotationResource = "k8s.v1.cni.cncf.io/resourceName"
)

// maxInterfaceName is the maximum length of an interface name in bytes (IFNAMSIZ without the terminating zero).
const maxInterfaceName = 15

// Selection is one network that a pod requests.
type Selection struct {
	// Name and Namespace identify the NetworkAttachmentDefinition.
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	// Interface is the requested name in the pod; empty: net and the position in the annotation, from 1.
	Interface string `json:"interface,omitempty"`
	// IPs are the requested addresses, with or without a prefix length.
	IPs []string `json:"ips,omitempty"`
	// MAC is the requested hardware address.
	MAC string `json:"mac,omitempty"`
}

var attachmentName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// ParseSelections parses the networks annotation of a pod in podNamespace: the short form
// "[namespace/]name[@interface],...", or a JSON list. Like Multus, it treats anything with an opening bracket, an
// opening brace or a quotation mark as JSON. An empty annotation requests nothing.
func ParseSelections(annotation, podNamespace string) ([]Selection, error) {
	if annotation == "" {
		return nil, nil
	}
	var selections []Selection
	if strings.ContainsAny(annotation, `[{"`) {
		if err := json.Unmarshal([]byte(annotation), &selections); err != nil {
			return nil, fmt.Errorf("parsing the networks annotation as JSON: %w", err)
		}
	} else {
		for item := range strings.SplitSeq(annotation, ",") {
			s, err := parseShort(strings.TrimSpace(item))
			if err != nil {
				return nil, fmt.Errorf("parsing the networks annotation: %w", err)
			}
			selections = append(selections, s)
		}
	}
	for i := range selections {
		if selections[i].Namespace == "" {
			selections[i].Namespace = podNamespace
		}
		if err := selections[i].check(); err != nil {
			return nil, fmt.Errorf("network %d of the networks annotation: %w", i+1, err)
		}
	}
	return selections, nil
}

func parseShort(item string) (Selection, error) {
	var s Selection
	namespace, rest, ok := strings.Cut(item, "/")
	if !ok {
		namespace, rest = "", item
	}
	if strings.Contains(rest, "/") {
		return Selection{}, fmt.Errorf("%q has more than one slash", item)
	}
	name, ifName, ok := strings.Cut(rest, "@")
	if ok && strings.Contains(ifName, "@") {
		return Selection{}, fmt.Errorf("%q has more than one @", item)
	}
	s.Namespace, s.Name, s.Interface = strings.TrimSpace(namespace), strings.TrimSpace(name), strings.TrimSpace(ifName)
	return s, nil
}

func (s Selection) check() error {
	if s.Name == "" {
		return errors.New("no name")
	}
	for _, name := range []string{s.Name, s.Namespace} {
		if !attachmentName.MatchString(name) {
			return fmt.Errorf("%q is not a DNS label", name)
		}
	}
	if len(s.Interface) > maxInterfaceName || strings.ContainsAny(s.Interface, " \t\n\v\f\r/") {
		return fmt.Errorf("interface name %q: at most %d characters, no slash, no space", s.Interface, maxInterfaceName)
	}
	if s.MAC != "" {
		if _, err := net.ParseMAC(s.MAC); err != nil {
			return fmt.Errorf("mac: %w", err)
		}
	}
	for _, ip := range s.IPs {
		if _, _, err := net.ParseCIDR(ip); err != nil && net.ParseIP(ip) == nil {
			return fmt.Errorf("%q is neither an address nor an address with a prefix length", ip)
		}
	}
	return nil
}
