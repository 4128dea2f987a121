// Package sockperf drives sockperf in its ping-pong mode. It is written for 3.7, as Debian has it.
//
// Limits of the tool that show in the results:
//   - IPv4 only.
//   - Two seconds pass between the client's start and its first message (a fixed sleep that no option changes),
//     and a tenth at its end. It measures whole seconds only.
//   - It never reports the first 400 ms and the last 50 ms of a run.
//   - Its exit code says nothing: 0 with a refused connection, 0 without any answer.
//   - It keeps 16 bytes for each message that a rate of 600,000 a second would take, and touches all of it: 9.6 MB
//     for each second; on top come 24 bytes for each message that was answered. Round trips of less than 1.7 µs
//     would not fit.
//   - A lost datagram ends the measurement: it waits for the answer until the time is over.
package sockperf

import (
	"fmt"
	"path/filepath"
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

	// logName of the file with the samples.
	logName = "log.csv"

	// head and tail of a run are not in its log.
	head = 400 * time.Millisecond
	tail = 50 * time.Millisecond
	// spare makes a run longer than what is wanted of it, so that the log goes on beyond the measuring time
	// even with a stall at the end: a TCP retransmission takes 200 ms.
	spare = 300 * time.Millisecond
)

type driver struct{}

// New is the driver of sockperf.
func New() tool.Driver { return driver{} }

// Name of the tool.
func (driver) Name() v1alpha1.Tool { return v1alpha1.ToolSockperf }

// Validate says which sizes the tool does not take.
func (driver) Validate(c tool.Cell) error {
	if c.Protocol != v1alpha1.ProtocolTCP && c.Protocol != v1alpha1.ProtocolUDP {
		return fmt.Errorf("sockperf measures TCP and UDP, not %q", c.Protocol)
	}
	if c.MessageSize < minSize || c.MessageSize > maxSize {
		return fmt.Errorf("sockperf measures messages of %d to %d bytes, not of %d", minSize, maxSize, c.MessageSize)
	}
	if c.Duration <= 0 || c.Warmup < 0 {
		return fmt.Errorf("sockperf cannot measure for %s after %s", c.Duration, c.Warmup)
	}
	return nil
}

// Server serves one protocol until it is killed.
func (driver) Server(c tool.Cell, t tool.Target) tool.Command {
	return tool.Command{Path: program, Args: withProtocol(c, "server", "-i", t.Address, "-p", strconv.Itoa(t.Port))}
}

// Listens is the protocol of the messages: there is no other connection.
func (driver) Listens(c tool.Cell) v1alpha1.Protocol { return c.Protocol }

// Client measures one size. Of the options that are not used:
//   - --no-rdtsc is broken in 3.7: the lengths of head and tail are converted with the TSC's rate before the option
//     is looked at, so that both become as many times longer as the TSC has GHz. (What it would cure is a
//     calibration of the TSC over 100 ms, good to some 10 ppm on a quiet CPU.)
//   - --dontwarmup and --pre-warmup-wait are about multicast and a sleep on top of the fixed one.
//   - --timeout is for select, poll and epoll, and ends nothing: the tool calls them again.
//   - --mps would pace the messages.
func (driver) Client(c tool.Cell, t tool.Target) tool.Command {
	return tool.Command{Path: program, Args: withProtocol(c, "ping-pong", "-i", t.Address, "-p", strconv.Itoa(t.Port),
		"-m", strconv.Itoa(int(c.MessageSize)), "-t", strconv.FormatInt(int64(runTime(c)/time.Second), 10),
		"--full-rtt", "--full-log", filepath.Join(t.Scratch, logName))}
}

func withProtocol(c tool.Cell, args ...string) []string {
	if c.Protocol == v1alpha1.ProtocolTCP {
		args = append(args, "--tcp")
	}
	return args
}

// runTime is the whole seconds for which the tool has to run. The head serves as warm-up.
func runTime(c tool.Cell) time.Duration {
	need := max(c.Warmup, head) + c.Duration + tail + spare
	return (need + time.Second - 1).Truncate(time.Second)
}

// Deadline allows for the sleep at the start and for sorting and writing the log, which takes less than the
// time in which it was taken. A run whose answers stay away ends by its own timer; only a connection that
// nobody refuses or answers has to be cut off here.
func (driver) Deadline(c tool.Cell) time.Duration { return 2*runTime(c) + 15*time.Second }

// Memory is what the tool reserves and touches for each second, one more than it runs, and what it keeps of each
// message that is answered, at the highest rate for which it reserves.
func (driver) Memory(c tool.Cell) int64 {
	const (
		rate     = 600_000
		reserved = 16
		answered = 24
	)
	seconds := int64(runTime(c) / time.Second)
	return rate * (reserved*(seconds+1) + answered*seconds)
}

// CPUs is one: a single thread sends and receives.
func (driver) CPUs(tool.Cell) int { return 1 }

// MostSamples is what the rate gives; how many a closed loop gives depends on how long they take.
func (driver) MostSamples(c tool.Cell) (int64, bool) {
	return int64(float64(c.RatePerSecond) * c.Duration.Seconds()), c.OpenLoop()
}
