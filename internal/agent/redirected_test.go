package agent

import (
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

// A proxy in the network namespace of an end, which takes over the tool's connections as the proxies of meshes do, is found by the
// kernel's counters there: that end is not proved.
func TestRedirected(t *testing.T) {
	spec := v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{Network: v1alpha1.Network{Type: v1alpha1.NetworkPod}}}
	for _, at := range []string{"", v1alpha1.RoleClient, v1alpha1.RoleServer} {
		t.Run("at "+at, func(t *testing.T) {
			hosts := newHosts(t)
			if namespace := map[string]*netpair.Namespace{v1alpha1.RoleClient: hosts.Client, v1alpha1.RoleServer: hosts.Server}[at]; namespace != nil {
				proxy, err := namespace.Redirect(plan.ToolPort)
				if err != nil {
					t.Fatal(err)
				}
				defer proxy.Close()
			}
			s := startEnd(t, hosts.Server, v1alpha1.RoleServer, "enp2", "", "")
			client := document(t, startEnd(t, hosts.Client, v1alpha1.RoleClient, "enp1", "192.0.2.2", "").ending(t))
			run := result.Stored{Client: client, Server: document(t, s.ending(t))}
			ends := map[string][]v1alpha1.ProofLine{}
			ends[v1alpha1.RoleClient], ends[v1alpha1.RoleServer] = proof.Endpoints(spec, plan.Variants(spec)[0], run)
			for role, lines := range ends {
				want := v1alpha1.ProofProved
				if role == at {
					want = v1alpha1.ProofFailed
				}
				for _, l := range lines {
					if l.Check == v1alpha1.ProofAcceleration && l.State != want {
						t.Errorf("the %s is %s, want %s: %s", role, l.State, want, l.Found)
					}
				}
			}
		})
	}
}
