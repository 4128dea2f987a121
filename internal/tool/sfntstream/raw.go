package sfntstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfnt"
)

// sample is a line of the raw file. Times are nanoseconds from when the first message should have been sent, and come
// round with the tool's counter, as does the round trip.
type sample struct {
	intended, actual, rtt int64
}

// readRaw reads a heading and a sample a line, the last one's end included: without it the file was cut off. The
// heading speaks of nanoseconds, but the file is in seconds with nine decimals.
func readRaw(r io.Reader, add func(sample) error) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if number == 1 && line[0] == '#' {
			continue
		}
		s, ok := parseSample(line[:len(line)-1])
		if !ok {
			return fmt.Errorf("line %d: %.60q is not three times in seconds", number, line)
		}
		if err := add(s); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

// parseSample reads three times in seconds, with a tab between them.
func parseSample(line []byte) (s sample, ok bool) {
	for i, t := range []*int64{&s.intended, &s.actual, &s.rtt} {
		if i > 0 {
			if len(line) == 0 || line[0] != '\t' {
				return sample{}, false
			}
			line = line[1:]
		}
		if *t, line, ok = cutSeconds(line); !ok {
			return sample{}, false
		}
	}
	return s, len(line) == 0
}

// cutSeconds reads a time of at most five digits of seconds, which counters do not reach, and nine decimals, as
// nanoseconds. There are millions of them, so it makes no strings.
func cutSeconds(line []byte) (ns int64, rest []byte, ok bool) {
	const decimals = 9
	point := 0
	for point < len(line) && line[point]-'0' <= 9 {
		ns = ns*10 + int64(line[point]-'0')
		point++
		if point > 5 {
			return 0, nil, false
		}
	}
	end := point + 1 + decimals
	if point == 0 || end > len(line) || line[point] != '.' {
		return 0, nil, false
	}
	for _, c := range line[point+1 : end] {
		if c-'0' > 9 {
			return 0, nil, false
		}
		ns = ns*10 + int64(c-'0')
	}
	return ns, line[end:], true
}

// window passes the samples of the measuring time on and keeps what is needed to check them all and to count the
// messages that are not among them.
//
// As long as the sender has not restarted its schedule, message n should have been sent n intervals after the first,
// so that every sample tells which message it is.
type window struct {
	schedule
	row    row
	record func(rtt, count int64)
	// actual are the round trips from when the messages were sent.
	actual []tool.Bucket

	// interval is that of the schedule, in nanoseconds: the sender counts in whole ticks of its clock.
	interval float64
	// from and to are the measuring time, first and last the messages that are due in it.
	from, to, first, last int64
	// round is the time after which the tool's nanoseconds begin at 0 again: it keeps 2⁶⁴ of a product of ticks and
	// 10⁹, 7.4 s at 2.5 GHz. rounds is how often they did.
	round  float64
	rounds int64
	// latest is how late a message can be seen to be: its lateness is kept in 2³² ticks, 1.7 s at 2.5 GHz, of which the
	// last quarter is the warning that the rest was passed.
	latest int64

	// count, least and most are of all round trips; recorded is the number of those that were passed on.
	count, least, most, recorded int64
	// sent is when the message of the last sample was, arrived when its answer came.
	sent, arrived int64
	// answered is the number of messages to be timed that are due in the measuring time and were answered, newest the
	// last message that was answered at all.
	answered, newest int64
}

func newWindow(c tool.Cell, h sfnt.Header, r row, record func(rtt, count int64)) (*window, error) {
	fullRTT, err := h.FullRTT()
	if err != nil {
		return nil, err
	}
	if !fullRTT {
		return nil, errors.New("it reports half a round trip instead of a whole one")
	}
	hz, err := strconv.ParseInt(h.Value("tsc_hz"), 10, 64)
	if err != nil || hz < 100e6 || hz > 100e9 {
		return nil, fmt.Errorf("its clock has no plausible rate: %q", h.Value("tsc_hz"))
	}
	ticks := hz / max(int64(c.RatePerSecond), 1)
	if ticks == 0 {
		return nil, fmt.Errorf("its clock of %d ticks a second is slower than %d messages", hz, c.RatePerSecond)
	}
	w := &window{
		schedule: scheduleOf(c), row: r, record: record,
		interval: float64(ticks) * 1e9 / float64(hz),
		from:     int64(c.Warmup), to: int64(c.Warmup + c.Duration),
		round:  math.Ldexp(1, 64) / float64(hz),
		latest: int64(0.75 * math.Ldexp(1, 32) * 1e9 / float64(hz)),
		least:  math.MaxInt64,
		newest: -1,
	}
	w.actual = make([]tool.Bucket, 0, min(r.samples(), 2*w.timed))
	w.first = int64(math.Ceil(float64(w.from) / w.interval))
	w.last = int64(math.Ceil(float64(w.to)/w.interval)) - 1
	return w, nil
}

func (w *window) add(s sample) error {
	if s.rtt <= 0 {
		return fmt.Errorf("a round trip of %d ns", s.rtt)
	}
	if most := int64(w.round) + 1; s.intended > most || s.actual > most || s.rtt > most {
		return fmt.Errorf("a time beyond the %s to which the tool counts", time.Duration(most))
	}
	late := s.actual - s.intended
	if late < 0 { // the tool's nanoseconds came round in between
		late = max(late+int64(w.round), 0)
	}
	if late > w.latest {
		return fmt.Errorf("a message was sent %s too late, from where the tool's counter overflows: "+
			"set a lower rate, or give the sender an exclusive CPU", time.Duration(late).Round(time.Millisecond))
	}
	sent := w.unroll(s.actual)
	arrived := sent + s.rtt
	// The answers are in the order in which they came. Each of the times may be off by a nanosecond.
	if w.count > 0 && arrived < w.arrived-4 {
		return fmt.Errorf("an answer came %s before the one above it: a stall overflowed the tool's counter",
			time.Duration(w.arrived-arrived))
	}
	w.count++
	w.sent, w.arrived = sent, arrived
	w.least, w.most = min(w.least, s.rtt), max(w.most, s.rtt)

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
		w.actual = append(w.actual, tool.Bucket{RTTNs: s.rtt, Count: 1})
		w.recorded++
	}
	return nil
}

// onSchedule says whether the sender has kept the schedule with which it began.
func (w *window) onSchedule() bool { return w.row.restarts() == 0 }

// unroll turns a time of the tool's counter into one since the first message. It follows the counter as long as no two
// samples are further apart than half of its round.
func (w *window) unroll(ns int64) int64 {
	at := func(rounds int64) int64 { return ns + int64(math.Round(float64(rounds)*w.round)) }
	half := int64(w.round / 2)
	switch t := at(w.rounds); {
	case t < w.sent-half:
		w.rounds++
		return at(w.rounds)
	case t > w.sent+half && w.rounds > 0: // out of order, from before it came round
		return at(w.rounds - 1)
	default:
		return t
	}
}

// check holds the samples against the row that the tool computed of them. It catches files that were cut off: the tool
// does not notice when the disk is full.
func (w *window) check() error {
	if w.count != w.row.samples() {
		return tool.Failf("sfnt-stream timed %d messages, but left %d samples: is its scratch volume full?",
			w.row.samples(), w.count)
	}
	if w.recorded == 0 {
		return tool.Failf("sfnt-stream got no answer to a message of the measuring time")
	}
	// The row's own numbers overflow where the samples do not.
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

// lost is the number of messages that were to be timed, were due in the measuring time, were sent, and not answered.
// unsent is how many of all messages due in it were not sent, because the sender was late.
//
// Once the schedule was restarted, it is unknown which messages were due when. Then it is the number of those not
// answered in the whole run, as far as the rate tells it.
func (w *window) lost() (lost, unsent int64) {
	// At least so many were sent: the rate is rounded down.
	sent := (w.row.sent()*w.ms + 999) / 1000
	if !w.onSchedule() {
		return max(sent/w.every-w.count, 0), 0
	}
	last := min(w.last, max(w.newest, sent-1))
	// Of every so many messages the last is to be timed.
	timed := (last+1)/w.every - w.first/w.every
	return max(timed-w.answered, 0), w.last - last
}
