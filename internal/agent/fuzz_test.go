package agent

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

// FuzzGreet sends any input to a server's agent, from a client that does not have the key.
func FuzzGreet(f *testing.F) {
	f.Add([]byte(hello1))
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03"))
	identity, err := (&Agent{Key: "key of the pair"}).identity()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		server, stranger := net.Pipe()
		go func() {
			go func() { _, _ = io.Copy(io.Discard, stranger) }()
			_, _ = stranger.Write(said)
			_ = stranger.Close()
		}()
		defer server.Close()
		if err := newLink(tls.Server(server, identity)).greet(); err == nil {
			t.Errorf("%q was taken for the client", said)
		}
	})
}

// converse lets the other end of a connection write said while f uses the connection, and returns what f sent.
func converse(t *testing.T, said []byte, f func(*link)) []byte {
	t.Helper()
	here, there := net.Pipe()
	go func() { _, _ = there.Write(said) }()
	sent := make(chan []byte)
	go func() {
		data, _ := io.ReadAll(there)
		sent <- data
	}()
	f(newLink(&halfClosed{Conn: here, left: len(said)}))
	_ = here.Close()
	return <-sent
}

// halfClosed ends after a number of bytes, like a connection whose other end has shut down its writing side.
type halfClosed struct {
	net.Conn
	left int
}

func (c *halfClosed) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p)
	c.left -= n
	return n, err
}

// FuzzAnswerAll has the client send any input after its greeting. Each request gets at most one answer, which the client
// can read, and no answer contains the key or one that is derived from it.
func FuzzAnswerAll(f *testing.F) {
	f.Add([]byte(`{"verb":"end"}` + "\n" + `{"verb":"prepare","cell":"tcp-64"}` + "\n" + `{"verb":"done"}` + "\n"))
	f.Add([]byte(`{"verb":"prepare","cell":"` + strings.Repeat("<", maxLine-100) + `"}` + "\n"))
	f.Add([]byte(`{"verb":"` + strings.Repeat("x", maxLine-100) + `"}` + "\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		// The task has no cells, so no input starts a process.
		e := &endpoint{Agent: &Agent{Key: "key of the pair", Log: io.Discard}}
		var err error
		sent := converse(t, said, func(l *link) { err = e.answerAll(t.Context(), l, tool.Target{}) })
		lines := bytes.SplitAfter(sent, []byte("\n"))
		if answers := len(lines) - 1; answers > bytes.Count(said, []byte("\n"))+1 {
			t.Errorf("%d answers to %q", answers, said)
		}
		for _, line := range lines[:len(lines)-1] {
			var a answer
			if err := json.Unmarshal(line, &a); err != nil || len(line) >= maxLine {
				t.Errorf("an answer of %d bytes: %v", len(line), err)
			}
		}
		for _, secret := range []string{e.Key, e.toolKey()} {
			if bytes.Contains(sent, []byte(secret)) && !bytes.Contains(said, []byte(secret)) {
				t.Errorf("a secret is in %q", sent)
			}
		}
		if err != nil && len(err.Error()) > 4*maxWords {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}

// FuzzAsk has the server send any answer. Only one line of limited length is read.
func FuzzAsk(f *testing.F) {
	f.Add([]byte(`{"cpu":3,"note":"ready","said":"aGVsbG8="}` + "\n"))
	f.Add([]byte(`{"error":"` + strings.Repeat("x", 4*maxLine) + `"}` + "\n"))
	f.Add([]byte(strings.Repeat("[", maxLine-1) + "\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		var a answer
		sent := converse(t, said, func(l *link) { a, _ = l.ask(request{Verb: verbHello}) })
		if bytes.Count(sent, []byte("\n")) != 1 {
			t.Errorf("asked %q", sent)
		}
		if size := len(a.Error) + len(a.Reason) + len(a.Note) + len(a.Said); size > 3*maxLine {
			t.Errorf("an answer of %d bytes", size)
		}
	})
}
