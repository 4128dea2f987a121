// Package sockperf drives sockperf: ping-pong, under-load (messages at a rate) and throughput (a
// stream). It is written for 3.7, as packaged by Debian.
//
// docs/internals/tools.md has the limits of the tool that show in its results.
package sockperf

import (
	"hash/crc32"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	program = "sockperf"

	// minSize is the size of the tool's own header in each message.
	minSize = 14
	// fastest is the rate for which ping-pong reserves memory.
	fastest = 600_000

	logName = "log.csv"

	// head and tail are the parts of a run that are not in its log, at most.
	head = 400 * time.Millisecond
	tail = 50 * time.Millisecond
	// spare makes a run outlast a stall at the end: a TCP retransmission takes 200 ms.
	spare = 300 * time.Millisecond
	// spareMessages lengthen a run at a rate: one is answered unless none are.
	spareMessages = 3
)

type driver struct{ tool.Base }

// New returns the driver. sockperf 3.7 lacks IPv6, and on some machines rates.
func New() tool.Driver {
	sizes := [2]int32{minSize, tool.MaxDatagram}
	return driver{tool.Base{
		Tool: v1alpha1.ToolSockperf, LeastRate: 1, Streams: true, Polls: true, TellsSent: true,
		IPv4Only: true, NotAtRate: []string{"arm64", "arm", "ppc64le"}, RawFiles: true,
		Sizes: map[v1alpha1.Protocol][2]int32{v1alpha1.ProtocolTCP: sizes, v1alpha1.ProtocolUDP: sizes, v1alpha1.ProtocolMulticast: sizes},
	}}
}

// Server serves a protocol; --uc-reuseaddr listens where one was killed with a connection.
func (driver) Server(c tool.Cell, t tool.Target) tool.Command {
	args := append([]string{"server"}, path(c, t, t.Address)...)
	if c.Protocol == v1alpha1.ProtocolTCP {
		args = append(args, "--uc-reuseaddr")
	}
	return tool.Command{Path: program, Args: args, Interrupt: c.Stream}
}

// Listens is the protocol of the messages: there is no control connection.
func (driver) Listens(c tool.Cell) v1alpha1.Protocol {
	if c.Protocol == v1alpha1.ProtocolTCP {
		return v1alpha1.ProtocolTCP
	}
	return v1alpha1.ProtocolUDP
}

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

// clientPath returns the client's options of path; a group's socket is bound to the group.
func clientPath(c tool.Cell, t tool.Target) []string {
	options := path(c, t, t.LocalAddress)
	if c.Protocol != v1alpha1.ProtocolMulticast && t.LocalAddress != "" {
		options = append(options, "--client_ip", t.LocalAddress)
	}
	return options
}

// path returns options of the messages' way and of this end's waiting; own is its address.
func path(c tool.Cell, t tool.Target, own string) []string {
	address := t.Address
	var more []string
	switch c.Protocol {
	case v1alpha1.ProtocolTCP:
		more = []string{"--tcp"}
	case v1alpha1.ProtocolMulticast:
		address = group(c, t)
		more = []string{"--mc-rx-if", own, "--mc-tx-if", own}
	case v1alpha1.ProtocolUDP:
	}
	if c.Spins() {
		more = append(more, "--nonblocked")
	}
	return append([]string{"-i", address, "-p", strconv.Itoa(t.Port)}, more...)
}

// group returns the cell's group, or one of 65,536 by the run's key: other runs' messages would be
// received, and a client that two servers answer gives up.
func group(c tool.Cell, t tool.Target) string {
	if c.MulticastGroup != "" {
		return c.MulticastGroup
	}
	sum := crc32.ChecksumIEEE([]byte(t.Key))
	return netip.AddrFrom4([4]byte{239, 192, byte(sum >> 8), byte(sum)}).String()
}

// runTime returns the whole seconds for which the tool must run. The head serves as warm-up.
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

// messages returns the tool's expected rate. Ping-pong reserves for round trips of 1.7 µs.
func messages(c tool.Cell) int64 {
	if c.OpenLoop() {
		return int64(c.RatePerSecond)
	}
	return fastest
}

// Deadline allows for the first sleep and for the log: as long as the run, or 4 µs per message.
// Only a connection without answers, or a stuck stream, needs it.
func (driver) Deadline(c tool.Cell) time.Duration {
	const starting, writing = 15 * time.Second, 4 * time.Microsecond
	run := runTime(c)
	if !c.OpenLoop() {
		return 2*run + starting
	}
	return run + max(run, time.Duration(messages(c)*int64(run/time.Second))*writing) + starting
}

// Memory is what the tool reserves for each second and one more, and for answered messages.
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

func (driver) CPUs(c tool.Cell) int {
	if c.OpenLoop() {
		return 2
	}
	return 1
}
