package onload

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/docs"
)

// table returns the reasons of all messages as a table of docs/internals/onload-messages.md, in the order of the messages.
func table() string {
	var rows []string
	add := func(f *Failure) {
		if f == nil {
			return
		}
		row := fmt.Sprintf("| `%s` | %s | %s |\n", f.Outcome, f.Why, f.Remedy)
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	for _, m := range messages {
		add(m.why)
		for number := range 1024 {
			add(m.byErrno[number])
		}
	}
	return "| outcome | cause | remedy |\n|---|---|---|\n" + strings.Join(rows, "")
}

func TestDocumentation(t *testing.T) {
	docs.CheckTable(t, "../..", "internals/onload-messages.md", "internal/onload", table())
}

// Every cause and every consequence has a reason, and no warning has one. An errno decides only where a message has one.
func TestMessages(t *testing.T) {
	for name, of := range reasons {
		if of.Outcome != v1alpha1.OutcomeAccelerationFailed && of.Outcome != v1alpha1.OutcomeResourceUnavailable {
			t.Errorf("%s has the outcome %s", name, of.Outcome)
		}
	}
	of := map[string]int{}
	for line := range strings.Lines(lines) {
		if kind, _, _ := strings.Cut(line, "\t"); strings.TrimSpace(kind) != "" && kind[0] != '#' {
			of[kind]++
		}
	}
	if of["reason"] != len(reasons) || of["cause"]+of["consequence"]+of["warning"] != len(messages) || len(of) != 5 || !reasons["noDevice"].Device || !reasons["notPreloaded"].Missing {
		t.Errorf("of the lines %v, there are %d reasons and %d messages", of, len(reasons), len(messages))
	}
	for _, m := range messages {
		if (m.why == nil) != (m.rank == warning) {
			t.Errorf("%s: reason %v", m.says, m.why)
		}
		if hasErrno := slices.Contains(m.says.SubexpNames(), "errno"); hasErrno != (m.byErrno != nil) {
			t.Errorf("%s: reasons by errno %v", m.says, m.byErrno)
		}
		for _, of := range m.byErrno {
			if of == nil || of.Why == "" || of.Remedy == "" {
				t.Errorf("%s: %+v", m.says, of)
			}
		}
	}
}

// The texts are those of Onload's sources, with values, and of dynamic linkers.
func TestReasons(t *testing.T) {
	const oo, library = "oo:x[1]: ", "/opt/onload/usr/lib64/libonload.so"
	for _, c := range []struct {
		stderr string
		want   *Failure
	}{
		{"ERROR: ld.so: object '" + library + "' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.", reasons["notPreloaded"]},
		{"ERROR: ld.so: object '" + library + "' from LD_PRELOAD cannot be preloaded (wrong ELF class: ELFCLASS32): ignored.", reasons["otherMachine"]},
		{"ERROR: ld.so: object '/opt/a/launcher.preload.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.", nil},
		{"ERROR: ld.so: object '/usr/lib64/libonload_zf.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.", nil},
		{"ERROR: ld.so: object '/old/libonload.so' from /etc/ld.so.preload cannot be preloaded (cannot open shared object file): ignored.", nil},
		{"/usr/bin/x: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by " + library + ")", reasons["otherCLibrary"]},
		{"/usr/bin/x: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /usr/bin/x)", nil},
		{"/usr/bin/x: error while loading shared libraries: libcap.so.99: cannot open shared object file: No such file or directory", reasons["noDependency"]},
		{"Error relocating " + library + ": __register_atfork: symbol not found", reasons["otherCLibrary"]},
		{"Error relocating /usr/lib/libother.so: f: symbol not found", nil},
		{"/usr/bin/x: symbol lookup error: " + library + ": undefined symbol: f", reasons["otherCLibrary"]},

		{oo + "ci_netif_init: failed to get local control plane handle: -2", reasons["noProgram"]},
		{oo + "ci_netif_init: failed to get local control plane handle: -110", reasons["latePlane"]},
		{oo + "ci_netif_init: failed to get local control plane handle: -79", reasons["otherPlane"]},
		{oo + "ci_netif_init: failed to get local control plane handle: -4", reasons["noPlane"]},
		{oo + "ERROR: failed to mmap cplane MIBs: No such file or directory", reasons["planeEnded"]},
		{oo + "ci_netif_init: failed to get init_net control plane handle: -110", nil},
		{oo + "ci_netif_init: failed to open driver handle: -24", nil},
		{oo + "ci_netif_init: support for containers will be limited", nil},
		{oo + "__citp_netif_alloc: failed to open driver (24)", reasons["noFiles"]},
		{oo + "__citp_netif_alloc: failed to open driver (13)", reasons["noDevice"]},
		{oo + "netif_tcp_helper_alloc_u: ERROR: Failed to allocate stack (rc=-13)", reasons["otherUser"]},
		{oo + "netif_tcp_helper_alloc_u: ERROR: Failed to allocate stack (rc=-22)", reasons["badSettings"]},
		{oo + "netif_tcp_helper_alloc_u: ERROR: Failed to allocate stack (rc=-95)", reasons["notSupported"]},
		{oo + "netif_tcp_helper_alloc_u: ERROR: Failed to allocate stack (rc=-99)", reasons["noStack"]},
		{oo + "__citp_netif_alloc: stack 'mine' not ready after 5 retries", reasons["notReady"]},
		{oo + "ERROR: [3] rxq_limit=100 is too small (rxq_min=256)", reasons["fewPackets"]},
		{oo + "Failed to mmap packet buffer for [3] with rc=-EACCES.\nProbably, you are using this stack from processes with different UIDs.\n" + oo + "Failed to map packets!", reasons["otherUser"]},
		{oo + "Failed to mmap packet buffer for [3] with errno=EACCES.\n", reasons["otherUser"]},
		{oo + "__ci_netif_pkt: mmap(0x0000000040000000) failed for pkt set 1 rc=-12 (Cannot allocate memory)\n" + oo + "Failed to map packets!", reasons["noMemory"]},
		{oo + "__ci_netif_pkt: oo_resource_mmap for pkt set 1 failed (-12)\n" + oo + "Failed to map packets!", reasons["noMemory"]},
		{oo + "ci_tcp_socket: [3] out of socket buffers", reasons["noSockets"]},
		{"CRITICAL: mprotect(glibc exec) = 13\nIf you have SELinux enabled either disable it or give permission for your application to execmod lib_t files\nProcess will likely crash now", reasons["noExecmod"]},
		{"CRITICAL: mprotect(trampoline) = 13", reasons["noExecmod"]},
		{oo + "citp_udp_socket: failed (errno:16) - PASSING TO OS", reasons["noVI"]},
		{oo + "citp_tcp_socket: failed (errno:12 strerror:Cannot allocate memory) - PASSING TO OS", reasons["noMemory"]},
		// The first cause wins over consequences before and after it.
		{oo + "citp_netif_alloc_and_init: failed to create netif (22)\n" + oo + "netif_tcp_helper_alloc_u: ERROR: Failed to allocate stack (rc=-16)\n" +
			oo + "citp_udp_socket: failed (errno:22) - PASSING TO OS", reasons["noVI"]},
		{oo + "citp: bad option 'EF_UDP=yes'\n" + oo + "Unknown option \"EF_NO_SUCH=1\" identified\n", nil},
		{oo + "x: failed to allocate initial packet set: 99999999999999999999", reasons["noMemory"]},
	} {
		got, ok := explain([]byte(c.stderr))
		if ok != (c.want != nil) {
			t.Errorf("%s: %+v, %t", c.stderr, got, ok)
			continue
		}
		if !ok {
			continue
		}
		want := *c.want
		want.Words = got.Words
		if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(c.stderr, got.Words) || got.Words == "" {
			t.Errorf("%s (-want +got):\n%s", c.stderr, diff)
		}
	}
}

func explain(stderr []byte) (Failure, bool) {
	if f := Read(stderr).Failure; f != nil {
		return *f, true
	}
	return Failure{}, false
}

func TestWarnings(t *testing.T) {
	got := Read([]byte(start + "oo:x[1]: citp: bad option 'EF_UDP=yes'\n" + busy + "oo:x[2]: citp: bad option 'EF_UDP=yes'\noo:x[1]: ci_netif_init: support for containers will be limited\n")).Warnings
	if diff := cmp.Diff([]string{"citp: bad option 'EF_UDP=yes'", "ci_netif_init: support for containers will be limited"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	many := ""
	for i := range 100 {
		many += fmt.Sprintf("oo:x[1]: Can't set EF_FDTABLE_SIZE=%d; using 4\n", i)
	}
	if got := Read([]byte(many)).Warnings; len(got) != maxWarnings {
		t.Errorf("%d warnings", len(got))
	}
}

func TestQuiet(t *testing.T) {
	if got := string(Read([]byte(start + dump + busy + "no newline")).Rest); got != busy+"no newline" {
		t.Errorf("got %q", got)
	}
}

func FuzzExplain(f *testing.F) {
	f.Add([]byte(start + dump + busy))
	f.Add([]byte("oo:x[1]: ci_netif_init: failed to get local control plane handle: -2\n"))
	f.Add([]byte("ERROR: ld.so: object 'libonload.so' from LD_PRELOAD cannot be preloaded (x): ignored."))
	f.Fuzz(func(t *testing.T, stderr []byte) {
		failure, ok := explain(stderr)
		known := []string{v1alpha1.OutcomeAccelerationFailed, v1alpha1.OutcomeResourceUnavailable}
		if ok != slices.Contains(known, failure.Outcome) || ok && (failure.Why == "" || failure.Remedy == "") {
			t.Errorf("%+v, %t", failure, ok)
		}
		if len(Read(stderr).Rest) > len(stderr) || len(Read(stderr).Warnings) > maxWarnings {
			t.Error("more than there was")
		}
	})
}
