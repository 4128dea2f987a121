package chart

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tailgate-dev/tailgate/internal/admit"
)

// TestExperimentOverlays: the API server accepts the published experiments for Solarflare NICs. They contain nothing of the
// local cluster, and compare each network with kernel sockets, which sleep or poll, and with Onload, with and without CTPIO.
func TestExperimentOverlays(t *testing.T) {
	var ways, accelerated []string
	for _, network := range []string{"host", "pf", "vf", "ipvlan"} {
		ways = append(ways, network+"-kernel", network+"-kernel-spin", network+"-onload", network+"-onload-ctpio")
		if network != "ipvlan" {
			accelerated = append(accelerated, network+"-onload", network+"-onload-ctpio")
		}
	}
	variants := map[string]map[string][]string{
		"x2": {
			"pingpong-sweep": ways, "percentile-ladder": ways, "rate-size-matrix": accelerated, "multi-hour-10000": accelerated, "multi-hour-50000": accelerated, "multi-hour-100000": accelerated,
			"networks": {"host-1500", "host-9000", "pf-1500", "pf-9000", "vf-1500", "vf-9000", "macvlan-1500", "macvlan-9000", "pod"},
		},
		"x4": {
			"pingpong-sweep": ways, "percentile-ladder": ways, "rate-size-matrix": accelerated, "multi-hour-10000": accelerated, "multi-hour-50000": accelerated, "multi-hour-100000": accelerated,
			"networks": {"host-1500", "host-9000", "pf-1500", "pf-9000", "vf-1500", "macvlan-1500", "macvlan-9000", "pod"},
		},
	}
	for nic, want := range variants {
		t.Run(nic, func(t *testing.T) {
			all := kustomize(t, "config/samples/experiments-"+nic)
			if len(all) != len(want) {
				t.Errorf("%d objects, want %d", len(all), len(want))
			}
			for _, u := range all {
				text, err := json.Marshal(u.Object)
				if err != nil {
					t.Fatal(err)
				}
				// Integers get the type that validation rules expect.
				if err := u.UnmarshalJSON(text); err != nil {
					t.Fatal(err)
				}
				if err := admit.Object(t.Context(), u); err != nil {
					t.Errorf("%s: %v", u.GetName(), err)
				}
				var names []string
				list, _, _ := unstructured.NestedSlice(u.Object, "spec", "variants")
				for _, v := range list {
					names = append(names, v.(map[string]any)["name"].(string))
				}
				if !slices.Equal(names, want[u.GetName()]) {
					t.Errorf("%s has variants %q, want %q", u.GetName(), names, want[u.GetName()])
				}
				for _, local := range []string{"tailgate.test/", "node-a", "node-b", "eth0"} {
					if strings.Contains(string(text), local) {
						t.Errorf("%s has %s, which is of the local cluster", u.GetName(), local)
					}
				}
			}
		})
	}
}
