package proof

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func interfaceAsked(e endpoint) finding {
	const advice = "find the component that changed the pod's networks, and measure again"
	n, name := e.network(), e.own.Interface
	asked := n.Interface()
	if n.Type.Attached() {
		asked = pods.Interface
	}
	expected := cmp.Or(asked, "the interface by which its messages leave")
	all := addresses(e.own)
	switch own, err := netip.ParseAddr(e.own.Address); {
	case name == "":
		return unknown(expected, notKnown, advice)
	case asked != "" && name != asked:
		return failed(expected, name, advice)
	// The route chose it without a spec: an address may be that of lo, or of a dummy interface.
	case asked != "" && err == nil && len(all) > 0 && !slices.Contains(all, own.Unmap()):
		return unknown(expected, fmt.Sprintf("%s, though it does not have the address %s", name, own), advice)
	case n.Type.Attached() && !n.Type.HasDevice() && contradiction(e) != "":
		return failed(expected, name+", though "+contradiction(e), advice)
	case asked == "":
		return noted(name)
	}
	return proved(expected, name)
}

func addresses(e result.Evidence) []netip.Addr {
	var all []netip.Addr
	for _, text := range e.Addresses {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			all = append(all, prefix.Addr().Unmap())
		}
	}
	return all
}

func contradiction(e endpoint) string {
	s := e.seen.Network
	switch {
	case s == nil:
		return ""
	case s.Interface != e.own.Interface:
		return "network-status is of " + s.Interface
	case s.MAC != "" && e.own.MAC != "" && !strings.EqualFold(s.MAC, e.own.MAC):
		return fmt.Sprintf("its MAC address is %s, but %s according to network-status", e.own.MAC, s.MAC)
	}
	own := addresses(e.own)
	for _, text := range s.IPs {
		if ip, err := netip.ParseAddr(text); err == nil && len(own) > 0 && !slices.Contains(own, ip.Unmap()) {
			return fmt.Sprintf("it does not have the address %s of network-status", ip)
		}
	}
	return ""
}

// Variable names the variable in which a device plugin passes a resource's PCI addresses.
func Variable(resource string) string {
	return "PCIDEVICE_" + strings.NewReplacer(".", "_", "/", "_").Replace(strings.ToUpper(resource))
}

// allocated returns the resource's PCI addresses in the environment. Those of a driver of Dynamic
// Resource Allocation do not name it: all count, as only the network requests such a device.
func allocated(e endpoint) []string {
	list := []string{e.own.AllocatedDevices[Variable(e.network().ResourceName())]}
	if e.seen.ClaimedDevice != "" {
		for name, address := range e.own.AllocatedDevices {
			if strings.HasPrefix(name, result.VariableOfDriver) {
				list = append(list, address)
			}
		}
		slices.Sort(list)
	}
	return strings.FieldsFunc(strings.Join(list, ","), func(r rune) bool { return r == ',' })
}

func device(e endpoint) finding {
	n := e.network()
	if !n.Type.HasDevice() {
		return finding{}
	}
	const advice = "check whether the device plugin or Multus was restarted, and measure again"
	expected := "the one device of " + n.ResourceName()
	if asked, ok := e.seen.Requests[n.ResourceName()]; e.seen.Requests != nil && (!ok || asked != "1") {
		return failed(expected, fmt.Sprintf("%q requested", asked), "exclude benchmark pods from webhooks that add requests")
	}
	allocated := allocated(e)
	if len(allocated) > 1 {
		return failed(expected, fmt.Sprintf("%d were allocated: %s", len(allocated), strings.Join(allocated, ", ")), "exclude benchmark pods from webhooks that add requests")
	}

	sources := []source{{"environment", allocated}, e.sysfs(), e.networkStatus()}
	if e.seen.ClaimedDevice != "" {
		sources = append(sources, source{"ResourceClaim", []string{e.seen.ClaimedDevice}})
	}
	return e.agreed(expected, sources, advice,
		"at least two of these must be known; check that the device plugin sets "+Variable(n.ResourceName())+", and writes device information files")
}

type source struct {
	name      string
	addresses []string
}

func (e endpoint) sysfs() source {
	if e.own.PCISource != result.PCIFromSysfs || e.own.PCIAddress == "" {
		return source{name: "sysfs"}
	}
	return source{"sysfs", []string{e.own.PCIAddress}}
}

func (e endpoint) networkStatus() source {
	if address := e.seen.Network.Device().Address; address != "" {
		return source{"network-status", []string{address}}
	}
	return source{name: "network-status"}
}

// agreed judges whether at least two sources know the interface's device, and none contradicts.
func (e endpoint) agreed(expected string, sources []source, advice, few string) finding {
	address, differ := "", false
	var known, told []string
	for _, s := range sources {
		told = append(told, s.name+" "+orNotKnown(strings.Join(s.addresses, " ")))
		if len(s.addresses) > 0 {
			known = append(known, s.name)
			address = cmp.Or(address, strings.ToLower(s.addresses[0]))
			differ = differ || !slices.ContainsFunc(s.addresses, func(a string) bool { return strings.EqualFold(a, address) })
		}
	}
	all := strings.Join(told, ", ")
	switch conflict := contradiction(e); {
	case differ:
		return failed(expected, all, advice)
	case conflict != "":
		return failed(expected, all+", though "+conflict, advice)
	case len(known) < 2:
		return unknown(expected, all, few)
	// Only sysfs reads the interface: otherwise the MAC address must tie it.
	case !slices.Contains(known, e.sysfs().name) && !e.tied():
		return unknown(expected, all+"; whether it is "+orNotKnown(e.own.Interface)+", is unknown: no MAC address in network-status, or of the interface", advice)
	}
	return proved(expected, fmt.Sprintf("%s, by %s", address, strings.Join(known, ", ")))
}

// tied reports whether the MAC address ties the interface to the device of network-status.
func (e endpoint) tied() bool {
	s := e.seen.Network
	return s != nil && s.MAC != "" && e.own.MAC != "" && (e.network().Type.HasDevice() || s.Device().Address != "")
}

func function(e endpoint) finding {
	n := e.network()
	found, port := e.own.Facts["nic.function"], e.own.Facts["nic.port"]
	told := orNotKnown(found)
	if (found == "VF" || found == "SF") && port != "" {
		told = found + " of " + port
	}
	switch n.Type {
	case v1alpha1.NetworkHost:
		return noted(told)
	case v1alpha1.NetworkVF, v1alpha1.NetworkPF:
	case v1alpha1.NetworkPod, v1alpha1.NetworkNAD:
		return finding{}
	}
	expected := string(n.Type)
	advice := "use a resource of VFs for networks of type VF, and one of PFs for type PF"
	pf := e.seen.Network.Device().PFAddress
	switch {
	case found == "" || found == "PCI":
		return unknown(expected, told, "virtual machines do not report it; measure on the machine itself")
	case found == "SF":
		return failed(expected, told, "scalable functions are not supported; "+advice)
	case found != expected:
		return failed(expected, told, advice)
	case found == "VF" && pf != "" && port != "" && !strings.EqualFold(pf, port):
		return failed(expected, fmt.Sprintf("%s, and by network-status of %s", told, pf), advice)
	case found == "VF" && e.own.Facts["nic.firmware-variant"] == VariantWithoutVFs:
		return unknown(expected, told+", though firmware variant "+VariantWithoutVFs+" has none", "check the NIC with ethtool -i and sfboot")
	}
	return proved(expected, told)
}

const VariantWithoutVFs = "ultra-low-latency" // the firmware of Solarflare NICs without SR-IOV

// mtu compares the interface's MTU with the spec's or, if the spec sets none, with the other end's.
func mtu(e endpoint) finding {
	asked, own := e.network().MTU(), e.own.MTU
	expected, advice := fmt.Sprint(asked), "find the component that also sets the MTU of the interface"
	if asked == 0 {
		asked = e.peer.MTU
		expected, advice = fmt.Sprintf("%d, equal to the other end", asked), "give both ends' interfaces the same MTU"
	}
	if asked <= 0 {
		return unknown("that of the other end", fmt.Sprintf("%s, and %s there", known(own, 1), notKnown), advice)
	}
	return e.mtuIs(asked, expected, advice)
}

func (e endpoint) mtuIs(asked int32, expected, advice string) finding {
	switch own := e.own.MTU; {
	case own <= 0:
		return unknown(expected, notKnown, advice)
	case own != asked:
		return failed(expected, known(own, 1), advice)
	}
	return proved(expected, known(e.own.MTU, 1))
}

func link(e endpoint) finding {
	const (
		expected = "up throughout the run"
		advice   = "check the cable, the switch and the kernel's log"
	)
	speed := ""
	if s := e.own.Facts["nic.speed"]; s != "" {
		speed = ", " + s + " Mbit/s"
	}
	switch carrier := e.own.Facts["nic.carrier"]; {
	case carrier == "0":
		return failed(expected, "down", advice)
	case carrier != "1":
		return unknown(expected, notKnown, advice)
	}
	switch n, counted := e.own.Deltas["nic.carrier-changes"]; {
	case !counted:
		return unknown(expected, "up"+speed+", and whether it changed is not known", "measure over an interface whose driver counts changes of its carrier (carrier_changes in sysfs)")
	case n > 0:
		return failed(expected, fmt.Sprintf("up%s, and changed %d times", speed, n), advice)
	}
	return proved(expected, "up"+speed)
}

// same notes a property of the NIC, and the other end's if that is different.
func same(own, peer string) finding {
	if own == peer {
		return noted(orNotKnown(own))
	}
	return noted(fmt.Sprintf("%s; the other end: %s", orNotKnown(own), orNotKnown(peer)))
}

// x2 are the PCI IDs of a Solarflare X2: of its PFs and of its VFs.
var x2 = []string{"1924:0b03", "1924:1b03"}

// NeedsBypass reports whether an interface is an X2's with full-feature firmware, where Onload
// sends by CTPIO only with EF_CTPIO_SWITCH_BYPASS=1 (should_try_ctpio in its
// tcp_helper_resource.c). Older series have none. On an X4, Express sends by CTPIO only, Enterprise
// never.
func NeedsBypass(facts map[string]string) bool {
	return facts["nic.firmware-variant"] == "full-feature" && slices.Contains(x2, facts["nic.pci-id"])
}

// The driver's statistics of sends by CTPIO: of an X2, and of the Express datapath of an X4.
var (
	ctpioSent    = []string{"ctpio_success", "exp_ctpio_packets"}
	ctpioCounted = []string{"ctpio_success", "ctpio_fallback", "ctpio_poison", "exp_ctpio_packets", "exp_ctpio_underflow_packets"}
)

// sendPath notes, with Onload, what the driver counted of CTPIO. The port's counters include other
// programs, which make the share of CTPIO look larger, never smaller.
func sendPath(e endpoint) finding {
	if e.variant.Acceleration.Type != v1alpha1.AccelerationOnload {
		return finding{}
	}
	var counted []string
	var byCTPIO, messages int64
	for _, name := range ctpioCounted {
		n, ok := e.own.Deltas["nic."+name]
		if !ok {
			continue
		}
		counted = append(counted, fmt.Sprintf("%s %d", name, n))
		if slices.Contains(ctpioSent, name) {
			byCTPIO += n
		}
	}
	for _, c := range e.cells {
		_, out := loads(c, e.role)
		messages += out.messages
	}
	why := ""
	if NeedsBypass(e.own.Facts) && e.own.Facts["env.EF_CTPIO_SWITCH_BYPASS"] != "1" {
		why = "; full-feature firmware, and EF_CTPIO_SWITCH_BYPASS is not 1"
	}
	if len(counted) == 0 {
		return noted(notKnown + ": the driver shows no counters of CTPIO" + why)
	}
	way, of := "CTPIO, if no other program used the port", fmt.Sprintf(", of %d messages", messages)
	switch share := float64(byCTPIO) / float64(max(1, messages)); {
	case messages == 0: // a TCP stream
		way, of = "some CTPIO", ""
	case share < leastThrough:
		way = fmt.Sprintf("at most %.0f %% by CTPIO", 100*share)
	}
	if byCTPIO == 0 {
		way = "no CTPIO"
	}
	return noted(fmt.Sprintf("%s: the port counted %s%s%s", way, strings.Join(counted, ", "), of, why))
}

func podUnchanged(e endpoint) finding {
	const (
		expected = "the pod as the operator created it"
		advice   = "exclude benchmark pods from the admission webhook that changes them"
	)
	switch {
	case e.seen.Bare:
		return noted("no pod: a host without Kubernetes")
	case e.seen.PodUID == "":
		return unknown(expected, notKnown, "measure again with an operator that checks this")
	case len(e.seen.Changed) > 0:
		return failed(expected, strings.Join(e.seen.Changed, "; "), advice)
	}
	return proved(expected, "unchanged")
}

// image notes the image that ran. Both ends need the same one if their CPUs are equal: others may
// report the architecture's. One imported on one node only has no registry's digest there.
func image(e endpoint) finding {
	own, ownDigest, _ := strings.Cut(e.seen.ImageID, "@")
	peer, peerDigest, _ := strings.Cut(e.peerSeen.ImageID, "@")
	switch comparable := own != "" && peer != "" && (ownDigest == "") == (peerDigest == ""); {
	case !comparable || e.own.CPUModel != e.peer.CPUModel:
	case ownDigest != peerDigest || ownDigest == "" && own != peer:
		return failed("the image of the other end, "+e.peerSeen.ImageID, e.seen.ImageID,
			"refer to the bench image by digest, and find out who changes benchmark pods")
	}
	return noted(orNotKnown(e.seen.ImageID))
}

func hypervisor(e endpoint) finding {
	kinds := map[string]string{"yes": "virtual machine", "no": "bare metal"}
	return noted(orNotKnown(kinds[e.own.Facts["cpu.hypervisor"]]))
}
