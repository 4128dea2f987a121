package sfntstream

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfnt"
)

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

// window passes on the samples of the measuring time and keeps what is needed to check them and to count the missing messages. As long as
// the sender has not restarted its schedule, message n should have been sent n intervals after the first, so every sample identifies its
// message.
type window struct {
	schedule
	row row
	// actual gets the round trips from the time the messages were sent.
	record, actual func(rtt, count int64)

	// interval is the schedule's, in ns: the sender counts whole ticks.
	interval float64
	// from and to bound the measuring time, first and last its messages.
	from, to, first, last int64
	// round is the time after which the tool's ns wrap to 0: it keeps a product of ticks and 10⁹ modulo 2⁶⁴, which is 7.4 s at 2.5 GHz.
	// rounds is the number of wraps so far.
	round  float64
	rounds int64
	// latest is the greatest lateness that can be recognized: it is kept modulo 2³² ticks, 1.7 s at 2.5 GHz, and a value in the last
	// quarter of these is taken for an overflow.
	latest int64

	// count, least, most are of all round trips; recorded were passed on.
	count, least, most, recorded int64
	// sent is when the message of the last sample was sent, arrived when its answer arrived.
	sent, arrived int64
	// seen has the times of messages, which identify them; repeated is the number of
	// samples of answers that had arrived before.
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

// onSchedule reports whether the sender has kept its initial schedule.
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
// unsent of all due in it that a late sender did not send. After a restart of the schedule, it is
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
