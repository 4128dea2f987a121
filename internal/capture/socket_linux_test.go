package capture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/netpair"
	"github.com/tailgate-dev/tailgate/test/pinger"
)

// pair is two hosts with a cable between them.
type pair struct{ *netpair.Pair }

const (
	clientInterface, serverInterface = "cap-client", "cap-server"
	toolPort, agentPort              = 22048, 22047
)

func newPair(t *testing.T) pair {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making network namespaces takes root")
	}
	ends, err := netpair.New(
		netpair.Interface{Name: clientInterface, Addresses: []string{clientAddr.String() + "/24", client6.String() + "/64"}},
		netpair.Interface{Name: serverInterface, Addresses: []string{serverAddr.String() + "/24", server6.String() + "/64"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ends.Close(); err != nil {
			t.Error(err)
		}
	})
	return pair{ends}
}

// in calls do in a network namespace, and fails the test if that fails.
func in(t *testing.T, namespace *netpair.Namespace, do func() error) {
	t.Helper()
	if err := namespace.In(do); err != nil {
		t.Fatal(err)
	}
}

// recorded is a capture with its samples.
type recorded struct {
	*Capture
	samples []int64
}

func (p pair) capture(t *testing.T, traffic Traffic) *recorded {
	t.Helper()
	r := &recorded{}
	in(t, p.Server, func() (err error) {
		r.Capture, err = Open(serverInterface, traffic, func(ns int64) { r.samples = append(r.samples, ns) })
		return err
	})
	return r
}

// socketPair connects a client's socket with a server's, over UDP.
func (p pair) socketPair(t *testing.T, client, server netip.Addr) (c, s *net.UDPConn) {
	t.Helper()
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(server, toolPort))
	in(t, p.Server, func() (err error) {
		s, err = net.ListenUDP("udp", to)
		return err
	})
	in(t, p.Client, func() (err error) {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(client, 0)), to)
		return err
	})
	t.Cleanup(func() { c.Close(); s.Close() })
	return c, s
}

// ping runs the pinger's client to its end and returns what it printed.
func (p pair) ping(t *testing.T, client *exec.Cmd) string {
	t.Helper()
	client.Env = append(os.Environ(), "TAILGATE_PINGER_KEY=0123456789abcdef0123456789abcdef")
	var output, said bytes.Buffer
	client.Stdout, client.Stderr = &output, &said
	if err := p.Client.Start(client); err != nil {
		t.Fatal(err)
	}
	if err := client.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	return output.String()
}

// awaitServer waits until a server listens. The pinger's server takes such a connection for a probe.
func (p pair) awaitServer(t *testing.T) {
	t.Helper()
	in(t, p.Client, func() error {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if c, err := net.Dial("tcp", netip.AddrPortFrom(serverAddr, toolPort).String()); err == nil {
				return c.Close()
			}
		}
		return errors.New("the pinger's server does not listen")
	})
}

// TestEcho captures datagrams, whole and fragmented, that a server answers after a delay of its own.
func TestEcho(t *testing.T) {
	p := newPair(t)
	const messages, lost, pause = 300, 7, 2 * time.Millisecond
	for _, c := range []struct {
		client, server netip.Addr
		size           int
	}{{clientAddr, serverAddr, 64}, {clientAddr, serverAddr, 9000}, {client6, server6, 64}, {client6, server6, 9000}} {
		t.Run(fmt.Sprintf("%s, %d bytes", c.server, c.size), func(t *testing.T) {
			traffic := between(v1alpha1.ProtocolUDP, c.size)
			traffic.Server, traffic.Client, traffic.ExceptPort = c.server, c.client, agentPort
			capture := p.capture(t, traffic)
			client, server := p.socketPair(t, c.client, c.server)
			started := time.Now()
			buffer := make([]byte, c.size)
			for i := range messages {
				if _, err := client.Write(message(i, c.size)); err != nil {
					t.Fatal(err)
				}
				_, from, err := server.ReadFromUDPAddrPort(buffer)
				if err != nil {
					t.Fatal(err)
				}
				if i < lost {
					continue // the server does not answer it
				}
				if i%100 == 50 {
					time.Sleep(pause)
				}
				if _, err := server.WriteToUDPAddrPort(buffer, from); err != nil {
					t.Fatal(err)
				}
				if _, err := client.Read(buffer); err != nil {
					t.Fatal(err)
				}
			}
			took := time.Since(started)
			r, err := capture.Stop()
			if err != nil {
				t.Errorf("%v: %+v", err, r)
			}
			want := Result{
				Packets: r.Packets, ClientPort: r.ClientPort, ServerPort: toolPort, Requests: messages, Matched: messages - lost,
				Unanswered: lost, Late: r.Late, // the kernel starts to take times a moment after the request
			}
			if diff := cmp.Diff(want, r); diff != "" {
				t.Errorf("the result differs (-want +got):\n%s", diff)
			}
			if int64(len(capture.samples)) != r.Matched {
				t.Errorf("%d samples of %d", len(capture.samples), r.Matched)
			}
			var sum, slow int64
			for _, ns := range capture.samples {
				sum += ns
				if ns >= int64(pause) {
					slow++
				}
			}
			if slow < 3 || time.Duration(sum) > took || slices.Min(capture.samples) <= 0 {
				t.Errorf("%d samples of at least %s, %s in all of %s", slow, pause, time.Duration(sum), took)
			}
		})
	}
}

// TestDrops lets the kernel run out of room: the result must say so.
func TestDrops(t *testing.T) {
	p := newPair(t)
	traffic := between(v1alpha1.ProtocolUDP, 64)
	traffic.OpenLoop = true
	resume := make(chan struct{})
	var capture *Capture
	in(t, p.Server, func() (err error) {
		// The first sample blocks until all is sent, so that the ring is not emptied.
		capture, err = Open(serverInterface, traffic, func(int64) { <-resume })
		return err
	})
	client, server := p.socketPair(t, clientAddr, serverAddr)
	buffer := make([]byte, 64)
	send := func(i int) {
		if _, err := client.Write(message(i, 64)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range enough {
		send(i)
		if _, from, err := server.ReadFromUDPAddrPort(buffer); err != nil {
			t.Fatal(err)
		} else if _, err := server.WriteToUDPAddrPort(buffer, from); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(3 * readEvery)
	const more = 1000
	for i := range slots + more {
		send(enough + i)
	}
	close(resume)
	r, err := capture.Stop()
	if err == nil || !strings.Contains(err.Error(), "dropped") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if r.Drops < more || r.Packets+r.Drops != int64(slots+more+2*enough) {
		t.Errorf("result %+v, sent %d", r, slots+more+enough)
	}
}

// TestPinger captures the traffic of the real tool: every message that it counts, and each within its round trip.
func TestPinger(t *testing.T) {
	p := newPair(t)
	program := filepath.Join(t.TempDir(), pinger.Program)
	if err := pinger.Build(context.Background(), "../..", program); err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(toolPort)
	server := exec.Command(program, "server", "--bind", "::", "--port", port, "--deadline", "120")
	server.Env = append(os.Environ(), "TAILGATE_PINGER_KEY=0123456789abcdef0123456789abcdef")
	server.Stderr = os.Stderr
	if err := p.Server.Start(server); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	p.awaitServer(t)
	for name, c := range map[string]struct {
		six  bool
		size int
		rate int
		tcp  bool
	}{
		"TCP, closed loop":                     {tcp: true, size: 64},
		"TCP, closed loop, 1 byte":             {tcp: true, size: 1},
		"TCP, closed loop, 65536 bytes":        {tcp: true, size: 65536},
		"TCP, open loop":                       {tcp: true, size: 64, rate: 23000},
		"TCP, open loop, as long as its hello": {tcp: true, size: 38, rate: 1000, six: true},
		"UDP, closed loop":                     {size: 64, six: true},
		"UDP, closed loop, 9000 bytes":         {size: 9000},
		"UDP, open loop":                       {size: 64, rate: 23000},
	} {
		t.Run(name, func(t *testing.T) {
			traffic := between(v1alpha1.ProtocolUDP, c.size)
			protocol, probes := "udp", int64(1) // one datagram tests the path
			if c.tcp {
				traffic.Protocol, traffic.Preamble = v1alpha1.ProtocolTCP, pingerPreamble
				protocol, probes = "tcp", 0
			}
			if c.six {
				traffic.Server, traffic.Client = server6, client6
			}
			traffic.OpenLoop, traffic.ExceptPort = c.rate > 0, agentPort
			args := []string{"client", "--server", traffic.Server.String(), "--port", port, "--protocol", protocol,
				"--sizes", fmt.Sprint(c.size), "--rates", fmt.Sprint(c.rate), "--duration", "500ms", "--warmup", "0s", "--loss-after", "20s", "--deadline", "60"}
			// On a machine that does other work, the kernel may have no room for a packet, and reports it, and an answer to
			// a probe may be so late that the pinger tries again.
			for try := 1; ; try++ {
				capture := p.capture(t, traffic)
				output := p.ping(t, exec.Command(program, args...))
				r, err := capture.Stop()
				if err == nil {
					err = agree(output, r, capture.samples, probes)
				}
				if err == nil {
					return
				}
				if try == 6 || r.Drops == 0 && !errors.Is(err, errBusy) {
					t.Fatalf("%v: %+v", err, r)
				}
				t.Logf("once more: %v", err)
				time.Sleep(time.Duration(try) * time.Second)
			}
		})
	}
}

// errBusy means that other work on the machine disturbed a measurement.
var errBusy = errors.New("the machine is busy")

// agree compares a capture with the output of the pinger's client: every message that the client counts was captured, and
// each within its round trip. probes is the number of messages that it does not count.
func agree(output string, r Result, samples []int64, probes int64) error {
	var told struct {
		Cells []struct {
			Sent, Received, Lost int64
			RTT                  struct {
				Sum int64 `json:"sum_ns"`
				Max int64 `json:"max_ns"`
			}
		}
	}
	if err := json.Unmarshal([]byte(output), &told); err != nil || len(told.Cells) != 1 {
		return fmt.Errorf("reading %q: %w", output, err)
	}
	cell := told.Cells[0]
	if cell.Lost > 0 {
		return fmt.Errorf("%w: %d messages were lost on a cable between two namespaces", errBusy, cell.Lost)
	}
	if probes > 0 && r.Requests > cell.Sent+probes {
		return fmt.Errorf("%w: the path was tried %d times", errBusy, r.Requests-cell.Sent)
	}
	if r.Requests != cell.Sent+probes || r.Matched != r.Requests || r.Stray+r.Drops+r.Truncated != 0 {
		return fmt.Errorf("the pinger sent %d and received %d", cell.Sent, cell.Received)
	}
	// A probe may come before the pinger's first message; all others are part of a round trip.
	var sum int64
	for _, ns := range samples[min(int(probes), len(samples)):] {
		sum += ns
	}
	if sum <= 0 || sum >= cell.RTT.Sum || slices.Max(samples[probes:]) > cell.RTT.Max {
		return fmt.Errorf("IN to OUT %d ns in all, the longest %d; the round trips %d and %d", sum, slices.Max(samples), cell.RTT.Sum, cell.RTT.Max)
	}
	return nil
}

// TestNotPermitted opens a capture on a thread that lacks the capability.
func TestNotPermitted(t *testing.T) {
	got := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capset(&header, &data[0]); err != nil {
			got <- fmt.Errorf("dropping capabilities: %w", err)
			return
		}
		_, err := Open("lo", between(v1alpha1.ProtocolUDP, 64), func(int64) {})
		got <- err
	}()
	if err := <-got; !errors.Is(err, ErrNotPermitted) {
		t.Errorf("error %v, want %v", err, ErrNotPermitted)
	}
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open("no-such-if", between(v1alpha1.ProtocolUDP, 64), nil)
	if err == nil || !strings.Contains(err.Error(), "no-such-if") {
		t.Errorf("error %v for an interface that is not there", err)
	}
	itself := between(v1alpha1.ProtocolUDP, 64)
	itself.Client = itself.Server
	for _, c := range []struct {
		traffic Traffic
		want    string
	}{
		{itself, "two different addresses"},
		{between(v1alpha1.ProtocolTCP, 0), "at least 1 byte"},
		{between(v1alpha1.ProtocolUDP, 0), "at least 1 byte"},
	} {
		if _, err := Open("lo", c.traffic, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.traffic.Protocol, err, c.want)
		}
	}
}
