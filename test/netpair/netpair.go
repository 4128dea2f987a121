// Package netpair makes a pair of network namespaces that virtual Ethernet joins, for tests and benchmarks that need two
// hosts with a cable between them.
//
// The namespaces have no names. Nothing is mounted and no link is added to the machine's own, so nothing is left behind:
// the kernel removes a namespace, with all links in it, when the pair is closed and the last program in it has ended, also
// after a crash. It takes root, and no other program.
//
// Only the network is apart: what /sys shows is the machine's.
package netpair

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Pair is two network namespaces, each with its loopback up.
type Pair struct{ Client, Server *Namespace }

// Namespace is a network namespace that lasts as long as its pair is open, or a program or socket is in it.
type Namespace struct{ handle netns.NsHandle }

// Interface is one end of a cable.
type Interface struct {
	// Name is at most 15 characters long.
	Name string
	// Addresses are those of the end, each with the prefix length of its subnet, such as 192.0.2.1/24. They may be none.
	Addresses []string
}

// New makes two namespaces with a cable between them, of which these are the ends. The caller closes the pair.
func New(client, server Interface) (*Pair, error) {
	c, err := newNamespace()
	if err != nil {
		return nil, err
	}
	s, err := newNamespace()
	if err != nil {
		return nil, errors.Join(err, c.handle.Close())
	}
	p := &Pair{Client: c, Server: s}
	if err := p.Join(client, server); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close lets go of the namespaces. Programs in them go on.
func (p *Pair) Close() error {
	if err := errors.Join(p.Client.handle.Close(), p.Server.handle.Close()); err != nil {
		return fmt.Errorf("closing a network namespace: %w", err)
	}
	return nil
}

// Join adds a cable and sets both its ends up. The kernel may take a second or two until it passes IPv6.
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
			addr.Flags = unix.IFA_F_NODAD // without looking for duplicates, it can be used at once
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

// In calls do in the namespace and returns its error. Sockets made there, programs started there and calls of package
// netlink belong to the namespace; goroutines started there do not. Files of the namespace are under
// /proc/thread-self/net: /proc/net is another thread's. Do may end its goroutine, as t.Fatal does.
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

func newNamespace() (*Namespace, error) {
	n := &Namespace{}
	err := restoring(func() (err error) {
		n.handle, err = netns.New()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("making a network namespace, which takes root: %w", err)
	}
	if err := n.In(Interface{Name: "lo"}.start); err != nil {
		return nil, errors.Join(err, n.handle.Close())
	}
	return n, nil
}

// restoring calls do, which may change the thread's network namespace, and brings the thread back.
func restoring(do func() error) (err error) {
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("looking for the thread's network namespace: %w", err)
	}
	defer func() {
		if back := netns.Set(before); back != nil {
			// Still locked, the thread ends with this goroutine, and no other gets into the wrong namespace.
			err = errors.Join(err, fmt.Errorf("leaving a network namespace: %w", back))
		} else {
			runtime.UnlockOSThread()
		}
		err = errors.Join(err, before.Close())
	}()
	return do()
}
