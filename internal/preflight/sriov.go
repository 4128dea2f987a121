package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func (c *choice) draining(n *corev1.Node) string {
	if s, ok := c.o.NodeStates[n.Name]; ok && s.Drains() != foreign.SriovIdle {
		return "being drained by sriov-network-operator"
	}
	return ""
}

func (c *choice) drainingCure(n *corev1.Node, _ []*corev1.Node) string {
	s := c.o.NodeStates[n.Name]
	return fmt.Sprintf("it reports %s for node %s%s; the benchmark continues when it reports %s, see `kubectl get sriovnetworknodestates -A`",
		s.Drains(), n.Name, others(s), foreign.SriovIdle)
}

// others says in which namespaces a node has states, of which all but one were left behind.
func others(s foreign.SriovNetworkNodeState) string {
	if len(s.Others) == 0 {
		return ""
	}
	return fmt.Sprintf(" (which has states in the namespaces %s: delete those of operators that were uninstalled)", strings.Join(append(s.Others, s.Namespace), ", "))
}

// notSynced concerns only endpoints with a device that the operator configures.
func (c *choice) notSynced(n *corev1.Node) string {
	s, ok := c.o.NodeStates[n.Name]
	ours := slices.ContainsFunc(c.asks, func(a ask) bool { return a.device && provides(s, string(a.name)) })
	if ok && ours && s.Status.SyncStatus != foreign.SriovSucceeded {
		return "not synced by sriov-network-operator"
	}
	return ""
}

// provides reports whether sriov-network-operator is to create the devices of a resource on a node.
func provides(s foreign.SriovNetworkNodeState, name string) bool {
	_, resource, _ := strings.Cut(name, "/")
	return slices.ContainsFunc(s.Spec.Interfaces, func(i foreign.SriovWanted) bool {
		return slices.ContainsFunc(i.VFGroups, func(g foreign.SriovVFGroup) bool { return g.ResourceName == resource })
	})
}

const maxQuoted = 200 // bytes of a foreign error that fits in a message

func (c *choice) notSyncedCure(n *corev1.Node, _ []*corev1.Node) string {
	s := c.o.NodeStates[n.Name]
	status := s.Status
	said := cmp.Or(status.SyncStatus, "nothing yet")
	if status.LastSyncError != "" {
		said += ": " + status.LastSyncError
	}
	return fmt.Sprintf("it reports %q for node %s%s; the benchmark continues when it reports %s, see `kubectl get sriovnetworknodestates -A`",
		text.OneLine(said, maxQuoted), n.Name, others(s), foreign.SriovSucceeded)
}

// deviceCure uses the operator's report for a VF: it does not support Solarflare NICs by default.
func (c *choice) deviceCure(a ask, n *corev1.Node) string {
	plugin := fmt.Sprintf("%s: check that the device plugin of %s runs on node %s (`kubectl describe node %s`, Allocatable), or that a DeviceClass provides it (`kubectl get deviceclasses,resourceslices`)",
		a.path, a.name, n.Name, n.Name)
	state, ok := c.o.NodeStates[n.Name]
	_, resource, _ := strings.Cut(string(a.name), "/")
	if !ok || !a.vf || provides(state, string(a.name)) {
		return plugin
	}

	var nics []foreign.SriovInterface
	var rest []string
	for _, i := range state.Status.Interfaces {
		if i.Vendor == foreign.VendorSolarflare {
			nics = append(nics, i)
		} else {
			rest = append(rest, fmt.Sprintf("%s, %s:%s, with %d of %d VFs", i.Name, i.Vendor, i.DeviceID, i.NumVFs, i.TotalVFs))
		}
	}
	switch {
	case len(nics) == 0:
		listed := ""
		if rest != nil {
			listed = " (the operator lists " + text.List(rest, maxReasons, "; ") + ")"
		}
		return fmt.Sprintf("a SriovNetworkNodePolicy is missing that gives node %s the resource %s%s: create one; a Solarflare NIC also has to be in the Helm values of sriov-network-operator: "+
			`supportedExtraNICs: ['Solarflare_X2: "1924 0b03 1b03"'] for X2, "1924 0c03 1c03" for X4`, n.Name, a.name, listed)
	case slices.ContainsFunc(nics, func(i foreign.SriovInterface) bool { return i.NumVFs > 0 }):
		return plugin
	case !slices.ContainsFunc(nics, func(i foreign.SriovInterface) bool { return i.TotalVFs > 0 }):
		return fmt.Sprintf("the firmware of Solarflare NIC %s of node %s gives it no VFs; set them up with sfboot (firmware-variant=full-feature, switch-mode=sriov, vf-count) and power-cycle the node",
			nics[0].Name, n.Name)
	default:
		return fmt.Sprintf("Solarflare NIC %s of node %s has no VFs: a SriovNetworkNodePolicy with resourceName: %s and numVfs is missing", nics[0].Name, n.Name, resource)
	}
}
