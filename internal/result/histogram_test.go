package result

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/stats"
)

func recorded(t testing.TB, samples ...int64) Histogram {
	t.Helper()
	r := NewRecorder()
	for _, s := range samples {
		r.Record(s)
	}
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// skewed returns samples that resemble latencies: a narrow body and a long tail.
func skewed(seed uint64, n int) []int64 {
	random := rand.New(rand.NewPCG(seed, 7))
	out := make([]int64, n)
	for i := range out {
		out[i] = 6_000 + int64(math.Exp(random.NormFloat64()*1.5+5))
	}
	return out
}

func TestMerge(t *testing.T) {
	cases := map[string]struct {
		of   [][]int64
		want Distribution
	}{
		"nothing": {nil, Distribution{}},
		"an empty histogram adds nothing": {[][]int64{{}, {5}},
			Distribution{Buckets: []stats.Bucket{{Low: 5, High: 5, Count: 1}}, Count: 1, Min: 5, Max: 5, Sum: 5, SumOfSquares: 25}},
		"buckets add up": {[][]int64{{1, 2}, {2, 3}},
			Distribution{Buckets: []stats.Bucket{{Low: 1, High: 1, Count: 1}, {Low: 2, High: 2, Count: 2}, {Low: 3, High: 3, Count: 1}},
				Count: 4, Min: 1, Max: 3, Sum: 8, SumOfSquares: 18}},
		// The library reports 2494463 as the maximum here, which is the edge of its bucket.
		"the edges are drawn in to the exact extremes": {[][]int64{{4_097, 2_492_566}},
			Distribution{Buckets: []stats.Bucket{{Low: 4_097, High: 4_099, Count: 1}, {Low: 2_492_416, High: 2_492_566, Count: 1}},
				Count: 2, Min: 4_097, Max: 2_492_566, Sum: 2_496_663, SumOfSquares: 4_097*4_097 + 2_492_566*2_492_566}},
		"both edges of one bucket": {[][]int64{{4_097, 4_098}},
			Distribution{Buckets: []stats.Bucket{{Low: 4_097, High: 4_098, Count: 2}}, Count: 2, Min: 4_097, Max: 4_098, Sum: 8_195, SumOfSquares: 4_097*4_097 + 4_098*4_098}},
		"samples out of range are counted and leave their extremes": {[][]int64{{-4, 7}, {60_000_000_001}},
			Distribution{Buckets: []stats.Bucket{{Low: 7, High: 7, Count: 1}}, Count: 1, OverRange: 2, Min: -4, Max: 60_000_000_001, Sum: 7, SumOfSquares: 49}},
		"the ends of the range are in it": {[][]int64{{1, 60_000_000_000}},
			Distribution{Buckets: []stats.Bucket{{Low: 1, High: 1, Count: 1}, {Low: 59_995_324_416, High: 60_000_000_000, Count: 1}},
				Count: 2, Min: 1, Max: 60_000_000_000, Sum: 60_000_000_001, SumOfSquares: 1 + 6e10*6e10}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var hs []Histogram
			for _, samples := range c.of {
				hs = append(hs, recorded(t, samples...))
			}
			got, err := Merge(hs...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestMergeAgainstSorting compares quantiles of merged rounds with the quantiles of all their samples, sorted.
func TestMergeAgainstSorting(t *testing.T) {
	var hs []Histogram
	var all []int64
	for round := range uint64(5) {
		samples := skewed(round, 40_000)
		all = append(all, samples...)
		hs = append(hs, recorded(t, samples...))
	}
	slices.Sort(all)
	d, err := Merge(hs...)
	if err != nil {
		t.Fatal(err)
	}
	if d.Min != all[0] || d.Max != all[len(all)-1] || d.Count != int64(len(all)) || stats.Count(d.Buckets) != d.Count {
		t.Errorf("%d samples of %d to %d, want %d of %d to %d", d.Count, d.Min, d.Max, len(all), all[0], all[len(all)-1])
	}
	for _, p := range stats.Ladder() {
		rank := int(math.Ceil(float64(len(all))*float64(p.Num)/float64(p.Den) - 1e-9))
		exact := all[rank-1]
		if got := stats.Quantile(d.Buckets, p); got < exact || got > d.Max || float64(got-exact) > float64(exact)/1000 {
			t.Errorf("%s: got %d, exactly %d", p.Name, got, exact)
		}
	}
	var mean, squares float64
	for _, v := range all {
		mean += float64(v) / float64(len(all))
	}
	for _, v := range all {
		squares += (float64(v) - mean) * (float64(v) - mean)
	}
	if got := d.Mean(); math.Abs(float64(got)-mean) > 1 {
		t.Errorf("mean: got %d, exactly %f", got, mean)
	}
	if got, want := d.StdDev(), math.Sqrt(squares/float64(len(all)-1)); math.Abs(float64(got)-want) > 1 {
		t.Errorf("standard deviation: got %d, exactly %f", got, want)
	}
}

func TestMergeRefuses(t *testing.T) {
	good := recorded(t, 10, 20, 5_000)
	cases := map[string]func(*Histogram){
		"no buckets":                                func(h *Histogram) { h.Encoded = "" },
		"invalid base64":                            func(h *Histogram) { h.Encoded = "!" + h.Encoded },
		"half of the buckets":                       func(h *Histogram) { h.Encoded = h.Encoded[:len(h.Encoded)/2] },
		"a flipped character":                       func(h *Histogram) { h.Encoded = h.Encoded[:30] + "0" + h.Encoded[31:] },
		"another number of samples":                 func(h *Histogram) { h.Count++ },
		"a negative number of samples":              func(h *Histogram) { h.Count = -3 },
		"a negative number out of range":            func(h *Histogram) { h.OverRange = -1 },
		"more samples than can be counted":          func(h *Histogram) { h.OverRange = math.MaxInt64 },
		"samples out of range without an extreme":   func(h *Histogram) { h.OverRange = 1 },
		"an extreme without samples out of range":   func(h *Histogram) { h.MaxNs = highest + 1 },
		"a minimum below its bucket":                func(h *Histogram) { h.MinNs = 9 },
		"a minimum above its bucket":                func(h *Histogram) { h.MinNs = 11 },
		"a maximum below its bucket":                func(h *Histogram) { h.MaxNs = 4_999 },
		"a maximum above its bucket":                func(h *Histogram) { h.MaxNs = 5_004 },
		"extremes in the wrong order":               func(h *Histogram) { h.MinNs, h.MaxNs = h.MaxNs, h.MinNs },
		"a sum that these buckets cannot have":      func(h *Histogram) { h.SumNs = 1 },
		"a negative sum":                            func(h *Histogram) { h.SumNs = -h.SumNs },
		"a sum of squares that is not a number":     func(h *Histogram) { h.SumOfSquaresNs2 = math.NaN() },
		"another geometry":                          func(h *Histogram) { h.Encoded = otherGeometry },
		"one digit":                                 func(h *Histogram) { h.Encoded = oneDigit },
		"buckets of another, empty histogram":       func(h *Histogram) { h.Encoded = recorded(t).Encoded },
		"an extreme where there are no samples":     func(h *Histogram) { *h = recorded(t); h.MaxNs = 1 },
		"only out of range, with extremes in range": func(h *Histogram) { *h = recorded(t, -1); h.MinNs = 5 },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			h := good
			spoil(&h)
			if d, err := Merge(good, h); !errors.Is(err, ErrCorrupt) {
				t.Errorf("merged to %+v with error %v", d, err)
			}
		})
	}
}

// otherGeometry is an empty histogram of 1 to 100 with two digits. The header is cookie, length, normalizing
// offset, digits, lowest, highest, ratio.
var otherGeometry = func() string {
	var plain, out bytes.Buffer
	for _, v := range []any{int32(0x1c849313), int32(1), int32(0), int32(2), int64(1), int64(100), float64(1), byte(0)} {
		binary.Write(&plain, binary.BigEndian, v)
	}
	var compressed bytes.Buffer
	z := zlib.NewWriter(&compressed)
	z.Write(plain.Bytes())
	z.Close()
	binary.Write(&out, binary.BigEndian, int32(0x1c849314))
	binary.Write(&out, binary.BigEndian, int32(compressed.Len()))
	out.Write(compressed.Bytes())
	return base64.StdEncoding.EncodeToString(out.Bytes())
}()

// oneDigit contains the samples of TestMergeRefuses with one significant digit.
var oneDigit = func() string {
	h := hdr.New(lowest, highest, 1)
	for _, ns := range []int64{10, 20, 5_000} {
		h.RecordValue(ns)
	}
	encoded, _ := h.Encode(hdr.V2CompressedEncodingCookieBase)
	return string(encoded)
}()

// TestForeignDecoder reads a stored histogram with a decoder that is independent of the library that wrote it and compares the
// percentiles.
func TestForeignDecoder(t *testing.T) {
	samples := append(skewed(42, 100_000), 1, 2_047, 2_048, 59_999_999_999)
	h := recorded(t, samples...)
	foreign := decodeV2(t, h.Encoded)
	if got := stats.Count(foreign); got != h.Count {
		t.Fatalf("the foreign decoder finds %d samples of %d", got, h.Count)
	}
	d, err := Merge(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range stats.Ladder() {
		want := min(stats.Quantile(foreign, p), d.Max)
		if got := stats.Quantile(d.Buckets, p); got != want {
			t.Errorf("%s: %d here, %d by the foreign decoder", p.Name, got, want)
		}
	}
}

// decodeV2 implements the format's specification: base64 of a cookie, a length and a zlib stream with a header of 40 bytes and
// ZigZag LEB128 numbers. A negative number is a run of zeros.
func decodeV2(t *testing.T, encoded string) []stats.Bucket {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if cookie := binary.BigEndian.Uint32(raw); cookie != 0x1c849314 {
		t.Fatalf("outer cookie %#x", cookie)
	}
	z, err := zlib.NewReader(bytes.NewReader(raw[8 : 8+binary.BigEndian.Uint32(raw[4:])]))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if cookie, length := binary.BigEndian.Uint32(plain), binary.BigEndian.Uint32(plain[4:]); cookie != 0x1c849313 || int(length) != len(plain)-40 {
		t.Fatalf("inner cookie %#x, %d bytes of %d", cookie, length, len(plain)-40)
	}
	if digits, low := binary.BigEndian.Uint32(plain[12:]), binary.BigEndian.Uint64(plain[16:]); digits != 3 || low != 1 {
		t.Fatalf("%d digits from %d", digits, low)
	}

	var out []stats.Bucket
	index := int64(0)
	for payload := plain[40:]; len(payload) > 0; {
		var u uint64
		n := 0
		for shift := 0; ; shift += 7 {
			b := payload[n]
			n++
			if n == 9 {
				u |= uint64(b) << shift
				break
			}
			u |= uint64(b&0x7f) << shift
			if b < 0x80 {
				break
			}
		}
		payload = payload[n:]
		v := int64(u>>1) ^ -int64(u&1)
		if v < 0 {
			index += -v
			continue
		}
		if v > 0 {
			// 2048 sub-buckets of 1 ns, then 1024 sub-buckets of twice the width each.
			low, width := index, int64(1)
			if index >= 2048 {
				octave := (index - 1024) / 1024
				width = 1 << octave
				low = (index - octave*1024) * width
			}
			out = append(out, stats.Bucket{Low: low, High: low + width - 1, Count: v})
		}
		index++
	}
	return out
}

func TestHistogramIsJSON(t *testing.T) {
	want := recorded(t, skewed(3, 1000)...)
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Histogram
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	r := NewRecorder()
	if n := testing.AllocsPerRun(1000, func() { r.Record(12_345) }); n != 0 {
		t.Errorf("%v allocations for a sample", n)
	}
}

func FuzzMerge(f *testing.F) {
	coarse, err := recorded(f, skewed(2, 50)...).coarse()
	if err != nil {
		f.Fatal(err)
	}
	seeds := []Histogram{recorded(f), recorded(f, 1), recorded(f, skewed(1, 50)...), recorded(f, -1, 5, 70_000_000_000), coarse, {Encoded: otherGeometry}}
	for _, h := range seeds {
		f.Add(h.Encoded, h.Count, h.OverRange, h.MinNs, h.MaxNs, h.SumNs, h.SumOfSquaresNs2)
	}
	f.Fuzz(func(t *testing.T, encoded string, count, overRange, least, most, sum int64, squares float64) {
		h := Histogram{Encoded: encoded, Count: count, OverRange: overRange, MinNs: least, MaxNs: most, SumNs: sum, SumOfSquaresNs2: squares}
		d, err := Merge(h, h)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("an error that is not ErrCorrupt: %v", err)
			}
			return
		}
		if d.Count != 2*h.Count || stats.Count(d.Buckets) != d.Count {
			t.Errorf("%d samples twice became %d, %d of them in buckets", h.Count, d.Count, stats.Count(d.Buckets))
		}
		for i, b := range d.Buckets {
			if b.Low > b.High || b.Count <= 0 || i > 0 && b.Low <= d.Buckets[i-1].High {
				t.Errorf("bucket %d of %v", i, d.Buckets)
			}
		}
		if q := stats.Quantile(d.Buckets, stats.P99); d.Count > 0 && (q < d.Min || q > d.Max) {
			t.Errorf("p99 of %d to %d is %d", d.Min, d.Max, q)
		}
	})
}

// BenchmarkMillionSamples measures the processing of a million samples after a tool's parser has read them: they are recorded
// one by one, encoded, and decoded again for the whole ladder of percentiles.
func BenchmarkMillionSamples(b *testing.B) {
	samples := skewed(1, 1_000_000)
	for b.Loop() {
		r := NewRecorder()
		for _, s := range samples {
			r.RecordN(s, 1)
		}
		h, err := r.Histogram()
		if err != nil {
			b.Fatal(err)
		}
		d, err := Merge(h)
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range stats.Ladder() {
			if d.Percentile(p, 0).Ns == 0 && d.Percentile(p, 0).Needs == 0 {
				b.Fatalf("no %s", p.Name)
			}
		}
	}
}

// Twelve hours at 50,000 messages a second, the longest duration: the counts stay exact, and the size of the histogram is that of
// its buckets.
func TestHistogramOfTwelveHours(t *testing.T) {
	const each, rounds = 12 * 3600 * 50_000 / 1_000, 3
	r := NewRecorder()
	for i := range int64(1_000) {
		r.RecordN(4_000+i*i, each)
	}
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	d, err := Merge(h, h, h)
	if err != nil || d.Count != rounds*each*1_000 || d.Min != 4_000 || d.UpTo(4_000) != 2*rounds*each || // 4,000 and 4,001 ns share a bucket.
		len(h.Encoded) > 8<<10 {
		t.Errorf("%d samples, %d up to the smallest, in %d bytes: %v", d.Count, d.UpTo(4_000), len(h.Encoded), err)
	}
	p999999, _ := stats.Named("p99.9999")
	if got := d.Percentile(p999999, 0); got.Needs != 0 || got.Ns < 1_000_000 {
		t.Errorf("p99.9999 is %+v", got)
	}
}
