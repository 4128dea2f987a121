package agent

import (
	"bufio"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// A request is a line of JSON from the client's agent to the server's agent, over one TCP connection on the measured network. The server
// answers each one once:
//
//	hello    with the token; the server then accepts no other client
//	prepare  a cell: the server starts the tool's server and answers when it listens
//	end      of a cell: the server ends the tool's server, whatever its state
//	done     after the last cell: the server writes its result and ends; with SendResult, it first sends it, in the lines of a log
//
// Nothing is sent while a cell is measured. A connection that breaks ends the run on both sides.
type request struct {
	Verb    string `json:"verb"`
	Token   string `json:"token,omitempty"`
	Run     string `json:"run,omitempty"`
	Attempt int32  `json:"attempt,omitempty"`
	Cell    string `json:"cell,omitempty"`
}

// answer is the answer to a request, which was granted if Error is empty; Reason is one of the API's outcomes. In the answer to end, the
// two say why the tool's server could not use Onload.
type answer struct {
	Error  string `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Worked is true, in the answer to end, if Error does not end a run that measured.
	Worked bool `json:"worked,omitempty"`
	// Note is the last line that the tool's server printed, in the answer to end.
	Note string `json:"note,omitempty"`
	// Said has the last maxSaid bytes of an interrupted server, in the answer to end.
	Said []byte `json:"said,omitzero"`
	// CPU is the CPU to which the tool's server is pinned, in the answer to prepare.
	CPU int `json:"cpu,omitempty"`
}

const (
	verbHello   = "hello"
	verbPrepare = "prepare"
	verbEnd     = "end"
	verbDone    = "done"

	// maxLine bounds a line of the protocol, in bytes.
	maxLine = 16 << 10
	// maxSaid bounds Said, in bytes: it grows by a third in base64, and has to fit in a line.
	maxSaid = 8 << 10
	// maxWords bounds Error and Note of an answer, each in bytes: JSON encodes a byte in up to six.
	maxWords = 400
	// maxGreeted connections may greet at a time, maxOfAddress of one address; maxRejected rejected ones are logged.
	maxGreeted, maxOfAddress, maxRejected, maxRejection = 64, 8, 16, 100
	// helloTimeout bounds how long an unknown client may keep the server busy.
	helloTimeout = 2 * time.Second
	// answerTimeout is longer than a tool's server may take to listen, plus the time to inspect its Onload stack. With Onload, the
	// server's node may need maxPlaneWait more.
	answerTimeout = listenTimeout + stackdumpTimeout + 5*time.Second
)

type link struct {
	conn  net.Conn
	lines *bufio.Scanner
	limit time.Duration // for an answer
}

func newLink(conn net.Conn) *link {
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Keep-alive packets would disturb the measurement; deadlines replace them.
		_ = tcp.SetKeepAlive(false)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 1024), maxLine)
	return &link{conn, lines, answerTimeout}
}

func (l *link) send(v any) error { return json.NewEncoder(l.conn).Encode(v) }

func (l *link) receive(v any) error {
	if l.lines.Scan() {
		return json.Unmarshal(l.lines.Bytes(), v)
	}
	return cmp.Or(l.lines.Err(), errors.New("the connection was closed"))
}

func (l *link) ask(r request) (answer, error) {
	if err := l.conn.SetDeadline(time.Now().Add(l.limit)); err != nil {
		return answer{}, err
	}
	if err := l.send(r); err != nil {
		return answer{}, fmt.Errorf("sending %s: %w", r.Verb, err)
	}
	var a answer
	if err := l.receive(&a); err != nil {
		return answer{}, fmt.Errorf("waiting for the answer to %s: %w", r.Verb, err)
	}
	// A timer that stays set would expire in the middle of a cell.
	if err := l.conn.SetDeadline(time.Time{}); err != nil {
		return answer{}, err
	}
	return a, nil
}

// token returns a string that only a holder of the key can compute, another for each attempt.
func (a *Agent) token() string {
	mac := hmac.New(sha256.New, []byte(a.Key))
	fmt.Fprintf(mac, "%s/%d", a.Task.Run, a.Task.Attempt)
	return hex.EncodeToString(mac.Sum(nil))
}

// greet returns an error unless the first request of a connection is from this run's client.
func (l *link) greet(token, run string, attempt int32) error {
	if err := l.conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	var r request
	if err := l.receive(&r); err != nil {
		return err
	}
	if r.Verb != verbHello || r.Run != run || r.Attempt != attempt || subtle.ConstantTimeCompare([]byte(r.Token), []byte(token)) != 1 {
		return fmt.Errorf("not the client of this run")
	}
	if err := l.send(answer{}); err != nil {
		return err
	}
	return l.conn.SetDeadline(time.Time{})
}
