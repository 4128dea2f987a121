package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	build "github.com/tailgate-dev/tailgate/bench-image/pinger"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/pinger"
)

// mapped is /proc/PID/maps of a tool, with Onload's library when that is given.
func mapped(library string) string {
	text := "55a0c0000000-55a0c0002000 r--p 00000000 fe:00 131 /usr/local/bin/sfnt-pingpong\n" +
		"55a0c1000000-55a0c1021000 rw-p 00000000 00:00 0                          [heap]\n" +
		"7f0000000000-7f0000028000 r--p 00000000 fe:00 77                         /usr/lib/x86_64-linux-gnu/libc.so.6\n"
	if library != "" {
		text += "7f1000000000-7f1000100000 r-xp 00001000 fe:00 4711                       " + library + "\n"
	}
	return text + "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]\n"
}

// withProcess is a machine on which process 42 has a memory and descriptors; those are links.
func withProcess(t *testing.T, maps string, descriptors ...string) host {
	t.Helper()
	files := map[string]string{"proc/42/maps": maps, "proc/42/fd/0": "->/dev/null", "proc/42/fd/1": "->pipe:[4710]", "proc/42/fd/2": "->pipe:[4711]"}
	for i, target := range descriptors {
		files[fmt.Sprintf("proc/42/fd/%d", i+3)] = "->" + target
	}
	return fakeRoot(t, files)
}

func TestGlimpse(t *testing.T) {
	accelerated := []string{"/dev/onload", "onload:[stack:0]", "onload:[tcp:0:5]", "onload:[udp:0:6]"}
	cases := map[string]struct {
		maps        string
		descriptors []string
		protocol    v1alpha1.Protocol
		want        glimpse
	}{
		"a tool without sockets": {maps: mapped(""), protocol: v1alpha1.ProtocolTCP},
		"the kernel's sockets":   {maps: mapped(""), descriptors: []string{"socket:[9]", "socket:[10]", "anon_inode:[eventpoll]"}, protocol: v1alpha1.ProtocolTCP, want: glimpse{sockets: 2}},
		"Onload's, for TCP":      {maps: mapped(library), descriptors: accelerated, protocol: v1alpha1.ProtocolTCP, want: glimpse{library: library, sockets: 2, onload: 1}},
		"Onload's, for UDP":      {maps: mapped(library), descriptors: accelerated, protocol: v1alpha1.ProtocolUDP, want: glimpse{library: library, sockets: 2, onload: 1}},
		"Onload's, for a group":  {maps: mapped(library), descriptors: accelerated, protocol: v1alpha1.ProtocolMulticast, want: glimpse{library: library, sockets: 2, onload: 1}},
		"messages over a socket of the kernel, beside a control connection of Onload's": {
			maps: mapped(library), descriptors: []string{"onload:[stack:0]", "onload:[tcp:0:5]", "socket:[9]"}, protocol: v1alpha1.ProtocolUDP,
			want: glimpse{library: library, sockets: 2},
		},
		"one that only listens": {
			maps: mapped(library), descriptors: []string{"onload:[stack:0]", "onload:[tcpl:0:5]"}, protocol: v1alpha1.ProtocolTCP,
			want: glimpse{library: library, sockets: 1},
		},
		"one that was handed to the kernel": {
			maps: mapped(library), descriptors: []string{"onload:[stack:0]", "onload:[os_sock:0:5]"}, protocol: v1alpha1.ProtocolTCP,
			want: glimpse{library: library, sockets: 1},
		},
		"one that went to another stack": {
			maps: mapped(library), descriptors: []string{"onload:[moved:1:5]"}, protocol: v1alpha1.ProtocolUDP,
			want: glimpse{library: library, sockets: 1, onload: 1},
		},
		"a pipe of Onload's is no socket": {
			maps: mapped(library), descriptors: []string{"onload:[piper:0:5]", "onload:[pipew:0:5]"}, protocol: v1alpha1.ProtocolTCP, want: glimpse{library: library},
		},
		"a library that was replaced on disk":   {maps: mapped(library + " (deleted)"), protocol: v1alpha1.ProtocolTCP, want: glimpse{library: library}},
		"Onload as it is built":                 {maps: mapped("/build/libcitransport0.so"), protocol: v1alpha1.ProtocolTCP, want: glimpse{library: "/build/libcitransport0.so"}},
		"the extensions' library is not it":     {maps: mapped("/usr/lib64/libonload_ext.so.2"), protocol: v1alpha1.ProtocolTCP},
		"a file that lies in a folder so named": {maps: mapped("/opt/libonload.so/data"), protocol: v1alpha1.ProtocolTCP},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := withProcess(t, c.maps, c.descriptors...).glimpse(42, c.protocol)
			if diff := cmp.Diff(&c.want, got, cmp.AllowUnexported(glimpse{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	for name, files := range map[string]map[string]string{
		"no process": nil, "no descriptors": {"proc/42/maps": mapped("")}, "one that ends": {"proc/42/maps": "", "proc/42/fd/0": "->socket:[9]"},
		"a memory that is no text": {"proc/42/maps": strings.Repeat("x", 1<<17), "proc/42/fd/0": "->x"},
	} {
		if got := fakeRoot(t, files).glimpse(42, v1alpha1.ProtocolTCP); got != nil {
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

func TestNote(t *testing.T) {
	e := &endpoint{environ: []string{"EF_A=1", "LD_PRELOAD=" + library}}
	e.note(&process{})
	if e.onload != nil {
		t.Errorf("nobody looked, and yet %+v", e.onload)
	}
	for _, g := range []glimpse{{library: library, sockets: 3, onload: 2}, {sockets: 1}, {library: "/other/libonload.so", onload: 1}} {
		e.note(&process{seen: &g})
	}
	e.note(&process{})
	want := &result.Onload{Checked: 3, MappedIn: 2, Mapped: library, Sockets: 0, Preloaded: library}
	if diff := cmp.Diff(want, e.onload); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A process that never has a socket is not looked at for long.
func TestLooksEnd(t *testing.T) {
	for name, a := range map[string]v1alpha1.AccelerationType{"the kernel": v1alpha1.AccelerationKernel, "Onload": v1alpha1.AccelerationOnload} {
		t.Run(name, func(t *testing.T) {
			e := &endpoint{Agent: &Agent{Task: plan.Task{Acceleration: a, Library: library}, Root: "/"}}
			p := startTool(t, asTool("sleep"))
			if err := e.look(t.Context(), p); err != nil {
				t.Error(err)
			}
			if p.seen == nil || p.seen.sockets != 0 {
				t.Errorf("saw %+v", p.seen)
			}
		})
	}
	t.Run("that of one that ends", func(t *testing.T) {
		e := &endpoint{Agent: &Agent{Root: "/"}}
		p := startTool(t, asTool("fail", "at once"))
		if err := e.look(t.Context(), p); err != nil {
			t.Error(err)
		}
		<-p.done
	})
	t.Run("that of one that is told to", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e, p := &endpoint{Agent: &Agent{Root: "/"}}, startTool(t, asTool("sleep"))
		if err := e.look(ctx, p); err != nil || p.seen != nil {
			t.Errorf("saw %+v, %v", p.seen, err)
		}
	})
}

// What was seen of a process holds when it has ended before it is looked at again.
func TestLookAtOneThatEnds(t *testing.T) {
	for name, c := range map[string]struct{ seen, want *glimpse }{
		"with its sockets":   {seen: &glimpse{library: library, sockets: 2}, want: &glimpse{library: library, sockets: 2}},
		"before it had any":  {seen: &glimpse{}},
		"and was never seen": {},
	} {
		t.Run(name, func(t *testing.T) {
			p := startTool(t, asTool("fail", "at once"))
			<-p.done
			p.seen = c.seen
			if err := (&endpoint{Agent: &Agent{Root: "/"}}).glance(p); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(c.want, p.seen, cmp.AllowUnexported(glimpse{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// preloadable makes an empty library that is named like Onload's.
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

// withPinger makes an agent run Tailgate's own tool, with the acceleration that a role asks for.
func withPinger(role string, accelerate func(role string, task *plan.Task)) func(*Agent) {
	return func(a *Agent) {
		a.Tools, a.Task.Tool = tool.NewRegistry(pinger.New()), v1alpha1.ToolPinger
		a.Task.Cells = nil
		// Long enough for an agent to look at the tool on a machine that does other work.
		for _, p := range []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP} {
			a.Task.Cells = append(a.Task.Cells, tool.Cell{Name: string(p), Protocol: p, MessageSize: 64, Duration: time.Second})
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

// A library that is really preloaded into a real tool is seen at both ends, and one that is not there ends the run before
// anything is measured. The sockets are the kernel's: that takes a NIC of Onload's.
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

	t.Run("at both ends", func(t *testing.T) {
		s, c := exchangeWithPinger(t, func(_ string, task *plan.Task) { onload(path)(task) })
		want := &result.Onload{Checked: 2, MappedIn: 2, Mapped: path, Preloaded: path}
		for _, d := range []result.Document{document(t, s), document(t, c)} {
			if diff := cmp.Diff(want, d.Evidence.Onload); diff != "" {
				t.Errorf("the %s's (-want +got):\n%s", d.Role, diff)
			}
			if f := d.Evidence.Facts; f["env.LD_PRELOAD"] != path || f["env.EF_NO_FAIL"] != "0" {
				t.Errorf("the %s's facts: %v", d.Role, f)
			}
		}
	})
	t.Run("the kernel was asked for, and the container preloads it", func(t *testing.T) {
		t.Setenv("LD_PRELOAD", path)
		t.Setenv("EF_POLL_USEC", "100000")
		s, c := exchangeWithPinger(t, func(string, *plan.Task) {})
		for _, d := range []result.Document{document(t, s), document(t, c)} {
			if diff := cmp.Diff(&result.Onload{Checked: 2}, d.Evidence.Onload); diff != "" {
				t.Errorf("the %s's (-want +got):\n%s", d.Role, diff)
			}
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
