// Package sfntpingpong drives sfnt-pingpong of AMD's cns-sfnettest. It is written for 1.5.0 (of the published
// tables), 1.6.0-rc2 (of the published image) and what came after.
//
// Limits of the tool that show in the results:
//   - Both ends must be the very same build.
//   - The client dictates everything to the server, its CPU included. Here the agents pin both ends, and the tool
//     is told to leave affinity alone.
//   - The server serves one client and ends. Whoever connects first to its control port is that client, so
//     nothing may probe it.
//   - Messages go over a second, ephemeral port: a NetworkPolicy must allow all ports between the two ends.
//   - After each thousand pings there is one that is not timed, with a message on the control connection.
//   - A lost datagram ends the measurement.
package sfntpingpong

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	program = "sfnt-pingpong"

	// maxSize is the tool's buffer. It takes larger messages and overruns the buffer.
	maxSize = 65_536
	// maxDatagram is the payload of the largest UDP datagram over IPv4.
	maxDatagram = 65_507

	// rawPrefix of the files with the samples.
	rawPrefix = "raw"

	// replyTimeout is how long either end waits for a message. It ends what would hang for ever after a lost
	// datagram. It also keeps results honest: nanoseconds overflow in 1.5.0 beyond 2.1 s and in later
	// versions beyond 3.7 s at 2.5 GHz, and are then printed as negative or as small numbers.
	replyTimeout = 2 * time.Second
	// batch is how many pings the tool sends between two looks at the clock.
	batch = 1_000
	// fastest is less than any round trip over a wire takes. The room for samples is made for it, so that
	// the time ends a measurement and not the number of samples.
	fastest = time.Microsecond
	// mostSamples is what the tool's int can count, with a margin for its own additions.
	mostSamples = 2_000_000_000
)

type driver struct{}

// New is the driver of sfnt-pingpong.
func New() tool.Driver { return driver{} }

// Name of the tool.
func (driver) Name() v1alpha1.Tool { return v1alpha1.ToolSfntPingpong }

// Validate says which sizes the tool measures wrongly, though it takes them.
func (driver) Validate(c tool.Cell) error {
	switch c.Protocol {
	case v1alpha1.ProtocolTCP:
		if c.MessageSize < 1 || c.MessageSize > maxSize {
			return fmt.Errorf("sfnt-pingpong measures TCP messages of 1 to %d bytes, not of %d", maxSize, c.MessageSize)
		}
	case v1alpha1.ProtocolUDP:
		if c.MessageSize < 0 || c.MessageSize > maxDatagram {
			return fmt.Errorf("sfnt-pingpong measures UDP messages of 0 to %d bytes, not of %d", maxDatagram, c.MessageSize)
		}
	default:
		return fmt.Errorf("sfnt-pingpong measures TCP and UDP, not %q", c.Protocol)
	}
	if c.Duration <= 0 || c.Warmup < 0 {
		return fmt.Errorf("sfnt-pingpong cannot measure for %s after %s", c.Duration, c.Warmup)
	}
	return nil
}

// Server listens for the control connection of one client, and gets everything else from it.
func (driver) Server(_ tool.Cell, t tool.Target) tool.Command {
	return tool.Command{Path: program, Args: []string{"--port=" + strconv.Itoa(t.Port)}, Env: environment()}
}

// Listens is always TCP: a server that is ready waits for the control connection.
func (driver) Listens(tool.Cell) v1alpha1.Protocol { return v1alpha1.ProtocolTCP }

// Client measures one size. The options are those that 1.5.0 knows too. Its successors' own warm-up of 10,000
// messages of one byte, at least 500 ms, comes before and is left as it is; the cell's warm-up is measured with
// the cell's own messages and cut off by Parse.
//
// The tool reserves 8 bytes for each sample there is room for (4 in 1.5.0) but touches only what it uses, and
// as much again to sort them: some 16 MB for a million samples.
func (driver) Client(c tool.Cell, t tool.Target) tool.Command {
	total := c.Warmup + c.Duration
	ms := strconv.FormatInt(int64((total+time.Millisecond-1)/time.Millisecond), 10)
	protocol := "tcp"
	if c.Protocol == v1alpha1.ProtocolUDP {
		protocol = "udp"
	}
	return tool.Command{
		Path: program,
		Args: []string{
			"--port=" + strconv.Itoa(t.Port),
			"--affinity=any;any",
			"--sizes=" + strconv.Itoa(int(c.MessageSize)),
			"--rtt",
			"--raw=" + filepath.Join(t.Scratch, rawPrefix),
			// The default minimum of a second would lengthen shorter measurements.
			"--minms=" + ms,
			"--maxms=" + ms,
			"--miniter=" + strconv.Itoa(batch),
			"--maxiter=" + strconv.FormatInt(min(int64(total/fastest)+batch, mostSamples), 10),
			// Not looked at by --spin without a muxer, which is therefore not used.
			"--timeout=" + strconv.Itoa(int(replyTimeout/time.Second)),
			protocol, t.Address,
		},
		Env: environment(),
	}
}

// environment keeps the tool from running date, uname, lspci and ethtool through a shell, each of which costs
// time on the measuring CPU. What they tell is in the evidence.
func environment() []string { return []string{"SFNT_AVOID_FORK=1"} }

// Deadline allows for 10 s of retries to connect, for a warm-up of 10,000 and a batch of 1,000 messages on a
// path of a millisecond, and for sorting and writing the samples, which takes less than a quarter of the time in
// which they were taken. Nothing of that is reached when all is well; what hangs has ended long before by the
// tool's own timeout.
func (driver) Deadline(c tool.Cell) time.Duration {
	total := c.Warmup + c.Duration
	return total + total/4 + 30*time.Second
}

// Memory is 16 bytes for each sample there is room for: the samples, and as much again to sort them.
func (driver) Memory(c tool.Cell) int64 {
	return 16 * min(int64((c.Warmup+c.Duration)/fastest)+batch, mostSamples)
}

// CPUs is one: a single thread sends and receives.
func (driver) CPUs(tool.Cell) int { return 1 }

// MostSamples is unknown: it is a closed loop.
func (driver) MostSamples(tool.Cell) (int64, bool) { return 0, false }
