package verdicthttp

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

// The rates, in requests a second, and the bursts after a pause that are answered: for one client, by its address, and for all
// clients. Requests beyond these limits are refused before any request to the API server.
const (
	clientRate, clientBurst = rate.Limit(10), 20
	// Each request needs at least three requests to the API server.
	totalRate, totalBurst = rate.Limit(30), 60
	// maxClients is how many clients are counted separately; the client that was quiet for longest is forgotten first.
	maxClients = 1024
	// quiet is the time without a request after which a client is forgotten. Its burst is full again long before.
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

// allows reports whether a request is within the limits. A client that exceeds its own limit does not use up the shared one.
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
