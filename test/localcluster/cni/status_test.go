package cni

import (
	"net"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func address(t *testing.T, cidr string, iface *int) *current.IPConfig {
	t.Helper()
	ip, n, err := net.ParseCIDR(cidr)
	if err != nil {
		t.Fatal(err)
	}
	return &current.IPConfig{Address: net.IPNet{IP: ip, Mask: n.Mask}, Interface: iface}
}

func TestNetworkStatuses(t *testing.T) {
	tests := []struct {
		name      string
		a         attachment
		result    current.Result
		isDefault bool
		want      []NetworkStatus
	}{
		{
			name: "bridge: host ends are left out",
			a:    attachment{Network: "podnet", IfName: "eth0"},
			result: current.Result{
				Interfaces: []*current.Interface{
					{Name: "br0"}, {Name: "veth1"}, {Name: "eth0", Mac: "02:00:00:00:00:01", Mtu: 1500, Sandbox: "/ns"},
				},
				IPs: []*current.IPConfig{address(t, "10.0.0.2/24", current.Int(2)), address(t, "fd00::2/64", current.Int(2))},
			},
			isDefault: true,
			want: []NetworkStatus{{
				Name: "podnet", Interface: "eth0", MAC: "02:00:00:00:00:01", MTU: 1500,
				IPs: []string{"10.0.0.2", "fd00::2"}, Default: true,
			}},
		},
		{
			name:   "a device without addresses",
			a:      attachment{Network: "lab/vf", IfName: "net1", DeviceID: "0000:3b:02.0"},
			result: current.Result{Interfaces: []*current.Interface{{Name: "net1", Sandbox: "/ns", Mtu: 9000}}},
			want: []NetworkStatus{{
				Name: "lab/vf", Interface: "net1", MTU: 9000,
				DeviceInfo: &DeviceInfo{Type: "pci", Version: "1.1.0", PCI: PCIDevice{Address: "0000:3b:02.0"}},
			}},
		},
		{
			name: "two interfaces, an address of neither",
			a:    attachment{Network: "lab/two", IfName: "net1"},
			result: current.Result{
				Interfaces: []*current.Interface{{Name: "a", Sandbox: "/ns"}, {Name: "b", Sandbox: "/ns"}},
				IPs:        []*current.IPConfig{address(t, "10.1.0.2/24", current.Int(0)), address(t, "10.2.0.2/24", nil)},
			},
			want: []NetworkStatus{
				{Name: "lab/two", Interface: "a", IPs: []string{"10.1.0.2"}},
				{Name: "lab/two", Interface: "b", IPs: []string{"10.2.0.2"}},
			},
		},
		{
			name:   "a result that knows no interfaces",
			a:      attachment{Network: "lab/old", IfName: "net1"},
			result: current.Result{IPs: []*current.IPConfig{address(t, "10.1.0.2/24", nil)}},
			want:   []NetworkStatus{{Name: "lab/old", Interface: "net1", IPs: []string{"10.1.0.2"}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, networkStatuses(&tt.a, &tt.result, tt.isDefault)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusAnnotation(t *testing.T) {
	got, err := statusAnnotation([]NetworkStatus{{
		Name: "lab/vf", Interface: "net1", IPs: []string{"10.0.0.2"}, MAC: "02:00:00:00:00:01", MTU: 9000,
		DeviceInfo: &DeviceInfo{Type: "pci", Version: "1.1.0", PCI: PCIDevice{Address: "0000:3b:02.0"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `[
    {
        "name": "lab/vf",
        "interface": "net1",
        "ips": [
            "10.0.0.2"
        ],
        "mac": "02:00:00:00:00:01",
        "mtu": 9000,
        "dns": {},
        "device-info": {
            "type": "pci",
            "version": "1.1.0",
            "pci": {
                "pci-address": "0000:3b:02.0"
            }
        }
    }
]`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDevices(t *testing.T) {
	resp := &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		{Namespace: "other", Name: "p", Containers: []*podresources.ContainerResources{
			{Devices: []*podresources.ContainerDevices{{ResourceName: "x/vf", DeviceIds: []string{"0000:00:00.0"}}}},
		}},
		{Namespace: "home", Name: "p", Containers: []*podresources.ContainerResources{
			{Devices: []*podresources.ContainerDevices{
				{ResourceName: "x/vf", DeviceIds: []string{"0000:3b:02.3"}},
				{ResourceName: "x/pf", DeviceIds: []string{"0000:3b:00.0"}},
			}},
			{Devices: []*podresources.ContainerDevices{{ResourceName: "x/vf", DeviceIds: []string{"0000:3b:02.1"}}}},
		}},
	}}
	ds := devicesOf(resp, "home", "p")
	for i, want := range []string{"0000:3b:02.1", "0000:3b:02.3", ""} {
		if got := ds.take("x/vf"); got != want {
			t.Errorf("device %d is %q, want %q", i, got, want)
		}
	}
	if got := ds.take("x/none"); got != "" {
		t.Errorf("device of an unknown resource: %q", got)
	}
}
