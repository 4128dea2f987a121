package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

const (
	// reachTimeout bounds a try, reachAgain the wait for a datagram, which may be lost.
	reachTimeout, reachAgain = 5 * time.Second, time.Second
	smallDatagram            = 64    // fits any path
	maxDatagram              = 65507 // the largest payload of UDP
)

func (i Inspector) endpoint() *endpoint {
	return &endpoint{Agent: &Agent{Task: plan.Task{Interface: i.Interface}, PodIP: i.PodIP, Root: i.Root}}
}

// Answer accepts connections to a benchmark's ports and returns datagrams, until ctx ends.
func (i Inspector) Answer(ctx context.Context) error {
	e := i.endpoint()
	iface, address, err := e.ownAddress(ctx)
	if err != nil {
		return err
	}
	e.iface = iface
	control, err := e.listen(ctx, address)
	if err != nil {
		return err
	}
	host := net.JoinHostPort(address.String(), strconv.Itoa(plan.ToolPort))
	config := net.ListenConfig{Control: whole}
	data, err := net.Listen("tcp", host)
	if err != nil {
		return err
	}
	datagrams, err := config.ListenPacket(ctx, "udp", host)
	if err != nil {
		return err
	}
	for _, c := range []io.Closer{control, data, datagrams} {
		defer c.Close()
		context.AfterFunc(ctx, func() { c.Close() })
	}
	for _, l := range []net.Listener{control, data} {
		go func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				conn.Close()
			}
		}()
	}
	message := make([]byte, maxDatagram)
	for {
		n, from, err := datagrams.ReadFrom(message)
		switch {
		case ctx.Err() != nil:
			return nil // the end of ctx closes the socket
		case err != nil:
			return err
		}
		// If it cannot be returned, the client reports that it got no answer.
		_, _ = datagrams.WriteTo(message[:n], from)
	}
}

// reach tries what a benchmark needs between this pod and the peer, another pod that answers.
func (i Inspector) reach(ctx context.Context) *result.Reach {
	server, e := net.ParseIP(i.Peer), i.endpoint()
	iface, from, err := e.ownAddress(ctx)
	if i.Interface != "" {
		iface, from, err = e.addressOn(ctx, "address from which to reach "+i.Peer, func(all []net.Addr) net.IP { return towards(server, all) })
		if err == nil && from.Equal(server) && !from.IsLoopback() {
			err = fmt.Errorf("both ends have the address %s", server)
		} else if err == nil {
			err = leavesBy(iface, from, server)
		}
	}
	if err != nil {
		return &result.Reach{Route: line(err.Error(), maxValue)}
	}
	size := min(iface.MTU-28, maxDatagram) // without the headers of IPv4 and UDP
	if server.To4() == nil {
		size = min(iface.MTU-48, maxDatagram)
	}
	said := func(err error) string {
		if err == nil {
			return ""
		}
		return line(err.Error(), maxValue)
	}
	r := &result.Reach{Bytes: size, Control: said(connects(from, i.Peer, plan.ControlPort)), Data: said(connects(from, i.Peer, plan.ToolPort))}
	if err := returns(from, i.Peer, size); err != nil {
		small := "one of 64 bytes does"
		if returns(from, i.Peer, smallDatagram) != nil {
			small = "nor does one of 64 bytes"
		}
		r.Datagram = said(fmt.Errorf("a datagram of %d bytes does not return, %s: %w", size, small, err))
	}
	return r
}

func connects(from net.IP, peer string, port int) error {
	// A try that begins late has as much time as the others: "refused" says more than "timeout".
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: reachTimeout}
	for end := time.Now().Add(reachTimeout); ; time.Sleep(dialAgain) {
		conn, err := dialer.Dial("tcp", net.JoinHostPort(peer, strconv.Itoa(port)))
		if err == nil {
			return conn.Close()
		}
		if time.Until(end) < dialAgain {
			return err
		}
	}
}

func returns(from net.IP, peer string, size int) error {
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: from}, Control: whole}
	conn, err := dialer.Dial("udp", net.JoinHostPort(peer, strconv.Itoa(plan.ToolPort)))
	if err != nil {
		return err
	}
	defer conn.Close()
	message := make([]byte, size)
	for end := time.Now().Add(reachTimeout); time.Now().Before(end); {
		_ = conn.SetDeadline(time.Now().Add(reachAgain)) // Write reports a broken connection
		if _, err = conn.Write(message); err == nil {
			_, err = conn.Read(message)
		}
		if err == nil {
			return nil
		}
		time.Sleep(dialAgain)
	}
	return err
}

// whole forbids fragments, so that a datagram larger than the path allows is lost.
func whole(network, _ string, c syscall.RawConn) error {
	var err error
	refused := c.Control(func(fd uintptr) {
		if strings.HasSuffix(network, "6") {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		}
	})
	return errors.Join(refused, err)
}
