//go:build e2e

// Package onload runs the project's agents, tools and proof on a real Onload in a guest. It is opt-in: ONLOAD_DIR names a
// folder with an Onload that was built for the guest's kernel.
package onload

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/lab"
	"github.com/tailgate-dev/tailgate/test/localcluster/guestnode"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

const (
	// seconds is the default duration of a cell.
	seconds  = 4 * time.Second
	patience = 5 * time.Minute

	clientAddress, serverAddress           = "192.0.2.1", "192.0.2.2"
	otherClientAddress, otherServerAddress = "198.51.100.1", "198.51.100.2"
)

func TestMain(m *testing.M) {
	lab.Main(m, func() (*lab.Machine, string) {
		dir := os.Getenv("ONLOAD_DIR")
		if dir == "" {
			return nil, "ONLOAD_DIR names no folder with an Onload"
		}
		files := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err.Error()
		}
		for _, e := range entries {
			inGuest := "/usr/lib/x86_64-linux-gnu/" + e.Name()
			switch filepath.Ext(e.Name()) {
			case ".ko":
				inGuest = "/onload/" + e.Name()
			case "":
				inGuest = "/sbin/" + e.Name()
			}
			if e.Name() == "libonload.so" {
				inGuest = "/opt/onload/usr/lib64/libonload.so"
			}
			files[inGuest] = filepath.Join(dir, e.Name())
		}
		return &lab.Machine{
			CPUs: 4, MemoryMiB: 4096, NICs: []int{0, 0, 1, 1},
			Modules: []string{"virtio_pci", "virtio_net", "/onload/sfc_resource.ko enable_af_xdp_flow_filters=0",
				"/onload/sfc_char.ko"},
			Files: files,
		}, ""
	})
}

// spaces holds the network namespaces of client and server.
var spaces = map[string]*netpair.Namespace{}

// registered reports whether Onload's last module is loaded and has the NICs.
var registered bool

// setup creates the network namespaces, loads Onload's last module, registers the NICs with it and measures once over them. It does
// this only at its first call.
func setup(t *testing.T) {
	t.Helper()
	if registered {
		return
	}
	setupSpaces(t)
	pinInterrupts(t)
	if err := guestnode.LoadModule("/onload/onload.ko inject_kernel_gid=-1 " + oftenPolled); err != nil {
		t.Fatal(err)
	}
	for i, role := range roles {
		device := fmt.Sprintf("eth%d", i)
		if err := spaces[role].In(func() error {
			return os.WriteFile("/sys/module/sfc_resource/afxdp/register", []byte(device+"\n"), 0o200)
		}); err != nil {
			t.Fatalf("registering %s: %v", device, err)
		}
	}
	registered = true
	// The first stacks of a namespace start Onload's control plane in it, which takes most of the CPU time of an emulated machine
	// for seconds. The result of this run is ignored.
	first := testCase{name: "first", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency}
	first.prepare(t)
	first.run(t, nil)
}

// oftenPolled holds parameters of Onload's module: it polls its stacks every second tick instead of every 100 ms. Over AF_XDP, a
// stack that does not spin depends on that: the NIC wakes such a stack until its library has to request the next wake-up, which
// the library cannot do there (efxdp_ef_eventq_prime of Onload's sources is empty), and only the poll finds all later messages.
// With EF_INT_DRIVEN=0, the module requests each wake-up, and few are lost.
const oftenPolled = "periodic_poll=1 periodic_poll_skew=1"

// pinInterrupts directs the interrupts of each NIC to the CPU of its end. A message then needs only the emulated CPUs of the two
// ends; a machine without KVM can run few at a time.
func pinInterrupts(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		t.Fatal(err)
	}
	pinned := 0
	for l := range strings.Lines(string(text)) {
		fields := strings.Fields(l)
		var nic int
		if _, err := fmt.Sscanf(fields[len(fields)-1], "virtio%d-", &nic); err != nil {
			continue
		}
		if err := os.WriteFile("/proc/irq/"+strings.TrimSuffix(fields[0], ":")+"/smp_affinity_list", []byte(endCPU[nic%2]), 0); err != nil {
			t.Fatal(err)
		}
		pinned++
	}
	if pinned == 0 {
		t.Fatalf("no interrupts of NICs among %q", text)
	}
}

// setupSpaces creates the network namespaces of client and server at its first call.
func setupSpaces(t *testing.T) {
	t.Helper()
	if len(spaces) > 0 {
		return
	}
	// A pod's root is read-only, so the target of a mount must exist.
	if err := os.WriteFile("/etc/ld.so.preload", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for i, role := range roles {
		s, err := netpair.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		spaces[role] = s
		accelerated, other := [2]string{clientAddress, serverAddress}[i], [2]string{otherClientAddress, otherServerAddress}[i]
		if err := errors.Join(
			s.Attach(netpair.Interface{Name: fmt.Sprintf("eth%d", i), Addresses: []string{accelerated + "/24"}}),
			s.Attach(netpair.Interface{Name: fmt.Sprintf("eth%d", i+2), Addresses: []string{other + "/24"}}),
		); err != nil {
			t.Fatal(err)
		}
	}
}

// testCase is a run with its expected result.
type testCase struct {
	name         string
	program      v1alpha1.Tool
	protocols    []v1alpha1.Protocol
	sizes, rates []int32
	streams      []v1alpha1.Stream
	duration     time.Duration
	cpus         int32
	wait         v1alpha1.WaitMode
	profile      v1alpha1.OnloadProfile
	// settings are in the spec; container are variables that something else sets in the container.
	settings, container []string
	// preload is the content of /etc/ld.so.preload.
	preload string
	binds   map[string]string
	capture v1alpha1.CaptureMode
	// kernel requests the kernel's sockets instead of Onload's.
	kernel bool
	// unregistered runs over the NICs that Onload does not accelerate.
	unregistered bool
	// noDevice hides Onload's devices, as from a pod that did not request them; closed lets only root open them.
	noDevice, closed bool
	// noLibrary hides Onload's library.
	noLibrary bool
	// occupied runs while another process at the server's end has the only stack that the NIC supports.
	occupied bool
	// noisy sends datagrams between other sockets of the server's network namespace meanwhile.
	noisy bool
	// host has the proof take the network for that of the hosts, whose counters are those of all processes.
	host bool
	// plane is a program that runs instead of Onload's control plane.
	plane string
	// rerouted sends the messages of the client, from the middle of the cell on, to an interface without the server.
	rerouted bool
	// truth is the path of the messages at both ends.
	truth string
	// fails is the reason of the run's failure, and words a part of its message.
	fails, words string
}

var (
	tcp = []v1alpha1.Protocol{v1alpha1.ProtocolTCP}
	udp = []v1alpha1.Protocol{v1alpha1.ProtocolUDP}
	mc  = []v1alpha1.Protocol{v1alpha1.ProtocolMulticast}
	// notDriven makes a stack that does not spin fast enough for tools that send thousands of messages.
	notDriven = []string{"EF_INT_DRIVEN=0"}
	// endCPU is the measuring CPU of client and server, in this order.
	endCPU = []string{"1", "2"}
)

const (
	latency = v1alpha1.OnloadProfileLatency
	// sfntCell is the duration of the cells of sfnt-pingpong. Its deadline allows three minutes for them.
	sfntCell = 30 * time.Second
	library  = "/opt/onload/usr/lib64/libonload.so"
)

var cases = []testCase{
	{name: "pinger TCP", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, truth: accelerated},
	{name: "pinger UDP", program: v1alpha1.ToolPinger, protocols: udp, profile: latency, truth: accelerated},
	{name: "pinger multicast", program: v1alpha1.ToolPinger, protocols: mc, profile: latency, truth: accelerated},
	{name: "pinger TCP that spins", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, wait: v1alpha1.WaitSpin, truth: accelerated},
	{name: "pinger TCP without a profile", program: v1alpha1.ToolPinger, protocols: tcp, truth: accelerated},
	{name: "pinger UDP without a profile", program: v1alpha1.ToolPinger, protocols: udp, truth: accelerated},
	{name: "pinger multicast without a profile", program: v1alpha1.ToolPinger, protocols: mc, truth: accelerated},
	{name: "pinger TCP that spins, without a profile", program: v1alpha1.ToolPinger, protocols: tcp, wait: v1alpha1.WaitSpin, truth: accelerated},
	// sfnt-pingpong sends at least 11,000 messages, which takes time in an emulated machine.
	{name: "sfnt-pingpong TCP", program: v1alpha1.ToolSfntPingpong, protocols: tcp, profile: latency, duration: sfntCell, truth: accelerated},
	{name: "sfnt-pingpong UDP", program: v1alpha1.ToolSfntPingpong, protocols: udp, profile: latency, duration: sfntCell, truth: accelerated},
	{name: "sfnt-pingpong multicast", program: v1alpha1.ToolSfntPingpong, protocols: mc, profile: latency, duration: sfntCell, truth: accelerated},
	{name: "sfnt-pingpong TCP without a profile", program: v1alpha1.ToolSfntPingpong, protocols: tcp, duration: sfntCell, settings: notDriven, truth: accelerated},
	{name: "sfnt-pingpong UDP without a profile", program: v1alpha1.ToolSfntPingpong, protocols: udp, duration: sfntCell, settings: notDriven, truth: accelerated},
	{name: "sfnt-stream UDP", program: v1alpha1.ToolSfntStream, protocols: udp, rates: []int32{100}, cpus: 2, profile: latency, truth: accelerated},
	{name: "sfnt-pingpong multicast without a profile", program: v1alpha1.ToolSfntPingpong, protocols: mc, duration: sfntCell, settings: notDriven, truth: accelerated},
	{name: "sfnt-stream multicast", program: v1alpha1.ToolSfntStream, protocols: mc, rates: []int32{100}, cpus: 2, profile: latency, truth: accelerated},
	{name: "sfnt-stream multicast without a profile", program: v1alpha1.ToolSfntStream, protocols: mc, rates: []int32{100}, cpus: 2, settings: notDriven, truth: accelerated},
	{name: "sfnt-stream UDP without a profile", program: v1alpha1.ToolSfntStream, protocols: udp, rates: []int32{100}, cpus: 2, settings: notDriven, truth: accelerated},
	{name: "sockperf TCP", program: v1alpha1.ToolSockperf, protocols: tcp, profile: latency, truth: accelerated},
	{name: "sockperf UDP", program: v1alpha1.ToolSockperf, protocols: udp, profile: latency, truth: accelerated},
	{name: "sockperf UDP without a profile", program: v1alpha1.ToolSockperf, protocols: udp, truth: accelerated},
	{name: "sockperf TCP without a profile", program: v1alpha1.ToolSockperf, protocols: tcp, truth: accelerated},
	{name: "netperf TCP without a profile", program: v1alpha1.ToolNetperf, protocols: tcp, truth: accelerated},
	{name: "netperf UDP without a profile", program: v1alpha1.ToolNetperf, protocols: udp, truth: accelerated},
	{name: "sockperf UDP at a rate", program: v1alpha1.ToolSockperf, protocols: udp, profile: latency, rates: []int32{20}, cpus: 2, truth: accelerated},
	{name: "sockperf multicast", program: v1alpha1.ToolSockperf, protocols: mc, profile: latency, duration: 10 * time.Second, truth: accelerated},
	{name: "sockperf multicast without a profile", program: v1alpha1.ToolSockperf, protocols: mc, duration: 10 * time.Second, truth: accelerated},
	{name: "netperf TCP", program: v1alpha1.ToolNetperf, protocols: tcp, profile: latency, truth: accelerated},
	{name: "netperf UDP", program: v1alpha1.ToolNetperf, protocols: udp, profile: latency, truth: accelerated},
	{name: "several cells, sockperf", program: v1alpha1.ToolSockperf, protocols: udp, sizes: []int32{64, 512, 1400}, profile: latency, truth: accelerated},
	{name: "several cells, pinger", program: v1alpha1.ToolPinger, protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}, sizes: []int32{64, 1024}, profile: latency, truth: accelerated},
	{name: "capture", program: v1alpha1.ToolPinger, protocols: udp, profile: latency, capture: v1alpha1.CaptureServer, truth: accelerated},

	{name: "unregistered NIC, pinger TCP", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, unregistered: true, truth: kernel},
	{name: "unregistered NIC, pinger UDP", program: v1alpha1.ToolPinger, protocols: udp, profile: latency, unregistered: true, truth: kernel},
	{name: "unregistered NIC, pinger multicast", program: v1alpha1.ToolPinger, protocols: mc, profile: latency, unregistered: true, truth: kernel},
	{name: "unregistered NIC, sfnt-pingpong TCP", program: v1alpha1.ToolSfntPingpong, protocols: tcp, duration: 20 * time.Second, unregistered: true, truth: kernel},
	{name: "unregistered NIC, sfnt-pingpong UDP", program: v1alpha1.ToolSfntPingpong, protocols: udp, duration: 20 * time.Second, unregistered: true, truth: kernel},
	{name: "unregistered NIC, sockperf TCP", program: v1alpha1.ToolSockperf, protocols: tcp, profile: latency, unregistered: true, truth: kernel},
	{name: "unregistered NIC, sockperf UDP", program: v1alpha1.ToolSockperf, protocols: udp, profile: latency, unregistered: true, truth: kernel},
	{name: "unregistered NIC, sockperf multicast", program: v1alpha1.ToolSockperf, protocols: mc, duration: 10 * time.Second, profile: latency, unregistered: true, truth: kernel},
	{name: "UDP of 1472 bytes", program: v1alpha1.ToolPinger, protocols: udp, sizes: []int32{1472}, profile: latency, truth: accelerated},
	{name: "UDP of 2000 bytes", program: v1alpha1.ToolPinger, protocols: udp, sizes: []int32{2000}, duration: 10 * time.Second, profile: latency, truth: partly},
	{name: "UDP of 8000 bytes", program: v1alpha1.ToolPinger, protocols: udp, sizes: []int32{8000}, duration: 10 * time.Second, profile: latency, truth: partly},
	{name: "EF_UDP=0", program: v1alpha1.ToolPinger, protocols: udp, duration: 10 * time.Second, profile: latency, settings: []string{"EF_UDP=0"}, truth: kernel},
	{name: "EF_TCP=0", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, settings: []string{"EF_TCP=0"}, truth: kernel},

	{name: "kernel", program: v1alpha1.ToolPinger, protocols: udp, kernel: true, truth: kernel},
	{name: "kernel, TCP", program: v1alpha1.ToolPinger, protocols: tcp, kernel: true, truth: kernel},
	{name: "kernel, the container preloads Onload", program: v1alpha1.ToolPinger, protocols: tcp, kernel: true,
		container: []string{"LD_PRELOAD=" + library, "EF_POLL_USEC=100000"}, truth: kernel},
	{name: "kernel, /etc/ld.so.preload names Onload", program: v1alpha1.ToolPinger, protocols: udp, kernel: true, preload: library, truth: accelerated},

	{name: "no device", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, noDevice: true, fails: v1alpha1.OutcomeAccelerationFailed, words: "/dev/onload"},
	{name: "device that only root may open", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, closed: true, fails: v1alpha1.OutcomeAccelerationFailed, words: "/dev/onload"},
	{name: "device that only root may open, EF_NO_FAIL=1", program: v1alpha1.ToolPinger, protocols: udp, profile: latency, closed: true, settings: []string{"EF_NO_FAIL=1"}, truth: kernel},
	{name: "no library", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, noLibrary: true, fails: v1alpha1.OutcomeAccelerationFailed, words: library},
	{name: "unknown setting", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, settings: []string{"EF_NO_SUCH=1"}, fails: v1alpha1.OutcomeAccelerationFailed, words: "EF_NO_SUCH"},
	{name: "datagrams of another process", program: v1alpha1.ToolPinger, protocols: udp, profile: latency, noisy: true, truth: accelerated},
	{name: "datagrams of another process, the host's network", program: v1alpha1.ToolPinger, protocols: udp, profile: latency, noisy: true, host: true, truth: accelerated},
	{name: "EF_UDP is no number", program: v1alpha1.ToolPinger, protocols: udp, profile: latency, settings: []string{"EF_UDP=yes"}, truth: accelerated},
	{name: "no control plane", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, plane: "/nonexistent", fails: v1alpha1.OutcomeAccelerationFailed, words: "its control plane does not run"},
	{name: "no control plane, UDP", program: v1alpha1.ToolPinger, protocols: udp, profile: latency, plane: "/nonexistent", fails: v1alpha1.OutcomeAccelerationFailed, words: "its control plane does not run"},
	{name: "a control plane that exits", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, plane: "/sbin/onload_stackdump", fails: v1alpha1.OutcomeAccelerationFailed, words: "its program exited"},
	{name: "EF_DONT_ACCELERATE=1", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, settings: []string{"EF_DONT_ACCELERATE=1"}, truth: kernel},
	{name: "the route changes, UDP", program: v1alpha1.ToolPinger, protocols: udp, duration: 10 * time.Second, profile: latency, rerouted: true, fails: v1alpha1.OutcomeToolFailed, words: "the other end hangs"},
	{name: "the route changes, TCP", program: v1alpha1.ToolPinger, protocols: tcp, duration: 10 * time.Second, profile: latency, rerouted: true, fails: v1alpha1.OutcomeToolFailed, words: "the other end hangs"},
	{name: "sfnt-stream UDP at two rates", program: v1alpha1.ToolSfntStream, protocols: udp, rates: []int32{100, 150}, cpus: 2, profile: latency, truth: accelerated},
	{name: "no room for a stack", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, occupied: true, fails: v1alpha1.OutcomeResourceUnavailable, words: "no virtual interface"},
}

// devices returns the devices of the case's pods.
func (c testCase) devices() []string {
	if c.noDevice {
		return nil
	}
	return []string{"onload", "onload_epoll"}
}

// TestCases runs every case, and compares the proof with Onload's own counters.
func TestCases(t *testing.T) {
	setup(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			endStacks(t)
			c.prepare(t)
			for attempt := 1; ; attempt++ {
				var most [2]packets
				var dumped error
				o := c.run(t, func(o *outcome) {
					if c.rerouted {
						reroute(t, o)
						return
					}
					most, dumped = watch(o, c.protocols[0])
				})
				if why := c.unsettled(o, most); why != "" && attempt < attempts {
					t.Logf("attempt %d says nothing about Onload: %s", attempt, why)
					endStacks(t)
					continue
				}
				if dumped != nil {
					t.Error(dumped)
				}
				c.judge(t, o, most)
				c.record(t, o)
				return
			}
		})
	}
}

// attempts is the maximum number of runs of a case.
const attempts = 3

// unsettled returns why a run neither confirms nor refutes the proof; empty if it does. A busy machine exchanges few messages, so that
// no dump shows the sockets of an end, and loses datagrams or does not reach a rate, so that a tool fails.
func (c testCase) unsettled(o *outcome, most [2]packets) string {
	if c.fails != "" {
		return ""
	}
	if o.stored == nil {
		reason, message := o.failure()
		return reason + ": " + message
	}
	for i, e := range o.ends {
		if c.truth != kernel && most[i] == (packets{}) {
			return "no dump shows the sockets of the " + e.role
		}
	}
	return ""
}

// prepare prepares the files and devices of a case's pods.
func (c *testCase) prepare(t *testing.T) {
	t.Helper()
	mode := os.FileMode(0o666)
	if c.closed {
		mode = 0o600
	}
	for _, d := range []string{"/dev/onload", "/dev/onload_epoll"} {
		if err := os.Chmod(d, mode); err != nil {
			t.Fatal(err)
		}
	}
	c.binds = map[string]string{}
	if c.noLibrary {
		c.binds[filepath.Dir(library)] = t.TempDir()
	}
	if c.preload != "" {
		file := filepath.Join(t.TempDir(), "ld.so.preload")
		if err := os.WriteFile(file, []byte(c.preload+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		c.binds["/etc/ld.so.preload"] = file
	}
	if c.occupied {
		occupy(t)
	}
	if c.noisy {
		makeNoise(t)
	}
	if c.plane != "" {
		replacePlane(t, c.plane)
	}
}

// makeNoise sends datagrams over the loopback interface at the server's end until the test ends.
func makeNoise(t *testing.T) {
	t.Helper()
	var conn net.PacketConn
	if err := spaces[v1alpha1.RoleServer].In(func() (err error) {
		conn, err = net.ListenPacket("udp", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	send := func() error {
		_, err := conn.WriteTo([]byte("noise"), conn.LocalAddr())
		return err
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 16)
		for send() == nil {
			if _, _, err := conn.ReadFrom(buffer); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
}

// reroute sends the messages of the client to an interface without the server, as soon as Onload's stacks have carried some, until the
// test ends.
func reroute(t *testing.T, o *outcome) {
	space := spaces[v1alpha1.RoleClient]
	for ; o.alive(); time.Sleep(100 * time.Millisecond) {
		stacks, err := os.ReadFile("/proc/driver/onload/stacks")
		if err != nil {
			t.Error(err)
			return
		}
		if busy(string(stacks)) {
			break
		}
	}
	var route *netlink.Route
	if err := space.In(func() error {
		link, err := netlink.LinkByName("eth2")
		if err != nil {
			return err
		}
		route = &netlink.Route{LinkIndex: link.Attrs().Index, Dst: netlink.NewIPNet(net.ParseIP(serverAddress)), Scope: netlink.SCOPE_LINK}
		return netlink.RouteAdd(route)
	}); err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() {
		if err := space.In(func() error { return netlink.RouteDel(route) }); err != nil {
			t.Error(err)
		}
	})
}

// replacePlane ends the control planes, and makes Onload start another program instead until the test ends.
func replacePlane(t *testing.T, program string) {
	t.Helper()
	const parameter = "/sys/module/onload/parameters/cplane_server_path"
	before, err := os.ReadFile(parameter)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(parameter, []byte(program), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(parameter, before, 0); err != nil {
			t.Error(err)
		}
	})
	endStacks(t)
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		comm, _ := os.ReadFile(name) // of a process that has ended meanwhile
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil || strings.TrimSpace(string(comm)) != "onload_cp_serve" {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Logf("ending a control plane: %v", err)
		}
	}
}

// occupy starts a process that keeps a stack at the server's end until the test ends.
func occupy(t *testing.T) {
	t.Helper()
	p, err := lab.Pod{
		Name: "occupant", Space: spaces[v1alpha1.RoleServer], CPUs: "3", UID: 65532, Devices: testCase{}.devices(),
		Args: []string{"/usr/bin/sockperf", "server", "--tcp", "-i", serverAddress, "-p", "5000"},
		Env:  []string{"LD_PRELOAD=" + library, "EF_INTERFACE_WHITELIST=eth1"},
	}.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		out, _ := p.Wait() // it was killed
		if t.Failed() {
			t.Logf("the occupant wrote %q", out)
		}
	})
	for began := time.Now(); time.Since(began) < patience; time.Sleep(100 * time.Millisecond) {
		if text, err := os.ReadFile("/proc/driver/onload/stacks"); err == nil && len(text) > 0 {
			return
		}
	}
	t.Fatal("the occupant made no stack")
}

// wanted returns the expected state of the proof's line: whether the messages took the requested path.
func (c testCase) wanted() v1alpha1.ProofState {
	if c.kernel == (c.truth == kernel) && c.truth != partly {
		return v1alpha1.ProofProved
	}
	return v1alpha1.ProofFailed
}

// judge compares the proof with the truth.
func (c testCase) judge(t *testing.T, o *outcome, most [2]packets) {
	t.Helper()
	if o.stored == nil {
		reason, message := o.failure()
		t.Logf("%s: %s", reason, message)
		// Onload prints its settings first.
		if reason != c.fails || !strings.Contains(message, c.words) || strings.Contains(message, "EF_POLL_USEC=") {
			t.Errorf("the run failed with %s: %s; want %q with %q", reason, message, c.fails, c.words)
		}
		return
	}
	if c.fails != "" {
		t.Errorf("the run did not fail; want %s", c.fails)
	}
	want := c.wanted()
	for i, e := range o.ends {
		line := acceleration(o.proofs[i])
		t.Logf("%s: truth %s %+v; proof %s: expected %q, found %q", e.role, most[i].way(), most[i], line.State, line.Expected, line.Found)
		if got := most[i].way(); got != c.truth {
			t.Errorf("%s: Onload's counters say %s, want %s", e.role, got, c.truth)
		}
		if line.State != want {
			t.Errorf("%s: the proof says %s, want %s", e.role, line.State, want)
		}
	}
	settings := o.stored.Server.Evidence.Facts["onload.stack-settings"]
	t.Logf("settings of the server's stack: %s", settings)
	if c.truth == accelerated && !c.kernel && !strings.Contains(settings, " read, ") {
		t.Errorf("settings of the server's stack: %q, want them read", settings)
	}
	for _, cell := range o.stored.Client.Cells {
		t.Logf("cell %s: %d samples, %d lost, accelerated %+v, %v", cell.Name, cell.Histogram.Count, cell.Lost, cell.Accelerated, cell.Warnings)
	}
	t.Logf("took %s; memory at most %d MiB and %d MiB", o.took, o.ends[0].Process.Peak>>20, o.ends[1].Process.Peak>>20)
}

// record prints the agents' records of each cell in the format of internal/proof/testdata/onload.json, if LAB_RECORD is set.
func (c testCase) record(t *testing.T, o *outcome) {
	t.Helper()
	if os.Getenv("LAB_RECORD") == "" || o.stored == nil {
		return
	}
	type end struct {
		result.Path
		Word tool.Acceleration `json:"word,omitempty"`
	}
	way := map[string]string{accelerated: "Accelerated", partly: "Partly", kernel: "NotAccelerated"}[c.truth]
	for i, cell := range o.stored.Client.Cells {
		recorded := map[string]any{
			"name": c.name, "truth": c.truth, "protocol": cell.Protocol, "messageSize": cell.MessageSize, "count": cell.Histogram.Count,
			"client": end{o.stored.Client.Evidence.Paths[i], cell.Accelerated.Client}, "server": end{o.stored.Server.Evidence.Paths[i], cell.Accelerated.Server},
			"want": map[string]string{"client": way, "server": way},
		}
		if cell.Own != nil {
			recorded["count"] = cell.Own.Count
		}
		if len(o.stored.Client.Cells) > 1 {
			recorded["name"] = c.name + ", " + cell.Name
		}
		if c.truth == partly {
			recorded["bypassed"] = 0.5 // all sent messages, and no received ones
		}
		if c.kernel {
			recorded["kernel"] = c.wanted()
		}
		text, err := json.Marshal(recorded)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("RECORDED %s\n", text)
	}
}

// endStacks ends the stacks that outlive their processes because of a connection that is still closing. Each of them occupies
// the only queue of its NIC.
func endStacks(t *testing.T) {
	t.Helper()
	for range 100 {
		text, err := os.ReadFile("/proc/driver/onload/stacks")
		if err != nil {
			t.Fatal(err)
		}
		if len(text) == 0 {
			return
		}
		if out, err := exec.Command("onload_stackdump", "-z", "kill").CombinedOutput(); err != nil {
			t.Fatalf("onload_stackdump: %v: %s", err, out)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("stacks of Onload do not end")
}
