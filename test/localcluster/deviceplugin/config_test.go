package deviceplugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseConfig(t *testing.T) {
	one := int64(1)
	tests := []struct {
		name, in string
		want     Config
		wantErr  string
	}{
		{
			name: "one device",
			in: `{"kubeletDir":"/var/lib/kubelet/device-plugins","resources":[{"name":"tailgate.test/sf_vf",
				"devices":[{"id":"0000:3b:02.0","netdev":"ens1f0v0","numaNode":1}]}]}`,
			want: Config{KubeletDir: "/var/lib/kubelet/device-plugins", Resources: []Resource{{
				Name:    "tailgate.test/sf_vf",
				Devices: []Device{{ID: "0000:3b:02.0", Netdev: "ens1f0v0", NUMANode: &one}},
			}}},
		},
		{name: "not JSON", in: `kubeletDir: /x`, wantErr: "parsing the configuration"},
		{name: "unknown field", in: `{"kubeletDirectory":"/x"}`, wantErr: "unknown field"},
		{name: "relative folder", in: `{"kubeletDir":"x","resources":[{"name":"a/b"}]}`, wantErr: "not an absolute path"},
		{name: "nothing to serve", in: `{"kubeletDir":"/x"}`, wantErr: "no resources"},
		{name: "no prefix", in: `{"kubeletDir":"/x","resources":[{"name":"vf"}]}`, wantErr: "prefix/name"},
		{name: "resource twice", in: `{"kubeletDir":"/x","resources":[{"name":"a/b"},{"name":"a/b"}]}`, wantErr: "same socket"},
		{
			name: "device twice", in: `{"kubeletDir":"/x","resources":[{"name":"a/b","devices":[{"id":"0"},{"id":"0"}]}]}`,
			wantErr: "twice",
		},
		{
			name: "comma in an id", in: `{"kubeletDir":"/x","resources":[{"name":"a/b","devices":[{"id":"0,1"}]}]}`,
			wantErr: "bad device id",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseConfig(strings.NewReader(tt.in))
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("ParseConfig() error = %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ParseConfig() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnvName(t *testing.T) {
	for resource, want := range map[string]string{
		"tailgate.test/sf_vf":    "PCIDEVICE_TAILGATE_TEST_SF_VF",
		"intel.com/sriov-net_A1": "PCIDEVICE_INTEL_COM_SRIOV-NET_A1",
	} {
		if got := EnvName(resource); got != want {
			t.Errorf("EnvName(%q) = %q, want %q", resource, got, want)
		}
	}
}
