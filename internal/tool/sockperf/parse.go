package sockperf

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// The lines of the report that are used. Colours are removed first.
var (
	colours     = regexp.MustCompile("\x1b\\[[0-9;]*m")
	versionLine = regexp.MustCompile(`== version #(\S+) ==`)
	totalLine   = regexp.MustCompile(`\[Total Run\] RunTime=([0-9.]+) sec;.* SentMessages=(\d+); ReceivedMessages=(\d+)` +
		`(?:; SkippedMessages=(\d+))?`)
	validLine   = regexp.MustCompile(`\[Valid Duration\] RunTime=([0-9.]+) sec; SentMessages=(\d+); ReceivedMessages=(\d+)`)
	averageLine = regexp.MustCompile(`====> avg-(rtt|latency)= *([0-9.]+) \(std-dev=(-?[0-9.]+|-?nan)`)
	errorsLine  = regexp.MustCompile(`# dropped messages = (\d+); # duplicated messages = (\d+); ` +
		`# out-of-order messages = (\d+)`)
	figureLine = regexp.MustCompile(`---> (<MAX> observation|<MIN> observation|percentile [0-9.]+) *= *([0-9.]+)`)
)

type report struct {
	version string
	// ran is how long it sent. The log covers logged of it.
	ran, logged    time.Duration
	sent, received int64
	// due messages were sent in the log's time: rows of them should have rows, dropped have no
	// answer, and outOfOrder were answered after a later message.
	due, rows, dropped, outOfOrder int64
	// skipped is the number of messages that were due in the whole run and not sent.
	skipped int64
	// duplicated is the number of answers that had arrived before.
	duplicated int64

	figures  []tool.Figure
	warnings []string
}

func (r *report) figure(name, value string) {
	r.figures = append(r.figures, tool.Figure{Name: name, Value: value})
}

func (r *report) warn(format string, args ...any) {
	r.warnings = append(r.warnings, "sockperf: "+fmt.Sprintf(format, args...))
}

// Parse reads the client's output and, but for streams, the rows of the measuring time.
func (driver) Parse(c tool.Cell, out tool.Output, record, actual func(rtt, count int64)) (tool.Measurement, error) {
	said := colours.ReplaceAllString(string(out.Stdout)+"\n"+string(out.Stderr), "")
	read := readReport
	if c.Stream {
		read = readStream
	}
	r, err := read(said)
	if err == nil && out.ExitCode != 0 {
		err = fmt.Errorf("it reported a measurement and failed nonetheless")
	}
	if err != nil {
		return tool.Measurement{}, explain(c, out.ExitCode, said, err)
	}
	// It calibrates with CLOCK_MONOTONIC for 100 ms, reading each once.
	if err := cmp.Or(out.Clocks.CheckSteady(program, out.Clocks.Monotonic), out.Clocks.CheckRun(program, r.ran, runTime(c), 0)); err != nil {
		return tool.Measurement{}, err
	}
	m := tool.Measurement{Version: r.version}
	switch {
	case c.Stream:
		err = r.stream(c, out.Server, &m)
	case c.OpenLoop():
		m.Start, m.Lost = tool.StartIntended, r.dropped
		err = r.readRows(c, out, &m, record, actual)
	default:
		// The end interrupted the one message without an answer. A ping-pong ends with a lost
		// message, unless an answer arrives twice: then it sends before it has the last one.
		m.Lost = max(r.sent-r.received-1, 0)
		if err = r.readRows(c, out, &m, record, actual); err == nil && r.duplicated > 0 {
			err = tool.Fail(v1alpha1.OutcomeSamplesMissing, "%d answers arrived twice: from the first on, sockperf had several messages on the way; "+
				"find what duplicates datagrams on the path, or use pinger, which ignores them", r.duplicated)
		}
	}
	if err != nil {
		return tool.Measurement{}, err
	}
	m.Figures, m.Warnings = r.figures, r.warnings
	return m, nil
}

func (r *report) readRows(c tool.Cell, out tool.Output, m *tool.Measurement, record, actual func(rtt, count int64)) error {
	raw, err := out.OpenRaw(logName)
	if err != nil {
		return tool.Failf("sockperf left no log: %v", err)
	}
	defer raw.Close()
	w := window{cell: c, record: record, actual: actual, head: r.head(), complete: r.rows == r.due && r.skipped == 0}
	if err := readLog(raw, w.add); err != nil {
		return tool.Failf("sockperf's log cannot be read: %v", err)
	}
	w.flush()
	if w.rows != r.rows {
		return tool.Failf("sockperf's log has %d rows, but the report says %d: is its scratch volume full?",
			w.rows, r.rows)
	}
	// The rate is checked first, so that a stuck sender is reported rather than missing answers.
	if c.OpenLoop() {
		if err := r.checkRate(c.RatePerSecond); err != nil {
			return err
		}
		if err := r.checkBehind(c.RatePerSecond, w.complete); err != nil {
			return err
		}
		r.figure("the latest send after its time (ns)", strconv.FormatInt(w.latest, 10))
	}
	if err := w.check(*r); err != nil {
		return err
	}
	if unsent := w.unsent(); unsent > 0 {
		w.unknown += unsent
		r.warn("the sender was late at the end of the measuring time; messages that were due and were not sent: %d", unsent)
	}
	// All out of order and skipped count, also beyond the measuring time.
	m.Unrecorded = max(r.outOfOrder, r.due-r.rows-r.dropped) + r.skipped + w.unknown
	return tool.CheckUnrecorded(program, m.Unrecorded, r.rows, fmt.Sprintf("it leaves out answers that arrive after one to "+
		"a later message (%d), and messages that were due and not sent, or before the sender was on time (%d); use pinger, which records them",
		r.outOfOrder, r.skipped+w.unknown))
}

// head returns how much of the warm-up is over, at most, when the log begins: builds differ (3.6 to
// 3.8 on arm64 leave nothing out). Unknown if hardly any is missing: the end may be silent.
func (r *report) head() time.Duration {
	if r.sent-r.due < 3 {
		return 0
	}
	return min(max(r.ran-r.logged-tail, 0), head)
}

// leastPercent of a rate must be sent; from fullPercent on there is no warning.
const leastPercent, fullPercent = 90, 99

// checkRate returns an error if the sender did not keep its rate. Late is not missing.
func (r *report) checkRate(rate int32) error {
	reached := float64(r.sent) / r.ran.Seconds()
	percent := 100 * reached / float64(rate)
	if percent < leastPercent {
		return tool.Failf("sockperf sent %.0f messages a second, not %d: "+
			"the client cannot keep the rate, or the path does not take it", reached, rate)
	}
	if percent < fullPercent {
		r.warn("it sent %.0f messages a second, not %d", reached, rate)
	}
	return nil
}

// How late a sender with missing rows may end; the report has the time in milliseconds.
const mostBehind, mostMessagesBehind = 2 * time.Millisecond, 3

// checkBehind refuses a sender that fell behind for good while rows are missing: gaps do not show
// when messages were due, and latencies from their sending would look in time.
func (r *report) checkBehind(rate int32, complete bool) error {
	interval := time.Second / time.Duration(rate)
	behind := r.ran - time.Duration(r.sent+r.skipped)*interval
	if complete || behind <= mostBehind+mostMessagesBehind*interval {
		return nil
	}
	return tool.Fail(v1alpha1.OutcomeSamplesMissing, "sockperf was %s behind its schedule at the end, and messages are missing from its log, so that it is not known "+
		"when the others were due: lower ratesPerSecond, or use pinger", behind.Round(time.Microsecond))
}

// readReport returns an error without figures: nothing else shows a measurement.
func readReport(said string) (report, error) {
	r := report{version: version(said)}
	total, valid := totalLine.FindStringSubmatch(said), validLine.FindStringSubmatch(said)
	average, faults := averageLine.FindStringSubmatch(said), errorsLine.FindStringSubmatch(said)
	switch {
	case total == nil:
		return report{}, fmt.Errorf("it reported nothing")
	case valid != nil && (average == nil || faults == nil):
		return report{}, fmt.Errorf("the report of version %q is not known; use 3.7 or later", r.version)
	case valid == nil:
		return report{}, fmt.Errorf("it ended before there was anything to report")
	}
	if err := r.read(total[1], count{&r.sent, total[2]}, count{&r.received, total[3]}, count{&r.due, valid[2]}, count{&r.rows, valid[3]},
		count{&r.dropped, faults[1]}, count{&r.duplicated, faults[2]}, count{&r.outOfOrder, faults[3]}, count{&r.skipped, cmp.Or(total[4], "0")}); err != nil {
		return report{}, err
	}
	var err error
	if r.logged, err = seconds(valid[1]); err != nil {
		return report{}, err
	}
	if r.received == 0 || r.received > r.sent || r.rows == 0 || r.rows > r.received || r.dropped > r.sent-r.rows {
		return report{}, fmt.Errorf("it reported %d messages sent, %d answered, %d measured and %d dropped",
			r.sent, r.received, r.rows, r.dropped)
	}
	unit := " (us, half RTT)"
	if average[1] == "rtt" {
		unit = " (us, RTT)"
	}
	r.figure("run time (s)", total[1])
	r.figure(tool.FigureSent, total[2])
	r.figure("received", total[3])
	r.figure("observations", valid[3])
	r.figure("avg"+unit, average[2])
	r.figure("std-dev"+unit, average[3])
	for _, m := range figureLine.FindAllStringSubmatch(said, -1) {
		r.figure(strings.ToLower(strings.NewReplacer("<", "", ">", "", " observation", "").Replace(m[1]))+unit, m[2])
	}
	r.figure("dropped", faults[1])
	r.figure("duplicated", faults[2])
	r.figure("out-of-order", faults[3])
	if r.duplicated > 0 {
		r.warn("%d duplicated messages", r.duplicated)
	}
	if n := faults[3]; n != "0" {
		r.warn("%s out-of-order messages, whose latency is unknown", n)
	}
	if n := total[4]; n != "" {
		// A sender that does not sleep continues with the next message.
		r.figure("skipped", n)
		r.warn("%s messages were due and not sent, because the socket was full", n)
	}
	return r, nil
}

func version(said string) string {
	if m := versionLine.FindStringSubmatch(said); m != nil {
		return m[1]
	}
	return ""
}

type count struct {
	of   *int64
	text string
}

func seconds(text string) (time.Duration, error) {
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || !(s > 0 && s <= 86_400) {
		return 0, fmt.Errorf("it reported a run of %s seconds", text)
	}
	return time.Duration(math.Round(s * float64(time.Second))), nil
}

func (r *report) read(ran string, counts ...count) error {
	var err error
	if r.ran, err = seconds(ran); err != nil {
		return err
	}
	for _, n := range counts {
		if *n.of, err = strconv.ParseInt(n.text, 10, 64); err != nil {
			return fmt.Errorf("it reported %s messages", n.text)
		}
	}
	return nil
}

type window struct {
	cell tool.Cell
	// actual gets the round trips from when messages were sent.
	record, actual func(rtt, count int64)
	// head is the warm-up before the log. complete: it has a row for each message.
	head     time.Duration
	complete bool

	rows, recorded int64
	// first and last are the times at which the first and the last message of the log were sent.
	first, last int64
	// pending is the last row, passed on when the next shows whether it was late; behind is by how
	// much, in ns, latest the most that counts.
	pending        row
	behind, latest int64
	// settled: a message was not early. Before, the schedule is unknown: unknown counts those.
	settled bool
	unknown int64
}

func (w *window) from() int64 { return w.first + int64(max(w.cell.Warmup-w.head, 0)) }
func (w *window) to() int64   { return w.from() + int64(w.cell.Duration) }

func (w *window) add(r row) error {
	if r.answered <= r.sent {
		return fmt.Errorf("a message sent at %d ns was answered at %d ns", r.sent, r.answered)
	}
	if w.rows == 0 {
		w.first = r.sent
	} else {
		if r.sent < w.last {
			return fmt.Errorf("a message sent at %d ns stands behind one sent at %d ns", r.sent, w.last)
		}
		w.follow(r.sent - w.last)
	}
	w.rows++
	w.last, w.pending = r.sent, r
	return nil
}

// follow passes on an open loop's pending row, by the time to the next message. The schedule is
// absolute: a stalled sender hurries, so that rows show when they were due, once one was on time.
// Of missing rows, a gap is a stall only if the sender then hurries.
func (w *window) follow(wait int64) {
	if !w.cell.OpenLoop() {
		w.flush()
		return
	}
	interval := w.interval()
	hurries := wait < interval-interval/20
	if !hurries && !w.complete {
		w.behind = 0
	}
	w.settled = w.settled || !hurries
	w.flush()
	w.behind = max(w.behind+wait-interval, 0)
}

// interval is the schedule's, in ns, cut to ticks: behind is up to a tick too small.
func (w *window) interval() int64 { return int64(time.Second) / int64(w.cell.RatePerSecond) }

// unsent returns how many messages were due in the measuring time after the log's last.
func (w *window) unsent() int64 {
	if !w.cell.OpenLoop() {
		return 0
	}
	return max(w.to()-1-(w.last-w.behind), 0) / w.interval()
}

// flush passes on the pending row, if its message was due in the measuring time.
func (w *window) flush() {
	due := w.pending.sent - w.behind
	switch {
	case w.rows == 0 || due < w.from() || due >= w.to():
	case w.cell.OpenLoop() && !w.settled:
		w.unknown++
	default:
		w.record(w.pending.answered-due, 1)
		w.recorded++
		if w.cell.OpenLoop() {
			w.latest = max(w.latest, w.behind)
			w.actual(w.pending.answered-w.pending.sent, 1)
		}
	}
}

// check returns an error if the log ends too early: missing answers, which are not mentioned.
func (w *window) check(r report) error {
	if w.last < w.to() {
		measured := max(time.Duration(w.last-w.from()), 0)
		why := "the path stalled, or the server hung"
		switch {
		case w.cell.OpenLoop() && w.cell.Protocol != v1alpha1.ProtocolTCP:
			why = "the server ended or hung, or the path broke"
		case w.cell.Protocol != v1alpha1.ProtocolTCP:
			why = "a datagram was lost, or the server ended"
		}
		return tool.Failf("sockperf measured %s of %s and then got no more answers (%d sent, %d answered): %s",
			measured.Round(time.Millisecond), w.cell.Duration, r.sent, r.received, why)
	}
	if w.recorded == 0 {
		return tool.Failf("sockperf measured no message after the warm-up of %s", w.cell.Warmup)
	}
	return nil
}

func explain(c tool.Cell, exitCode int, said string, problem error) error {
	overrun := "round trips of less than 1.7µs are too many for it; use sfnt-pingpong"
	if c.OpenLoop() {
		overrun = "it cannot send at a rate on this machine, as versions before 3.9 cannot on arm64 and ppc64le; use pinger"
	}
	why := tool.WhyOf(said, []tool.Cause{
		{"no server listens", "errno=111 "},
		{"there is no route to the server", "errno=113 ", "errno=101 "},
		{"no server listens, or there is no route to it", "Can`t connect socket"}, // for a nonblocking socket, the tool does not know why
		{"nothing could be sent: there is no route to the server, or it hangs", "No messages were sent"},
		{"the messages are too long for the path", "errno=90 "},
		{"it cannot join the multicast group on the interface of the measured network", "IP_ADD_MEMBERSHIP", "IP_MULTICAST_IF"},
		{
			"another server answers in its multicast group; choose another spec.workload.multicastGroup",
			"Number of servers more than expected", "Sequence Number received was higher",
		},
		{"the server ended before the test did", "forcibly closed by a peer"},
		{"no message was answered: the server is down, or the first datagram was lost", "No messages were received"},
		{"no answers came before the measurement began: the server is down, or a datagram was lost", "No valid observations"},
		{overrun, "_seqN > m_maxSequenceNo"},
		{"not enough memory for the samples; raise spec.placement.memory or measure for a shorter time", "bad_alloc"},
		{"it takes IPv4 addresses only", "Invalid address"},
		{"this build does not accept its options; use 3.7 or later", "Usage: sockperf", "Type 'sockperf <subcommand> --help'"},
	})
	return tool.Exited("sockperf", exitCode, cmp.Or(why, problem.Error()), errorLines(said))
}

func errorLines(said string) string {
	var found []string
	for line := range strings.Lines(said) {
		for _, mark := range []string{"ERROR:", "Invalid ", "terminate called", "what():"} {
			if at := strings.Index(line, mark); at >= 0 {
				found = append(found, strings.TrimPrefix(line[at:], "ERROR:"))
				break
			}
		}
	}
	return tool.OneLine(strings.Join(found, "; "))
}

// The lines of a stream's output that are used, of the client and of the server.
var (
	streamLine    = regexp.MustCompile(`Total of (\d+) messages sent in ([0-9.]+) sec(?: \((\d+) messages skipped\))?`)
	bandwidthLine = regexp.MustCompile(`BandWidth is ([0-9.]+) MBps`)
	receivedLine  = regexp.MustCompile(`Total (\d+) messages received and handled`)
)

func readStream(said string) (report, error) {
	r := report{version: version(said)}
	total, bandwidth := streamLine.FindStringSubmatch(said), bandwidthLine.FindStringSubmatch(said)
	if total == nil || bandwidth == nil {
		return report{}, fmt.Errorf("it reported nothing")
	}
	if err := r.read(total[2], count{&r.sent, total[1]}); err != nil {
		return report{}, err
	}
	r.figure("run time (s)", total[2])
	r.figure(tool.FigureSent, total[1])
	if total[3] != "" {
		// This is not an error: a sender that does not sleep retries until the socket has room.
		r.figure("skipped", total[3])
	}
	r.figure("bandwidth (MiB/s)", bandwidth[1])
	return r, nil
}

func (r *report) stream(c tool.Cell, server []byte, m *tool.Measurement) error {
	b := tool.Bandwidth{SentBitsPerSecond: r.bits(c, r.sent)}
	received, err := countReceived(server)
	switch {
	case err != nil:
		return err
	case received >= 0:
		b.BitsPerSecond = r.bits(c, received)
		r.figure("received by the server", strconv.FormatInt(received, 10))
	default:
		r.warn("it reports the sent messages, not the received ones")
	}
	if c.Protocol != v1alpha1.ProtocolTCP {
		b.Sent, b.Received = r.sent, max(received, 0)
		if received > r.sent {
			return tool.Failf("%d datagrams arrived, but sockperf sent only %d: the path duplicates them", received, r.sent)
		}
		if received >= 0 {
			m.Lost = r.sent - received
		}
	}
	m.Bandwidth = &b
	return nil
}

func (r *report) bits(c tool.Cell, messages int64) float64 {
	return float64(messages) * float64(c.MessageSize) * 8 / r.ran.Seconds()
}

// countReceived returns how many messages the server received, -1 without its output. One that
// printed nothing had ended before, or hung: the number is then unknown.
func countReceived(server []byte) (int64, error) {
	if server == nil {
		return -1, nil
	}
	m := receivedLine.FindSubmatch(server)
	switch {
	case m != nil:
	case bytes.Contains(server, []byte("No messages were received on the server")):
		return 0, tool.Failf("no message of sockperf reached the server")
	default:
		return 0, tool.Failf("sockperf's server did not report what it received: it ended before the test did, or hangs")
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		return 0, tool.Failf("sockperf's server reports that it received %.40s messages", m[1])
	}
	return n, nil
}
