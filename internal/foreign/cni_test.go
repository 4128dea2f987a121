package foreign

import "testing"

func TestParent(t *testing.T) {
	for config, want := range map[string]string{
		`{"type":"ipvlan","master":"enp59s0f0"}`:                                          "enp59s0f0",
		`{"name":"x","plugins":[{"type":"macvlan","master":"ens1f0"},{"type":"tuning"}]}`: "ens1f0",
		`{"plugins":[{"type":"tuning","master":"ens1f0"}]}`:                               "",
		`{"type":"macvlan"}`:                                       UnnamedParent,
		`{"type":"ipvlan","mode":"l2"}`:                            UnnamedParent,
		`{"type":"vlan","master":"ens1f0np0","vlanId":5}`:          "ens1f0np0",
		`{"type":"vlan","master":"net0","linkInContainer":true}`:   "",
		`{"type":"ipoib","master":"ibs1f0"}`:                       "ibs1f0",
		`{"type":"bridge","bridge":"br0"}`:                         "",
		`{"type":"ipvlan","master":"net0","linkInContainer":true}`: "",
		`{"type":"ipvlan","master":7}`:                             "",
		`{`:                                                        "",
		``:                                                         UnnamedParent,
		`{"type":"sriov"}`:                                         "",
	} {
		if got := Parent(config); got != want {
			t.Errorf("%s: got %q, want %q", config, got, want)
		}
	}
}
