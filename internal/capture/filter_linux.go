package capture

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// snapLength is how much of a packet is kept from the IP header on, in bytes: a slot of the ring.
// It covers the longest headers of IPv4 and TCP, or 68 bytes between IPv6 and TCP, and the name.
const snapLength = 176

// comparison compares the masked bytes at an offset from the IP header on.
type comparison struct {
	size     uint16
	at       int
	mask, is uint32
}

// filter returns the program with which the kernel selects the packets between the two addresses,
// over IPv4 of the protocol, from the IP header on. The matcher checks the rest.
func (t Traffic) filter() []unix.SockFilter {
	const all = 0xffffffff
	version := []comparison{{unix.BPF_B, 0, 0xf0, 4 << 4}, {unix.BPF_B, 9, all, uint32(t.transport())}}
	sourceAt, group := 12, comparison{unix.BPF_W, 16, 0xf0000000, 0xe0000000}
	if t.Server.Is6() {
		version, sourceAt, group = []comparison{{unix.BPF_B, 0, 0xf0, 6 << 4}}, 8, comparison{unix.BPF_B, 24, all, 0xff}
	}
	address := func(at int, address []byte) (words []comparison) {
		for i := 0; i < len(address); i += 4 {
			words = append(words, comparison{unix.BPF_W, at + i, all, binary.BigEndian.Uint32(address[i:])})
		}
		return words
	}
	server, client := t.Server.AsSlice(), t.Client.AsSlice()
	targetAt := sourceAt + len(server)
	ways := [][]comparison{
		append(address(sourceAt, client), address(targetAt, server)...), append(address(sourceAt, server), address(targetAt, client)...),
	}
	if t.Protocol == v1alpha1.ProtocolMulticast {
		ways = append(ways, append(address(sourceAt, client), group), append(address(sourceAt, server), group))
	}
	var program []unix.SockFilter
	for _, way := range ways {
		var block []unix.SockFilter
		for _, c := range append(version[:len(version):len(version)], way...) {
			block = append(block, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_ABS | c.size, K: uint32(c.at)},
				unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.mask},
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: c.is})
		}
		block = append(block, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: snapLength})
		for i := range block {
			if block[i].Code == unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K {
				block[i].Jf = uint8(len(block) - 1 - i) // to the next way
			}
		}
		program = append(program, block...)
	}
	return append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K})
}
