package sfntstream

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfnt"
)

func (driver) Parse(c tool.Cell, out tool.Output, record, actual func(rtt, count int64)) (tool.Measurement, error) {
	if out.ExitCode != 0 {
		return tool.Measurement{}, sfnt.Explain(v1alpha1.ToolSfntStream, c, out, causes(c))
	}
	table, err := sfnt.ParseTable(out.Stdout, columns)
	if err != nil {
		return tool.Measurement{}, tool.Failf("sfnt-stream's table cannot be read: %v", err)
	}
	r, err := rowOf(c, table)
	if err != nil {
		return tool.Measurement{}, err
	}
	if err := table.CheckClock(v1alpha1.ToolSfntStream, out.Clocks); err != nil {
		return tool.Measurement{}, err
	}
	w, err := newWindow(c, table.Header, r, record, actual)
	if err != nil {
		return tool.Measurement{}, tool.Failf("sfnt-stream's table cannot be read: %v", err)
	}
	file := fmt.Sprintf("%s-%d-%d.dat", rawPrefix, c.MessageSize, c.RatePerSecond)
	if err := sfnt.Samples(v1alpha1.ToolSfntStream, out, file, w.addLine); err != nil {
		return tool.Measurement{}, err
	}
	if err := w.check(); err != nil {
		return tool.Measurement{}, err
	}
	lost, late := w.lost()
	bits := 8 * float64(c.MessageSize)
	return tool.Measurement{
		Version: table.Version(), Lost: lost, Start: tool.StartIntended,
		// The tool reports rates as integers, and counts messages that arrive twice.
		Bandwidth: &tool.Bandwidth{BitsPerSecond: float64(min(r.received(), r.sent())) * bits, SentBitsPerSecond: float64(r.sent()) * bits},
		Figures:   figures(table, r),
		Warnings:  append(table.Warnings(v1alpha1.ToolSfntStream), warnings(r, w, late)...),
	}, nil
}

// columns: three rates, seven fields of round trips, four of lateness, three of missed messages.
var columns = []string{
	"target", "send", "recv",
	"mean", "min", "median", "max", "%ile", "stddev", "samples",
	"mean", "min", "max", "behind",
	"n_gaps", "n_drops", "n_ooo",
}

// row is the single line of results, in ns as C's int, which overflows beyond 2.1 s.
type row []int64

func (r row) sent() int64       { return r[1] }
func (r row) received() int64   { return r[2] }
func (r row) min() int64        { return r[4] }
func (r row) max() int64        { return r[6] }
func (r row) samples() int64    { return r[9] }
func (r row) restarts() int64   { return r[13] }
func (r row) missing() int64    { return r[15] }
func (r row) outOfOrder() int64 { return r[16] }

// rowOf returns the only row, which must have the cell's rate, if that rate was reached.
func rowOf(c tool.Cell, t sfnt.Table) (row, error) {
	rate := int64(c.RatePerSecond)
	if len(t.Rows) != 1 || t.Rows[0][0] != rate {
		return nil, tool.Failf("sfnt-stream ended without an error, but printed %d rows and not the one of %d messages a second",
			len(t.Rows), rate)
	}
	r := row(t.Rows[0])
	for _, i := range []int{1, 2, 9, 13, 14, 15, 16} {
		if r[i] < 0 || r[i] > math.MaxUint32 {
			return nil, tool.Failf("sfnt-stream printed an impossible number in column %d, %s: %d", i+1, columns[i], r[i])
		}
	}
	if r.sent()*100 < rate*leastPercent {
		return nil, tool.Failf("sfnt-stream sent %d of %d messages a second, less than %d %%: "+
			"its CPU cannot sustain that rate, or was preempted; set a lower rate", r.sent(), rate, leastPercent)
	}
	return r, nil
}

func figures(t sfnt.Table, r row) []tool.Figure {
	names := []string{
		"target (messages/s)", "send (messages/s)", "recv (messages/s)",
		"mean (ns, RTT)", "min (ns, RTT)", "median (ns, RTT)", "max (ns, RTT)",
		"percentile " + t.Value("percentile") + " (ns, RTT)", "stddev (ns, RTT)", "samples",
		"sendjit mean (ns)", "sendjit min (ns)", "sendjit max (ns)", "behind",
		"n_gaps", "n_drops", "n_ooo",
	}
	out := t.Figures(names, r...)
	if v := t.Value("return_latency"); v != "" {
		out = slices.Insert(out, len(names), tool.Figure{Name: "return_latency (ns, half RTT when idle)", Value: v})
	}
	return out
}

func warnings(r row, w *window, late int64) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf("sfnt-stream: "+format, args...)) }
	if w.every > 1 {
		add("one of %d messages is timed: it can time %d at most", w.every, mostTimed)
	}
	if w.repeated > 0 {
		add("duplicated answers, which do not count: %d", w.repeated)
	}
	if r.restarts() > 0 {
		add("the sender was delayed by more than %s and restarted its schedule, %d times: this delay is not part of the samples, "+
			"and lost messages are counted over the whole run, to within one for each of its seconds", patience, r.restarts())
	}
	if late > 0 {
		add("the sender was late at the end of the measuring time; messages that were due and were not sent: %d", late)
	}
	if r.missing() > 0 || r.outOfOrder() > 0 {
		add("messages that its server missed in their order: %d; of these came later: %d (warm-up included)",
			r.missing(), r.outOfOrder())
	}
	return out
}

func causes(c tool.Cell) []tool.Cause {
	refused := func(size int32) string { return fmt.Sprintf("msg_len=%d errno=(111 ", size) }
	return []tool.Cause{
		{"the server ended before the test did", refused(c.MessageSize), refused(answerSize)},
		{"no answer for 100ms, after which it gives up when it spins or uses a muxer: " +
			"an end or the path stalled, or the server is gone", "short read or error receiving"},
		{"a datagram was lost before the measurement began, or no datagram arrives: " +
			"are all UDP ports between the two ends open?", "Timeout waiting for synchronisation message"},
		{"no more answers came: the path broke, or the server hangs", "Sync messages at end of test lost"},
	}
}

// sample is a line of the raw file, in ns since the first message's time; they wrap.
type sample struct {
	intended, actual, rtt int64
}

// parseSample reads three times in seconds, with tabs and at most five digits of seconds.
func parseSample(line []byte) (s sample, ok bool) {
	for i, t := range []*int64{&s.intended, &s.actual, &s.rtt} {
		if i > 0 {
			if line, ok = bytes.CutPrefix(line, []byte("\t")); !ok {
				return sample{}, false
			}
		}
		if *t, line, ok = tool.CutNumber(line, 5, 9); !ok {
			return sample{}, false
		}
	}
	return s, len(line) == 0
}

// window passes on the samples of the measuring time and keeps what checks them and counts what is
// missing. Until the sender restarts its schedule, message n is due n intervals after the first, so
// that every sample identifies its message.
type window struct {
	schedule
	row row
	// actual gets the round trips from the time the messages were sent.
	record, actual func(rtt, count int64)

	// interval is the schedule's, in ns: the sender counts whole ticks.
	interval float64
	// from and to bound the measuring time, first and last its messages.
	from, to, first, last int64
	// round is when the ns wrap (ticks times 10⁹ modulo 2⁶⁴: 7.4 s at 2.5 GHz), rounds how often.
	round  float64
	rounds int64
	// latest: lateness is kept modulo 2³² ticks (1.7 s at 2.5 GHz), whose last quarter is overflow.
	latest int64

	// count, least, most are of all round trips; recorded were passed on.
	count, least, most, recorded int64
	// sent is when the message of the last sample was sent, arrived when its answer arrived.
	sent, arrived int64
	// seen has the times of messages, which identify them; repeated counts further answers.
	seen     map[[2]int64]struct{}
	repeated int64
	// answered counts timed messages of the measuring time with an answer; newest is the last.
	answered, newest int64
}

func newWindow(c tool.Cell, h sfnt.Header, r row, record, actual func(rtt, count int64)) (*window, error) {
	fullRTT, err := h.FullRTT()
	if err != nil {
		return nil, err
	}
	if !fullRTT {
		return nil, errors.New("it reports half a round trip instead of a whole one")
	}
	hz, err := h.TicksPerSecond()
	if err != nil {
		return nil, err
	}
	ticks := hz / max(int64(c.RatePerSecond), 1)
	if ticks == 0 {
		return nil, fmt.Errorf("its clock of %d ticks a second is slower than %d messages", hz, c.RatePerSecond)
	}
	w := &window{
		schedule: scheduleOf(c), row: r, record: record, actual: actual,
		interval: float64(ticks) * 1e9 / float64(hz),
		from:     int64(c.Warmup), to: int64(c.Warmup + c.Duration),
		round:  math.Ldexp(1, 64) / float64(hz),
		latest: int64(0.75 * math.Ldexp(1, 32) * 1e9 / float64(hz)),
		least:  math.MaxInt64,
		newest: -1,
		seen:   map[[2]int64]struct{}{},
	}
	w.first = int64(math.Ceil(float64(w.from) / w.interval))
	w.last = int64(math.Ceil(float64(w.to)/w.interval)) - 1
	return w, nil
}

// addLine adds the sample of a line, in seconds. The first line may be a heading.
func (w *window) addLine(number int, line []byte) error {
	if number == 1 && bytes.HasPrefix(line, []byte("#")) {
		return nil
	}
	s, ok := parseSample(line)
	if !ok {
		return fmt.Errorf("%.60q is not three times in seconds", line)
	}
	if s.rtt <= 0 {
		return fmt.Errorf("a round trip of %d ns", s.rtt)
	}
	if most := int64(w.round) + 1; s.intended > most || s.actual > most || s.rtt > most {
		return fmt.Errorf("a time beyond the %s to which the tool counts", time.Duration(most))
	}
	late := s.actual - s.intended
	if late < 0 { // the tool's nanoseconds wrapped in between
		late = max(late+int64(w.round), 0)
	}
	if late > w.latest {
		return fmt.Errorf("a message was sent %s too late, from where the tool's counter overflows: "+
			"set a lower rate, or give the sender an exclusive CPU", time.Duration(late).Round(time.Millisecond))
	}
	sent := w.unroll(s.actual)
	arrived := sent + s.rtt
	// The answers are in the order of their arrival. Each of the times may be off by a nanosecond.
	if w.count > 0 && arrived < w.arrived-4 {
		return fmt.Errorf("an answer came %s before the one above it: a stall overflowed the tool's counter",
			time.Duration(w.arrived-arrived))
	}
	w.count++
	w.sent, w.arrived = sent, arrived
	w.least, w.most = min(w.least, s.rtt), max(w.most, s.rtt)
	message := [2]int64{sent, s.intended} // a sender that is late sends several at one time
	if _, again := w.seen[message]; again {
		w.repeated++
		return nil
	}
	w.seen[message] = struct{}{}

	intended := sent - late
	due := intended >= w.from && intended < w.to
	if w.onSchedule() {
		n := int64(math.Round(float64(intended) / w.interval))
		if off := float64(intended) - float64(n)*w.interval; math.Abs(off) > 3 {
			return fmt.Errorf("its message should have been sent %.0f ns off the schedule: a stall overflowed the tool's counter",
				off)
		}
		due = n >= w.first && n <= w.last
		w.newest = max(w.newest, n)
		if due && (n+1)%w.every == 0 {
			w.answered++
		}
	}
	if due {
		w.record(late+s.rtt, 1)
		w.actual(s.rtt, 1)
		w.recorded++
	}
	return nil
}

func (w *window) onSchedule() bool { return w.row.restarts() == 0 }

// unroll converts a counter's time to that since the first message, by successive samples.
func (w *window) unroll(ns int64) int64 {
	at := func(rounds int64) int64 { return ns + int64(math.Round(float64(rounds)*w.round)) }
	half := int64(w.round / 2)
	switch t := at(w.rounds); {
	case t < w.sent-half:
		w.rounds++
		return at(w.rounds)
	case t > w.sent+half && w.rounds > 0: // out of order, from before the counter wrapped
		return at(w.rounds - 1)
	default:
		return t
	}
}

// check compares samples with the tool's row: the tool does not notice a full disk.
func (w *window) check() error {
	if w.count != w.row.samples() {
		return tool.Failf("sfnt-stream timed %d messages, but left %d samples: is its scratch volume full?",
			w.row.samples(), w.count)
	}
	if w.recorded == 0 {
		return tool.Failf("sfnt-stream got no answer to a message of the measuring time")
	}
	// The row's own numbers overflow earlier than the samples do.
	if w.most <= math.MaxInt32 && (w.least != w.row.min() || w.most != w.row.max()) {
		return tool.Failf("sfnt-stream's samples are of %d to %d ns, but its table says %d to %d",
			w.least, w.most, w.row.min(), w.row.max())
	}
	if missing := w.duration() - time.Duration(w.sent); missing > time.Duration(w.round/2) {
		return tool.Failf("sfnt-stream sent for %s, but its last sample is of a message of %s before the end: "+
			"no later message was answered, or a stall overflowed its counter", w.duration(), missing.Round(time.Millisecond))
	}
	return nil
}

// lost is the number of messages to be timed, due in the measuring time and sent, but not answered;
// unsent of those due that a late sender did not send. After a restart of the schedule it is
// unknown when messages were due: lost is then the whole run's, as far as the rate tells.
func (w *window) lost() (lost, unsent int64) {
	// At least this many were sent: the rate is rounded down.
	sent := (w.row.sent()*w.ms + 999) / 1000
	if !w.onSchedule() {
		return max(sent/w.every-w.count+w.repeated, 0), 0
	}
	last := min(w.last, max(w.newest, sent-1))
	// The last of every w.every messages is to be timed.
	timed := (last+1)/w.every - w.first/w.every
	return max(timed-w.answered, 0), w.last - last
}
