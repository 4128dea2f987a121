package agent

import (
	"net"
	"testing"
)

// FuzzGreet has a stranger, who does not know the token, say anything to a server's agent.
func FuzzGreet(f *testing.F) {
	f.Add([]byte(`{"verb":"hello","run":"r","attempt":1,"token":"guess"}` + "\n"))
	f.Add([]byte(`{"verb":"hello"`))
	f.Fuzz(func(t *testing.T, said []byte) {
		server, stranger := net.Pipe()
		go func() {
			_, _ = stranger.Write(said)
			_ = stranger.Close()
		}()
		defer server.Close()
		if err := newLink(server).greet("a token of the pair", "r", 1); err == nil {
			t.Errorf("%q was taken for the client", said)
		}
	})
}
