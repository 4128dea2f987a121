package localcluster

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// LongCable is a cable between the cards of the two nodes that delays each frame by the clock, so that the speed of the CPUs changes the
// latency less than with SlowCable, whose delay the CPU spends: with 1 ms, the minimum of rounds was 1.10 to 1.15 ms at a load of 40.
type LongCable struct {
	options Options
	delay   atomic.Int64
	sockets [2]int
	closed  atomic.Bool
	group   sync.WaitGroup
}

// frame is a frame with its virtio header, which carries the checksums and segments that the sender left to its card.
type frame struct {
	due  time.Time
	data []byte
}

// NewLongCable replaces the cable by one with a delay. Close restores the cable, and so does Up.
func NewLongCable(o Options, delay time.Duration) (*LongCable, error) {
	fabric, bridge, err := openFabric(o)
	if err != nil {
		return nil, err
	}
	defer fabric.close()
	far, err := ensureBridge(fabric, "longcable", fabricMTU)
	if err != nil {
		return nil, err
	}
	c := &LongCable{options: o}
	c.SetDelay(delay)
	for i, bridge := range []netlink.Link{bridge, far} {
		port := fmt.Sprintf("long%d", i)
		if err := ensureVeth(fabric, bridge, port, fabric, port+"-end", fabricMTU, ""); err != nil {
			return nil, err
		}
		end, err := fabric.LinkByName(port + "-end")
		if err == nil {
			err = errors.Join(fabric.LinkSetUp(end), fabric.SetPromiscOn(end))
		}
		if err != nil {
			return nil, fmt.Errorf("starting the end of a long cable: %w", err)
		}
		if err := thread.Run(func() (err error) {
			if err := netns.Set(fabric.ns); err != nil {
				return err // The thread ends, and with it its namespace.
			}
			c.sockets[i], err = frames(end.Attrs().Index)
			return err
		}); err != nil {
			return nil, fmt.Errorf("opening the end of a long cable: %w", err)
		}
	}
	for i := range c.sockets {
		c.carry(c.sockets[i], c.sockets[1-i])
	}
	return c, plugInFarNode(o, fabric, far)
}

// SetDelay sets the delay of frames that the cable receives from now on.
func (c *LongCable) SetDelay(d time.Duration) { c.delay.Store(int64(d)) }

// Close restores the cable that was there before.
func (c *LongCable) Close() error {
	err := RestoreCable(c.options)
	c.closed.Store(true)
	c.group.Wait()
	for _, socket := range c.sockets {
		err = errors.Join(err, unix.Close(socket))
	}
	return err
}

// carry takes frames from one end to the other until the cable is closed. It waits in threads of its own, because the runtime's
// timers are as coarse as a millisecond.
func (c *LongCable) carry(from, to int) {
	queue := make(chan frame, 4096)
	c.group.Go(func() {
		defer close(queue)
		buffer := make([]byte, 1<<17)
		for !c.closed.Load() {
			n, err := unix.Read(from, buffer)
			if err != nil {
				continue // It is the end of a wait, or an interruption.
			}
			select {
			case queue <- frame{time.Now().Add(time.Duration(c.delay.Load())), bytes.Clone(buffer[:n])}:
			default: // As in a switch, what finds no room is lost.
			}
		}
	})
	c.group.Go(func() {
		runtime.LockOSThread()
		for f := range queue {
			if wait := unix.NsecToTimespec(int64(time.Until(f.due))); wait.Nano() > 0 {
				_ = unix.Nanosleep(&wait, nil)
			}
			_, _ = unix.Write(to, f.data) // A card that is gone receives nothing.
		}
	})
}

// frames returns a socket that receives all frames which arrive at an interface of the thread's namespace, and sends frames from it.
func frames(index int) (socket int, err error) {
	if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	const allProtocols = unix.ETH_P_ALL << 8 // in network byte order
	if err := errors.Join(
		unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
		unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: allProtocols, Ifindex: index}),
	); err != nil {
		return 0, errors.Join(err, unix.Close(socket))
	}
	return socket, nil
}
