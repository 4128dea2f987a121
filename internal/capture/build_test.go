package capture

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

var (
	clientAddr = netip.MustParseAddr("10.67.1.1")
	serverAddr = netip.MustParseAddr("10.67.1.2")
	client6    = netip.MustParseAddr("fd67::1")
	server6    = netip.MustParseAddr("fd67::2")
	group      = netip.MustParseAddr("239.255.77.71")
)

// between returns the traffic of a test, between the two ends.
func between(protocol v1alpha1.Protocol, size int) Traffic {
	return Traffic{Server: serverAddr, Client: clientAddr, Protocol: protocol, MessageSize: size}
}

// ip puts an IPv4 or IPv6 header before a payload. If the payload is too long for the length field, the length is 0, as in
// a packet that the kernel has joined.
func ip(source, target netip.Addr, protocol uint8, payload []byte) []byte {
	if source.Is6() {
		b := make([]byte, ipv6Header, ipv6Header+len(payload))
		b[0], b[6], b[7] = 0x60, protocol, 64
		binary.BigEndian.PutUint16(b[4:], length16(len(payload)))
		copy(b[8:], source.AsSlice())
		copy(b[24:], target.AsSlice())
		return append(b, payload...)
	}
	b := make([]byte, ipv4Header, ipv4Header+len(payload))
	b[0], b[8], b[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(b[2:], length16(ipv4Header+len(payload)))
	copy(b[12:], source.AsSlice())
	copy(b[16:], target.AsSlice())
	return append(b, payload...)
}

func length16(n int) uint16 {
	if n > 0xffff {
		return 0
	}
	return uint16(n)
}

func udp(from, to uint16, payload []byte) []byte {
	b := make([]byte, udpHeader, udpHeader+len(payload))
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint16(b[4:], uint16(udpHeader+len(payload)))
	return append(b, payload...)
}

func tcp(from, to uint16, sequence uint32, flags uint8, payload []byte) []byte {
	b := make([]byte, tcpHeader+12, tcpHeader+12+len(payload)) // with the timestamps option
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint32(b[4:], sequence)
	b[12], b[13] = 8<<4, flags
	return append(b, payload...)
}

// pipe feeds a matcher as a capture does.
type pipe struct {
	*matcher
	samples []int64
	// clientPort and serverPort are the ports of the packets that follow.
	clientPort, serverPort uint16
	// startIn and startOut are the sequence numbers of the two SYNs.
	startIn, startOut uint32
}

func newPipe(t Traffic) *pipe {
	p := &pipe{clientPort: 40000, serverPort: 22048, startIn: 0xffff_fff0, startOut: 0x7fff_fff0}
	p.matcher = newMatcher(t, func(ns int64) { p.samples = append(p.samples, ns) })
	return p
}

// put passes a packet to the matcher; only the first snapLength bytes of it were captured.
func (p *pipe) put(at int64, out bool, b []byte) {
	p.packet(at, out, false, b[:min(len(b), snapLength)], len(b))
}

func (p *pipe) udp(at int64, out bool, payload []byte) {
	if out {
		p.put(at, out, ip(p.Server, p.Client, ipUDP, udp(p.serverPort, p.clientPort, payload)))
		return
	}
	p.put(at, out, ip(p.Client, p.Server, ipUDP, udp(p.clientPort, p.serverPort, payload)))
}

// tcp sends a piece of a stream that begins at a position.
func (p *pipe) tcp(at int64, out bool, position int, payload []byte) {
	if out {
		segment := tcp(p.serverPort, p.clientPort, p.startOut+1+uint32(position), tcpACK, payload)
		p.put(at, out, ip(p.Server, p.Client, ipTCP, segment))
		return
	}
	segment := tcp(p.clientPort, p.serverPort, p.startIn+1+uint32(position), tcpACK, payload)
	p.put(at, out, ip(p.Client, p.Server, ipTCP, segment))
}

func (p *pipe) handshake(at int64) {
	p.put(at, false, ip(p.Client, p.Server, ipTCP, tcp(p.clientPort, p.serverPort, p.startIn, tcpSYN, nil)))
	p.put(at, true, ip(p.Server, p.Client, ipTCP, tcp(p.serverPort, p.clientPort, p.startOut, tcpSYN|tcpACK, nil)))
}

// message returns the n-th message, as the pinger numbers them.
func message(n, size int) []byte {
	b := make([]byte, size)
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], uint64(n))
	copy(b, number[:])
	return b
}

// cut returns a packet with a fragment of a UDP datagram that begins at an offset in it.
func cut(source, target netip.Addr, id uint32, part []byte, offset int, more bool) []byte {
	if source.Is6() {
		header := []byte{ipUDP, 0, byte(offset >> 8), byte(offset), 0, 0, 0, 0}
		if more {
			header[3] |= 1
		}
		binary.BigEndian.PutUint32(header[4:], id)
		return ip(source, target, ipv6Fragment, append(header, part...))
	}
	b := ip(source, target, ipUDP, part)
	binary.BigEndian.PutUint16(b[4:], uint16(id))
	word := uint16(offset / 8)
	if more {
		word |= ipv4MoreFragments
	}
	binary.BigEndian.PutUint16(b[6:], word)
	return b
}

// putSequence replaces the sequence number in a packet of TCP over IPv4.
func putSequence(b []byte, sequence uint32) { binary.BigEndian.PutUint32(b[ipv4Header+4:], sequence) }

// plain returns a segment without options, as with net.ipv4.tcp_timestamps=0.
func plain(segment []byte) []byte {
	b := append(slices.Clone(segment[:tcpHeader]), segment[tcpHeader+12:]...)
	b[12] = 5 << 4
	return b
}
