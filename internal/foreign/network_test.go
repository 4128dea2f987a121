package foreign

import (
	_ "embed"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// networkStatus is the annotation of a pod with a default network, one definition attached twice, and one
// without addresses, in the form in which Multus writes it.
//
//go:embed testdata/network-status.json
var networkStatus string

func TestAnnotation(t *testing.T) {
	cases := map[string]struct {
		selections []Selection
		want       string
	}{
		"one network": {
			selections: []Selection{{Name: "sf-vf", Namespace: "perf", Interface: "net1"}},
			want:       `[{"name":"sf-vf","namespace":"perf","interface":"net1"}]`,
		},
		"a network with addresses": {
			selections: []Selection{{Name: "sf-vf", Namespace: "perf", Interface: "net1", IPs: []string{"192.168.40.1/24", "fd00:40::1/64"}}},
			want:       `[{"name":"sf-vf","namespace":"perf","interface":"net1","ips":["192.168.40.1/24","fd00:40::1/64"]}]`,
		},
		"one network twice": {
			selections: []Selection{{Name: "sf-vf", Namespace: "perf", Interface: "net1"}, {Name: "sf-vf", Namespace: "perf", Interface: "net2"}},
			want:       `[{"name":"sf-vf","namespace":"perf","interface":"net1"},{"name":"sf-vf","namespace":"perf","interface":"net2"}]`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Annotation(c.selections...); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// The configuration is a string, as Multus reads it, and contains only the values that were given.
func TestDefinition(t *testing.T) {
	got := Definition("perf", "sf-vf", "amd.com/sf_vf", NetworkConfig{CNIVersion: CNIVersion, Name: "sf-vf", Plugins: []CNIPlugin{{
		Type: "sriov", IPAM: &CNIIPAM{Type: "whereabouts", Range: "10.0.0.0/24", RangeStart: "10.0.0.10"},
	}}})
	want := map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{
			"namespace": "perf", "name": "sf-vf", "annotations": map[string]any{"k8s.v1.cni.cncf.io/resourceName": "amd.com/sf_vf"},
		},
		"spec": map[string]any{
			"config": `{"cniVersion":"1.0.0","name":"sf-vf","plugins":[{"type":"sriov","ipam":{"type":"whereabouts","range":"10.0.0.0/24","range_start":"10.0.0.10"}}]}`,
		},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("definition (-want +got):\n%s", diff)
	}
}

func TestFindStatus(t *testing.T) {
	cases := map[string]struct {
		annotation, name, iface string
		want                    Status
		// wantErr are parts of the error.
		wantErr []string
	}{
		"the first of two attachments of one definition": {
			annotation: networkStatus, name: "perf/sf-vf", iface: "net1",
			want: Status{Name: "perf/sf-vf", Interface: "net1", IPs: []string{"192.168.100.12", "fd00:100::12"}, MAC: "92:1d:6f:3e:aa:10", MTU: 9000,
				DeviceInfo: &DeviceInfo{Type: "pci", PCI: &PCIDevice{Address: "0000:65:02.3"}}},
		},
		"the second": {
			annotation: networkStatus, name: "perf/sf-vf", iface: "net2",
			want: Status{Name: "perf/sf-vf", Interface: "net2", IPs: []string{"192.168.100.13"}, MAC: "92:1d:6f:3e:aa:11", MTU: 9000,
				DeviceInfo: &DeviceInfo{Type: "pci", PCI: &PCIDevice{Address: "0000:65:02.4", PFAddress: "0000:65:00.0"}}},
		},
		"a network without addresses": {
			annotation: networkStatus, name: "perf/no-ipam", iface: "net3",
			want: Status{Name: "perf/no-ipam", Interface: "net3", MAC: "92:1d:6f:3e:aa:12"},
		},
		"the default network, which names no interface": {
			annotation: networkStatus, name: "k8s-pod-network",
			want: Status{Name: "k8s-pod-network", IPs: []string{"10.244.1.17"}, MAC: "5e:0a:11:6c:9d:02", Default: true},
		},
		"an interface of another network": {
			annotation: networkStatus, name: "perf/no-ipam", iface: "net1",
			wantErr: []string{"perf/no-ipam", "net1"},
		},
		"a network of another namespace": {
			annotation: networkStatus, name: "other/sf-vf", iface: "net1",
			wantErr: []string{"other/sf-vf"},
		},
		"no network at all": {
			annotation: "[]", name: "perf/sf-vf", iface: "net1", wantErr: []string{AnnotationNetworkStatus},
		},
		"no list": {
			annotation: "{}", name: "perf/sf-vf", iface: "net1", wantErr: []string{AnnotationNetworkStatus},
		},
		"nothing": {
			annotation: "", name: "perf/sf-vf", iface: "net1", wantErr: []string{AnnotationNetworkStatus},
		},
		"an annotation that was cut off": {
			annotation: networkStatus[:len(networkStatus)/2], name: "perf/sf-vf", iface: "net1", wantErr: []string{AnnotationNetworkStatus},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := FindStatus(c.annotation, c.name, c.iface)
			if (err != nil) != (c.wantErr != nil) {
				t.Fatalf("got error %v, want one: %t", err, c.wantErr != nil)
			}
			for _, part := range c.wantErr {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestObjectIsOfTheKind(t *testing.T) {
	if got := Object().GroupVersionKind(); got != GroupVersionKind {
		t.Errorf("got %s, want %s", got, GroupVersionKind)
	}
}

// A status that is found has that name and interface, and is in the annotation.
func FuzzFindStatus(f *testing.F) {
	f.Add(networkStatus, "perf/sf-vf", "net2")
	f.Add("[]", "", "")
	f.Add(`[{"name":"a/b","interface":"net1","ips":null}]`, "a/b", "net1")
	f.Add(`[null]`, "", "")
	f.Add(`[{"ips":["1",2]}]`, "", "")
	f.Fuzz(func(t *testing.T, annotation, name, iface string) {
		status, err := FindStatus(annotation, name, iface)
		if err != nil {
			return
		}
		if status.Name != name || status.Interface != iface {
			t.Errorf("asked for %q at %q, got %+v", name, iface, status)
		}
		if !json.Valid([]byte(annotation)) {
			t.Errorf("found %+v in what is no JSON: %q", status, annotation)
		}
	})
}
