// Package all registers the drivers of all tools.
package all

import (
	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/custom"
	"github.com/tailgate-dev/tailgate/internal/tool/netperf"
	"github.com/tailgate-dev/tailgate/internal/tool/pinger"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntpingpong"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntstream"
	"github.com/tailgate-dev/tailgate/internal/tool/sockperf"
)

// Limits returns what the driver of a tool says of it: nothing of a tool that has none.
func Limits(name v1alpha1.Tool) tool.Base {
	if d, err := Registry().Get(name); err == nil {
		return d.Limits()
	}
	return tool.Base{}
}

func Registry() tool.Registry {
	return tool.NewRegistry(pinger.New(), sfntpingpong.New(), sfntstream.New(), netperf.New(), sockperf.New(), custom.New())
}
