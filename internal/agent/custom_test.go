package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/custom"
)

// A user's program measures, and each way in which it may not has its outcome with its last words.
func TestCustom(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../test/program").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	behave := func(words string) v1alpha1.CustomProgram {
		p := v1alpha1.CustomProgram{Command: []string{program}, Env: []v1alpha1.CustomVariable{{Name: "TZ", Value: "UTC"}}}
		if words != "" {
			p.Args = []string{words}
		}
		return p
	}
	file := v1alpha1.CustomOutput{Path: "latencies", Format: v1alpha1.CustomValues}
	stdout := v1alpha1.CustomOutput{Format: v1alpha1.CustomValues}
	cases := map[string]struct {
		server, client string
		output         v1alpha1.CustomOutput
		timeout        time.Duration
		// reason and says are of the client's termination message; empty: it measures.
		reason string
		says   []string
	}{
		"it measures":                  {output: file},
		"it takes any CPU":             {client: "elsewhere", output: file},
		"it prints nothing":            {client: "nothing", output: stdout, reason: v1alpha1.OutcomeToolFailed, says: []string{"cannot be read", "behaving: nothing"}},
		"it writes nothing":            {client: "nothing", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"no samples", "behaving: nothing"}},
		"it leaves no file":            {client: "no file", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"left no output", "instrument not found"}},
		"it leaves a pipe":             {client: "fifo", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"is not a regular file"}},
		"it prints too much":           {client: "loud", output: stdout, reason: v1alpha1.OutcomeToolFailed, says: []string{"more than is kept", "output.path"}},
		"it writes NaN":                {client: "NaN", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"line 2", "NaN", "behaving"}},
		"it writes infinity":           {client: "infinite", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"line 1", "Inf"}},
		"it writes a negative value":   {client: "negative", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"line 1", "-1"}},
		"it writes zero":               {client: "zero", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"line 2"}},
		"it writes garbage":            {client: "garbage", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"line 1"}},
		"it writes rows":               {client: "a row", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"line 1", "1000,2000"}},
		"its file is cut":              {client: "cut", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"the last line has no end"}},
		"its values are hours":         {client: "an hour", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"line 1"}},
		"its unit is wrong":            {client: "a second too many", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"longest round trip is 20s", "unit"}},
		"it ends early":                {client: "early", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"exit code 3", "order 17 was rejected"}},
		"it never ends":                {client: "endless", output: file, timeout: time.Second, reason: v1alpha1.OutcomeToolTimeout, says: []string{"waiting for the market to open"}},
		"it never ends, elsewhere":     {client: "another group", output: file, timeout: time.Second, reason: v1alpha1.OutcomeToolTimeout, says: []string{"killed after"}},
		"its server crashes":           {server: "crash", client: "patient", output: file, timeout: 5 * time.Second, reason: v1alpha1.OutcomeToolFailed, says: []string{"before its client ended", "the matching engine is corrupt"}},
		"its client leaves a daemon":   {client: "daemon", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"client's program left processes running", "program ("}},
		"its server leaves at once":    {server: "daemon", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"server's program left processes running", "program ("}},
		"its server leaves one beside": {server: "daemon beside", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"server's program left processes running"}},
		"its server is never ready":    {server: "never ready", output: file, reason: v1alpha1.OutcomeToolFailed, says: []string{"does not listen on TCP port", "loading the instruments"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			restore(t)
			described := &v1alpha1.Custom{
				Image: "registry.example.com/program@sha256:" + strings.Repeat("0a", 32), Client: behave(c.client), Server: behave(c.server), Output: c.output,
				Timeout: metav1.Duration{Duration: c.timeout},
			}
			volumes := make(chan string, 2)
			change := func(a *Agent) {
				volumes <- a.Scratch
				a.Task.Tool = v1alpha1.ToolCustom
				a.Task.Cells = []tool.Cell{{
					Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}, Duration: 300 * time.Millisecond, Warmup: 50 * time.Millisecond,
					Custom: described,
				}}
			}
			done := make(chan ending, 1)
			go func() { done <- run(t.Context(), t, v1alpha1.RoleServer, custom.New(), change) }()
			client := run(t.Context(), t, v1alpha1.RoleClient, custom.New(), change)
			server := <-done
			for pid, stat := range strays() {
				t.Errorf("%s (%d, %s) was left", stat.name, pid, stat.state)
			}
			for range 2 {
				if left, err := os.ReadDir(<-volumes); err != nil || len(left) > 0 {
					t.Errorf("the volume of scratch files: %v, %v", left, err)
				}
			}
			if c.reason == "" {
				measured(t, document(t, client), document(t, server))
				return
			}
			if client.err == nil || client.termination.Reason != c.reason {
				t.Fatalf("%v: %+v, want %s", client.err, client.termination, c.reason)
			}
			for _, says := range c.says {
				if !strings.Contains(client.termination.Message, says) {
					t.Errorf("says %q, not %q", client.termination.Message, says)
				}
			}
		})
	}
}

func measured(t *testing.T, client, server result.Document) {
	t.Helper()
	cell := client.Cells[0]
	if cell.Histogram.Count < 10 || cell.Histogram.OverRange > 0 || cell.Histogram.MinNs < 1 {
		t.Errorf("%+v", cell.Histogram)
	}
	if cell.Custom == nil || cell.Custom.Client.Env[0].Name != "TZ" || !strings.HasSuffix(cell.Command[0], "/program") || len(cell.Figures) != 2 {
		t.Errorf("%+v", cell)
	}
	for _, d := range []result.Document{client, server} {
		if d.Evidence.Deltas["tool.cpu-ns"] == 0 || d.Evidence.Facts["tool.sha256"] == "" {
			t.Errorf("%s: %v, %v", d.Role, d.Evidence.Deltas, d.Evidence.Facts)
		}
		for name := range d.Evidence.Facts {
			if strings.HasPrefix(name, "env.TAILGATE") {
				t.Errorf("%s: fact %s", d.Role, name)
			}
		}
	}
	if _, err := os.Stat(filepath.Join("/scratch", cell.Name)); err == nil {
		t.Error("a folder of the machine")
	}
}
