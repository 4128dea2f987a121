// Package capture measures what a server takes to answer, from packets captured on the server's own interface: for
// each request the time from its packet IN to the reply's packet OUT. Where the round trip that a client measures
// holds the network and the client as well, this holds the server's host alone.
//
//	wire -> NIC, driver, GRO -> [IN] -> IP, socket, wake-up, the tool, send, IP, qdisc -> [OUT] -> driver, NIC -> wire
//
// IN is when the kernel took the packet over from the driver (netif_receive_skb, or netif_rx for virtual interfaces,
// before it is queued for another CPU). OUT is when it hands the packet to the driver (dev_queue_xmit_nit, after the
// queueing discipline). Both are software timestamps by CLOCK_REALTIME of one machine. So they do not contain DMA,
// interrupt and driver, what a packet waits for GRO to join it with others, and what the NIC needs to send. Hardware
// timestamps would contain those, but a packet socket gets them for received packets only, by the NIC's clock: the
// difference to a time of OUT would be that of two clocks.
//
// How messages are found:
//   - What is looked at is all TCP, or all UDP, between the two addresses but for the port on which the agents talk.
//     Some tools choose their ports themselves, so no port can be asked for.
//   - Such a tool also talks about the test, next to the messages. The connection (UDP: the pair of ports) that
//     carries the messages is the one on which most messages of exactly the cell's size were answered; unless it had
//     ten times as many as any other there is no result.
//   - A UDP message is a datagram of that size, whole when its last fragment came. A TCP message is as many bytes of
//     the stream, whole when they came in order; the reply begins with its first byte. Both streams are counted from
//     their SYN, and again from each moment when all that came was answered, so that messages of another size before
//     (a tool's warm-up) do no harm. In a closed loop what was requested must have been one message exactly.
//   - A reply belongs to the oldest request whose first bytes (up to 8) it repeats: the number of the message, with
//     pinger and sockperf; with sfnt-pingpong and netperf all are alike. Requests before that one were never answered,
//     as a server answers in the order in which it hears. Where no reply repeats its request, or a message began
//     inside a packet beyond what was kept of it, the order alone decides; Result.ByOrder counts these.
//
// Limits: an end that bypasses the kernel's network stack (Onload) shows no packets here. Tools that answer with
// another number of bytes, or only some of the messages (sfnt-stream, sockperf under-load without --reply-every 1),
// leave requests unanswered that the server was not meant to answer. UDP that the kernel joined (UDP_GRO, UDP_SEGMENT) is not taken
// apart. Packets that GRO or segmentation offload joined have one time for all that is in them.
package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Traffic says which packets belong to a cell and how its messages lie in them.
type Traffic struct {
	// Server and Client are the addresses of the two ends, of one family, as the server sees them.
	Server, Client netip.Addr
	// Protocol of the messages.
	Protocol v1alpha1.Protocol
	// ExceptPort is a port of the server that carries something else, such as the agents' own connection; 0: none.
	ExceptPort uint16
	// MessageSize is that of each request and each reply, in bytes.
	MessageSize int
	// OpenLoop is true when a message may follow another before that was answered.
	OpenLoop bool
	// Preamble is the number of bytes that the client sends on a TCP connection before its first message, and which
	// are not answered there; see PingerPreamble.
	Preamble int
	// Warmup is the time within which requests do not count, from the client's first byte on the connection (UDP: its
	// first datagram), of whatever size.
	Warmup time.Duration
}

// PingerPreamble is the Preamble of tailgate-pinger: "DATA ", 32 hexadecimal digits and a newline say to which test
// the connection belongs. The other tools have none.
const PingerPreamble = 38

// validate says in one line what is wrong with t.
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

// Result is what became of everything that was captured. Requests = WarmUp + Matched + Unanswered.
type Result struct {
	// Packets is the number of packets that the kernel handed over, Drops of those that it could not for lack of room.
	Packets int64 `json:"packets"`
	Drops   int64 `json:"drops"`
	// Truncated is the number of packets whose headers are longer than what is kept of a packet.
	Truncated int64 `json:"truncated"`
	// ClientPort and ServerPort are those of the connection that carried the messages. Multicast has 0: requests and
	// replies go to ports of their own.
	ClientPort uint16 `json:"clientPort"`
	ServerPort uint16 `json:"serverPort"`
	// Requests is the number of messages that came IN.
	Requests int64 `json:"requests"`
	// WarmUp are the requests of the warm-up, answered or not.
	WarmUp int64 `json:"warmUp"`
	// Matched are the requests whose reply went OUT: the samples.
	Matched int64 `json:"matched"`
	// Unanswered are those without a reply.
	Unanswered int64 `json:"unanswered"`
	// Stray are replies without a request.
	Stray int64 `json:"stray"`
	// ByOrder is how many replies found their request by order alone, in the warm-up as well.
	ByOrder int64 `json:"byOrder"`
	// Late is the number of packets whose time the kernel took only when it copied them, behind the queue to another
	// CPU if there is one: all that come by TCP through a veth, which leaves the sender's departure time on them, and
	// a few at the beginning.
	Late int64 `json:"late"`
	// Backwards is the number of replies that seem older than their requests: the clock was set. They are no samples.
	Backwards int64 `json:"backwards"`
}

// err says why the samples are not the whole truth, or nil.
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
