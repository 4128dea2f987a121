package pinger

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
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

// scan is an observation of an idle CPU before the measurement.
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
	// RTT is measured from when each message was sent; Intended, set for an open loop only, from when it should have been sent, or up to
	// 100 µs later when a client that sleeps was woken late.
	RTT         histogram   `json:"rtt"`
	Intended    *histogram  `json:"rtt_from_intended"`
	Lateness    histogram   `json:"lateness"`
	Intervals   intervals   `json:"intervals"`
	Attribution attribution `json:"attribution"`
	Client      endpoint    `json:"client"`
	Server      endpoint    `json:"server"`
}

// histogram holds its samples as pairs of a bucket's lower edge and its count, in ascending order.
type histogram struct {
	Count         int64      `json:"count"`
	OverRange     int64      `json:"over_range"`
	MinNs         int64      `json:"min_ns"`
	MaxNs         int64      `json:"max_ns"`
	SumNs         int64      `json:"sum_ns"`
	SumSquaresNs2 float64    `json:"sum_squares_ns2"`
	Buckets       [][2]int64 `json:"buckets"`
}

// intervals are the consecutive parts of the measurement: each the number of samples, their p50, p99, p99.9 and maximum in ns, and the
// number of lost messages.
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
	highest = 60_000_000_000
	// mostIntervals is the most intervals that the tool keeps.
	mostIntervals = 128
	// mostSlowest is the most samples that it lists one by one.
	mostSlowest = 64
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
