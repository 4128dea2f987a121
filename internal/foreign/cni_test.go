package foreign

import "testing"

func TestParent(t *testing.T) {
	for config, want := range map[string]string{
		`{"type":"ipvlan","master":"enp59s0f0"}`:                                          "enp59s0f0",
		`{"name":"x","plugins":[{"type":"macvlan","master":"ens1f0"},{"type":"tuning"}]}`: "ens1f0",
		`{"plugins":[{"type":"tuning","master":"ens1f0"}]}`:                               "",
		`{"type":"macvlan"}`: "",
		`{"type":"ipvlan","master":"net0","linkInContainer":true}`: "",
		`{"type":"ipvlan","master":7}`:                             "",
		`{`:                                                        "",
		``:                                                         "",
		`{"type":"sriov"}`:                                         "",
	} {
		if got := Parent(config); got != want {
			t.Errorf("%s: got %q, want %q", config, got, want)
		}
	}
}
