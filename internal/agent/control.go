package agent

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// The agents of a run speak over one TCP connection, on the measured network, in lines of JSON. The client
// asks, the server answers each request once:
//
//	hello    with the token; the server then listens to no other client
//	prepare  a cell: the server starts the tool's server and answers when it listens
//	end      of a cell: the server ends the tool's server, whatever became of it
//	done     after the last cell: the server hands over its result and ends
//
// Nothing is sent while a cell is measured. A connection that breaks ends the run on both sides.
type request struct {
	Verb    string `json:"verb"`
	Token   string `json:"token,omitempty"`
	Run     string `json:"run,omitempty"`
	Attempt int32  `json:"attempt,omitempty"`
	Cell    string `json:"cell,omitempty"`
}

// answer to a request. Error is empty when it was granted; else Reason is one of the API's outcomes. In the answer to end
// they say why the tool's server could not use Onload.
type answer struct {
	Error  string `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Note is what the tool's server had to say, in the answer to end.
	Note string `json:"note,omitempty"`
	// Said is what a tool's server that was interrupted printed, the last maxSaid bytes of it, in the answer to end;
	// absent of other servers.
	Said []byte `json:"said,omitzero"`
	// CPU is where the tool's server was pinned, in the answer to prepare.
	CPU int `json:"cpu,omitempty"`
}

const (
	verbHello   = "hello"
	verbPrepare = "prepare"
	verbEnd     = "end"
	verbDone    = "done"

	// maxLine bounds a line of the protocol, in bytes.
	maxLine = 16 << 10
	// maxSaid is how much of a server's words an answer takes, in bytes: a third more in base64 has to fit a line.
	maxSaid = 8 << 10
	// maxWords bounds error and note of an answer each, in bytes: JSON makes up to six of one, and both have to fit a line
	// together with what a tool's server said.
	maxWords = 400
	// helloTimeout is how long a stranger may keep the server from listening to its client.
	helloTimeout = 2 * time.Second
	// answerTimeout is how long the server may take for an answer: longer than a tool's server may take to listen, and the look
	// at its stack.
	answerTimeout = listenTimeout + stackdumpTimeout + 5*time.Second
)

// link is one end of the connection.
type link struct {
	conn  net.Conn
	lines *bufio.Scanner
}

func newLink(conn net.Conn) *link {
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Keep-alive packets would disturb the measurement; deadlines do their work.
		_ = tcp.SetKeepAlive(false)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 1024), maxLine)
	return &link{conn: conn, lines: lines}
}

func (l *link) send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	_, err = l.conn.Write(append(data, '\n'))
	return err
}

func (l *link) receive(v any) error {
	if !l.lines.Scan() {
		if err := l.lines.Err(); err != nil {
			return err
		}
		return fmt.Errorf("the connection was closed")
	}
	return json.Unmarshal(l.lines.Bytes(), v)
}

// ask sends a request and waits for its answer.
func (l *link) ask(r request) (answer, error) {
	if err := l.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return answer{}, err
	}
	if err := l.send(r); err != nil {
		return answer{}, fmt.Errorf("sending %s: %w", r.Verb, err)
	}
	var a answer
	if err := l.receive(&a); err != nil {
		return answer{}, fmt.Errorf("waiting for the answer to %s: %w", r.Verb, err)
	}
	// An alarm that is left set would go off in the middle of a cell.
	if err := l.conn.SetDeadline(time.Time{}); err != nil {
		return answer{}, err
	}
	return a, nil
}

// token is what the client shows to the server: a word that only who has the key can make, another one for each attempt.
func (a *Agent) token() string {
	mac := hmac.New(sha256.New, []byte(a.Key))
	fmt.Fprintf(mac, "%s/%d", a.Task.Run, a.Task.Attempt)
	return hex.EncodeToString(mac.Sum(nil))
}

// greet reads the first request of a connection and says whether it is the client we wait for.
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
