package agent

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/result"
)

func TestInspect(t *testing.T) {
	files := maps.Clone(server2)
	maps.Copy(files, map[string]string{
		"sys/devices/pci0000:60/0000:60:01.0/0000:65:00.0/vendor":         "0x1924\n",
		"sys/devices/pci0000:60/0000:60:01.0/0000:65:00.0/device":         "0x0b03\n",
		"sys/devices/pci0000:60/0000:60:01.0/0000:65:00.0/class":          "0x020000\n",
		"sys/devices/pci0000:60/0000:60:01.0/0000:65:00.0/numa_node":      "1\n",
		"sys/devices/pci0000:60/0000:60:01.0/0000:65:00.0/sriov_numvfs":   "4\n",
		"sys/devices/pci0000:60/0000:60:01.0/0000:65:00.0/sriov_totalvfs": "16\n",
		"sys/devices/pci0000:60/0000:60:01.0/0000:65:00.0/driver":         "->../../../../bus/pci/drivers/sfc",
		"sys/bus/pci/drivers/sfc/bind":                                    "",
		"sys/bus/pci/devices/0000:65:00.0":                                "->../../../devices/pci0000:60/0000:60:01.0/0000:65:00.0",
		"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.4/class":          "0x020000\n",
		"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.4/physfn":         "->../0000:65:00.0",
		"sys/bus/pci/devices/0000:00:1f.2":                                "->../../../devices/pci0000:00/0000:00:1f.2",
		"sys/devices/pci0000:00/0000:00:1f.2/class":                       "0x010601\n",
		"sys/bus/pci/devices/0000:00:1f.6":                                "->../../../devices/pci0000:00/0000:00:1f.6",
		"sys/devices/pci0000:00/0000:00:1f.6/class":                       "0x020000\n",
		"sys/devices/pci0000:00/0000:00:1f.6/numa_node":                   "-1\n",
		"sys/devices/pci0000:00/0000:00:1f.6/vendor":                      "0x8086\n",
		"sys/devices/pci0000:00/0000:00:1f.6/device":                      "0x15bc\n",
		"opt/onload/usr/lib64/libonload.so":                               "",
		"dev/onload":                                                      "",
		"sys/module/onload/parameters/cplane_server_path":                 "/usr/bin/crictl\n",
	})
	i := Inspector{Node: "a", PodIP: "203.0.113.7", Root: fakeRoot(t, files).root, Environ: []string{"LD_PRELOAD=/opt/onload/usr/lib64/libonload.so"}}
	got, err := i.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := got.Evidence
	if e.Node != "a" || e.CPUsAllowed != "2-3" || e.MeasuringCPU != 2 || e.CPUNUMANode != 1 || e.Clocksource != "tsc" || e.Interface != "" {
		t.Errorf("evidence %+v", e)
	}
	for key := range e.Facts {
		// No interface of this machine has the pod's address.
		if len(key) > 4 && key[:4] == "nic." {
			t.Errorf("fact %s of no interface", key)
		}
	}
	got.Evidence = result.Inspection{}.Evidence
	want := result.Inspection{
		Version: result.InspectionVersion,
		NUMA:    map[string]string{"0": "0-1,4-5", "1": "2-3,6-7"},
		NICs: []result.NIC{
			{PCIAddress: "0000:00:1f.6", ID: "8086:15bc", NUMANode: -1},
			{PCIAddress: "0000:65:00.0", ID: "1924:0b03", Driver: "sfc", NUMANode: 1, VFs: 4, TotalVFs: 16},
		},
		Onload: result.Onload{
			Preload: "/opt/onload/usr/lib64/libonload.so", Library: "/opt/onload/usr/lib64/libonload.so", Devices: []string{"/dev/onload"}, ControlPlane: "/usr/bin/crictl",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("inspection (-want +got):\n%s", diff)
	}
}

// The interface is the named one, with its MTU on this machine.
func TestInspectInterface(t *testing.T) {
	i := Inspector{Interface: "lo", Root: fakeRoot(t, server2).root}
	got, err := i.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Evidence.Interface != "lo" || got.Evidence.MTU <= 0 || got.Onload.Library != "" {
		t.Errorf("%+v", got)
	}
	i.Root = t.TempDir()
	if _, err := i.Inspect(t.Context()); err == nil {
		t.Error("an inspection of a machine that tells no CPUs")
	}
}

func TestInspectWaitsForTheLink(t *testing.T) {
	files := maps.Clone(server2)
	files["sys/class/net/lo/carrier"] = "0\n"
	h := fakeRoot(t, files)
	time.AfterFunc(50*time.Millisecond, func() { write(t, h, map[string]string{"sys/class/net/lo/carrier": "1\n"}) })
	got, err := Inspector{Interface: "lo", Root: h.root}.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if carrier := got.Evidence.Facts["nic.carrier"]; carrier != "1" {
		t.Errorf("the carrier is %q", carrier)
	}
}
