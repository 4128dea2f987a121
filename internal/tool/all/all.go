// Package all registers the drivers of all tools.
package all

import (
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/netperf"
	"github.com/tailgate-dev/tailgate/internal/tool/pinger"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntpingpong"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntstream"
	"github.com/tailgate-dev/tailgate/internal/tool/sockperf"
)

func Registry() tool.Registry {
	return tool.NewRegistry(pinger.New(), sfntpingpong.New(), sfntstream.New(), netperf.New(), sockperf.New())
}
