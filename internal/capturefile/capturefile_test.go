package capturefile

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// orders is a trace of n numbered orders of 64 bytes, each answered 5 µs + 1 ns later than the one before: latencies of 5,001 ns on.
func orders(n int) (*trace, []int64) {
	t := &trace{}
	l := t.connect("192.0.2.7:40000", server).open(0)
	var want []int64
	for i := range n {
		us := 100 * float64(i+1)
		l.request(us, numbered(uint64(i), 64, 16))
		l.answer(us+5+float64(i+1)/1000, numbered(uint64(i), 64, 16))
		want = append(want, int64(5000+i+1))
	}
	return t, want
}

func messages(from, to int) (b []byte) {
	for i := from; i < to; i++ {
		b = append(b, numbered(uint64(i), 64, 16)...)
	}
	return b
}

// TestFormats: the same latencies from every format, link and number of files.
func TestFormats(t *testing.T) {
	plain, want := orders(20)
	even, odd := plain.split(func(i int, _ sent) bool { return i%2 == 0 })
	early, late := plain.split(func(i int, _ sent) bool { return i < 21 })
	tagged, double := &trace{vlans: []layers.EthernetType{layers.EthernetTypeDot1Q}}, &trace{vlans: []layers.EthernetType{layers.EthernetTypeQinQ, layers.EthernetTypeDot1Q}}
	for _, tags := range []*trace{tagged, double} {
		l := tags.connect("192.0.2.7:40000", server).open(0)
		for i := range 20 {
			l.request(100*float64(i+1), numbered(uint64(i), 64, 16))
			l.answer(100*float64(i+1)+5+float64(i+1)/1000, numbered(uint64(i), 64, 16))
		}
	}
	for name, files := range map[string][][]byte{
		"pcap, ns": {plain.pcap(true)}, "pcapng": {plain.pcapng()}, "gzip": {zipped(plain.pcap(true))}, "pcapng, gzip": {zipped(plain.pcapng())},
		"VLAN": {tagged.pcap(true)}, "QinQ": {double.pcapng()},
		"a file for each direction": {odd.pcap(true), even.pcapng()}, "parts in the wrong order": {late.pcap(true), early.pcap(true)},
	} {
		t.Run(name, func(t *testing.T) {
			r, got, err := analyzed(t, ofOrders(), files...)
			if err != nil || !slices.Equal(got, want) || r.Lost+r.Unmatched+r.Retransmitted+r.Gaps+r.OtherBytes > 0 {
				t.Errorf("%v, %v, %+v", got, err, r)
			}
		})
	}
	ethernet := func(b []byte) []byte { return b }
	cooked := func(b []byte) []byte {
		return append([]byte{0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0}, b[14:]...)
	}
	for name, file := range map[string][]byte{
		"pcapng, ps":   plain.bare(1, 12, 1e12, ethernet),
		"Linux cooked": plain.bare(113, 9, 1e9, cooked), "raw IP": plain.bare(101, 9, 1e9, func(b []byte) []byte { return b[14:] }),
	} {
		_, got, err := analyzed(t, ofOrders(), file)
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %d, want %d", name, got[i], want[i])
			}
		}
		if err != nil || len(got) != len(want) {
			t.Errorf("%s: %d latencies, %v", name, len(got), err)
		}
	}
	o := ofOrders()
	o.Servers = nil
	if r, got, err := analyzed(t, o, plain.pcap(true)); err != nil || len(got) != 20 || r.Servers[0] != server {
		t.Errorf("the server of the first SYN: %v, %v, %+v", got, err, r)
	}
	// An engine answers each order several times: only the first answer counts.
	fills := &trace{}
	fill := fills.connect("192.0.2.7:40000", server).open(0)
	for i := range 150 {
		us := 100 * float64(i+1)
		fill.request(us, numbered(uint64(i), 64, 16))
		for k := range 3 {
			fill.answer(us+5+float64(k), numbered(uint64(i), 64, 16))
		}
	}
	if r, got, err := analyzed(t, ofOrders(), fills.pcap(true)); err != nil || len(got) != 150 || r.AnswersAgain != 300 {
		t.Errorf("three answers each: %d latencies, %v, %+v", len(got), err, r)
	}
	// Of two requests without an answer, one might still have got it.
	open := &trace{}
	begun := open.connect("192.0.2.7:40000", server).open(0)
	begun.request(1000, numbered(1, 64, 16))
	begun.request(2000, numbered(2, 64, 16))
	begun.answer(2005, numbered(2, 64, 16))
	begun.request(2e6, numbered(3, 64, 16))
	if r, _, err := analyzed(t, ofOrders(), open.pcap(true)); err != nil || r.Lost != 2 || r.Open != 1 {
		t.Errorf("%v, %d lost, of which %d are open", err, r.Lost, r.Open)
	}
	// A step of 1 µs matters only below 100 µs.
	slow := &trace{}
	l := slow.connect("192.0.2.7:40000", server).open(0)
	l.request(1000, numbered(1, 64, 16))
	l.answer(1100, numbered(1, 64, 16))
	for name, file := range map[string][]byte{"pcap, µs": slow.pcap(false), "pcapng, µs": slow.bare(1, 0, 1e6, ethernet)} {
		if _, got, err := analyzed(t, ofOrders(), file); err != nil || !slices.Equal(got, []int64{100_000}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestTruth: synthetic captures of which the latencies and counts are known.
func TestTruth(t *testing.T) {
	six := ofOrders()
	six.Servers = []netip.AddrPort{server6}
	both := ofOrders()
	both.Servers = append(both.Servers, netip.MustParseAddrPort("192.0.2.1:10001"))
	sequence := ofOrders()
	sequence.Match, sequence.Answer.Size = MatchSequence, 32
	other := ofOrders()
	other.Answer = Layout{Size: 100, Offset: 90, Length: 8}
	datagrams := ofOrders()
	datagrams.Request.Size, datagrams.Answer.Size = 0, 0
	mid := ofOrders()
	mid.MidStream = true
	address := ofFIX()
	address.Servers = []netip.AddrPort{netip.AddrPortFrom(server.Addr(), 0)}
	open := func(t *trace) *link { return t.connect("192.0.2.7:40000", server).open(0) }
	for name, c := range map[string]struct {
		options Options
		build   func(*trace)
		want    []int64 // in ns
		counts  Result
	}{
		"IPv6": {options: six, build: func(t *trace) {
			l := t.connect("[2001:db8::7]:40000", server6).open(0)
			l.request(10, numbered(1, 64, 16))
			l.answer(17.5, numbered(1, 64, 16))
		}, want: []int64{7500}},
		"a request of two packets counts from the last, an answer of two from the first": {options: ofOrders(), build: func(t *trace) {
			l, m := open(t), numbered(1, 64, 16)
			l.request(10, m[:20])
			l.request(13, m[20:])
			l.answer(19, m[:1])
			l.answer(25, m[1:])
		}, want: []int64{6000}},
		"several messages in a packet, and a part of the next": {options: ofOrders(), build: func(t *trace) {
			l, all := open(t), messages(0, 3)
			l.request(10, all[:150])
			l.request(12, all[150:])
			l.answer(20, all)
		}, want: []int64{10_000, 10_000, 8000}},
		"overtaking": {options: ofOrders(), build: func(t *trace) {
			l := open(t)
			l.request(10, numbered(1, 64, 16))
			l.request(12, numbered(2, 64, 16))
			l.answer(15, numbered(2, 64, 16))
			l.answer(30, numbered(1, 64, 16))
		}, want: []int64{3000, 20_000}},
		"segments sent again count when they were first captured": {options: ofOrders(), build: func(t *trace) {
			l := open(t)
			l.request(10, numbered(1, 64, 16))
			l.segment(11, false, 0, numbered(1, 64, 16))
			l.answer(15, numbered(1, 64, 16))
			l.segment(300, true, 0, numbered(1, 64, 16))
		}, want: []int64{5000}, counts: Result{Retransmitted: 2}},
		"segments out of order, of which one was sent again before the first came": {options: ofOrders(), build: func(t *trace) {
			l := open(t)
			l.segment(12, false, 64, numbered(2, 64, 16))
			l.segment(20, false, 64, numbered(2, 64, 16))
			l.segment(30, false, 0, numbered(1, 64, 16))
			l.answer(40, messages(1, 3))
		}, want: []int64{10_000, 28_000}, counts: Result{Retransmitted: 1}},
		"segments that overlap": {options: ofOrders(), build: func(t *trace) {
			l, all := open(t), messages(0, 2)
			l.segment(10, false, 0, all[:64])
			l.segment(12, false, 32, all[32:])
			l.answer(20, all)
		}, want: []int64{10_000, 8000}, counts: Result{Retransmitted: 1}},
		"an answer that was read before its request, of which the bytes before came late": {options: both, build: func(t *trace) {
			l := open(t)
			acks := t.connect("192.0.2.8:40001", netip.MustParseAddrPort("192.0.2.1:10001")).open(2)
			l.request(9, numbered(9, 64, 16))
			l.segment(12, false, 128, numbered(2, 64, 16))
			acks.answer(18, numbered(2, 64, 16))
			l.segment(30, false, 64, numbered(1, 64, 16))
			acks.answer(33, numbered(1, 64, 16))
		}, want: []int64{6000, 3000}, counts: Result{Lost: 1}},
		"a request behind bytes that were never captured, of which the answer was read two turns before": {options: both, build: func(t *trace) {
			l := open(t)
			acks := t.connect("192.0.2.8:40001", netip.MustParseAddrPort("192.0.2.1:10001")).open(2)
			l.request(9, numbered(9, 64, 16))
			acks.answer(11, numbered(9, 64, 16))
			l.in += 64
			l.request(700_000, numbered(2, 64, 16))
			acks.answer(700_004, numbered(2, 64, 16))
			for i, us := range []float64{1_050_000, 2_100_000, 3_200_000} {
				acks.answer(us, numbered(uint64(100+i), 64, 16))
			}
		}, want: []int64{2000, 4000}, counts: Result{Unmatched: 3, Gaps: 1, MissingBytes: 64}},
		"lost, unmatched and duplicate messages": {options: ofOrders(), build: func(t *trace) {
			l := open(t)
			l.request(10, messages(1, 3))
			l.request(11, numbered(2, 64, 16))
			l.answer(20, numbered(2, 64, 16))
			l.answer(21, numbered(2, 64, 16))
			l.answer(22, numbered(7, 64, 16))
		}, want: []int64{10_000}, counts: Result{Lost: 1, Unmatched: 1, RequestsAgain: 1, AnswersAgain: 1}},
		"an answer after the time": {options: ofOrders(), build: func(t *trace) {
			l := open(t)
			l.request(10, messages(1, 3))
			l.answer(20, numbered(1, 64, 16))
			l.answer(1_000_011, numbered(2, 64, 16))
		}, want: []int64{10_000}, counts: Result{Lost: 1, Unmatched: 1}},
		"a key again after its answer": {options: ofOrders(), build: func(t *trace) {
			l := open(t)
			for i := range 3 {
				l.request(10*float64(i+1), numbered(1, 64, 16))
				l.answer(10*float64(i+1)+float64(i+2), numbered(1, 64, 16))
			}
		}, want: []int64{2000, 3000, 4000}},
		"bytes that were not captured": {options: ofOrders(), build: func(t *trace) {
			l := open(t)
			l.request(10, messages(1, 2))
			l.answer(15, messages(1, 2))
			l.in += 100
			l.request(20, messages(2, 4)[100:])
			l.request(21, messages(4, 5))
			l.answer(30, messages(2, 5))
		}, want: []int64{5000, 9000}, counts: Result{Unmatched: 2, Gaps: 1, MissingBytes: 100, OtherBytes: 28}},
		"answers to requests before the capture": {options: ofFIX(), build: func(t *trace) {
			l := t.connect("192.0.2.7:40000", server)
			l.answer(5, fixMessage("8", "a"))
			l.request(10, fixMessage("D", "a"))
			l.answer(12, fixMessage("8", "a"))
		}, want: []int64{2000}, counts: Result{Unmatched: 1}},
		"a connection that is older than the capture": {options: mid, build: func(t *trace) {
			l := t.connect("192.0.2.7:40000", server)
			l.request(10, messages(1, 2))
			l.answer(12, messages(1, 2))
		}, want: []int64{2000}},
		"ports used again": {options: ofOrders(), build: func(t *trace) {
			for i := range 3 {
				l := t.connect("192.0.2.7:40000", server).open(1000 * float64(i))
				l.request(1000*float64(i)+10, numbered(uint64(i), 64, 16))
				l.answer(1000*float64(i)+12, numbered(uint64(i), 64, 16))
				l.frame(1000*float64(i)+20, false, &layers.TCP{Seq: l.startIn + 64, FIN: true, ACK: true}, nil)
				l.frame(1000*float64(i)+21, true, &layers.TCP{Seq: l.startOut + 64, FIN: true, ACK: true}, nil)
			}
		}, want: []int64{2000, 2000, 2000}},
		"answers on another connection": {options: both, build: func(t *trace) {
			l := open(t)
			acks := t.connect("192.0.2.8:40001", netip.MustParseAddrPort("192.0.2.1:10001")).open(2)
			for i := range 3 {
				l.request(10*float64(i+1), numbered(uint64(i), 64, 16))
				acks.answer(10*float64(i+1)+float64(i+2), numbered(uint64(i), 64, 16))
			}
		}, want: []int64{2000, 3000, 4000}},
		"another layout of answers": {options: other, build: func(t *trace) {
			l := open(t)
			l.request(10, numbered(1, 64, 16))
			l.answer(14, numbered(1, 100, 90))
		}, want: []int64{4000}},
		"by sequence, on two connections, with a hole": {options: sequence, build: func(t *trace) {
			l, other := open(t), t.connect("192.0.2.9:40009", server).open(2)
			l.request(10, messages(0, 1))
			other.request(11, messages(0, 1))
			l.in += 64 // The second request was not captured.
			other.answer(14, make([]byte, 32))
			l.request(15, messages(2, 3))
			l.answer(20, make([]byte, 96))
		}, want: []int64{3000, 10_000, 5000}, counts: Result{Unmatched: 1, Gaps: 1, MissingBytes: 64}},
		"datagrams": {options: datagrams, build: func(t *trace) {
			l := t.connect("192.0.2.7:40000", server)
			l.datagram(10, false, numbered(1, 64, 16))
			l.datagram(11, false, numbered(2, 30, 16))
			l.datagram(12, false, []byte("too short"))
			l.datagram(15, true, numbered(2, 24, 16))
			l.datagram(16, true, numbered(1, 900, 16))
		}, want: []int64{4000, 6000}, counts: Result{OtherBytes: 9}},
		"FIX, with heartbeats, an order in parts and two at once": {options: address, build: func(t *trace) {
			l := open(t)
			acks := t.connect("192.0.2.8:40001", netip.MustParseAddrPort("192.0.2.1:10001")).open(2)
			one := fixMessage("D", "order-1")
			l.request(8, fixMessage("0", ""))
			l.request(10, one[:3])
			l.request(11, one[3:15])
			l.request(12, append(one[15:], fixMessage("D", "order-2")...))
			acks.answer(15, fixMessage("8", "order-1"))
			acks.answer(17, append(fixMessage("0", ""), fixMessage("8", "order-2")[:30]...))
			acks.answer(18, fixMessage("8", "order-2")[30:])
		}, want: []int64{3000, 5000}, counts: Result{OtherBytes: int64(2 * len(fixMessage("0", "")))}},
		"FIX after bytes that were not captured, and with a wrong checksum": {options: ofFIX(), build: func(t *trace) {
			l := open(t)
			l.request(10, fixMessage("D", "a"))
			l.in += 30
			wrong := fixMessage("D", "b")
			wrong[len(wrong)-2] ^= 1
			l.request(11, append(append([]byte("rest of a message\x01"), wrong...), fixMessage("D", "c")...))
			l.answer(20, slices.Concat(fixMessage("8", "a"), fixMessage("8", "b"), fixMessage("8", "c")))
		}, want: []int64{10_000, 9000}, counts: Result{Unmatched: 1, Gaps: 1, MissingBytes: 30, OtherBytes: int64(len("rest of a message\x01") + len(fixMessage("D", "b")))}},
		"packets that are slightly out of order": {options: ofOrders(), build: func(t *trace) {
			l := open(t)
			l.request(10, numbered(1, 64, 16))
			l.request(30, numbered(2, 64, 16))
			l.answer(20, numbered(1, 64, 16))
			l.answer(40, numbered(2, 64, 16))
		}, want: []int64{10_000, 10_000}, counts: Result{OutOfOrder: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			trace := &trace{}
			c.build(trace)
			r, got, err := analyzed(t, c.options, trace.pcap(true))
			slices.Sort(got)
			slices.Sort(c.want)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v: %v, %+v", got, c.want, err, r)
			}
			counts := Result{
				OutOfOrder: r.OutOfOrder, Lost: r.Lost, Unmatched: r.Unmatched, RequestsAgain: r.RequestsAgain, AnswersAgain: r.AnswersAgain,
				Retransmitted: r.Retransmitted, Gaps: r.Gaps, MissingBytes: r.MissingBytes, OtherBytes: r.OtherBytes, Unread: r.Unread, Older: r.Older,
			}
			if !equal(counts, c.counts) {
				t.Errorf("%+v, want %+v", counts, c.counts)
			}
		})
	}
}

// TestShort: connections that ended do not count, nor does what comes after their end.
func TestShort(t *testing.T) {
	trace := &trace{}
	for i := range mostConnections + 10 {
		us := 20 * float64(i)
		l := trace.connect(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 40000).String(), server).open(us)
		l.request(us+2, numbered(uint64(i), 64, 16))
		l.answer(us+4, numbered(uint64(i), 64, 16))
		l.frame(us+5, false, &layers.TCP{Seq: l.startIn + 64, FIN: true, ACK: true}, nil)
		l.frame(us+6, true, &layers.TCP{Seq: l.startOut + 64, FIN: true, ACK: true}, nil)
		l.frame(us+7, false, &layers.TCP{Seq: l.startIn + 65, ACK: true}, nil)
		l.segment(us+8, false, 0, numbered(uint64(i), 64, 16))
	}
	if r, _, err := analyzed(t, ofOrders(), trace.pcap(true)); err != nil || r.Matched != mostConnections+10 || r.Older != mostConnections+10 {
		t.Errorf("%v, %+v", err, r)
	}
}

func equal(a, b Result) bool {
	a.Servers, b.Servers = nil, nil
	return strings.EqualFold(text(a), text(b))
}
