package pinger_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// answerer answers the message with a number; send sends a message to the client.
type answerer func(seq uint64, message []byte, send func([]byte))

// impostor is a server that has the key, and answers messages as it likes.
type impostor struct {
	listener *net.TCPListener
	session  session
	size     int
	answer   answerer
}

// session is the server's side of what src/session.h describes. said is what it has written since the greeting.
type session struct {
	said           bytes.Buffer
	key, cell      [2]uint64
	client, server [2]uint64
	cells          uint64
}

// siphash is SipHash of words, with these numbers of rounds.
func siphash(rounds, last int, key [2]uint64, words ...uint64) uint64 {
	v := [4]uint64{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573}
	mix := func(n int) {
		for range n {
			v[0] += v[1]
			v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[3]
			v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
			v[0] += v[3]
			v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
			v[2] += v[1]
			v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	for _, word := range append(words, uint64(len(words))*8<<56) {
		v[3] ^= word
		mix(rounds)
		v[0] ^= word
	}
	v[2] ^= 0xff
	mix(last)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

func (s *session) derive(purpose, protocol, size uint64) uint64 {
	return siphash(2, 4, s.key, purpose, s.client[0], s.client[1], s.server[0], s.server[1], s.cells, protocol, size)
}

// greet answers a line of the greeting, and reports whether it is one.
func (s *session) greet(c io.Writer, line string) bool {
	var proof uint64
	if _, err := fmt.Sscanf(line, "TAILGATE-PINGER 3 %16x%16x\n", &s.client[0], &s.client[1]); err == nil {
		_, _ = fmt.Sscanf(key, "%16x%16x", &s.key[0], &s.key[1])
		s.server = [2]uint64{rand.Uint64(), rand.Uint64()}
		fmt.Fprintf(c, "PROOF %016x%016x %016x\n", s.server[0], s.server[1], s.derive(1, 0, 0))
		return true
	}
	if _, err := fmt.Sscanf(line, "PROOF %16x\n", &proof); err != nil || proof != s.derive(0, 0, 0) {
		return false
	}
	fmt.Fprint(c, "WELCOME\n")
	s.said.Reset()
	return true
}

func (s *session) seal() uint64 {
	var chain, word uint64
	for i, c := range s.said.Bytes() {
		if word |= uint64(c) << (i % 8 * 8); i%8 == 7 {
			chain, word = siphash(2, 4, s.key, chain, word), 0
		}
	}
	return s.derive(5, siphash(2, 4, s.key, chain, word), uint64(s.said.Len()))
}

func (s *session) nextCell(protocol string, size int) {
	s.cells++
	p := uint64(slices.Index([]string{"tcp", "udp"}, protocol))
	s.cell = [2]uint64{s.derive(2, p, uint64(size)), s.derive(3, p, uint64(size))}
}

// proven returns a message with the server's half of the tag, as far as it is long enough for one.
func (s *session) proven(message []byte) []byte {
	m := slices.Clone(message)
	if n := len(m); n >= 16 {
		binary.LittleEndian.PutUint32(m[n-8:], uint32(siphash(1, 3, s.cell, binary.LittleEndian.Uint64(m))>>32))
	}
	return m
}

// predicted is what the answer to the message after this one looks like to a server that has not received it.
func predicted(message []byte) []byte {
	next := slices.Clone(message)
	binary.LittleEndian.PutUint64(next, binary.LittleEndian.Uint64(message)+1)
	return next
}

func (i *impostor) serve(t *testing.T) {
	c, err := i.listener.AcceptTCP()
	if err != nil {
		return
	}
	defer c.Close()
	lines, out := bufio.NewReader(c), io.MultiWriter(c, &i.session.said)
	var data io.Closer
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var protocol string
		var port int
		switch line {
		case "SCAN\n":
			fmt.Fprint(out, "SCANNING\n")
			time.Sleep(200 * time.Millisecond)
			fmt.Fprint(out, "SCANNED 2\n{}")
		case "END\n":
			data.Close()
			fmt.Fprint(out, "STATS 2 0 0 0 0 0 0 0\n{}")
		case "VERIFY\n":
			fmt.Fprint(out, "VERIFIED\n")
			fmt.Fprintf(out, "SEAL %016x\n", i.session.seal())
		default:
			if strings.HasPrefix(line, "SEAL ") || i.session.greet(out, line) {
				continue
			}
			if _, err := fmt.Sscanf(line, "CELL %s %d %d", &protocol, &i.size, &port); err != nil {
				t.Errorf("the client says %q", line)
				return
			}
			i.session.nextCell(protocol, i.size)
			if protocol == "tcp" {
				data, err = i.connection(out)
			} else {
				data, err = i.socket(out, port)
			}
			if err != nil {
				t.Errorf("making the path of a cell: %v", err)
				return
			}
		}
	}
}

// connection waits for the data connection, and answers the stream of messages on it.
func (i *impostor) connection(control io.Writer) (io.Closer, error) {
	fmt.Fprint(control, "CONNECT nonce\n")
	data, err := i.listener.AcceptTCP()
	if err != nil {
		return nil, err
	}
	messages := bufio.NewReader(data)
	if line, err := messages.ReadString('\n'); err != nil || line != "DATA nonce\n" {
		return nil, fmt.Errorf("the data connection says %q: %w", line, err)
	}
	fmt.Fprint(control, "READY\n")
	go func() {
		send := func(b []byte) { _, _ = data.Write(i.session.proven(b)) }
		i.answer(0, make([]byte, i.size), send)
		for message := make([]byte, i.size); ; {
			if _, err := io.ReadFull(messages, message); err != nil {
				return
			}
			i.answer(binary.LittleEndian.Uint64(message), message, send)
		}
	}()
	return data, nil
}

// socket answers datagrams, first those by which the client tries the path: their number is 0.
func (i *impostor) socket(control io.Writer, port int) (io.Closer, error) {
	here := i.listener.Addr().(*net.TCPAddr)
	data, err := net.DialUDP("udp", &net.UDPAddr{IP: here.IP, Port: here.Port}, &net.UDPAddr{IP: here.IP, Port: port})
	if err != nil {
		return nil, err
	}
	fmt.Fprint(control, "READY\n")
	go func() {
		send := func(b []byte) { _, _ = data.Write(i.session.proven(b)) }
		for message := make([]byte, 65536); ; {
			n, err := data.Read(message)
			if err != nil {
				return
			}
			if n != i.size {
				continue
			}
			seq := binary.LittleEndian.Uint64(message)
			if seq == 0 {
				_, _ = data.Write(message[:n])
			}
			i.answer(seq, message[:n], send)
		}
	}()
	return data, nil
}

const pause = 20 * time.Millisecond

// honest answers each message after a pause.
func honest(seq uint64, message []byte, send func([]byte)) {
	if seq > 0 {
		time.Sleep(pause)
		send(message)
	}
}

// early returns an answerer that knows nothing of the message that it answers: in a closed loop it answers before the message is
// sent. At a rate the client takes no answer that comes so early, and the answerer waits until the message is there.
func early(rate string) answerer {
	var last []byte
	return func(_ uint64, message []byte, send func([]byte)) {
		if rate == "0" {
			last = message
		}
		if last != nil {
			send(predicted(last))
		}
		last = append([]byte(nil), message...)
	}
}

// twice returns an answerer that sends the true answer, too.
func twice(rate string) answerer {
	first := early(rate)
	return func(seq uint64, message []byte, send func([]byte)) {
		first(seq, message, send)
		honest(seq, message, send)
	}
}

// TestEarlyAnswers: a server that predicts the messages gains nothing by answering them before it has received them.
func TestEarlyAnswers(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp"} {
		for _, rate := range []string{"0", "20"} {
			measure := func(t *testing.T, size int, duration string, answer answerer) *process {
				t.Helper()
				l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { l.Close() })
				go (&impostor{listener: l, answer: answer}).serve(t)
				_, port, _ := net.SplitHostPort(l.Addr().String())
				return start(t, program, nil, clientArgs(port, "--protocol", protocol, "--sizes", strconv.Itoa(size), "--rates", rate,
					"--duration", duration, "--warmup", "0s", "--loss-after", "2s")...)
			}
			t.Run(protocol+" at rate "+rate, func(t *testing.T) {
				t.Parallel()
				if c := wantResult(t, measure(t, 16, "300ms", honest), 1).Cells[0]; c.RTT.Min < int64(pause) || c.Strays > 0 {
					t.Errorf("an honest server: %d strays, the fastest message took %s", c.Strays, time.Duration(c.RTT.Min))
				}
				// This shows that the impostor is fast unless it waits for the CPU all the time: shorter messages have no room for a tag.
				if c := wantResult(t, measure(t, 15, "3s", early(rate)), 1).Cells[0]; c.RTT.Min >= int64(pause) {
					t.Errorf("the fastest message without a tag took %s", time.Duration(c.RTT.Min))
				}
				for _, size := range []int{16, 3000} {
					wantFailure(t, measure(t, size, "300ms", early(rate)), 4, "message 1", "before it had the whole message")
					if protocol == "udp" {
						wantFailure(t, measure(t, size, "300ms", twice(rate)), 4, "message 1", "before it had the whole message")
					}
				}
			})
		}
	}
}
