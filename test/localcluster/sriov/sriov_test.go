package sriov

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
)

// fakeHostDevice saves its configuration and answers with an address.
const fakeHostDevice = `#!/bin/sh
cat >"$(dirname "$0")/$CNI_COMMAND"
if [ "$CNI_COMMAND" = ADD ]; then
	echo '{"cniVersion":"1.0.0","interfaces":[{"name":"net1","mac":"02:00:00:00:00:01","sandbox":"/ns"}],
		"ips":[{"interface":0,"address":"198.18.5.1/24"}]}'
fi
`

const vf = "0000:3b:02.0"

// node returns the plugin on a simulated machine whose VF has the loopback as its network device, because every machine has one.
// It also returns the folder in which the fake host-device plugin saves its configuration.
func node(t *testing.T) (Plugin, string) {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	for _, folder := range []string{"0000:3b:00.0/net/ens1f0", vf + "/net/lo", "0000:3b:02.1/net"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, address := range []string{vf, "0000:3b:02.1"} {
		if err := os.Symlink("../0000:3b:00.0", filepath.Join(dir, address, "physfn")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "host-device"), []byte(fakeHostDevice), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CNI_PATH", bin)
	return Plugin{devices: dir}, bin
}

func received(t *testing.T, bin, command string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(bin, command))
	if err != nil {
		t.Fatal(err)
	}
	var conf map[string]any
	if err := json.Unmarshal(text, &conf); err != nil {
		t.Fatal(err)
	}
	return conf
}

func TestAddAndDel(t *testing.T) {
	p, bin := node(t)
	data := []byte(`{"cniVersion":"0.4.0","name":"n","type":"sriov","vlan":0,"deviceID":"` + vf + `",
		"ipam":{"type":"static"},"runtimeConfig":{"ips":["198.18.5.1/24"]}}`)
	r, err := p.attach(data)
	if err != nil {
		t.Fatal(err)
	}
	if r.Version() != "0.4.0" {
		t.Errorf("the result has version %s, want that of the configuration", r.Version())
	}
	if r, err = p.attach([]byte(strings.Replace(string(data), "0.4.0", "1.0.0", 1))); err != nil {
		t.Fatal(err)
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	want := []*current.Interface{{Name: "net1", Mac: "02:00:00:00:00:01", Mtu: lo.MTU, Sandbox: "/ns"}}
	if diff := cmp.Diff(want, r.(*current.Result).Interfaces); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	conf := map[string]any{
		"cniVersion": "1.0.0", "name": "n", "type": "sriov", "vlan": 0.0, "deviceID": vf, "pciBusID": vf,
		"ipam": map[string]any{"type": "static"}, "runtimeConfig": map[string]any{"ips": []any{"198.18.5.1/24"}},
	}
	if diff := cmp.Diff(conf, received(t, bin, "ADD")); diff != "" {
		t.Errorf("the host-device plugin got (-want +got):\n%s", diff)
	}
	if err := p.del(&skel.CmdArgs{StdinData: data}); err != nil {
		t.Fatal(err)
	}
	if got := received(t, bin, "DEL")["pciBusID"]; got != vf {
		t.Errorf("on DEL the host-device plugin got the device %v", got)
	}
}

func TestRefuses(t *testing.T) {
	p, bin := node(t)
	for name, tt := range map[string]struct{ conf, want string }{
		"no JSON":                   {`type: sriov`, "failed to load netconf"},
		"no device":                 {`{"type":"sriov"}`, "SRIOV-CNI failed to load netconf: LoadConf(): VF pci addr is required"},
		"a PF":                      {`{"deviceID":"0000:3b:00.0"}`, "failed to get VF information"},
		"an address of nothing":     {`{"deviceID":"0000:ff:02.0"}`, "failed to get VF information"},
		"a VF that is not here":     {`{"deviceID":"0000:3b:02.1"}`, "the VF 0000:3b:02.1 does not have a interface name"},
		"a VLAN":                    {`{"deviceID":"` + vf + `","vlan":100}`, "vlan is 100"},
		"a setting of another kind": {`{"deviceID":"` + vf + `","trust":"on"}`, `trust is "on"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.attach([]byte(tt.conf))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
	if err := p.del(&skel.CmdArgs{StdinData: []byte(`{"type":"sriov"}`)}); err != nil {
		t.Errorf("DEL after an ADD without a device: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(bin, "[AD]*")); err != nil || len(left) > 0 {
		t.Errorf("the host-device plugin was called: %v, %v", left, err)
	}
}
