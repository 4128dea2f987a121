package pinger

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	build "github.com/tailgate-dev/tailgate/test/pinger"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// TestProgram runs the driver's commands with the current program: each end reads what the other writes.
func TestProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), build.Program)
	if err := build.Build(t.Context(), "../../..", path); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	for _, c := range []tool.Cell{
		cellOf(v1alpha1.ProtocolTCP, 65536, 200*time.Millisecond, 50*time.Millisecond), cellOf(v1alpha1.ProtocolUDP, 1, 100*time.Millisecond, 0),
		spinning(at(1000, cellOf(v1alpha1.ProtocolUDP, 64, 300*time.Millisecond, 50*time.Millisecond))),
		at(1000, cellOf(v1alpha1.ProtocolMulticast, 64, 300*time.Millisecond, 50*time.Millisecond)),
	} {
		t.Run(fmt.Sprintf("%s at %d", c.Protocol, c.RatePerSecond), func(t *testing.T) {
			target := tool.Target{Address: "127.0.0.1", LocalAddress: "127.0.0.1", Port: port, Key: "3c1f8a52000040008000000000000000"}
			if err := New().Validate(c); err != nil {
				t.Fatal(err)
			}
			command := func(of tool.Command) *exec.Cmd {
				if of.Path != build.Program {
					t.Errorf("the driver runs %s", of.Path)
				}
				cmd := exec.CommandContext(t.Context(), path, of.Args...)
				cmd.Env = append(cmd.Environ(), of.Env...)
				return cmd
			}
			server := command(New().Server(c, target))
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = server.Process.Kill()
				_ = server.Wait()
			}()
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				probe, err := net.Dial("tcp", listener.Addr().String())
				if err == nil {
					probe.Close()
					break
				}
			}
			client := command(New().Client(c, target))
			var stdout, stderr bytes.Buffer
			client.Stdout, client.Stderr = &stdout, &stderr
			var exit *exec.ExitError
			if err := client.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			r, sent := result.NewRecorder(), 0
			m, err := New().Parse(c, tool.Output{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: client.ProcessState.ExitCode()}, r.RecordN, func(_, n int64) { sent += int(n) })
			if err != nil {
				t.Fatal(err)
			}
			r.SetSums(m.Sums.SumNs, m.Sums.SumOfSquaresNs2)
			h, err := r.Histogram()
			if err != nil {
				t.Fatal(err)
			}
			d, err := resulttest.Merge(h)
			if err != nil {
				t.Fatal(err)
			}
			if d.Count == 0 || len(m.Figures) < 15 || m.Attribution == nil || len(m.Intervals) != 1 {
				t.Errorf("%d samples, %d lost, figures %v, %d intervals", d.Count, m.Lost, m.Figures, len(m.Intervals))
			}
			if c.OpenLoop() && (d.Count+h.OverRange+m.Lost != 300 || sent == 0) {
				t.Errorf("%d messages of 300, and %d lost", d.Count, m.Lost)
			}
		})
	}
}
