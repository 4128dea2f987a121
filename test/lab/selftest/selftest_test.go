//go:build e2e

// Package selftest tests, inside a guest, the properties of guests and pods that package lab documents.
package selftest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/lab"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

func TestMain(m *testing.M) {
	lab.Main(m, func() (*lab.Machine, string) {
		return &lab.Machine{CPUs: 2, MemoryMiB: 1024, NICs: []int{0, 0}, Modules: []string{"virtio_pci", "virtio_net"}}, ""
	})
}

// TestPod runs the agent's inspection of the node in two pods, over NICs that a cable connects.
func TestPod(t *testing.T) {
	var space [2]*netpair.Namespace
	for i, device := range []string{"eth0", "eth1"} {
		s, err := netpair.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Attach(netpair.Interface{Name: device, Addresses: []string{fmt.Sprintf("192.0.2.%d/24", i+1)}}); err != nil {
			t.Fatal(err)
		}
		space[i] = s
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/word", []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := lab.Pod{
		Name: "inspect", Space: space[0], CPUs: "1", UID: 65532, Binds: map[string]string{"/dev/word": dir + "/word"},
		Args: []string{"/usr/local/bin/tailgate-agent", "inspect"}, Env: []string{"TAILGATE_NODE=a", "TAILGATE_POD_IP=192.0.2.1"},
	}.Start()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Wait()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	inspection, err := result.ReadInspection(bytes.NewReader(out))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seen, err := json.Marshal(inspection)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"eth0"`, `"cpusAllowed":"1"`, `"virtio_net"`} {
		if !strings.Contains(string(seen), want) {
			t.Errorf("the agent did not see %s: %s", want, seen)
		}
	}
	if strings.Contains(string(seen), `"eth1"`) {
		t.Errorf("the agent saw the other pod's interface: %s", seen)
	}
	if err := space[0].In(func() error {
		_, err := netlink.LinkByName("eth1")
		if err == nil {
			t.Error("the first namespace has the second's interface")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir("/sys/fs/cgroup/inspect"); err == nil {
		t.Errorf("the pod's cgroup is still there: %v", entries)
	}
}

// TestPodIsNotPrivileged checks the status of a pod's process.
func TestPodIsNotPrivileged(t *testing.T) {
	s, err := netpair.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	p, err := lab.Pod{Name: "hold", Space: s, UID: 65532, Args: []string{"/usr/local/bin/tailgate-agent", "hold"}}.Start()
	if err != nil {
		t.Fatal(err)
	}
	status := ""
	for end := time.Now().Add(time.Minute); !strings.Contains(status, "Name:\ttailgate-agent") && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		pids, err := p.PIDs()
		if err != nil || len(pids) != 1 {
			t.Fatalf("processes %v, %v", pids, err)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pids[0]))
		if err != nil {
			t.Fatal(err)
		}
		status = string(text)
	}
	const none = "\t0000000000000000\n"
	for _, want := range []string{"Uid:\t65532\t65532\t65532\t65532\n", "Gid:\t65532\t", "CapEff:" + none, "CapPrm:" + none, "CapBnd:" + none, "NoNewPrivs:\t1\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("the pod's process has not %q: %s", want, status)
		}
	}
	_ = p.Kill()
	if _, err := p.Wait(); err == nil {
		t.Error("the pod was not killed")
	}
}
