// Package sockperf drives sockperf: ping-pong, under-load (messages at a rate) and throughput (a stream). It is
// written for 3.7, as Debian has it.
//
// Limits of the tool that show in the results:
//   - IPv4 only.
//   - Two seconds pass between the client's start and its first message (a fixed sleep that no option changes),
//     and a tenth at its end. It measures whole seconds only.
//   - It never reports the first 400 ms and the last 50 ms of a run with answers.
//   - Its exit code says nothing: 0 with a refused connection, 0 without any answer.
//   - It keeps 16 bytes for each message that its rate would take, and touches all of it; on top come 24 bytes for
//     each message that was answered. Ping-pong reserves for 600,000 a second, 9.6 MB for each second: round trips of
//     less than 1.7 µs would not fit.
//   - Muxers are chosen only in a file of addresses, which must be a regular one; arguments alone cannot make it.
//
// Ping-pong: a lost datagram ends the measurement, as the client waits for the answer until its time ends.
//
// Under-load:
//   - One thread of the client sends, another receives, each on a CPU of its own. The sender polls the clock between
//     two messages, whatever Cell.Wait says: that is for the receiver and the server.
//   - Every message is answered and timed. The schedule is absolute and never reset, but a round trip counts from
//     when its message was really sent (tool.StartActual): what a held-up sender sends late looks no slower. When a
//     message should have been sent cannot be seen in the log. Its rows have no sequence numbers, so behind a lost
//     message it is unknown which is which; it does not say when the schedule began; and the interval is a whole
//     number of ticks of a clock whose rate is not reported, so that even a guess from the rows drifts by up to a tick a
//     message.
//   - Messages without an answer are counted, not located: Measurement.Lost is of the whole log, which begins 400 ms
//     into the run and goes on for some tenths of a second beyond the measuring time. So it is rather too high.
//   - Answers that come out of order are left out of the log. Their number is a warning.
//   - The interval is a whole number of nanoseconds, rounded down: 23,000 a second become 23,000.1, 7 million 7.04.
//
// Throughput:
//   - There is no warm-up: the tool counts from its first message on.
//   - It reports what the sender handed to its socket, be there a receiver or not. What arrived is reported by the server
//     alone, when it is interrupted (Command.Interrupt, Output.Server), and includes what was under way at the end.
package sockperf

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	program = "sockperf"

	// minSize is the tool's own header in each message, maxSize the largest that its server takes.
	minSize = 14
	maxSize = 65_507
	// fastest is the rate for which ping-pong reserves memory, maxRate the highest of under-load.
	fastest = 600_000
	maxRate = 10_000_000

	// logName of the file with the samples.
	logName = "log.csv"

	// head and tail of a run are not in its log.
	head = 400 * time.Millisecond
	tail = 50 * time.Millisecond
	// spare makes a run longer than what is wanted of it, so that the log goes on beyond the measuring time
	// even with a stall at the end: a TCP retransmission takes 200 ms.
	spare = 300 * time.Millisecond
	// spareMessages are by how many messages a run at a rate is longer on top: one of them is answered unless
	// answers stay away altogether.
	spareMessages = 3
)

var protocols = []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP, v1alpha1.ProtocolMulticast}

type driver struct{}

// New is the driver of sockperf.
func New() tool.Driver { return driver{} }

// Name of the tool.
func (driver) Name() v1alpha1.Tool { return v1alpha1.ToolSockperf }

// Validate says what the tool cannot do.
func (driver) Validate(c tool.Cell) error {
	switch {
	case !slices.Contains(protocols, c.Protocol):
		return fmt.Errorf("sockperf measures TCP, UDP and Multicast, not %q", c.Protocol)
	case c.Stream && c.Protocol == v1alpha1.ProtocolMulticast:
		return errors.New("sockperf streams TCP and UDP, not Multicast")
	case c.Stream && c.OpenLoop():
		return fmt.Errorf("sockperf streams as fast as it can, not %d messages a second", c.RatePerSecond)
	case c.RatePerSecond < 0 || c.RatePerSecond > maxRate:
		return fmt.Errorf("sockperf sends 1 to %d messages a second, not %d", maxRate, c.RatePerSecond)
	case c.MessageSize < minSize || c.MessageSize > maxSize:
		return fmt.Errorf("sockperf measures messages of %d to %d bytes, not of %d", minSize, maxSize, c.MessageSize)
	case c.Wait != "" && c.Wait != v1alpha1.WaitBlock && c.Wait != v1alpha1.WaitSpin:
		return fmt.Errorf("sockperf waits with Block or Spin, not with %q", c.Wait)
	case c.Muxer != "" && c.Muxer != v1alpha1.MuxerNone:
		return fmt.Errorf("sockperf waits in recv only here, not in %s; use sfnt-pingpong or sfnt-stream for muxers", c.Muxer)
	case c.Duration <= 0 || c.Warmup < 0:
		return fmt.Errorf("sockperf cannot measure for %s after %s", c.Duration, c.Warmup)
	}
	if c.Protocol == v1alpha1.ProtocolMulticast && c.MulticastGroup != "" {
		if group, err := netip.ParseAddr(c.MulticastGroup); err != nil || !group.Is4() || !group.IsMulticast() {
			return fmt.Errorf("sockperf needs an IPv4 multicast group, such as 239.192.0.1, not %q", c.MulticastGroup)
		}
	}
	return nil
}

// IPv4Only tells that sockperf 3.7 has no option for IPv6.
func (driver) IPv4Only() {}

// RawFiles is for the log of all round trips.
func (driver) RawFiles() {}

// Server serves one protocol until it is killed or interrupted. By itself it could not listen again for a minute where
// a server was killed with a connection.
func (driver) Server(c tool.Cell, t tool.Target) tool.Command {
	args := append([]string{"server"}, path(c, t, t.Address)...)
	if c.Protocol == v1alpha1.ProtocolTCP {
		args = append(args, "--uc-reuseaddr")
	}
	return tool.Command{Path: program, Args: args, Interrupt: c.Stream}
}

// Listens is the protocol of the messages: there is no other connection.
func (driver) Listens(c tool.Cell) v1alpha1.Protocol {
	if c.Protocol == v1alpha1.ProtocolTCP {
		return v1alpha1.ProtocolTCP
	}
	return v1alpha1.ProtocolUDP
}

// Client measures one cell. Of the options that are not used:
//   - --no-rdtsc is broken in 3.7: the lengths of head and tail are converted with the TSC's rate before the option
//     is looked at, so that both become as many times longer as the TSC has GHz. (What it would cure is a
//     calibration of the TSC over 100 ms, good to some 10 ppm on a quiet CPU.)
//   - --dontwarmup and --pre-warmup-wait are about multicast and a sleep on top of the fixed one.
//   - --timeout is for select, poll and epoll, and ends nothing: the tool calls them again.
func (driver) Client(c tool.Cell, t tool.Target) tool.Command {
	mode := "ping-pong"
	var more []string
	switch {
	case c.Stream:
		mode = "throughput"
	case c.OpenLoop():
		mode = "under-load"
		more = []string{"--mps", strconv.Itoa(int(c.RatePerSecond)), "--reply-every", "1"}
		if len(t.CPUs) > 1 {
			more = append(more, "--sender-affinity", strconv.Itoa(t.CPUs[0]), "--receiver-affinity", strconv.Itoa(t.CPUs[1]))
		}
	}
	if !c.Stream {
		more = append(more, "--full-rtt", "--full-log", filepath.Join(t.Scratch, logName))
	}
	args := append([]string{mode}, clientPath(c, t)...)
	args = append(args, "-m", strconv.Itoa(int(c.MessageSize)), "-t", strconv.FormatInt(int64(runTime(c)/time.Second), 10))
	return tool.Command{Path: program, Args: append(args, more...)}
}

// clientPath is path of the client, which sends from its own address. The socket of a group is bound to that.
func clientPath(c tool.Cell, t tool.Target) []string {
	options := path(c, t, t.LocalAddress)
	if c.Protocol != v1alpha1.ProtocolMulticast && t.LocalAddress != "" {
		options = append(options, "--client_ip", t.LocalAddress)
	}
	return options
}

// path are the options that say how messages get from one end to the other, and how this end waits for them; own is
// its address on the measured network.
func path(c tool.Cell, t tool.Target, own string) []string {
	address := t.Address
	var more []string
	switch c.Protocol {
	case v1alpha1.ProtocolTCP:
		more = []string{"--tcp"}
	case v1alpha1.ProtocolMulticast:
		address = group(c, t)
		more = []string{"--mc-rx-if", own, "--mc-tx-if", own}
	}
	if c.Spins() {
		more = append(more, "--nonblocked")
	}
	return append([]string{"-i", address, "-p", strconv.Itoa(t.Port)}, more...)
}

// group is the cell's, or one of 65,536 that both ends of a run choose by its token: other runs in the same network
// would be heard, and a client that is answered by two servers gives up.
func group(c tool.Cell, t tool.Target) string {
	if c.MulticastGroup != "" {
		return c.MulticastGroup
	}
	sum := crc32.ChecksumIEEE([]byte(t.Token))
	return netip.AddrFrom4([4]byte{239, 192, byte(sum >> 8), byte(sum)}).String()
}

// runTime is the whole seconds for which the tool has to run. The head serves as warm-up.
func runTime(c tool.Cell) time.Duration {
	need := max(c.Warmup, head) + c.Duration + tail + spare
	switch {
	case c.Stream:
		need = c.Duration
	case c.OpenLoop():
		need += spareMessages * time.Second / time.Duration(c.RatePerSecond)
	}
	return (need + time.Second - 1).Truncate(time.Second)
}

// messages is how many messages the tool has to expect in a second.
func messages(c tool.Cell) int64 {
	if c.OpenLoop() {
		return int64(c.RatePerSecond)
	}
	return fastest
}

// Deadline allows for the sleep at the start and for sorting and writing the log: as long as the run took, or 4 µs
// for each message where it sends so many that this is more. A run whose answers stay away ends by its own timer.
// What has to be cut off here is a connection that the other end neither refuses nor answers, and a stream whose sender is stuck in
// the middle of a message.
func (driver) Deadline(c tool.Cell) time.Duration {
	const starting, writing = 15 * time.Second, 4 * time.Microsecond
	run := runTime(c)
	if !c.OpenLoop() {
		return 2*run + starting
	}
	return run + max(run, time.Duration(messages(c)*int64(run/time.Second))*writing) + starting
}

// Memory is what the tool reserves and touches for each second, one more than it runs, and what it keeps of each
// message that is answered.
func (driver) Memory(c tool.Cell) int64 {
	const (
		itself   = 8 << 20
		reserved = 16
		answered = 24
	)
	if c.Stream {
		return itself
	}
	seconds := int64(runTime(c) / time.Second)
	return itself + messages(c)*(reserved*(seconds+1)+answered*seconds)
}

// MostSamples is how many messages are due in the measuring time, of a cell that sends at a rate.
func (driver) MostSamples(c tool.Cell) (int64, bool) {
	switch {
	case c.Stream:
		return 0, true
	case c.OpenLoop():
		return int64(float64(c.RatePerSecond) * c.Duration.Seconds()), true
	}
	return 0, false
}

// CPUs is one, as a single thread sends and receives, but for under-load, where there are two.
func (driver) CPUs(c tool.Cell) int {
	if c.OpenLoop() {
		return 2
	}
	return 1
}
