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
	a := assembler{labels: map[string]int{}}
	version, length, protocol := uint32(4<<4), 4, uint32(9)
	sourceAt, targetAt := uint32(12), uint32(16)
	groupMask, group := uint32(0xf0000000), uint32(0xe0000000)
	if t.Server.Is6() {
		version, length, protocol = 6<<4, 16, 6
		sourceAt, targetAt = 8, 24
		groupMask, group = 0xff000000, 0xff000000
	}
	a.load(unix.BPF_B, 0)
	a.op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xf0)
	a.unless(unix.BPF_JEQ, version, "drop")

	server, client := t.Server.AsSlice()[:length], t.Client.AsSlice()[:length]
	a.address(sourceAt, client, "from another")
	a.address(targetAt, server, "to another")
	a.jump("in")
	a.label("to another")
	a.ifGroup(t, targetAt, groupMask, group)
	a.label("in")
	a.ports(t, protocol, 2)

	a.label("from another")
	a.address(sourceAt, server, "drop")
	a.address(targetAt, client, "from server to another")
	a.jump("out")
	a.label("from server to another")
	a.ifGroup(t, targetAt, groupMask, group)
	a.label("out")
	a.ports(t, protocol, 0)

	a.label("drop")
	a.op(unix.BPF_RET|unix.BPF_K, 0)
	a.label("accept")
	a.op(unix.BPF_RET|unix.BPF_K, snapLength)
	return a.program()
}

// assembler writes a classic BPF program, with labels instead of distances.
type assembler struct {
	code []instruction
	// labels maps labels to the instructions that they name.
	labels map[string]int
}

// instruction jumps to yes or to no, or continues if these are empty.
type instruction struct {
	code    uint16
	k       uint32
	yes, no string
}

func (a *assembler) op(code uint16, k uint32) {
	a.code = append(a.code, instruction{code: code, k: k})
}

// load reads a number from the packet.
func (a *assembler) load(size uint16, at uint32) { a.op(unix.BPF_LD|unix.BPF_ABS|size, at) }

// when jumps if a comparison with the number that was loaded holds, unless jumps if it does not.
func (a *assembler) when(comparison uint16, k uint32, label string) {
	a.code = append(a.code, instruction{code: unix.BPF_JMP | unix.BPF_K | comparison, k: k, yes: label})
}

func (a *assembler) unless(comparison uint16, k uint32, label string) {
	a.code = append(a.code, instruction{code: unix.BPF_JMP | unix.BPF_K | comparison, k: k, no: label})
}

func (a *assembler) jump(label string) {
	a.code = append(a.code, instruction{code: unix.BPF_JMP | unix.BPF_JA, yes: label})
}

func (a *assembler) label(name string) { a.labels[name] = len(a.code) }

// address jumps elsewhere unless the packet has an address.
func (a *assembler) address(at uint32, address []byte, elsewhere string) {
	for i := 0; i < len(address); i += 4 {
		a.load(unix.BPF_W, at+uint32(i))
		a.unless(unix.BPF_JEQ, binary.BigEndian.Uint32(address[i:]), elsewhere)
	}
}

// ifGroup drops the packet unless it goes to a multicast group and the traffic is multicast.
func (a *assembler) ifGroup(t Traffic, targetAt, mask, group uint32) {
	if t.Protocol != v1alpha1.ProtocolMulticast {
		a.jump("drop")
		return
	}
	a.load(unix.BPF_W, targetAt)
	a.op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask)
	a.unless(unix.BPF_JEQ, group, "drop")
}

// ports accepts a packet of the protocol, unless the server's port, at an offset in the transport header, is the excepted
// port.
func (a *assembler) ports(t Traffic, protocolAt, portAt uint32) {
	a.load(unix.BPF_B, protocolAt)
	if t.Server.Is6() {
		for _, header := range []uint32{ipv6HopByHop, ipv6Routing, ipv6Fragment, ipv6Options} {
			a.when(unix.BPF_JEQ, header, "accept")
		}
	}
	a.unless(unix.BPF_JEQ, uint32(t.transport()), "drop")
	if t.ExceptPort == 0 {
		a.jump("accept")
		return
	}
	if t.Server.Is6() {
		a.load(unix.BPF_H, ipv6Header+portAt)
	} else {
		a.load(unix.BPF_H, 6)
		a.when(unix.BPF_JSET, ipv4FragmentOffset, "accept")
		// Load the length of the IP header into X.
		a.op(unix.BPF_LDX|unix.BPF_MSH|unix.BPF_B, 0)
		a.op(unix.BPF_LD|unix.BPF_IND|unix.BPF_H, portAt)
	}
	a.when(unix.BPF_JEQ, uint32(t.ExceptPort), "drop")
	a.jump("accept")
}

// program replaces the labels with distances.
func (a *assembler) program() []unix.SockFilter {
	program := make([]unix.SockFilter, 0, len(a.code))
	for i, in := range a.code {
		distance := func(label string) int {
			if label == "" {
				return 0
			}
			return a.labels[label] - i - 1
		}
		f := unix.SockFilter{Code: in.code, K: in.k}
		if in.code == unix.BPF_JMP|unix.BPF_JA {
			f.K = uint32(distance(in.yes))
		} else {
			f.Jt, f.Jf = uint8(distance(in.yes)), uint8(distance(in.no))
		}
		program = append(program, f)
	}
	return program
}
