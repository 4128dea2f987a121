package agent

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	build "github.com/tailgate-dev/tailgate/test/pinger"
)

// compile compiles a shared library.
func compile(t *testing.T, path, source string, args ...string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cc", append([]string{"-shared", "-fPIC", "-o", path, path + ".c"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// talker is a library that prints EF_SAYS_CLIENT or EF_SAYS_SERVER, by the pinger's role, when it is loaded, and ends the process
// as EF_ENDS says: with an exit code, or with a signal if it is negative.
const talker = `
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>
__attribute__((constructor)) static void begin(int argc, char** argv) {
  const char* says = getenv(argc > 1 && ! strcmp(argv[1], "server") ? "EF_SAYS_SERVER" : "EF_SAYS_CLIENT");
  const char* ends = getenv("EF_ENDS");
  if( says == NULL || *says == '\0' ) return;
  if( write(2, says, strlen(says)) < 0 ) return;
  if( ends == NULL ) return;
  int n = atoi(ends);
  if( n < 0 ) { signal(-n, SIG_DFL); raise(-n); }
  _exit(n);
}
`

// What Onload and the dynamic linker print when a tool works or fails decides the outcome of the run.
func TestOnloadExplains(t *testing.T) {
	dir := t.TempDir()
	if err := build.Build(t.Context(), "../..", filepath.Join(dir, build.Program)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(preloadVariable, "")
	speaks := compile(t, filepath.Join(dir, "a/libonload.so"), talker)
	versions := filepath.Join(dir, "stub.map")
	if err := os.WriteFile(versions, []byte("GLIBC_2.99 { global: newer; };\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	libc := compile(t, filepath.Join(dir, "b/libc_newer.so"), "int newer(void) { return 1; }\n", "-nostdlib", "-Wl,--version-script="+versions, "-Wl,-soname,libc.so.6")
	newer := compile(t, filepath.Join(dir, "b/libonload.so"), "int newer(void); int use(void) { return newer(); }\n", "-nostdlib", libc)
	dependency := compile(t, filepath.Join(dir, "c/libdep.so"), "int dep(void) { return 1; }\n", "-Wl,-soname,libcap.so.99")
	needy := compile(t, filepath.Join(dir, "c/libonload.so"), "int dep(void); int use(void) { return dep(); }\n", dependency)

	const (
		noPlane = "oo:tailgate-pinger[51]: ci_netif_init: failed to get local control plane handle: -2\n"
		banner  = "oo:tailgate-pinger[51]: Using Onload 9.0.2 [0]\n"
		initNet = "oo:tailgate-pinger[50]: ci_netif_init: failed to get init_net control plane handle: -110\n" +
			"oo:tailgate-pinger[50]: ci_netif_init: support for containers will be limited\n"
		failed = v1alpha1.OutcomeAccelerationFailed
	)
	var settings strings.Builder
	for i := range 60 {
		fmt.Fprintf(&settings, "oo:tailgate-pinger[13]: EF_SETTING_%d=%d\n", i, i)
	}
	for name, c := range map[string]struct {
		library string
		env     map[string]string
		// outcome is empty if the run succeeds; parts are parts of the client's error.
		outcome string
		parts   []string
	}{
		"the server has no control plane, and works": {speaks, map[string]string{"EF_SAYS_SERVER": noPlane}, failed, []string{"server: ", "its control plane does not run on the node", "handle: -2"}},
		"the client has no control plane, and works": {speaks, map[string]string{"EF_SAYS_CLIENT": noPlane}, failed, []string{"its control plane does not run on the node", "handle: -2"}},
		"the kernel's sockets are wanted then":       {speaks, map[string]string{"EF_SAYS_SERVER": noPlane, "EF_SAYS_CLIENT": noPlane, "EF_NO_FAIL": "1"}, "", nil},
		"a stack was made all the same":              {speaks, map[string]string{"EF_SAYS_SERVER": banner + noPlane, "EF_SAYS_CLIENT": banner + noPlane}, "", nil},
		"a warning, and the tool works":              {speaks, map[string]string{"EF_SAYS_SERVER": initNet, "EF_SAYS_CLIENT": initNet}, "", nil},
		"a warning, and the tool fails": {speaks, map[string]string{"EF_SAYS_SERVER": initNet + banner + "tailgate-pinger: Address already in use\n", "EF_ENDS": "1"},
			v1alpha1.OutcomeToolFailed, []string{"exit code 1", "Address already in use"}},
		"a client that fails after its settings": {speaks, map[string]string{"EF_SAYS_CLIENT": settings.String() + banner + "tailgate-pinger: no route to host\n", "EF_ENDS": "7"},
			v1alpha1.OutcomeToolFailed, []string{"exit code 7", "no route to host"}},
		"a client that is killed":          {speaks, map[string]string{"EF_SAYS_CLIENT": banner, "EF_ENDS": "-11"}, v1alpha1.OutcomeToolFailed, []string{"killed by SIGSEGV"}},
		"a server that seccomp kills":      {speaks, map[string]string{"EF_SAYS_SERVER": banner, "EF_ENDS": "-31"}, v1alpha1.OutcomeToolFailed, []string{"SIGSYS", "seccomp"}},
		"a library of a newer C library":   {newer, nil, failed, []string{"another C library", "GLIBC_2.99"}},
		"a library that lacks a library":   {needy, nil, failed, []string{"libcap.so.99"}},
		"another library cannot be loaded": {speaks, map[string]string{"LD_PRELOAD_OTHER": "/opt/dynatrace/liboneagentproc.so"}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if c.env["LD_PRELOAD_OTHER"] != "" {
				t.Setenv(preloadVariable, c.env["LD_PRELOAD_OTHER"])
			}
			_, client := exchangeWithPinger(t, func(_ string, task *plan.Task) {
				task.Acceleration, task.Library, task.Env = v1alpha1.AccelerationOnload, c.library, map[string]string{"EF_NO_FAIL": "0"}
				for name, value := range c.env {
					task.Env[name] = value
				}
				task.Cells = task.Cells[:1]
				task.Cells[0].Duration = 100 * time.Millisecond
			})
			if c.outcome != "" {
				wantOutcome(t, client.err, c.outcome, c.parts...)
				if strings.Contains(client.err.Error(), "EF_SETTING_") {
					t.Errorf("the reason is Onload's settings: %v", client.err)
				}
				return
			}
			if client.err != nil {
				t.Fatal(client.err)
			}
			d := document(t, client)
			if said := d.Evidence.Paths[0].Said; (said != "") != (strings.Contains(c.env["EF_SAYS_CLIENT"], noPlane)) {
				t.Errorf("evidence of the cause: %q", said)
			}
			if warned := fmt.Sprint(d.Cells[0].Warnings); strings.Contains(c.env["EF_SAYS_CLIENT"], initNet) != strings.Contains(warned, "Onload: ci_netif_init: support for containers") {
				t.Errorf("warnings: %s", warned)
			}
		})
	}
}

// The tool's server may take longer to listen than Onload waits for its control plane.
func TestListenLimit(t *testing.T) {
	for timeout, want := range map[string]time.Duration{"10": 20 * time.Second, "0": 10 * time.Second, "-1": 70 * time.Second, "999": 70 * time.Second, "99999": 70 * time.Second, "": 70 * time.Second} {
		e := &endpoint{Agent: &Agent{Task: plan.Task{Acceleration: v1alpha1.AccelerationOnload}, Root: fakeRoot(t, map[string]string{planeParameter: timeout + "\n"}).root}}
		if got := e.listenLimit(); got != want {
			t.Errorf("%q: %s, want %s", timeout, got, want)
		}
		e.Task.Acceleration = v1alpha1.AccelerationKernel
		if got := e.listenLimit(); got != listenTimeout {
			t.Errorf("%q, the kernel: %s", timeout, got)
		}
	}
}

// The client waits for the answer longer than the tool's server may take to listen, whatever Onload waits for on the server's node, and
// the agent there to inspect its stack.
func TestAnswerLimit(t *testing.T) {
	const address = "127.0.0.9"
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(plan.ControlPort)))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, acceleration := range []v1alpha1.AccelerationType{v1alpha1.AccelerationKernel, v1alpha1.AccelerationOnload} {
		e := &endpoint{Agent: &Agent{
			Key:  "a key of the pair",
			Task: plan.Task{Run: "x-r1", Attempt: 1, Acceleration: acceleration, ServerAddress: address}, Root: fakeRoot(t, map[string]string{planeParameter: "-1\n"}).root,
		}}
		greeted := make(chan error, 1)
		go func() {
			conn, err := listener.Accept()
			if err == nil {
				defer conn.Close()
				err = newLink(tls.Server(conn, identified(t, e.Key, e.Task.Run, e.Task.Attempt))).greet()
			}
			greeted <- err
		}()
		l, err := e.dial(t.Context(), nil)
		if err := cmp.Or(err, <-greeted); err != nil {
			t.Fatal(err)
		}
		l.conn.Close()
		if needed := e.listenLimit() + stackdumpTimeout; l.limit <= needed {
			t.Errorf("%s: it waits %s for an answer that may take %s", acceleration, l.limit, needed)
		}
	}
}
