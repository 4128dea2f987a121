package agent

import (
	"bufio"
	"cmp"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// A request is a line of JSON from client to server, over one TLS connection on the measured
// network, whose break ends the run. Each has one answer; none is sent while a cell is measured.
//
//	hello    the server then accepts no other client
//	prepare  a cell: the server starts the tool's server and answers when it listens
//	end      of a cell: the server ends the tool's server, whatever its state
//	done     the server writes its result, sends it first with SendResult, and ends
type request struct {
	Verb string `json:"verb"`
	Cell string `json:"cell,omitempty"`
}

// answer grants if Error is empty. After end, Error and Reason, an outcome, say why Onload failed.
type answer struct {
	Error  string `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Worked is true, in the answer to end, if Error does not end a run that measured.
	Worked bool   `json:"worked,omitempty"`
	Note   string `json:"note,omitempty"` // in the answer to end: the server's last line
	// Said has the last maxSaid bytes of an interrupted server, in the answer to end.
	Said []byte `json:"said,omitzero"`
	CPU  int    `json:"cpu,omitempty"` // in the answer to prepare: of the tool's server
}

const (
	verbHello   = "hello"
	verbPrepare = "prepare"
	verbEnd     = "end"
	verbDone    = "done"

	maxLine = 16 << 10 // bytes of a line of the protocol
	// maxSaid bounds Said, in bytes: it grows by a third in base64, and has to fit in a line.
	maxSaid = 8 << 10
	// maxWords bounds Error and Note of an answer, each in bytes: JSON encodes a byte in up to six.
	maxWords = 400
	// maxGreeted connections may greet at a time; of rejected ones, maxRejected are logged.
	maxGreeted, maxOfAddress, maxRejected, maxRejection = 64, 8, 16, 100
	// helloTimeout bounds how long an unknown client may keep the server busy.
	helloTimeout = 2 * time.Second
	// answerTimeout: the server listens, its stack is inspected; Onload adds maxPlaneWait.
	answerTimeout = listenTimeout + stackdumpTimeout + 5*time.Second
)

type link struct {
	conn  net.Conn
	lines *bufio.Scanner
	limit time.Duration // for an answer
}

func newLink(conn net.Conn) *link {
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 1024), maxLine)
	l := &link{conn, lines, answerTimeout}
	if tcp, ok := l.tcp(); ok {
		// Keep-alive packets would disturb the measurement; deadlines replace them.
		_ = tcp.SetKeepAlive(false)
	}
	return l
}

func (l *link) tcp() (*net.TCPConn, bool) {
	conn := l.conn
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	return tcp, ok
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

// derive returns a secret for a purpose, another for each attempt, that only the run's key gives.
func (a *Agent) derive(purpose string) []byte {
	mac := hmac.New(sha256.New, []byte(a.Key))
	fmt.Fprintf(mac, "%s/%s/%d", purpose, a.Task.Run, a.Task.Attempt)
	return mac.Sum(nil)
}

func (a *Agent) toolKey() string { return hex.EncodeToString(a.derive("tool")[:16]) }

var errWrongPeer = errors.New("who answers does not have the key of this attempt")

// identity returns the TLS configuration of both ends: they have one private key, derived from the
// run's, and accept no other, so that no program between them can read or change what they say.
func (a *Agent) identity() (*tls.Config, error) {
	key := ed25519.NewKeyFromSeed(a.derive("agents"))
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of the two ends: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
		ClientAuth:   tls.RequireAnyClientCert,
		// VerifyConnection verifies each end by its key; no name or authority says more.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(s tls.ConnectionState) error {
			if !key.Public().(ed25519.PublicKey).Equal(s.PeerCertificates[0].PublicKey) {
				return errWrongPeer
			}
			return nil
		},
		SessionTicketsDisabled: true,
	}, nil
}

// greet returns an error unless the first request of a connection is from this run's client.
func (l *link) greet() error {
	if err := l.conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	var r request
	if err := l.receive(&r); err != nil {
		return err
	}
	if r.Verb != verbHello {
		return fmt.Errorf("it does not greet")
	}
	if err := l.send(answer{}); err != nil {
		return err
	}
	return l.conn.SetDeadline(time.Time{})
}
