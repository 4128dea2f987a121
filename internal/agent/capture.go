package agent

import (
	"net"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/capture"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

type capturing struct {
	cell     string
	running  *capture.Capture
	recorder *result.Recorder
}

func (e *endpoint) beginCapture(cell tool.Cell, connection net.Conn) (*capturing, error) {
	if !e.Task.Capture || cell.Stream {
		return nil, nil
	}
	server, client := connection.LocalAddr().(*net.TCPAddr).AddrPort(), connection.RemoteAddr().(*net.TCPAddr).AddrPort()
	traffic := capture.Traffic{
		Server: server.Addr(), Client: client.Addr(), Protocol: cell.Protocol, ExceptPort: plan.ControlPort,
		MessageSize: int(cell.MessageSize), OpenLoop: cell.OpenLoop(), Warmup: cell.Warmup,
	}
	if cell.Protocol == v1alpha1.ProtocolTCP {
		traffic.Preamble = e.driver.Limits().Preamble
	}
	c := &capturing{cell: cell.Name, recorder: result.NewRecorder()}
	var err error
	if c.running, err = capture.Open(e.iface.Name, traffic, c.recorder.Record); err != nil {
		return nil, tool.Fail(v1alpha1.OutcomeAgentFailed, "%v", err)
	}
	return c, nil
}

// end ends the capture. Samples of an incomplete one do not count.
func (c *capturing) end() (result.Captured, error) {
	r, incomplete := c.running.Stop()
	captured := result.Captured{
		Cell: c.cell, Packets: r.Packets, Drops: r.Drops, Requests: r.Requests - r.WarmUp, Matched: r.Matched,
		Unanswered: r.Unanswered, Stray: r.Stray, ByOrder: r.ByOrder, Late: r.Late,
	}
	if incomplete != nil {
		captured.Incomplete = incomplete.Error()
		c.recorder = result.NewRecorder()
	}
	var err error
	captured.Histogram, err = c.recorder.Histogram()
	return captured, err
}
