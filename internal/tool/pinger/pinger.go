// Package pinger drives Tailgate's own tool, whose sources are in bench-image/pinger.
//
// What sets it apart from the others: every sample is counted, in a histogram of its own, so that its memory does not
// grow with time; a lost datagram is counted and the measurement goes on; the server knows its client by a token; one
// port is enough, for control and messages; and the result tells what interrupted either end.
//
// Limits that show in the results:
//   - It waits for each answer before it sends again, as the other tools do here: a stall is one slow sample. Its open
//     loop, which is free of that, has no place in the API yet.
//   - Ends that sleep while they wait do not see how late they were woken, so of what interrupted them only the time
//     in send is told.
package pinger

import (
	"fmt"
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

	// spare is what a client may take beyond its measuring time: up to 10 s until the server answers, up to 5 s until a
	// datagram comes back, half a second for scans and calibrations, the exchange of reports.
	spare = 25 * time.Second
	// grace is by how much the agent's deadline is later than the tool's own, which says where it was stuck.
	grace = 5 * time.Second
)

type driver struct{}

// New is the driver of the pinger.
func New() tool.Driver { return driver{} }

// Name of the tool.
func (driver) Name() v1alpha1.Tool { return v1alpha1.ToolPinger }

// Validate says which cells the tool refuses.
func (driver) Validate(c tool.Cell) error {
	most := int32(maxSize)
	switch c.Protocol {
	case v1alpha1.ProtocolTCP:
	case v1alpha1.ProtocolUDP:
		most = maxDatagram
	default:
		return fmt.Errorf("pinger measures TCP and UDP, not %q", c.Protocol)
	}
	if c.MessageSize < 1 || c.MessageSize > most {
		return fmt.Errorf("pinger measures %s messages of 1 to %d bytes, not of %d", c.Protocol, most, c.MessageSize)
	}
	if c.Duration < time.Millisecond || c.Warmup < 0 {
		return fmt.Errorf("pinger cannot measure for %s after %s", c.Duration, c.Warmup)
	}
	return nil
}

// Server serves clients that know the token, until it is killed or has served for longer than a client may take.
func (d driver) Server(c tool.Cell, t tool.Target) tool.Command {
	return tool.Command{
		Path: program,
		Args: []string{"server", "--bind", t.Address, "--port", strconv.Itoa(t.Port), "--deadline", seconds(d.Deadline(c) + time.Minute)},
		Env:  environment(t),
	}
}

// Listens is always TCP: a server that is ready waits for control connections.
func (driver) Listens(tool.Cell) v1alpha1.Protocol { return v1alpha1.ProtocolTCP }

// Client measures one size.
func (d driver) Client(c tool.Cell, t tool.Target) tool.Command {
	return tool.Command{
		Path: program,
		Args: []string{
			"client", "--server", t.Address, "--port", strconv.Itoa(t.Port),
			"--protocol", strings.ToLower(string(c.Protocol)), "--sizes", strconv.Itoa(int(c.MessageSize)),
			"--duration", nanoseconds(c.Duration), "--warmup", nanoseconds(c.Warmup),
			"--block", "--deadline", seconds(d.Deadline(c) - grace),
		},
		Env: environment(t),
	}
}

func environment(t tool.Target) []string { return []string{tokenVariable + "=" + t.Token} }

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// nanoseconds is the one form of a duration that is never rounded.
func nanoseconds(d time.Duration) string { return strconv.FormatInt(int64(d), 10) + "ns" }

// Deadline allows for what the tool waits for besides measuring; it ends itself a little before.
func (driver) Deadline(c tool.Cell) time.Duration { return c.Warmup + c.Duration + spare + grace }

// Memory does not depend on the cell: histograms, the slowest samples and the course of the measurement take 6 MiB,
// the program and the result's text less than as much again.
func (driver) Memory(tool.Cell) int64 { return 16 << 20 }

// CPUs is one: a single thread sends and receives.
func (driver) CPUs(tool.Cell) int { return 1 }

// MostSamples is what the rate gives; how many a closed loop gives depends on how long they take.
func (driver) MostSamples(c tool.Cell) (int64, bool) {
	return int64(float64(c.RatePerSecond) * c.Duration.Seconds()), c.OpenLoop()
}
