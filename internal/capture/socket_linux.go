package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const (
	// slotSize is that of the ring's slots, in bytes: the kernel's header and snapLength.
	slotSize = 256
	// ringSize is the kernel's, in bytes: 2.8 s of 23,000 requests and replies a second.
	ringSize = 32 << 20
	slots    = ringSize / slotSize
	// blockSize is the size of the blocks in which the kernel allocates it, in bytes.
	blockSize = 256 << 10

	readEvery = 100 * time.Millisecond
)

// ErrNotPermitted is returned by Open where the capability is missing.
var ErrNotPermitted = errors.New("capturing packets needs the capability NET_RAW: " +
	"the operator must be started with --allow-packet-capture")

// Capture is a running capture. Keep the caller's process off the measuring CPU.
type Capture struct {
	socket  int
	ring    []byte
	slot    int // to be read next
	matcher *matcher
	dropped int64

	stop, stopped chan struct{}
	err           error // why reading ended early; valid once stopped is closed
}

// Open captures the traffic t on an interface of this network namespace. It passes each sample to
// record, in ns, in another goroutine, until Stop returns; if that returns an error, discard them.
func Open(ifname string, t Traffic, record func(ns int64)) (*Capture, error) {
	t.Server, t.Client = t.Server.Unmap().WithZone(""), t.Client.Unmap().WithZone("")
	switch {
	case t.Server == t.Client:
		return nil, fmt.Errorf("capturing needs two different addresses, and both ends have %s", t.Server)
	case t.MessageSize < 1:
		return nil, errors.New("capturing needs messages of at least 1 byte")
	}
	iface, err := net.InterfaceByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("capturing on %s: %w", ifname, err)
	}
	// Without a protocol it receives nothing until bound. SOCK_DGRAM: packets begin with IP.
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) {
		return nil, ErrNotPermitted
	} else if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	c := &Capture{socket: socket, matcher: newMatcher(t, record), stop: make(chan struct{}), stopped: make(chan struct{})}
	if err := c.prepare(iface.Index, t); err != nil {
		c.close()
		return nil, fmt.Errorf("capturing on %s: %w", ifname, err)
	}
	go c.read()
	return c, nil
}

// prepare sets up a ring with a slot a packet: version 3 needs a timer on the receiving CPU.
func (c *Capture) prepare(ifindex int, t Traffic) error {
	filter := t.filter()
	if err := unix.SetsockoptSockFprog(c.socket, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{
		Len: uint16(len(filter)), Filter: &filter[0],
	}); err != nil {
		return fmt.Errorf("setting the filter: %w", err)
	}
	// Otherwise, the time is taken when the packet reaches the ring, after RPS or veth.
	const software = unix.SOF_TIMESTAMPING_SOFTWARE
	for _, option := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_RX_SOFTWARE | software},
		{unix.SOL_PACKET, unix.PACKET_TIMESTAMP, software},
		{unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2},
	} {
		if err := unix.SetsockoptInt(c.socket, option.level, option.name, option.value); err != nil {
			return fmt.Errorf("requesting timestamps and a ring of version 2: %w", err)
		}
	}
	if err := unix.SetsockoptTpacketReq(c.socket, unix.SOL_PACKET, unix.PACKET_RX_RING, &unix.TpacketReq{
		Block_size: blockSize, Block_nr: ringSize / blockSize, Frame_size: slotSize, Frame_nr: slots,
	}); err != nil {
		return fmt.Errorf("allocating %d MiB for packets: %w", ringSize>>20, err)
	}
	var err error
	c.ring, err = unix.Mmap(c.socket, 0, ringSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("mapping the packets: %w", err)
	}
	// All protocols: the kernel does not show sent packets to a socket of one protocol.
	all := unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: ifindex}
	if err := unix.Bind(c.socket, &all); err != nil {
		return fmt.Errorf("beginning: %w", err)
	}
	return nil
}

func bigEndian(n uint16) uint16 {
	b := [2]byte{byte(n >> 8), byte(n)}
	return *(*uint16)(unsafe.Pointer(&b))
}

func (c *Capture) read() {
	defer close(c.stopped)
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for last := false; !last; {
		select {
		case <-tick.C:
		case <-c.stop:
			last = true
		}
		c.drain()
		// Reading the counters sets them to zero.
		s, err := unix.GetsockoptTpacketStats(c.socket, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			c.err = fmt.Errorf("reading how many packets were dropped: %w", err)
			return
		}
		c.dropped += int64(s.Drops)
	}
}

func (c *Capture) drain() {
	for range slots {
		slot := c.ring[c.slot*slotSize : (c.slot+1)*slotSize]
		h := (*unix.Tpacket2Hdr)(unsafe.Pointer(&slot[0]))
		status := atomic.LoadUint32(&h.Status)
		if status&unix.TP_STATUS_USER == 0 {
			return
		}
		link := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&slot[unix.SizeofTpacket2Hdr]))
		at := int64(h.Sec)*int64(time.Second) + int64(h.Nsec)
		begin := min(int(h.Net), slotSize)
		end := min(begin+int(h.Snaplen), slotSize)
		out, late := link.Pkttype == unix.PACKET_OUTGOING, status&unix.TP_STATUS_TS_SOFTWARE == 0
		c.matcher.packet(at, out, late, slot[begin:end], int(h.Len))
		atomic.StoreUint32(&h.Status, unix.TP_STATUS_KERNEL)
		c.slot = (c.slot + 1) % slots
	}
}

// Stop ends the capture; call it once. With an error, only the counts of Result hold.
func (c *Capture) Stop() (Result, error) {
	close(c.stop)
	<-c.stopped
	c.close()
	c.matcher.result.Drops = c.dropped
	result, err := c.matcher.finish()
	if c.err != nil {
		err = c.err
	}
	return result, err
}

func (c *Capture) close() {
	if c.ring != nil {
		_ = unix.Munmap(c.ring)
	}
	_ = unix.Close(c.socket)
}

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
