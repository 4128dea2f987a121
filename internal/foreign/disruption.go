package foreign

// AnnotationMachineConfig is on each node that the Machine Config Operator of OpenShift manages.
const AnnotationMachineConfig = "machineconfiguration.openshift.io/currentConfig"

// StayAnnotations ask autoscalers and the descheduler to let a pod finish, which takes its time.
func StayAnnotations() map[string]string {
	return map[string]string{
		"cluster-autoscaler.kubernetes.io/safe-to-evict":     "false",
		"karpenter.sh/do-not-disrupt":                        "true",
		"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true",
	}
}
