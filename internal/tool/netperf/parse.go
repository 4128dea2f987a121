package netperf

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Parse reads the values that the tool was configured to print. There are no samples to record.
func (driver) Parse(c tool.Cell, out tool.Output, _, _ func(rtt, count int64)) (tool.Measurement, error) {
	if out.ExitCode != 0 {
		return tool.Measurement{}, explain(c, out)
	}
	r := read(string(out.Stdout))
	m := tool.Measurement{Figures: r.figures(c)}
	err := out.Clocks.CheckSteady("netperf", out.Clocks.Wall)
	switch {
	case err != nil:
	case c.Stream:
		m.Bandwidth, m.Lost, err = r.bandwidth(c, out.Clocks)
	default:
		m.Own, err = r.own(c, out.Clocks)
	}
	if r.err != nil {
		err = tool.Failf("netperf's output cannot be used: %v", r.err)
	}
	if err != nil {
		return tool.Measurement{}, err
	}
	m.Warnings = r.warnings(c)
	return m, nil
}

type report struct {
	// values are keyed by their names; lines are the lines that are not values.
	values map[string]string
	lines  []string
	err    error
	// incomplete states why there are no percentiles; empty when there are.
	incomplete string
}

var valueLine = regexp.MustCompile(`^([A-Z0-9_]+)=(.*)$`)

func read(stdout string) *report {
	r := &report{values: map[string]string{}}
	for line := range strings.Lines(stdout) {
		line = strings.Join(strings.Fields(strings.ToValidUTF8(line, "?")), " ")
		m := valueLine.FindStringSubmatch(line)
		switch {
		case m == nil && line != "":
			r.lines = append(r.lines, line)
		case m == nil:
		default:
			if before, ok := r.values[m[1]]; ok && before != m[2] {
				r.fail("it printed %s twice, %.40q and %.40q", m[1], before, m[2])
			}
			r.values[m[1]] = m[2]
		}
	}
	return r
}

func (r *report) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// text returns a value as printed. The tool silently leaves out values that it does not know.
func (r *report) text(name string) string {
	v, ok := r.values[name]
	if !ok {
		r.fail("it printed no %s: is it 2.7.0 or later?", name)
	}
	return v
}

// float, like integer, returns a value that is at least 0.
func (r *report) float(name string) float64 {
	text := r.text(name)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		r.fail("%s is %.40q", name, text)
		return 0
	}
	return v
}

func (r *report) integer(name string) int64 {
	text := r.text(name)
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 {
		r.fail("%s is %.40q", name, text)
		return 0
	}
	return v
}

func (r *report) messages(name string, size int64) int64 {
	bytes := r.integer(name)
	if bytes%size != 0 {
		r.fail("%s is %d, which is no number of messages of %d bytes", name, bytes, size)
	}
	return bytes / size
}

func (r *report) size(c tool.Cell, names ...string) int64 {
	for _, name := range names {
		if n := r.integer(name); n != int64(c.MessageSize) {
			r.fail("%s is %d and not %d", name, n, c.MessageSize)
		}
	}
	return max(int64(c.MessageSize), 1)
}

// nanoseconds returns a value printed in whole µs, which the tool counts in an int.
func (r *report) nanoseconds(name string) int64 {
	us := r.integer(name)
	if us > math.MaxInt32 {
		r.fail("%s is %d", name, us)
		return 0
	}
	return us * 1_000
}

// elapsed returns the seconds, to 10 ms, or an error; spare is how late data may have arrived.
func (r *report) elapsed(c tool.Cell, clocks tool.Clocks, spare time.Duration) (float64, error) {
	seconds := r.float("ELAPSED_TIME")
	if r.err != nil {
		return 0, nil //nolint:nilerr // The report keeps its first error, which its reader returns.
	}
	if clocks.Wall > 0 {
		// Its clock was right, so that a late end is the path's.
		spare = max(spare, clocks.Raw)
	}
	// A float of hours is a duration, and one of centuries is not.
	return seconds, clocks.CheckRun("netperf", time.Duration(math.Round(min(seconds, 1e6)*1e3))*time.Millisecond, c.Duration, spare)
}

// near reports equality within a thousandth plus the rounding of the time to 10 ms.
func near(a, b, elapsed float64) bool {
	return math.Abs(a-b) <= (0.001+0.01/elapsed)*max(a, b)
}

func (r *report) own(c tool.Cell, clocks tool.Clocks) (*tool.Own, error) {
	size := r.size(c, "REQUEST_SIZE", "RESPONSE_SIZE")
	sent, answered := r.messages("LOCAL_BYTES_SENT", size), r.messages("LOCAL_BYTES_RECVD", size)
	arrived, rate := r.messages("REMOTE_BYTES_RECVD", size), r.float("TRANSACTION_RATE")
	elapsed, off := r.elapsed(c, clocks, 0)
	if r.err != nil || off != nil && elapsed < c.Duration.Seconds() {
		return nil, off
	}
	// The end of the time may interrupt the last round trip.
	if answered > sent || sent > answered+1 || arrived > sent {
		r.fail("%d messages sent, %d arrived, %d answered", sent, arrived, answered)
		return nil, nil
	}
	if answered == 0 || rate == 0 {
		return nil, tool.Failf("netperf got no answer in %s: %s", c.Duration, lossOf(c))
	}
	if !near(float64(answered)/rate, elapsed, elapsed) || !near(1e6/rate, r.float("RT_LATENCY"), elapsed) {
		r.fail("%d round trips in %g s are not %g a second", answered, elapsed, rate)
		return nil, nil
	}
	own := &tool.Own{Count: answered, MeanNs: 1e9 / rate, StepNs: microsecond}
	if answered <= math.MaxInt32 {
		if err := r.accounted(c, sent, answered, rate); err != nil {
			return nil, err
		}
		r.histogram(own)
	} else {
		r.incomplete = fmt.Sprintf("netperf reports no percentiles of %d round trips: its counters overflow at 2³¹; "+
			"measure for a shorter time", answered)
	}
	if arrived < sent {
		return nil, tool.Failf("%d of %d messages did not arrive at the server: %s", sent-arrived, sent, lossOf(c))
	}
	// A path that was cut at the end, as above, explains a late end better.
	return own, off
}

// accounted compares the round trips' sum with the duration when the last message had no answer. If
// the end cut it off, they fill it except for 0.3 % at 15 µs, or 3 % on a machine with much more work.
func (r *report) accounted(c tool.Cell, sent, answered int64, rate float64) error {
	mean := r.float("MEAN_LATENCY")
	took, timed := float64(answered)/rate, float64(answered)*mean/1e6
	tolerance := took/20 + 0.02
	if c.Protocol == v1alpha1.ProtocolTCP {
		// A lost segment is sent again after 200 ms; the end may cut that off.
		tolerance += 0.5
	}
	if timed > took+tolerance {
		r.fail("%d round trips of %g us on average do not fit into %g s", answered, mean, took)
	}
	if r.err == nil && sent > answered && took-timed > tolerance {
		return tool.Failf("netperf timed %s of %s and then got no more answers (%d sent, %d answered): %s",
			seconds(timed), seconds(took), sent, answered, lossOf(c))
	}
	return nil
}

func seconds(s float64) string { return strconv.FormatFloat(s, 'f', 2, 64) + "s" }

func lossOf(c tool.Cell) string {
	if c.Protocol == v1alpha1.ProtocolUDP {
		return "a datagram was lost, after which netperf cannot continue, or the server hung"
	}
	return "the path stalled, or the server hung"
}

// histogram fills in the tool's values. Part of a percentile's bucket may exceed the extremes.
func (r *report) histogram(own *tool.Own) {
	own.MinNs, own.MaxNs = r.nanoseconds("MIN_LATENCY"), r.nanoseconds("MAX_LATENCY")
	for i, to := range []*int64{&own.P50Ns, &own.P90Ns, &own.P99Ns} {
		ns := r.nanoseconds([]string{"P50_LATENCY", "P90_LATENCY", "P99_LATENCY"}[i])
		*to = min(max(ns, own.MinNs), own.MaxNs)
		at := bucket(ns)
		own.Ranges[i] = tool.Range{LowNs: max(at.LowNs, own.MinNs-microsecond, 0), HighNs: min(at.HighNs, own.MaxNs+microsecond)}
	}
	// NaN is the root of a sum that rounding made negative.
	if !strings.HasSuffix(r.text("STDDEV_LATENCY"), "nan") {
		own.StdDevNs = int64(math.Round(min(r.float("STDDEV_LATENCY"), math.MaxInt32) * 1_000))
	}
	if own.MinNs > own.MaxNs || own.P50Ns > own.P90Ns || own.P90Ns > own.P99Ns {
		r.fail("latencies of %d to %d ns with percentiles of %d, %d and %d ns",
			own.MinNs, own.MaxNs, own.P50Ns, own.P90Ns, own.P99Ns)
	}
}

// microsecond is the step of the tool's clock, in ns.
const microsecond = 1_000

// width returns the width of the histogram's bucket of a latency, both in ns.
func width(ns int64) int64 {
	width := int64(microsecond)
	for ns >= 100*width {
		width *= 10
	}
	return width
}

// bucket returns the range of the true percentile printed as ns. Buckets are 1 µs wide below 100
// µs, 10 µs below 1 ms and so on; a percentile is anywhere in its bucket, cut to whole µs: on an
// edge, it may be of the bucket below. Latencies are differences of cut times: up to 1 µs more.
func bucket(ns int64) tool.Range {
	w := width(ns)
	r := tool.Range{LowNs: ns - ns%w, HighNs: ns - ns%w + w}
	if r.LowNs == ns && ns > 10*microsecond {
		r.LowNs -= width(ns - 1)
	}
	r.LowNs -= microsecond
	return r
}

// queued bounds the bytes on the way when a stream ends: in both sockets and in queues.
const queued = 64 << 20

func (r *report) bandwidth(c tool.Cell, clocks tool.Clocks) (*tool.Bandwidth, int64, error) {
	const unit, asKilobits = "THROUGHPUT_UNITS", "10^3bits/s"
	if u := r.text(unit); u != asKilobits {
		r.fail("%s is %.40q and not %q", unit, u, asKilobits)
	}
	size := r.size(c, "LOCAL_SEND_SIZE")
	sent, arrived := r.integer("LOCAL_BYTES_SENT"), r.integer("REMOTE_BYTES_RECVD")
	b := &tool.Bandwidth{
		BitsPerSecond:     1e3 * r.float("REMOTE_RECV_THROUGHPUT"),
		SentBitsPerSecond: 1e3 * r.float("LOCAL_SEND_THROUGHPUT"),
	}
	if r.err == nil && (arrived == 0 || b.BitsPerSecond == 0) {
		return nil, 0, tool.Failf("none of the %d bytes that netperf sent arrived at the server", sent)
	}
	elapsed, err := r.elapsed(c, clocks, time.Duration(min(8*queued/max(b.BitsPerSecond, 1), 60)*float64(time.Second)))
	if r.err != nil || err != nil {
		return nil, 0, err
	}
	for _, of := range []struct {
		bytes         int64
		bitsPerSecond float64
	}{{sent, b.SentBitsPerSecond}, {arrived, b.BitsPerSecond}} {
		if !near(8*float64(of.bytes)/elapsed, of.bitsPerSecond, elapsed) {
			r.fail("%d bytes in %g s are not %g bits a second", of.bytes, elapsed, of.bitsPerSecond)
			return nil, 0, nil
		}
	}
	if c.Protocol == v1alpha1.ProtocolTCP {
		// A last, cut message is not counted as sent, but a part arrives.
		b.SentBitsPerSecond = max(b.SentBitsPerSecond, b.BitsPerSecond)
		// -1: the system does not report it.
		if text := r.text("LOCAL_TRANSPORT_RETRANS"); text != "-1" {
			b.Retransmits = new(r.integer("LOCAL_TRANSPORT_RETRANS"))
		}
		return b, 0, nil
	}
	b.Sent, b.Received = r.messages("LOCAL_BYTES_SENT", size), r.messages("REMOTE_BYTES_RECVD", size)
	if b.Received > b.Sent {
		return nil, 0, tool.Failf("%d datagrams arrived, but netperf sent only %d: the path duplicates them",
			b.Received, b.Sent)
	}
	return b, b.Sent - b.Received, nil
}

func (r *report) figures(c tool.Cell) []tool.Figure {
	var out []tool.Figure
	for _, v := range valuesOf(c) {
		if text, ok := r.values[v.name]; ok {
			name := v.name
			if v.unit != "" {
				name += " (" + v.unit + ")"
			}
			out = append(out, tool.Figure{Name: name, Value: text})
		}
	}
	return out
}

const mostWarnings = 5

// warnings returns the lines that are not values, and the requests that were not fulfilled.
func (r *report) warnings(c tool.Cell) []string {
	var out []string
	if c.Warmup > 0 {
		out = append(out, fmt.Sprintf("netperf has no warm-up, so the requested %s were omitted; "+
			"set spec.workload.warmup to 0s if that is intended", c.Warmup))
	}
	if r.incomplete != "" {
		out = append(out, r.incomplete)
	}
	for _, line := range r.lines[:min(len(r.lines), mostWarnings)] {
		if strings.HasPrefix(line, "enable_enobufs failed") {
			// 2.7.0 needs /etc/protocols, which small images do not have.
			line += " (datagrams that the sender's own queue drops count as sent)"
		}
		out = append(out, "netperf: "+tool.OneLine(line))
	}
	return out
}

var remoteError = regexp.MustCompile(`remote error (\d{1,4})\b`)

func explain(c tool.Cell, out tool.Output) error {
	said := strings.Join(append(read(string(out.Stderr)).lines, read(string(out.Stdout)).lines...), "; ")
	remote := tool.Cause{""} // none
	if m := remoteError.FindStringSubmatch(said); m != nil {
		// The digits are few enough for an int.
		n, _ := strconv.Atoi(m[1])
		remote = tool.Cause{fmt.Sprintf("the server's end failed: %v", syscall.Errno(n)), m[0]}
	}
	why := cmp.Or(tool.WhyOf(said, []tool.Cause{
		{"no server listens, or there is no route to it", "could not establish the control connection"},
		remote,
		{tool.SecondPort, "connect_data_socket failed"},
		{fmt.Sprintf("messages of %d bytes are too long for the path", c.MessageSize), "(errno 90)", "Message too long"},
		{"there is no route to the server", "Network is unreachable", "No route to host"},
		{"the server ended before the test did", "partial response received", "Connection reset by peer", "Connection refused", "Broken pipe"},
		{"the server hangs", "no response received"},
		{"this build does not accept its options; use 2.7.0 or later", "is unknown to this netperf", "Usage: netperf"},
	}), "it ended in an unexpected way")
	if out.ExitCode < 0 {
		why = "a signal ended it: the client was killed"
		if c.Protocol == v1alpha1.ProtocolTCP { // it does not catch SIGPIPE, which may be the first sign of it in a stream
			why = "a signal ended it: the server ended before the test did, or the client was killed"
		}
	}
	return tool.Exited("netperf", out.ExitCode, why, tool.OneLine(said))
}
