package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// patience is the time limit for an action that a program does at once, on a machine that does other work.
const patience = time.Minute

// asTool returns the command that runs a helper of this test binary.
func asTool(name string, args ...string) tool.Command {
	return tool.Command{Path: os.Args[0], Args: args, Env: []string{helperVariable + "=" + name}}
}

// aCPU returns one of the CPUs that the tests may use.
func aCPU(t *testing.T) int {
	t.Helper()
	cpus, _, err := host{root: "/"}.cpusAllowed()
	if err != nil {
		t.Fatal(err)
	}
	return cpus[len(cpus)-1]
}

func startTool(t *testing.T, c tool.Command) *process {
	t.Helper()
	p, err := start(c, []int{aCPU(t)}, t.TempDir(), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// wantOutcome checks that an error is a failure with a reason, and that its message contains words.
func wantOutcome(t *testing.T, err error, reason string, words ...string) {
	t.Helper()
	var f *tool.Failure
	if !errors.As(err, &f) || f.Reason != reason {
		t.Fatalf("got %#v (%v), want a failure with reason %s", err, err, reason)
	}
	for _, w := range words {
		if !strings.Contains(f.Message, w) {
			t.Errorf("message %q does not say %q", f.Message, w)
		}
	}
}

func TestToolIsPinnedFromItsStart(t *testing.T) {
	cpus, _, err := host{root: "/"}.cpusAllowed()
	if err != nil {
		t.Fatal(err)
	}
	for _, cpu := range cpus {
		t.Run(fmt.Sprintf("to CPU %d", cpu), func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var before, after unix.CPUSet
			if err := unix.SchedGetaffinity(0, &before); err != nil {
				t.Fatal(err)
			}
			p, err := start(tool.Command{Path: "grep", Args: []string{"Cpus_allowed_list", "/proc/self/status"}}, []int{cpu}, t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if !p.wait(context.Background()) || p.exitCode() != 0 {
				t.Fatalf("grep failed: %s", p.lastWords())
			}
			if got, want := p.stdout.String(), fmt.Sprintf("Cpus_allowed_list:\t%d\n", cpu); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if err := unix.SchedGetaffinity(0, &after); err != nil {
				t.Fatal(err)
			}
			if before != after {
				t.Errorf("the agent's own affinity changed from %v to %v", before, after)
			}
		})
	}
}

func TestStartFailures(t *testing.T) {
	_, err := start(tool.Command{Path: "no-such-tool"}, []int{aCPU(t)}, t.TempDir(), nil)
	wantOutcome(t, err, v1alpha1.OutcomeToolMissing, "no-such-tool")

	_, err = start(asTool("sleep"), []int{1000}, t.TempDir(), nil)
	wantOutcome(t, err, v1alpha1.OutcomeToolFailed, "CPUs [1000]")
}

func TestEndOfAProcess(t *testing.T) {
	p := startTool(t, asTool("fail", "it went wrong"))
	if !p.wait(context.Background()) {
		t.Error("it did not end by itself")
	}
	if got := p.exitCode(); got != 3 {
		t.Errorf("exit code %d, want 3", got)
	}
	if got := p.lastWords(); got != "it went wrong" {
		t.Errorf("last words %q: standard error comes first", got)
	}
	if !p.ended() {
		t.Error("it has not ended")
	}
}

// Lines that Onload always prints are not the reason of a failure.
func TestLastWordsAreNotOnloadsBanner(t *testing.T) {
	p := &process{}
	p.stdout.WriteString("# a table\n")
	p.stderr.WriteString("ERROR: it went wrong\noo:x[1]: Using Onload 9.0.2 [3]\noo:x[1]: Copyright (c) 2002-2026 AMD\n\n")
	if got := p.lastWords(); got != "ERROR: it went wrong" {
		t.Errorf("last words %q", got)
	}
	p.stderr.Reset()
	p.stderr.WriteString("oo:x[1]: Using Onload 9.0.2 [3]\n")
	if got := p.lastWords(); got != "# a table" {
		t.Errorf("last words %q", got)
	}
}

func TestDeadlineKillsTheWholeGroup(t *testing.T) {
	p := startTool(t, asTool("family"))
	child := childOf(t, p)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if p.wait(ctx) {
		t.Fatal("it ended by itself")
	}
	if got := p.exitCode(); got != -1 {
		t.Errorf("exit code %d, want -1 of one that was killed", got)
	}
	// Left alone, the child sleeps for longer.
	for deadline := time.Now().Add(patience); !gone(child); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the tool's child %d still lives", child)
		}
	}
}

// A tool that leaves a daemon behind, which keeps the tool's output open, has ended all the same.
func TestDaemonDoesNotHoldUpTheEnd(t *testing.T) {
	p := startTool(t, asTool("daemon"))
	child := childOf(t, p)
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Error("still waiting for the output to be closed")
	}
}

// childOf waits for the process ID of a tool's child.
func childOf(t *testing.T, p *process) int {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if data, err := os.ReadFile(filepath.Join(p.cmd.Dir, childFile)); err == nil {
			n, err := strconv.Atoi(string(data))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("it has no child")
	return 0
}

// gone reports whether a process has ended, even if it was not reaped.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

func TestCappedKeepsTheBeginning(t *testing.T) {
	var c capped
	for range 3 {
		n, err := c.Write(bytes.Repeat([]byte("x"), maxOutput/2))
		if n != maxOutput/2 || err != nil {
			t.Fatalf("wrote %d, %v: a tool must not notice", n, err)
		}
	}
	if _, err := c.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	if c.Len() != maxOutput || !c.truncated {
		t.Errorf("kept %d bytes, want %d; truncated: %t", c.Len(), maxOutput, c.truncated)
	}
}

// The package os/exec copies output with io.Copy, which prefers ReadFrom to Write.
func TestOutputIsBounded(t *testing.T) {
	var c capped
	if n, err := io.Copy(&c, io.LimitReader(zeros{}, 2*maxOutput)); n != 2*maxOutput || err != nil || c.Len() != maxOutput || !c.truncated {
		t.Errorf("%d bytes copied, %d kept, truncated: %t, %v", n, c.Len(), c.truncated, err)
	}
}

type zeros struct{}

func (zeros) Read(to []byte) (int, error) {
	clear(to)
	return len(to), nil
}
