// Package sfntstream drives sfnt-stream of AMD's cns-sfnettest: UDP messages at a rate. It is written for 1.6.0-rc2 (of
// the published image) and what came after.
//
// What is reported is the round trip of a message. It goes out with the cell's size and comes back as 48 bytes, of
// whatever size it was, over multicast from the group's member to the sender alone. By itself the tool subtracts half
// of the mean round trip of an idle path from it (return_latency in its header), as an estimate of the way back. With
// --rtt it subtracts nothing, so that nothing has to be rebuilt.
//
// By itself it asks for an answer to one message a millisecond and times that. Here it asks for as many as it can take:
// all, up to 900,000 in a run, or else each second, third and so on. The row that it prints puts its samples on the
// stack twice, where a million of them end it with a segmentation fault.
//
// A message counts from when it should have been sent, or from when it was sent (Measurement.ActualStart). The latter
// is when the sender last looked at the clock. While it catches up after a delay it does not look, so what it sends
// then in one go counts from the first of these messages.
//
// Limits of the tool that show in the results:
//   - Both ends must be the very same build.
//   - The sender always polls the clock; Cell.Wait and Cell.Muxer are those of the receivers. It has a CPU of its own.
//   - Receivers that spin or use a muxer give up after 100 ms without a message, so that a longer stall ends the
//     measurement. Those that sleep in recv live through it.
//   - A sender that is held up for more than 0.6 s gives its schedule up and restarts it: that delay is not among
//     the samples. The tool counts how often that happened. (By itself it does so when it is 100 messages late, to
//     spare the receiver the burst, and thereby hides most delays.)
//   - A lost datagram ends the measurement only before its beginning, in the tool's own warm-up.
//   - The server serves one client and ends. The first to connect to its control port is that client, so
//     nothing may probe it.
//   - A group must be in one subnet.
//   - Messages and answers go over ephemeral ports: a NetworkPolicy must allow all ports between the two ends.
//   - Onload does best with a stack for each of the two threads of the client: EF_STACK_PER_THREAD=1.
package sfntstream

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfnt"
)

const (
	program = "sfnt-stream"

	// minSize is the tool's own header in each message.
	minSize = 24
	// minRate is of one message in 10 ms. A receiver may wait for 100 ms, and the number of messages that were sent
	// is known only from a whole rate.
	minRate = 100

	// rawPrefix of the file with the samples.
	rawPrefix = "raw"

	// mostTimed is how many messages are timed at most. Their 8 bytes each must fit the usual stack of 8 MiB.
	mostTimed = 900_000
	// recordSize is what the tool reserves and touches for a sample: three records of 24 bytes, and twice 4 of stack.
	recordSize = 3*24 + 2*4

	// patience is how late a message may be before the tool restarts its schedule. It is late by at most 2³² ticks,
	// 0.86 s of a clock of 5 GHz, before the tool's counter overflows.
	patience = 600 * time.Millisecond
	// leastPercent of the rate must be reached.
	leastPercent = 90
	// answerSize is that of each answer, and of the messages with which the idle path is timed.
	answerSize = 48
	// idlePings is how many round trips the tool times, and as many again to warm up, before it streams.
	idlePings = 1_000
	// farewells is how long the tool tries to say to its server that it is done, when nothing comes back.
	farewells = 50 * time.Second
)

type driver struct{}

// New is the driver of sfnt-stream.
func New() tool.Driver { return driver{} }

// Name of the tool.
func (driver) Name() v1alpha1.Tool { return v1alpha1.ToolSfntStream }

// Validate says what the tool cannot do.
func (d driver) Validate(c tool.Cell) error {
	switch {
	case c.Protocol == v1alpha1.ProtocolTCP:
		return errors.New("sfnt-stream sends UDP only")
	case c.Protocol != v1alpha1.ProtocolUDP && c.Protocol != v1alpha1.ProtocolMulticast:
		return fmt.Errorf("sfnt-stream measures UDP and Multicast, not %q", c.Protocol)
	case c.Stream:
		return errors.New("sfnt-stream sends at a rate, not as fast as it can")
	case !c.OpenLoop():
		return errors.New("sfnt-stream sends at a rate, and none is given")
	case c.RatePerSecond < minRate:
		return fmt.Errorf("sfnt-stream measures rates of at least %d messages a second, not %d", minRate, c.RatePerSecond)
	case c.MessageSize < minSize || c.MessageSize > sfnt.MaxDatagram:
		return fmt.Errorf("sfnt-stream measures messages of %d to %d bytes, not of %d",
			minSize, sfnt.MaxDatagram, c.MessageSize)
	}
	return sfnt.Validate(d.Name(), c)
}

// RawFiles is for the file with the samples.
func (driver) RawFiles() {}

// Server listens for the control connection of one client, and gets everything else from it.
func (driver) Server(_ tool.Cell, t tool.Target) tool.Command {
	return tool.Command{Path: program, Args: []string{"--port=" + strconv.Itoa(t.Port)}, Env: sfnt.Environment()}
}

// Listens is always TCP: a server that is ready waits for the control connection.
func (driver) Listens(tool.Cell) v1alpha1.Protocol { return v1alpha1.ProtocolTCP }

// Client sends from the first of its CPUs and receives on the second. The cell's warm-up is measured with the rest
// and cut off by Parse.
func (driver) Client(c tool.Cell, t tool.Target) tool.Command {
	s := scheduleOf(c)
	options := []string{
		"--port=" + strconv.Itoa(t.Port),
		fmt.Sprintf("--affinity=%d,%d;%d", t.CPUs[0], t.CPUs[1], t.ServerCPU),
		"--msgsize=" + strconv.Itoa(int(c.MessageSize)),
		"--rates=" + strconv.Itoa(int(c.RatePerSecond)),
		"--millisec=" + strconv.FormatInt(s.ms, 10),
		"--samples=" + strconv.FormatInt(s.timed, 10),
		"--stop=" + strconv.Itoa(leastPercent),
		"--maxburst=" + strconv.FormatInt(int64(c.RatePerSecond)*int64(patience/time.Millisecond)/1000, 10),
		"--rtt",
		"--rtt-iter=" + strconv.Itoa(idlePings),
		"--raw=" + filepath.Join(t.Scratch, rawPrefix),
		// Builds of 2026 send to the server's own address without it, even where a group was asked for.
		"--connect",
	}
	return tool.Command{
		Path: program,
		Args: slices.Concat(options, sfnt.WaitOptions(c), sfnt.PathOptions(c, t), []string{"udp", t.Address}),
		Env:  sfnt.Environment(),
		// It binds its sockets to devices, which takes a privilege, and to groups, not to addresses.
		Routed: true,
	}
}

// schedule is what the tool has to do for a cell.
type schedule struct {
	// ms is how long it sends. It goes on a little beyond the measuring time, so that what was lost at the end of that
	// is known from what came after it, and from the number of messages sent, of which only the whole rate is reported.
	ms int64
	// every is of how many messages one is timed.
	every int64
	// timed is how many samples the tool is asked for.
	timed int64
}

func scheduleOf(c tool.Cell) schedule {
	rate, total := max(int64(c.RatePerSecond), 1), c.Warmup+c.Duration
	// A message for each second that it sends, and a few more.
	more := int64(total/time.Second) + int64(total/(50*time.Second)) + 5
	total += 50*time.Millisecond + time.Duration(more*int64(time.Second)/rate)
	s := schedule{ms: int64((total + time.Millisecond - 1) / time.Millisecond)}
	sent := max(rate*s.ms/1000, 1)
	s.every = (sent + mostTimed - 1) / mostTimed
	// The tool divides the other way round, and comes to the same.
	s.timed = sent / s.every
	return s
}

// duration of the schedule.
func (s schedule) duration() time.Duration { return time.Duration(s.ms) * time.Millisecond }

// Deadline allows for 10 s of retries to connect, for the idle pings on a path of a few milliseconds, for the tool's
// attempts to end a test that the other end does not answer any more, and for writing the samples.
func (driver) Deadline(c tool.Cell) time.Duration {
	return scheduleOf(c).duration() + farewells + 30*time.Second
}

// Memory is what the tool keeps of each message that is timed.
func (driver) Memory(c tool.Cell) int64 { return recordSize * max(scheduleOf(c).timed, idlePings) }

// MostSamples is how many of the messages that are timed are due in the measuring time.
func (driver) MostSamples(c tool.Cell) (int64, bool) {
	due := float64(c.RatePerSecond) * c.Duration.Seconds()
	return int64(due) / scheduleOf(c).every, true
}

// CPUs is two: one thread sends, another receives.
func (driver) CPUs(tool.Cell) int { return 2 }
