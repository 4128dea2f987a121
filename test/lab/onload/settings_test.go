//go:build e2e

package onload

import (
	"os"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// TestSettings measures with and without CTPIO past the NIC's switch: Onload's stack has the settings of the profile and those of
// Tailgate. The stack of netperf's client, which closes its connection first as that of sfnt-pingpong does, ends soon after the tool,
// unless the time of TIME_WAIT is Onload's default. The NICs here have no CTPIO, as the proof says.
func TestSettings(t *testing.T) {
	setup(t)
	const (
		bypass = "onload.stack.EF_CTPIO_SWITCH_BYPASS"
		msl    = "onload.stack.EF_TCP_TCONST_MSL"
		// soon is more than twice the time that Tailgate sets, and much less than twice the default, 50 s.
		soon = 10 * time.Second
	)
	for _, c := range []struct {
		testCase
		facts map[string]string
		stays bool
	}{
		{
			testCase: testCase{name: "without CTPIO, Onload's time of TIME_WAIT", profile: latency, settings: []string{"EF_TCP_TCONST_MSL=25"}},
			facts:    map[string]string{bypass: "", msl: ""}, stays: true,
		},
		{
			testCase: testCase{name: "with CTPIO", profile: v1alpha1.OnloadProfileLatencyBest},
			facts:    map[string]string{bypass: "1", msl: "1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.program, c.protocols = v1alpha1.ToolNetperf, tcp
			endStacks(t)
			c.prepare(t)
			o := c.run(t, nil)
			if o.stored == nil {
				reason, message := o.failure()
				t.Fatalf("%s: %s", reason, message)
			}
			for name, want := range c.facts {
				if got := o.stored.Server.Evidence.Facts[name]; got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			for i, e := range o.ends {
				for _, l := range o.proofs[i] {
					if l.Check == v1alpha1.ProofSendPath && l.Found != "not known: the driver shows no counters of CTPIO" {
						t.Errorf("%s: send path %q", e.role, l.Found)
					}
				}
			}
			left := stacksAfter(t, soon)
			if stays := left != ""; stays != c.stays {
				t.Errorf("after %s there are the stacks %q", soon, left)
			}
		})
	}
	endStacks(t)
}

// stacksAfter returns the list of Onload's stacks as soon as it is empty, or after the time.
func stacksAfter(t *testing.T, limit time.Duration) string {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		text, err := os.ReadFile("/proc/driver/onload/stacks")
		if err != nil {
			t.Fatal(err)
		}
		if len(text) == 0 || time.Since(began) > limit {
			t.Logf("%d bytes of stacks %s after the tool", len(text), time.Since(began).Round(100*time.Millisecond))
			return string(text)
		}
	}
}
