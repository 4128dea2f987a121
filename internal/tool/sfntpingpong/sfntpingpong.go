// Package sfntpingpong drives sfnt-pingpong of AMD's cns-sfnettest: 1.5.0 (used for the published
// tables), 1.6.0-rc2 (in the published image) and later versions.
//
// docs/internals/tools.md has the limits of the tool that show in its results.
package sfntpingpong

import (
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfnt"
)

const (
	// maxSize is the tool's buffer. It accepts larger messages, and overruns.
	maxSize = 65_536

	rawPrefix = "raw"

	// replyTimeout is how long either end waits, unless it spins without a muxer. It also prevents
	// an overflow of ns (1.5.0: 2.1 s, later 3.7 s at 2.5 GHz), printed as small or negative.
	replyTimeout = 2 * time.Second
	// ownWarmup messages precede measuring (since 1.6.0); batch are between two readings of the
	// clock. slowest is the longest mean round trip with which these end before the deadline. setup
	// is what else may wait: 10 s of retries to connect, 2 s after joining a group.
	ownWarmup = 10_000
	batch     = 1_000
	slowest   = 10 * time.Millisecond
	setup     = 12 * time.Second
	// fastest is below any wire's round trip: time ends it, not room for samples.
	fastest = time.Microsecond
	// mostSamples is the most that the tool's int can count, with a margin for its own additions.
	mostSamples = 2_000_000_000
	// warmPings bounds the one-byte messages of its warm-up, which takes 500 ms.
	warmPings = 50_000
)

// Name is the tool's.
const Name = v1alpha1.ToolSfntPingpong

type driver struct{ sfnt.Driver }

// New returns the driver. The tool accepts other sizes, but measures them wrongly.
func New() tool.Driver {
	datagrams := [2]int32{0, tool.MaxDatagram}
	return driver{sfnt.Driver{Base: tool.Base{
		Tool: Name, Polls: true, Muxers: true, RawFiles: true, BeforeLarge: warmPings,
		Sizes: map[v1alpha1.Protocol][2]int32{v1alpha1.ProtocolTCP: {1, maxSize}, v1alpha1.ProtocolUDP: datagrams, v1alpha1.ProtocolMulticast: datagrams},
	}}}
}

// Client measures one size, with options of 1.5.0. Later versions first warm up with 10,000
// messages of one byte; the cell's warm-up has its own messages, which Parse cuts off.
func (d driver) Client(c tool.Cell, t tool.Target) tool.Command {
	total := c.Warmup + c.Duration
	ms := strconv.FormatInt(int64((total+time.Millisecond-1)/time.Millisecond), 10)
	protocol := "udp"
	if c.Protocol == v1alpha1.ProtocolTCP {
		protocol = "tcp"
	}
	options := []string{
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
		"--timeout=" + strconv.Itoa(int(replyTimeout/time.Second)),
	}
	return tool.Command{
		Path: string(d.Tool),
		Args: slices.Concat(options, sfnt.WaitOptions(c), sfnt.PathOptions(c, t), []string{protocol, t.Address}),
		Env:  sfnt.Environment(),
		// It can bind datagrams (--bind), but not TCP nor its control connection.
		Routed: true,
	}
}

// Deadline allows for setup, the fewest messages, and a quarter more to sort and write samples.
func (driver) Deadline(c tool.Cell) time.Duration {
	total := c.Warmup + c.Duration
	return total + total/4 + setup + (ownWarmup+batch)*slowest
}

// Memory is 16 bytes for each sample (if used): the samples, and as much to sort them.
func (driver) Memory(c tool.Cell) int64 {
	return 16 * min(int64((c.Warmup+c.Duration)/fastest)+batch, mostSamples)
}
