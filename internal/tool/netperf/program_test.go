package netperf

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

// TestProgram runs the driver's commands with the installed program, if there is one: each end reads what the other
// prints.
func TestProgram(t *testing.T) {
	for _, program := range []string{program, serverProgram} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not in PATH; the bench image has it", program)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	target := tool.Target{Address: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, LocalAddress: "127.0.0.1"}
	cases := map[string]struct {
		cell tool.Cell
		// killed: the server is killed in the middle of the test.
		killed bool
	}{
		"round trips over TCP":                  {cell("TCP_RR", 1<<16, time.Second), false},
		"round trips over UDP":                  {cell("UDP_RR", 1, time.Second), false},
		"a stream over TCP":                     {cell("TCP_STREAM", 1<<20, time.Second), false},
		"a stream over UDP":                     {cell("UDP_STREAM", 65_507, time.Second), false},
		"round trips over TCP, a server killed": {cell("TCP_RR", 64, 2*time.Second), true},
		"round trips over UDP, a server killed": {cell("UDP_RR", 64, 2*time.Second), true},
		"a stream over TCP, a server killed":    {cell("TCP_STREAM", 64, 2*time.Second), true},
		"a stream over UDP, a server killed":    {cell("UDP_STREAM", 64, 2*time.Second), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			command := func(of tool.Command) *exec.Cmd { return exec.CommandContext(t.Context(), of.Path, of.Args...) }
			server := command(New().Server(c.cell, target))
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = server.Process.Kill()
				_ = server.Wait()
			}()
			await(t, server.Process.Pid, target.Port)
			if c.killed {
				timer := time.AfterFunc(time.Second, func() { _ = server.Process.Kill() })
				defer timer.Stop()
			}
			client := command(New().Client(c.cell, target))
			var stdout, stderr bytes.Buffer
			client.Stdout, client.Stderr = &stdout, &stderr
			var exit *exec.ExitError
			if err := client.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			out := tool.Output{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: client.ProcessState.ExitCode()}
			m, err := New().Parse(c.cell, out, nil, nil)
			switch {
			case c.killed:
				if f := asFailure(t, err); !strings.Contains(f.Message, "the server ended before the test did") {
					t.Errorf("says %q", f.Message)
				}
			case err != nil:
				t.Fatal(err)
			case c.cell.Stream:
				if m.Bandwidth.BitsPerSecond < 1e6 {
					t.Errorf("%+v", m.Bandwidth)
				}
			case m.Own.Count < 1 || m.Own.MeanNs < float64(m.Own.MinNs) || m.Own.MeanNs > float64(m.Own.MaxNs+1_000):
				t.Errorf("%+v", m.Own)
			}
		})
	}
}

// await waits until the server listens, without touching it.
func await(t *testing.T, pid, port int) {
	t.Helper()
	bound := ":" + strings.ToUpper(strconv.FormatInt(int64(port), 16)) + " 00000000:0000 0A "
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		table, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(table), bound) {
			return
		}
	}
	t.Fatal("netserver does not listen")
}
