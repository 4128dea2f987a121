// Package pinger drives Tailgate's own tool, whose sources are in bench-image/pinger.
//
// Unlike other tools, it counts samples in a histogram, so that its memory does not grow; at a rate
// a round trip counts from when the message should have been sent; it counts a lost datagram and
// goes on; its ends know each other: no other host can answer 16 bytes or more, nor the server
// early; it needs one port; and it tells what interrupted either end, and when.
//
// docs/internals/tools.md has the limits of the tool that show in its results.
package pinger

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	program = "tailgate-pinger"
	// keyVariable passes the key by the environment: arguments are stored.
	keyVariable = "TAILGATE_PINGER_KEY"
	// impostor is the tool's exit code if something else than its other end answered.
	impostor = 4

	maxSize = 65_536
	// preamble names the test: "DATA ", 32 hexadecimal digits and a newline.
	preamble = 38

	// lossAfter is Cell.LossAfter's default: unanswered datagrams are then lost.
	lossAfter = time.Second
	// For overrun plus Cell.LossAfter, the tool tries to catch up; then the path is too slow.
	overrun = 10 * time.Second
	// spare is how long a client may take besides measuring: 10 s until the server answers, 5 s for
	// a datagram, half a second for scans and calibrations, and the exchange of reports.
	spare = 25 * time.Second
	// grace delays the agent's deadline: the tool's own reports where it was stuck.
	grace = 5 * time.Second

	// The tracked messages, of 8 bytes each: a power of two, at least twice those in flight.
	leastWindow, mostWindow = 1 << 10, 1 << 20
)

type driver struct{ tool.Base }

func New() tool.Driver {
	datagrams := [2]int32{1, tool.MaxDatagram}
	return driver{tool.Base{
		Tool: v1alpha1.ToolPinger, LeastRate: 1, Polls: true, InEveryImage: true, EndsStack: true, Continues: true, Preamble: preamble,
		Sizes: map[v1alpha1.Protocol][2]int32{v1alpha1.ProtocolTCP: {1, maxSize}, v1alpha1.ProtocolUDP: datagrams, v1alpha1.ProtocolMulticast: datagrams},
	}}
}

func (d driver) Validate(c tool.Cell) error {
	if err := d.Base.Validate(c); err != nil {
		return err
	}
	if c.OpenLoop() && c.SentIn(c.Duration) < 1 {
		return fmt.Errorf("pinger sends no message within %s at %d a second; use a higher rate, or a longer duration",
			c.Duration, c.RatePerSecond)
	}
	// The sequence number must fit, and any two datagrams' order be clear.
	if c.Protocol != v1alpha1.ProtocolTCP && c.MessageSize < 8 &&
		c.SentIn(lossOf(c)) >= math.Ldexp(1, int(8*c.MessageSize-1)) {
		return fmt.Errorf("pinger cannot distinguish %s messages of %d bytes at %d a second; use at least 8 bytes, or a lower rate",
			c.Protocol, c.MessageSize, c.RatePerSecond)
	}
	return nil
}

func lossOf(c tool.Cell) time.Duration { return cmp.Or(c.LossAfter, lossAfter) }

// Server serves clients with the key until killed, or longer than a client may take.
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

// Client measures one size at one rate, from its address, by whose interface it multicasts.
func (d driver) Client(c tool.Cell, t tool.Target) tool.Command {
	args := []string{
		"client", "--server", t.Address, "--port", strconv.Itoa(t.Port),
		"--protocol", strings.ToLower(string(c.Protocol)), "--sizes", strconv.Itoa(int(c.MessageSize)),
		"--rates", strconv.Itoa(int(c.RatePerSecond)),
		"--duration", nanoseconds(c.Duration), "--warmup", nanoseconds(c.Warmup), "--loss-after", nanoseconds(lossOf(c)),
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

func environment(t tool.Target) []string { return []string{keyVariable + "=" + t.Key} }

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

func nanoseconds(d time.Duration) string { return strconv.FormatInt(int64(d), 10) + "ns" }

// Deadline allows for all that the tool waits for; the tool ends slightly earlier.
func (driver) Deadline(c tool.Cell) time.Duration {
	if c.OpenLoop() {
		return c.Warmup + c.Duration + overrun + lossOf(c) + spare + grace
	}
	return c.Warmup + c.Duration + spare + grace
}

// Memory is 3 MiB of histograms and samples, 8 MiB of program and result, messages in flight.
func (driver) Memory(c tool.Cell) int64 {
	window := int64(leastWindow)
	for float64(window) < 2*c.SentIn(lossOf(c)) && window < mostWindow {
		window *= 2
	}
	return 12<<20 + 8*window
}
