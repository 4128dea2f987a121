package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/internal/capturefile"
	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

const at = "127.0.0.1:12001"

// traded trades the bursts of ten connections for two seconds over the loopback of a new namespace, and returns the values and the
// path of a capture.
func traded(t *testing.T, network string, inToOut bool) ([]value, string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making network namespaces takes root")
	}
	defer timestamps(t).Close()
	space, err := netpair.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	file := filepath.Join(t.TempDir(), "engine.pcap")
	var engine io.Closer
	var stop func() error
	if err := space.In(func() (err error) {
		if stop, err = record(file); err != nil {
			return err
		}
		engine, err = listen(network, at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, engine) }()
	s := settings{connections: 10, rate: 23_000, bursts: []int{1, 10, 25, 100}, duration: 2 * time.Second, inToOut: inToOut}
	values, err := trade(t.Context(), func() (conn net.Conn, err error) {
		err = space.In(func() (err error) { conn, err = net.Dial(network, at); return err })
		return conn, err
	}, s)
	cancel()
	if err := errors.Join(err, <-ended, stop()); err != nil {
		t.Fatal(err)
	}
	if n := len(values); n < 40_000 || n > 50_000 {
		t.Errorf("%d orders in 2 s, want some 46,000", n)
	}
	return values, file
}

// timestamps returns when the kernel gives packets a timestamp on arrival, which it begins to do some time after a socket asked for
// it: until then, each socket gets the time when it reads. The kernel ends it some time after the last such socket was closed.
func timestamps(t *testing.T) io.Closer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in, err := stamped(conn.(*net.UDPConn))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		sent := time.Now()
		if _, err := conn.WriteTo([]byte("probe"), conn.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		if _, at, _, err := in(); err != nil {
			t.Fatal(err)
		} else if at > 0 && at < sent.Add(10*time.Millisecond).UnixNano() {
			return conn
		}
	}
	t.Fatal("packets get no timestamp on arrival")
	return nil
}

// ladderOf returns the published ladder of latencies.
func ladderOf(t *testing.T, all []int64) string {
	t.Helper()
	recorder := result.NewRecorder()
	for _, ns := range all {
		recorder.Record(ns)
	}
	h, err := recorder.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	d, err := result.NewMerger().Add(h)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report.CaptureLadder(&out, "IN to OUT, µs", report.Column{Round: 1, Distribution: d}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// ofCapture returns the latencies in a capture in ascending order, of which the command prints the ladder.
func ofCapture(t *testing.T, file string, orders int) []int64 {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var all []int64
	options := capturefile.Options{Servers: []netip.AddrPort{netip.MustParseAddrPort(at)}, Match: capturefile.MatchFIX, Tag: "11", Timeout: 10 * time.Second}
	if r, err := capturefile.Analyze(t.Context(), []capturefile.File{{Name: file, Reader: in}}, options, func(ns int64) { all = append(all, ns) }); err != nil || r.Matched != int64(orders) || r.Lost+r.Unmatched > 0 {
		t.Fatalf("%v: %+v, want %d orders", err, r, orders)
	}
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), []string{"capture", "analyze", file, "--server", at, "--match", "fix:11"}, &stdout, &stderr)
	if code != 0 || !strings.HasSuffix(stdout.String(), ladderOf(t, all)) {
		t.Errorf("code %d: %s%s", code, stdout.String(), stderr.String())
	}
	t.Log(stdout.String())
	slices.Sort(all)
	return all
}

// TestCapturedUDP: the engine and its capture have the same timestamps of the kernel, so that each latency is equal to 1 ns, and
// the ladders to the last event.
func TestCapturedUDP(t *testing.T) {
	values, file := traded(t, "udp", true)
	var own []int64
	for _, v := range values {
		own = append(own, v.ns)
	}
	slices.Sort(own)
	captured := ofCapture(t, file, len(values))
	for i := range own {
		if own[i] != captured[i] {
			t.Fatalf("order %d by latency: the engine measured %d ns, and the capture has %d", i, own[i], captured[i])
		}
	}
	if a, b := ladderOf(t, own), ladderOf(t, captured); a != b {
		t.Errorf("%s\n%s", a, b)
	}
}

// TestCapturedTCP: each order is in the capture, and no latency of it is longer than its round trip.
func TestCapturedTCP(t *testing.T) {
	values, file := traded(t, "tcp", false)
	var trips []int64
	for _, v := range values {
		trips = append(trips, v.ns)
	}
	slices.Sort(trips)
	captured := ofCapture(t, file, len(values))
	for i := range trips {
		if captured[i] <= 0 || captured[i] > trips[i] {
			t.Fatalf("order %d by latency: IN to OUT took %d ns, and the round trip %d", i, captured[i], trips[i])
		}
	}
}

// TestCommand runs both ends as programs of tool Custom, by their variables.
func TestCommand(t *testing.T) {
	port := freePort(t)
	list := filepath.Join(t.TempDir(), "values")
	for name, value := range map[string]string{"ADDRESS": "127.0.0.1", "PEER": "127.0.0.1", "PORT": port, "RATE": "2000", "SIZE": "200", "DURATION_MS": "300", "WARMUP_MS": "100", "OUTPUT": list} {
		t.Setenv("TAILGATE_"+name, value)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"--role", "server"}, io.Discard) }()
	if err := run(t.Context(), []string{"--role", "client", "--bursts", "1,3"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(list)
	if n := strings.Count(string(content), "\n"); err != nil || n < 550 || n > 650 || strings.Contains(string(content), "-") {
		t.Errorf("%v, %d values, want some 600", err, n)
	}
	for want, args := range map[string][]string{"negative": {"--rate=-1"}, "invalid syntax": {"--port=1", "--bursts=ten"}, "positive": {"--connections=0"}} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestFIX: an order has the length that is asked for, and is read back.
func TestFIX(t *testing.T) {
	for _, size := range []int{0, 100, 264} {
		m := fix("D", size, "11=a")
		if size > 0 && (len(m) < size || len(m) > size+4) {
			t.Errorf("%d bytes, want %d", len(m), size)
		}
		if order, after, whole := next(append(m, "8=F"...)); !whole || tag(order, "11") != "a" || string(after) != "8=F" {
			t.Errorf("%q and %q", order, after)
		}
	}
}

// record captures the packets that the loopback of the thread's namespace receives into a file, until stop is called.
func record(file string) (stop func() error, err error) {
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return nil, err
	}
	timeout := unix.Timeval{Usec: 100_000}
	for _, err := range []error{
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
	} {
		if err != nil {
			return nil, err
		}
	}
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	w := pcapgo.NewWriterNanos(out)
	if err := w.WriteFileHeader(256<<10, layers.LinkTypeEthernet); err != nil {
		return nil, err
	}
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		data, control := make([]byte, 256<<10), make([]byte, 256)
		for {
			n, c, _, from, err := unix.Recvmsg(socket, data, control, 0)
			link, _ := from.(*unix.SockaddrLinklayer)
			switch {
			case err == unix.EAGAIN || err == unix.EINTR:
				select {
				case <-done:
					ended <- out.Close()
					return
				default:
				}
			case err != nil:
				ended <- err
				return
			case link.Pkttype != unix.PACKET_OUTGOING: // A loopback shows each packet twice.
				if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, stampOf(control[:c])), CaptureLength: n, Length: n}, data[:n]); err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	return func() error {
		close(done)
		return errors.Join(<-ended, unix.Close(socket))
	}, nil
}
