//go:build e2e

package onload

import (
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// TestNoModule runs before the other tests of the package because of the name of its file: the module is not loaded yet, and
// cannot be unloaded once it has a NIC.
func TestNoModule(t *testing.T) {
	if registered {
		t.Fatal("the module is loaded")
	}
	setupSpaces(t)
	c := testCase{
		name: "no module", program: v1alpha1.ToolPinger, protocols: tcp, profile: latency, noDevice: true,
		fails: v1alpha1.OutcomeAccelerationFailed, words: "the kernel module onload is not loaded",
	}
	c.judge(t, c.run(t, nil), [2]packets{})
}
