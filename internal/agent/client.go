package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	// linkTimeout bounds how long the server is unreachable: a new link needs seconds.
	linkTimeout = 30 * time.Second
	dialAgain   = 100 * time.Millisecond
	// stackEnds is how long Onload's stack outlives a tool that closes first: over twice
	// EF_TCP_TCONST_MSL. A NIC with one virtual interface has no room for the next.
	stackEnds = 3 * time.Second
)

func (e *endpoint) drive(ctx context.Context) (result.Document, error) {
	l, local, err := e.connect(ctx)
	if err != nil {
		return result.Document{}, err
	}
	defer l.conn.Close()
	ctx, cancel, err := e.untilGone(ctx)
	if err != nil {
		return result.Document{}, err
	}
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.conn.Close() })
	defer stop()
	document := e.document(local.String())
	for i, cell := range e.Task.Cells {
		if i > 0 && !e.driver.Limits().EndsStack && e.Task.Acceleration == v1alpha1.AccelerationOnload {
			select {
			case <-ctx.Done():
			case <-time.After(stackEnds):
			}
		}
		measured, err := e.cell(ctx, l, local.String(), cell)
		if err != nil {
			return result.Document{}, err
		}
		document.Cells = append(document.Cells, measured)
		e.logf("%s: %d samples", cell.Name, measured.Histogram.Count)
	}
	if _, err := l.ask(request{Verb: verbDone}); err != nil {
		return result.Document{}, e.lost(err)
	}
	if e.Task.SendResult {
		if err := e.takeResult(l); err != nil {
			return result.Document{}, e.lost(err)
		}
	}
	e.conclude(&document.Evidence)
	return document, nil
}

func (e *endpoint) takeResult(l *link) error {
	if err := l.conn.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	for left := result.MaxLog; l.lines.Scan(); e.logf("%s", l.lines.Bytes()) {
		if left -= len(l.lines.Bytes()); left < 0 {
			return fmt.Errorf("its result is longer than %d MiB", result.MaxLog>>20)
		}
	}
	return l.lines.Err()
}

// connect also returns the client's address; the route is certain only when the link is up.
func (e *endpoint) connect(ctx context.Context) (*link, net.IP, error) {
	server := net.ParseIP(e.Task.ServerAddress)
	if server == nil {
		return nil, nil, tool.Fail(v1alpha1.OutcomeWrongNetwork, "invalid server address %q", e.Task.ServerAddress)
	}
	var local net.IP
	var err error
	if e.Task.Interface != "" {
		e.iface, local, err = e.addressOn(ctx, fmt.Sprintf("address from which to reach %s", server), func(addresses []net.Addr) net.IP {
			return towards(server, addresses)
		})
		if err != nil {
			return nil, nil, err
		}
		// In tests, both ends are on one loopback interface.
		if local.Equal(server) && !server.IsLoopback() {
			return nil, nil, tool.Fail(v1alpha1.OutcomeWrongNetwork,
				"%s of both ends has the address %s: the network assigns addresses on each node separately; use an IPAM plugin for the whole cluster, such as whereabouts, or a range for each node",
				e.Task.Interface, server)
		}
	}
	l, err := e.dial(ctx, local)
	if err != nil {
		return nil, nil, err
	}
	if local != nil {
		err = leavesBy(e.iface, local, server)
	} else {
		local = l.conn.LocalAddr().(*net.TCPAddr).IP
		e.iface, err = leavingBy(local, server)
	}
	if err != nil {
		l.conn.Close()
		return nil, nil, err
	}
	return l, local, nil
}

// dial connects from an address, or any. Who answers without the key may be a passing stranger.
func (e *endpoint) dial(ctx context.Context, from net.IP) (*link, error) {
	limit, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	address := net.JoinHostPort(e.Task.ServerAddress, strconv.Itoa(plan.ControlPort))
	identity, err := e.identity()
	if err != nil {
		return nil, err
	}
	for {
		l, err := hello(limit, from, address, identity)
		if err == nil {
			if e.accelerated() {
				l.limit += maxPlaneWait
			}
			return l, nil
		}
		select {
		case <-limit.Done():
			if errors.Is(err, errWrongPeer) {
				return nil, tool.Fail(v1alpha1.OutcomeWrongPeer, "something else than the server's agent answers at %s: %v; %s", address, err, tool.WrongPeerRemedy)
			}
			return nil, tool.Fail(v1alpha1.OutcomePeerUnreachable, "the server's agent at %s does not answer within %s: %v%s", address, linkTimeout, err, e.noCarrier(";"))
		case <-time.After(dialAgain):
		}
	}
}

func hello(ctx context.Context, from net.IP, address string, identity *tls.Config) (*link, error) {
	dialer := net.Dialer{KeepAlive: -1}
	if from != nil {
		dialer.LocalAddr = &net.TCPAddr{IP: from}
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	l := newLink(tls.Client(conn, identity))
	if _, err := l.ask(request{Verb: verbHello}); err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

func (e *endpoint) cell(ctx context.Context, l *link, local string, cell tool.Cell) (result.Cell, error) {
	dir, err := e.scratch(cell.Name)
	if err != nil {
		return result.Cell{}, err
	}
	defer os.RemoveAll(dir)
	cpus, err := e.toolCPUs(cell)
	if err != nil {
		return result.Cell{}, err
	}
	target := tool.Target{Address: e.Task.ServerAddress, Port: plan.ToolPort, LocalAddress: local, Interface: e.iface.Name, CPUs: cpus, Scratch: dir, Key: e.toolKey()}
	command := e.driver.Client(cell, target)
	if _, err := present(command.Path); err != nil {
		return result.Cell{}, err
	}
	if command.Routed && e.Task.Interface != "" {
		if err := leavesBy(e.iface, nil, net.ParseIP(target.Address)); err != nil {
			return result.Cell{}, err
		}
	}

	a, err := l.ask(request{Verb: verbPrepare, Cell: cell.Name})
	if err != nil {
		return result.Cell{}, e.lost(err)
	}
	if a.Error != "" {
		return result.Cell{}, tool.Fail(a.Reason, "server: %s", a.Error)
	}
	target.ServerCPU = a.CPU
	command = e.driver.Client(cell, target)
	started := time.Now()
	p, failed := e.runClient(ctx, l, command, cell, target)
	finished := time.Now()
	a, err = l.ask(request{Verb: verbEnd, Cell: cell.Name})
	if failed != nil {
		return result.Cell{}, withServer(failed, a)
	}
	if err != nil {
		return result.Cell{}, e.lost(err)
	}
	e.addLate()
	if err := e.ranWithout(p); err != nil {
		return result.Cell{}, err
	}
	if a.Error != "" && !a.Worked {
		return result.Cell{}, tool.Fail(a.Reason, "server: %s", a.Error)
	}

	recorder, actual, printed := result.NewRecorder(), result.NewRecorder(), onload.Read(p.stderr.Bytes())
	measurement, err := e.driver.Parse(cell, tool.Output{
		Stdout: p.stdout.Bytes(), Stderr: printed.Rest, Truncated: p.stdout.truncated, ExitCode: p.exitCode(), Server: a.Said, Clocks: p.clocks,
		OpenRaw: func(name string) (io.ReadCloser, error) { return openRaw(filepath.Join(dir, name)) },
	}, recorder.RecordN, actual.RecordN)
	if err != nil {
		return result.Cell{}, withServer(cmp.Or(e.onloadFailure(p), tool.Fail(reasonOf(err, v1alpha1.OutcomeToolFailed), "%s, %s: %v", e.Task.Tool, cell.Name, err)), a)
	}
	measured := result.Cell{
		Cell: cell, Tool: string(e.Task.Tool), ToolVersion: measurement.Version, Command: append([]string{command.Path}, command.Args...),
		StartedAt: started, FinishedAt: finished, Start: measurement.Start, Own: measurement.Own, Bandwidth: measurement.Bandwidth,
		Attribution: measurement.Attribution, Intervals: measurement.Intervals, Accelerated: measurement.Accelerated,
		Lost: measurement.Lost, Figures: measurement.Figures, Warnings: measurement.Warnings,
	}
	if measured.Histogram, err = histogram(recorder, measurement.Sums, measurement.Unrecorded); err != nil {
		return result.Cell{}, err
	}
	for _, said := range printed.Warnings {
		measured.Warnings = append(measured.Warnings, "Onload: "+line(said, maxValue))
	}
	if measurement.Start == tool.StartIntended {
		h, err := histogram(actual, measurement.ActualSums, measurement.Unrecorded)
		if err != nil {
			return result.Cell{}, err
		}
		measured.ActualStart = &h
	}
	return measured, nil
}

func (e *endpoint) toolCPUs(cell tool.Cell) ([]int, error) {
	n := tool.CPUsOf(e.driver, cell, e.Task.Role)
	if n > len(e.cpus) {
		return nil, tool.Fail(v1alpha1.OutcomeToolFailed, "%s needs %d CPUs at the %s's end, and has %s; raise spec.placement.cpus", e.Task.Tool, n, e.Task.Role, e.cpusAllowed)
	}
	return e.cpus[:n], nil
}

// openRaw opens a regular file of a tool, and does not wait for the writer of a pipe.
func openRaw(path string) (io.ReadCloser, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, fmt.Errorf("%s is not a regular file", filepath.Base(path))
	}
	return file, nil
}

// histogram returns the histogram of a recorder, which holds only buckets if sums are given.
func histogram(r *result.Recorder, sums *tool.Sums, unrecorded int64) (result.Histogram, error) {
	if sums != nil {
		r.SetSums(sums.SumNs, sums.SumOfSquaresNs2)
	}
	h, err := r.Histogram()
	h.Unrecorded = unrecorded
	return h, err
}

// runClient runs the tool, under a hard deadline: some tools wait forever for a lost datagram.
func (e *endpoint) runClient(ctx context.Context, l *link, command tool.Command, cell tool.Cell, t tool.Target) (*process, error) {
	limit := e.driver.Deadline(cell)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p, err := e.start(command, t.CPUs, t.Scratch, l)
	if err != nil {
		return nil, err
	}
	byItself := p.wait(ctx)
	strays := e.endStrays(p)
	e.account(p, cell.Name, l)
	if !byItself {
		return nil, cmp.Or(e.onloadFailure(p), tool.Fail(v1alpha1.OutcomeToolTimeout, "%s, %s: killed after %s; a message was lost, the path is too slow for the tool, or the server hangs: %s", e.Task.Tool, cell.Name, limit, p.lastWords()))
	}
	if p.exitCode() < 0 {
		return nil, cmp.Or(e.onloadFailure(p), tool.Fail(v1alpha1.OutcomeToolFailed, "%s, %s: the tool %s: %s", e.Task.Tool, cell.Name, p.ending(), cmp.Or(p.lastWords(), "it printed nothing")))
	}
	return p, strays
}

func present(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		err = tool.Fail(v1alpha1.OutcomeToolMissing, "the image has no %s; use an image that has it (bench image: see bench-image/), or another tool", program)
	}
	return path, err
}

func (e *endpoint) lost(err error) error {
	return tool.Fail(v1alpha1.OutcomePeerUnreachable, "the client lost its server: %v%s", err, e.noCarrier(";"))
}

// withServer adds the last line of the tool's server to a failure; Onload's failure is the reason.
func withServer(err error, a answer) error {
	f, ok := errors.AsType[*tool.Failure](err)
	switch {
	case a.Reason != "":
		return tool.Fail(a.Reason, "server: %s", a.Error)
	case !ok || a.Note == "":
		return err
	}
	return tool.Fail(f.Reason, "%s (server: %s)", f.Message, a.Note)
}
