package onload

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// The output of Onload in an emulated machine.
const (
	start = "oo:sfnt-pingpong[9773]: Using Onload ef17681d 2026-07-22 master  [7]\n" +
		"oo:sfnt-pingpong[9773]: Copyright (c) 2002-2026 Advanced Micro Devices, Inc.\n"
	dump = "oo:sockperf[12]: EF_UNIX_LOG=3\noo:sockperf[12]: EF_TCP=1\noo:sockperf[12]: EF_SPIN_USEC=100000\noo:sockperf[12]: EF_SLEEP_SPIN_USEC=-1\n" +
		"oo:sockperf[12]: GNU_LIBC_VERSION = glibc 2.36\noo:sockperf[12]: ci_is_multithreaded = 0\n"
	busy = "oo:tailgate-pinger[13]: netif_tcp_helper_alloc_u: ERROR: Failed to allocate stack (rc=-16)\n" +
		"See kernel messages in dmesg or /var/log/syslog for more details of this failure\n" +
		"tailgate-pinger: binding 192.0.2.2 port 22048: Device or resource busy\n"
)

func TestExplain(t *testing.T) {
	const failed, unavailable = v1alpha1.OutcomeAccelerationFailed, v1alpha1.OutcomeResourceUnavailable
	for name, c := range map[string]struct{ stderr, outcome, words string }{
		"nothing":                        {},
		"banner and settings":            {stderr: start + dump},
		"a tool's own words":             {stderr: "ERROR: Test failed.\n"},
		"no virtual interface":           {start + busy, unavailable, "netif_tcp_helper_alloc_u: ERROR: Failed to allocate stack (rc=-16)"},
		"no memory":                      {"oo:x[1]: f: ERROR: Failed to allocate stack (rc=-12)\n", unavailable, "f: ERROR: Failed to allocate stack (rc=-12)"},
		"no room":                        {"oo:x[1]: f: ERROR: Failed to allocate stack (rc=-28)\n", unavailable, "f: ERROR: Failed to allocate stack (rc=-28)"},
		"no huge pages of an X4":         {"oo:x[1]: netif_tcp_helper_alloc_u: alloc_efct_resources failed rc=-28\n", unavailable, "netif_tcp_helper_alloc_u: alloc_efct_resources failed rc=-28"},
		"no huge pages for packets":      {"oo:x[1]: f: ERROR: Failed to allocate huge pages to fill RX rings\n", unavailable, "f: ERROR: Failed to allocate huge pages to fill RX rings"},
		"too few packets":                {"oo:x[1]: f: ERROR: Insufficient packet buffers to fill RX rings (rxq_limit=1 rxq_low=1 rxq_min=256)\n", unavailable, "f: ERROR: Insufficient packet buffers to fill RX rings (rxq_limit=1 rxq_low=1 rxq_min=256)"},
		"not permitted":                  {"oo:x[1]: f: ERROR: Failed to allocate stack (rc=-1)\n", failed, "f: ERROR: Failed to allocate stack (rc=-1)"},
		"another number":                 {"oo:x[1]: f: ERROR: Failed to allocate stack (rc=-22)\n", failed, "f: ERROR: Failed to allocate stack (rc=-22)"},
		"no device, which has no prefix": {"citp_oo_get_cpu_khz: Failed to open /dev/onload\n", failed, "citp_oo_get_cpu_khz: Failed to open /dev/onload"},
		"another version":                {start + "oo:x[1]: ERROR: Driver/Library version mismatch detected.\n", failed, "ERROR: Driver/Library version mismatch detected."},
		"no control plane":               {"oo:x[1]: ci_netif_ctor: failed to get local control plane handle: -11\n", failed, "ci_netif_ctor: failed to get local control plane handle: -11"},
		"another control plane":          {"oo:x[1]: ERROR: user/driver cplane interface mismatch\n", failed, "ERROR: user/driver cplane interface mismatch"},
		"no NIC":                         {"oo:x[1]: netif_tcp_helper_alloc_u: ENODEV.\nThis error can occur if:\n", failed, "netif_tcp_helper_alloc_u: ENODEV."},
		"packets that cannot be mapped":  {"oo:x[1]: Failed to map packets!\n", failed, "Failed to map packets!"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := explain([]byte(c.stderr))
			if ok != (c.outcome != "") || got.Outcome != c.outcome || got.Words != c.words {
				t.Errorf("got %+v, %t", got, ok)
			}
			if ok && (got.Why == "" || got.Remedy == "") {
				t.Errorf("it says not why, or not what to do: %+v", got)
			}
		})
	}
}

func TestWhatOnloadAlwaysPrints(t *testing.T) {
	if got := Read([]byte("sockperf: ready\n" + start)).Banner; got != "ef17681d 2026-07-22 master" {
		t.Errorf("banner %q", got)
	}
	if got := Read([]byte("oo:x[1]: Using OpenOnload 201811-u1 [0]\n")).Banner; got != "201811-u1" {
		t.Errorf("banner %q", got)
	}
	if got := Read([]byte("Using Onload 9 [0]\n" + dump)).Banner; got != "" {
		t.Errorf("banner %q of a tool", got)
	}
	want := map[string]string{"EF_UNIX_LOG": "3", "EF_TCP": "1", "EF_SPIN_USEC": "100000", "EF_SLEEP_SPIN_USEC": "-1", "EF_LOG": "banner, conn_drop"}
	if diff := cmp.Diff(want, Read([]byte(start+dump+"oo:sockperf[12]: EF_LOG=banner, conn_drop\nEF_UDP=1\noo:sockperf[12]: EF_CLUSTER_NAME=\n")).Settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	for line, want := range map[string]bool{
		"oo:x[1]: Using Onload 9.0.2 [3]": true, "oo:x[1]: Copyright (c) 2002-2026": true, "oo:x[1]: EF_TCP=1": true, "oo:x[1]: EF_CLUSTER_NAME=": true, "oo:x[1]: ci_is_multithreaded = 0": true,
		"oo:x[1]: Failed to map packets!": false, "Using Onload": false, "EF_TCP=1": false, "": false,
	} {
		if got := Chatter(line); got != want {
			t.Errorf("%q: %t", line, got)
		}
	}
}

func TestStackSettings(t *testing.T) {
	// The output of onload_stackdump in an emulated machine.
	const dump = "ci_netif_config_opts_dump: 2\n                        NDEBUG: 1\n" +
		"                EF_MAX_PACKETS: 32768\n                  EF_SPIN_USEC: 100000 (default: 0)\n" +
		"                 EF_INT_DRIVEN: 0 (default: 1)\n                       EF_NAME: \"\"\n                  EF_POLL_USEC 1\n"
	changed, all := StackSettings([]byte(dump))
	if diff := cmp.Diff(map[string]string{"EF_SPIN_USEC": "100000", "EF_INT_DRIVEN": "0"}, changed); diff != "" || all != 4 {
		t.Errorf("%d settings; those that are not the defaults (-want +got):\n%s", all, diff)
	}
	if changed, all := StackSettings([]byte("Onload Driver/Library version mismatch detected.\n")); all != 0 || len(changed) != 0 {
		t.Errorf("%d settings, %v", all, changed)
	}
}

// The first line is from an emulated machine; the lines of an X4 follow the sources, and were not seen on hardware.
func TestStackInterfaces(t *testing.T) {
	const seen = "  Onload ef17681d 2026-07-22 master  uid=65532 pid=13 ns_flags=a0\nci_netif_dump_vi: stack=2 intf=0 dev=? hw=4X0\n  vi=0 pd_owner=1 channel=0\n"
	const x4 = "ci_netif_dump_vi: stack=2 intf=0 dev=0000:01:00.0 hw=1D0\nci_netif_dump_vi: stack=2 intf=1 dev=0000:01:00.0 hw=5A0\nci_netif_dump_vi: stack=2 intf=2 dev=? hw=9A0\n"
	for dump, want := range map[string][]string{"": nil, seen: {"AF_XDP"}, x4: {"EF10 (on an X4: Enterprise)", "EF10CT (on an X4: Express)", "architecture 9"}} {
		if diff := cmp.Diff(want, StackInterfaces([]byte(dump))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", dump, diff)
		}
	}
}
