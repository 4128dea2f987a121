// Package capture measures how long a server takes to answer, from packets captured on the server's own interface: for each
// request the time from its packet IN to the reply's packet OUT. The round trip that a client measures also contains the
// network and the client; this time contains the server's host alone.
//
//	wire -> NIC, driver, GRO -> [IN] -> IP, socket, wake-up, the tool, send, IP, qdisc -> [OUT] -> driver, NIC -> wire
//
// IN is when the kernel took the packet over from the driver (netif_receive_skb, or netif_rx for virtual interfaces, before
// it is queued for another CPU). OUT is when it hands the packet to the driver (dev_queue_xmit_nit, after the queueing
// discipline). Both are software timestamps by CLOCK_REALTIME of one machine. So they do not contain DMA, interrupt and
// driver, the time that a packet waits for GRO to join it with others, and the time that the NIC needs to send. Hardware
// timestamps would contain those, but a packet socket gets them for received packets only, by the NIC's clock: the
// difference to an OUT time would mix two clocks.
//
// How messages are found:
//   - The matcher looks at all TCP, or all UDP, between the two addresses except for the port on which the agents talk.
//     Some tools choose their ports themselves, so the capture cannot ask for a port.
//   - Such a tool also exchanges other data about the test. The connection (UDP: the pair of ports) that carries the
//     messages is the one on which most messages of exactly the cell's size were answered; unless it has at least ten times
//     as many as any other, there is no result.
//   - A UDP message is a datagram of that size, complete when its last fragment has arrived. A TCP message is as many bytes
//     of the stream, complete when they have arrived in order; the reply begins with its first byte. Both streams are
//     counted from their SYN, and again from each moment when everything that had arrived was answered, so that earlier
//     messages of another size (a tool's warm-up) do no harm. In a closed loop, the request must have been exactly one
//     message.
//   - A reply belongs to the oldest request whose first bytes (up to 8) it repeats: the number of the message, with pinger
//     and sockperf; with sfnt-pingpong and netperf all are alike. Older requests were never answered, because a server
//     answers in the order in which it receives. If no reply repeats its request, or a message began inside a packet beyond
//     the captured part, the order alone decides; Result.ByOrder counts these.
//
// Limits: an end that bypasses the kernel's network stack (Onload) shows no packets here. Tools that answer with another
// number of bytes, or answer only some of the messages (sfnt-stream, sockperf under-load without --reply-every 1), leave
// requests unanswered that the server was not meant to answer. UDP that the kernel joined (UDP_GRO, UDP_SEGMENT) is not
// taken apart. Packets that GRO or segmentation offload joined have one time for everything in them.
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
	// Server and Client are the addresses of the two ends, of one family, as the server sees them.
	Server, Client netip.Addr
	// Protocol is the protocol of the messages.
	Protocol v1alpha1.Protocol
	// ExceptPort is a port of the server that carries other traffic, such as the agents' own connection; 0: none.
	ExceptPort uint16
	// MessageSize is the size of each request and each reply, in bytes.
	MessageSize int
	// OpenLoop is true if a message may follow another before that one was answered.
	OpenLoop bool
	// Preamble is the number of bytes that the client sends on a TCP connection before its first message, and that are not
	// answered there; see PingerPreamble.
	Preamble int
	// Warmup is the time during which requests do not count, from the client's first byte on the connection (UDP: its first
	// datagram), of any size.
	Warmup time.Duration
}

// PingerPreamble is the Preamble of tailgate-pinger: "DATA ", 32 hexadecimal digits and a newline say to which test
// the connection belongs. The other tools have none.
const PingerPreamble = 38

// validate returns an error, in one line, if t is not valid.
func (t Traffic) validate() error {
	switch {
	case !t.Server.IsValid() || !t.Client.IsValid() || t.Server == t.Client || t.Server.Is4() != t.Client.Is4():
		return fmt.Errorf("capturing needs two different addresses of one family, not %s and %s", t.Server, t.Client)
	case t.Protocol != v1alpha1.ProtocolTCP && t.Protocol != v1alpha1.ProtocolUDP &&
		t.Protocol != v1alpha1.ProtocolMulticast:
		return fmt.Errorf("capturing supports TCP, UDP and Multicast, not %q", t.Protocol)
	case t.MessageSize < 1:
		return fmt.Errorf("capturing needs messages of at least 1 byte, not of %d", t.MessageSize)
	case t.Preamble < 0 || t.Warmup < 0:
		return fmt.Errorf("capturing supports no preamble of %d bytes and no warm-up of %s", t.Preamble, t.Warmup)
	}
	return nil
}

// Result counts everything that was captured. Requests = WarmUp + Matched + Unanswered.
type Result struct {
	// Packets is the number of packets of the traffic, Drops the number that the kernel dropped for lack of room.
	Packets, Drops int64
	// Truncated is the number of packets whose headers are longer than the part of a packet that is kept.
	Truncated int64
	// ClientPort and ServerPort are the ports of the connection that carried the messages. They are 0 for Multicast:
	// requests and replies go to different ports.
	ClientPort, ServerPort uint16
	// Requests is the number of messages that came IN.
	Requests int64
	// WarmUp is the number of requests in the warm-up, answered or not.
	WarmUp int64
	// Matched is the number of requests whose reply went OUT: the samples.
	Matched int64
	// Unanswered is the number of requests without a reply.
	Unanswered int64
	// Stray is the number of replies without a request.
	Stray int64
	// ByOrder is the number of replies that were matched by order alone, including the warm-up.
	ByOrder int64
	// Late is the number of packets whose time the kernel took only when it copied them, after any queue to another CPU:
	// all packets that arrive by TCP through a veth, which leaves the sender's departure time on them, and a few at the
	// beginning.
	Late int64
	// Backwards is the number of replies that seem older than their requests, because the clock was set. They are not
	// samples.
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
