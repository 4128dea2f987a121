package result

import (
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
)

func TestListenLineIsFoundAgain(t *testing.T) {
	for name, c := range map[string]struct{ address, want string }{
		"IPv4":          {"192.168.7.2", "192.168.7.2"},
		"IPv6":          {"fd00:40::2", "fd00:40::2"},
		"IPv4 as IPv6s": {"::ffff:192.168.7.2", "192.168.7.2"},
	} {
		t.Run(name, func(t *testing.T) {
			log := ListenLine(netip.MustParseAddr(c.address)) + "\nsent 192.168.7.9:4711 away: not the client of this run\n"
			if got, err := ParseListen(strings.NewReader(log)); err != nil || got.String() != c.want {
				t.Errorf("got %s, %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestParseListen(t *testing.T) {
	broken := errors.New("the connection broke")
	cases := map[string]struct {
		log  io.Reader
		want string
		err  error
	}{
		"after other lines":             {log: strings.NewReader("hello\n\ntailgate-log listening 192.0.2.1\n"), want: "192.0.2.1"},
		"with the end of a Windows log": {log: strings.NewReader("tailgate-log listening 192.0.2.1\r\n"), want: "192.0.2.1"},
		"the first of two":              {log: strings.NewReader("tailgate-log listening 192.0.2.1\ntailgate-log listening 192.0.2.2\n"), want: "192.0.2.1"},
		"nothing yet":                   {log: strings.NewReader(""), err: errNotListening},
		"another word":                  {log: strings.NewReader("listening at 192.0.2.1\n"), err: errNotListening},
		"in the middle of a line":       {log: strings.NewReader("x tailgate-log listening 192.0.2.1\n"), err: errNotListening},
		"a line that is not over":       {log: strings.NewReader("tailgate-log listening 192.0.2.1"), err: errNotListening},
		"too late":                      {log: strings.NewReader(strings.Repeat("x\n", maxBeforeListening) + "tailgate-log listening 192.0.2.1\n"), err: errNotListening},
		"a log without an end":          {log: endless{}, err: errNotListening},
		"no address":                    {log: strings.NewReader("tailgate-log listening \n"), err: ErrCorrupt},
		"a name":                        {log: strings.NewReader("tailgate-log listening kubernetes.default\n"), err: ErrCorrupt},
		"with a port":                   {log: strings.NewReader("tailgate-log listening 192.0.2.1:22047\n"), err: ErrCorrupt},
		"two addresses":                 {log: strings.NewReader("tailgate-log listening 192.0.2.1 192.0.2.2\n"), err: ErrCorrupt},
		"the reader's own machine":      {log: strings.NewReader("tailgate-log listening 127.0.0.1\n"), err: ErrCorrupt},
		"anywhere":                      {log: strings.NewReader("tailgate-log listening ::\n"), err: ErrCorrupt},
		"a group":                       {log: strings.NewReader("tailgate-log listening 239.192.0.1\n"), err: ErrCorrupt},
		"everybody":                     {log: strings.NewReader("tailgate-log listening 255.255.255.255\n"), err: ErrCorrupt},
		"an address of one link":        {log: strings.NewReader("tailgate-log listening fe80::1\n"), err: ErrCorrupt},
		"an address with a zone":        {log: strings.NewReader("tailgate-log listening fd00::1%eth0\n"), err: ErrCorrupt},
		"an address that is not ours":   {log: strings.NewReader("tailgate-log listening ::ffff:192.0.2.1\n"), err: ErrCorrupt},
		"a log that cannot be read":     {log: iotest.ErrReader(broken), err: broken},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseListen(c.log)
			if !errors.Is(err, c.err) || (c.err == nil) != (err == nil) {
				t.Fatalf("got %s, %v; want the error %v", got, err, c.err)
			}
			if c.err == nil && got.String() != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// endless is an endless log.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// An accepted address is one that the agent would have reported in the same format.
func FuzzParseListen(f *testing.F) {
	f.Add("tailgate-log listening 192.0.2.1\n")
	f.Add("x\ntailgate-log listening fd00::1\r\ntailgate-log listening 127.0.0.1\n")
	f.Add("tailgate-log listening FD00:0::1\n")
	f.Fuzz(func(t *testing.T, log string) {
		address, err := ParseListen(strings.NewReader(log))
		if err != nil {
			return
		}
		if !address.IsGlobalUnicast() || address.Zone() != "" {
			t.Errorf("accepted %s", address)
		}
		if again, err := ParseListen(strings.NewReader(ListenLine(address) + "\n")); err != nil || again != address {
			t.Errorf("%s became %s, %v", address, again, err)
		}
	})
}
