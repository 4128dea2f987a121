package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer returns the response of a failing API server to a manager. It may wait until the failure is over.
type answer func(r *http.Request, over <-chan struct{}) (*http.Response, error)

// apiServerAnswers are the answers of an API server that is overloaded, restarting, or hanging.
var apiServerAnswers = []answer{
	func(*http.Request, <-chan struct{}) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	},
	status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "the server has received too many requests", 1),
	status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "apiserver is shutting down", 0),
	status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "request did not complete within the allotted timeout", 0),
	// The connection stays open, and the answer never arrives.
	func(r *http.Request, over <-chan struct{}) (*http.Response, error) {
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-over:
			return nil, errors.New("http2: client connection lost")
		}
	},
}

// etcdAnswers are the answers of an API server whose etcd fails.
var etcdAnswers = []answer{
	status(http.StatusInternalServerError, metav1.StatusReasonUnknown, "etcdserver: request timed out", 0),
	status(http.StatusInternalServerError, metav1.StatusReasonUnknown, "etcdserver: leader changed", 0),
	status(http.StatusInternalServerError, metav1.StatusReasonInternalError, "rpc error: code = Unavailable desc = transport is closing", 0),
	status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "storage is (re)initializing", 1),
}

// status returns an answer with an error of the API.
func status(code int, reason metav1.StatusReason, message string, retryAfter int32) answer {
	return func(r *http.Request, _ <-chan struct{}) (*http.Response, error) {
		s := metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: reason, Message: message,
		}
		header := http.Header{"Content-Type": {"application/json"}}
		if retryAfter > 0 {
			s.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
			header.Set("Retry-After", strconv.Itoa(int(retryAfter)))
		}
		body, err := json.Marshal(s)
		return &http.Response{
			StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/2.0", ProtoMajor: 2, Header: header, Request: r,
			Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		}, err
	}
}

// failure answers all requests, with its answers in turn.
type failure struct {
	answers []answer
	asked   atomic.Int64
	over    chan struct{}
}

func (f *failure) answer(r *http.Request) (*http.Response, error) {
	n := f.asked.Add(1)
	return f.answers[int(n)%len(f.answers)](r, f.over)
}

// FailAPI makes all requests of managers fail, and ends their watches, until heal is called. heal waits until managers have
// received each answer.
func (w *World) FailAPI(answers []answer) (heal func()) {
	GinkgoHelper()
	f := &failure{answers: answers, over: make(chan struct{})}
	w.failing.Store(f)
	w.watches.cut()
	end := sync.OnceFunc(func() {
		w.failing.Store(nil)
		close(f.over)
	})
	DeferCleanup(end)
	return func() {
		GinkgoHelper()
		Eventually(f.asked.Load).Should(BeNumerically(">=", len(answers)), "requests during the failure")
		end()
	}
}

// watches holds the bodies of the responses to managers, including watches.
type watches struct {
	mu   sync.Mutex
	open map[*watched]bool
}

type watched struct {
	io.ReadCloser
	of *watches
}

func (w *watches) follow(r *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return r, err
	}
	body := &watched{r.Body, w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[*watched]bool{}
	}
	w.open[body] = true
	r.Body = body
	return r, nil
}

func (b *watched) Close() error {
	b.of.mu.Lock()
	delete(b.of.open, b)
	b.of.mu.Unlock()
	return b.ReadCloser.Close()
}

// cut closes all bodies.
func (w *watches) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for body := range w.open {
		body.ReadCloser.Close()
	}
}
