// Package capturefile measures a server's times to answer from capture files of any program.
// A capture that exceeds a bound, or would give a wrong latency, gives an error, and no result.
package capturefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/gopacket/gopacket/reassembly"
)

// A key is at an offset of a message, its number in a direction of a connection, or in a FIX tag.
const MatchOffset, MatchSequence, MatchFIX = "offset", "sequence", "fix"

const (
	mostKey, mostMessage = 64, 16 << 10
	// mostTime is the longest latency of histograms. Up to mostWaiting messages wait for others.
	mostTime, mostWaiting = time.Minute, 1 << 20
	coarse                = 100 * time.Microsecond // below it, a step of 1 µs matters
)

// Layout says where the key is in the messages of a direction, in bytes.
type Layout struct{ Size, Offset, Length int }

type Options struct {
	Servers         []netip.AddrPort // that answer, port 0 is any; none: what the first SYN calls
	Match, Tag      string
	Request, Answer Layout        // but for FIX; without a size, a UDP datagram is a message
	Timeout         time.Duration // after what time without an answer a request is lost
	MidStream       bool          // an older TCP connection continues with a whole message
}

// Result has counts: Requests = Matched + Lost + RequestsAgain; Open of the lost might have got an
// answer after the capture, within the timeout. And
// Answers = Matched + Unmatched + AnswersAgain. Again: the key is that of an earlier one.
type Result struct {
	Servers     []netip.AddrPort
	First, Last time.Time
	// OutOfOrder are up to 1 ms older than one before, Unread of a server and neither TCP nor UDP.
	Packets, OutOfOrder, Unread                                                    int64
	Requests, Answers, Matched, Lost, Open, Unmatched, RequestsAgain, AnswersAgain int64
	// Retransmitted counts segments, Gaps places in streams where MissingBytes were not captured.
	Retransmitted, Gaps, MissingBytes int64
	OtherBytes, Older                 int64 // of no whole message; segments of older connections
}

func (o Options) check() error {
	_, err := strconv.ParseUint(o.Tag, 10, 20)
	switch {
	case o.Timeout <= 0 || o.Timeout > mostTime:
		return fmt.Errorf("--timeout: %s is not within 0 and %s", o.Timeout, mostTime)
	case o.Match == MatchFIX && err != nil:
		return fmt.Errorf("--match: %.20q is not the number of a FIX tag, such as 11", o.Tag)
	case o.Match == MatchSequence && o.MidStream:
		return errors.New("--mid-stream: messages are numbered from the beginning of a connection; match by offset or FIX tag")
	}
	for _, l := range []Layout{o.Request, o.Answer} {
		switch {
		case o.Match == MatchFIX:
		case l.Size < 0 || l.Size > mostMessage || l.Size == 0 && o.Match == MatchSequence,
			o.Match == MatchOffset && (l.Length < 1 || l.Length > mostKey || l.Offset < 0 || l.Offset > cmp.Or(l.Size, mostMessage)-l.Length):
			return fmt.Errorf("--size, --offset and --length: a message has 1 to %d bytes, not %d, and a key within it 1 to %d, not %d at %d", mostMessage, l.Size, mostKey, l.Length, l.Offset)
		}
	}
	return nil
}

// Analyze reads files, each in the order of time, as one, and passes the latencies in ns to record.
func Analyze(ctx context.Context, files []File, o Options, record func(ns int64)) (Result, error) {
	if err := o.check(); err != nil {
		return Result{}, err
	}
	a := &analysis{Options: o, Result: Result{Servers: o.Servers}, record: record, young: map[string]waiting{}, old: map[string]waiting{}}
	a.assembler = reassembly.NewAssembler(reassembly.NewStreamPool(a))
	a.assembler.MaxBufferedPagesTotal, a.assembler.MaxBufferedPagesPerConnection = mostPages, mostPagesEach
	r := &a.Result
	err := each(files, r, func(p *packet) error { return cmp.Or(a.packet(p), ctx.Err()) })
	if a.assembler.FlushAll(); err == nil {
		err = a.err
	}
	a.end()
	switch again := r.RequestsAgain + r.Retransmitted; {
	case err == nil && again > max(r.Matched/2, 100):
		err = fmt.Errorf("%d requests and segments came again: give the files of one place of the path, and a --match that distinguishes requests", again)
	case err == nil && !a.fine && 2*a.short > r.Matched:
		err = fmt.Errorf("most latencies are below %s, and the times are whole µs: let tcpdump write ns, as docs/captures.md says", coarse)
	}
	if err == nil && r.Matched == 0 {
		err = fmt.Errorf("no match: %d packets have %d requests to %v (--server) and %d answers, with no key in common within %s; %d segments are of connections that are older than the capture (--mid-stream), and %d packets are fragments or of protocols that are not read",
			r.Packets, r.Requests, r.Servers, r.Answers, o.Timeout, r.Older, r.Unread)
	}
	return *r, err
}

// waiting is a request, or an answer that was read before its request; done: it has the other one.
type waiting struct {
	place
	answer, done bool
}

func (a *analysis) matched(answer bool, key []byte, p place) error {
	generation := a.young
	w, found := generation[string(key)]
	if !found {
		generation = a.old
		w, found = generation[string(key)]
	}
	if answer {
		a.Answers++
	} else {
		a.Requests++
	}
	switch {
	case answer && a.Requests == 0:
		a.Unmatched++ // Its request came before the capture.
	case answer && found && (w.done || w.answer):
		a.AnswersAgain++
	case !answer && found && !w.done && !w.answer:
		a.RequestsAgain++
	case len(key) > mostKey:
		return fmt.Errorf("%s: a key has %d bytes, and %d are possible", p, len(key), mostKey)
	case !found || w.done:
		delete(generation, string(key))
		if len(a.young)+len(a.old) >= mostWaiting {
			return fmt.Errorf("%s: more than %d messages wait within %s: give a shorter --timeout", p, mostWaiting, a.Timeout)
		}
		a.young[string(key)] = waiting{place: p, answer: answer}
	default:
		generation[string(key)] = waiting{done: true}
		if w.answer {
			p, w.place = w.place, p
		}
		if p.at < w.at {
			return fmt.Errorf("%s: the answer is %s older than its request in %s: the clock stepped back, the files are of different clocks, or a key has several messages",
				p, time.Duration(w.at-p.at), w.place)
		}
		if p.at-w.at <= int64(a.Timeout) {
			a.Matched++
			if a.fine = a.fine || p.at%1000 != 0 || w.at%1000 != 0; p.at-w.at < int64(coarse) {
				a.short++
			}
			a.record(p.at - w.at)
			break
		}
		a.Lost++
		a.Unmatched++
	}
	return nil
}

func (a *analysis) end() {
	for _, generation := range []map[string]waiting{a.young, a.old} {
		for _, w := range generation {
			if !w.answer && !w.done && a.Last.UnixNano()-w.at < int64(a.Timeout) {
				a.Open++
			}
		}
	}
	a.expire()
	a.expire()
}

func (a *analysis) expire() {
	for _, w := range a.old {
		switch {
		case w.answer:
			a.Unmatched++
		case !w.done:
			a.Lost++
		}
	}
	a.old, a.young = a.young, a.old
	clear(a.young)
}
