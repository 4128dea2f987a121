// Package netpair creates network namespaces, and pairs of them that virtual Ethernet connects, for tests and benchmarks that need
// two hosts with a cable between them.
//
// The namespaces have no names. Nothing is mounted and no link is added to the machine's own namespace, so nothing is left
// behind: the kernel removes a namespace, with all links in it, when the pair is closed and the last program in it has ended,
// also after a crash. The package requires root, but no other program.
//
// Only the network is separate: /sys shows the machine's devices.
package netpair

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Pair holds two network namespaces, each with its loopback up.
type Pair struct{ Client, Server *Namespace }

// Namespace is a network namespace with its loopback up. It exists until it is closed and no program or socket is in it.
type Namespace struct{ handle netns.NsHandle }

// Interface is one end of a cable.
type Interface struct {
	// Name is at most 15 characters long.
	Name string
	// Addresses are the addresses of the end, each with the prefix length of its subnet, such as 192.0.2.1/24. The list may be
	// empty.
	Addresses []string
}

// New creates two namespaces and a cable between them with these ends. The caller closes the pair.
func New(client, server Interface) (*Pair, error) {
	c, err := NewNamespace()
	if err != nil {
		return nil, err
	}
	s, err := NewNamespace()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	p := &Pair{Client: c, Server: s}
	if err := p.Join(client, server); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close releases the namespaces. Programs in them continue.
func (p *Pair) Close() error { return errors.Join(p.Client.Close(), p.Server.Close()) }

// Join adds a cable and sets both ends up. The kernel may take a second or two until it forwards IPv6 packets.
func (p *Pair) Join(client, server Interface) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = client.Name
	cable := &netlink.Veth{LinkAttrs: attrs, PeerName: server.Name, PeerNamespace: netlink.NsFd(int(p.Server.handle))}
	if err := p.Client.In(func() error { return netlink.LinkAdd(cable) }); err != nil {
		return fmt.Errorf("making a cable from %s to %s: %w", client.Name, server.Name, err)
	}
	return errors.Join(p.Client.In(client.start), p.Server.In(server.start))
}

// start gives an interface of the thread's namespace its addresses and sets it up.
func (i Interface) start() error {
	link, err := netlink.LinkByName(i.Name)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", i.Name, err)
	}
	for _, a := range i.Addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return fmt.Errorf("parsing an address of %s: %w", i.Name, err)
		}
		if addr.IP.To4() == nil {
			addr.Flags = unix.IFA_F_NODAD // without duplicate address detection, it can be used at once
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("giving %s the address %s: %w", i.Name, a, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("starting %s: %w", i.Name, err)
	}
	return nil
}

// In calls do in the namespace and returns its error. Sockets, programs and netlink calls of do belong to the namespace;
// goroutines that it starts do not. The files of the namespace are under /proc/thread-self/net, because /proc/net belongs to
// another thread. do may end its goroutine, as t.Fatal does.
func (n *Namespace) In(do func() error) error {
	return restoring(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return do()
	})
}

// Start starts a program in the namespace, as cmd.Start does elsewhere.
func (n *Namespace) Start(cmd *exec.Cmd) error { return n.In(cmd.Start) }

// Path returns a path of the namespace for other programs. It is valid until Close.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(n.handle)) }

// Attach moves an interface of the thread's namespace into n, gives it its addresses and sets it up.
func (n *Namespace) Attach(i Interface) error {
	link, err := netlink.LinkByName(i.Name)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", i.Name, err)
	}
	if err := netlink.LinkSetNsFd(link, int(n.handle)); err != nil {
		return fmt.Errorf("moving %s: %w", i.Name, err)
	}
	return n.In(i.start)
}

// Close releases the namespace. Programs in it continue.
func (n *Namespace) Close() error {
	if err := n.handle.Close(); err != nil {
		return fmt.Errorf("closing a network namespace: %w", err)
	}
	return nil
}

// NewNamespace creates a namespace. The caller closes it.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{}
	err := restoring(func() (err error) {
		n.handle, err = netns.New()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("making a network namespace, which takes root: %w", err)
	}
	if err := n.In(Interface{Name: "lo"}.start); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// restoring calls do, which may change the thread's network namespace, and restores the namespace.
func restoring(do func() error) (err error) {
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("looking for the thread's network namespace: %w", err)
	}
	defer func() {
		if back := netns.Set(before); back != nil {
			// The thread stays locked, so it ends with this goroutine, and no other goroutine runs in the wrong namespace.
			err = errors.Join(err, fmt.Errorf("leaving a network namespace: %w", back))
		} else {
			runtime.UnlockOSThread()
		}
		err = errors.Join(err, before.Close())
	}()
	return do()
}
