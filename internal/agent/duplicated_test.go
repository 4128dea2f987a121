package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

// realTask, in the environment of a hostAgent, is the task that it runs with a real tool.
const realTask = "TAILGATE_TEST_TASK"

// A path delivers answers twice: one, one in a thousand, or each. Tools whose messages have numbers still measure what they
// measure without, or fail; for the others, the counters of both ends do not prove the result.
func TestDuplicated(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making network namespaces takes root")
	}
	spec := v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{Network: v1alpha1.Network{Type: v1alpha1.NetworkPod}}}
	for _, c := range []struct {
		tool     v1alpha1.Tool
		program  string
		rate     int32
		numbered bool
		// before is the number of messages that it sends before those that it times.
		before int64
		// refuses is what it refuses to measure, because it is not a ping-pong.
		refuses string
	}{
		{v1alpha1.ToolPinger, "tailgate-pinger", 0, true, 0, ""},
		{v1alpha1.ToolPinger, "tailgate-pinger", 2000, true, 0, ""},
		{v1alpha1.ToolSockperf, "sockperf", 0, true, 0, "answers arrived twice"},
		{v1alpha1.ToolSfntStream, "sfnt-stream", 2000, true, 2000, ""},
		{v1alpha1.ToolSfntPingpong, "sfnt-pingpong", 0, false, 0, ""},
		{v1alpha1.ToolNetperf, "netperf", 0, false, 0, "did not arrive at the server"},
	} {
		cell := tool.Cell{
			Name: "cell", Duration: time.Second, Wait: v1alpha1.WaitBlock, LossAfter: 200 * time.Millisecond,
			Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 64, RatePerSecond: c.rate},
		}
		var once int64
		for _, twice := range []struct {
			name  string
			at    int64 // which of the answers; 0: none
			every int64
		}{{"none", 0, 0}, {"one", 700, 0}, {"one in a thousand", 0, 1000}, {"each", 0, 1}} {
			t.Run(fmt.Sprintf("%s at %d a second, %s", c.tool, c.rate, twice.name), func(t *testing.T) {
				if _, err := exec.LookPath(c.program); err != nil {
					t.Skipf("%s is not in PATH; the bench image has it", c.program)
				}
				var answers atomic.Int64
				hosts, path, err := netpair.NewRelayed(
					netpair.Interface{Name: "enp1", Addresses: []string{"192.0.2.1/24"}},
					netpair.Interface{Name: "enp2", Addresses: []string{"192.0.2.2/24"}},
					func(toClient bool, frame []byte) int {
						// An Ethernet frame with IPv4 and UDP, as large as the smallest answer, that of sfnt-stream.
						if !toClient || len(frame) < 14+20+8+48 || frame[12] != 8 || frame[13] != 0 || frame[14+9] != 17 {
							return 1
						}
						n := answers.Add(1)
						if twice.at > 0 && n == twice.at+c.before || twice.every > 0 && n%twice.every == 0 {
							return 2
						}
						return 1
					})
				if err != nil {
					t.Fatal(err)
				}
				defer hosts.Close()
				defer path.Close()
				task := plan.Task{Run: "x-r1", Attempt: 1, Tool: c.tool, Cells: []tool.Cell{cell}, Deadline: time.Minute}
				content, err := json.Marshal(task)
				if err != nil {
					t.Fatal(err)
				}
				t.Setenv(realTask, string(content))
				s := startEnd(t, hosts.Server, v1alpha1.RoleServer, "enp2", "", "")
				ended := startEnd(t, hosts.Client, v1alpha1.RoleClient, "enp1", "192.0.2.2", "").ending(t)
				if failed := ended.termination; failed.Reason != "" {
					if t.Logf("%s: %s", failed.Reason, failed.Message); twice.name == "none" || c.refuses == "" || !strings.Contains(failed.Message, c.refuses) {
						t.Fail()
					}
					return
				}
				run := result.Stored{Client: document(t, ended), Server: document(t, s.ending(t))}
				measured := run.Client.Cells[0]
				p50 := medianOf(t, measured)
				lines, serverLines := proof.Endpoints(spec, plan.Variants(spec)[0], run)
				var found v1alpha1.ProofLine
				for _, l := range append(lines, serverLines...) {
					if l.Check == v1alpha1.ProofMessagesOnce && (found.Check == "" || l.State != v1alpha1.ProofProved) {
						found = l
					}
				}
				t.Logf("p50 %d ns, lost %d, warnings %q; %s %s", p50, measured.Lost, measured.Warnings, found.State, found.Found)
				once = cmp.Or(once, p50)
				switch {
				case c.numbered && found.Check != "":
					t.Errorf("its messages have numbers: %v", found)
				case c.numbered && twice.name != "none" && !strings.Contains(strings.Join(measured.Warnings, " "), "duplicate"):
					t.Errorf("no warning of duplicates: %q", measured.Warnings)
				case c.numbered && p50 < once/2:
					t.Errorf("p50 is %d, without duplicates %d", p50, once)
				case !c.numbered && (twice.name == "none") != (found.State == v1alpha1.ProofProved):
					t.Errorf("%s %s", found.State, found.Found)
				}
			})
		}
	}
}

func medianOf(t *testing.T, c result.Cell) int64 {
	t.Helper()
	if c.Own != nil {
		return c.Own.P50Ns
	}
	d, err := result.NewMerger().Add(c.Histogram)
	if err != nil {
		t.Fatal(err)
	}
	return d.Percentile(stats.P50, c.Lost).Ns
}
