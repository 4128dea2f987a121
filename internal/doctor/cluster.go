package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/protection"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func manager(o Observed) []Line {
	bad := advice{"benchmarks and gates make no progress", "see `kubectl get pods -A -l app.kubernetes.io/name=tailgate` and the manager's log"}
	m := o.Manager
	switch unseen := o.unseen("deployments"); {
	case unseen != nil:
		return unseen
	case m == nil:
		bad.remedy = "install Tailgate"
		return bad.err("", "there is no Deployment of Tailgate's manager")
	case m.Ready == 0:
		return bad.err("", "%s: none of %d is ready", m.Name, m.Wanted)
	}
	return good("", "%s: %d of %d ready, image %s", m.Name, m.Ready, m.Wanted, m.Image)
}

func definitions(o Observed) []Line {
	if unseen := o.unseen("customresourcedefinitions"); unseen != nil {
		return unseen
	}
	var names, missing, other []string
	for _, d := range o.Definitions {
		names = append(names, d.Name)
		switch {
		case !d.Served:
			missing = append(missing, d.Name)
		case !d.Same:
			other = append(other, d.Name)
		}
	}
	switch {
	case len(missing) > 0:
		return advice{"benchmarks cannot be created", "install Tailgate, with its CustomResourceDefinitions"}.
			err("", "not served: %s", strings.Join(missing, ", "))
	case len(other) > 0:
		return advice{"fields that only one of the versions has are rejected or dropped",
			"use the command and the CustomResourceDefinitions of the manager's version"}.
			warn("", "their version differs from the command's: %s", strings.Join(other, ", "))
	}
	return good("", "%d, equal to those of this command", len(names))
}

func policies(o Observed) []Line {
	switch unseen := o.unseen("validatingadmissionpolicies", "validatingadmissionpolicybindings"); {
	case unseen != nil:
		return unseen
	case o.Manager == nil:
		return nil
	}
	if missing := protection.Missing(o.Policies, o.PolicyBindings); missing != "" {
		return advice{"the API server does not refuse what security.md promises: who takes over the manager can create any pod",
			"apply all of config/policy, or install Tailgate again from a whole chart or release"}.err("", "%s", missing)
	}
	return good("", "%d, with their bindings", len(protection.Policies))
}

// gateTaints checks that what nodes need before a measurement tolerates their gate's taint.
func gateTaints(o Observed) []Line {
	unseen := o.unseen("latencygates")
	if unseen == nil && len(o.Gates) > 0 {
		unseen = o.unseen("daemonsets", "modules")
	}
	if unseen != nil {
		return unseen
	}
	var lines []Line
	for _, g := range o.Gates {
		if len(g.Intolerant) == 0 {
			lines = append(lines, good(g.Name, "every DaemonSet and Module of its nodes tolerates its taint")...)
			continue
		}
		lines = append(lines, advice{"a Module that does not tolerate the taint is unloaded, and a DaemonSet does not start on a tainted node: if nodes need it, they cannot be measured",
			"add a toleration of " + v1alpha1.NodeTaintUnverified + " to those that nodes need before they are verified"}.
			warn(g.Name, "these do not tolerate the gate's taint: %s", text.List(g.Intolerant, 10, ", "))...)
	}
	return lines
}

func multus(o Observed) []Line {
	none := advice{"only the pod network and the host's network can be measured",
		"install Multus, and an SR-IOV device plugin"}
	if unseen := o.unseen("network-attachment-definitions"); unseen != nil {
		return unseen
	}
	if !o.MultusKind {
		const found = "the cluster does not have the kind NetworkAttachmentDefinition"
		if o.Asked {
			return none.err("", found)
		}
		return none.warn("", found)
	}
	var names, lacking []string
	for _, s := range o.Multus {
		name, ready, wanted := s.Namespace+"/"+s.Name, s.Status.NumberReady, s.Status.DesiredNumberScheduled
		names = append(names, name)
		if ready < wanted {
			lacking = append(lacking, fmt.Sprintf("%s: %d of %d ready", name, ready, wanted))
		}
	}
	tried, reported := 0, 0
	for _, n := range o.Nodes {
		for _, l := range n.Looks {
			if l.Kind != KindNetwork || l.Inspection == nil {
				continue
			}
			tried++
			if l.NetworkStatus != "" {
				reported++
			}
		}
	}
	switch {
	case len(lacking) > 0:
		return advice{"pods with networks do not start on some nodes", "see the events and logs of the DaemonSet's pods"}.
			warn("", "%s", strings.Join(lacking, ", "))
	case tried > 0 && reported == 0:
		return advice{"benchmarks over an attached network fail: their pods do not get it",
			"install Multus, or check that its CNI configuration is the first in /etc/cni/net.d on the nodes"}.
			err("", "%d pods request a network, and none of them has the annotation %s", tried, foreign.AnnotationNetworkStatus)
	case len(names) > 0:
		return good("", "%s ready%s", strings.Join(names, ", "), attachments(reported, tried))
	case tried > 0:
		return good("", "no DaemonSet has its name%s", attachments(reported, tried))
	case o.Unseen["daemonsets"] != "":
		return o.unseen("daemonsets")
	}
	return good("", "networks can be defined; no pod requests one, in namespace %s", o.Namespace)
}

func attachments(reported, tried int) string {
	if tried == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of %d pods with a network have a network-status", reported, tried)
}

func networks(o Observed) []Line {
	var lines []Line
	for _, n := range o.Networks {
		lines = append(lines, definition(o, n)...)
	}
	if n := len(o.NetworksLeft); n > 0 {
		lines = append(lines, unknown("", fmt.Sprintf("%d more were not checked: %s", n, strings.Join(o.NetworksLeft, ", ")),
			"name them with --network")...)
	}
	return lines
}

func definition(o Observed, n Network) []Line {
	cannot := advice{effect: "pods that request it do not start"}
	if n.Made {
		return good(n.Name, "the operator creates it with the benchmark, so it was not tried; resource %s: %d in the cluster", n.Resource, o.Capacity[corev1.ResourceName(n.Resource)])
	}
	if !n.Found {
		cannot.remedy = "create the NetworkAttachmentDefinition, or name another one"
		return cannot.err(n.Name, "there is no such NetworkAttachmentDefinition")
	}
	if p := n.problem(); p != nil {
		cannot.remedy = p.remedy
		return cannot.err(n.Name, "%s", p.found)
	}
	if n.Resource != "" && o.Capacity[corev1.ResourceName(n.Resource)] == 0 {
		return notProvided(o, n)
	}
	plugins, refused := n.plugins()
	if len(refused) > 0 && hasDriver(o, "sfc") {
		return advice{"pods do not start where the PF's driver is sfc: it supports none of these settings, and the plugin fails",
			"take " + strings.Join(refused, ", ") + " out of its configuration (SriovNetwork: trust, minTxRate, maxTxRate, vlanQoS)"}.
			warn(n.Name, "plugins %s; it sets %s of VFs", strings.Join(plugins, ", "), strings.Join(refused, ", "))
	}
	found := "its configuration is in a file on the nodes"
	if len(plugins) > 0 {
		found = "plugins " + strings.Join(plugins, ", ")
	}
	if n.Resource != "" {
		found += fmt.Sprintf("; resource %s: %d in the cluster", n.Resource, o.Capacity[corev1.ResourceName(n.Resource)])
		if class := o.Classes[corev1.ResourceName(n.Resource)]; class != "" {
			found += ", also by DeviceClass " + class
		}
	}
	return good(n.Name, "%s", found)
}

func notProvided(o Observed, n Network) []Line {
	cannot := advice{effect: "pods that request it do not start"}
	if unseen := o.unseen("deviceclasses", "resourceslices"); unseen != nil {
		unseen[0].Subject = n.Name
		unseen[0].Found = fmt.Sprintf("its resource %s is advertised by no node; a DeviceClass may provide it, but %s", n.Resource, unseen[0].Found)
		return unseen
	}
	if class := o.Classes[corev1.ResourceName(n.Resource)]; class != "" {
		cannot.remedy = fmt.Sprintf("check that the pods of the driver run, and compare the selectors of the class with the devices: `kubectl get deviceclass %s -o yaml`, `kubectl get resourceslices -o yaml`", class)
		return cannot.err(n.Name, "DeviceClass %s provides its resource %s, but selects no device of a ResourceSlice of any node", class, n.Resource)
	}
	cannot.remedy = "correct the annotation " + foreign.AnnotationResourceName +
		" (with the prefix of the resource), check that the device plugin runs, or create a DeviceClass with this extendedResourceName"
	return cannot.err(n.Name, "its resource %s is advertised by no node, and no DeviceClass provides it", n.Resource)
}

func hasDriver(o Observed, driver string) bool {
	return slices.ContainsFunc(o.Nodes, func(n Node) bool {
		i := n.seen()
		return i != nil && slices.ContainsFunc(i.NICs, func(c result.NIC) bool { return c.Driver == driver })
	})
}

// onloadAnywhere reports that there is no Onload, so that its absence is not a missing line.
func onloadAnywhere(o Observed) []Line {
	switch {
	case o.Onload == "":
		return good("", "no node advertises Onload: sockets use the kernel's network stack")
	case o.OnloadAsked && o.Capacity[corev1.ResourceName(o.Onload)] == 0:
		return advice{"nothing is accelerated", "check that the device plugin of Onload runs, or name another resource"}.
			err(o.Onload, "no node advertises it")
	}
	return nil
}

const podNetwork = "pod network"

func mtus(o Observed) []Line {
	subjects := append([]string{podNetwork}, text.Of(o.Networks, func(n Network) string { return n.Name })...)
	var lines []Line
	for _, subject := range subjects {
		byMTU := map[string][]string{}
		ends := 0
		for _, n := range o.Nodes {
			l := n.look(KindNetwork, subject)
			if subject == podNetwork {
				l = n.look(KindCPU, "")
			}
			if l == nil || l.Inspection == nil || l.Inspection.Evidence.MTU <= 0 {
				continue
			}
			mtu := fmt.Sprint(l.Inspection.Evidence.MTU)
			byMTU[mtu] = append(byMTU[mtu], n.Node.Name)
			ends++
		}
		switch {
		case ends < 2: // There is nothing to compare.
		case len(byMTU) > 1:
			lines = append(lines, advice{"messages larger than the smaller MTU are lost or fragmented; results do not verify",
				"set one MTU on the PFs and VFs of all nodes, and on the switch between them"}.err(subject, "%s", byValue(byMTU))...)
		default:
			lines = append(lines, good(subject, "%s", byValue(byMTU))...)
		}
	}
	return lines
}

func connections(o Observed) []Line {
	var lines []Line
	for _, network := range append([]Network{{}}, o.Networks...) {
		subject, pairs := cmp.Or(network.Name, podNetwork), 0
		failed, unclear := [4][]string{}, []string(nil)
		for _, c := range o.Connections {
			if c.Network != network.Name {
				continue
			}
			pairs++
			between := c.Client + " to " + c.Server + ": "
			switch {
			case c.Trouble != nil:
				unclear = append(unclear, between+c.Trouble.Said)
			case c.Reach == nil:
				unclear = append(unclear, between+"the bench image is older than this check")
			default:
				for step, said := range []string{c.Reach.Route, c.Reach.Control, c.Reach.Data, c.Reach.Datagram} {
					if said != "" {
						failed[step] = append(failed[step], between+said)
					}
				}
			}
		}
		bad := advice{effect: "benchmarks over it fail between these nodes"}
		for step, s := range steps {
			if len(failed[step]) > 0 {
				bad.remedy = s.remedy
				lines = append(lines, bad.err(subject, "%s: %s", s.name, list(failed[step]))...)
			}
		}
		if len(unclear) > 0 {
			lines = append(lines, unknown(subject, "not tried, "+list(unclear), "run doctor again with a longer --timeout, and with a bench image of this version")...)
		}
		if pairs > 0 && len(unclear)+len(slices.Concat(failed[:]...)) == 0 {
			lines = append(lines, good(subject, "%d pairs of nodes reach each other: both ports, and a datagram of the MTU's size", pairs)...)
		}
	}
	return lines
}

// steps are the tries of a connection, in the order of result.Reach, with their remedies.
var steps = [4]struct{ name, remedy string }{
	{"no way", "give both ends addresses of one subnet, from an IPAM plugin for the whole cluster"},
	{"control port", fmt.Sprintf("let TCP port %d pass between the pods: NetworkPolicies and firewalls, on a VF also its VLAN and the filters of the PF and the switch", plan.ControlPort)},
	{"data port", fmt.Sprintf("let TCP port %d pass between the pods: NetworkPolicies and firewalls", plan.ToolPort)},
	{"datagram", fmt.Sprintf("set the MTU on the PFs and on the switch between them; let UDP port %d pass between the pods", plan.ToolPort)},
}

const mostNames = 6

func list(names []string) string {
	slices.Sort(names)
	return text.List(names, mostNames, ", ")
}

func byValue(names map[string][]string) string {
	return strings.Join(text.Of(slices.Sorted(maps.Keys(names)), func(value string) string { return fmt.Sprintf("%s on %s", value, list(names[value])) }), "; ")
}

func grouped(o Observed, value func(*result.Inspection) string) map[string][]string {
	groups := map[string][]string{}
	for _, n := range o.Nodes {
		if i := n.seen(); i != nil {
			groups[value(i)] = append(groups[value(i)], n.Node.Name)
		}
	}
	return groups
}

func machines(o Observed) [][]string {
	var all [][]string
	seen := slices.DeleteFunc(slices.Clone(o.Nodes), func(n Node) bool { return n.seen() == nil })
	for len(seen) > 0 {
		first := seen[0].seen().Evidence
		names := []string{seen[0].Node.Name}
		seen = slices.DeleteFunc(seen[1:], func(n Node) bool {
			one := result.SameKernel(first, n.seen().Evidence)
			if one {
				names = append(names, n.Node.Name)
			}
			return one
		})
		if len(names) > 1 {
			all = append(all, names)
		}
	}
	return all
}

func oneMachine(o Observed) []Line {
	same := text.Of(machines(o), list)
	if len(same) == 0 {
		return nil
	}
	slices.Sort(same)
	return good("", "a simulation: %s are one machine (the same boot); results have a warning, and doctor does not check the speed of a simulation", strings.Join(same, "; "))
}

func alike(o Observed) []Line {
	const absent = "not reported"
	var differ []string
	nodes, claimed := 0, true
	for _, v := range []struct {
		what, absent string
		of           func(*result.Inspection) string
	}{
		{"kernel", absent, func(i *result.Inspection) string { return i.Evidence.Kernel }},
		{"CPU", absent, func(i *result.Inspection) string { return i.Evidence.CPUModel }},
		{"mitigations", "the default", func(i *result.Inspection) string { return i.Fact("kernel.arg.mitigations") }},
	} {
		groups := grouped(o, func(i *result.Inspection) string { return cmp.Or(v.of(i), v.absent) })
		nodes = 0
		for _, names := range groups {
			nodes += len(names)
		}
		claimed = claimed && groups[absent] == nil
		if len(groups) > 1 {
			differ = append(differ, v.what+": "+byValue(groups))
		}
	}
	switch {
	case nodes < 2:
		return nil
	case len(differ) > 0:
		return advice{"results of different nodes are comparable only if ignoreDifferences lists these differences",
			"configure all nodes equally, or compare each node only with itself"}.warn("", "%s", strings.Join(differ, "; "))
	case !claimed:
		return unknown("", fmt.Sprintf("%d nodes, whose kernels do not report the release or the model of CPU", nodes), "compare the nodes yourself (lscpu, uname -r)")
	}
	return good("", "%d nodes with one kernel and one model of CPU", nodes)
}

func leftOut(o Observed) []Line {
	if len(o.LeftOut) == 0 {
		return nil
	}
	groups := map[string][]string{}
	for node, taint := range o.LeftOut {
		groups[taint] = append(groups[taint], node)
	}
	return good("", "nodes with taints are checked only if the command line names them: %s", byValue(groups))
}

type problem struct{ found, remedy string }

type cniPlugin map[string]any

func (p cniPlugin) text(key string) string {
	text, _ := p[key].(string)
	return text
}

// undecoded returns a key of sriov-cni whose value has a wrong type, if there is one.
func (p cniPlugin) undecoded() string {
	for _, key := range []string{"spoofchk", "trust", "link_state", "mac", "vlanProto"} {
		if _, text := p[key].(string); p[key] != nil && !text {
			return key
		}
	}
	for _, key := range []string{"vlan", "vlanQoS", "min_tx_rate", "max_tx_rate"} {
		if _, number := p[key].(float64); p[key] != nil && !number {
			return key
		}
	}
	return ""
}

func (n Network) problem() *problem {
	if n.Config == "" {
		return nil
	}
	plugins, err := foreign.Plugins[cniPlugin](n.Config)
	if err != nil {
		return &problem{err.Error(), "correct spec.config of the NetworkAttachmentDefinition"}
	}
	if len(plugins) == 0 {
		return &problem{"its list of plugins is empty", "give spec.config a plugin, such as sriov"}
	}
	for _, p := range plugins {
		kind := p.text("type")
		named := slices.ContainsFunc([]string{"device", "hwaddr", "kernelpath", "pciBusID", "deviceID"}, func(key string) bool { return p.text(key) != "" })
		switch {
		case kind == "":
			return &problem{"a plugin of its configuration has no type", "set its type, which is the name of the plugin's binary"}
		case kind == "sriov" && p.undecoded() != "":
			return &problem{"plugin sriov cannot decode its key " + p.undecoded(), `write spoofchk, trust and link_state as "on", "off" or "auto" in quotes, and vlan as a number`}
		case slices.Contains([]string{"sriov", "host-device", "ib-sriov", "accelerated-bridge", "macvtap"}, kind) && n.Resource == "" && !named:
			return &problem{fmt.Sprintf("plugin %s needs a device, and no annotation names a resource", kind),
				"give it the annotation " + foreign.AnnotationResourceName + ", with the resource of the device plugin"}
		}
	}
	if version, _ := foreign.Version(n.Config); version == "" {
		return &problem{"its configuration has no cniVersion, so that the network-status of pods names no interface", "set cniVersion in spec.config to " + foreign.CNIVersion}
	}
	return nil
}

// plugins returns the plugins' types, and a plugin sriov's settings that sfc cannot give a VF.
func (n Network) plugins() (types, refused []string) {
	all, _ := foreign.Plugins[cniPlugin](n.Config)
	for _, p := range all {
		types = append(types, p.text("type"))
		for _, key := range []string{"max_tx_rate", "min_tx_rate", "trust", "vlanQoS"} {
			if value := p[key]; p.text("type") == "sriov" && value != nil && value != "" && value != float64(0) && value != "off" {
				refused = append(refused, key)
			}
		}
	}
	return types, refused
}

// Attachable reports whether it is worth creating pods that request the network.
func (n Network) Attachable() bool { return n.Found && n.problem() == nil }
