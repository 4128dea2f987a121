package pinger_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"
)

// answerer answers the message with a number; send sends a message to the client.
type answerer func(seq uint64, message []byte, send func([]byte))

// impostor is a server that speaks the pinger's protocol on its control connection, and answers messages as it likes.
type impostor struct {
	listener *net.TCPListener
	size     int
	answer   answerer
}

// predicted is what the answer to the message after this one looks like to who has not received it.
func predicted(message []byte) []byte {
	next := append([]byte(nil), message...)
	binary.LittleEndian.PutUint64(next, binary.LittleEndian.Uint64(message)+1)
	return next
}

func (i *impostor) serve(t *testing.T) {
	c, err := i.listener.AcceptTCP()
	if err != nil {
		return
	}
	defer c.Close()
	lines := bufio.NewReader(c)
	var data io.Closer
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var protocol string
		var port int
		switch line {
		case "TAILGATE-PINGER 1 " + token + "\n":
			fmt.Fprint(c, "WELCOME\n")
		case "SCAN\n":
			fmt.Fprint(c, "SCANNING\n")
			time.Sleep(200 * time.Millisecond)
			fmt.Fprint(c, "SCANNED 2\n{}")
		case "END\n":
			data.Close()
			fmt.Fprint(c, "STATS 2 0 0 0 0 0 0 0\n{}")
		case "VERIFY\n":
			fmt.Fprint(c, "VERIFIED\n")
		default:
			if _, err := fmt.Sscanf(line, "CELL %s %d %d", &protocol, &i.size, &port); err != nil {
				t.Errorf("the client says %q", line)
				return
			}
			if protocol == "tcp" {
				data, err = i.connection(c)
			} else {
				data, err = i.socket(c, port)
			}
			if err != nil {
				t.Errorf("making the path of a cell: %v", err)
				return
			}
		}
	}
}

// connection waits for the data connection, and answers the stream of messages on it.
func (i *impostor) connection(control net.Conn) (io.Closer, error) {
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
		send := func(b []byte) { _, _ = data.Write(b) }
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
func (i *impostor) socket(control net.Conn, port int) (io.Closer, error) {
	here := i.listener.Addr().(*net.TCPAddr)
	data, err := net.DialUDP("udp", &net.UDPAddr{IP: here.IP, Port: here.Port}, &net.UDPAddr{IP: here.IP, Port: port})
	if err != nil {
		return nil, err
	}
	fmt.Fprint(control, "READY\n")
	go func() {
		send := func(b []byte) { _, _ = data.Write(b) }
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
				send(message[:n])
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
					if protocol == "tcp" {
						wantFailure(t, measure(t, size, "300ms", early(rate)), 9, "something else than message 1")
						continue
					}
					wantFailure(t, measure(t, size, "300ms", early(rate)), 8, "none of")
					if c := wantResult(t, measure(t, size, "300ms", twice(rate)), 1).Cells[0]; c.Strays == 0 || c.RTT.Min < int64(pause) {
						t.Errorf("%d strays of %d messages, the fastest took %s", c.Strays, c.Sent, time.Duration(c.RTT.Min))
					}
				}
			})
		}
	}
}
