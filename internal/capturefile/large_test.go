package capturefile

import (
	"encoding/binary"
	"io"
	"syscall"
	"testing"
)

// flood makes a capture as it is read: orders of 200 bytes on ten connections at 100,000 a second, each answered after 7 µs on
// the same connection; one in a thousand is lost, one in a thousand sent again, and one in 100,000 not captured.
type flood struct {
	frames  [2][]byte
	pending []byte
	left    int
	n       uint64
	in, out [10]uint32
}

const floodSize = 200

func newFlood(messages int) *flood {
	t := &trace{}
	l := t.connect("192.0.2.7:40000", server).open(0)
	l.request(0, numbered(0, floodSize, 16))
	l.answer(0, numbered(0, floodSize, 16))
	f := &flood{frames: [2][]byte{t.packets[2].data, t.packets[3].data}, left: messages}
	head := t.pcap(true)[:24]
	f.pending = append(f.pending, head...)
	for i := range f.in {
		f.packet(false, 0, i, 0, 0, 2)
		f.packet(true, 0, i, 0, 0, 18)
		f.in[i], f.out[i] = 1, 1
	}
	return f
}

// packet appends a segment, or only its header if it has flags.
func (f *flood) packet(answer bool, at int64, connection int, sequence uint32, number uint64, flags byte) {
	frame := f.frames[0]
	port := frame[34:]
	if answer {
		frame = f.frames[1]
		port = frame[36:]
	}
	binary.BigEndian.PutUint16(port, uint16(40000+connection))
	binary.BigEndian.PutUint32(frame[38:], sequence)
	length := len(frame)
	frame[47] = 0x18
	if flags != 0 {
		frame[47], length = flags, 54
	}
	binary.BigEndian.PutUint16(frame[16:], uint16(length-14))
	binary.BigEndian.PutUint64(frame[54+16:], number)
	at += epoch
	f.pending = binary.LittleEndian.AppendUint32(f.pending, uint32(at/1e9))
	f.pending = binary.LittleEndian.AppendUint32(f.pending, uint32(at%1e9))
	f.pending = binary.LittleEndian.AppendUint32(f.pending, uint32(length))
	f.pending = binary.LittleEndian.AppendUint32(f.pending, uint32(length))
	f.pending = append(f.pending, frame[:length]...)
}

func (f *flood) Read(p []byte) (int, error) {
	for len(f.pending) == 0 {
		if f.left == 0 {
			return 0, io.EOF
		}
		for range min(f.left, 100) {
			f.left--
			f.n++
			c, at := int(f.n%10), int64(f.n)*10_000+7
			if f.n%100_000 != 0 {
				f.packet(false, at, c, f.in[c], f.n, 0)
			}
			if f.n%1000 == 3 {
				f.packet(false, at+1000, c, f.in[c], f.n, 0)
			}
			f.in[c] += floodSize
			if f.n%1000 != 7 {
				f.packet(true, at+7000, c, f.out[c], f.n, 0)
				f.out[c] += floodSize
			}
		}
	}
	n := copy(p, f.pending)
	if f.pending = f.pending[n:]; len(f.pending) == 0 {
		f.pending = nil
	}
	return n, nil
}

// large is what a flood of n messages gives.
func large(t testing.TB, n int) Result {
	t.Helper()
	o := ofOrders()
	o.Request.Size, o.Answer.Size = floodSize, floodSize
	r, err := Analyze(t.Context(), []File{{"flood", newFlood(n)}}, o, func(ns int64) {
		if ns != 7000 {
			t.Errorf("a latency of %d ns", ns)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	k, holes := int64(n), int64(n/100_000)
	lost := int64((n + 993) / 1000)
	if r.Lost != lost || r.Unmatched != holes || r.Matched != k-lost-holes || r.Retransmitted != int64((n+997)/1000) || r.Gaps != int64((n-1)/100_000) {
		t.Errorf("%d messages: %+v", n, r)
	}
	return r
}

// TestLarge: 200,000 messages, with losses, segments sent again, and segments that were not captured.
func TestLarge(t *testing.T) { large(t, 200_000) }

// BenchmarkLarge is of a message: `-benchtime 19000000x` reads a capture of 10 GB. It reports the peak of the memory in MiB.
func BenchmarkLarge(b *testing.B) {
	b.SetBytes(2*(16+54+floodSize) - 0)
	large(b, b.N)
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(used.Maxrss>>10), "peak-MiB")
}
