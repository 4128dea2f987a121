// Package capture measures a server's times to answer from packets on its interface, IN to OUT.
// docs/internals/capture.md says what these times contain, and how messages are found.
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
	// Server and Client are different addresses of one family, as the server sees them.
	Server, Client netip.Addr
	Protocol       v1alpha1.Protocol
	// ExceptPort is a server's port with other traffic, such as the agents' connection.
	ExceptPort  uint16
	MessageSize int
	// OpenLoop is true if a message may follow another before that one was answered.
	OpenLoop bool
	// Preamble is the number of bytes before the first TCP message, without an answer.
	Preamble int
	// Warmup is the time without counting, from the client's first byte on.
	Warmup time.Duration
}

// Result counts everything that was captured. Requests = WarmUp + Matched + Unanswered.
type Result struct {
	Packets, Drops int64
	// Truncated counts packets whose headers exceed the part that is kept.
	Truncated int64
	// ClientPort and ServerPort are those of the measured connection; 0 for Multicast.
	ClientPort, ServerPort uint16
	// Requests counts messages that came IN, WarmUp those in the warm-up, answered or not.
	Requests   int64
	WarmUp     int64
	Matched    int64
	Unanswered int64
	Stray      int64
	// ByOrder is the number of replies that were matched by order alone, including the warm-up.
	ByOrder int64
	// Late counts packets whose time was taken when they were copied: all by TCP through a veth,
	// which keeps the sender's departure time, and a few at the beginning.
	Late int64
	// Backwards counts replies older than their requests, as the clock was set: no samples.
	Backwards int64
}

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
