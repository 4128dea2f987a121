// Package capture measures how long a server takes to answer, from packets captured on the server's own interface: for each request the
// time from its packet IN to the reply's packet OUT.
//
//	wire -> NIC, driver, GRO -> [IN] -> IP, socket, wake-up, the tool, send, IP, qdisc -> [OUT] -> driver, NIC -> wire
//
// IN is when the kernel took the packet over from the driver (netif_receive_skb, or netif_rx for virtual interfaces, before it is queued
// for another CPU). OUT is when it hands the packet to the driver (dev_queue_xmit_nit, after the queueing discipline). Both are software
// timestamps by CLOCK_REALTIME of one machine: they do not contain DMA, interrupt and driver, the time that a packet waits for GRO, and
// the time that the NIC needs to send. A packet socket gets hardware timestamps for received packets only, by the NIC's clock: the
// difference to an OUT time would mix two clocks.
//
// How messages are found:
//   - The matcher looks at all TCP, or all UDP, between the two addresses except for the port on which the agents talk, because some
//     tools choose their ports themselves.
//   - Such a tool also exchanges other data about the test. The connection (UDP: the pair of ports) that carries the messages is the one
//     on which most messages of exactly the cell's size were answered; unless it has at least ten times as many as any other, there is
//     no result.
//   - A UDP message is a datagram of that size, complete when its last fragment has arrived. A TCP message is as many bytes of the stream,
//     complete when they have arrived in order; the reply begins with its first byte. Both streams are counted from their SYN, and again
//     from each moment when everything that had arrived was answered, so that earlier messages of another size (a tool's warm-up) do no
//     harm. In a closed loop, the request must have been exactly one message.
//   - A reply belongs to the oldest request whose first bytes (up to 8) it repeats: the number of the message, with pinger and sockperf;
//     with sfnt-pingpong and netperf all are alike. Older requests were never answered, because a server answers in order. If no reply
//     repeats its request, or a message began inside a packet beyond the captured part, the order alone decides (Result.ByOrder).
//
// Limits: an end that bypasses the kernel (Onload) shows no packets here. Tools that answer with another number of bytes, or answer only
// some of the messages (sfnt-stream, sockperf under-load without --reply-every 1), leave requests unanswered. UDP that the kernel joined
// (UDP_GRO, UDP_SEGMENT) is not taken apart. Packets that GRO or segmentation offload joined have one time for everything in them.
package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Traffic describes which packets belong to a cell and how they carry its messages.
type Traffic struct {
	// Server and Client are two different addresses of one family, as the server sees them.
	Server, Client netip.Addr
	Protocol       v1alpha1.Protocol
	// ExceptPort is a port of the server that carries other traffic, such as the agents' own connection.
	ExceptPort uint16
	// MessageSize is the size of each request and each reply, in bytes.
	MessageSize int
	// OpenLoop is true if a message may follow another before that one was answered.
	OpenLoop bool
	// Preamble is the number of bytes on a TCP connection before the client's first message, which are not answered.
	Preamble int
	// Warmup is the time during which requests do not count, from the client's first byte on the connection, of any size.
	Warmup time.Duration
}

// PingerPreamble is the Preamble of tailgate-pinger: "DATA ", 32 hexadecimal digits and a newline name the test.
const PingerPreamble = 38

// Result counts everything that was captured. Requests = WarmUp + Matched + Unanswered.
type Result struct {
	// Packets is the number of packets of the traffic, Drops the number that the kernel dropped for lack of room.
	Packets, Drops int64
	// Truncated is the number of packets whose headers are longer than the part of a packet that is kept.
	Truncated int64
	// ClientPort and ServerPort are the ports of the connection that carried the messages; 0 for Multicast, which has none in common.
	ClientPort, ServerPort uint16
	// Requests is the number of messages that came IN, and WarmUp that of those in the warm-up, answered or not.
	Requests int64
	WarmUp   int64
	// Matched is the number of requests whose reply went OUT: the samples.
	Matched    int64
	Unanswered int64
	Stray      int64
	// ByOrder is the number of replies that were matched by order alone, including the warm-up.
	ByOrder int64
	// Late is the number of packets whose time the kernel took only when it copied them: all that arrive by TCP through a veth, which
	// leaves the sender's departure time on them, and a few at the beginning.
	Late int64
	// Backwards is the number of replies that seem older than their requests, because the clock was set, and are no samples.
	Backwards int64
}

// err returns the reason why the samples are incomplete or wrong, or nil.
func (r Result) err() error {
	switch {
	case r.Drops > 0:
		return fmt.Errorf("the kernel dropped %d of %d captured packets, so the latencies are not complete: "+
			"the agent's CPU did not keep up; give the endpoint another CPU, or lower the rate", r.Drops, r.Packets+r.Drops)
	case r.Truncated > 0:
		return fmt.Errorf("%d captured packets have more headers than the capture keeps (%d bytes)", r.Truncated, snapLength)
	case r.Backwards > 0:
		return fmt.Errorf("%d replies seem to be older than their requests: the server's clock was set meanwhile; "+
			"measure again", r.Backwards)
	case r.Packets == 0:
		return errors.New("no packet was captured: is the traffic accelerated past the kernel (Onload), " +
			"or on another interface?")
	case r.Matched == 0:
		return fmt.Errorf("none of %d captured packets is a reply to a message after the warm-up", r.Packets)
	}
	return nil
}
