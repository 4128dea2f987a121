// Command engine is an order-acknowledgement engine and its client, as a program of tool Custom and for tests of captures.
//
// The client sends bursts of FIX orders on several connections of one process, and each connection waits for all acknowledgements of
// a burst before the next. Over TCP, a burst is one write, and the engine acknowledges the orders that it read at once with one write;
// over UDP, each order and each acknowledgement is a datagram. The client writes a list of values in ns, one a line and order: round
// trips from the intended send, or with --measure in-to-out the time from the arrival of an order at the engine to that of its
// acknowledgement at the client, by the kernel's timestamps of received packets. On a loopback, this is IN to OUT of a capture: over
// UDP to 1 ns; over TCP the kernel takes another timestamp for the socket than for a capture, some 0.1 to 10 us later.
//
// Each flag has the value of a variable TAILGATE_* of tool Custom as its default.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// settings are those of the flags.
type settings struct {
	connections, rate, size int
	bursts                  []int
	warmup, duration        time.Duration
	inToOut                 bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	env := func(name, otherwise string) string {
		if v := os.Getenv("TAILGATE_" + name); v != "" && v != "0" {
			return v
		}
		return otherwise
	}
	s := settings{}
	f := flag.NewFlagSet("engine", flag.ContinueOnError)
	role := f.String("role", env("ROLE", "server"), "server or client")
	address := f.String("address", env("ADDRESS", "127.0.0.1"), "address of this end")
	peer := f.String("peer", env("PEER", "127.0.0.1"), "address of the engine, for the client")
	protocol := f.String("protocol", env("PROTOCOL", "TCP"), "TCP or UDP")
	port := f.String("port", env("PORT", "12001"), "port of the engine")
	output := f.String("output", env("OUTPUT", ""), "file for the client's values; empty: standard output")
	rate := f.String("rate", env("RATE", "23000"), "orders a second on all connections")
	size := f.String("size", env("SIZE", "0"), "least bytes of an order")
	warmup := f.String("warmup-ms", env("WARMUP_MS", "0"), "time without values, in ms")
	duration := f.String("duration-ms", env("DURATION_MS", "1000"), "time with values, in ms")
	f.IntVar(&s.connections, "connections", 10, "connections of the client")
	bursts := f.String("bursts", "1,10,25,100", "orders at once, one after the other")
	measure := f.String("measure", "round-trip", "round-trip or in-to-out")
	if err := f.Parse(args); err != nil {
		return err
	}
	var wrong error
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if wrong = errors.Join(wrong, err); n < 0 {
			wrong = errors.Join(wrong, fmt.Errorf("%d is negative", n))
		}
		return n
	}
	s.rate, s.size, s.inToOut = number(*rate), number(*size), *measure == "in-to-out"
	s.warmup, s.duration = time.Duration(number(*warmup))*time.Millisecond, time.Duration(number(*duration))*time.Millisecond
	for _, b := range strings.Split(*bursts, ",") {
		s.bursts = append(s.bursts, number(b))
	}
	if wrong != nil || s.rate == 0 || s.connections == 0 {
		return errors.Join(wrong, errors.New("rates and connections are positive numbers"))
	}
	network := strings.ToLower(*protocol)
	if *role == "server" {
		engine, err := listen(network, net.JoinHostPort(*address, *port))
		if err != nil {
			return err
		}
		return serve(ctx, engine)
	}
	values, err := trade(ctx, func() (net.Conn, error) { return dial(ctx, network, net.JoinHostPort(*peer, *port)) }, s)
	if err != nil {
		return err
	}
	out := stdout
	if *output != "" {
		file, err := os.Create(*output)
		if err != nil {
			return err
		}
		defer file.Close()
		out = file
	}
	lines := bufio.NewWriter(out)
	for _, v := range values {
		fmt.Fprintln(lines, v.ns)
	}
	return lines.Flush()
}

// dial connects, also with an engine that begins only now.
func dial(ctx context.Context, network, to string) (net.Conn, error) {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, to)
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return conn, err
		}
	}
}

// listen returns a net.Listener, or a *net.UDPConn.
func listen(network, address string) (io.Closer, error) {
	if network != "udp" {
		return net.Listen(network, address)
	}
	conn, err := net.ListenPacket(network, address)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// serve acknowledges orders until the context ends.
func serve(ctx context.Context, engine io.Closer) error {
	stop := context.AfterFunc(ctx, func() { engine.Close() })
	defer stop()
	if conn, ok := engine.(*net.UDPConn); ok {
		err := acknowledge(conn)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for {
		conn, err := engine.(net.Listener).Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			_ = acknowledge(conn) // It ends when the client closes the connection.
		}()
	}
}

// acknowledge answers each order with its ClOrdID and the time when it arrived.
func acknowledge(conn net.Conn) error {
	in, err := stamped(conn)
	if err != nil {
		return err
	}
	var rest, acks []byte
	for {
		data, at, from, err := in()
		if err != nil {
			return err
		}
		rest, acks = append(rest, data...), acks[:0]
		for {
			order, after, whole := next(rest)
			if !whole {
				break
			}
			rest = after
			acks = append(acks, fix("8", 0, "11="+tag(order, "11"), "17="+tag(order, "11"), "5001="+strconv.FormatInt(at, 10))...)
		}
		if udp, ok := conn.(*net.UDPConn); ok {
			_, err = udp.WriteToUDPAddrPort(acks, from)
		} else {
			_, err = conn.Write(acks)
		}
		if err != nil {
			return err
		}
	}
}

// patience is how much longer than the trade it may take, such as when a datagram was lost.
const patience = 20 * time.Second

// value is the latency of an order.
type value struct {
	id string
	ns int64
}

// trade sends the bursts on all connections and returns the values of the orders after the warm-up.
func trade(ctx context.Context, connect func() (net.Conn, error), s settings) ([]value, error) {
	var (
		group  sync.WaitGroup
		lock   sync.Mutex
		values []value
		failed error
	)
	var conns []net.Conn
	for range s.connections {
		conn, err := connect()
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		if err := conn.SetDeadline(time.Now().Add(s.warmup + s.duration + patience)); err != nil {
			return nil, err
		}
		conns = append(conns, conn)
	}
	begin := time.Now().Add(10 * time.Millisecond)
	for i, conn := range conns {
		group.Go(func() {
			own, err := session(conn, i, begin, s)
			lock.Lock()
			defer lock.Unlock()
			values, failed = append(values, own...), errors.Join(failed, err)
		})
	}
	group.Wait()
	return values, errors.Join(failed, ctx.Err())
}

// session trades on one connection.
func session(conn net.Conn, number int, begin time.Time, s settings) (values []value, err error) {
	in, err := stamped(conn)
	if err != nil {
		return nil, err
	}
	each := time.Duration(s.connections) * time.Second / time.Duration(s.rate)
	intended := begin.Add(time.Duration(number) * time.Second / time.Duration(s.rate))
	_, udp := conn.(*net.UDPConn)
	var rest []byte
	for sent := 0; intended.Before(begin.Add(s.warmup + s.duration)); {
		n := s.bursts[(sent+number)%len(s.bursts)]
		burst := [][]byte{nil}
		for i := range n {
			sent++
			order := fix("D", s.size, fmt.Sprintf("11=c%d-%d", number, sent), "55=BTCUSD", "54=1", "38=100")
			if udp && i > 0 {
				burst = append(burst, nil)
			}
			burst[len(burst)-1] = append(burst[len(burst)-1], order...)
		}
		time.Sleep(time.Until(intended))
		for _, part := range burst {
			if _, err := conn.Write(part); err != nil {
				return values, err
			}
		}
		for left := n; left > 0; {
			data, at, _, err := in()
			if err != nil {
				return values, fmt.Errorf("waiting for %d acknowledgements: %w", left, err)
			}
			now := time.Now()
			rest = append(rest, data...)
			for {
				ack, after, whole := next(rest)
				if !whole {
					break
				}
				rest = after
				left--
				v := value{tag(ack, "11"), int64(now.Sub(intended))}
				if s.inToOut {
					arrived, err := strconv.ParseInt(tag(ack, "5001"), 10, 64)
					if err != nil || arrived == 0 || at == 0 {
						return values, fmt.Errorf("order %s has no timestamp of the kernel", v.id)
					}
					v.ns = at - arrived
				}
				if !intended.Before(begin.Add(s.warmup)) {
					values = append(values, v)
				}
			}
		}
		intended = intended.Add(time.Duration(n) * each)
	}
	return values, nil
}

// stamped makes a function that reads what has come, with the time in ns when the kernel received the last packet of it, or 0, and
// the sender of a datagram.
func stamped(conn net.Conn) (func() ([]byte, int64, netip.AddrPort, error), error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	if ctl := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) // It takes root.
	}); ctl != nil || err != nil {
		return nil, errors.Join(ctl, err)
	}
	data, control := make([]byte, 256<<10), make([]byte, 128)
	if udp, ok := conn.(*net.UDPConn); ok {
		return func() ([]byte, int64, netip.AddrPort, error) {
			n, c, _, from, err := udp.ReadMsgUDPAddrPort(data, control)
			return data[:max(n, 0)], stampOf(control[:max(c, 0)]), from, err
		}, nil
	}
	return func() ([]byte, int64, netip.AddrPort, error) {
		var n, c int
		var err error
		if reading := raw.Read(func(fd uintptr) bool {
			n, c, _, _, err = unix.Recvmsg(int(fd), data, control, 0)
			return !errors.Is(err, unix.EAGAIN)
		}); reading != nil {
			return nil, 0, netip.AddrPort{}, reading
		}
		if err != nil || n == 0 {
			return nil, 0, netip.AddrPort{}, errors.Join(err, io.EOF)
		}
		return data[:n], stampOf(control[:c]), netip.AddrPort{}, nil
	}, nil
}

// stampOf returns the time in a control message, or 0.
func stampOf(control []byte) int64 {
	messages, _ := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		if m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			return (*unix.Timespec)(unsafe.Pointer(&m.Data[0])).Nano()
		}
	}
	return 0
}

const separator = "\x01"

// fix returns a message of a type with fields, and a text that makes it at least as long as size.
func fix(kind string, size int, fields ...string) []byte {
	body := "35=" + kind + separator + strings.Join(fields, separator) + separator
	message := func() string { return fmt.Sprintf("8=FIX.4.4%s9=%d%s%s", separator, len(body), separator, body) }
	if missing := size - len(message()) - len("10=000"+separator); missing > 0 {
		body += "58=" + strings.Repeat("x", max(missing-len("58="+separator), 1)) + separator
	}
	m := []byte(message())
	var sum byte
	for _, b := range m {
		sum += b
	}
	return fmt.Appendf(m, "10=%03d%s", sum, separator)
}

// next returns the first message of b and what follows; whole is false if more bytes are needed.
func next(b []byte) (message, after []byte, whole bool) {
	end := bytes.Index(b, []byte(separator+"10="))
	if length := end + len(separator+"10=000"+separator); end >= 0 && len(b) >= length {
		return b[:length], b[length:], true
	}
	return nil, b, false
}

// tag returns the value of a tag, or nothing.
func tag(message []byte, name string) string {
	_, value, _ := bytes.Cut(message, []byte(separator+name+"="))
	value, _, _ = bytes.Cut(value, []byte(separator))
	return string(value)
}
