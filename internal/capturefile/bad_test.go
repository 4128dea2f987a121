package capturefile

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// endless is a reader that repeats bytes after a beginning.
type endless struct {
	begin, repeat []byte
	left          int64
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	if len(e.begin) == 0 {
		e.begin = e.repeat
	}
	n := copy(p, e.begin)
	e.begin, e.left = e.begin[n:], e.left-int64(n)
	return n, nil
}

// TestBad: each bad capture gives an error that names a file and, where there is one, a packet.
func TestBad(t *testing.T) {
	good, _ := orders(20)
	whole := good.pcap(true)
	stepped := &trace{packets: slices.Clone(good.packets)}
	for i := 20; i < len(stepped.packets); i++ {
		stepped.packets[i].at -= 5_000_000
	}
	between := &trace{packets: slices.Clone(good.packets)} // packet 22 answers packet 21
	for i := 21; i < len(between.packets); i++ {
		between.packets[i].at -= 50_000
	}
	snapped := &trace{packets: slices.Clone(good.packets)}
	for i, p := range snapped.packets {
		snapped.packets[i].data = p.data[:min(len(p.data), 72)]
	}
	requests, answers := good.split(func(i int, _ sent) bool { return i%2 == 0 })
	slow := &trace{packets: slices.Clone(answers.packets)}
	for i := range slow.packets {
		slow.packets[i].at -= 20_000
	}
	fragments := &trace{packets: slices.Clone(good.packets)}
	for i := range fragments.packets[2:] {
		data := bytes.Clone(fragments.packets[i+2].data)
		data[20] |= 0x20 // more fragments follow
		fragments.packets[i+2].data = data
	}
	older, _ := good.split(func(i int, _ sent) bool { return i > 1 })
	long := &trace{}
	long.connect("192.0.2.7:40000", server).datagram(1, false, fixMessage("D", strings.Repeat("x", 65)))
	udp := &trace{}
	udp.connect("192.0.2.7:40000", server).datagram(1, false, numbered(1, 64, 16))
	ng := func(kind, length uint32, rest ...byte) []byte {
		b := (&trace{}).pcapng()
		b = binary.LittleEndian.AppendUint32(b, kind)
		return append(binary.LittleEndian.AppendUint32(b, length), rest...)
	}
	huge := slices.Clone(whole[:24+16])
	binary.LittleEndian.PutUint32(huge[24+8:], 1<<31)
	binary.LittleEndian.PutUint32(huge[24+12:], 1<<31)
	otherLink := slices.Clone(whole)
	binary.LittleEndian.PutUint32(otherLink[20:], 147)
	asIs := func(b []byte) []byte { return b }
	many, _ := orders(400)
	elsewhere := &trace{packets: slices.Clone(many.packets)}
	for i := range elsewhere.packets {
		elsewhere.packets[i].at += 2000
	}
	noKey, noServer, wrongServer, noSize, sequence := ofOrders(), ofOrders(), ofOrders(), ofOrders(), ofOrders()
	noKey.Answer.Offset = 30
	noServer.Servers = nil
	wrongServer.Servers = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:12002")}
	noSize.Request.Size = 0
	sequence.Match = MatchSequence
	for name, c := range map[string]struct {
		options Options
		files   [][]byte
		want    []string
	}{
		"empty":                          {ofOrders(), [][]byte{nil}, []string{"file-1: ", "no capture"}},
		"gzip of nothing":                {ofOrders(), [][]byte{zipped(nil)}, []string{"file-1: ", "no capture"}},
		"no packet":                      {ofOrders(), [][]byte{whole, whole[:24]}, []string{"file-2: it has no packet"}},
		"text":                           {ofOrders(), [][]byte{[]byte("21:04:11 IP a > b: tcp 64\n")}, []string{"file-1: ", "no capture in the format pcap or pcapng"}},
		"cut in a packet":                {ofOrders(), [][]byte{whole[:len(whole)-10]}, []string{"file-1: packet 42: the file ends within it"}},
		"cut after the head of a packet": {ofOrders(), [][]byte{whole[:24+16+60+16]}, []string{"file-1: packet 2: the file ends within it"}},
		"cut in the head of a packet":    {ofOrders(), [][]byte{whole[:24+16+60+7]}, []string{"packet 2: the file ends within it"}},
		"gzip, cut":                      {ofOrders(), [][]byte{zipped(whole)[:500]}, []string{"the file ends within it"}},
		"gzip, damaged":                  {ofOrders(), [][]byte{append(zipped(whole)[:len(zipped(whole))-8], 1, 2, 3, 4, 5, 6, 7, 8)}, []string{"file-1: packet 43: gzip: invalid checksum"}},
		"pcapng, cut":                    {ofOrders(), [][]byte{good.pcapng()[:1000]}, []string{"file-1: packet", "the file ends within it"}},
		"a clock that steps":             {ofOrders(), [][]byte{stepped.pcap(true)}, []string{"file-1: packet 21: it is 4.905", "older than packet 20: the clock stepped back"}},
		"a clock that steps while a request waits": {ofOrders(), [][]byte{between.pcap(true)},
			[]string{"file-1: packet 22: the answer is 44.99µs older than its request in file-1: packet 21: the clock stepped back"}},
		"two clocks":       {ofOrders(), [][]byte{requests.pcap(true), slow.pcap(true)}, []string{"file-2: packet 3: the answer is 14.998µs older than its request in file-1: packet 3"}},
		"cut packets":      {ofOrders(), [][]byte{snapped.pcap(true)}, []string{"file-1: packet 3: 72 of 118 bytes were captured", "tcpdump -s 0"}},
		"no answers":       {ofOrders(), [][]byte{requests.pcap(true)}, []string{"no match: 21 packets have 20 requests to [192.0.2.1:12001] (--server) and 0 answers"}},
		"no requests":      {ofOrders(), [][]byte{answers.pcap(true)}, []string{"no match", "0 requests", "20 answers"}},
		"older connection": {ofOrders(), [][]byte{older.pcap(true)}, []string{"no match", "40 segments are of connections that are older than the capture (--mid-stream)"}},
		"fragments":        {ofOrders(), [][]byte{fragments.pcap(true)}, []string{"0 requests", "40 packets are fragments or"}},
		"another server":   {wrongServer, [][]byte{whole}, []string{"no match", "0 requests to [192.0.2.1:12002]"}},
		"no server":        {noServer, [][]byte{older.pcap(true)}, []string{"0 requests to [] (--server)"}},
		"no match":         {noKey, [][]byte{whole}, []string{"20 requests to [192.0.2.1:12001] (--server) and 20 answers, with no key in common within 1s"}},
		"µs":               {ofOrders(), [][]byte{good.pcap(false)}, []string{"most latencies are below 100µs, and the times are whole µs: let tcpdump write ns"}},
		"pcapng, µs":       {ofOrders(), [][]byte{good.bare(1, 0, 1e6, asIs)}, []string{"the times are whole µs"}},
		"pcapng, 2^-24 s":  {ofOrders(), [][]byte{good.bare(1, 0x80|24, 1<<24, asIs)}, []string{"file-1: packet 1: its time has a binary resolution, which is not read"}},
		"two places":       {ofOrders(), [][]byte{many.pcap(true), elsewhere.pcap(true)}, []string{"800 requests and segments came again: give the files of one place of the path"}},
		"no size":          {noSize, [][]byte{whole}, []string{"file-1: packet 1: it is TCP", "--size"}},
		"UDP by sequence":  {sequence, [][]byte{udp.pcap(true)}, []string{"file-1: packet 1: it is UDP"}},
		"a long key":       {ofFIX(), [][]byte{long.pcap(true)}, []string{"file-1: packet 1: a key has 65 bytes, and 64 are possible"}},
		"two links":        {ofOrders(), [][]byte{twoLinks(good)}, []string{"file-1: packet 43: "}},
		"a huge packet":    {ofOrders(), [][]byte{huge}, []string{"file-1: packet 1: capture length exceeds snap length"}},
		"another link":     {ofOrders(), [][]byte{otherLink}, []string{"0 requests", "42 packets are fragments or of protocols that are not read"}},
		"a huge block":     {ofOrders(), [][]byte{ng(9, 0xfffffff0, make([]byte, 40)...)}, []string{"file-1: packet 1: the file ends within it"}},
		"no time":          {ofOrders(), [][]byte{ng(3, 16+60, append([]byte{60, 0, 0, 0}, make([]byte, 64)...)...)}, []string{"file-1: packet 1: it has no time"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, err := analyzed(t, c.options, c.files...)
			if err == nil {
				t.Fatalf("no error, %+v", r)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v; want %q", err, want)
				}
			}
		})
	}
}

// twoLinks returns a capture that continues with an interface of another link.
func twoLinks(t *trace) []byte {
	other := (&trace{}).pcapng()[28:]
	other[8] = 101
	packet := []byte{6, 0, 0, 0, 36, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0x45, 0, 0, 0, 36, 0, 0, 0}
	return slices.Concat(t.pcapng(), other, packet)
}

// TestOptions: options that do not fit name their flag.
func TestOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--timeout: 0s":               func(o *Options) { o.Timeout = 0 },
		"--timeout: 61s":              func(o *Options) { o.Timeout = mostTime + 1e9 },
		"--match":                     func(o *Options) { o.Match, o.Tag = MatchFIX, "ClOrdID" },
		"--mid-stream":                func(o *Options) { o.Match, o.MidStream = MatchSequence, true },
		"1 to 16384 bytes, not 0":     func(o *Options) { o.Match, o.Answer.Size = MatchSequence, 0 },
		"1 to 16384 bytes, not 16385": func(o *Options) { o.Request.Size = mostMessage + 1 },
		"not 8 at 57":                 func(o *Options) { o.Request.Offset = 57 },
		"1 to 64, not 65":             func(o *Options) { o.Answer.Length = 65 },
	} {
		o := ofOrders()
		change(&o)
		if _, err := Analyze(t.Context(), nil, o, nil); err == nil || !strings.Contains(strings.Replace(err.Error(), "1m1s", "61s", 1), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestBounds: captures of any length end with an error instead of taking more memory.
func TestBounds(t *testing.T) {
	many := func(build func(*trace)) io.Reader {
		trace := &trace{}
		build(trace)
		b := trace.pcap(true)
		return &endless{b, b[24:], 1 << 33}
	}
	header := (&trace{}).pcapng()
	iface := header[28:] // the description of the interface
	for name, c := range map[string]struct {
		in   io.Reader
		want string
	}{
		"interfaces without packets": {&endless{header, iface, 1 << 33}, "more than 16 MiB besides packets"},
		"a block without an end":     {&endless{append(slices.Clone(header), 9, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff), make([]byte, 4096), 1 << 33}, "a block is too long"},
		"a packet without an end": {&endless{append(slices.Clone(header), append([]byte{6, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0},
			0, 0, 0, 0xf0, 0, 0, 0, 0xf0)...), make([]byte, 4096), 1 << 33}, "a block is too long"},
		"a packet of 1 MiB": {&endless{append(slices.Clone(header), append([]byte{6, 0, 0, 0, 0x20, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0},
			0, 0, 0x10, 0, 0, 0, 0x10, 0)...), make([]byte, 4096), 1 << 33}, "packet 1: it has 1048576 bytes, and 262144 are possible"},
		"connections": {many(func(t *trace) {
			for i := range mostConnections + 1 {
				client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 40000)
				t.connect(client.String(), server).frame(1, false, &layers.TCP{SYN: true}, nil)
			}
		}), "packet 16385: more than 16384 TCP connections are open"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Analyze(t.Context(), []File{{"-", c.in}}, ofOrders(), func(int64) {})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q: %+v", err, c.want, r)
			}
		})
	}
}

// TestWaiting: more requests than can wait give an error, and not lost ones.
func TestWaiting(t *testing.T) {
	trace := &trace{}
	l := trace.connect("192.0.2.7:40000", server)
	for i := range mostWaiting/20 + 1 {
		l.datagram(float64(i)/10, false, messages(20*i, 20*i+20))
	}
	if _, _, err := analyzed(t, ofOrders(), trace.pcap(true)); err == nil || !strings.Contains(err.Error(), "packet 52429: more than 1048576 messages wait within 1s") {
		t.Errorf("%v", err)
	}
}

func FuzzAnalyze(f *testing.F) {
	good, _ := orders(5)
	f.Add(good.pcap(true), uint8(0))
	f.Add(good.pcapng(), uint8(1))
	fix := &trace{}
	l := fix.connect("192.0.2.7:40000", server).open(0)
	l.request(10, fixMessage("D", "a"))
	l.answer(12, fixMessage("8", "a"))
	l.datagram(20, false, fixMessage("D", "b"))
	f.Add(fix.pcap(false), uint8(2))
	f.Add(zipped(fix.pcap(false)), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, kind uint8) {
		o := ofOrders()
		switch kind % 4 {
		case 1:
			o.Match = MatchSequence
		case 2:
			o = ofFIX()
		case 3:
			o.MidStream, o.Servers = true, nil
		}
		r, _, err := analyzed(t, o, b)
		if err == nil && r.Matched == 0 {
			t.Errorf("no error and nothing matched: %+v", r)
		}
	})
}
