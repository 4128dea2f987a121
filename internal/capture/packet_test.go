package capture

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	payload := []byte("0123456789")
	datagram := udp(40000, 22048, payload)
	segment := tcp(40000, 22048, 7, tcpACK|8, payload)
	wantUDP := packet{
		source: clientAddr, target: serverAddr, protocol: ipUDP, sourcePort: 40000, targetPort: 22048,
		payload: 10, head: payload,
	}
	wantTCP := wantUDP
	wantTCP.protocol, wantTCP.sequence, wantTCP.flags = ipTCP, 7, tcpACK|8
	wantUDP6 := wantUDP
	wantUDP6.source, wantUDP6.target = client6, server6
	changed := func(p packet, change func(p *packet)) packet { change(&p); return p }
	with := func(b []byte, at int, values ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], values)
		return b
	}
	options := func(kind uint8, next uint8, rest []byte) []byte {
		return ip(client6, server6, kind, append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, rest...))
	}
	udp4, tcp4 := ip(clientAddr, serverAddr, ipUDP, datagram), ip(clientAddr, serverAddr, ipTCP, segment)
	udp6 := ip(client6, server6, ipUDP, datagram)
	cases := map[string]struct {
		b []byte
		// kept is how much of b was captured, and wire how long the packet was; 0: len(b).
		kept, wire int
		want       packet
		err        error
	}{
		"UDP over IPv4":                      {b: udp4, want: wantUDP},
		"TCP over IPv4":                      {b: tcp4, want: wantTCP},
		"TCP without timestamps":             {b: ip(clientAddr, serverAddr, ipTCP, plain(segment)), want: wantTCP},
		"UDP over IPv6":                      {b: udp6, want: wantUDP6},
		"padding of the link is not payload": {b: append(bytes.Clone(udp4), 0, 0, 0, 0, 0, 0, 0, 0), want: wantUDP},
		"only the beginning of the payload was kept": {
			b: udp4, kept: 32, want: changed(wantUDP, func(p *packet) { p.head = payload[:4] }),
		},
		"only the headers were kept": {b: udp4, kept: 28, want: changed(wantUDP, func(p *packet) { p.head = []byte{} })},
		"IPv4 with options": {
			b:    append(append(with(udp4[:20], 0, 0x46, 0, 0, 42), 1, 1, 1, 1), datagram...),
			want: wantUDP,
		},
		"IPv4 of any length that the kernel joined": {b: with(udp4, 2, 0, 0), want: wantUDP},
		"IPv6 of any length that the kernel joined": {b: with(udp6, 4, 0, 0), want: wantUDP6},
		"IPv6 with options before the payload":      {b: options(ipv6Options, ipUDP, datagram), want: wantUDP6},
		"IPv6 with hop-by-hop options":              {b: options(ipv6HopByHop, ipUDP, datagram), want: wantUDP6},
		"IPv6 with more headers than anybody would use": {
			b:   ip(client6, server6, ipv6Options, bytes.Repeat([]byte{ipv6Options, 0, 0, 0, 0, 0, 0, 0}, 9)),
			err: errForeign,
		},
		"the first part of a datagram": {
			b: cut(clientAddr, serverAddr, 9, udp(40000, 22048, make([]byte, 2000))[:1480], 0, true),
			want: changed(wantUDP, func(p *packet) {
				p.payload, p.head, p.fragment = 2000, make([]byte, 1472), &fragment{id: 9, length: 1480, more: true}
			}),
		},
		"the last part of a datagram": {
			b: cut(clientAddr, serverAddr, 9, make([]byte, 528), 1480, false),
			want: packet{
				source: clientAddr, target: serverAddr, protocol: ipUDP, fragment: &fragment{id: 9, offset: 1480, length: 528},
			},
		},
		"the last part of a datagram over IPv6": {
			b: cut(client6, server6, 1<<20, make([]byte, 528), 1480, false),
			want: packet{
				source: client6, target: server6, protocol: ipUDP, fragment: &fragment{id: 1 << 20, offset: 1480, length: 528},
			},
		},

		"nothing":                 {b: nil, err: errTruncated},
		"a part of IPv4's header": {b: udp4, kept: 19, err: errTruncated},
		"a part of IPv6's header": {b: udp6, kept: 39, err: errTruncated},
		"a part of IPv4's options": {
			b: append(with(udp4[:20], 0, 0x46, 0, 0, 42), datagram...), kept: 22, wire: 42, err: errTruncated,
		},
		"a part of IPv6's options":            {b: options(ipv6Options, ipUDP, datagram), kept: 44, err: errTruncated},
		"a part of UDP's header":              {b: udp4, kept: 27, err: errTruncated},
		"a part of TCP's header":              {b: tcp4, kept: 39, err: errTruncated},
		"a header of IPv4 that is too short":  {b: with(udp4, 0, 0x44), err: errForeign},
		"IPv4 longer than the packet":         {b: with(udp4, 2, 1, 0), err: errForeign},
		"IPv4 shorter than its header":        {b: with(udp4, 2, 0, 19), err: errForeign},
		"IPv6 longer than the packet":         {b: with(udp6, 4, 1, 0), err: errForeign},
		"IPv6 with options beyond its end":    {b: with(options(ipv6Options, ipUDP, datagram), 41, 9), err: errForeign},
		"UDP longer than its packet":          {b: with(udp4, 24, 1, 0), err: errForeign},
		"UDP shorter than its header":         {b: with(udp4, 24, 0, 7), err: errForeign},
		"TCP with a header beyond its end":    {b: with(tcp4, 32, 0xf0), err: errForeign},
		"TCP with a header that is too short": {b: with(tcp4, 32, 0x40), err: errForeign},
		"no room for UDP":                     {b: ip(clientAddr, serverAddr, ipUDP, make([]byte, 7)), err: errForeign},
		"another protocol":                    {b: ip(clientAddr, serverAddr, 1, datagram), err: errForeign},
		"ARP":                                 {b: []byte{0, 1, 8, 0, 6, 4, 0, 1}, err: errForeign},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.wire == 0 {
				c.wire = len(c.b)
			}
			if c.kept > 0 {
				c.b = c.b[:c.kept]
			}
			got, err := parse(c.b, c.wire)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			addresses := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(packet{}, fragment{}), addresses); diff != "" {
				t.Errorf("the packet differs (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzParse parses any bytes: no parsed data lies outside of them.
func FuzzParse(f *testing.F) {
	f.Add(ip(clientAddr, serverAddr, ipUDP, udp(1, 2, message(1, 64))), 92)
	f.Add(ip(client6, server6, ipTCP, tcp(1, 2, 3, tcpACK, message(1, 64))), 136)
	f.Add(cut(client6, server6, 1, udp(1, 2, message(1, 64)), 0, true), 120)
	f.Add(cut(clientAddr, serverAddr, 1, message(1, 64), 80, false), 84)
	f.Fuzz(func(t *testing.T, b []byte, wire int) {
		p, err := parse(b, wire)
		if err != nil {
			return
		}
		if p.payload < 0 || len(p.head) > p.payload || len(p.head) > len(b) || (p.fragment == nil && p.payload > wire) {
			t.Errorf("of %d bytes of %d: a payload of %d bytes, with %d of them", len(b), wire, p.payload, len(p.head))
		}
		if p.protocol != ipTCP && p.protocol != ipUDP {
			t.Errorf("protocol %d", p.protocol)
		}
		if p.fragment != nil && (p.fragment.length < 0 || p.fragment.length > wire) {
			t.Errorf("a part of %d bytes in %d", p.fragment.length, wire)
		}
	})
}
