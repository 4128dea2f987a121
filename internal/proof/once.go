package proof

import (
	"fmt"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

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

// arrivedOnce compares what the kernel received here with what it sent at the other end. Its counter
// of UDP lacks datagrams that no socket read, such as the last of shifted answers.
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
	switch why := c.Name + ": " + c.Tool + " does not number its messages, and "; {
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
