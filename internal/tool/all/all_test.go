package all

import (
	"errors"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func TestRegistry(t *testing.T) {
	for _, name := range []v1alpha1.Tool{
		v1alpha1.ToolPinger, v1alpha1.ToolSfntPingpong, v1alpha1.ToolSfntStream, v1alpha1.ToolNetperf, v1alpha1.ToolSockperf,
	} {
		d, err := Registry().Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if d.Name() != name {
			t.Errorf("%s is found as %s", d.Name(), name)
		}
	}
	if _, err := Registry().Get("iperf"); !errors.Is(err, tool.ErrUnknown) {
		t.Errorf("got %v", err)
	}
}
