package netpair

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// proxyPort is where the proxy of a namespace listens, and proxyMark marks what it sends.
const (
	proxyPort = 15001
	proxyMark = 0x539
)

// Of returns the network namespace of a process. The caller closes it.
func Of(pid int) (*Namespace, error) {
	handle, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, fmt.Errorf("opening the network namespace of process %d: %w", pid, err)
	}
	return &Namespace{handle}, nil
}

// Redirect makes a proxy in the namespace take over all TCP connections over IPv4 to a port, from and to the namespace, as meshes
// without sidecars do. The connections go on until the process ends; new ones are refused when the caller closes the proxy.
func (n *Namespace) Redirect(port uint16) (io.Closer, error) {
	var listener net.Listener
	err := n.In(func() (err error) {
		listener, err = net.Listen("tcp4", fmt.Sprintf(":%d", proxyPort))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("starting the proxy: %w", err)
	}
	if err := n.redirect(port); err != nil {
		return nil, errors.Join(fmt.Errorf("redirecting port %d: %w", port, err), listener.Close())
	}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go n.forward(from.(*net.TCPConn))
		}
	}()
	return listener, nil
}

// redirect adds the rules to the namespace.
func (n *Namespace) redirect(port uint16) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(n.handle)))
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "mesh"})
	for name, hook := range map[string]*nftables.ChainHook{"arriving": nftables.ChainHookPrerouting, "leaving": nftables.ChainHookOutput} {
		chain := c.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: nftables.ChainPriorityNATDest})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(proxyMark)},
			&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(proxyPort)},
			&expr.Redir{RegisterProtoMin: 1},
		}})
	}
	return c.Flush()
}

// forward connects to where a connection was meant to go, and copies both ways until one end closes.
func (n *Namespace) forward(from *net.TCPConn) {
	defer func() { _ = from.Close() }()
	var to net.Conn
	err := n.In(func() error {
		address, err := original(from)
		if err != nil {
			return err
		}
		dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, proxyMark) })
			return errors.Join(err, failed)
		}}
		to, err = dialer.Dial("tcp4", address)
		return err
	})
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(way[1], struct{ io.Reader }{way[0]}) // read and written, not spliced
			done <- struct{}{}
		}()
	}
	<-done
}

// original returns the address to which a redirected connection was made.
func original(c *net.TCPConn) (address string, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return "", err
	}
	var found *unix.IPv6Mreq
	err = errors.Join(raw.Control(func(fd uintptr) {
		// The kernel returns a sockaddr_in, which fits into this type.
		found, err = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST)
	}), err)
	if err != nil {
		return "", err
	}
	a := found.Multiaddr
	return fmt.Sprintf("%d.%d.%d.%d:%d", a[4], a[5], a[6], a[7], binary.BigEndian.Uint16(a[2:4])), nil
}
