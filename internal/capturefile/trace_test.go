package capturefile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// epoch is when the synthetic captures begin, in ns.
const epoch = int64(1_700_000_000_000_000_007)

var server, server6 = netip.MustParseAddrPort("192.0.2.1:12001"), netip.MustParseAddrPort("[2001:db8::1]:12001")

// sent is a packet of a synthetic capture.
type sent struct {
	at     int64
	data   []byte
	length int
}

// trace is a synthetic capture.
type trace struct {
	packets []sent
	// vlans are the EtherTypes of the tags that frames have.
	vlans []layers.EthernetType
}

// link is a connection of a trace, or two ends that exchange datagrams.
type link struct {
	*trace
	client, server netip.AddrPort
	// startIn and startOut are the numbers of the first bytes, in and out the bytes so far.
	startIn, startOut uint32
	in, out           int
}

func (t *trace) connect(client string, to netip.AddrPort) *link {
	return &link{trace: t, client: netip.MustParseAddrPort(client), server: to, startIn: 0xffff_ff00, startOut: 77}
}

// frame appends a frame at a time in µs after the epoch.
func (l *link) frame(us float64, answer bool, transport gopacket.SerializableLayer, payload []byte) {
	source, target := l.client, l.server
	if answer {
		source, target = target, source
	}
	first := layers.EthernetTypeIPv4
	if source.Addr().Is6() {
		first = layers.EthernetTypeIPv6
	}
	all := []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: first}}
	for i, kind := range l.vlans {
		all[0].(*layers.Ethernet).EthernetType = l.vlans[0]
		next := first
		if i+1 < len(l.vlans) {
			next = l.vlans[i+1]
		}
		_ = kind
		all = append(all, &layers.Dot1Q{VLANIdentifier: 7, Type: next})
	}
	protocol := layers.IPProtocolTCP
	if udp, ok := transport.(*layers.UDP); ok {
		protocol = layers.IPProtocolUDP
		udp.SrcPort, udp.DstPort = layers.UDPPort(source.Port()), layers.UDPPort(target.Port())
	} else {
		tcp := transport.(*layers.TCP)
		tcp.SrcPort, tcp.DstPort = layers.TCPPort(source.Port()), layers.TCPPort(target.Port())
	}
	if source.Addr().Is6() {
		all = append(all, &layers.IPv6{Version: 6, NextHeader: protocol, HopLimit: 64, SrcIP: source.Addr().AsSlice(), DstIP: target.Addr().AsSlice()})
	} else {
		all = append(all, &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: source.Addr().AsSlice(), DstIP: target.Addr().AsSlice()})
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, append(all, transport, gopacket.Payload(payload))...); err != nil {
		panic(err)
	}
	data := bytes.Clone(b.Bytes())
	for len(data) < 60 { // Ethernet's padding is no payload.
		data = append(data, 0xee)
	}
	l.packets = append(l.packets, sent{epoch + int64(us*1000), data, len(data)})
}

// open appends the handshake.
func (l *link) open(us float64) *link {
	l.frame(us, false, &layers.TCP{Seq: l.startIn - 1, SYN: true}, nil)
	l.frame(us+1, true, &layers.TCP{Seq: l.startOut - 1, SYN: true, ACK: true}, nil)
	return l
}

// segment appends bytes of a direction from a position on, which may be anywhere.
func (l *link) segment(us float64, answer bool, position int, payload []byte) {
	start := l.startIn
	if answer {
		start = l.startOut
	}
	l.frame(us, answer, &layers.TCP{Seq: start + uint32(position), ACK: true, PSH: true}, payload)
}

// request and answer append the next bytes of their directions.
func (l *link) request(us float64, payload []byte) {
	l.segment(us, false, l.in, payload)
	l.in += len(payload)
}

func (l *link) answer(us float64, payload []byte) {
	l.segment(us, true, l.out, payload)
	l.out += len(payload)
}

func (l *link) datagram(us float64, answer bool, payload []byte) {
	l.frame(us, answer, &layers.UDP{}, payload)
}

// numbered returns a message of a size with its number at an offset.
func numbered(n uint64, size, offset int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = 'x'
	}
	binary.BigEndian.PutUint64(b[offset:], n)
	return b
}

// fixMessage returns a message of FIX with a type and a ClOrdID.
func fixMessage(kind, id string) []byte {
	body := "35=" + kind + "\x0149=TUSER1\x0156=EMBER\x01"
	if id != "" {
		body += "11=" + id + "\x01"
	}
	m := fmt.Sprintf("8=FIX.4.4\x019=%d\x01%s", len(body), body)
	var sum byte
	for _, c := range []byte(m) {
		sum += c
	}
	return fmt.Appendf([]byte(m), "10=%03d\x01", sum)
}

// pcap writes the packets with timestamps of ns, or of µs.
func (t *trace) pcap(ns bool) []byte {
	var out bytes.Buffer
	w := pcapgo.NewWriter(&out)
	if ns {
		w = pcapgo.NewWriterNanos(&out)
	}
	if err := w.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
		panic(err)
	}
	for _, p := range t.packets {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, p.at), CaptureLength: len(p.data), Length: p.length}, p.data); err != nil {
			panic(err)
		}
	}
	return out.Bytes()
}

// pcapng writes the packets as pcapng with timestamps of ns.
func (t *trace) pcapng() []byte {
	var out bytes.Buffer
	w, err := pcapgo.NewNgWriter(&out, layers.LinkTypeEthernet)
	if err != nil {
		panic(err)
	}
	for _, p := range t.packets {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, p.at), CaptureLength: len(p.data), Length: p.length}, p.data); err != nil {
			panic(err)
		}
	}
	if err := w.Flush(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// bare writes the packets as pcapng by hand: big-endian, an interface of a link without options, so that timestamps are of µs, or
// with a resolution, and packets as convert makes them of Ethernet frames.
func (t *trace) bare(link uint16, resolution byte, perSecond uint64, convert func([]byte) []byte) []byte {
	block := func(kind uint32, body []byte) []byte {
		for len(body)%4 != 0 {
			body = append(body, 0)
		}
		b := binary.BigEndian.AppendUint32(nil, kind)
		b = append(binary.BigEndian.AppendUint32(b, uint32(12+len(body))), body...)
		return binary.BigEndian.AppendUint32(b, uint32(12+len(body)))
	}
	out := block(0x0a0d0d0a, []byte{0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255})
	description := append(binary.BigEndian.AppendUint16(nil, link), 0, 0, 0, 0, 0, 0)
	if resolution > 0 {
		description = append(description, 0, 9, 0, 1, resolution, 0, 0, 0, 0, 0, 0, 0)
	}
	out = append(out, block(1, description)...)
	for _, p := range t.packets {
		data := convert(p.data)
		at := uint64(p.at/1e9)*perSecond + uint64(p.at%1e9)*perSecond/1e9
		body := binary.BigEndian.AppendUint64(make([]byte, 4), at)
		body = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(body, uint32(len(data))), uint32(len(data)))
		out = append(out, block(6, append(body, data...))...)
	}
	return out
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// split returns two traces with the packets that match, and the others.
func (t *trace) split(first func(int, sent) bool) (a, b *trace) {
	a, b = &trace{}, &trace{}
	for i, p := range t.packets {
		if first(i, p) {
			a.packets = append(a.packets, p)
		} else {
			b.packets = append(b.packets, p)
		}
	}
	return a, b
}

// ofOrders are the options for messages of 64 bytes with their number at 16.
func ofOrders() Options {
	l := Layout{Size: 64, Offset: 16, Length: 8}
	return Options{Servers: []netip.AddrPort{server}, Match: MatchOffset, Request: l, Answer: l, Timeout: time.Second}
}

func ofFIX() Options {
	return Options{Servers: []netip.AddrPort{server}, Match: MatchFIX, Tag: "11", Timeout: time.Second}
}

// analyzed returns the latencies in ns in the order of their matches.
func analyzed(t *testing.T, o Options, files ...[]byte) (Result, []int64, error) {
	t.Helper()
	var all []File
	for i, f := range files {
		all = append(all, File{fmt.Sprintf("file-%d", i+1), io.Reader(bytes.NewReader(f))})
	}
	var latencies []int64
	r, err := Analyze(t.Context(), all, o, func(ns int64) { latencies = append(latencies, ns) })
	if r.Requests != r.Matched+r.Lost+r.RequestsAgain && err == nil || r.Answers != r.Matched+r.Unmatched+r.AnswersAgain && err == nil {
		t.Errorf("the counts do not add up: %+v", r)
	}
	if r.Matched != int64(len(latencies)) {
		t.Errorf("%d latencies, %d matched", len(latencies), r.Matched)
	}
	return r, latencies, err
}

func text(r Result) string { return fmt.Sprintf("%+v", r) }
