package capture

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool/pinger"
)

var pingerPreamble = pinger.New().Limits().Preamble

func TestMatcher(t *testing.T) {
	const (
		udpProtocol = v1alpha1.ProtocolUDP
		tcpProtocol = v1alpha1.ProtocolTCP
	)
	openLoop := func(t Traffic) Traffic { t.OpenLoop = true; return t }
	same := bytes.Repeat([]byte{'x'}, 64)
	cases := map[string]struct {
		traffic Traffic
		send    func(p *pipe)
		want    Result
		samples []int64
		// err is a part of the error; empty: there is none.
		err string
	}{
		"each datagram is answered": {
			traffic: between(udpProtocol, 64),
			send: func(p *pipe) {
				for i := range 3 {
					p.udp(int64(100*i), false, message(i, 64))
					p.udp(int64(100*i+7+i), true, message(i, 64))
				}
			},
			want:    Result{Packets: 6, Requests: 3, Matched: 3},
			samples: []int64{7, 8, 9},
		},
		"datagrams of other sizes, to other ports and of others do not count": {
			traffic: func() Traffic { t := between(udpProtocol, 64); t.ExceptPort = 22047; return t }(),
			send: func(p *pipe) {
				p.udp(0, false, message(0, 64))
				p.udp(1, false, message(1, 63))
				p.udp(2, true, message(1, 63))
				p.put(3, false, ip(p.Client, p.Server, ipUDP, udp(40000, 22047, message(2, 64))))
				p.put(4, true, ip(p.Server, p.Client, ipUDP, udp(22047, 40000, message(2, 64))))
				p.put(5, false, ip(p.Client.Next().Next(), p.Server, ipUDP, udp(40000, 22048, message(2, 64))))
				p.put(6, false, ip(p.Client, p.Server, ipTCP, tcp(40000, 22048, 1, tcpACK, message(2, 64))))
				p.put(7, false, ip(p.Server, p.Client, ipUDP, udp(22048, 40000, message(0, 64))))
				p.udp(9, true, message(0, 64))
			},
			want:    Result{Packets: 4, Requests: 1, Matched: 1},
			samples: []int64{9},
		},
		"a lost request of many under way shifts nothing": {
			traffic: openLoop(between(udpProtocol, 64)),
			send: func(p *pipe) {
				for i := range 4 {
					p.udp(int64(10*i), false, message(i, 64))
				}
				for _, i := range []int{0, 2, 3} {
					p.udp(int64(100+10*i), true, message(i, 64))
				}
			},
			want:    Result{Packets: 7, Requests: 4, Matched: 3, Unanswered: 1},
			samples: []int64{100, 100, 100},
		},
		"a reply that repeats no request is stray": {
			traffic: openLoop(between(udpProtocol, 64)),
			send: func(p *pipe) {
				p.udp(0, false, message(0, 64))
				p.udp(5, true, message(0, 64))
				p.udp(6, true, message(0, 64))
				p.udp(10, false, message(1, 64))
				p.udp(11, true, message(9, 64))
				p.udp(15, true, message(1, 64))
			},
			want:    Result{Packets: 6, Requests: 2, Matched: 2, Stray: 2},
			samples: []int64{5, 5},
		},
		"replies that never repeat their requests go by order": {
			traffic: openLoop(between(udpProtocol, 64)),
			send: func(p *pipe) {
				p.udp(0, false, same)
				p.udp(1, false, same)
				p.udp(5, true, message(7, 64))
				p.udp(7, true, message(7, 64))
			},
			want:    Result{Packets: 4, Requests: 2, Matched: 2, ByOrder: 2},
			samples: []int64{5, 6},
		},
		"in a closed loop the next request gives up one that looks the same": {
			traffic: between(udpProtocol, 64),
			send: func(p *pipe) {
				p.udp(0, false, same)
				p.udp(5, true, same)
				p.udp(10, false, same)
				p.udp(1000, false, same)
				p.udp(1006, true, same)
			},
			want:    Result{Packets: 5, Requests: 3, Matched: 2, Unanswered: 1},
			samples: []int64{5, 6},
		},
		"requests of the warm-up do not count, from the first datagram of any size on": {
			traffic: func() Traffic { t := between(udpProtocol, 64); t.Warmup = 100; return t }(),
			send: func(p *pipe) {
				p.udp(0, false, []byte{1})
				p.udp(50, false, message(1, 64))
				p.udp(51, true, message(1, 64))
				p.udp(99, false, message(2, 64))
				p.udp(120, true, message(2, 64))
				p.udp(130, false, message(3, 64))
				p.udp(132, true, message(3, 64))
			},
			want:    Result{Packets: 7, Requests: 3, WarmUp: 2, Matched: 1},
			samples: []int64{2},
		},
		"datagrams without payload": {
			traffic: between(udpProtocol, 0),
			send: func(p *pipe) {
				p.udp(0, false, nil)
				p.udp(5, true, nil)
			},
			want:    Result{Packets: 2, Requests: 1, Matched: 1},
			samples: []int64{5},
		},
		"a group's replies go to another port": {
			traffic: between(v1alpha1.ProtocolMulticast, 64),
			send: func(p *pipe) {
				p.put(0, false, ip(p.Client, group, ipUDP, udp(40000, 22048, message(1, 64))))
				p.put(4, true, ip(p.Server, group, ipUDP, udp(50000, 41000, message(1, 64))))
			},
			want:    Result{Packets: 2, Requests: 1, Matched: 1},
			samples: []int64{4},
		},
		"a message to a group is not unicast": {
			traffic: between(udpProtocol, 64),
			send: func(p *pipe) {
				p.put(0, false, ip(p.Client, group, ipUDP, udp(40000, 22048, message(1, 64))))
				p.put(4, true, ip(p.Server, group, ipUDP, udp(22048, 40000, message(1, 64))))
			},
			err: "no packet was captured",
		},
		"a clock that was set back": {
			traffic: between(udpProtocol, 64),
			send: func(p *pipe) {
				p.udp(1000, false, message(0, 64))
				p.udp(900, true, message(0, 64))
			},
			want: Result{Packets: 2, Requests: 1, Unanswered: 1, Backwards: 1},
			err:  "clock",
		},
		"TCP: each message is answered": {
			traffic: between(tcpProtocol, 64),
			send: func(p *pipe) {
				p.handshake(0)
				for i := range 3 {
					p.tcp(int64(100*i), false, 64*i, message(i, 64))
					p.tcp(int64(100*i+7+i), true, 64*i, message(i, 64))
				}
			},
			want:    Result{Packets: 8, Requests: 3, Matched: 3},
			samples: []int64{7, 8, 9},
		},
		"TCP: a message in pieces came when the last piece did, a reply in pieces went when the first did": {
			traffic: between(tcpProtocol, 3000),
			send: func(p *pipe) {
				p.handshake(0)
				p.tcp(10, false, 0, message(1, 3000)[:1400])
				p.tcp(20, false, 2800, message(1, 3000)[2800:])
				p.tcp(30, false, 1400, message(1, 3000)[1400:2800])
				p.tcp(37, true, 0, message(1, 3000)[:1400])
				p.tcp(39, true, 1400, message(1, 3000)[1400:])
			},
			want:    Result{Packets: 7, Requests: 1, Matched: 1},
			samples: []int64{7},
		},
		"TCP: a retransmitted segment counts once": {
			traffic: between(tcpProtocol, 64),
			send: func(p *pipe) {
				p.handshake(0)
				p.handshake(1)
				p.tcp(10, false, 0, message(0, 64))
				p.tcp(11, false, 0, message(0, 64))
				p.tcp(15, true, 0, message(0, 64))
				p.tcp(25, true, 0, message(0, 64))
				p.tcp(26, false, 0, message(0, 64))
				p.tcp(30, false, 64, message(1, 64))
				p.tcp(36, true, 64, message(1, 64))
			},
			want:    Result{Packets: 11, Requests: 2, Matched: 2},
			samples: []int64{5, 6},
		},
		"TCP: several messages in one packet": {
			traffic: openLoop(between(tcpProtocol, 64)),
			send: func(p *pipe) {
				p.handshake(0)
				p.tcp(10, false, 0, append(message(0, 64), message(1, 64)...))
				p.tcp(20, true, 0, message(0, 64))
				p.tcp(30, false, 128, append(message(2, 64), message(3, 64)...))
				p.tcp(40, true, 64, bytes.Join([][]byte{message(1, 64), message(2, 64), message(3, 64)}, nil))
			},
			want:    Result{Packets: 6, Requests: 4, Matched: 4, ByOrder: 1},
			samples: []int64{10, 30, 10, 10},
		},
		"TCP: the pinger's connection begins with a line": {
			traffic: func() Traffic { t := openLoop(between(tcpProtocol, 19)); t.Preamble = pingerPreamble; return t }(),
			send: func(p *pipe) {
				p.handshake(0)
				p.tcp(1, false, 0, make([]byte, 38))
				for i := range 2 {
					p.tcp(int64(10*i+10), false, 38+19*i, message(i, 19))
					p.tcp(int64(10*i+13), true, 19*i, message(i, 19))
				}
			},
			want:    Result{Packets: 7, Requests: 2, Matched: 2},
			samples: []int64{3, 3},
		},
		"TCP: sfnt-pingpong warms up with messages of one byte": {
			traffic: between(tcpProtocol, 64),
			send: func(p *pipe) {
				p.handshake(0)
				for i := range 10 {
					p.tcp(int64(10*i), false, i, []byte{1})
					p.tcp(int64(10*i+3), true, i, []byte{1})
				}
				p.tcp(200, false, 10, same)
				p.tcp(204, true, 10, same)
			},
			want:    Result{Packets: 24, Requests: 1, Matched: 1},
			samples: []int64{4},
		},
		"TCP: a connection that was there before is not followed": {
			traffic: between(tcpProtocol, 64),
			send: func(p *pipe) {
				p.tcp(0, false, 0, same)
				p.tcp(4, true, 0, same)
			},
			want: Result{Packets: 2},
			err:  "none of 2",
		},
		"TCP: ports that are used again": {
			traffic: between(tcpProtocol, 64),
			send: func(p *pipe) {
				p.handshake(0)
				p.tcp(1, false, 0, message(0, 64))
				p.tcp(4, true, 0, message(0, 64))
				p.startIn, p.startOut = 5000, 6000
				p.handshake(10)
				p.tcp(11, false, 0, message(0, 64))
				p.tcp(15, true, 0, message(0, 64))
			},
			want:    Result{Packets: 8, Requests: 2, Matched: 2},
			samples: []int64{3, 4},
		},
		"TCP: a server that answers every other message": {
			traffic: openLoop(between(tcpProtocol, 64)),
			send: func(p *pipe) {
				p.handshake(0)
				for i := range 6 {
					p.tcp(int64(10*i), false, 64*i, message(i, 64))
					if i%2 == 1 {
						p.tcp(int64(10*i+3), true, 32*(i-1), message(i, 64))
					}
				}
			},
			want:    Result{Packets: 11, Requests: 6, Matched: 3, Unanswered: 3},
			samples: []int64{3, 3, 3},
		},
		"the connection with the messages is distinguished from the tool's control connection": {
			traffic: between(tcpProtocol, 8),
			send: func(p *pipe) {
				p.handshake(0)
				p.tcp(1, false, 0, message(1, 8))
				p.tcp(2, true, 0, message(2, 8))
				p.clientPort = 40001
				p.handshake(10)
				for i := range 1000 {
					p.tcp(int64(100*i+100), false, 8*i, message(i, 8))
					p.tcp(int64(100*i+150), true, 8*i, message(i, 8))
				}
				p.clientPort = 40000
				p.tcp(200000, false, 8, message(1, 8))
				p.tcp(200001, true, 8, message(2, 8))
			},
			want:    Result{Packets: 2008, ClientPort: 40001, Requests: 1000, Matched: 1000},
			samples: repeat(50, 1000),
		},
		"two indistinguishable connections": {
			traffic: between(tcpProtocol, 8),
			send: func(p *pipe) {
				for range 2 {
					p.handshake(0)
					for i := range 400 - int(p.clientPort%2) {
						p.tcp(int64(100*i), false, 8*i, message(i, 8))
						p.tcp(int64(100*i+50), true, 8*i, message(i, 8))
					}
					p.clientPort++
				}
			},
			want:    Result{Packets: 1602, Requests: 400, Matched: 400},
			samples: repeat(50, 400),
			err:     "cannot be identified",
		},
		"packets with too many headers": {
			traffic: between(udpProtocol, 64),
			send: func(p *pipe) {
				b := ip(p.Client, p.Server, ipUDP, udp(40000, 22048, message(1, 64)))
				p.packet(0, false, false, b[:25], len(b))
			},
			want: Result{Truncated: 1},
			err:  "headers",
		},
		"nothing came": {
			traffic: between(udpProtocol, 64),
			send:    func(*pipe) {},
			err:     "Onload",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPipe(c.traffic)
			c.send(p)
			got, err := p.finish()
			if c.want.Requests > 0 && c.traffic.Protocol != v1alpha1.ProtocolMulticast {
				if c.want.ServerPort = 22048; c.want.ClientPort == 0 {
					c.want.ClientPort = 40000
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the result differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.samples, p.samples); diff != "" {
				t.Errorf("the samples differ (-want +got):\n%s", diff)
			}
			if (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want one with %q", err, c.err)
			}
		})
	}
}

func repeat(ns int64, n int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = ns
	}
	return all
}

// TestFragments sends datagrams in fragments, as IPv4 and IPv6 split them.
func TestFragments(t *testing.T) {
	const size = 4000
	for name, addresses := range map[string]Traffic{
		"IPv4": between(v1alpha1.ProtocolUDP, size),
		"IPv6": {Server: server6, Client: client6, Protocol: v1alpha1.ProtocolUDP, MessageSize: size},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipe(addresses)
			whole := func(out bool, n int) []byte {
				if out {
					return udp(22048, 40000, message(n, size))
				}
				return udp(40000, 22048, message(n, size))
			}
			part := func(at int64, out bool, n, from, to int) {
				source, target := p.Client, p.Server
				if out {
					source, target = target, source
				}
				w := whole(out, n)
				p.put(at, out, cut(source, target, uint32(n), w[from:min(to, len(w))], from, to < len(w)))
			}
			// In order, twice, out of order, and one that is not complete.
			part(10, false, 1, 0, 1480)
			part(11, false, 1, 1480, 2960)
			part(12, false, 1, 2960, 4440)
			part(15, true, 1, 0, 1480)
			part(16, true, 1, 1480, 2960)
			part(17, true, 1, 2960, 4440)
			part(20, false, 2, 2960, 4440)
			part(21, false, 2, 2960, 4440)
			part(22, false, 2, 0, 1480)
			part(23, false, 2, 1480, 2960)
			part(28, true, 2, 0, 1480)
			part(30, false, 3, 0, 1480)
			part(31, false, 3, 2960, 4440)
			part(33, false, 4, 0, 1480)
			part(34, false, 4, 1480, 2960)
			part(35, false, 4, 2960, 4440)
			part(39, true, 4, 0, 1480)
			got, err := p.finish()
			want := Result{Packets: 17, ClientPort: 40000, ServerPort: 22048, Requests: 3, Matched: 3}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v; the result differs (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff([]int64{3, 5, 4}, p.samples); diff != "" {
				t.Errorf("the samples differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDropsAreReported checks that an incomplete result does not look complete.
func TestDropsAreReported(t *testing.T) {
	p := newPipe(between(v1alpha1.ProtocolUDP, 64))
	p.udp(0, false, message(0, 64))
	p.udp(5, true, message(0, 64))
	p.result.Drops = 3
	r, err := p.finish()
	if err == nil || !strings.Contains(err.Error(), "3 of 5") || strings.Contains(err.Error(), "\n") || r.Matched != 1 {
		t.Errorf("error %v, result %+v", err, r)
	}
}

// TestStreams cuts streams at random, loses, repeats and reorders their pieces, and compares the result with a model that
// knows when each byte arrived.
func TestStreams(t *testing.T) {
	const messages = 40
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		traffic := between(v1alpha1.ProtocolTCP, 1+r.IntN(3000))
		traffic.OpenLoop, traffic.Preamble = true, r.IntN(50)
		p, size := newPipe(traffic), traffic.MessageSize
		p.startIn, p.startOut = r.Uint32(), r.Uint32()
		p.handshake(0)

		stream := make([]byte, traffic.Preamble)
		for i := range messages {
			stream = append(stream, message(i, size)...)
		}
		replies := stream[traffic.Preamble:]
		var (
			now      int64
			sent     int                          // bytes from the client
			lost     [][2]int                     // pieces that have to be sent again
			cameAt   = make([]int64, len(stream)) // 0: not yet
			inOrder  int                          // bytes that the server has
			whole    []int64                      // when each message was complete
			answered int                          // messages
			want     []int64
		)
		for answered < messages {
			now += 1 + int64(r.IntN(10))
			action := r.IntN(10)
			switch {
			case action < 5 && sent < len(stream):
				piece := [2]int{sent, min(len(stream), sent+1+r.IntN(3*size))}
				sent = piece[1]
				lost = append(lost, piece)
				if r.IntN(4) == 0 {
					continue
				}
				fallthrough // it arrives, and is forgotten or sent again as well
			case action < 8 && len(lost) > 0:
				i := len(lost) - 1
				if action >= 5 {
					i = r.IntN(len(lost))
				}
				piece := lost[i]
				p.tcp(now, false, piece[0], stream[piece[0]:piece[1]])
				for b := piece[0]; b < piece[1]; b++ {
					if cameAt[b] == 0 {
						cameAt[b] = now
					}
				}
				if r.IntN(5) > 0 {
					lost = append(lost[:i], lost[i+1:]...)
				}
				for inOrder < len(stream) && cameAt[inOrder] > 0 {
					inOrder++
				}
				for len(whole) < messages && inOrder >= traffic.Preamble+(len(whole)+1)*size {
					whole = append(whole, now)
				}
			case len(whole) > answered:
				n := 1 + r.IntN(len(whole)-answered)
				from := answered * size
				if r.IntN(5) == 0 {
					from -= r.IntN(from + 1) // some of it again
				}
				p.tcp(now, true, from, replies[from:(answered+n)*size])
				for range n {
					want = append(want, now-whole[answered])
					answered++
				}
			}
		}
		got, err := p.finish()
		if err != nil || got.Requests != messages || got.Matched != messages || got.Stray != 0 {
			t.Fatalf("seed %d: %v: %+v", seed, err, got)
		}
		if diff := cmp.Diff(want, p.samples); diff != "" {
			t.Fatalf("seed %d, messages of %d bytes: the samples differ (-want +got):\n%s", seed, size, diff)
		}
	}
}

// FuzzMatcher feeds packets of any content and order. The counts always agree.
func FuzzMatcher(f *testing.F) {
	f.Add(uint8(0), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(uint8(1), bytes.Repeat([]byte{0, 1, 16, 17, 64, 130, 255}, 30))
	f.Add(uint8(6), bytes.Repeat([]byte{9, 80, 3, 41, 200}, 60))
	f.Fuzz(func(t *testing.T, kind uint8, script []byte) {
		traffic := between(v1alpha1.ProtocolUDP, 1+int(kind>>3))
		if kind&1 != 0 {
			traffic.Protocol = v1alpha1.ProtocolTCP
		}
		traffic.OpenLoop, traffic.Warmup = kind&2 != 0, time.Duration(kind&4)
		p := newPipe(traffic)
		p.handshake(0)
		for now := int64(1); len(script) >= 3; now++ {
			a, b, c := script[0], script[1], script[2]
			script = script[3:]
			p.clientPort = 40000 + uint16(a>>6)
			at := now - int64(a&1)*2
			switch {
			case a&0x3e == 0:
				p.handshake(at)
			case a&0x3e == 2:
				n := min(len(script), int(b))
				p.put(at, c&1 != 0, script[:n])
			case traffic.Protocol == v1alpha1.ProtocolTCP:
				p.tcp(at, a&4 != 0, int(b), make([]byte, c))
			case a&0x38 == 0:
				source, target := p.Client, p.Server
				if a&4 != 0 {
					source, target = target, source
				}
				part := udp(p.clientPort, 22048, make([]byte, traffic.MessageSize))
				p.put(at, a&4 != 0, cut(source, target, uint32(c>>6), part, int(b)*8, c&1 != 0))
			default:
				p.udp(at, a&4 != 0, message(int(b), traffic.MessageSize+int(c&1)))
			}
		}
		r, err := p.finish()
		if r.Requests != r.WarmUp+r.Matched+r.Unanswered || int64(len(p.samples)) != r.Matched {
			t.Errorf("%d samples and %+v", len(p.samples), r)
		}
		for _, ns := range p.samples {
			if ns < 0 {
				t.Errorf("a sample of %d ns", ns)
			}
		}
		if err == nil && r.Matched == 0 {
			t.Errorf("no samples and no error: %+v", r)
		}
	})
}

// BenchmarkMatcher takes one request and its reply in each iteration, in a stream.
func BenchmarkMatcher(b *testing.B) {
	p := newPipe(between(v1alpha1.ProtocolTCP, 64))
	p.record = func(int64) {}
	p.handshake(0)
	in := ip(p.Client, p.Server, ipTCP, tcp(40000, 22048, 0, tcpACK, message(1, 64)))
	out := ip(p.Server, p.Client, ipTCP, tcp(22048, 40000, 0, tcpACK, message(1, 64)))
	b.ReportAllocs()
	for n := uint32(0); b.Loop(); n++ {
		position := n * 64
		putSequence(in, p.startIn+1+position)
		putSequence(out, p.startOut+1+position)
		p.put(int64(n)*10, false, in)
		p.put(int64(n)*10+5, true, out)
	}
	if r, err := p.finish(); err != nil || r.Matched != int64(b.N) {
		b.Errorf("%v: %+v after %d", err, r, b.N)
	}
}

// Without the server's SYN, it is unknown where its replies begin: they are not matched with requests. Headers without options are.
func TestHandshakesAndHeaders(t *testing.T) {
	const size = 64
	for name, c := range map[string]struct {
		captured, options bool
		matched           int64
	}{
		"with timestamps":                    {true, true, 3},
		"without options":                    {true, false, 3},
		"the server's SYN was not captured":  {false, true, 0},
		"nor was it, and there is no option": {false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipe(between(v1alpha1.ProtocolTCP, size))
			put := func(at int64, out bool, flags uint8, sequence uint32, payload []byte) {
				source, target, from, to := p.Client, p.Server, p.clientPort, p.serverPort
				if out {
					source, target, from, to = target, source, to, from
				}
				segment := tcp(from, to, sequence, flags, payload)
				if !c.options {
					segment = plain(segment)
				}
				p.put(at, out, ip(source, target, ipTCP, segment))
			}
			put(0, false, tcpSYN, p.startIn, nil)
			if c.captured {
				put(1, true, tcpSYN|tcpACK, p.startOut, nil)
			}
			for n := range 3 {
				at, position := int64(100*n), uint32(1+n*size)
				put(at+10, false, tcpACK, p.startIn+position, message(n, size))
				put(at+20, true, tcpACK, p.startOut+position, message(n, size))
			}
			got, err := p.finish()
			if got.Matched != c.matched || (err == nil) != (c.matched > 0) {
				t.Errorf("matched %d, want %d: %v, %+v", got.Matched, c.matched, err, got)
			}
			for _, ns := range p.samples {
				if ns != 10 {
					t.Errorf("the server had a message for %d ns", ns)
				}
			}
		})
	}
}
