package verdicthttp

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// The limits of a port of the manager. They hold before a request is authenticated.
const (
	// maxHeader bounds the header of a request, in bytes; net/http adds 4 KiB. The longest token fits.
	maxHeader = 20 << 10
	// headerTimeout bounds the TLS handshake and the header, readTimeout the whole request, writeTimeout the request with its
	// response, and idleTimeout the pause between two requests of a connection.
	headerTimeout, readTimeout, writeTimeout, idleTimeout = 5 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second
	// maxConnections and maxOfClient are how many connections a port has, and how many of one address: one client alone cannot
	// keep the kubelet's probes out. Further connections are closed.
	maxConnections, maxOfClient = 96, 16
)

// NewServer returns a server with the limits of a request.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}
}

// Bound returns a listener that closes the connections beyond the limits of a port.
func Bound(listener net.Listener) net.Listener {
	return &bounded{Listener: listener, open: map[string]int{}}
}

type bounded struct {
	net.Listener

	mu    sync.Mutex
	total int
	open  map[string]int
}

// Accept implements net.Listener.
func (l *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if host := hostOf(conn.RemoteAddr().String()); l.enter(host) {
			return &counted{conn, sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		_ = conn.Close() // Nothing was sent.
	}
}

func (l *bounded) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxConnections || l.open[host] >= maxOfClient {
		return false
	}
	l.total++
	l.open[host]++
	return true
}

func (l *bounded) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.open[host]--; l.open[host] == 0 {
		delete(l.open, host)
	}
}

// counted is a connection that gives its place back when it is closed.
type counted struct {
	net.Conn
	left func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.left()
	return c.Conn.Close()
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
