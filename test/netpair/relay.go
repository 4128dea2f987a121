package netpair

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// NewRelayed creates two namespaces and a path between them with these ends, over a third one. For each frame, copies says how
// often it is delivered, and whether it goes to the client; it is called by two goroutines. The caller closes pair and path.
func NewRelayed(client, server Interface, copies func(toClient bool, frame []byte) int) (*Pair, io.Closer, error) {
	var p Pair
	var relay *Namespace
	for _, n := range []**Namespace{&p.Client, &p.Server, &relay} {
		var err error
		if *n, err = NewNamespace(); err != nil {
			return nil, nil, err
		}
	}
	defer relay.Close()
	left, right := Interface{Name: "left"}, Interface{Name: "right"}
	if err := errors.Join((&Pair{p.Client, relay}).Join(client, left), (&Pair{relay, p.Server}).Join(right, server)); err != nil {
		return nil, nil, err
	}
	var path path
	err := relay.In(func() error {
		for i, end := range []Interface{left, right} {
			socket, err := end.frames()
			if err != nil {
				return fmt.Errorf("opening %s: %w", end.Name, err)
			}
			path[i] = socket
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	go path.carry(0, 1, func(frame []byte) int { return copies(false, frame) })
	go path.carry(1, 0, func(frame []byte) int { return copies(true, frame) })
	return &p, &path, nil
}

// path has the sockets at the ends of two cables.
type path [2]*os.File

func (p *path) Close() error { return errors.Join(p[0].Close(), p[1].Close()) }

// offloads is the length of the header in which the kernel passes on what is left to the device, such as checksums.
const offloads = 10

func (p *path) carry(from, to int, copies func([]byte) int) {
	buffer := make([]byte, 128<<10)
	for {
		n, err := p[from].Read(buffer)
		if err != nil {
			return
		}
		for range copies(buffer[offloads:n]) {
			if _, err := p[to].Write(buffer[:n]); err != nil {
				break // a full queue loses a frame, as a switch does
			}
		}
	}
}

// frames returns a socket for all frames that arrive at an interface, and for those to be sent there.
func (i Interface) frames() (*os.File, error) {
	link, err := net.InterfaceByName(i.Name)
	if err != nil {
		return nil, err
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	const everything = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00 // in network byte order
	if err := errors.Join(
		unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: link.Index}),
	); err != nil {
		return nil, errors.Join(err, unix.Close(socket))
	}
	return os.NewFile(uintptr(socket), i.Name), nil
}
