package verdicthttp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// pipes is a listener whose connections come from given addresses; it fails once at an empty one.
type pipes struct {
	net.Listener
	from chan string
}

// addressed is a connection that comes from an address.
type addressed struct {
	net.Conn
	from string
}

func (a addressed) RemoteAddr() net.Addr { return address(a.from) }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

var errNoMore = errors.New("no more connections")

func (p pipes) Accept() (net.Conn, error) {
	from := <-p.from
	if from == "" {
		return nil, errNoMore
	}
	conn, peer := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, peer) }()
	return addressed{conn, from}, nil
}

// A connection that ends gives one place of its address back, not all; the last one's address is forgotten.
func TestEndedConnections(t *testing.T) {
	l := &bounded{open: map[string]int{}}
	for range maxOfClient {
		l.enter("a")
	}
	l.leave("a")
	if !l.enter("a") || l.enter("a") {
		t.Errorf("after one end: %v", l.open)
	}
	l.enter("b")
	for range maxOfClient {
		l.leave("a")
	}
	if len(l.open) != 1 || l.open["b"] != 1 || l.total != 1 {
		t.Errorf("after all of an address ended: %v, %d in all", l.open, l.total)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	next := make(chan string, 1000)
	l := Bound(pipes{from: next})
	// accepted returns the connections that are accepted out of some.
	accepted := func(from ...string) (all []net.Conn) {
		for _, a := range append(from, "") {
			next <- a
		}
		for {
			conn, err := l.Accept()
			if errors.Is(err, errNoMore) {
				return all
			}
			all = append(all, conn)
		}
	}
	var one, many []string
	for i := range maxConnections {
		one, many = append(one, fmt.Sprintf("10.0.0.1:%d", i)), append(many, fmt.Sprintf("10.0.1.%d:1", i))
	}
	first := accepted(one...)
	if len(first) != maxOfClient {
		t.Errorf("%d connections of one client, want %d", len(first), maxOfClient)
	}
	if got := accepted(many...); len(got) != maxConnections-maxOfClient {
		t.Errorf("%d connections of others, want %d", len(got), maxConnections-maxOfClient)
	}
	// A connection that is closed twice gives one place back.
	_, _ = first[0].Close(), first[0].Close()
	if got := accepted("10.0.2.1:1", "10.0.0.1:99"); len(got) != 1 || got[0].RemoteAddr().String() != "10.0.2.1:1" {
		t.Errorf("after one end: %d more", len(got))
	}
	for _, c := range first {
		_ = c.Close()
	}
	if got := accepted(one...); len(got) != maxOfClient-1 {
		t.Errorf("after all of one client ended: %d, want %d", len(got), maxOfClient-1)
	}
}

// served returns the address of a server with the limits.
func served(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answered") }))
	go func() { _ = s.Serve(Bound(listener)) }()
	t.Cleanup(func() { _ = s.Close() })
	return listener.Addr().String()
}

// A header that has no end is refused after the limit, and the longest token fits.
func TestHeadersAreBounded(t *testing.T) {
	for _, c := range []struct {
		line string
		want int
	}{
		{"Authorization: Bearer " + strings.Repeat("a", maxToken) + "\r\n", http.StatusOK},
		{strings.Repeat("a: b\r\n", maxHeader/3), http.StatusRequestHeaderFieldsTooLarge},
		{"a: " + strings.Repeat("b", 2*maxHeader) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
	} {
		conn, err := net.Dial("tcp", served(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() { _, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n"+c.line+"\r\n") }()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != c.want {
			t.Errorf("%d bytes of header: %s, want %d", len(c.line), response.Status, c.want)
		}
	}
}

// Every step of a request has a limit, and a response has longer than the requests to the API server that it needs.
func TestRequestsAreBounded(t *testing.T) {
	s := NewServer(nil)
	for name, limit := range map[string]time.Duration{"header": s.ReadHeaderTimeout, "request": s.ReadTimeout, "response": s.WriteTimeout, "idle": s.IdleTimeout} {
		if limit <= 0 || limit > time.Minute {
			t.Errorf("%s: %s", name, limit)
		}
	}
	if s.WriteTimeout < s.ReadTimeout+patience {
		t.Errorf("a response must end after %s", s.WriteTimeout)
	}
}
