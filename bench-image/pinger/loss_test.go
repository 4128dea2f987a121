package pinger_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// handler is called with a message and functions that send one to the two ends.
type handler func(message []byte, client, server func([]byte))

// relay sits between a client at 127.0.0.1, which takes 127.0.0.2 for its server, and the server at 127.0.0.1, which sees a
// client at 127.0.0.3. The lines of control connections pass, with what changes replaces. Datagrams are handed to functions that pass them on or drop them, and
// so are the messages of streams if their size is given.
type relay struct {
	port            string
	size            int
	request, answer handler
	changes         *strings.Replacer
}

// choosing returns the handlers of a relay that calls functions with the number of a message, and a function that passes it on.
func choosing(request, answer func(seq uint64, pass func())) (handler, handler) {
	choose := func(f func(uint64, func()), message []byte, pass func([]byte)) {
		if len(message) < 8 {
			pass(message)
			return
		}
		f(binary.LittleEndian.Uint64(message), func() { pass(message) })
	}
	return func(m []byte, _, server func([]byte)) { choose(request, m, server) }, func(m []byte, client, _ func([]byte)) { choose(answer, m, client) }
}

func (r *relay) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:"+r.port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}
			far, err := dialer.Dial("tcp", "127.0.0.1:"+r.port)
			if err != nil {
				near.Close()
				continue
			}
			go r.lines(t, near, far)
		}
	}()
}

// lines passes on the client's lines, and learns from them where datagrams go, and that a connection has messages.
func (r *relay) lines(t *testing.T, near, far net.Conn) {
	defer far.Close()
	if r.changes == nil {
		r.changes = strings.NewReplacer()
	}
	lines, stream := bufio.NewReader(near), false
	for begun := false; !stream; begun = true {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var size, port int
		if _, err := fmt.Sscanf(line, "CELL udp %d %d", &size, &port); err == nil {
			r.datagrams(t, port)
		}
		if _, err := io.WriteString(far, r.changes.Replace(line)); err != nil {
			return
		}
		stream = r.size > 0 && strings.HasPrefix(line, "DATA ")
		if !begun && !stream {
			go func() {
				defer near.Close()
				for buffer := make([]byte, 65536); ; {
					n, err := far.Read(buffer)
					if err != nil {
						return
					}
					_, _ = io.WriteString(near, r.changes.Replace(string(buffer[:n])))
				}
			}()
		}
	}
	client, server := func(b []byte) { _, _ = near.Write(b) }, func(b []byte) { _, _ = far.Write(b) }
	messages := func(from io.Reader, handle handler) {
		for {
			message := make([]byte, r.size)
			if _, err := io.ReadFull(from, message); err != nil {
				return
			}
			handle(message, client, server)
		}
	}
	go func() {
		messages(far, r.answer)
		near.Close()
	}()
	messages(lines, r.request)
}

func (r *relay) datagrams(t *testing.T, clientPort int) {
	var serverPort int
	_, _ = fmt.Sscan(r.port, &serverPort)
	near, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2), Port: serverPort}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: clientPort})
	if err != nil {
		t.Error(err)
		return
	}
	far, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 3), Port: clientPort}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: serverPort})
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() {
		near.Close()
		far.Close()
	})
	// A relay that waits for the CPU loses nothing.
	if err := errors.Join(near.SetReadBuffer(4<<20), far.SetReadBuffer(4<<20)); err != nil {
		t.Error(err)
	}
	forward := func(from, to *net.UDPConn, handle handler) {
		buffer := make([]byte, 65536)
		for {
			n, err := from.Read(buffer)
			if err != nil && strings.Contains(err.Error(), "refused") {
				continue // the server has no socket yet
			}
			if err != nil {
				return
			}
			if n == 0 { // the end of a cell
				_, _ = to.Write(nil)
				continue
			}
			handle(append([]byte(nil), buffer[:n]...), func(b []byte) { _, _ = near.Write(b) }, func(b []byte) { _, _ = far.Write(b) })
		}
	}
	go forward(near, far, r.request)
	go forward(far, near, r.answer)
}

func passAll(_ uint64, pass func()) { pass() }

// TestLoss checks that messages that the relay drops, delays or duplicates are counted, and that the measurement continues.
func TestLoss(t *testing.T) {
	for _, spin := range []string{"--spin", "--block"} {
		// Processes of a busy machine wait for less than lossAfter. With rate 0, each loss takes as long.
		for _, c := range []struct {
			rate                string
			lossAfter, duration time.Duration
		}{{"0", time.Second, 8 * time.Second}, {"100", 2 * time.Second, 3 * time.Second}} {
			t.Run(spin+" at rate "+c.rate, func(t *testing.T) {
				if err := loss(t, spin, c.rate, c.lossAfter, c.duration); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func loss(t *testing.T, spin, rate string, lossAfter, duration time.Duration) error {
	t.Helper()
	server, port := serve(t, program, nil)
	var mu sync.Mutex
	var dropped, delayed, doubled int64
	count := func(n *int64) {
		mu.Lock()
		defer mu.Unlock()
		*n++
	}
	r := relay{port: port}
	r.request, r.answer = choosing(
		func(seq uint64, pass func()) {
			if seq%100 == 50 {
				count(&dropped)
				return
			}
			pass()
		},
		func(seq uint64, pass func()) {
			switch seq % 100 {
			case 20: // the answer is lost
				count(&dropped)
			case 30: // the answer arrives after it was given up
				count(&delayed)
				time.AfterFunc(lossAfter+lossAfter/4, pass)
			case 70:
				count(&doubled)
				pass()
				pass()
			default:
				pass()
			}
		})
	r.start(t)
	args := clientArgs(port, "--protocol", "udp", "--sizes", "64", "--rates", rate, "--duration", fmt.Sprint(duration.Milliseconds(), "ms"), "--warmup", "0s",
		"--loss-after", fmt.Sprint(lossAfter.Milliseconds(), "ms"), "--server", "127.0.0.2", spin)
	c := wantResult(t, start(t, program, nil, args...), 1).Cells[0]
	_ = server.Process.Kill()
	mu.Lock()
	defer mu.Unlock()
	// If the relay is prevented for long from passing on an answer, no process remembers its message.
	if c.Strays > 0 {
		return fmt.Errorf("%d strays", c.Strays)
	}
	if dropped < 3 || delayed < 2 || doubled < 2 {
		return fmt.Errorf("the relay dropped %d, delayed %d, doubled %d: too few to test anything", dropped, delayed, doubled)
	}
	// A loaded machine loses more than the relay drops, because answers arrive too late.
	if extra := c.Lost - dropped - delayed; extra < 0 || extra > 5 || c.Late > delayed+extra || c.Late < delayed-2 {
		return fmt.Errorf("%d lost, %d late; the relay dropped %d and delayed %d", c.Lost, c.Late, dropped, delayed)
	}
	if c.Duplicates < doubled-1 || c.Duplicates > doubled+1 {
		return fmt.Errorf("%d duplicates of %d", c.Duplicates, doubled)
	}
	if c.RTT.Max >= int64(lossAfter+5*time.Millisecond) {
		return fmt.Errorf("the largest round trip is %s: a lost one was counted", time.Duration(c.RTT.Max))
	}
	return nil
}

// TestReordered delays one of every hundred answers until after twenty answers to later messages, and by at least 20 ms.
func TestReordered(t *testing.T) {
	_, port := serve(t, program, nil)
	const delay = 20 * time.Millisecond
	var held func()
	var since time.Time
	r := relay{port: port}
	r.request, r.answer = choosing(passAll, func(seq uint64, pass func()) {
		switch seq % 100 {
		case 50:
			held, since = pass, time.Now()
		case 70:
			pass()
			time.Sleep(delay - time.Since(since))
			held()
		default:
			pass()
		}
	})
	r.start(t)
	args := append(clientArgs(port, "--protocol", "udp", "--sizes", "64", "--rates", "200", "--duration", "5s", "--warmup", "0s", "--loss-after", "10s"),
		"--server", "127.0.0.2")
	c := wantResult(t, start(t, program, nil, args...), 1).Cells[0]
	// The kernel itself may reorder a few that it processes on different CPUs.
	if c.Reordered < 10 || c.Reordered > 30 || c.Lost > 0 || c.RTT.Max < int64(delay) {
		t.Errorf("%d reordered, %d lost, the largest %s", c.Reordered, c.Lost, time.Duration(c.RTT.Max))
	}
}

func TestNothingComesBack(t *testing.T) {
	t.Parallel()
	_, port := serve(t, program, nil)
	r := relay{port: port}
	r.request, r.answer = choosing(func(uint64, func()) {}, passAll)
	r.start(t)
	args := append(clientArgs(port, "--protocol", "udp", "--sizes", "64", "--duration", "1s"), "--server", "127.0.0.2")
	wantFailure(t, start(t, program, nil, args...), 8, "no datagram")
}
