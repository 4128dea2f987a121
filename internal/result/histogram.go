package result

import (
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strings"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Histograms have buckets of at most 0.1 %, and 1 ns below 2.048 µs; reduced ones of at most 1 %,
// and 1 ns below 256 ns, each of whole finer buckets.
const (
	lowest      = 1
	highest     = 60_000_000_000
	digits      = 3
	fewerDigits = 2
)

// Histogram is a distribution in transit and storage, with exact extremes and sums.
type Histogram struct {
	// Encoded is an HdrHistogram V2 in base64: 1 ns to 60 s, three digits, two after Fit.
	Encoded string `json:"encoded"`
	// Count is that of samples in buckets, OverRange of those in none.
	Count     int64 `json:"count"`
	OverRange int64 `json:"overRange"`
	// Unrecorded is the number of further messages whose latency is unknown: see tool.Measurement.
	Unrecorded int64 `json:"unrecorded,omitempty"`
	// MinNs and MaxNs are the exact extremes, also out of range; 0 without samples.
	MinNs int64 `json:"minNs"`
	MaxNs int64 `json:"maxNs"`
	// SumNs and SumOfSquaresNs2 are of samples in buckets, up to rounding.
	SumNs           int64   `json:"sumNs"`
	SumOfSquaresNs2 float64 `json:"sumOfSquaresNs2"`
}

// Recorder collects samples. It does not allocate after its creation.
type Recorder struct {
	buckets *hdr.Histogram
	sum     Histogram // everything but the encoded buckets and their count
}

func NewRecorder() *Recorder {
	return &Recorder{buckets: hdr.New(lowest, highest, digits), sum: Histogram{MinNs: math.MaxInt64, MaxNs: math.MinInt64}}
}

// Record adds a sample in ns. One that is not in 1 ns to 60 s is out of range.
func (r *Recorder) Record(ns int64) { r.RecordN(ns, 1) }

func (r *Recorder) RecordN(ns, count int64) {
	h := &r.sum
	h.MinNs, h.MaxNs = min(h.MinNs, ns), max(h.MaxNs, ns)
	if ns < lowest || ns > highest || r.buckets.RecordValues(ns, count) != nil {
		h.OverRange += count
		return
	}
	h.SumNs += ns * count
	h.SumOfSquaresNs2 += float64(ns) * float64(ns) * float64(count)
}

// SetSums sets exact sums of the samples in range, if a value stands for a bucket's samples.
func (r *Recorder) SetSums(sum int64, squares float64) {
	r.sum.SumNs, r.sum.SumOfSquaresNs2 = sum, squares
}

func (r *Recorder) Histogram() (Histogram, error) {
	encoded, err := r.buckets.Encode(hdr.V2CompressedEncodingCookieBase)
	if err != nil {
		return Histogram{}, fmt.Errorf("encoding a histogram: %w", err)
	}
	h := r.sum
	h.Encoded, h.Count = string(encoded), r.buckets.TotalCount()
	if h.Count+h.OverRange == 0 {
		h.MinNs, h.MaxNs = 0, 0
	}
	return h, nil
}

// Each calls do with the lowest value of each bucket, ascending, and its number of samples.
func (r *Recorder) Each(do func(ns, count int64)) {
	for _, b := range r.buckets.Distribution() {
		if b.Count > 0 {
			do(b.From, b.Count)
		}
	}
}

// Distribution combines one or more histograms.
type Distribution struct {
	Buckets          []stats.Bucket // ascending; first and last narrowed to the exact extremes
	Count, OverRange int64          // samples in buckets, and in none
	Unrecorded       int64          // messages whose latency is unknown: see tool.Measurement
	Min, Max         int64          // the exact extremes in ns, of samples out of range, too
	Sum              int64          // in ns, and SumOfSquares in ns²: of the samples in the buckets
	SumOfSquares     float64
}

// Mean and StdDev are of the samples in the buckets, in nanoseconds.
func (d Distribution) Mean() int64 { return stats.Mean(d.Sum, d.Count) }

func (d Distribution) StdDev() int64 { return stats.StdDev(d.Sum, d.SumOfSquares, d.Count) }

// Percentile is of samples, lost and unrecorded messages, in ns; out of range is lost.
func (d Distribution) Percentile(p stats.Percentile, lost int64) stats.Reported {
	r := stats.Report(d.Buckets, lost+d.OverRange, d.Unrecorded, p)
	if r.Needs == 0 && !r.Lost {
		r.Ns = min(max(r.Ns, d.Min), d.Max)
	}
	return r
}

// RecordEncoded adds an encoded HdrHistogram of another program, each sample times factor. It
// refuses buckets that are not a recorder's, and values out of range.
func RecordEncoded(r *Recorder, encoded string, factor int64) error {
	if strings.HasPrefix(encoded, "DHIST") {
		return fmt.Errorf("its histogram is a DoubleHistogram: record integers, nanoseconds from 1 with %d significant digits", digits)
	}
	header, err := readHeader(encoded)
	switch {
	case err != nil:
		return err
	case header.Figures == fewerDigits:
		return fmt.Errorf("its histogram has %d digits, and not %d significant digits: record with these; of an export, whose histograms are reduced if there are many, "+
			"name the directory to get, compare and report", fewerDigits, digits)
	case header.Least != lowest || header.Figures != digits || len(encoded) > maxEncoded:
		return fmt.Errorf("its histogram is of %d to %d with %d digits: record nanoseconds from 1 with %d significant digits",
			header.Least, header.Most, header.Figures, digits)
	case header.Most > 1<<50:
		return fmt.Errorf("its histogram's highest trackable value is %d, and it can be at most %d: create it for less, such as an hour, 3600000000000 ns", header.Most, int64(1<<50))
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) < 8 || int64(binary.BigEndian.Uint32(raw[4:8])) != int64(len(raw)-8) {
		return fmt.Errorf("reading its histogram: its text is cut, or another line is in it")
	}
	decoded, err := hdr.DecodePacked([]byte(encoded))
	if err != nil {
		return fmt.Errorf("reading its histogram: %w", err)
	}
	for ns, count := range decoded.ForEachBucket {
		if count > (math.MaxInt64-r.sum.SumNs)/max(ns*factor, 1) || count > math.MaxInt64-r.sum.OverRange {
			return fmt.Errorf("its histogram has %d samples, which is more than can be added", decoded.TotalCount())
		}
		if ns < lowest || ns > highest/factor {
			return fmt.Errorf("its histogram has %d values of %d, and nanoseconds from %d to %d can be imported", count, ns, lowest, highest/factor)
		}
		r.RecordN(ns*factor, count)
	}
	return nil
}

// UpTo counts the samples up to the bucket that contains a latency, in ns.
func (d Distribution) UpTo(ns int64) int64 {
	var n int64
	for _, b := range d.Buckets {
		if b.Low <= ns {
			n += b.Count
		}
	}
	return n
}

// Merger combines histograms one by one. It keeps only the buckets that hold samples.
type Merger struct {
	all *hdr.PackedHistogram
	sum Distribution
}

func NewMerger() *Merger {
	return &Merger{
		all: hdr.NewPacked(lowest, highest, digits),
		sum: Distribution{Min: math.MaxInt64, Max: math.MinInt64},
	}
}

// Add decodes and adds a histogram, and returns it as a distribution. The error wraps ErrCorrupt.
func (m *Merger) Add(h Histogram) (Distribution, error) {
	decoded, err := h.decode()
	if err != nil {
		return Distribution{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	alone := Merger{all: decoded, sum: Distribution{
		OverRange: h.OverRange, Unrecorded: h.Unrecorded, Min: h.MinNs, Max: h.MaxNs, Sum: h.SumNs, SumOfSquares: h.SumOfSquaresNs2,
	}}
	if decoded.SignificantFigures() < m.all.SignificantFigures() {
		finer := m.all
		m.all = hdr.NewPacked(lowest, highest, fewerDigits)
		m.all.Merge(finer)
	}
	d := &m.sum
	d.Unrecorded += h.Unrecorded
	if h.Count+h.OverRange == 0 {
		return alone.Distribution(), nil
	}
	if m.all.Merge(decoded) > 0 || d.OverRange > math.MaxInt64-h.OverRange || d.Sum > math.MaxInt64-h.SumNs {
		return Distribution{}, fmt.Errorf("%w: with the histograms before it there are more samples than can be counted", ErrCorrupt)
	}
	d.OverRange += h.OverRange
	d.Sum += h.SumNs
	d.SumOfSquares += h.SumOfSquaresNs2
	d.Min, d.Max = min(d.Min, h.MinNs), max(d.Max, h.MaxNs)
	m.all.Compact()
	return alone.Distribution(), nil
}

func (m *Merger) Distribution() Distribution {
	d := m.sum
	d.Count = m.all.TotalCount()
	if d.Count+d.OverRange == 0 {
		d.Min, d.Max = 0, 0
	}
	d.Buckets = bucketsOf(m.all)
	if n := len(d.Buckets); n > 0 {
		d.Buckets[0].Low = max(d.Buckets[0].Low, d.Min)
		d.Buckets[n-1].High = min(d.Buckets[n-1].High, d.Max)
	}
	return d
}

// bucketsOf lists buckets with samples: 1 ns wide below 2^precision, doubling with each power.
func bucketsOf(h *hdr.PackedHistogram) []stats.Bucket {
	precision := 11
	if h.SignificantFigures() == fewerDigits {
		precision = 8
	}
	out := slices.Grow([]stats.Bucket(nil), int(h.Populated()))
	for low, count := range h.ForEachBucket {
		width := int64(1) << max(0, bits.Len64(uint64(low))-precision)
		out = append(out, stats.Bucket{Low: low, High: low + width - 1, Count: count})
	}
	return out
}

const maxEncoded = 340 << 10 // bytes: 27,648 buckets of 9 bytes, in base64

func (h Histogram) decode() (*hdr.PackedHistogram, error) {
	if len(h.Encoded) > maxEncoded {
		return nil, fmt.Errorf("its text has %d KiB, and %d KiB are possible", len(h.Encoded)>>10, maxEncoded>>10)
	}
	header, err := readHeader(h.Encoded)
	if err != nil {
		return nil, err
	}
	// The range and the resolution bound the library's memory.
	if header.Least != lowest || header.Most != highest || header.Figures != digits && header.Figures != fewerDigits {
		return nil, fmt.Errorf("it is of %d to %d with %d digits, not of %d to %d with %d or %d",
			header.Least, header.Most, header.Figures, lowest, int64(highest), digits, fewerDigits)
	}
	decoded, err := hdr.DecodePacked([]byte(h.Encoded))
	if err != nil {
		return nil, err
	}
	if decoded.TotalCount() != h.Count {
		return nil, fmt.Errorf("the buckets hold %d samples, not %d", decoded.TotalCount(), h.Count)
	}
	if h.OverRange < 0 || h.OverRange > 1<<50 {
		return nil, fmt.Errorf("%d samples out of range", h.OverRange)
	}
	if h.Unrecorded < 0 || h.Unrecorded > 1<<50 {
		return nil, fmt.Errorf("%d messages of an unknown latency", h.Unrecorded)
	}
	if err := h.checkExtremes(bucketsOf(decoded)); err != nil {
		return nil, err
	}
	return decoded, nil
}

type header struct {
	Cookie, Length, Offset, Figures int32
	Least, Most                     int64
}

func readHeader(encoded string) (h header, err error) {
	compressed := base64.NewDecoder(base64.StdEncoding, strings.NewReader(encoded))
	if _, err := io.CopyN(io.Discard, compressed, 8); err != nil {
		return h, fmt.Errorf("reading its header: %w", err)
	}
	z, err := zlib.NewReader(compressed)
	if err == nil {
		err = binary.Read(z, binary.BigEndian, &h)
	}
	if err != nil {
		return h, fmt.Errorf("reading its header: %w", err)
	}
	return h, nil
}

// coarse returns the histogram with fewer digits. The other fields do not change.
func (h Histogram) coarse() (Histogram, error) {
	fine, err := h.decode()
	if err != nil {
		return Histogram{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	fewer := hdr.NewPacked(lowest, highest, fewerDigits)
	if dropped := fewer.Merge(fine); dropped > 0 {
		return Histogram{}, fmt.Errorf("%w: %d samples are in no bucket", ErrCorrupt, dropped)
	}
	encoded, err := fewer.Encode()
	if err != nil {
		return Histogram{}, fmt.Errorf("encoding a histogram: %w", err)
	}
	h.Encoded = string(encoded)
	return h, nil
}

func (h Histogram) checkExtremes(buckets []stats.Bucket) error {
	outside := h.MinNs < lowest || h.MaxNs > highest
	switch {
	case h.Count+h.OverRange == 0:
		if h.MinNs != 0 || h.MaxNs != 0 || h.SumNs != 0 || h.SumOfSquaresNs2 != 0 {
			return fmt.Errorf("it has no samples, but %d to %d ns", h.MinNs, h.MaxNs)
		}
		return nil
	case h.MinNs > h.MaxNs:
		return fmt.Errorf("the smallest sample is %d ns and the largest %d ns", h.MinNs, h.MaxNs)
	case outside != (h.OverRange > 0):
		return fmt.Errorf("%d samples are out of range, with %d to %d ns", h.OverRange, h.MinNs, h.MaxNs)
	case h.Count == 0:
		return nil
	}
	return stats.Plausible(buckets, h.MinNs, h.MaxNs, lowest, highest, h.SumNs, h.SumOfSquaresNs2)
}
