//go:build e2e

package onload

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/lab"
)

// TestInspect starts a user's program by tailgate-exec, and inspects its container from the node while a client exchanges messages with it:
// only with Onload on both ends of an accelerated network, all messages bypass the kernel.
func TestInspect(t *testing.T) {
	setup(t)
	const limit = 90 * time.Second // while the client exchanges messages
	for _, c := range []struct {
		name    string
		env     []string
		address string
		want    v1alpha1.ProofState
		says    string
		library bool // is in the memory of the program
	}{
		{name: "accelerated", env: []string{"LD_PRELOAD=" + library}, address: serverAddress, want: v1alpha1.ProofProved, says: "and the kernel carried 0 TCP and UDP packets", library: true},
		{name: "kernel", address: serverAddress, want: v1alpha1.ProofNoted, says: "Onload is not loaded"},
		{name: "other network", env: []string{"LD_PRELOAD=" + library}, address: otherServerAddress, want: v1alpha1.ProofFailed, says: "0 of 2 sockets are Onload's", library: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			endStacks(t)
			start := func(role, cpu, accelerated string, args ...string) *lab.Process {
				t.Helper()
				p, err := lab.Pod{
					Name: "feed-" + role, Space: spaces[role], CPUs: cpu, UID: 65532, Devices: testCase{}.devices(), Args: args,
					Env: append([]string{"EF_INTERFACE_WHITELIST=" + accelerated, "PATH=/usr/local/bin:/usr/bin:/sbin", plan.EnvInterface + "="}, c.env...),
				}.Start()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					_ = p.Kill()
					if out, _ := p.Wait(); t.Failed() { // it was killed
						t.Logf("the %s wrote %q", role, out)
					}
				})
				return p
			}
			server := start(v1alpha1.RoleServer, endCPU[1], "eth1", "/usr/local/bin/tailgate-exec", "--require", "ThreadsOnCPUs", "--cpus", "1", "--wait", "1m", "--",
				"/usr/bin/sockperf", "server", "--tcp", "-i", c.address, "-p", "7001")
			began := time.Now()
			for !becameSockperf(server) {
				if time.Since(began) > patience {
					t.Fatal("tailgate-exec has not become the program")
				}
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(2 * time.Second) // until it listens
			start(v1alpha1.RoleClient, endCPU[0], "eth0", "/usr/bin/sockperf", "ping-pong", "--tcp", "-i", c.address, "-p", "7001", "-t", "120")
			var l proof.WorkloadLine
			for began := time.Now(); l.State != c.want || !strings.Contains(l.Found, c.says); time.Sleep(time.Second) {
				if time.Since(began) > limit {
					t.Fatalf("%s: %s, want %s and %q", l.State, l.Found, c.want, c.says)
				}
				w := fromNode(t, "feed-"+v1alpha1.RoleServer)
				for _, l = range proof.Workload(proof.WorkloadPod{FromNode: true}, w) {
					if l.Check == v1alpha1.ProofAcceleration {
						break
					}
				}
				t.Logf("%s: %s; %v", l.State, l.Found, w.StackEvents)
				if look := w.Processes[0].Look; look == nil || (look.Library != "") != c.library {
					t.Errorf("look %+v; Onload's library should be in the memory: %t", look, c.library)
				}
			}
		})
	}
}

// becameSockperf reports whether the program of a pod is sockperf.
func becameSockperf(p *lab.Process) bool {
	pids, err := p.PIDs()
	if err != nil || len(pids) == 0 {
		return false
	}
	program, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pids[0]))
	return err == nil && strings.TrimSpace(string(program)) == "sockperf"
}

// fromNode inspects a container as a privileged pod on the node does.
func fromNode(t *testing.T, container string) result.Workload {
	t.Helper()
	cmd := exec.Command("/usr/local/bin/tailgate-agent", "inspect")
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/sbin", plan.EnvContainer + "=" + container, plan.EnvView + "=" + plan.ViewNode}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	for found, err := range result.Inspections(bytes.NewReader(out)) {
		if err != nil {
			t.Fatal(err)
		}
		return *found.Workload
	}
	t.Fatalf("no inspection: %s", out)
	return result.Workload{}
}
