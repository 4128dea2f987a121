package cni

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSelections(t *testing.T) {
	tests := []struct {
		name, annotation string
		want             []Selection
		wantErr          string
	}{
		{name: "nothing"},
		{name: "a name", annotation: "vf", want: []Selection{{Name: "vf", Namespace: "home"}}},
		{
			name: "the short form in full", annotation: "lab/vf@net7, other",
			want: []Selection{{Name: "vf", Namespace: "lab", Interface: "net7"}, {Name: "other", Namespace: "home"}},
		},
		{
			name: "JSON", annotation: `[{"name":"vf","namespace":"lab","interface":"net1","ips":["10.0.0.1/24","fd00::1"],
				"mac":"02:00:00:00:00:01","cni-args":{"x":1}}, {"name":"vf"}]`,
			want: []Selection{
				{
					Name: "vf", Namespace: "lab", Interface: "net1",
					IPs: []string{"10.0.0.1/24", "fd00::1"}, MAC: "02:00:00:00:00:01",
				},
				{Name: "vf", Namespace: "home"},
			},
		},
		{name: "empty JSON list", annotation: "[]", want: []Selection{}},
		{name: "JSON object", annotation: `{"name":"vf"}`, wantErr: "as JSON"},
		{name: "quotation mark makes it JSON", annotation: `"vf"`, wantErr: "as JSON"},
		{name: "two slashes", annotation: "a/b/c", wantErr: "more than one slash"},
		{name: "two ats", annotation: "a@b@c", wantErr: "more than one @"},
		{name: "empty element", annotation: "vf,", wantErr: "network 2 of the networks annotation: no name"},
		{name: "upper case", annotation: "VF", wantErr: "not a DNS label"},
		{name: "namespace that is no label", annotation: `[{"name":"vf","namespace":"a.b"}]`, wantErr: "not a DNS label"},
		{name: "long interface", annotation: "vf@abcdefghijklmnop", wantErr: "at most 15"},
		{name: "slash in an interface", annotation: `[{"name":"vf","interface":"a/b"}]`, wantErr: "no slash"},
		{name: "bad address", annotation: `[{"name":"vf","ips":["10.0.0.300"]}]`, wantErr: "neither an address"},
		{name: "bad mac", annotation: `[{"name":"vf","mac":"zz"}]`, wantErr: "mac"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseSelections(tt.annotation, "home")
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error = %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseSelections(f *testing.F) {
	for _, seed := range []string{"", "a", "a/b@c", "a,b", `[{"name":"a"}]`, "[null]", "a@", "/", "@", `{"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, annotation string) {
		selections, err := ParseSelections(annotation, "home")
		if err != nil {
			return
		}
		for _, s := range selections {
			if err := s.check(); err != nil {
				t.Errorf("ParseSelections(%q) let through %+v: %v", annotation, s, err)
			}
		}
	})
}
