package pinger_test

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// lies are what a host in the path does that has not the key. It passes on the control connection, so that the two ends know each other.
func lies() map[string]func(r *relay) {
	drop := func([]byte, func([]byte), func([]byte)) {}
	// own answers a message with what make makes of it, and leaves the datagrams alone that try the path.
	own := func(r *relay, make func(message []byte) []byte, copies bool) {
		r.request = func(m []byte, client, server func([]byte)) {
			if binary.LittleEndian.Uint64(m) == 0 {
				client(m)
				return
			}
			client(make(m))
			if copies {
				server(m)
			}
		}
		r.answer = drop
	}
	same := func(m []byte) []byte { return m }
	guess := func(m []byte) []byte {
		m = slices.Clone(m)
		_, _ = rand.Read(m[len(m)-8 : len(m)-4])
		return m
	}
	return map[string]func(*relay){
		"answers with the message":            func(r *relay) { own(r, same, false) },
		"answers, and the server gets copies": func(r *relay) { own(r, same, true) },
		"answers with a guess":                func(r *relay) { own(r, guess, true) },
		"answers after as long as a server does": func(r *relay) {
			own(r, func(m []byte) []byte { time.Sleep(50 * time.Microsecond); return guess(m) }, true)
		},
		"answers, and passes on the answer of the server, too": func(r *relay) {
			own(r, guess, true)
			r.answer = func(m []byte, client, _ func([]byte)) { client(m) }
		},
		"answers one message of a hundred": func(r *relay) {
			own(r, guess, true)
			request := r.request
			r.request = func(m []byte, client, server func([]byte)) {
				if binary.LittleEndian.Uint64(m)%100 == 99 {
					request(m, client, server)
				} else {
					server(m)
				}
			}
			r.answer = func(m []byte, client, _ func([]byte)) { client(m) }
		},
		"answers with the server's answer to the message before": func(r *relay) {
			var mu sync.Mutex
			var last []byte
			r.request = func(m []byte, client, server func([]byte)) {
				mu.Lock()
				defer mu.Unlock()
				if last == nil || binary.LittleEndian.Uint64(m) == 0 {
					server(m)
					return
				}
				copy(last, m[:8])
				copy(last[len(last)-4:], m[len(m)-4:])
				client(last)
			}
			r.answer = func(m []byte, client, _ func([]byte)) {
				mu.Lock()
				defer mu.Unlock()
				if last = slices.Clone(m); binary.LittleEndian.Uint64(m) == 0 {
					last = nil
				}
				client(m)
			}
		},
	}
}

// TestAnswersOfOthers: a host in the path cannot answer in place of the server.
func TestAnswersOfOthers(t *testing.T) {
	for name, lie := range lies() {
		for _, protocol := range []string{"tcp", "udp"} {
			for _, wait := range []string{"--spin", "--block"} {
				for _, rate := range []string{"0", "1000"} {
					t.Run(name+", "+protocol+" "+wait+" at rate "+rate, func(t *testing.T) {
						t.Parallel()
						const size = 64
						_, port := serve(t, program, nil, wait)
						r := &relay{port: port, size: size}
						lie(r)
						r.start(t)
						args := append(clientArgs(port, wait, "--protocol", protocol, "--sizes", strconv.Itoa(size), "--rates", rate, "--duration", "10s",
							"--warmup", "0s", "--loss-after", "10s"), "--server", "127.0.0.2")
						wantFailure(t, start(t, program, nil, args...), 4, "something else than the server answered")
					})
				}
			}
		}
	}
}

// TestHonestRelay shows that the relay alone disturbs nothing: messages that pass it are measured, over streams as well.
func TestHonestRelay(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp"} {
		_, port := serve(t, program, nil)
		r := &relay{port: port, size: 64}
		r.request, r.answer = choosing(passAll, passAll)
		r.start(t)
		args := append(clientArgs(port, "--protocol", protocol, "--sizes", "64", "--duration", "300ms", "--loss-after", "10s"), "--server", "127.0.0.2")
		wantResult(t, start(t, program, nil, args...), 1)
	}
}

// TestMessagesOfOthers: a host in the path cannot ask the server for the answers before the client sends the messages. The server ends, so
// that there are no answers from which to choose.
func TestMessagesOfOthers(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp"} {
		for _, wait := range []string{"--spin", "--block"} {
			t.Run(protocol+" "+wait, func(t *testing.T) {
				server, port := serve(t, program, nil, wait)
				r := &relay{port: port, size: 64}
				r.request, r.answer = choosing(passAll, passAll)
				pass := r.request
				r.request = func(m []byte, client, server func([]byte)) {
					pass(m, client, server)
					next := slices.Clone(m)
					binary.LittleEndian.PutUint64(next, binary.LittleEndian.Uint64(m)+1)
					server(next)
				}
				r.start(t)
				args := append(clientArgs(port, wait, "--protocol", protocol, "--sizes", "64", "--duration", "5s", "--warmup", "0s"), "--server", "127.0.0.2")
				wantFailure(t, start(t, program, nil, args...), 5, "the server is gone")
				wantFailure(t, server, 4, "something else than the client sent message")
			})
		}
	}
}

// TestReportsOfOthers: a host in the path changes neither what the server reports nor what it is asked.
func TestReportsOfOthers(t *testing.T) {
	cases := map[string]struct {
		changes                [2]string
		client, server         int
		clientSays, serverSays string
	}{
		"a report":  {[2]string{`"strays":0`, `"strays":7`}, 4, 0, "the reports of the server were changed on the way", ""},
		"a request": {[2]string{"CELL tcp", "CELL  tcp"}, 5, 4, "the server did not answer", "what the client asked was changed on the way"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server, port := serve(t, program, nil, "--spin")
			r := &relay{port: port, size: 64, changes: strings.NewReplacer(c.changes[0], c.changes[1])}
			r.request, r.answer = choosing(passAll, passAll)
			r.start(t)
			args := append(clientArgs(port, "--spin", "--protocol", "tcp", "--sizes", "64", "--duration", "300ms"), "--server", "127.0.0.2")
			wantFailure(t, start(t, program, nil, args...), c.client, c.clientSays)
			if c.server > 0 {
				wantFailure(t, server, c.server, c.serverSays)
			}
		})
	}
}
