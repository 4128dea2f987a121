//go:build e2e

package devices

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/test/lab"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

// TestExec starts programs by tailgate-exec in containers whose CPUs a kubelet sets late: their cpusets have all CPUs of the machine at
// first, and then the one that the container requests.
func TestExec(t *testing.T) {
	const late = 3 * time.Second
	for _, c := range []struct {
		name, wait string
		sets       string // CPUs that the kubelet sets, late; empty: never
		code       int
		finding    string
		becomes    bool
	}{
		{"late", "1m", "2", 0, "Pass after ", true},
		{"impatient", "0s", "", 1, "Failed CPUsExclusive: 0-3 of the node's 0-3", false},
		{"never", "2s", "", 1, "Failed CPUsExclusive: 0-3 of the node's 0-3", false},
		{"on-both-nodes", "5s", "1-2", 1, "Failed CPUsExclusive: 1-2 of the node's 0-3", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			space, err := netpair.NewNamespace()
			if err != nil {
				t.Fatal(err)
			}
			defer space.Close()
			const user = 1000
			termination := filepath.Join(t.TempDir(), "termination")
			if err := errors.Join(os.WriteFile(termination, nil, 0o600), os.Chown(termination, user, user)); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			process, err := lab.Pod{
				Name: "exec-" + c.name, Space: space, CPUs: "0-3", UID: user, Binds: map[string]string{"/dev/termination-log": termination},
				Args: []string{"/usr/local/bin/tailgate-exec", "--require", "CPUsExclusive,ThreadsOnCPUs,CPUsOnNUMANode", "--cpus", "1", "--wait", c.wait, "--", "/usr/bin/sockperf", "--version"},
			}.Start()
			if err != nil {
				t.Fatal(err)
			}
			if c.sets != "" {
				time.AfterFunc(late, func() {
					_ = os.WriteFile("/sys/fs/cgroup/exec-"+c.name+"/cpuset.cpus", []byte(c.sets), 0o644) // it may have ended
				})
			}
			out, err := process.Wait()
			took, code := time.Since(began), 0
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			said, err := os.ReadFile(termination)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("exit code %d after %s: %s%s", code, took.Round(100*time.Millisecond), said, out)
			if code != c.code || !strings.Contains(string(said), c.finding) || strings.Contains(string(out), "sockperf, version") != c.becomes {
				t.Errorf("exit code %d, want %d; it became the program: %t; finding %s; it wrote %s", code, c.code, c.becomes, said, out)
			}
			if c.becomes && took < late {
				t.Errorf("it became the program after %s, before its CPUs were set", took)
			}
		})
	}
}
