package sockperf

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// The lines of a stream's output that are used, of the client and of the server.
var (
	streamLine    = regexp.MustCompile(`Total of (\d+) messages sent in ([0-9.]+) sec(?: \((\d+) messages skipped\))?`)
	bandwidthLine = regexp.MustCompile(`BandWidth is ([0-9.]+) MBps`)
	receivedLine  = regexp.MustCompile(`Total (\d+) messages received and handled`)
)

func readStream(said string) (report, error) {
	r := report{version: version(said)}
	total, bandwidth := streamLine.FindStringSubmatch(said), bandwidthLine.FindStringSubmatch(said)
	if total == nil || bandwidth == nil {
		return report{}, fmt.Errorf("it reported nothing")
	}
	if err := r.read(total[2], count{&r.sent, total[1]}); err != nil {
		return report{}, err
	}
	r.figure("run time (s)", total[2])
	r.figure(tool.FigureSent, total[1])
	if total[3] != "" {
		// This is not an error: a sender that does not sleep retries until the socket has room.
		r.figure("skipped", total[3])
	}
	r.figure("bandwidth (MiB/s)", bandwidth[1])
	return r, nil
}

// stream combines what the client sent and what the server received.
func (r *report) stream(c tool.Cell, server []byte, m *tool.Measurement) error {
	b := tool.Bandwidth{SentBitsPerSecond: r.bits(c, r.sent)}
	received, err := countReceived(server)
	switch {
	case err != nil:
		return err
	case received >= 0:
		b.BitsPerSecond = r.bits(c, received)
		r.figure("received by the server", strconv.FormatInt(received, 10))
	default:
		r.warn("it reports the sent messages, not the received ones")
	}
	if c.Protocol != v1alpha1.ProtocolTCP {
		b.Sent, b.Received = r.sent, max(received, 0)
		if received > r.sent {
			return tool.Failf("%d datagrams arrived, but sockperf sent only %d: the path duplicates them", received, r.sent)
		}
		if received >= 0 {
			m.Lost = r.sent - received
		}
	}
	m.Bandwidth = &b
	return nil
}

func (r *report) bits(c tool.Cell, messages int64) float64 {
	return float64(messages) * float64(c.MessageSize) * 8 / r.ran.Seconds()
}

// countReceived returns how many messages the server received, -1 when its output was not kept. A server that printed nothing had ended
// before, or hung: the number is then unknown.
func countReceived(server []byte) (int64, error) {
	if server == nil {
		return -1, nil
	}
	m := receivedLine.FindSubmatch(server)
	switch {
	case m != nil:
	case bytes.Contains(server, []byte("No messages were received on the server")):
		return 0, tool.Failf("no message of sockperf reached the server")
	default:
		return 0, tool.Failf("sockperf's server did not report what it received: it ended before the test did, or hangs")
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		return 0, tool.Failf("sockperf's server reports that it received %.40s messages", m[1])
	}
	return n, nil
}
