package proof

import (
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// The bound of what a cell can have sent follows from its shortest round trip, as the tool reports it: a bound that is too high
// hides messages that something sends on, and one that is too low makes honest ones unproved.
func TestMostSent(t *testing.T) {
	began := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	// The cell measured for a second of three, so that it may have sent for two seconds more.
	cell := func(change func(*result.Cell)) result.Cell {
		c := result.Cell{Cell: tool.Cell{Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 64}, Duration: time.Second}, Tool: string(v1alpha1.ToolNetperf), StartedAt: began, FinishedAt: began.Add(3 * time.Second)}
		c.Histogram.MinNs = 20_000
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		cell result.Cell
		n    int64
		want float64
	}{
		"by the shortest sample":                      {cell(func(*result.Cell) {}), 1000, 1000 + 2e9/20_000},
		"lost messages were sent":                     {cell(func(c *result.Cell) { c.Lost = 7 }), 1000, 1007 + 2e9/20_000},
		"by the tool's own minimum":                   {cell(func(c *result.Cell) { c.Own = &tool.Own{MinNs: 50_000} }), 1000, 1000 + 2e9/50_000},
		"few messages, on a busy machine":             {cell(func(c *result.Cell) { c.Own = &tool.Own{MinNs: 50_000} }), fewMessages - 1, fewMessages - 1 + 2e9/10_000},
		"as many as are enough":                       {cell(func(c *result.Cell) { c.Own = &tool.Own{MinNs: 50_000} }), fewMessages, fewMessages + 2e9/50_000},
		"no minimum, by the time":                     {cell(func(c *result.Cell) { c.Own = &tool.Own{} }), 1000, 3000},
		"a stream, by the time":                       {cell(func(c *result.Cell) { c.Stream = true }), 1000, 3000},
		"no time but the measured one":                {cell(func(c *result.Cell) { c.FinishedAt = began.Add(time.Second) }), 1000, 1000},
		"a rate, for the whole time":                  {cell(func(c *result.Cell) { c.RatePerSecond = 5000 }), 5000, 15_000},
		"sfnt-pingpong's warm-up":                     {cell(func(c *result.Cell) { c.Tool = string(v1alpha1.ToolSfntPingpong) }), 1000, 1000 + 2e9/20_000},
		"sfnt-pingpong's warm-up, of longer messages": {cell(func(c *result.Cell) { c.Tool, c.MessageSize = string(v1alpha1.ToolSfntPingpong), onePacket+1 }), 1000, 1000 + 2e9/20_000 + 50_000},
		"pinger tells what it sent without the warm-up": {cell(func(c *result.Cell) {
			c.Tool, c.Figures = string(v1alpha1.ToolPinger), []tool.Figure{{Name: "sent", Value: "1000"}}
		}), 1000, 1000 + 2e9/20_000},
		"sockperf tells": {cell(func(c *result.Cell) {
			c.Tool, c.Figures = string(v1alpha1.ToolSockperf), []tool.Figure{{Name: "sent", Value: "4000"}}
		}), 1000, 4000},
		"sockperf tells less than arrived": {cell(func(c *result.Cell) {
			c.Tool, c.Figures = string(v1alpha1.ToolSockperf), []tool.Figure{{Name: "sent", Value: "4"}}
		}), 1000, 1000},
	} {
		if got := mostSent(c.cell, c.n); got != c.want {
			t.Errorf("%s: %.0f, want %.0f", name, got, c.want)
		}
	}
}

// The payload of long messages and of streams is compared with what the ends can have sent, the warm-up included.
func TestRepeatedPayload(t *testing.T) {
	const size, stray = 10_000, strayBytes
	began := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	// The cell measured 1000 messages in a second of two, so that it may have sent 1000 more of 1 ms before.
	cell := func(of v1alpha1.Tool, change func(*result.Cell)) result.Cell {
		c := result.Cell{
			Cell: tool.Cell{Name: "cell", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: size}, Duration: time.Second},
			Tool: string(of), StartedAt: began, FinishedAt: began.Add(2 * time.Second),
		}
		c.Histogram.Count, c.Histogram.MinNs = 1000, int64(time.Millisecond)
		change(&c)
		return c
	}
	asIs := func(*result.Cell) {}
	stream := func(c *result.Cell) {
		c.Stream, c.Bandwidth = true, &tool.Bandwidth{Sent: 1000, BitsPerSecond: 8 * 1000 * size}
	}
	told := func(c *result.Cell) { c.Figures = []tool.Figure{{Name: tool.FigureSent, Value: "2000"}} }
	for name, c := range map[string]struct {
		cell result.Cell
		most int64 // the most bytes that it can have sent
	}{
		"long messages": {cell(v1alpha1.ToolNetperf, asIs), 2000 * size},
		"long messages, and the tool tells how many":      {cell(v1alpha1.ToolSockperf, told), 2000 * size},
		"a stream, by its time":                           {cell(v1alpha1.ToolNetperf, stream), 2000 * size},
		"a stream, and the tool tells how many messages":  {cell(v1alpha1.ToolSockperf, func(c *result.Cell) { stream(c); told(c) }), 2000 * size},
		"a stream of a tool that would tell, and did not": {cell(v1alpha1.ToolSockperf, stream), 2000 * size},
	} {
		for _, more := range []int64{0, 1} {
			e := endpoint{role: v1alpha1.RoleClient}
			e.own.Address, e.own.MTU = "192.0.2.1", 1500
			p := result.Path{Cell: "cell", Grown: map[string]int64{result.PathTCPOut: 1, result.PathTCPData: 1, result.PathIPOut: headers4 + c.most*3/2 + stray + more}}
			e.own.Paths = []result.Path{p}
			if got := e.repeated(c.cell, p); (got != "") != (more > 0) {
				t.Errorf("%s, with %d bytes more than can be: %q", name, more, got)
			}
		}
	}
}
