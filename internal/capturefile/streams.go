package capturefile

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/reassembly"
)

const (
	// mostPages and mostPagesEach bound waiting segments of up to 1,900 bytes.
	mostPages, mostPagesEach, mostConnections = 64 << 10, 4 << 10, 16 << 10
	idle                                      = 10 * time.Minute
)

type analysis struct {
	Options
	Result
	record    func(ns int64)
	fine      bool  // a time is no multiple of 1 µs
	short     int64 // latencies below coarse
	assembler *reassembly.Assembler
	// err is the first error of a stream. connections were followed, of which some are open.
	err               error
	connections, open int64
	ahead             int // segments of all connections that are known to wait
	// young and old are messages that wait; turned is when young began.
	young, old map[string]waiting
	turned     int64
}

func (a *analysis) packet(p *packet) error {
	if p.at-a.turned >= int64(a.Timeout) {
		// First what waits for missing bytes, of which the answers still wait.
		a.assembler.FlushWithOptions(reassembly.FlushOptions{T: p.info.Timestamp.Add(-a.Timeout / 2), TC: p.info.Timestamp.Add(-idle)})
		a.expire()
		a.turned = p.at
	}
	decoded := gopacket.NewPacket(p.data, p.link, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	network, transport := decoded.NetworkLayer(), decoded.TransportLayer()
	if network == nil {
		if decoded.ErrorLayer() != nil {
			a.Unread++
		}
		return nil
	}
	flow, ports := network.NetworkFlow(), gopacket.Flow{}
	if transport != nil {
		ports = transport.TransportFlow()
	}
	source, target := end(flow.Src(), ports.Src()), end(flow.Dst(), ports.Dst())
	tcp, _ := transport.(*layers.TCP)
	udp, _ := transport.(*layers.UDP)
	if len(a.Result.Servers) == 0 && tcp != nil && tcp.SYN && !tcp.ACK {
		a.Result.Servers = []netip.AddrPort{target}
	}
	p.answer = !a.isServer(target)
	switch {
	case p.answer && !a.isServer(source):
	case tcp == nil && udp == nil:
		a.Unread++
	case decoded.Metadata().Truncated || p.info.CaptureLength < p.info.Length:
		return fmt.Errorf("%s: %d of %d bytes were captured, and messages need whole packets (tcpdump -s 0)", p.place, len(p.data), p.info.Length)
	case tcp != nil:
		p.info.AncillaryData = []any{p}
		a.assembler.AssembleWithContext(flow, tcp, p)
	case a.Match == MatchSequence:
		return fmt.Errorf("%s: it is UDP, of which datagrams may be lost: match by offset or FIX tag", p.place)
	default:
		h := a.half(p.answer)
		h.datagram = true
		err := h.take(udp.Payload, func(int) *packet { return p })
		a.OtherBytes += int64(len(h.part))
		return err
	}
	return a.err
}

func end(address, port gopacket.Endpoint) netip.AddrPort {
	a, _ := netip.AddrFromSlice(address.Raw())
	if b := port.Raw(); len(b) == 2 {
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(b))
	}
	return netip.AddrPortFrom(a, 0)
}

func (a *analysis) isServer(end netip.AddrPort) bool {
	return slices.ContainsFunc(a.Result.Servers, func(s netip.AddrPort) bool {
		return s.Addr() == end.Addr() && (s.Port() == end.Port() || s.Port() == 0 || end.Port() == 0)
	})
}

func (a *analysis) half(answer bool) *half {
	h := &half{analysis: a, Layout: a.Request, answer: answer, connection: a.connections, ahead: map[uint32]int{}}
	if answer {
		h.Layout = a.Answer
	}
	return h
}

type stream struct {
	*analysis
	halves map[bool]*half
}

func (a *analysis) begins(tcp *layers.TCP) bool {
	if tcp.SYN || len(tcp.Payload) == 0 || a.MidStream || a.Match == MatchFIX {
		return tcp.SYN || len(tcp.Payload) > 0
	}
	a.Older++
	return false
}

func (a *analysis) New(_, _ gopacket.Flow, tcp *layers.TCP, ac reassembly.AssemblerContext) reassembly.Stream {
	if !a.begins(tcp) {
		return nil
	}
	a.connections++
	a.open++
	switch p := ac.(*packet); {
	case a.open > mostConnections:
		a.err = cmp.Or(a.err, fmt.Errorf("%s: more than %d TCP connections are open: name fewer servers", p.place, mostConnections))
	case a.Match != MatchFIX && min(a.Request.Size, a.Answer.Size) == 0:
		a.err = cmp.Or(a.err, fmt.Errorf("%s: it is TCP, which does not tell where a message ends: give --size, or match by a FIX tag", p.place))
	}
	return &stream{a, map[bool]*half{false: a.half(false), true: a.half(true)}}
}

// Accept decides whether a segment is taken; next is negative before the first.
func (s *stream) Accept(tcp *layers.TCP, _ gopacket.CaptureInfo, _ reassembly.TCPFlowDirection, next reassembly.Sequence, start *bool, ac reassembly.AssemblerContext) bool {
	h, length := s.halves[ac.(*packet).answer], len(tcp.Payload)
	switch ahead := next.Difference(reassembly.Sequence(tcp.Seq)); {
	case next < 0:
		*start = s.begins(tcp)
		return *start
	case length > 0 && (ahead < 0 || h.ahead[tcp.Seq] >= length):
		s.Retransmitted++
		return ahead < 0 // Of two that wait, the assembler would take the later one.
	case ahead > 0 && len(h.ahead) < mostPagesEach && s.ahead < mostPages:
		s.ahead -= len(h.ahead)
		h.ahead[tcp.Seq] = length
		s.ahead += len(h.ahead)
	}
	return true
}

func (s *stream) ReassembledSG(sg reassembly.ScatterGather, ac reassembly.AssemblerContext) {
	h := s.halves[ac.(*packet).answer]
	s.ahead -= len(h.ahead)
	clear(h.ahead)
	if _, _, _, skipped := sg.Info(); skipped > 0 {
		s.Gaps++
		s.MissingBytes += int64(skipped)
		h.skip(skipped)
	}
	if length, _ := sg.Lengths(); length > 0 && s.err == nil {
		s.err = h.take(sg.Fetch(length), func(offset int) *packet { return sg.CaptureInfo(offset).AncillaryData[0].(*packet) })
	}
}

func (s *stream) ReassemblyComplete(reassembly.AssemblerContext) bool {
	s.open--
	for _, h := range s.halves {
		s.OtherBytes += int64(len(h.part))
		s.ahead -= len(h.ahead)
	}
	return true
}
