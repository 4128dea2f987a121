package proof

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// warned returns the reasons of a run's warnings, and the reasons that prevent a verdict.
func warned(t *testing.T, w *world) (reasons, blocking []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, warning := range Warnings(w.spec, w.variant(), w.run) {
		reasons = append(reasons, warning.Reason)
		if warning.Blocks {
			blocking = append(blocking, warning.Reason)
		}
		if seen[warning.Reason] || warning.Reason == "" || warning.Message == "" {
			t.Errorf("a warning twice, or without reason or message: %+v", warning)
		}
		seen[warning.Reason] = true
	}
	return reasons, blocking
}

// TestSabotage spoils a run in the ways that the proof is there to notice.
func TestSabotage(t *testing.T) {
	cases := map[string]struct {
		change func(*world)
		want   []string
		// message contains parts of the first warning's message.
		message []string
	}{
		"CPUs shared, without a static policy": {
			client(func(e *result.Evidence, _ *result.Seen) {
				e.CPUsAllowed, e.AllowedNUMANodes, e.Facts["cgroup.cpus"], e.Facts["cpu.smt.sibling"] = "0-7", "0-1", "0-7", "own"
			}),
			[]string{"CPUsNotExclusive", "NUMAMismatch"},
			[]string{"in x-r1, client on a: CPUsExclusive: expected 2 exclusive CPUs, found 0-7 of the node's 0-7; ", "cpuManagerPolicy: static"},
		},
		"CPUs shared, behind a narrowed affinity": {
			client(func(e *result.Evidence, _ *result.Seen) { e.Facts["cgroup.cpus"] = "0-7" }),
			[]string{"CPUsNotExclusive"}, []string{"though its cpuset is 0-7"},
		},
		"the wrong interface": {
			server(func(e *result.Evidence, _ *result.Seen) { e.Interface, e.MAC = "eth0", "02:00:00:00:00:01" }),
			[]string{"InterfaceMismatch", "DeviceUnproved"}, []string{"server on b: Interface: expected net1, found eth0"},
		},
		"a VF of another NUMA node": {
			server(func(e *result.Evidence, _ *result.Seen) { e.DeviceNUMANode = 0 }),
			[]string{"NUMAMismatch"}, []string{"server on b", "found CPU 2 on NUMA node 1, net1 on 0; set topologyManagerPolicy: single-numa-node"},
		},
		"another MTU at one end": {
			server(func(e *result.Evidence, _ *result.Seen) { e.MTU = 1500 }),
			[]string{"MTUMismatch"}, []string{"client on a: MTU: expected 1500, equal to the other end, found 9000"},
		},
		"Onload whose messages go through the kernel": {
			all(withOnload, func(w *world) { w.client().Paths = resulttest.ThroughKernel(w.run.Client.Cells) }),
			[]string{"NotAccelerated"}, []string{"client on a: Acceleration: expected Onload carries the messages of every cell, found tcp-64: all messages went through the kernel"},
		},
		// Its device information files are gone, and Multus does not know the device.
		"the device plugin restarted between admission and start, on the local cluster": {
			all(onLocalCluster, server(func(_ *result.Evidence, s *result.Seen) { s.Network.DeviceInfo = nil })),
			[]string{"DeviceUnproved"}, []string{"server on b: Device: expected the one device of amd.com/sf_vf, found environment 0000:65:02.2, sysfs not known, network-status not known"},
		},
		"the device plugin restarted, and Multus attached another device": {
			server(func(e *result.Evidence, s *result.Seen) {
				e.PCIAddress, s.Network.DeviceInfo.PCI.Address = "0000:65:02.7", "0000:65:02.7"
			}),
			[]string{"DeviceUnproved"}, []string{"environment 0000:65:02.2, sysfs 0000:65:02.7, network-status 0000:65:02.7; check whether the device plugin"},
		},
		"a stale network-status": {
			all(onLocalCluster, client(func(_ *result.Evidence, s *result.Seen) {
				s.Network.MAC, s.Network.IPs = "02:00:00:00:00:09", []string{"192.0.2.77"}
			})),
			[]string{"DeviceUnproved"}, []string{"client on a: Device", "but 02:00:00:00:00:09 according to network-status"},
		},
		"a webhook that doubles the devices": {
			client(func(e *result.Evidence, s *result.Seen) {
				s.Requests[sfVF], s.Changed = "2", []string{"requests amd.com/sf_vf: 2 instead of 1"}
				e.AllocatedDevices["PCIDEVICE_AMD_COM_SF_VF"] = "0000:65:02.1,0000:65:02.7"
			}),
			[]string{"DeviceUnproved", "PodChanged"}, []string{`found "2" requested; exclude benchmark pods from webhooks`},
		},
		"a PF instead of a VF": {
			client(func(e *result.Evidence, _ *result.Seen) { e.Facts["nic.function"] = "PF" }),
			[]string{"FunctionMismatch"}, []string{"expected VF, found PF; use a resource of VFs"},
		},
		"a neighbour on the core": {
			client(func(e *result.Evidence, _ *result.Seen) {
				e.Facts["cpu.smt.sibling"], e.ThreadSiblings = "others", "2,6"
			}),
			[]string{"SMTShared"}, []string{"full-pcpus-only"},
		},
		"a quota that was used up": {
			client(func(e *result.Evidence, _ *result.Seen) {
				e.Facts["cgroup.cpu-max"], e.Deltas["cgroup.throttled"] = "200000 100000", 4
			}),
			[]string{"CPUThrottled"}, []string{"periods used up: 4", "cpuCFSQuota: false"},
		},
		"a link that broke":               {client(func(e *result.Evidence, _ *result.Seen) { e.Deltas["nic.carrier-changes"] = 2 }), []string{"LinkNotUp"}, nil},
		"Onload where none was asked for": {func(w *world) { w.client().Paths = resulttest.PastKernel(w.run.Client.Cells) }, []string{"Accelerated"}, nil},
		"a capture on the measuring CPU":  {func(w *world) { w.spec.Capture, w.server().AgentCPU = v1alpha1.CaptureServer, 2 }, []string{"CaptureSharesCPU"}, []string{"server on b", "set placement.cpus to 2 or more"}},
		"both ends of a reason are one":   {func(w *world) { w.client().OnlineCPUs, w.server().OnlineCPUs = "", "" }, []string{"CPUsNotExclusive"}, []string{"client on a"}},
		"an unreported NUMA node":         {client(func(e *result.Evidence, _ *result.Seen) { e.DeviceNUMANode = -1 }), []string{"NUMAUnknown"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := good(c.change)
			reasons, blocking := warned(t, w)
			if diff := cmp.Diff(c.want, reasons); diff != "" {
				t.Fatalf("reasons (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.want, blocking); diff != "" {
				t.Errorf("reasons that forbid a verdict (-want +got):\n%s", diff)
			}
			message := Warnings(w.spec, w.variant(), w.run)[0].Message
			for _, part := range c.message {
				if !strings.Contains(message, part) {
					t.Errorf("message %q does not say %q", message, part)
				}
			}
			client, server := Endpoints(w.spec, w.variant(), w.run)
			if Verified(client) && Verified(server) {
				t.Error("both ends are verified")
			}
		})
	}
}

func TestWhatDoesNotForbidAVerdict(t *testing.T) {
	far := func(w *world) { w.client().DeviceNUMANode = 0 }
	nowhere := func(w *world) { w.server().DeviceNUMANode = -1 }
	cases := map[string]struct {
		change        func(*world)
		want, blocked []string
		verified      bool
	}{
		"nothing":                 {func(*world) {}, nil, nil, true},
		"a far device, required":  {all(far, nowhere), []string{"NUMAMismatch", "NUMAUnknown"}, []string{"NUMAMismatch", "NUMAUnknown"}, false},
		"a far device, preferred": {all(numa("Preferred"), far, nowhere), []string{"NUMAMismatch", "NUMAUnknown"}, nil, false},
		"a far device, ignored":   {all(numa("Ignore"), far, nowhere), nil, nil, true},
		"one kernel under both":   {func(w *world) { w.client().BootID = "boot-b" }, []string{"SimulatedNIC"}, nil, true},
		"one boot, whose ID a node made up": {func(w *world) {
			w.client().BootedAt, w.server().BootedAt = 1_700_000_000_000_000_000, 1_700_000_000_000_030_000
		}, []string{"SimulatedNIC"}, nil, true},
		"two hosts that booted at once after a power failure": {func(w *world) {
			w.client().BootedAt, w.server().BootedAt = 1_700_000_000_000_000_000, 1_700_000_000_000_130_000
		}, nil, nil, true},
		"one boot, hidden by its ID": {func(w *world) {
			w.client().BootID, w.client().BootedAt, w.server().BootedAt = "", 1_700_000_000_000_000_000, 1_700_000_000_030_000_000
		}, []string{"SimulatedNIC"}, nil, true},
		"another kernel that booted at once": {func(w *world) {
			w.client().BootedAt, w.server().BootedAt = 1_700_000_000_000_000_000, 1_700_000_000_030_000_000
			w.client().Kernel = "6.12.95"
		}, nil, nil, true},
		"a device that QEMU emulates": {fact("nic.pci-subsystem", "1af4:1100"), []string{"EmulatedNIC"}, nil, true},
		"boots in the same second": {func(w *world) {
			w.client().BootedAt, w.server().BootedAt = 1_700_000_000_000_000_000, 1_700_000_000_060_000_000
		}, nil, nil, true},
		"two unknown kernels": {func(w *world) { w.client().BootID, w.server().BootID = "", "" }, nil, nil, true},
		"different drivers":   {func(w *world) { w.client().Driver, w.client().Firmware = "mlx5_core", "x" }, nil, nil, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := good(c.change)
			reasons, blocking := warned(t, w)
			if diff := cmp.Diff(c.want, reasons); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.blocked, blocking); diff != "" {
				t.Errorf("reasons that forbid a verdict (-want +got):\n%s", diff)
			}
			client, server := Endpoints(w.spec, w.variant(), w.run)
			if got := Verified(client) && Verified(server); got != c.verified {
				t.Errorf("verified %t, want %t", got, c.verified)
			}
		})
	}
}

// Onload accepts a library and a module of different versions if their interfaces are alike. The results then have a warning, which
// does not prevent a verdict.
func TestOnloadVersions(t *testing.T) {
	for name, c := range map[string]struct {
		library, module string
		acceleration    v1alpha1.AccelerationType
		want            string
	}{
		"one version":         {"9.0.2", "9.0.2", v1alpha1.AccelerationOnload, ""},
		"an older library":    {"9.0.2", "9.1.0", v1alpha1.AccelerationOnload, "server on b: Onload's library has version 9.0.2, and its kernel module 9.1.0; use one version of both"},
		"an unknown module":   {"9.0.2", "", v1alpha1.AccelerationOnload, ""},
		"an unknown library":  {"", "9.1.0", v1alpha1.AccelerationOnload, ""},
		"sockets of a kernel": {"9.0.2", "9.1.0", v1alpha1.AccelerationKernel, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := good(func(w *world) {
				w.spec.Acceleration = &v1alpha1.Acceleration{Type: c.acceleration}
				w.server().Facts["module.onload.version"], w.server().Paths = c.module, []result.Path{{Cell: "tcp-64", Banner: c.library}}
			})
			found := ""
			for _, warning := range Warnings(w.spec, w.variant(), w.run) {
				if warning.Reason == v1alpha1.WarningOnloadVersions {
					found += warning.Message
					if warning.Blocks {
						t.Error("it prevents a verdict")
					}
				}
			}
			if found != c.want && (c.want == "" || !strings.HasSuffix(found, c.want)) {
				t.Errorf("got %q, want %q", found, c.want)
			}
		})
	}
}

// A check that can prove something can also fail to, and then has a reason for the warning.
func TestChain(t *testing.T) {
	for _, c := range chain {
		for name, w := range map[string]*world{"good": good(), "Onload": good(withOnload), "captured": good(func(w *world) { w.spec.Capture = v1alpha1.CaptureServer })} {
			for _, e := range endpoints(w.spec, w.variant(), w.run) {
				f := c.run(e)
				if f.state == v1alpha1.ProofProved && (c.failed == "" || c.unknown == "") {
					t.Errorf("%s of %s asks for something and has no reason to warn", c.name, name)
				}
			}
		}
	}
}
