package pods

// The reasons that the kubelet reports for pods that do not start. The controller and the doctor read them.

// CannotPull reports whether this waiting reason of a container means that its image is not available.
func CannotPull(reason string) bool {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
		// These come from CRI-O, and the kubelet passes them on.
		"RegistryUnavailable", "SignatureValidationFailed":
		return true
	}
	return false
}

// CannotRun reports whether this waiting reason of a container means that it cannot be created or started.
func CannotRun(reason string) bool {
	switch reason {
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return true
	}
	return false
}

// CannotAttach reports whether an event with this reason means that Multus or a CNI plugin cannot set up a network.
func CannotAttach(reason string) bool {
	return reason == "FailedCreatePodSandBox" || reason == "NoNetworkFound"
}
