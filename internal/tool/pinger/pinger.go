// Package pinger drives Tailgate's own tool, whose sources are in bench-image/pinger.
//
// What sets it apart from the others: every sample is counted, in a histogram of its own, so that its memory does not
// grow with time; at a rate each message counts from when it should have been sent, so that a stall of any part shows
// in all messages that it held up; a lost datagram is counted and the measurement goes on; the server knows its client
// by a token; one port is enough, for control and messages; and the result tells what interrupted either end, and when.
//
// Limits that show in the results:
//   - In a closed loop (no rate) a stall is one slow sample, as with all tools.
//   - Ends that sleep while they wait do not see how late they were woken for an answer, so of what interrupted them
//     only the time in send is reported, and at a rate how late the client was woken to send.
//   - It measures round trips, not bandwidth, and calls recv without a system call that waits for it.
package pinger

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	program = "tailgate-pinger"
	// tokenVariable hands over the token: arguments are stored with the result.
	tokenVariable = "TAILGATE_PINGER_TOKEN"

	// maxSize is that of a TCP message, maxDatagram the payload of the largest UDP datagram over IPv4.
	maxSize     = 65_536
	maxDatagram = 65_507

	// lossAfter is the tool's default for --loss-after: from then on a datagram counts as lost.
	lossAfter = time.Second
	// overrun is for how long after the last message was due the tool catches up with a rate, before it says that the
	// path does not carry so many.
	overrun = 10*time.Second + lossAfter
	// spare is what a client may take beyond its measuring time: up to 10 s until the server answers, up to 5 s until a
	// datagram comes back, half a second for scans and calibrations, the exchange of reports.
	spare = 25 * time.Second
	// grace is by how much the agent's deadline is later than the tool's own, which says where it was stuck.
	grace = 5 * time.Second

	// leastWindow and mostWindow bound the number of messages whose fate is open in the tool's memory, 8 bytes each: a
	// power of two of at least twice as many as are sent until one counts as lost.
	leastWindow, mostWindow = 1 << 10, 1 << 20
)

type driver struct{}

// New is the driver of the pinger.
func New() tool.Driver { return driver{} }

// Name of the tool.
func (driver) Name() v1alpha1.Tool { return v1alpha1.ToolPinger }

// Validate says which cells the tool refuses.
func (driver) Validate(c tool.Cell) error {
	if c.Stream {
		return errors.New("pinger measures no bandwidth; use netperf or sockperf for streams")
	}
	if c.Muxer != "" && c.Muxer != v1alpha1.MuxerNone {
		return fmt.Errorf("pinger calls recv directly, without %s; use muxer None, or sfnt-pingpong", c.Muxer)
	}
	most := int32(maxSize)
	switch c.Protocol {
	case v1alpha1.ProtocolTCP:
	case v1alpha1.ProtocolUDP, v1alpha1.ProtocolMulticast:
		most = maxDatagram
	default:
		return fmt.Errorf("pinger measures TCP, UDP and Multicast, not %q", c.Protocol)
	}
	if c.MessageSize < 1 || c.MessageSize > most {
		return fmt.Errorf("pinger measures %s messages of 1 to %d bytes, not of %d", c.Protocol, most, c.MessageSize)
	}
	if c.Duration < time.Millisecond || c.Warmup < 0 {
		return fmt.Errorf("pinger cannot measure for %s after %s", c.Duration, c.Warmup)
	}
	if c.RatePerSecond < 0 || (c.OpenLoop() && messages(c, c.Duration) < 1) {
		return fmt.Errorf("pinger sends no message within %s at %d a second; use a higher rate, or a longer duration",
			c.Duration, c.RatePerSecond)
	}
	// The number of a datagram has to fit into it, and it must be clear which of two is older.
	if c.Protocol != v1alpha1.ProtocolTCP && c.MessageSize < 8 &&
		messages(c, lossAfter) >= math.Ldexp(1, int(8*c.MessageSize-1)) {
		return fmt.Errorf("pinger cannot distinguish %s messages of %d bytes at %d a second; use at least 8 bytes, or a lower rate",
			c.Protocol, c.MessageSize, c.RatePerSecond)
	}
	if group := c.MulticastGroup; c.Protocol == v1alpha1.ProtocolMulticast && group != "" {
		if a, err := netip.ParseAddr(group); err != nil || !a.Is4() || !a.IsMulticast() {
			return fmt.Errorf("pinger sends to IPv4 multicast groups, such as 239.192.0.1, not to %q", group)
		}
	}
	return nil
}

// messages is how many are due in a time.
func messages(c tool.Cell, d time.Duration) float64 { return float64(c.RatePerSecond) * d.Seconds() }

// Server serves clients that know the token, until it is killed or has served for longer than a client may take.
func (d driver) Server(c tool.Cell, t tool.Target) tool.Command {
	return tool.Command{
		Path: program,
		Args: []string{
			"server", "--bind", t.Address, "--port", strconv.Itoa(t.Port), wait(c),
			"--deadline", seconds(d.Deadline(c) + time.Minute),
		},
		Env: environment(t),
	}
}

// Listens is always TCP: a server that is ready waits for control connections.
func (driver) Listens(tool.Cell) v1alpha1.Protocol { return v1alpha1.ProtocolTCP }

// Client measures one size at one rate. Its own address tells it by which interface to send to a group; the server
// hears it from there alone.
func (d driver) Client(c tool.Cell, t tool.Target) tool.Command {
	args := []string{
		"client", "--server", t.Address, "--port", strconv.Itoa(t.Port),
		"--protocol", strings.ToLower(string(c.Protocol)), "--sizes", strconv.Itoa(int(c.MessageSize)),
		"--rates", strconv.Itoa(int(c.RatePerSecond)),
		"--duration", nanoseconds(c.Duration), "--warmup", nanoseconds(c.Warmup), "--loss-after", nanoseconds(lossAfter),
		wait(c), "--deadline", seconds(d.Deadline(c) - grace),
	}
	if t.LocalAddress != "" {
		args = append(args, "--local", t.LocalAddress)
	}
	if c.MulticastGroup != "" {
		args = append(args, "--group", c.MulticastGroup)
	}
	return tool.Command{Path: program, Args: args, Env: environment(t)}
}

func wait(c tool.Cell) string {
	if c.Spins() {
		return "--spin"
	}
	return "--block"
}

func environment(t tool.Target) []string { return []string{tokenVariable + "=" + t.Token} }

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// nanoseconds is the one form of a duration that is never rounded.
func nanoseconds(d time.Duration) string { return strconv.FormatInt(int64(d), 10) + "ns" }

// Deadline allows for what the tool waits for besides measuring; it ends itself a little before.
func (driver) Deadline(c tool.Cell) time.Duration {
	if c.OpenLoop() {
		return c.Warmup + c.Duration + overrun + spare + grace
	}
	return c.Warmup + c.Duration + spare + grace
}

// Memory does not grow with time: histograms, the slowest samples and the course of the measurement take 3 MiB, the
// program and the result's text, which at most has all buckets of two histograms, less than 8 MiB. At a rate the
// messages under way come on top.
func (driver) Memory(c tool.Cell) int64 {
	window := int64(leastWindow)
	for float64(window) < 2*messages(c, lossAfter) && window < mostWindow {
		window *= 2
	}
	return 12<<20 + 8*window
}

// CPUs is one: a single thread sends and receives.
func (driver) CPUs(tool.Cell) int { return 1 }

// MostSamples is what the rate gives; how many a closed loop gives depends on how long they take.
func (driver) MostSamples(c tool.Cell) (int64, bool) {
	return int64(float64(c.RatePerSecond) * c.Duration.Seconds()), c.OpenLoop()
}
