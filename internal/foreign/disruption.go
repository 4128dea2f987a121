package foreign

// AnnotationMachineConfig is on each node that the Machine Config Operator of OpenShift manages.
const AnnotationMachineConfig = "machineconfiguration.openshift.io/currentConfig"

// StayAnnotations returns the annotations that ask components that move pods to let a pod finish: the cluster autoscaler, Karpenter and
// the descheduler. A pod that measures ends by itself, so it delays them for a bounded time.
func StayAnnotations() map[string]string {
	return map[string]string{
		"cluster-autoscaler.kubernetes.io/safe-to-evict":     "false",
		"karpenter.sh/do-not-disrupt":                        "true",
		"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true",
	}
}
