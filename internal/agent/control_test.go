package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// pair returns the two ends of a TCP connection over loopback.
func pair(t *testing.T) (here, there net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if here, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

// identified returns the TLS configuration of an end of a run.
func identified(t *testing.T, key, run string, attempt int32) *tls.Config {
	t.Helper()
	identity, err := (&Agent{Key: key, Task: plan.Task{Run: run, Attempt: attempt}}).identity()
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

// A stranger is not the client of x-r1, attempt 1, whose key is "secret": what it says, in the clear or with an identity.
type stranger struct {
	identity *tls.Config
	says     string
}

const hello1 = `{"verb":"hello"}` + "\n"

func strangers(t *testing.T) map[string]stranger {
	t.Helper()
	anonymous := identified(t, "secret", "x-r1", 1)
	anonymous.Certificates = nil
	return map[string]stranger{
		"nobody":                                   {nil, ""},
		"one who speaks HTTP":                      {nil, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		"one in the clear":                         {nil, hello1},
		"one in the clear who never ends a line":   {nil, `{"verb":"` + strings.Repeat("x", maxLine) + "\n"},
		"one with another key":                     {identified(t, "guess", "x-r1", 1), hello1},
		"one without a certificate":                {anonymous, hello1},
		"the client of another run":                {identified(t, "secret", "x-r2", 1), hello1},
		"the client of an attempt before this one": {identified(t, "secret", "x-r1", 0), hello1},
		"one who does not greet":                   {identified(t, "secret", "x-r1", 1), `{"verb":"prepare"}` + "\n"},
		"one who never ends a line":                {identified(t, "secret", "x-r1", 1), `{"verb":"` + strings.Repeat("x", maxLine) + "\n"},
		"one who leaves in the middle of a word":   {identified(t, "secret", "x-r1", 1), `{"verb":"hel`},
		"one who sends a list":                     {identified(t, "secret", "x-r1", 1), "[]\n"},
	}
}

// knock says what a stranger says, ends its side of the connection, and returns the answer.
func (s stranger) knock(conn net.Conn) string {
	if s.identity != nil {
		trusting := s.identity.Clone()
		trusting.VerifyConnection = nil // a stranger does not mind who answers
		conn = tls.Client(conn, trusting)
	}
	_, _ = io.WriteString(conn, s.says)
	_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	told, _ := io.ReadAll(conn)
	return string(told)
}

func TestGreet(t *testing.T) {
	for name, s := range strangers(t) {
		t.Run(name, func(t *testing.T) {
			here, there := pair(t)
			told := make(chan string, 1)
			go func() { told <- s.knock(here) }()
			if err := newLink(tls.Server(there, identified(t, "secret", "x-r1", 1))).greet(); err == nil {
				t.Error("was welcome")
			}
			there.Close()
			if said := <-told; strings.Contains(said, "{") {
				t.Errorf("was told %q", said)
			}
		})
	}
	t.Run("the client", func(t *testing.T) {
		here, there := pair(t)
		greeted := make(chan error, 1)
		go func() { greeted <- newLink(tls.Server(there, identified(t, "secret", "x-r1", 1))).greet() }()
		if _, err := newLink(tls.Client(here, identified(t, "secret", "x-r1", 1))).ask(request{Verb: verbHello}); err != nil {
			t.Error(err)
		}
		if err := <-greeted; err != nil {
			t.Error(err)
		}
	})
}

// The client takes no program without the key for its server: a run in which one answers at the server's address ends with that outcome, also if
// it only passes on what the server's agent sends.
func TestWrongServer(t *testing.T) {
	identity := identified(t, "secret", "x-r1", 1)
	for name, other := range map[string]*tls.Config{
		"another key": identified(t, "guess", "x-r1", 1), "another run": identified(t, "secret", "x-r2", 1), "another attempt": identified(t, "secret", "x-r1", 2),
	} {
		here, there := pair(t)
		other.VerifyConnection = nil
		go func() { _ = newLink(tls.Server(there, other)).greet() }()
		if _, err := newLink(tls.Client(here, identity)).ask(request{Verb: verbHello}); !errors.Is(err, errWrongPeer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	address := net.IPv4(127, 0, 0, 31)
	listener, err := net.Listen("tcp", net.JoinHostPort(address.String(), strconv.Itoa(plan.ControlPort)))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = newLink(tls.Server(conn, identified(t, "guess", "x-r1", 1))).greet()
			conn.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	e := &endpoint{Agent: &Agent{Key: "secret", Task: plan.Task{Run: "x-r1", Attempt: 1, ServerAddress: address.String()}}}
	_, err = e.dial(ctx, nil)
	wantOutcome(t, err, v1alpha1.OutcomeWrongPeer, "something else than the server's agent", "does not have the key", "forged ARP")
}

// A host between the two agents cannot change what they say to each other, nor say again what it has heard.
func TestChangedOnTheWay(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"a bit":  func(b []byte) []byte { b = slices.Clone(b); b[len(b)-1] ^= 1; return b },
		"twice":  func(b []byte) []byte { return slices.Concat(b, b) },
		"a line": func([]byte) []byte { return []byte(`{"verb":"done"}` + "\n") },
	} {
		client, near := pair(t)
		far, server := pair(t)
		greeted, attack := make(chan *link, 1), make(chan struct{})
		go func() { _, _ = io.Copy(near, far) }()
		go func() {
			for b := make([]byte, 1<<16); ; {
				n, err := near.Read(b)
				if err != nil {
					return
				}
				said := b[:n]
				select {
				case <-attack:
					said = change(said)
				default:
				}
				_, _ = far.Write(said)
			}
		}()
		go func() {
			l := newLink(tls.Server(server, identified(t, "secret", "x-r1", 1)))
			if err := l.greet(); err != nil {
				t.Error(err)
			}
			greeted <- l
		}()
		l := newLink(tls.Client(client, identified(t, "secret", "x-r1", 1)))
		if _, err := l.ask(request{Verb: verbHello}); err != nil {
			t.Fatal(err)
		}
		there := <-greeted
		close(attack)
		if err := l.send(request{Verb: verbEnd}); err != nil {
			t.Fatal(err)
		}
		var first, second request
		if err := cmp.Or(there.receive(&first), there.receive(&second)); err == nil {
			t.Errorf("%s: the server heard %+v and %+v", name, first, second)
		}
	}
}

// Strangers write little into the log that has to hold the result, and silent ones do not keep the client out.
func TestStrangersAreBounded(t *testing.T) {
	var log bytes.Buffer
	e := server(t, "sleep")
	e.Log = &log
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	address := net.IPv4(127, 0, 0, 29)
	greeted := make(chan error, 1)
	go func() {
		l, err := e.awaitClient(ctx, address)
		if err == nil {
			l.conn.Close()
		}
		greeted <- err
	}()
	dial := func(first string, from ...byte) net.Conn {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, slices.Concat(from, []byte{1})[0])}}
		for ctx.Err() == nil {
			conn, err := dialer.Dial("tcp", net.JoinHostPort(address.String(), strconv.Itoa(plan.ControlPort)))
			if err != nil {
				continue
			}
			t.Cleanup(func() { conn.Close() })
			if first == hello1 {
				conn = tls.Client(conn, identified(t, "secret", "x-r1", 1))
			}
			if _, err := conn.Write([]byte(first)); err != nil {
				t.Fatal(err)
			}
			return conn
		}
		t.Fatal("nothing listens")
		return nil
	}
	for range 4 * maxRejected {
		// It is rejected before the next one comes.
		_, _ = io.Copy(io.Discard, dial(`{"verb":"hello","attempt":`+strings.Repeat("7", maxLine-100)+"}\n"))
	}
	// One after another, they would take more than half an hour; maxGreeted at a time, more than linkTimeout.
	for range 1200 {
		dial("")
	}
	dial(hello1, 30)
	if err := <-greeted; err != nil {
		t.Fatal(err)
	}
	if rejected := strings.Count(log.String(), "rejected"); rejected != maxRejected {
		t.Errorf("%d lines of rejected strangers, want %d", rejected, maxRejected)
	}
	if log.Len() > 2*maxRejected*maxRejection {
		t.Errorf("%d bytes of log: %.400s", log.Len(), log.String())
	}
}

// readLine reads up to the end of a line, and fails if there is none.
func readLine(t *testing.T, r io.Reader) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		if b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}

// server returns an endpoint that serves run x-r1 with a helper as its tool's server.
func server(t *testing.T, command string, args ...string) *endpoint {
	t.Helper()
	return &endpoint{
		Agent: &Agent{
			Task: plan.Task{Run: "x-r1", Attempt: 1, Role: v1alpha1.RoleServer, Cells: []tool.Cell{{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP}}}},
			Key:  "secret", Scratch: t.TempDir(), Log: io.Discard,
		},
		driver:       fakeTool{server: asTool(command, args...)},
		measuringCPU: aCPU(t), cpus: []int{aCPU(t)}, watch: host{root: "/"}.watch("lo", aCPU(t)),
	}
}

// ready returns the answer of that endpoint when the tool's server listens.
func ready(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal(answer{CPU: aCPU(t)})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// target returns the address of that endpoint's tool.
func target(t *testing.T) tool.Target {
	t.Helper()
	return tool.Target{Port: plan.ToolPort, CPUs: []int{aCPU(t)}}
}

// toolAddress is where the tools' servers of these tests listen.
var toolAddress = net.JoinHostPort("127.0.0.1", strconv.Itoa(plan.ToolPort))

func TestStrangersAreSentAwayUntilTheClientComes(t *testing.T) {
	e := server(t, "sleep")
	// Not 127.0.0.1, where another test listens.
	address := net.IPv4(127, 0, 0, 22)
	type welcome struct {
		link *link
		err  error
	}
	done := make(chan welcome, 1)
	go func() {
		l, err := e.awaitClient(t.Context(), address)
		done <- welcome{l, err}
	}()
	dial := func() net.Conn {
		// The server may not listen yet.
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			conn, err := net.Dial("tcp", net.JoinHostPort(address.String(), strconv.Itoa(plan.ControlPort)))
			if err == nil {
				t.Cleanup(func() { conn.Close() })
				return conn
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	for name, s := range strangers(t) {
		// The server may reset the connection, close it or send an alert of TLS, but must not answer.
		if said := s.knock(dial()); strings.Contains(said, "{") {
			t.Errorf("%s was told %q", name, said)
		}
	}
	conn := tls.Client(dial(), identified(t, "secret", "x-r1", 1))
	if _, err := io.WriteString(conn, hello1); err != nil {
		t.Fatal(err)
	}
	if line := readLine(t, conn); line != "{}" {
		t.Errorf("the client was answered %q", line)
	}
	if w := <-done; w.err != nil {
		t.Error(w.err)
	} else {
		w.link.conn.Close()
	}
	if _, err := net.Dial("tcp", net.JoinHostPort(address.String(), strconv.Itoa(plan.ControlPort))); err == nil {
		t.Error("somebody else can still connect")
	}
}

func TestNoClientComes(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := server(t, "sleep").awaitClient(ctx, net.IPv4(127, 0, 0, 23))
	wantOutcome(t, err, v1alpha1.OutcomePeerUnreachable, "no client")
}

func TestServerAnswers(t *testing.T) {
	cases := map[string]struct {
		endpoint *endpoint
		// says are the client's lines, and answers are parts of the server's answer to each.
		says, answers []string
		// reason is the reason of the server's own failure; empty: it ends without one.
		reason string
	}{
		"done without a cell": {
			endpoint: server(t, "sleep"), says: []string{`{"verb":"done"}`}, answers: []string{"{}"},
		},
		"a cell from beginning to end": {
			endpoint: server(t, "echo", toolAddress),
			says:     []string{`{"verb":"prepare","cell":"tcp-64"}`, `{"verb":"end","cell":"tcp-64"}`, `{"verb":"done"}`},
			answers:  []string{ready(t), `{"note":"# echo: ready"}`, "{}"},
		},
		"a cell that is prepared twice": {
			endpoint: server(t, "echo", toolAddress),
			says:     []string{`{"verb":"prepare","cell":"tcp-64"}`, `{"verb":"prepare","cell":"tcp-64"}`, `{"verb":"end"}`, `{"verb":"done"}`},
			answers:  []string{ready(t), ready(t), "echo: ready", "{}"},
		},
		"an end without a beginning": {
			endpoint: server(t, "sleep"), says: []string{`{"verb":"end"}`, `{"verb":"done"}`}, answers: []string{"{}", "{}"},
		},
		"a cell that is in no task": {
			endpoint: server(t, "sleep"), says: []string{`{"verb":"prepare","cell":"udp-1"}`, `{"verb":"done"}`},
			answers: []string{`"reason":"AgentFailed"`, "{}"},
		},
		"a tool that fails": {
			endpoint: server(t, "fail", "bind: address already in use"), says: []string{`{"verb":"prepare","cell":"tcp-64"}`, `{"verb":"done"}`},
			answers: []string{"address already in use", "{}"},
		},
		"a client of another version": {
			endpoint: server(t, "sleep"), says: []string{`{"verb":"dance"}`}, reason: v1alpha1.OutcomeAgentFailed,
		},
		"a client that sends no JSON": {
			endpoint: server(t, "sleep"), says: []string{"prepare"}, reason: v1alpha1.OutcomePeerUnreachable,
		},
		"a line without end": {
			endpoint: server(t, "sleep"), says: []string{strings.Repeat("x", maxLine+1)}, reason: v1alpha1.OutcomePeerUnreachable,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			here, there := pair(t)
			done := make(chan error, 1)
			go func() { done <- c.endpoint.answerAll(t.Context(), newLink(there), target(t)) }()
			for i, line := range c.says {
				if _, err := here.Write([]byte(line + "\n")); err != nil {
					t.Fatal(err)
				}
				if i < len(c.answers) {
					if got := readLine(t, here); !strings.Contains(got, c.answers[i]) {
						t.Errorf("%s was answered %s, want %s", line, got, c.answers[i])
					}
				}
			}
			err := <-done
			if c.reason != "" {
				wantOutcome(t, err, c.reason)
			} else if err != nil {
				t.Error(err)
			}
			if listening, err := isListening(v1alpha1.ProtocolTCP, plan.ToolPort); listening || err != nil {
				t.Errorf("the tool's server still listens: %t, %v", listening, err)
			}
		})
	}
}

// Another process that has the port already must not be mistaken for the tool's server.
func TestPortIsTaken(t *testing.T) {
	listener, err := net.Listen("tcp", toolAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, _, err = server(t, "sleep").prepare(t.Context(), "tcp-64", nil, target(t))
	wantOutcome(t, err, v1alpha1.OutcomeToolFailed, "another process listens")
}

// If a tool's server fails with a long line, the client reads that as the reason: the answer still fits in a line.
func TestAnswerFitsALine(t *testing.T) {
	here, there := pair(t)
	e := server(t, "fail", "bind: no such device "+strings.Repeat("<", 2*maxLine))
	go func() { _ = e.answerAll(t.Context(), newLink(there), target(t)) }()
	a, err := newLink(here).ask(request{Verb: verbPrepare, Cell: "tcp-64"})
	if err != nil || a.Reason != v1alpha1.OutcomeToolFailed || !strings.Contains(a.Error, "bind: no such device") {
		t.Errorf("answer %+v, error %v", a, err)
	}
}

// If a client dies while a cell is measured, the tool's server ends too.
func TestClientDiesWhileMeasuring(t *testing.T) {
	e := server(t, "echo", toolAddress)
	here, there := pair(t)
	done := make(chan error, 1)
	go func() { done <- e.answerAll(t.Context(), newLink(there), target(t)) }()
	if _, err := here.Write([]byte(`{"verb":"prepare","cell":"tcp-64"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	if got := readLine(t, here); got != ready(t) {
		t.Fatalf("was answered %s", got)
	}
	here.Close()
	wantOutcome(t, <-done, v1alpha1.OutcomePeerUnreachable, "lost its client")
	if listening, err := isListening(v1alpha1.ProtocolTCP, plan.ToolPort); listening || err != nil {
		t.Errorf("the tool's server still listens: %t, %v", listening, err)
	}
}

// deadlines records the last deadline that was set on a connection.
type deadlines struct {
	net.Conn
	last time.Time
}

func (d *deadlines) SetDeadline(t time.Time) error {
	d.last = t
	return d.Conn.SetDeadline(t)
}

// Both ends sleep on the connection while a cell is measured, however long that takes. A timer left by the last exchange
// would wake them.
func TestNoDeadlineIsLeft(t *testing.T) {
	here, there := pair(t)
	client, server := &deadlines{Conn: here, last: time.Now()}, &deadlines{Conn: there, last: time.Now()}
	identity := identified(t, "secret", "x-r1", 1)
	greeted := make(chan error, 1)
	go func() { greeted <- newLink(tls.Server(server, identity)).greet() }()
	if _, err := newLink(tls.Client(client, identity)).ask(request{Verb: verbHello}); err != nil {
		t.Fatal(err)
	}
	if err := <-greeted; err != nil {
		t.Fatal(err)
	}
	if !client.last.IsZero() || !server.last.IsZero() {
		t.Errorf("deadlines are left: the client's %s, the server's %s", client.last, server.last)
	}
}

// Only a holder of the key can compute the key of the tools, and that of one attempt is not valid for another.
func TestToolKey(t *testing.T) {
	of := func(key, run string, attempt int32) string {
		return (&Agent{Key: key, Task: plan.Task{Run: run, Attempt: attempt}}).toolKey()
	}
	same := of("key", "x-r1", 1)
	if same != of("key", "x-r1", 1) {
		t.Error("both ends make different keys")
	}
	for _, other := range []string{of("other", "x-r1", 1), of("key", "x-r2", 1), of("key", "x-r1", 2), of("", "x-r1", 1)} {
		if other == same {
			t.Errorf("%s is the key of something else, too", same)
		}
	}
	if strings.Contains(same, "key") || len(same) != 32 {
		t.Errorf("key %q", same)
	}
}
