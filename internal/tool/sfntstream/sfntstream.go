// Package sfntstream drives sfnt-stream of AMD's cns-sfnettest: UDP messages at a rate. It is
// written for 1.6.0-rc2 (in the published image) and later versions.
//
// The tool reports round trips of the cell's size, with answers of 48 bytes, over multicast to the
// sender alone. By default, without --rtt, it subtracts half of an idle path's mean round trip.
//
// By default it times one message per ms. The driver requests all answers, up to 900,000 in a run, or
// else every second, third and so on: the stack has no room for more samples.
//
// A round trip counts from when the message should have been sent, or was, by the sender's last
// reading of the clock: while it catches up, a burst counts from its first message.
//
// docs/internals/tools.md has the limits of the tool that show in its results.
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
	// minSize is the size of the tool's own header in each message.
	minSize = 24
	// minRate is one message per 10 ms: a receiver waits at most 100 ms.
	minRate = 100

	rawPrefix = "raw"

	// mostTimed messages are timed: 8 bytes each must fit on a stack of 8 MiB.
	mostTimed = 900_000
	// recordSize is a sample's memory, in bytes: three times 24, twice 4 of stack.
	recordSize = 3*24 + 2*4

	// patience is how late the schedule restarts; the counter has 2³² ticks, 0.86 s at 5 GHz.
	patience     = 600 * time.Millisecond
	leastPercent = 90
	// answerSize is the size of each answer, and of the messages with which the idle path is timed.
	answerSize = 48
	// idlePings are timed before it streams, after as many to warm up.
	idlePings = 1_000
	// farewells is how long it tries to tell its server that it has finished.
	farewells = 50 * time.Second
)

type driver struct{ sfnt.Driver }

func New() tool.Driver {
	sizes := [2]int32{minSize, tool.MaxDatagram}
	return driver{sfnt.Driver{Base: tool.Base{
		Tool: v1alpha1.ToolSfntStream, LeastRate: minRate, Polls: true, Muxers: true, RawFiles: true, FewAnswers: true, Beside: 2 * idlePings,
		Sizes: map[v1alpha1.Protocol][2]int32{v1alpha1.ProtocolUDP: sizes, v1alpha1.ProtocolMulticast: sizes},
	}}}
}

func (d driver) Validate(c tool.Cell) error {
	if err := d.Base.Validate(c); err != nil || c.OpenLoop() {
		return err
	}
	return errors.New("sfnt-stream sends at a rate, and none is given")
}

// Client sends from the first CPU and receives on the second. Parse cuts off the warm-up.
func (d driver) Client(c tool.Cell, t tool.Target) tool.Command {
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
		// Otherwise, builds of 2026 send to the server's address, not the group.
		"--connect",
	}
	return tool.Command{
		Path: string(d.Tool),
		Args: slices.Concat(options, sfnt.WaitOptions(c), sfnt.PathOptions(c, t), []string{"udp", t.Address}),
		Env:  sfnt.Environment(),
		// It binds sockets to devices, with a privilege, and to groups.
		Routed: true,
	}
}

type schedule struct {
	// ms is how long it sends: slightly beyond the measuring time, so that later messages, and the
	// number sent, known only from an integer rate, show losses at its end.
	ms int64
	// every is the number of messages of which one is timed.
	every int64
	// timed is the number of samples requested from the tool.
	timed int64
}

func scheduleOf(c tool.Cell) schedule {
	rate, total := max(int64(c.RatePerSecond), 1), c.Warmup+c.Duration
	// One message more for each second of sending, and a few more.
	more := int64(total/time.Second) + int64(total/(50*time.Second)) + 5
	total += 50*time.Millisecond + time.Duration(more*int64(time.Second)/rate)
	s := schedule{ms: int64((total + time.Millisecond - 1) / time.Millisecond)}
	sent := max(rate*s.ms/1000, 1)
	s.every = (sent + mostTimed - 1) / mostTimed
	// The tool divides sent by timed to get every, with the same result.
	s.timed = sent / s.every
	return s
}

func (s schedule) duration() time.Duration { return time.Duration(s.ms) * time.Millisecond }

// Deadline allows for 10 s of retries, idle pings, ends without an answer, and writing samples.
func (driver) Deadline(c tool.Cell) time.Duration {
	return scheduleOf(c).duration() + farewells + 30*time.Second
}

func (driver) Memory(c tool.Cell) int64 { return recordSize * max(scheduleOf(c).timed, idlePings) }

// MostSamples is the number of timed messages that are due in the measuring time.
func (driver) MostSamples(c tool.Cell) (int64, bool) {
	due := float64(c.RatePerSecond) * c.Duration.Seconds()
	return int64(due) / scheduleOf(c).every, true
}

// CPUs is two: one thread sends, another receives.
func (driver) CPUs(tool.Cell) int { return 2 }
