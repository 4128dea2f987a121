package proof

import "strings"

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
