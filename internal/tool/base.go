package tool

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Base is what a driver says of its tool's cells. Embedding it brings most tools' methods.
type Base struct {
	Tool v1alpha1.Tool
	// Sizes are the smallest and the largest message, in bytes, of each protocol.
	Sizes map[v1alpha1.Protocol][2]int32
	// LeastRate is the lowest rate, in messages a second; 0: the tool cannot send at a rate.
	LeastRate int32
	// Streams, Polls and Muxers: the tool streams, waits with Spin, or by a muxer.
	Streams, Polls, Muxers bool
	// IPv4Only is true for a tool that cannot use IPv6 addresses.
	IPv4Only bool
	// NotAtRate are the architectures, as of nodes, on which it sends at no rate.
	NotAtRate []string
	// RawFiles: samples go to Target.Scratch. Containers without a volume start 300 ms sooner.
	RawFiles bool
	// InEveryImage: each bench image has it. Forks: its server forks; a child measures.
	InEveryImage, Forks bool
	// FewAnswers: most messages get no answer, so that packets cannot be matched.
	FewAnswers bool
	// Opaque: it is a user's program, which may have any processes, messages and packets.
	Opaque bool
	// Continues: after a lost datagram in a closed loop; other tools fail the attempt.
	Continues bool
	// TellsSent: its figure FigureSent counts all messages, those of the warm-up, too.
	TellsSent bool
	// EndsStack: its client does not close first, so that no stack of Onload outlives it.
	EndsStack bool
	// Preamble is how many bytes precede its first TCP message.
	Preamble int
	// Beside is how many messages it sends beside those of a rate, BeforeLarge how many of one
	// byte, at most, before messages that need several packets.
	Beside, BeforeLarge int64
}

const mostRate = 10_000_000

func (b Base) Name() v1alpha1.Tool { return b.Tool }
func (b Base) Limits() Base        { return b }

// CountsLost reports whether a result may have lost messages of a traffic, or none can be lost.
func (b Base) CountsLost(t v1alpha1.Traffic) bool {
	return t.Protocol == v1alpha1.ProtocolTCP || b.Continues || !b.Opaque && (t.Stream || t.OpenLoop())
}

// Listens is TCP: a server that is ready waits for the control connection.
func (Base) Listens(Cell) v1alpha1.Protocol { return v1alpha1.ProtocolTCP }

// CPUs is one: a single thread sends and receives.
func (Base) CPUs(Cell) int { return 1 }

// MostSamples follows from a rate; in a closed loop it depends on the latencies.
func (Base) MostSamples(c Cell) (int64, bool) {
	return int64(c.SentIn(c.Duration)), c.OpenLoop()
}

func (b Base) Validate(c Cell) error {
	var protocols []string
	for _, p := range []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP, v1alpha1.ProtocolMulticast} {
		if _, ok := b.Sizes[p]; ok {
			protocols = append(protocols, string(p))
		}
	}
	sizes, ok := b.Sizes[c.Protocol]
	wait, muxer := cmp.Or(c.Wait, v1alpha1.WaitBlock), cmp.Or(c.Muxer, v1alpha1.MuxerNone)
	muxers := []v1alpha1.Muxer{v1alpha1.MuxerNone, v1alpha1.MuxerSelect, v1alpha1.MuxerPoll, v1alpha1.MuxerEpoll}
	group, err := netip.ParseAddr(cmp.Or(c.MulticastGroup, "239.192.0.1"))
	switch {
	case c.Stream && !b.Streams:
		return fmt.Errorf("%s measures no bandwidth; use netperf or sockperf for streams", b.Tool)
	case !ok:
		return fmt.Errorf("%s measures %s, not %q", b.Tool, strings.Join(protocols, " and "), c.Protocol)
	case c.Stream && c.Protocol == v1alpha1.ProtocolMulticast:
		return fmt.Errorf("%s streams TCP and UDP, not Multicast", b.Tool)
	case c.Stream && c.OpenLoop():
		return fmt.Errorf("%s streams as fast as it can, not %d messages a second", b.Tool, c.RatePerSecond)
	case c.RatePerSecond != 0 && b.LeastRate == 0:
		return fmt.Errorf("%s sends a message when the answer to the last has come; it cannot send at a rate, not %d messages a second", b.Tool, c.RatePerSecond)
	case c.RatePerSecond != 0 && (c.RatePerSecond < b.LeastRate || c.RatePerSecond > mostRate):
		return fmt.Errorf("%s sends %d to %d messages a second, not %d", b.Tool, b.LeastRate, mostRate, c.RatePerSecond)
	case c.MessageSize < sizes[0] || c.MessageSize > sizes[1]:
		return fmt.Errorf("%s measures %s messages of %d to %d bytes, not of %d", b.Tool, c.Protocol, sizes[0], sizes[1], c.MessageSize)
	case c.Spins() && !b.Polls:
		return fmt.Errorf("%s cannot poll: both its ends sleep until a message comes", b.Tool)
	case wait != v1alpha1.WaitBlock && wait != v1alpha1.WaitSpin:
		return fmt.Errorf("%s waits with Block or Spin, not with %q", b.Tool, c.Wait)
	case muxer != v1alpha1.MuxerNone && !b.Muxers:
		return fmt.Errorf("%s waits in recv, without muxer %s; use sfnt-pingpong or sfnt-stream for muxers", b.Tool, c.Muxer)
	case !slices.Contains(muxers, muxer):
		return fmt.Errorf("%s waits with None, Select, Poll or Epoll, not with %q", b.Tool, c.Muxer)
	case c.Duration <= 0 || c.Warmup < 0:
		return fmt.Errorf("%s cannot measure for %s after %s", b.Tool, c.Duration, c.Warmup)
	case c.Protocol == v1alpha1.ProtocolMulticast && (err != nil || !group.Is4() || !group.IsMulticast()):
		return fmt.Errorf("%s needs an IPv4 multicast group, such as 239.192.0.1, not %q", b.Tool, c.MulticastGroup)
	}
	return nil
}
