package agent

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/pinger"
	build "github.com/tailgate-dev/tailgate/test/pinger"
)

// mapped returns the /proc/PID/maps of a tool, with Onload's library if it is given.
func mapped(library string) string {
	text := "55a0c0000000-55a0c0002000 r--p 00000000 fe:00 131 /usr/local/bin/sfnt-pingpong\n" +
		"55a0c1000000-55a0c1021000 rw-p 00000000 00:00 0                          [heap]\n" +
		"7f0000000000-7f0000028000 r--p 00000000 fe:00 77                         /usr/lib/x86_64-linux-gnu/libc.so.6\n"
	if library != "" {
		text += "7f1000000000-7f1000100000 r-xp 00001000 fe:00 4711                       " + library + "\n"
	}
	return text + "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]\n"
}

// withProcess returns a machine on which process 42 has a memory map and descriptors, which are links.
func withProcess(t *testing.T, maps string, descriptors ...string) host {
	t.Helper()
	files := map[string]string{"proc/42/maps": maps, "proc/42/fd/0": "->/dev/null", "proc/42/fd/1": "->pipe:[4710]", "proc/42/fd/2": "->pipe:[4711]"}
	for i, target := range descriptors {
		files[fmt.Sprintf("proc/42/fd/%d", i+3)] = "->" + target
	}
	return fakeRoot(t, files)
}

func TestLook(t *testing.T) {
	accelerated := []string{"/dev/onload", "onload:[stack:0]", "onload:[tcp:0:5]", "onload:[udp:0:6]"}
	cases := map[string]struct {
		maps        string
		descriptors []string
		protocol    v1alpha1.Protocol
		want        result.Look
	}{
		"a tool without sockets": {maps: mapped(""), protocol: v1alpha1.ProtocolTCP},
		"the kernel's sockets":   {maps: mapped(""), descriptors: []string{"socket:[9]", "socket:[10]", "anon_inode:[eventpoll]"}, protocol: v1alpha1.ProtocolTCP, want: result.Look{Sockets: 2}},
		"Onload's, for TCP":      {maps: mapped(library), descriptors: accelerated, protocol: v1alpha1.ProtocolTCP, want: result.Look{Library: library, Sockets: 2, Onload: 1}},
		"Onload's, for UDP":      {maps: mapped(library), descriptors: accelerated, protocol: v1alpha1.ProtocolUDP, want: result.Look{Library: library, Sockets: 2, Onload: 1}},
		"Onload's, for a group":  {maps: mapped(library), descriptors: accelerated, protocol: v1alpha1.ProtocolMulticast, want: result.Look{Library: library, Sockets: 2, Onload: 1}},
		"messages over a socket of the kernel, beside a control connection of Onload's": {
			maps: mapped(library), descriptors: []string{"onload:[stack:0]", "onload:[tcp:0:5]", "socket:[9]"}, protocol: v1alpha1.ProtocolUDP,
			want: result.Look{Library: library, Sockets: 2},
		},
		"one that only listens": {
			maps: mapped(library), descriptors: []string{"onload:[stack:0]", "onload:[tcpl:0:5]"}, protocol: v1alpha1.ProtocolTCP,
			want: result.Look{Library: library, Sockets: 1},
		},
		"one that was handed to the kernel": {
			maps: mapped(library), descriptors: []string{"onload:[stack:0]", "onload:[os_sock:0:5]"}, protocol: v1alpha1.ProtocolTCP,
			want: result.Look{Library: library, Sockets: 1},
		},
		"one that went to another stack": {
			maps: mapped(library), descriptors: []string{"onload:[moved:1:5]"}, protocol: v1alpha1.ProtocolUDP,
			want: result.Look{Library: library, Sockets: 1, Onload: 1},
		},
		"a pipe of Onload's is no socket": {
			maps: mapped(library), descriptors: []string{"onload:[piper:0:5]", "onload:[pipew:0:5]"}, protocol: v1alpha1.ProtocolTCP, want: result.Look{Library: library},
		},
		"a library that was replaced on disk":   {maps: mapped(library + " (deleted)"), protocol: v1alpha1.ProtocolTCP, want: result.Look{Library: library}},
		"Onload as it is built":                 {maps: mapped("/build/libcitransport0.so"), protocol: v1alpha1.ProtocolTCP, want: result.Look{Library: "/build/libcitransport0.so"}},
		"the extensions' library is not it":     {maps: mapped("/usr/lib64/libonload_ext.so.2"), protocol: v1alpha1.ProtocolTCP},
		"a file that lies in a folder so named": {maps: mapped("/opt/libonload.so/data"), protocol: v1alpha1.ProtocolTCP},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := withProcess(t, c.maps, c.descriptors...).look(42, c.protocol)
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	for name, files := range map[string]map[string]string{
		"no process": nil, "no descriptors": {"proc/42/maps": mapped("")}, "one that ends": {"proc/42/maps": "", "proc/42/fd/0": "->socket:[9]"},
		"a memory that is no text": {"proc/42/maps": strings.Repeat("x", 1<<17), "proc/42/fd/0": "->x"},
	} {
		if got := fakeRoot(t, files).look(42, v1alpha1.ProtocolTCP); got != nil {
			t.Errorf("%s: got %+v, want nothing", name, got)
		}
	}
}

func FuzzMappedOnload(f *testing.F) {
	f.Add(mapped(""))
	f.Add(mapped(library))
	f.Add(" /libonload.so")
	f.Fuzz(func(t *testing.T, maps string) {
		path, err := mappedOnload(strings.NewReader(maps))
		if path != "" && (err != nil || len(path) > maxValue || !strings.Contains(path, "lib")) {
			t.Errorf("got %q, %v", path, err)
		}
	})
}

// The counters of the kernel and of Onload become the growth of a cell, without the traffic between the agents.
func TestPathGrowth(t *testing.T) {
	grown := map[string]int64{
		"udp.InDatagrams": 5, "udp6.InDatagrams": 7, "udp.OutDatagrams": 1, "tcp.InSegs": 100, "tcp.OutSegs": 3, "ip.InOctets": 5000,
		"nic.rx-packets": 500,
	}
	own := map[string]int64{"tcp.in": 4, "tcp.out": 5, "ip.in-bytes": 600, "ip.out-bytes": 700}
	want := map[string]int64{"udp.in": 12, "udp.out": 1, "tcp.in": 96, "tcp.out": 0, "ip.in-bytes": 4400, "nic.in": 500, "ip.delivered-other": 100}
	if diff := cmp.Diff(want, pathGrowth(grown, own)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The kernel reports for the agents' connection the same segments that it adds to the counters of TCP, at the same time.
func TestTrafficOfTheLink(t *testing.T) {
	client, server := connected(t)
	l := newLink(client)
	before := l.traffic()
	for range 10 {
		if _, err := client.Write([]byte("0123456789")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(server, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}
	grown := growth(before, l.traffic())
	if n := grown[result.PathTCPOut]; n < 10 || n > 12 {
		t.Errorf("%d segments out, want those of 10 messages", n)
	}
	if n := grown[result.PathIPOut]; n < 10*segmentHeaders || n > 12*(segmentHeaders+10) {
		t.Errorf("%d bytes out", n)
	}
}

// The kernel does not add retransmitted segments to TCP's OutSegs, but to the bytes of IP.
func TestTrafficOfALossyLink(t *testing.T) {
	client, server := connected(t)
	raw, err := server.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	lose := unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	if raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &lose)
	}) != nil || err != nil {
		t.Fatal(err)
	}
	l := newLink(client)
	before := l.traffic()
	if _, err := client.Write([]byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	grown := growth(before, l.traffic())
	for began := time.Now(); grown[result.PathIPOut] < 2*segmentHeaders; grown = growth(before, l.traffic()) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("no segment was sent again: %v", grown)
		}
		time.Sleep(time.Millisecond)
	}
	if n := grown[result.PathTCPOut]; n != 1 {
		t.Errorf("%d segments out, want the one of the message", n)
	}
}

// connected returns the two ends of a TCP connection.
func connected(t *testing.T) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func TestStacks(t *testing.T) {
	own, err := syscall.Getpgid(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// The format of efab_stacks_seq_show, with one column more or less in the middle.
	table := "id: pid uid periodic_polls rx_evs tx_evs\n" +
		fmt.Sprintf("0: %d 65532 12 3 4 405 401\n", os.Getpid()) +
		fmt.Sprintf("3: %d 65532 12 3 4 9 21 22\n", os.Getpid()) +
		"1: 0 65532 12 3 4 1000 1000\n2: 1 0 12 3 4 5000 5000\n4:\n"
	got := map[string]int64{}
	ids := fakeRoot(t, map[string]string{"proc/driver/onload/stacks": table}).stacks(inGroup(own), got)
	if diff := cmp.Diff(map[string]int64{"stack.in": 426, "stack.out": 423}, got); diff != "" || !slices.Equal(ids, []int{0, 3}) {
		t.Errorf("stacks %v, -want +got:\n%s", ids, diff)
	}
	got = map[string]int64{}
	if ids := (fakeRoot(t, nil).stacks(inGroup(own), got)); len(got) != 0 || len(ids) != 0 {
		t.Errorf("without Onload: %v, %v", ids, got)
	}
}

func TestStackFacts(t *testing.T) {
	const refused = "onload_stackdump should not itself be run under onload acceleration."
	for name, c := range map[string]struct {
		program string
		want    facts
	}{
		"no program": {want: facts{"onload.stack-settings": "not read: the bench image has no onload_stackdump"}},
		"read": {"[ \"$*\" = '--nopids 7 netif opts' ] && printf 'ci_netif_dump_vi: stack=7 intf=0 dev=? hw=4X0\\n  EF_MAX_PACKETS: 32768\n  EF_INT_DRIVEN: 0 (default: 1)\n'",
			facts{"onload.stack-settings": "2 read, 1 not the default", "onload.stack.EF_INT_DRIVEN": "0", "onload.stack-interfaces": "AF_XDP"}},
		"refused":       {"echo '" + refused + "'; exit 255", facts{"onload.stack-settings": "not read: onload_stackdump: exit status 255: " + refused}},
		"nothing":       {"exit 0", facts{"onload.stack-settings": "not read: onload_stackdump: it printed no settings:"}},
		"no preloading": {"echo \"  EF_LOADED: x$LD_PRELOAD$EF_NAME (default: y)\"", facts{"onload.stack-settings": "1 read, 1 not the default", "onload.stack.EF_LOADED": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.program != "" {
				if err := os.WriteFile(filepath.Join(dir, "onload_stackdump"), []byte("#!/bin/sh\n"+c.program+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			t.Setenv("LD_PRELOAD", "/opt/onload/usr/lib64/libonload.so")
			t.Setenv("EF_NAME", "x")
			if diff := cmp.Diff(c.want, stackFacts(7)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestUnknownSettings(t *testing.T) {
	h := fakeRoot(t, map[string]string{
		"lib/libonload.so": "\x7fELF\x00EF_NO_FAIL\x00EF_POLL_USEC\x00EF_UDP\x00", "lib/empty.so": "\x7fELF",
	})
	env := map[string]string{"EF_POLL_USEC": "1", "EF_POL_USEC": "1", "EF_POLL": "1", "XLIO_A": "1"}
	got, err := h.unknownSettings("/lib/libonload.so", env)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"EF_POLL", "EF_POL_USEC"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, library := range []string{"/lib/empty.so", "/lib/none.so"} {
		if got, err := h.unknownSettings(library, env); err == nil {
			t.Errorf("%s: %v, and no error", library, got)
		}
	}
}

// If Onload says why it failed, the failure of a tool is reported as Onload's.
func TestExplained(t *testing.T) {
	generic := tool.Fail(v1alpha1.OutcomeToolFailed, "it failed")
	missing := "ERROR: ld.so: object '" + library + "' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored."
	for name, c := range map[string]struct {
		stderr  string
		files   map[string]string
		outcome string
		parts   []string
	}{
		"nothing of Onload": {"ERROR: Test failed.\n", nil, v1alpha1.OutcomeToolFailed, []string{"it failed"}},
		"its banner alone":  {"oo:x[1]: Using Onload 9.0.2 [3]\n", nil, v1alpha1.OutcomeToolFailed, []string{"it failed"}},
		"no module": {
			"citp_oo_get_cpu_khz: Failed to open /dev/onload\n", nil,
			v1alpha1.OutcomeAccelerationFailed, []string{"the kernel module onload is not loaded", "lsmod", "Failed to open /dev/onload"},
		},
		"no device": {
			"citp_oo_get_cpu_khz: Failed to open /dev/onload\n", map[string]string{"sys/module/onload/version": "9.0.2"},
			v1alpha1.OutcomeAccelerationFailed, []string{"the pod has no /dev/onload"},
		},
		"no virtual interface": {
			"oo:x[1]: Using Onload 9.0.2 [3]\noo:x[1]: netif_tcp_helper_alloc_u: ERROR: Failed to allocate stack (rc=-16)\n", nil,
			v1alpha1.OutcomeResourceUnavailable, []string{"no virtual interface of the NIC is left", "onload_stackdump", "rc=-16"},
		},
		"a library elsewhere": {missing + "\n", map[string]string{"other/libonload.so": ""}, v1alpha1.OutcomeAccelerationFailed, []string{missing, "set acceleration.onload.library to it", "/other/libonload.so"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LD_PRELOAD", "/other/libonload.so")
			e := &endpoint{Agent: &Agent{Task: plan.Task{Acceleration: v1alpha1.AccelerationOnload, Library: library}, Root: fakeRoot(t, c.files).root}}
			p := &process{}
			p.stderr.WriteString(c.stderr)
			wantOutcome(t, orOnload(e, p, generic), c.outcome, c.parts...)
			e.Task.Acceleration = v1alpha1.AccelerationKernel
			wantOutcome(t, orOnload(e, p, generic), v1alpha1.OutcomeToolFailed, "it failed")
		})
	}
}

// preloadable makes an empty library that has the name of Onload's.
func preloadable(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	source, path := filepath.Join(dir, "empty.c"), filepath.Join(dir, "libonload.so")
	if err := os.WriteFile(source, []byte("int tailgate_test;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// withPinger makes an agent run Tailgate's own tool, with the acceleration that a role requests.
func withPinger(role string, accelerate func(role string, task *plan.Task)) func(*Agent) {
	return func(a *Agent) {
		a.Tools, a.Task.Tool = tool.NewRegistry(pinger.New()), v1alpha1.ToolPinger
		a.Task.Cells = nil
		for _, p := range []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP} {
			a.Task.Cells = append(a.Task.Cells, tool.Cell{Name: string(p), Traffic: v1alpha1.Traffic{Protocol: p, MessageSize: 64}, Duration: time.Second})
		}
		a.Task.Deadline = 2 * time.Minute
		accelerate(role, &a.Task)
	}
}

// exchangeWithPinger runs both ends with a real tool.
func exchangeWithPinger(t *testing.T, accelerate func(role string, task *plan.Task)) (server, client ending) {
	t.Helper()
	restore(t)
	done := make(chan ending, 1)
	go func() {
		done <- run(t.Context(), t, v1alpha1.RoleServer, fakeTool{}, withPinger(v1alpha1.RoleServer, accelerate))
	}()
	client = run(t.Context(), t, v1alpha1.RoleClient, fakeTool{}, withPinger(v1alpha1.RoleClient, accelerate))
	return <-done, client
}

// A library that is really preloaded into a real tool is detected at both ends, and a missing library ends the run before
// anything is measured. The sockets are the kernel's: Onload's sockets need a NIC that it supports.
func TestPreloadedLibrary(t *testing.T) {
	dir := t.TempDir()
	if err := build.Build(t.Context(), "../..", filepath.Join(dir, build.Program)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	path := preloadable(t)
	onload := func(library string) func(*plan.Task) {
		return func(task *plan.Task) {
			task.Acceleration, task.Library, task.Env = v1alpha1.AccelerationOnload, library, map[string]string{"EF_NO_FAIL": "0"}
		}
	}

	// through checks that the kernel counted all messages of all cells at both ends.
	through := func(t *testing.T, server, client result.Document) {
		t.Helper()
		for _, d := range []result.Document{server, client} {
			if len(d.Evidence.Paths) != len(client.Cells) {
				t.Fatalf("the %s recorded %d paths of %d cells", d.Role, len(d.Evidence.Paths), len(client.Cells))
			}
			for i, p := range d.Evidence.Paths {
				n := client.Cells[i].Histogram.Count
				counters := []string{result.PathTCPIn, result.PathTCPOut}
				if p.Cell == string(v1alpha1.ProtocolUDP) {
					counters = []string{result.PathUDPIn, result.PathUDPOut}
				}
				for _, c := range append(counters, result.PathNICIn, result.PathNICOut) {
					if p.Grown[c] < n {
						t.Errorf("the %s's %s of %s grew by %d with %d messages", d.Role, c, p.Cell, p.Grown[c], n)
					}
				}
			}
		}
	}
	t.Run("at both ends", func(t *testing.T) {
		s, c := exchangeWithPinger(t, func(_ string, task *plan.Task) { onload(path)(task) })
		server, client := document(t, s), document(t, c)
		through(t, server, client)
		for i := range client.Cells {
			p := server.Evidence.Paths[i]
			if p.Begun == nil || p.Begun.Library != path || p.Begun.Sockets == 0 || p.Begun.Onload != 0 || p.Ended == nil || p.Ended.Library != path {
				t.Errorf("the server looked: %+v, %+v", p.Begun, p.Ended)
			}
		}
		for _, d := range []result.Document{server, client} {
			if f := d.Evidence.Facts; f["env.LD_PRELOAD"] != path || f["env.EF_NO_FAIL"] != "0" {
				t.Errorf("the %s's facts: %v", d.Role, f)
			}
		}
	})
	t.Run("the kernel was asked for, and the container preloads it", func(t *testing.T) {
		t.Setenv("LD_PRELOAD", path)
		t.Setenv("EF_POLL_USEC", "100000")
		s, c := exchangeWithPinger(t, func(string, *plan.Task) {})
		server, client := document(t, s), document(t, c)
		through(t, server, client)
		for _, p := range server.Evidence.Paths {
			if p.Begun == nil || p.Begun.Library != "" {
				t.Errorf("the server looked: %+v", p.Begun)
			}
		}
		for _, d := range []result.Document{server, client} {
			if f := d.Evidence.Facts; f["env.LD_PRELOAD"] != "" || f["env.EF_POLL_USEC"] != "" {
				t.Errorf("the %s's facts: %v", d.Role, f)
			}
		}
	})
	missing := filepath.Join(dir, "libonload.so")
	complaint := fmt.Sprintf("object '%s' from LD_PRELOAD cannot be preloaded (cannot open shared object file)", missing)
	for _, role := range []string{v1alpha1.RoleServer, v1alpha1.RoleClient} {
		t.Run("a library that the "+role+" does not have", func(t *testing.T) {
			_, c := exchangeWithPinger(t, func(r string, task *plan.Task) {
				if r == role {
					onload(missing)(task)
				} else {
					onload(path)(task)
				}
			})
			wantOutcome(t, c.err, v1alpha1.OutcomeAccelerationFailed, complaint)
			if strings.Contains(c.log, "samples") {
				t.Errorf("a cell was measured all the same: %s", c.log)
			}
		})
	}
}
