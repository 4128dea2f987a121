package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/capture"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	endGrace       = 200 * time.Millisecond // for a tool's server to end by itself after its client
	interruptGrace = 2 * time.Second        // for an interrupted server to print what it counted
)

func (e *endpoint) serve(ctx context.Context) (result.Document, error) {
	iface, address, err := e.ownAddress(ctx)
	if err != nil {
		return result.Document{}, err
	}
	e.iface = iface
	ctx, cancel, err := e.untilGone(ctx)
	if err != nil {
		return result.Document{}, err
	}
	defer cancel()
	if e.driver.Limits().IPv4Only && address.To4() == nil {
		return result.Document{}, tool.Fail(v1alpha1.OutcomeWrongNetwork, "%s takes IPv4 addresses only, and %s has %s; give the network an IPv4 range, or measure with pinger",
			e.Task.Tool, iface.Name, address)
	}
	// A tool that the image lacks is reported before the server waits for a client.
	target := tool.Target{Address: address.String(), Port: plan.ToolPort, Key: e.toolKey()}
	if _, err := present(e.driver.Server(e.Task.Cells[0], target).Path); err != nil {
		return result.Document{}, err
	}

	l, err := e.awaitClient(ctx, address)
	if err != nil {
		return result.Document{}, err
	}
	defer l.conn.Close()
	// The end of the context, as of the interface, interrupts the wait for a request.
	stop := context.AfterFunc(ctx, func() { l.conn.Close() })
	defer stop()

	if client, ok := l.conn.RemoteAddr().(*net.TCPAddr); ok {
		by, err := leavingBy(address, client.IP)
		if e.Task.Interface != "" && err == nil {
			err = wrongWay(client.IP, by, iface)
		}
		if err != nil {
			return result.Document{}, err
		}
		if by.Index != iface.Index {
			e.iface = by
			if ctx, cancel, err = e.untilGone(ctx); err != nil {
				return result.Document{}, err
			}
			defer cancel()
		}
		target.LocalAddress, target.Interface = client.IP.String(), e.iface.Name
	}
	// The link may have come up only now, so the evidence is gathered here.
	document := e.document(address.String())
	if err := e.answerAll(ctx, l, target); err != nil {
		if ctx.Err() != nil {
			return result.Document{}, fmt.Errorf("serving: %w%s", ctx.Err(), e.noCarrier(";"))
		}
		return result.Document{}, err
	}
	e.conclude(&document.Evidence)
	document.Captured = e.captured
	if e.Task.SendResult {
		return document, e.handOver(l.conn, document)
	}
	return document, nil
}

func (e *endpoint) ownAddress(ctx context.Context) (net.Interface, net.IP, error) {
	if e.Task.Interface != "" {
		return e.addressOn(ctx, "address", preferred)
	}
	ip := net.ParseIP(e.PodIP)
	if ip == nil {
		return net.Interface{}, nil, tool.Fail(v1alpha1.OutcomeWrongNetwork, "invalid pod address %q", e.PodIP)
	}
	iface, err := interfaceOf(ip)
	return iface, ip, err
}

func (e *endpoint) awaitClient(ctx context.Context, address net.IP) (*link, error) {
	listener, err := e.listen(ctx, address)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()

	own, _ := netip.AddrFromSlice(address)
	// If only the server knows the interface, the controller reads the address from this line.
	e.logf("%s", result.ListenLine(own))
	returned, cancel := context.WithCancel(ctx)
	defer cancel()
	greeted, failed := make(chan greeting), make(chan error, 1)
	go func() { failed <- e.greetAll(returned, listener, greeted) }()
	for rejected := 0; ; {
		select {
		case g := <-greeted:
			if g.err == nil {
				return g.link, nil
			}
			// Strangers must not fill the log, which has to hold the result.
			if rejected++; rejected <= maxRejected {
				e.logf("rejected %s: %s", g.conn.RemoteAddr(), line(g.err.Error(), maxRejection))
			}
		case err := <-failed:
			if ctx.Err() != nil {
				return nil, tool.Fail(v1alpha1.OutcomePeerUnreachable, "no client connected before the server's deadline%s", e.noCarrier(";"))
			}
			return nil, fmt.Errorf("waiting for the client: %w", err)
		}
	}
}

// greeting is a connection, with an error unless it is of the client of this run.
type greeting struct {
	*link
	err error
}

// connections counts those of each address that have not greeted yet.
type connections struct {
	mu sync.Mutex
	of map[string]int
}

func (c *connections) change(address string, by int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[address] += by
	left := c.of[address]
	if left == 0 {
		delete(c.of, address)
	}
	return left
}

// greetAll reads maxGreeted first requests at a time: no silent client or address blocks others.
func (e *endpoint) greetAll(ctx context.Context, listener net.Listener, greeted chan<- greeting) error {
	places := make(chan struct{}, maxGreeted)
	of := connections{of: map[string]int{}}
	identity, err := e.identity()
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		address, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		if of.change(address, 1) > maxOfAddress {
			of.change(address, -1)
			conn.Close()
			continue
		}
		places <- struct{}{}
		go func() {
			defer func() { <-places; of.change(address, -1) }()
			l := newLink(tls.Server(conn, identity))
			err := l.greet()
			if err != nil {
				conn.Close()
			}
			select {
			case greeted <- greeting{l, err}:
			case <-ctx.Done():
				conn.Close()
			}
		}()
	}
}

// listen listens on an address. IPv6 is refused until the link is up and the address unclaimed.
func (e *endpoint) listen(ctx context.Context, address net.IP) (net.Listener, error) {
	limit, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	for {
		listener, err := net.Listen("tcp", net.JoinHostPort(address.String(), strconv.Itoa(plan.ControlPort)))
		switch {
		case err == nil:
			return listener, nil
		case !errors.Is(err, unix.EADDRNOTAVAIL):
			return nil, tool.Fail(v1alpha1.OutcomeAgentFailed, "the server cannot listen: %v", err)
		}
		select {
		case <-limit.Done():
			return nil, tool.Fail(v1alpha1.OutcomeWrongNetwork, "address %s could not be used on %s within %s: does another host have it%s?",
				address, e.iface.Name, linkTimeout, e.noCarrier(", or"))
		case <-time.After(dialAgain):
		}
	}
}

func (e *endpoint) answerAll(ctx context.Context, l *link, target tool.Target) error {
	var running *process
	var capturing *capturing
	abandon := func() { // a cell that was not ended
		if running != nil {
			_ = e.endServer(running, 0)
		}
		if capturing != nil {
			_, _ = capturing.end()
		}
	}
	defer abandon()
	for {
		var r request
		if err := l.receive(&r); err != nil {
			return tool.Fail(v1alpha1.OutcomePeerUnreachable, "the server lost its client: %v%s", err, e.noCarrier(";"))
		}
		var a answer
		switch r.Verb {
		case verbPrepare:
			abandon()
			p, c, err := e.prepare(ctx, r.Cell, l, target)
			a.refuse(err)
			running, capturing, a.CPU = p, c, e.measuringCPU
		case verbEnd:
			if running != nil {
				e.lookEnded(running)
				died := e.driver.Limits().Opaque && running.ended() && running.exitCode() != 0
				strays := e.endServer(running, map[bool]time.Duration{false: endGrace, true: interruptGrace}[running.interrupt])
				e.account(running, r.Cell, l)
				a.Note = line(running.lastWords(), maxWords)
				a.refuse(e.onloadFailure(running))
				a.Worked = a.Error != "" && e.ranWithout(running) == nil
				if died {
					strays = tool.Fail(v1alpha1.OutcomeToolFailed, "the program %s before its client ended: %s", running.ending(), running.lastWords())
				}
				if strays != nil {
					a.refuse(strays)
					a.Worked = false
				}
				if running.interrupt {
					said := running.stdout.Bytes()
					a.Said = append([]byte{}, said[max(0, len(said)-maxSaid):]...)
				}
				running = nil
			}
			if capturing != nil {
				found, err := capturing.end()
				if err != nil {
					return err
				}
				e.captured, capturing = append(e.captured, found), nil
			}
		case verbDone:
		default:
			return tool.Fail(v1alpha1.OutcomeAgentFailed, "the client requested %.40q: do both ends have the same version?", r.Verb)
		}
		if err := l.send(a); err != nil {
			return tool.Fail(v1alpha1.OutcomePeerUnreachable, "the server lost its client: %v%s", err, e.noCarrier(";"))
		}
		if r.Verb == verbDone {
			return nil
		}
	}
}

// endServer also ends what a cell's server left, and removes files: the volume holds one cell's.
func (e *endpoint) endServer(p *process, grace time.Duration) error {
	p.end(grace)
	strays := e.endStrays(p)
	if e.driver.Limits().Opaque {
		_ = os.RemoveAll(p.cmd.Dir)
	}
	return strays
}

func (a *answer) refuse(err error) {
	if err == nil {
		return
	}
	a.Error, a.Reason = line(err.Error(), maxWords), reasonOf(err, v1alpha1.OutcomeAgentFailed)
}

func (e *endpoint) prepare(ctx context.Context, name string, l *link, target tool.Target) (*process, *capturing, error) {
	for _, cell := range e.Task.Cells {
		if cell.Name != name {
			continue
		}
		// On a host's network, another process may use the port.
		if taken, err := isListening(e.driver.Listens(cell), target.Port); err != nil {
			return nil, nil, err
		} else if taken {
			return nil, nil, tool.Fail(v1alpha1.OutcomeToolFailed, "another process listens on %s port %d", cell.Protocol, target.Port)
		}
		var err error
		if target.CPUs, err = e.toolCPUs(cell); err != nil {
			return nil, nil, err
		}
		dir := ""
		if e.driver.Limits().Opaque {
			if dir, err = e.scratch(cell.Name); err != nil {
				return nil, nil, err
			}
		}
		p, err := e.start(e.driver.Server(cell, target), target.CPUs, dir, l)
		if err != nil {
			return nil, nil, err
		}
		if err := awaitListening(ctx, p, e.driver.Listens(cell), target.Port, e.listenLimit()); err != nil {
			strays := e.endServer(p, 0)
			return nil, nil, cmp.Or(e.onloadFailure(p), strays, err)
		}
		if err := e.lookBegun(p, cell.Protocol); err != nil {
			_ = e.endServer(p, 0)
			return nil, nil, err
		}
		c, err := e.beginCapture(cell, l.conn)
		if err != nil {
			_ = e.endServer(p, 0)
			return nil, nil, err
		}
		return p, c, nil
	}
	return nil, nil, tool.Fail(v1alpha1.OutcomeAgentFailed, "the client requested cell %.80q, which is not in the server's task", name)
}

type capturing struct {
	cell     string
	running  *capture.Capture
	recorder *result.Recorder
}

func (e *endpoint) beginCapture(cell tool.Cell, connection net.Conn) (*capturing, error) {
	if !e.Task.Capture || cell.Stream {
		return nil, nil
	}
	server, client := connection.LocalAddr().(*net.TCPAddr).AddrPort(), connection.RemoteAddr().(*net.TCPAddr).AddrPort()
	traffic := capture.Traffic{
		Server: server.Addr(), Client: client.Addr(), Protocol: cell.Protocol, ExceptPort: plan.ControlPort,
		MessageSize: int(cell.MessageSize), OpenLoop: cell.OpenLoop(), Warmup: cell.Warmup,
	}
	if cell.Protocol == v1alpha1.ProtocolTCP {
		traffic.Preamble = e.driver.Limits().Preamble
	}
	c := &capturing{cell: cell.Name, recorder: result.NewRecorder()}
	var err error
	if c.running, err = capture.Open(e.iface.Name, traffic, c.recorder.Record); err != nil {
		return nil, tool.Fail(v1alpha1.OutcomeAgentFailed, "%v", err)
	}
	return c, nil
}

func (c *capturing) end() (result.Captured, error) {
	r, incomplete := c.running.Stop()
	captured := result.Captured{
		Cell: c.cell, Packets: r.Packets, Drops: r.Drops, Requests: r.Requests - r.WarmUp, Matched: r.Matched,
		Unanswered: r.Unanswered, Stray: r.Stray, ByOrder: r.ByOrder, Late: r.Late,
	}
	if incomplete != nil {
		captured.Incomplete = incomplete.Error()
		c.recorder = result.NewRecorder()
	}
	var err error
	captured.Histogram, err = c.recorder.Histogram()
	return captured, err
}
