package agent

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

func TestHasListener(t *testing.T) {
	captured := func(name string) string {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	cases := map[string]struct {
		table    string
		protocol v1alpha1.Protocol
		port     int
		want     bool
		wantErr  bool
	}{
		"a port that listens":                 {table: captured("tcp.txt"), protocol: v1alpha1.ProtocolTCP, port: 22048, want: true},
		"a connected port does not listen":    {table: captured("tcp.txt"), protocol: v1alpha1.ProtocolTCP, port: 22047},
		"a port in TIME_WAIT does not listen": {table: captured("tcp.txt"), protocol: v1alpha1.ProtocolTCP, port: 8080},
		"a peer's port does not listen here":  {table: captured("tcp.txt"), protocol: v1alpha1.ProtocolTCP, port: 0x8F2C},
		"a port that no process uses":         {table: captured("tcp.txt"), protocol: v1alpha1.ProtocolTCP, port: 22049},
		"a port that listens on IPv6":         {table: captured("tcp6.txt"), protocol: v1alpha1.ProtocolTCP, port: 22049, want: true},
		"a bound UDP port":                    {table: captured("udp.txt"), protocol: v1alpha1.ProtocolUDP, port: 22048, want: true},
		"a UDP port that no process uses":     {table: captured("udp.txt"), protocol: v1alpha1.ProtocolUDP, port: 22047},
		"a heading alone":                     {table: "  sl  local_address rem_address   st\n", protocol: v1alpha1.ProtocolTCP, port: 22048},
		"nothing":                             {protocol: v1alpha1.ProtocolTCP, port: 22048},
		"a line that is cut off":              {table: "0: 0100007F:5620 00000000", protocol: v1alpha1.ProtocolTCP, port: 22048},
		"an invalid port":                     {table: "0: 0100007F:WXYZ 00000000:0000 0A\n", protocol: v1alpha1.ProtocolTCP, port: 22048, wantErr: true},
		"a port beyond 16 bits":               {table: "0: 0100007F:10000 00000000:0000 0A\n", protocol: v1alpha1.ProtocolTCP, port: 22048, wantErr: true},
		"a line longer than a line can be":    {table: strings.Repeat("x", 1<<17), protocol: v1alpha1.ProtocolTCP, port: 22048, wantErr: true},
		"nothing is read beyond the match":    {table: captured("tcp.txt") + "9: 0:WXYZ 0:0 0A\n", protocol: v1alpha1.ProtocolTCP, port: 22048, want: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := hasListener(strings.NewReader(c.table), c.protocol, c.port)
			if got != c.want || (err != nil) != c.wantErr {
				t.Errorf("got %t, %v; want %t, an error: %t", got, err, c.want, c.wantErr)
			}
		})
	}
}

func FuzzHasListener(f *testing.F) {
	for _, name := range []string{"tcp.txt", "tcp6.txt", "udp.txt"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data), 22048)
	}
	f.Fuzz(func(t *testing.T, table string, port int) {
		tcp, err := hasListener(strings.NewReader(table), v1alpha1.ProtocolTCP, port)
		if err != nil && tcp {
			t.Error("an error came with a listener")
		}
		// A socket that listens for TCP would be a bound socket for UDP.
		if udp, _ := hasListener(strings.NewReader(table), v1alpha1.ProtocolUDP, port); tcp && !udp {
			t.Error("a TCP listener is no socket")
		}
		if tcp && (port < 0 || port > 65535) {
			t.Errorf("found port %d, which does not exist", port)
		}
	})
}

// isListening reads the kernel's own tables, and does not connect to the port.
func TestIsListening(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			if address != "127.0.0.1:0" {
				continue // a kernel without IPv6
			}
			t.Fatal(err)
		}
		port := listener.Addr().(*net.TCPAddr).Port
		if got, err := isListening(v1alpha1.ProtocolTCP, port); !got || err != nil {
			t.Errorf("%s: got %t, %v while it listens", listener.Addr(), got, err)
		}
		listener.Close()
		if got, err := isListening(v1alpha1.ProtocolTCP, port); got || err != nil {
			t.Errorf("%s: got %t, %v when it does not", listener.Addr(), got, err)
		}
	}
	// This port belongs to these tests: no other TCP socket gets its number.
	conn, err := net.ListenPacket("udp", toolAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	port := conn.LocalAddr().(*net.UDPAddr).Port
	if got, err := isListening(v1alpha1.ProtocolUDP, port); !got || err != nil {
		t.Errorf("UDP: got %t, %v while it is bound", got, err)
	}
	if got, err := isListening(v1alpha1.ProtocolTCP, port); got || err != nil {
		t.Errorf("UDP's port: got %t, %v for TCP", got, err)
	}
}

func TestAwaitListening(t *testing.T) {
	t.Run("a tool that listens", func(t *testing.T) {
		p := startTool(t, asTool("echo", toolAddress))
		if err := awaitListening(context.Background(), p, v1alpha1.ProtocolTCP, plan.ToolPort, listenTimeout); err != nil {
			t.Errorf("got %v", err)
		}
		p.end(0)
	})
	t.Run("a tool that ends before it listens", func(t *testing.T) {
		p := startTool(t, asTool("fail", "bind: address already in use"))
		err := awaitListening(context.Background(), p, v1alpha1.ProtocolTCP, plan.ToolPort, listenTimeout)
		wantOutcome(t, err, v1alpha1.OutcomeToolFailed, "exit code 3", "address already in use")
	})
	t.Run("a tool that never listens", func(t *testing.T) {
		p := startTool(t, asTool("sleep"))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err := awaitListening(ctx, p, v1alpha1.ProtocolTCP, plan.ToolPort, listenTimeout)
		wantOutcome(t, err, v1alpha1.OutcomeToolFailed, "does not listen")
		if !p.ended() {
			t.Error("it still runs")
		}
	})
}
