package verdicthttp

import (
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

// The rates, in requests a second, and the bursts that are answered: for one client, by address,
// and for all. Requests beyond them are refused before any request to the API server.
const (
	clientRate, clientBurst = rate.Limit(10), 20
	// Each request needs at least three requests to the API server.
	totalRate, totalBurst = rate.Limit(30), 60
	// maxClients are counted separately; the longest quiet one is forgotten first.
	maxClients = 1024
	// quiet is when a client is forgotten. Its burst is full again long before.
	quiet = time.Minute
)

type limiter struct {
	now   func() time.Time
	total *rate.Limiter

	mu      sync.Mutex
	clients *cache.LRUExpireCache
}

func newLimiter(now cache.Clock) *limiter {
	return &limiter{now: now.Now, total: rate.NewLimiter(totalRate, totalBurst), clients: cache.NewLRUExpireCacheWithClock(maxClients, now)}
}

// allows reports whether a request is within the limits, its client's before the shared one.
func (l *limiter) allows(r *http.Request) bool {
	now := l.now()
	return l.client(hostOf(r.RemoteAddr)).AllowN(now, 1) && l.total.AllowN(now, 1)
}

func (l *limiter) client(host string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	client, ok := l.clients.Get(host)
	if !ok {
		client = rate.NewLimiter(clientRate, clientBurst)
	}
	l.clients.Add(host, client, quiet)
	return client.(*rate.Limiter)
}

// The limits of a port of the manager. They hold before a request is authenticated.
const (
	// maxHeader bounds a request's header, in bytes; net/http adds 4 KiB.
	maxHeader = 20 << 10
	// headerTimeout bounds the TLS handshake and the header, readTimeout the request, writeTimeout
	// it with its response, and idleTimeout a connection's pause between requests.
	headerTimeout, readTimeout, writeTimeout, idleTimeout = 5 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second
	// maxConnections is a port's, maxOfClient an address's, so that probes get through.
	maxConnections, maxOfClient = 96, 16
)

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
