package pinger

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// check returns an error if the document is not a consistent result of the cell.
func (d document) check(c tool.Cell) error {
	if d.Tool != program || len(d.Cells) != 1 {
		return fmt.Errorf("it is of %q and has %d cells", d.Tool, len(d.Cells))
	}
	m := d.Cells[0]
	loop := "closed"
	if c.OpenLoop() {
		loop = "open"
	}
	if m.Protocol != strings.ToLower(string(c.Protocol)) || m.Size != c.MessageSize ||
		m.Loop != loop || m.RatePerS != float64(c.RatePerSecond) ||
		m.DurationNs != int64(c.Duration) || m.WarmupNs != int64(c.Warmup) {
		return fmt.Errorf("it is of %s messages of %d bytes in a %s loop at %g a second, for %d ns after %d ns",
			m.Protocol, m.Size, m.Loop, m.RatePerS, m.DurationNs, m.WarmupNs)
	}
	if m.Spin != c.Spins() || m.Client.Spin != c.Spins() || m.Server.Spin != c.Spins() {
		return fmt.Errorf("the client polled: %t, the server: %t", m.Client.Spin, m.Server.Spin)
	}
	for _, n := range []int64{m.Received, m.Lost, m.Late, m.Duplicates, m.Reordered, m.Strays} {
		if n < 0 {
			return fmt.Errorf("it counts %d messages", n)
		}
	}
	if m.Received > math.MaxInt64-m.Lost || m.Sent != m.Received+m.Lost {
		return fmt.Errorf("of %d messages %d were answered and %d lost", m.Sent, m.Received, m.Lost)
	}
	if err := m.RTT.check(); err != nil {
		return fmt.Errorf("round trips: %w", err)
	}
	if m.RTT.Count+m.RTT.OverRange != m.Received {
		return fmt.Errorf("%d messages were answered, but %d measured", m.Received, m.RTT.Count+m.RTT.OverRange)
	}
	if (m.Intended != nil) != c.OpenLoop() {
		return fmt.Errorf("round trips from the intended time: %t", m.Intended != nil)
	}
	if h := m.Intended; h != nil {
		if err := h.check(); err != nil {
			return fmt.Errorf("round trips from the intended time: %w", err)
		}
		if h.Count+h.OverRange != m.Received {
			return fmt.Errorf("%d messages were answered, but %d measured from the intended time",
				m.Received, h.Count+h.OverRange)
		}
	}
	if err := m.checkCourse(); err != nil {
		return err
	}
	for _, word := range []string{m.Client.Accelerated, m.Server.Accelerated} {
		if _, ok := accelerations[word]; !ok {
			return fmt.Errorf("a socket is accelerated: %q", word)
		}
	}
	if err := m.Attribution.check(m.Received); err != nil {
		return err
	}
	return m.checkSlowest()
}

// checkCourse returns an error if the intervals do not cover the measurement and all its messages.
func (m cell) checkCourse() error {
	n, length := int64(len(m.Intervals.Log)), m.Intervals.LengthNs
	if n < 1 || n > mostIntervals || length < 1 || n-1 >= math.MaxInt64/length {
		return fmt.Errorf("%d intervals of %d ns are not its course", n, length)
	}
	if last := m.DurationNs - (n-1)*length; last < 1 || last > length {
		return fmt.Errorf("%d intervals of %d ns are not the course of %d ns", n, length, m.DurationNs)
	}
	answered, lost := m.Received, m.Lost
	for i, in := range m.Intervals.Log {
		for _, v := range in {
			if v < 0 {
				return fmt.Errorf("interval %d has a %d", i, v)
			}
		}
		if in[1] > in[2] || in[2] > in[3] || in[3] > in[4] || (in[0] == 0 && in[4] > 0) {
			return fmt.Errorf("the percentiles of interval %d descend: %d", i, in)
		}
		if in[0] > answered || in[5] > lost {
			return fmt.Errorf("the intervals have more than %d answered and %d lost messages", m.Received, m.Lost)
		}
		answered, lost = answered-in[0], lost-in[5]
	}
	if answered != 0 || lost != 0 {
		return fmt.Errorf("the intervals lack %d answered and %d lost messages", answered, lost)
	}
	return nil
}

// check returns an error if the parts do not add up to the total.
func (a attribution) check(received int64) error {
	left := a.Examined
	for _, part := range []int64{a.Client, a.Server, a.Both, a.Neither, a.Undetermined} {
		if part < 0 || part > left {
			return fmt.Errorf("the slowest samples are divided into %+v", a)
		}
		left -= part
	}
	if left != 0 || a.Examined > a.Beyond || a.Beyond > received {
		return fmt.Errorf("the slowest samples are divided into %+v", a)
	}
	return nil
}

// checkSlowest returns an error unless slow samples fit sums, intervals, and each other.
func (m cell) checkSlowest() error {
	a, largest := m.Attribution, m.RTT.MaxNs
	if m.Intended != nil {
		largest = m.Intended.MaxNs
	}
	n := len(a.Slowest)
	if n > mostSlowest || (n == 0) != (a.Examined == 0) {
		return fmt.Errorf("of %d slow samples %d are listed", a.Examined, n)
	}
	if a.P50Ns < 0 || a.P50Ns > a.ThresholdNs {
		return fmt.Errorf("the slowest samples are beyond %d ns, and the median is %d ns", a.ThresholdNs, a.P50Ns)
	}
	left := map[tool.Where]int64{
		tool.WhereClient: a.Client, tool.WhereServer: a.Server, tool.WhereBoth: a.Both, tool.WhereNeither: a.Neither,
		tool.WhereUndetermined: a.Undetermined,
	}
	told := int64(0)
	for i, o := range a.Slowest {
		if i == 0 && o.RTTNs != largest {
			return fmt.Errorf("the slowest sample took %d ns, and the largest %d ns", o.RTTNs, largest)
		}
		if o.AtNs < 0 || o.AtNs >= m.DurationNs || o.RTTNs <= a.ThresholdNs || i > 0 && o.RTTNs > a.Slowest[i-1].RTTNs {
			return fmt.Errorf("slow sample %d, of %d ns at %d ns, has no place", i, o.RTTNs, o.AtNs)
		}
		if in := m.Intervals.Log[o.AtNs/m.Intervals.LengthNs]; o.RTTNs > in[4] {
			return fmt.Errorf("slow sample %d took %d ns, and none at its time more than %d ns", i, o.RTTNs, in[4])
		}
		if !explained(o, a.P50Ns) {
			return fmt.Errorf("slow sample %d, of %d ns, is not of %q by its gaps", i, o.RTTNs, o.Where)
		}
		if o.Samples < 1 || o.Samples > left[o.Where] {
			return fmt.Errorf("slow sample %d stands for %d of %q, of which %d are left", i, o.Samples, o.Where, left[o.Where])
		}
		left[o.Where] -= o.Samples
		told += o.Samples
		for k, other := range a.Slowest[:i] {
			if o.Where == other.Where && o.AtNs-other.AtNs < other.RTTNs && other.AtNs-o.AtNs < o.RTTNs {
				return fmt.Errorf("slow sample %d stands for sample %d, which is also listed", k, i)
			}
		}
	}
	if n < mostSlowest && told != a.Examined {
		return fmt.Errorf("%d slow samples stand for %d of %d", n, told, a.Examined)
	}
	return nil
}

// explained reports whether the gaps, as far as they are known, agree with the place to which an outlier is attributed:
// the threshold is half of its excess over the median.
func explained(o tool.Outlier, p50 int64) bool {
	var there int64
	if o.ServerGapNs != nil {
		there = *o.ServerGapNs
	}
	if o.ClientGapNs < 0 || there < 0 {
		return false
	}
	excess := o.RTTNs - p50
	half, here := excess-excess/2, min(o.ClientGapNs, excess)
	there = min(there, excess)
	switch {
	case here >= half && here >= there:
		return o.Where == tool.WhereClient
	case there >= half:
		return o.Where == tool.WhereServer
	case here+there >= half:
		return o.Where == tool.WhereBoth
	case o.ServerGapNs == nil && o.Where == tool.WhereUndetermined:
		return true
	}
	return o.Where == tool.WhereNeither
}

// width returns a bucket's width by its lower edge: 1024 buckets a power of two from 2048 on.
func width(low int64) int64 { return 1 << max(bits.Len64(uint64(low))-11, 0) }

// check returns an error if the numbers beside the buckets cannot be true.
func (h histogram) check() error {
	if h.Count < 0 || h.OverRange < 0 || h.Count > math.MaxInt64-h.OverRange || h.Count+h.OverRange == 0 {
		return fmt.Errorf("there are %d in range and %d out of range", h.Count, h.OverRange)
	}
	if h.MinNs < 0 || h.MinNs > h.MaxNs || (h.OverRange == 0) != (h.MinNs >= 1 && h.MaxNs <= highest) {
		return fmt.Errorf("%d are out of range, but they are %d to %d ns", h.OverRange, h.MinNs, h.MaxNs)
	}
	if h.OverRange == 1 && h.MinNs != h.MaxNs && (h.Count == 0 || h.MinNs < 1 && h.MaxNs > highest) {
		return fmt.Errorf("one sample out of range is %d and %d ns", h.MinNs, h.MaxNs)
	}
	var count, next int64 = 0, 1
	var buckets []stats.Bucket
	for _, b := range h.Buckets {
		low, n := b[0], b[1]
		if low < next || low > highest || low%width(low) != 0 || n < 1 || n > h.Count-count {
			return fmt.Errorf("a bucket at %d ns with %d samples has no place", low, n)
		}
		count += n
		next = low + width(low)
		buckets = append(buckets, stats.Bucket{Low: low, High: next - 1, Count: n})
	}
	if count != h.Count {
		return fmt.Errorf("the buckets hold %d of %d", count, h.Count)
	}
	if count == 0 {
		if h.SumNs != 0 || h.SumSquaresNs2 != 0 {
			return fmt.Errorf("none is in range, but their sum is %d ns", h.SumNs)
		}
		return nil
	}
	if err := stats.Plausible(buckets, h.MinNs, h.MaxNs, 1, highest, h.SumNs, h.SumSquaresNs2); err != nil {
		return err
	}
	if h.Count == 1 && h.OverRange == 0 && h.MinNs != h.MaxNs {
		return fmt.Errorf("one sample is %d and %d ns", h.MinNs, h.MaxNs)
	}
	return nil
}
