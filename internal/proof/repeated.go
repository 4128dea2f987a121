package proof

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	tools "github.com/tailgate-dev/tailgate/internal/tool/all"
)

const (
	mostRepeated       = 1.5    // times the need, by the kernel: a proxy adds a packet per message
	onePacket          = 500    // bytes in one segment; the smallest usual MSS is 536
	headers4, headers6 = 52, 72 // bytes of a segment's headers with timestamps
	// delayedACK is the kernel's shortest delay, immediateACKs the most without one at the start.
	delayedACK    = 40 * time.Millisecond
	immediateACKs = 32
	// fastestPath is a kernel path's shortest round trip. It bounds the warm-up of cells with less
	// than fewMessages, whose shortest may be many times as long on a busy machine.
	fastestPath = 10 * time.Microsecond
	fewMessages = 100
)

// mostSent returns the most messages that the ends can have sent in one direction, with n counted,
// without the warm-up: in a closed loop, what fits into the rest by the shortest round trip.
func mostSent(c result.Cell, n int64) float64 {
	if sent, ok := toldSent(c); ok {
		return float64(max(sent, n))
	}
	ran, most := c.FinishedAt.Sub(c.StartedAt), float64(n+c.Lost)
	of, shortest := tools.Limits(v1alpha1.Tool(c.Tool)), c.Histogram.MinNs
	if c.Own != nil {
		shortest = c.Own.MinNs
	}
	if n < fewMessages {
		shortest = min(shortest, int64(fastestPath))
	}
	switch rest := ran - c.Duration; {
	case c.OpenLoop():
		most = max(most, c.SentIn(ran)) + float64(of.Beside)
	case rest > 0 && shortest > 0 && !c.Stream:
		most += float64(rest) / float64(shortest)
		if c.MessageSize > onePacket {
			most += float64(of.BeforeLarge)
		}
	case rest > 0 && c.Duration > 0:
		most *= float64(ran) / float64(c.Duration)
	}
	return most
}

// toldSent returns how many messages a tool says that it sent in all. One that sleeps before, as
// sockperf, would exceed a short cell's bounds by mostSent.
func toldSent(c result.Cell) (int64, bool) {
	if !tools.Limits(v1alpha1.Tool(c.Tool)).TellsSent {
		return 0, false
	}
	for _, f := range c.Figures {
		if f.Name == tool.FigureSent {
			n, err := strconv.ParseInt(f.Value, 10, 64)
			return n, err == nil && n > 0
		}
	}
	return 0, false
}

// repeated describes how the kernel carried a cell's messages more than once here, if known: a
// mesh's proxy sends them on, with sockets in the same counters and packets over loopback.
func (e endpoint) repeated(c result.Cell, p result.Path) string {
	in, out := loads(c, e.role)
	if c.Stream && e.role == v1alpha1.RoleClient && c.Bandwidth != nil {
		out.messages = max(out.messages, c.Bandwidth.Sent)
		out.bytes = max(out.bytes, int64(c.Bandwidth.SentBitsPerSecond/8*c.Duration.Seconds()))
	}
	least := max(packets(c, in), packets(c, out))
	if local, ok := p.Grown[result.PathLocal]; ok && local > strayPackets+least/2 {
		return fmt.Sprintf("%d packets went over the loopback interface of the pod", local)
	}
	if c.Protocol == v1alpha1.ProtocolTCP {
		return e.repeatedTCP(c, p, in, out)
	}
	for _, d := range []struct {
		name, counter string
		load
	}{{"sent", result.PathUDPOut, out}, {"received", result.PathUDPIn, in}} {
		count, most := p.Grown[d.counter], mostSent(c, d.messages)
		if d.messages > 0 && float64(count) > mostRepeated*most+strayPackets {
			return fmt.Sprintf("the kernel %s %d datagrams for at most %.0f messages", d.name, count, most)
		}
	}
	return ""
}

// repeatedTCP is repeated for TCP. Sent counts lack retransmissions and acknowledgments; arrivals
// include them, and are compared with what the other end's kernel sent.
func (e endpoint) repeatedTCP(c result.Cell, p result.Path, in, out load) string {
	arrived, there := p.Grown[result.PathIPIn], pathOf(e.peer, c).Grown[result.PathIPOut]
	if there > in.bytes && float64(arrived) > mostRepeated*float64(there)+strayBytes {
		return fmt.Sprintf("the kernel received %d bytes, and the other end sent %d", arrived, there)
	}
	segments, data, what := p.Grown[result.PathTCPOut], p.Grown[result.PathTCPData], "segments with data"
	if !c.Stream && c.MessageSize <= onePacket {
		most := mostSent(c, out.messages)
		limit := mostRepeated*most + strayPackets
		if _, ok := p.Grown[result.PathTCPData]; !ok {
			ran := max(c.Duration, c.FinishedAt.Sub(c.StartedAt))
			limit, data, what = limit+min(most, immediateACKs+float64(ran/delayedACK)), segments, "segments"
		}
		if out.messages > 0 && float64(data) > limit {
			return fmt.Sprintf("the kernel sent %d %s for at most %.0f messages", data, what, most)
		}
		return ""
	}
	headers := int64(headers4)
	if own, err := netip.ParseAddr(e.own.Address); err == nil && own.Unmap().Is6() {
		headers = headers6
	}
	payload := p.Grown[result.PathIPOut] - segments*headers - p.Grown[result.PathTCPAgain]*int64(max(e.own.MTU, 1500))
	most := mostSent(c, out.messages) * float64(c.MessageSize)
	if _, told := toldSent(c); c.Stream && !told {
		most = mostSent(c, out.bytes)
	}
	if out.bytes > 0 && float64(payload) > mostRepeated*most+strayBytes {
		return fmt.Sprintf("the kernel sent %d bytes of payload for messages of at most %.0f bytes", payload, most)
	}
	return ""
}

// messagesOnce checks that no datagram of a tool without numbers arrived twice. After one that did,
// an answer is always waiting, and round trips look half as long, to the end and without an error.
func messagesOnce(e endpoint) finding {
	var worst finding
	for _, c := range e.cells {
		if c.Protocol == v1alpha1.ProtocolTCP || c.Stream || !tool.Unnumbered(v1alpha1.Tool(c.Tool)) {
			continue
		}
		if f := e.arrivedOnce(c); worst.state == "" || badness(f.state) > badness(worst.state) {
			worst = f
		}
	}
	return worst
}

// arrivedOnce compares what the kernel received with what it sent at the other end. Its counter of
// UDP lacks datagrams that no socket read, such as the last of shifted answers.
func (e endpoint) arrivedOnce(c result.Cell) finding {
	const expected = "each datagram arrives once"
	const advice = "measure with pinger, sockperf or sfnt-stream, whose messages have numbers, or over TCP; " +
		"bonds of mode broadcast, redundant paths and switches that flood deliver datagrams twice"
	grown := e.path(c).Grown
	delivered, known := grown[result.PathDelivered]
	arrived := delivered - grown[result.PathDeliveredOther]
	if c.Protocol == v1alpha1.ProtocolUDP {
		arrived -= grown[result.PathDeliveredAll]
	}
	sent, knownSent := pathOf(e.peer, c).Grown[result.PathUDPOut]
	in, _ := loads(c, e.role)
	if e.opaque() {
		in.messages = roundTrips(c)
	}
	switch why := c.Name + ": " + c.Tool + " is not known to number its messages, and "; {
	case e.network().Type == v1alpha1.NetworkHost:
		return unknown(expected, why+"the counters of the host's network are those of all its processes", advice)
	case !known || !knownSent:
		return unknown(expected, why+"the counters of the kernel could not be read", advice)
	case sent < in.messages:
		return unknown(expected, fmt.Sprintf("%sthe kernel sent only %d of %d at the other end: the others bypassed its counters", why, sent, in.messages), advice)
	case arrived > sent:
		return failed(expected, fmt.Sprintf("%s: %d datagrams arrived, and the other end sent %d", c.Name, arrived, sent), advice)
	case arrived < sent:
		return unknown(expected, fmt.Sprintf("%s%d of %d datagrams did not arrive: others may have arrived twice", why, sent-arrived, sent), advice)
	}
	return proved(expected, fmt.Sprintf("%s: %d datagrams arrived, as many as the other end sent", c.Name, arrived))
}
