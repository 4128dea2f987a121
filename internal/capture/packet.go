package capture

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
)

type packet struct {
	// at is its time, in ns since 1970.
	at             int64
	out            bool
	source, target netip.Addr
	protocol       uint8
	// fragment is nil for a whole datagram. Only the first has ports and a payload.
	fragment               *fragment
	sourcePort, targetPort uint16
	// payload is the number of bytes of the TCP segment, or of the whole UDP datagram.
	payload int
	// head is the beginning of the payload, as far as it was captured.
	head []byte
	// sequence and flags are TCP's.
	sequence uint32
	flags    uint8
}

type fragment struct {
	id uint32
	// offset and length are in the fragmented data with UDP's header, in bytes.
	offset, length int
	more           bool
}

const (
	ipTCP = 6
	ipUDP = 17
	// The headers that may come between the IPv6 header and the payload.
	ipv6HopByHop, ipv6Routing, ipv6Fragment, ipv6Options = 0, 43, 44, 60
	mostIPv6Headers                                      = 8

	ipv4Header, ipv6Header, ipv6FragmentHeader, tcpHeader, udpHeader = 20, 40, 8, 20, 8

	// Offsets count in 8 bytes; IPv6's are three bits further up: masked, in bytes.
	ipv4MoreFragments, ipv4FragmentOffset, ipv6FragmentOffset = 0x2000, 0x1fff, 0xfff8

	tcpFIN, tcpSYN, tcpRST, tcpACK = 1, 2, 4, 16
)

var (
	errTruncated = errors.New("the headers are not complete")
	// errForeign: neither TCP nor UDP over IP, or contradictory headers.
	errForeign = errors.New("neither TCP nor UDP")
)

// parse reads an IP packet: b is the captured part, and wire its length in bytes, padding included.
func parse(b []byte, wire int) (packet, error) {
	if len(b) == 0 {
		return packet{}, errTruncated
	}
	switch b[0] >> 4 {
	case 4:
		return parseIPv4(b, wire)
	case 6:
		return parseIPv6(b, wire)
	}
	return packet{}, errForeign
}

func parseIPv4(b []byte, wire int) (packet, error) {
	if len(b) < ipv4Header {
		return packet{}, errTruncated
	}
	header, total := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
	if total == 0 {
		total = wire // joined by the kernel to more than the field can hold
	}
	if header < ipv4Header || total < header || total > wire {
		return packet{}, errForeign
	}
	if len(b) < header {
		return packet{}, errTruncated
	}
	p := packet{
		source: netip.AddrFrom4([4]byte(b[12:16])), target: netip.AddrFrom4([4]byte(b[16:20])), protocol: b[9],
	}
	if word := binary.BigEndian.Uint16(b[6:]); word&(ipv4MoreFragments|ipv4FragmentOffset) != 0 {
		p.fragment = &fragment{
			id: uint32(binary.BigEndian.Uint16(b[4:])), offset: int(word&ipv4FragmentOffset) * 8, length: total - header,
			more: word&ipv4MoreFragments != 0,
		}
	}
	return parseTransport(p, b[header:], total-header)
}

func parseIPv6(b []byte, wire int) (packet, error) {
	if len(b) < ipv6Header {
		return packet{}, errTruncated
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length == 0 {
		length = wire - ipv6Header // as above
	}
	if length < 0 || length > wire-ipv6Header {
		return packet{}, errForeign
	}
	p := packet{
		source: netip.AddrFrom16([16]byte(b[8:24])), target: netip.AddrFrom16([16]byte(b[24:40])), protocol: b[6],
	}
	rest := b[ipv6Header:]
	for range mostIPv6Headers {
		var header int
		switch p.protocol {
		case ipv6HopByHop, ipv6Routing, ipv6Options:
			if len(rest) < 2 {
				return packet{}, errTruncated
			}
			header = (int(rest[1]) + 1) * 8
		case ipv6Fragment:
			if len(rest) < ipv6FragmentHeader {
				return packet{}, errTruncated
			}
			header = ipv6FragmentHeader
			word := binary.BigEndian.Uint16(rest[2:])
			p.fragment = &fragment{
				id: binary.BigEndian.Uint32(rest[4:]), offset: int(word & ipv6FragmentOffset), more: word&1 != 0,
			}
		default:
			return parseTransport(p, rest, length)
		}
		if header > length {
			return packet{}, errForeign
		}
		if header > len(rest) {
			return packet{}, errTruncated
		}
		p.protocol = rest[0]
		rest, length = rest[header:], length-header
		if p.fragment != nil {
			p.fragment.length = length
			if p.fragment.offset > 0 {
				return parseTransport(p, rest, length)
			}
		}
	}
	return packet{}, errForeign
}

func parseTransport(p packet, b []byte, length int) (packet, error) {
	b = b[:min(len(b), length)]
	switch {
	case p.protocol != ipTCP && p.protocol != ipUDP:
		return packet{}, errForeign
	case p.fragment != nil && p.protocol == ipTCP:
		return packet{}, errForeign // TCP cuts its segments so that IP need not
	case p.fragment != nil && p.fragment.offset > 0:
		return p, nil
	case p.protocol == ipTCP:
		return parseTCP(p, b, length)
	default:
		return parseUDP(p, b, length)
	}
}

func parseTCP(p packet, b []byte, length int) (packet, error) {
	if length < tcpHeader {
		return packet{}, errForeign
	}
	if len(b) < tcpHeader {
		return packet{}, errTruncated
	}
	header := int(b[12]>>4) * 4
	if header < tcpHeader || header > length {
		return packet{}, errForeign
	}
	p.sourcePort, p.targetPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	p.sequence, p.flags = binary.BigEndian.Uint32(b[4:]), b[13]
	p.payload, p.head = length-header, b[min(header, len(b)):]
	return p, nil
}

func parseUDP(p packet, b []byte, length int) (packet, error) {
	if length < udpHeader {
		return packet{}, errForeign
	}
	if len(b) < udpHeader {
		return packet{}, errTruncated
	}
	datagram := int(binary.BigEndian.Uint16(b[4:]))
	if datagram < udpHeader || (p.fragment == nil && datagram > length) || (p.fragment != nil && datagram < length) {
		return packet{}, errForeign
	}
	p.sourcePort, p.targetPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	p.payload = datagram - udpHeader
	p.head = b[udpHeader:min(len(b), datagram)]
	return p, nil
}

// fragments reassembles datagrams, as many as may be in flight; an incomplete one makes room.
type fragments struct {
	partial [16]datagram
	next    int
}

type datagram struct {
	id uint32
	// offsets are the offsets of the fragments that have arrived, and bytes is their total length.
	offsets []int
	bytes   int
	// first is the first fragment, whose head is kept in name.
	first    packet
	hasFirst bool
	name     [8]byte
}

// join returns the datagram that a fragment completes, with its time; OUT counts the first.
func (f *fragments) join(p packet) (packet, bool) {
	if p.out {
		return p, p.fragment.offset == 0
	}
	d := f.find(p.fragment.id)
	if slices.Contains(d.offsets, p.fragment.offset) {
		return packet{}, false // it came twice
	}
	d.offsets = append(d.offsets, p.fragment.offset)
	d.bytes += p.fragment.length
	if p.fragment.offset == 0 {
		d.first, d.hasFirst = p, true
		d.first.head = d.name[:copy(d.name[:], p.head)]
	}
	if !d.hasFirst || d.bytes < udpHeader+d.first.payload {
		return packet{}, false
	}
	whole := d.first
	whole.at = p.at
	d.offsets = d.offsets[:0]
	return whole, true
}

func (f *fragments) find(id uint32) *datagram {
	for i := range f.partial {
		if d := &f.partial[i]; d.id == id && len(d.offsets) > 0 {
			return d
		}
	}
	d := &f.partial[f.next]
	f.next = (f.next + 1) % len(f.partial)
	*d = datagram{id: id, offsets: d.offsets[:0]}
	return d
}
