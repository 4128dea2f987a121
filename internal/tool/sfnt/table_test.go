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
		"a build that says RTT":            {"# cmdline: sfnt-pingpong --rtt tcp h\n# reporting: RTT\n", true, true},
		"a build that says half":           {"# cmdline: sfnt-pingpong tcp h\n# reporting: 1/2 RTT\n", false, true},
		"a build that says only that":      {"# reporting: RTT\n", true, true},
		"RTT that was not asked for":       {"# cmdline: sfnt-pingpong --rtt=0 tcp h\n# reporting: RTT\n", false, false},
		"half when RTT was asked for":      {"# cmdline: sfnt-pingpong --rtt=1 tcp h\n# reporting: 1/2 RTT\n", false, false},
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

// The header has no reliable information about acceleration: Onload 9 and later do not export the version that it would
// print, and LD_PRELOAD shows only the environment.
func TestTheHeaderDoesNotWarnOfOnload(t *testing.T) {
	for name, text := range map[string]string{
		"loaded, Onload 8":  "# version: 1.6.0\n# LD_PRELOAD=libonload.so\n# onload_version=201811-u1\n# EF_POLL_USEC=100000\n",
		"loaded, Onload 9":  "# version: bd7b04c-modified\n# LD_PRELOAD=/opt/onload/usr/lib64/libonload.so\n# EF_POLL_USEC=100000\n",
		"on the other side": "# version: 1.6.0\n# server LD_PRELOAD=libonload.so\n",
	} {
		if got := header(t, text).Warnings("sfnt-pingpong"); len(got) != 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := header(t, "# WARNING: the clock is slow\n").Warnings("sfnt-pingpong"); len(got) != 1 {
		t.Errorf("the tool's own warning: %q", got)
	}
}
