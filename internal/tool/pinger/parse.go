package pinger

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// document is what is used of the tool's result. Times are in the unit of their names.
type document struct {
	Tool    string `json:"tool"`
	Version string `json:"version"`
	Scan    struct {
		Client scan `json:"client"`
		Server scan `json:"server"`
	} `json:"scan"`
	Cells []cell `json:"cells"`
	Clock struct {
		Source   string  `json:"source"`
		DriftPPM float64 `json:"drift_ppm"`
	} `json:"clock"`
}

type scan struct {
	DurationNs    int64     `json:"duration_ns"`
	ThresholdNs   int64     `json:"threshold_ns"`
	Interruptions histogram `json:"interruptions"`
}

type cell struct {
	Protocol   string  `json:"protocol"`
	Size       int32   `json:"size"`
	Loop       string  `json:"loop"`
	RatePerS   float64 `json:"rate_per_s"`
	Spin       bool    `json:"spin"`
	DurationNs int64   `json:"duration_ns"`
	WarmupNs   int64   `json:"warmup_ns"`
	Sent       int64   `json:"sent"`
	Received   int64   `json:"received"`
	Lost       int64   `json:"lost"`
	Late       int64   `json:"late"`
	Duplicates int64   `json:"duplicates"`
	Reordered  int64   `json:"reordered"`
	Strays     int64   `json:"strays"`
	// RTT is from when each message was sent; Intended, of an open loop, from when it should have
	// been sent, or up to 100 µs later when a sleeping client was woken late.
	RTT         histogram   `json:"rtt"`
	Intended    *histogram  `json:"rtt_from_intended"`
	Lateness    histogram   `json:"lateness"`
	Intervals   intervals   `json:"intervals"`
	Attribution attribution `json:"attribution"`
	Client      endpoint    `json:"client"`
	Server      endpoint    `json:"server"`
}

// histogram holds samples as ascending pairs of a bucket's lower edge and count.
type histogram struct {
	Count         int64      `json:"count"`
	OverRange     int64      `json:"over_range"`
	MinNs         int64      `json:"min_ns"`
	MaxNs         int64      `json:"max_ns"`
	SumNs         int64      `json:"sum_ns"`
	SumSquaresNs2 float64    `json:"sum_squares_ns2"`
	Buckets       [][2]int64 `json:"buckets"`
}

// intervals are the measurement's parts: samples, p50, p99, p99.9 and maximum in ns, and lost.
type intervals struct {
	LengthNs int64      `json:"length_ns"`
	Log      [][6]int64 `json:"log"`
}

// attribution states whose interruptions the samples beyond p99.9, the threshold, coincide with.
type attribution struct {
	P50Ns       int64 `json:"p50Ns"`
	ThresholdNs int64 `json:"thresholdNs"`
	tool.Attribution
}

// endpoint holds what the system counted at one end. Counters that could not be read are nil.
type endpoint struct {
	Accelerated         string `json:"accelerated"`
	Spin                bool   `json:"spin"`
	Moved               bool   `json:"moved"`
	VoluntarySwitches   *int64 `json:"voluntary_switches"`
	InvoluntarySwitches *int64 `json:"involuntary_switches"`
	RunQueueWaitNs      *int64 `json:"run_queue_wait_ns"`
	StealMs             *int64 `json:"steal_ms"`
	ThrottledPeriods    *int64 `json:"throttled_periods"`
	TCPRetransmits      *int64 `json:"tcp_retransmits"`
}

const (
	// highest is the largest sample that has a bucket, in ns.
	highest       = 60_000_000_000
	mostIntervals = 128
	mostSlowest   = 64
)

// accelerations maps the tool's words; "unknown" means that the socket reports nothing.
var accelerations = map[string]tool.Acceleration{
	"yes": tool.AccelerationYes, "no": tool.AccelerationNo, "absent": tool.AccelerationAbsent, "unknown": "",
}

// Parse reads the result. The tool's buckets have our resolution, and are recorded one to one.
func (driver) Parse(c tool.Cell, out tool.Output, record, actual func(rtt, count int64)) (tool.Measurement, error) {
	if out.ExitCode != 0 {
		return tool.Measurement{}, explain(out)
	}
	d, err := read(out.Stdout)
	if err == nil {
		err = d.check(c)
	}
	if err != nil {
		return tool.Measurement{}, tool.Failf("pinger's result cannot be used: %v", err)
	}
	m := d.Cells[0]
	measured := tool.Measurement{
		Version: d.Version, Lost: m.Lost, Attribution: &m.Attribution.Attribution, Intervals: m.course(),
		Accelerated: tool.Accelerated{
			Client: accelerations[m.Client.Accelerated], Server: accelerations[m.Server.Accelerated],
		},
		Figures: figures(d), Warnings: warnings(d),
	}
	// In a closed loop nothing is sent while a lost datagram is waited for.
	if !c.OpenLoop() && float64(m.Lost)*lossOf(c).Seconds() > c.Duration.Seconds()/100 {
		measured.Warnings = append(measured.Warnings, fmt.Sprintf(
			"pinger: each of %d lost datagrams cost %s of the %s, in which nothing was measured: workload.lossAfter shortens it", m.Lost, lossOf(c), c.Duration))
	}
	counted := m.RTT
	if m.Intended != nil {
		counted = *m.Intended
		m.RTT.record(actual)
		measured.Start, measured.ActualSums = tool.StartIntended, m.RTT.sums()
	}
	counted.record(record)
	measured.Sums = counted.sums()
	return measured, nil
}

func (h histogram) sums() *tool.Sums {
	return &tool.Sums{SumNs: h.SumNs, SumOfSquaresNs2: h.SumSquaresNs2}
}

// course returns the intervals; the last is cut off where the measurement ended.
func (m cell) course() []tool.Interval {
	var all []tool.Interval
	for i, in := range m.Intervals.Log {
		start := int64(i) * m.Intervals.LengthNs
		all = append(all, tool.Interval{
			StartNs: start, LengthNs: min(m.Intervals.LengthNs, m.DurationNs-start), Count: in[0],
			P50Ns: in[1], P99Ns: in[2], P999Ns: in[3], MaxNs: in[4], Lost: in[5],
		})
	}
	return all
}

func read(stdout []byte) (document, error) {
	var d document
	decoder := json.NewDecoder(bytes.NewReader(stdout))
	if err := decoder.Decode(&d); err != nil {
		return document{}, fmt.Errorf("decoding it: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return document{}, errors.New("something follows it")
	}
	return d, nil
}

// record passes the samples on: exact extremes, all others at their bucket's lower edge.
func (h histogram) record(record func(rtt, count int64)) {
	for i, b := range h.Buckets {
		value, n := b[0], b[1]
		if i == 0 {
			value = max(value, h.MinNs)
		}
		if i == len(h.Buckets)-1 && h.MaxNs <= highest && h.MaxNs > value && n > 0 && !(i == 0 && n == 1) {
			record(h.MaxNs, 1)
			n--
		}
		if n > 0 {
			record(value, n)
		}
	}
	switch {
	case h.OverRange == 0:
	case h.MaxNs <= highest:
		record(h.MinNs, h.OverRange)
	case h.MinNs >= 1 && (h.Count > 0 || h.OverRange == 1):
		record(h.MaxNs, h.OverRange)
	default: // the smallest is out of range as well
		record(h.MinNs, 1)
		record(h.MaxNs, h.OverRange-1)
	}
}

func figures(d document) []tool.Figure {
	m := d.Cells[0]
	var all []tool.Figure
	add := func(name string, value any) { all = append(all, tool.Figure{Name: name, Value: fmt.Sprint(value)}) }
	known := func(name string, value *int64) {
		if value != nil {
			add(name, *value)
		}
	}
	add("clock", d.Clock.Source)
	add("clock drift (ppm)", strconv.FormatFloat(d.Clock.DriftPPM, 'f', 3, 64))
	add("sent", m.Sent)
	add("received", m.Received)
	if m.Intended != nil {
		add("the latest send after its time (ns)", max(m.Lateness.MaxNs-1, 0))
	}
	add("answered after the deadline", m.Late)
	add("duplicates", m.Duplicates)
	add("reordered", m.Reordered)
	for _, end := range []struct {
		name  string
		scan  scan
		count endpoint
	}{{"client", d.Scan.Client, m.Client}, {"server", d.Scan.Server, m.Server}} {
		add(fmt.Sprintf("%s: interruptions of the idle CPU, longer than %d ns in %d ms",
			end.name, end.scan.ThresholdNs, end.scan.DurationNs/1_000_000), end.scan.Interruptions.Count)
		add(end.name+": the longest of these (ns)", end.scan.Interruptions.MaxNs)
		known(end.name+": voluntary context switches", end.count.VoluntarySwitches)
		known(end.name+": involuntary context switches", end.count.InvoluntarySwitches)
		known(end.name+": waited for the CPU (ns)", end.count.RunQueueWaitNs)
		known(end.name+": stolen by the hypervisor (ms)", end.count.StealMs)
		known(end.name+": TCP retransmits", end.count.TCPRetransmits)
	}
	return all
}

func warnings(d document) []string {
	m := d.Cells[0]
	var all []string
	warn := func(n int64, format string) {
		if n > 0 {
			all = append(all, fmt.Sprintf("pinger: "+format, n))
		}
	}
	warn(m.RTT.OverRange, "%d round trips of more than 60 s")
	warn(m.Late, "%d datagrams counted as lost were answered after the deadline")
	warn(m.Duplicates, "%d duplicated datagrams")
	warn(m.Reordered, "%d datagrams out of order")
	warn(m.Strays, "%d datagrams that were not of this measurement")
	for _, end := range []struct {
		name string
		of   endpoint
	}{{"client", m.Client}, {"server", m.Server}} {
		if end.of.Moved {
			all = append(all, "pinger: the "+end.name+" was moved to another CPU")
		}
		if n := end.of.ThrottledPeriods; n != nil {
			warn(*n, "the "+end.name+" was throttled in %d periods")
		}
		if n := end.of.TCPRetransmits; n != nil {
			warn(*n, "the "+end.name+" sent %d segments again")
		}
	}
	return all
}

func explain(out tool.Output) error {
	if out.ExitCode == impostor {
		return tool.Fail(v1alpha1.OutcomeWrongPeer, "%s; %s", tool.OneLine(string(out.Stderr)), tool.WrongPeerRemedy)
	}
	return tool.Exited("pinger", out.ExitCode, cmp.Or(tool.OneLine(string(out.Stderr)), "it printed nothing"), "")
}

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

// explained reports whether the known gaps, beyond half of an outlier's excess, fit its place.
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
