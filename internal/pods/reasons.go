package pods

// The kubelet's own words for pods that do not start, which the controller and the doctor read.

// CannotPull says whether a container that waits for this reason waits for an image that cannot be had.
func CannotPull(reason string) bool {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
		// These come from CRI-O, and the kubelet passes them on.
		"RegistryUnavailable", "SignatureValidationFailed":
		return true
	}
	return false
}

// CannotRun says whether a container that waits for this reason cannot be made or started.
func CannotRun(reason string) bool {
	switch reason {
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return true
	}
	return false
}

// CannotAttach says whether an event of this reason reports a network that Multus or a CNI plugin cannot set up.
func CannotAttach(reason string) bool {
	return reason == "FailedCreatePodSandBox" || reason == "NoNetworkFound"
}
