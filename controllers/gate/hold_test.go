package gate

import (
	"slices"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

func TestProbeOf(t *testing.T) {
	cases := map[string]struct {
		state    v1alpha1.VerificationState
		identity map[string]string
		want     []string
	}{
		"verified": {v1alpha1.VerificationVerified, map[string]string{"BootID": "b-1", "Kernel": "6.1.0", "Kubelet": "v1", "Label/onload": "9.0"},
			[]string{pods.Agent, "verified", "BootID=b-1", "Kernel=6.1.0"}},
		"verified, and boots do not count": {v1alpha1.VerificationVerified, map[string]string{"Kernel": "6.1.0"}, []string{pods.Agent, "verified", "Kernel=6.1.0"}},
		"failed":                           {v1alpha1.VerificationFailed, map[string]string{"BootID": "b-1"}, []string{pods.Agent, "unverified"}},
		"measured":                         {v1alpha1.VerificationMeasuring, map[string]string{"BootID": "b-1"}, []string{pods.Agent, "unverified"}},
		"never looked at":                  {"", nil, []string{pods.Agent, "unverified"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := makeVerification("a", func(v *v1alpha1.LatencyVerification) { v.Status.State, v.Status.Identity = c.state, c.identity })
			pod := holdPodOf(makeGate(), v, "bench", "", "")
			if got := probes(pod); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			// Kubernetes treats 0 as three failures: only a pod that was never ready may have it.
			if probe := pod.Spec.Containers[0].ReadinessProbe; c.state == v1alpha1.VerificationVerified && probe.FailureThreshold != 1 {
				t.Errorf("%d failures are needed to hold the node back", probe.FailureThreshold)
			}
		})
	}
}
