package capture

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// TestReplay reads files that tcpdump captured on the server's end of a veth, 110 bytes of each packet, while the tools
// ran. Another program, which looks at a whole file at once, computed the expected latencies from the same files: when each
// byte first arrived, and when the reply to each number left.
func TestReplay(t *testing.T) {
	four := func(protocol v1alpha1.Protocol, size int, open bool, preamble int) Traffic {
		t := between(protocol, size)
		t.OpenLoop, t.Preamble = open, preamble
		return t
	}
	six := four(v1alpha1.ProtocolTCP, 4000, true, pingerPreamble)
	six.Server, six.Client = server6, client6
	cases := map[string]struct {
		traffic             Traffic
		matched, unanswered int64
		sum, least, most    int64
	}{
		// The pinger counted 138 messages; it uses another connection for control.
		"tcp-64-closed": {four(v1alpha1.ProtocolTCP, 64, false, pingerPreamble), 138, 0, 2315819, 6341, 34600},
		// It counted 30, at 10,000 a second, in segments that the kernel joined.
		"tcp-4000-open-ipv6": {six, 30, 0, 42842623, 14662, 3231322},
		// It counted 69, and sent one more to test the path.
		"udp-64-open": {four(v1alpha1.ProtocolUDP, 64, true, 0), 70, 0, 139044980, 4376, 7705864},
		// It counted 87, of three fragments each, and sent one more to test the path.
		"udp-4000-closed": {four(v1alpha1.ProtocolUDP, 4000, false, 0), 88, 0, 1402622, 9499, 80625},
		// sockperf under-load --reply-every 2 counted 100 messages and 50 replies.
		"sockperf-tcp-64-every-other": {four(v1alpha1.ProtocolTCP, 64, true, 0), 50, 50, 51784839, 16467, 10551502},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPipe(c.traffic)
			readPcap(t, filepath.Join("testdata", name+".pcap"), p)
			r, err := p.finish()
			if err != nil {
				t.Fatal(err)
			}
			var sum int64
			for _, ns := range p.samples {
				sum += ns
			}
			if r.Matched != c.matched || r.Unanswered != c.unanswered || r.Stray+r.Truncated > 0 {
				t.Errorf("%+v, want %d matched and %d unanswered", r, c.matched, c.unanswered)
			}
			if least, most := slices.Min(p.samples), slices.Max(p.samples); sum != c.sum || least != c.least || most != c.most {
				t.Errorf("%d samples of %d to %d ns, %d in all; want %d to %d, %d in all",
					len(p.samples), least, most, sum, c.least, c.most, c.sum)
			}
		})
	}
}

// readPcap feeds the packets of a file, written by tcpdump --time-stamp-precision=nano, without their Ethernet headers.
func readPcap(t *testing.T, path string, p *pipe) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const fileHeader, packetHeader, ethernet, nanoseconds = 24, 16, 14, 0xa1b23c4d
	if binary.LittleEndian.Uint32(b) != nanoseconds {
		t.Fatalf("%s is no capture with nanoseconds", path)
	}
	for b = b[fileHeader:]; len(b) > 0; {
		word := func(i int) int64 { return int64(binary.LittleEndian.Uint32(b[4*i:])) }
		at, kept, wire := word(0)*1e9+word(1), word(2), word(3)
		packet := b[packetHeader+ethernet : packetHeader+kept]
		parsed, err := parse(packet, int(wire)-ethernet)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		p.packet(at, parsed.source == p.Server, false, packet, int(wire)-ethernet)
		b = b[packetHeader+kept:]
	}
}
