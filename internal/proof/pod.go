package proof

import "strings"

// podUnchanged checks that the pod equals the one that the operator created.
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

// image notes the image that ran.
func image(e endpoint) finding { return noted(orNotKnown(e.seen.ImageID)) }

// hypervisor notes whether the machine is virtual.
func hypervisor(e endpoint) finding {
	switch e.own.Facts["cpu.hypervisor"] {
	case "yes":
		return noted("virtual machine")
	case "no":
		return noted("bare metal")
	}
	return noted(notKnown)
}
