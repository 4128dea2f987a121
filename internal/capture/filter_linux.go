package capture

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// snapLength is how much of a packet is kept, in bytes from the IP header on: as much as fits into a slot of the ring. It
// covers the longest headers of IPv4 and TCP, or IPv6 and TCP with 68 bytes of headers between, and the name of the
// message.
const snapLength = 176

// filter returns the program with which the kernel selects the packets of t: packets between the two addresses, of the
// protocol, and not to or from the excepted port. Packets that do not show their ports (fragments, and IPv6 with further
// headers) are checked later.
//
// It reads packets from the IP header on, as a packet socket of type SOCK_DGRAM receives them.
func (t Traffic) filter() []unix.SockFilter {
	version, length, sourceAt := uint32(4<<4), 4, uint32(12)
	groupMask, group := uint32(0xf0000000), uint32(0xe0000000)
	if t.Server.Is6() {
		version, length, sourceAt = 6<<4, 16, 8
		groupMask, group = 0xff000000, 0xff000000
	}
	targetAt := sourceAt + uint32(length)
	server, client := t.Server.AsSlice()[:length], t.Client.AsSlice()[:length]
	var program []unix.SockFilter
	for _, way := range []struct {
		source, target []byte
		// serverPort is where the server's port is in the transport header.
		serverPort uint32
	}{{client, server, 2}, {server, client, 0}} {
		var b, target block
		b.load(unix.BPF_B, 0)
		b.op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xf0)
		b.need(version)
		b.address(sourceAt, way.source)
		target.address(targetAt, way.target)
		if t.Protocol == v1alpha1.ProtocolMulticast {
			b.load(unix.BPF_W, targetAt)
			b.op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, groupMask)
			b.jump(unix.BPF_JEQ, group, uint8(len(target)), 0)
		}
		b = append(b, target...)
		b.ports(t, way.serverPort)
		program = append(program, b.closed()...)
	}
	return append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K})
}

// block is a part of a program that accepts a packet, or else continues with the part after it.
type block []unix.SockFilter

// beyond is the distance of a jump to the end of a block until closed replaces it.
const beyond = 0xff

func (b *block) op(code uint16, k uint32) { *b = append(*b, unix.SockFilter{Code: code, K: k}) }

// load reads a number from the packet.
func (b *block) load(size uint16, at uint32) { b.op(unix.BPF_LD|unix.BPF_ABS|size, at) }

// jump skips instructions: yes if a comparison with the number that was loaded holds, otherwise no.
func (b *block) jump(comparison uint16, k uint32, yes, no uint8) {
	*b = append(*b, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | comparison, K: k, Jt: yes, Jf: no})
}

// need leaves the block unless the number that was loaded is k.
func (b *block) need(k uint32) { b.jump(unix.BPF_JEQ, k, 0, beyond) }

// accept accepts the packet if a comparison holds.
func (b *block) accept(comparison uint16, k uint32) {
	b.jump(comparison, k, 0, 1)
	b.op(unix.BPF_RET|unix.BPF_K, snapLength)
}

// address leaves the block unless the packet has an address.
func (b *block) address(at uint32, address []byte) {
	for i := 0; i < len(address); i += 4 {
		b.load(unix.BPF_W, at+uint32(i))
		b.need(binary.BigEndian.Uint32(address[i:]))
	}
}

// ports accepts a packet of the protocol, unless the server's port, at an offset in the transport header, is the excepted
// port.
func (b *block) ports(t Traffic, portAt uint32) {
	if t.Server.Is6() {
		b.load(unix.BPF_B, 6)
		for _, header := range []uint32{ipv6HopByHop, ipv6Routing, ipv6Fragment, ipv6Options} {
			b.accept(unix.BPF_JEQ, header)
		}
	} else {
		b.load(unix.BPF_B, 9)
	}
	b.need(uint32(t.transport()))
	if t.ExceptPort > 0 {
		if t.Server.Is6() {
			b.load(unix.BPF_H, ipv6Header+portAt)
		} else {
			b.load(unix.BPF_H, 6)
			b.accept(unix.BPF_JSET, ipv4FragmentOffset)
			// Load the length of the IP header into X.
			b.op(unix.BPF_LDX|unix.BPF_MSH|unix.BPF_B, 0)
			b.op(unix.BPF_LD|unix.BPF_IND|unix.BPF_H, portAt)
		}
		b.jump(unix.BPF_JEQ, uint32(t.ExceptPort), beyond, 0)
	}
	b.op(unix.BPF_RET|unix.BPF_K, snapLength)
}

// closed returns the instructions with the distances to their end.
func (b block) closed() block {
	for i := range b {
		for _, distance := range []*uint8{&b[i].Jt, &b[i].Jf} {
			if *distance == beyond {
				*distance = uint8(len(b) - i - 1)
			}
		}
	}
	return b
}
