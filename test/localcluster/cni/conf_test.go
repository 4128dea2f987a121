package cni

import (
	"strings"
	"testing"
)

func TestLoadConf(t *testing.T) {
	const good = `{"cniVersion":"1.0.0","name":"podnet","type":"multinet","kubeconfig":"/k","podResourcesSocket":"/s",` +
		`"stateDir":"/st","delegate":{"type":"bridge"}}`
	if _, err := LoadConf([]byte(good)); err != nil {
		t.Errorf("good configuration: %v", err)
	}
	for change, wantErr := range map[[2]string]string{
		{`{"cni`, `["cni`}:                          "parsing",
		{`"name":"podnet",`, ``}:                    "without a name",
		{`"/k"`, `"k"`}:                             "kubeconfig",
		{`"/s"`, `""`}:                              "podResourcesSocket",
		{`"stateDir":"/st",`, ``}:                   "stateDir",
		{`,"delegate":{"type":"bridge"}}`, `}`}:     "no delegate",
		{`"delegate":{"type":"bridge"}}`, `"a":1}`}: "no delegate",
	} {
		_, err := LoadConf([]byte(strings.Replace(good, change[0], change[1], 1)))
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%q instead of %q: error = %v, want one with %q", change[1], change[0], err, wantErr)
		}
	}
}

func TestConfList(t *testing.T) {
	tests := []struct{ name, raw, version, device, want, wantErr string }{
		{
			name: "single plugin takes name and version", raw: `{"type":"bridge","mtu":9000}`, version: "1.0.0",
			want: `{"cniVersion":"1.0.0","name":"nad","plugins":[{"cniVersion":"1.0.0","mtu":9000,"name":"nad","type":"bridge"}]}`,
		},
		{
			name: "own name and version stay", raw: `{"cniVersion":"0.3.1","name":"own","type":"x"}`, version: "1.0.0",
			want: `{"cniVersion":"0.3.1","name":"own","plugins":[{"cniVersion":"0.3.1","name":"own","type":"x"}]}`,
		},
		{
			name: "device goes to every plugin", raw: `{"name":"own","plugins":[{"type":"host-device"},{"type":"tuning"}]}`,
			device: "0000:3b:02.0",
			want: `{"name":"own","plugins":[{"deviceID":"0000:3b:02.0","pciBusID":"0000:3b:02.0","type":"host-device"},` +
				`{"deviceID":"0000:3b:02.0","pciBusID":"0000:3b:02.0","type":"tuning"}]}`,
		},
		{name: "not JSON", raw: `type: x`, wantErr: "parsing"},
		{name: "null", raw: `null`, wantErr: "not an object"},
		{name: "no plugin for the device", raw: `{"plugins":[]}`, device: "0", wantErr: "no plugins"},
		{name: "odd plugin", raw: `{"plugins":[1]}`, device: "0", wantErr: "not an object"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ConfList([]byte(tt.raw), "nad", tt.version, tt.device)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error = %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
