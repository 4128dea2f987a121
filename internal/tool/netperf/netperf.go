// Package netperf drives netperf 2.7.0 and 2.7.1: TCP_RR, UDP_RR, TCP_STREAM and UDP_STREAM.
//
// The tool reports no samples. The mean round trip is exact, from the number of transactions and
// their time; the rest is from the tool's histogram in whole µs, as tool.Own: see bucket.
//
// docs/internals/tools.md has the limits of the tool that show in its results.
package netperf

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	program       = "netperf"
	serverProgram = "netserver"

	// maxSize is the length of the longest message of a spec; the tool accepts longer ones.
	maxSize = 1 << 20

	// spare is how long a client may take besides measuring: seconds for a lost SYN, up to 4 s
	// until the server notices a UDP test's end, seconds for data queued before a slow link.
	spare = 30 * time.Second
)

// The values that the tool is configured to print, in the order of its output and of the figures.
var (
	roundTripValues = []value{
		{"TRANSACTION_RATE", "1/s"}, {"RT_LATENCY", "us, RTT"}, {"MEAN_LATENCY", "us, RTT"}, {"MIN_LATENCY", "us, RTT"},
		{"P50_LATENCY", "us, RTT"}, {"P90_LATENCY", "us, RTT"}, {"P99_LATENCY", "us, RTT"}, {"MAX_LATENCY", "us, RTT"},
		{"STDDEV_LATENCY", "us, RTT"}, {"ELAPSED_TIME", "s"}, {"REQUEST_SIZE", "bytes"}, {"RESPONSE_SIZE", "bytes"},
		{"LOCAL_BYTES_SENT", ""}, {"LOCAL_BYTES_RECVD", ""}, {"REMOTE_BYTES_RECVD", ""},
		{"LOCAL_TRANSPORT_RETRANS", ""},
	}
	streamValues = []value{
		{"REMOTE_RECV_THROUGHPUT", "10^3 bit/s"}, {"LOCAL_SEND_THROUGHPUT", "10^3 bit/s"}, {"THROUGHPUT_UNITS", ""},
		{"ELAPSED_TIME", "s"}, {"LOCAL_SEND_SIZE", "bytes"}, {"LOCAL_BYTES_SENT", ""}, {"REMOTE_BYTES_RECVD", ""},
		{"LOCAL_TRANSPORT_RETRANS", ""},
	}
)

// value is the name of a value that the tool prints, with the unit, which it does not print.
type value struct{ name, unit string }

func valuesOf(c tool.Cell) []value {
	if c.Stream {
		return streamValues
	}
	return roundTripValues
}

type driver struct{ tool.Base }

func New() tool.Driver {
	return driver{tool.Base{
		Tool: v1alpha1.ToolNetperf, Streams: true, Forks: true,
		Sizes: map[v1alpha1.Protocol][2]int32{v1alpha1.ProtocolTCP: {1, maxSize}, v1alpha1.ProtocolUDP: {1, tool.MaxDatagram}},
	}}
}

func (d driver) Validate(c tool.Cell) error {
	if err := d.Base.Validate(c); err != nil || c.Duration%time.Second == 0 {
		return err
	}
	return fmt.Errorf("netperf measures whole seconds, so %s instead of %s", (c.Duration + time.Second).Truncate(time.Second), c.Duration)
}

// Server needs -f (a child's context switches could not be counted) and -N (no log in /tmp).
func (driver) Server(_ tool.Cell, t tool.Target) tool.Command {
	return tool.Command{
		Path: serverProgram,
		Args: []string{"-D", "-f", "-N", "-L", t.Address, "-p", strconv.Itoa(t.Port)},
	}
}

// Client binds by -H and -L, after --, to the measured network; -R 1 lets UDP_STREAM pass a router.
func (driver) Client(c tool.Cell, t tool.Target) tool.Command {
	size := strconv.Itoa(int(c.MessageSize))
	kind, format, sizes := "_RR", []string{}, []string{"-r", size + "," + size}
	if c.Stream {
		// In thousands of bits, printed with two decimals.
		kind, format, sizes = "_STREAM", []string{"-f", "k"}, []string{"-m", size, "-R", "1"}
	}
	args := []string{
		"-H", t.Address, "-p", strconv.Itoa(t.Port), "-t", string(c.Protocol) + kind,
		"-l", strconv.FormatInt(int64(c.Duration/time.Second), 10), "-P", "0",
	}
	args = append(args, format...)
	args = append(args, "--", "-H", t.Address)
	if t.LocalAddress != "" {
		args = append(args, "-L", t.LocalAddress)
	}
	args = append(args, sizes...)
	names := text.Of(valuesOf(c), func(v value) string { return v.name })
	return tool.Command{Path: program, Args: append(args, "-k", strings.Join(names, ","))}
}

// Deadline bounds a client whose server hangs or whose path was cut: it would wait for minutes.
func (driver) Deadline(c tool.Cell) time.Duration { return c.Duration + spare }

// Memory does not depend on the duration: a histogram, and buffers of a message.
func (driver) Memory(tool.Cell) int64 { return 16 << 20 }
