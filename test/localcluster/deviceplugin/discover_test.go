package deviceplugin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiscover(t *testing.T) {
	pci := t.TempDir()
	write := func(path, content string) {
		t.Helper()
		path = filepath.Join(pci, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	card := func(id, netdev, numa string) {
		t.Helper()
		write(id+"/class", "0x020000")
		write(id+"/numa_node", numa)
		write(id+"/net/"+netdev+"/mtu", "1500")
	}
	card("0000:11:00.0", "ens1f0", "0")
	write("0000:11:00.0/sriov_numvfs", "2")
	card("0000:11:10.0", "eth1", "0")
	write("0000:11:10.0/physfn/class", "0x020000")
	card("0000:21:00.0", "ens2f0", "1")
	write("0000:21:00.0/sriov_numvfs", "0")
	card("0000:31:00.0", "eth0", "1")
	write("0000:31:00.0/sriov_numvfs", "0")
	card("0000:41:00.0", "virtual", "-1") // without virtual functions: not a PF
	write("0000:51:00.0/class", "0x010000")
	// A VF without a network device, because another driver has it.
	write("0000:11:10.2/class", "0x020000")
	write("0000:11:10.2/physfn/class", "0x020000")

	c := Config{DeviceInfoDir: filepath.Join(t.TempDir(), "dp"), Resources: []Resource{
		{Name: "a/vf", Functions: VFs}, {Name: "a/pf", Functions: PFs}, {Name: "a/listed", Devices: []Device{{ID: "x"}}},
	}}
	if err := c.discover(pci, []string{"eth0"}); err != nil {
		t.Fatal(err)
	}
	want := []Resource{
		{Name: "a/vf", Functions: VFs, Devices: []Device{{ID: "0000:11:10.0", Netdev: "eth1", NUMANode: new(int64(0))}}},
		{Name: "a/pf", Functions: PFs, Devices: []Device{{ID: "0000:21:00.0", Netdev: "ens2f0", NUMANode: new(int64(1))}}},
		{Name: "a/listed", Devices: []Device{{ID: "x"}}},
	}
	if diff := cmp.Diff(want, c.Resources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := c.writeInfos(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(c.DeviceInfoDir, "a-vf-0000:11:10.0-device.json"))
	if err != nil || string(text) != `{"pci":{"pci-address":"0000:11:10.0"},"type":"pci","version":"1.1.0"}` {
		t.Errorf("device information %s, %v", text, err)
	}
}
