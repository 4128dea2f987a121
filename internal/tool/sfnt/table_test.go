package sfnt

import (
	"testing"

	"github.com/tailgate-dev/tailgate/internal/tool"
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
	absent := tool.Accelerated{Client: tool.AccelerationAbsent}
	cases := map[string]struct {
		header, version string
		warnings        int
		accelerated     tool.Accelerated
	}{
		// A library that is loaded need not have taken the socket.
		"loaded": {
			header: "# version: 1.6.0\n# LD_PRELOAD=libonload.so\n# onload_version=201811-u1\n# EF_POLL_USEC=100000\n", version: "201811-u1",
		},
		"preloaded but not loaded": {
			header: "# version: 1.6.0\n# LD_PRELOAD=/opt/onload/usr/lib64/libonload.so\n# EF_POLL_USEC=100000\n", warnings: 1, accelerated: absent,
		},
		"a banner alone":               {header: "# version: 1.6.0\noo:sfnt-pingpong[1]: Using OpenOnload 201811-u1 [0]\n", accelerated: absent},
		"on the server alone":          {header: "# version: 1.6.0\n# server LD_PRELOAD=libonload.so\n", accelerated: absent},
		"something else was preloaded": {header: "# version: 1.6.0\n# LD_PRELOAD=libvma.so\n", accelerated: absent},
		"no header":                    {header: "\t64\t1\n"},
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
			if got := header.Accelerated(); got != c.accelerated {
				t.Errorf("accelerated %+v, want %+v", got, c.accelerated)
			}
		})
	}
}
