package sfnt

import (
	"testing"
)

func header(t *testing.T, output string) Header {
	t.Helper()
	table, err := ParseTable([]byte(output), []string{"size", "mean"})
	if err != nil {
		t.Fatal(err)
	}
	return table.Header
}

func TestFullRTT(t *testing.T) {
	cases := map[string]struct {
		header string
		want   bool
		ok     bool
	}{
		"a build that says RTT":            {"# cmdline: sfnt-pingpong tcp h\n# reporting: RTT\n", true, true},
		"a build that says half":           {"# cmdline: sfnt-pingpong --rtt tcp h\n# reporting: 1/2 RTT\n", false, true},
		"a build that says something else": {"# cmdline: sfnt-pingpong --rtt tcp h\n# reporting: one-way\n", false, false},
		"an older build with --rtt":        {"# cmdline: ./sfnt-pingpong --sizes 1 --rtt tcp h\n", true, true},
		"an older build without":           {"# cmdline: ./sfnt-pingpong --raw /x--rtt tcp h\n", false, true},
		"neither":                          {"# version: 1.5.0\n", false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			header := header(t, c.header)
			got, err := header.FullRTT()
			if got != c.want || (err == nil) != c.ok {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestOnloadIsNotWhatLDPreloadSays(t *testing.T) {
	cases := map[string]struct {
		header, version string
		warnings        int
	}{
		"loaded":                       {"# LD_PRELOAD=libonload.so\n# onload_version=201811-u1\n# EF_POLL_USEC=100000\n", "201811-u1", 0},
		"preloaded but not loaded":     {"# LD_PRELOAD=/opt/onload/usr/lib64/libonload.so\n# EF_POLL_USEC=100000\n", "", 1},
		"a banner alone":               {"oo:sfnt-pingpong[1]: Using OpenOnload 201811-u1 [0]\n", "", 0},
		"on the server alone":          {"# server LD_PRELOAD=libonload.so\n", "", 0},
		"something else was preloaded": {"# LD_PRELOAD=libvma.so\n", "", 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			header := header(t, c.header)
			if got := header.OnloadVersion(); got != c.version {
				t.Errorf("version %q, want %q", got, c.version)
			}
			if got := header.Warnings("sfnt-pingpong"); len(got) != c.warnings {
				t.Errorf("warnings %q", got)
			}
		})
	}
}
