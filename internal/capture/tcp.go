package capture

import "slices"

// streams are the two directions of a TCP connection. Positions are bytes from each SYN.
type streams struct {
	in, out stream
	// outKnown is true once the server's SYN was seen.
	outKnown bool
	// ahead are pieces after missing ones, ascending and disjoint.
	ahead []span
	// baseIn and baseOut are where the current message, or several at once, began.
	baseIn, baseOut int64
	// asked and replied are where the current message ends, and where the next reply begins.
	asked, replied int64
	name           name
}

type stream struct {
	start uint32
	next  int64
}

// position returns the position of a sequence number that is nearest to next.
func (s stream) position(sequence uint32) int64 {
	return s.next + int64(int32(sequence-(s.start+uint32(s.next))))
}

// span is a piece of a stream, from one position up to but not including another.
type span struct{ from, to int64 }

func (m *matcher) segment(p packet) {
	id := m.portsOf(p)
	f := m.flows[id]
	switch {
	case p.flags&tcpSYN != 0 && !p.out:
		if f == nil {
			if f = m.open(id); f == nil {
				return
			}
		} else if f.streams.in.start == p.sequence+1 {
			return // sent again
		}
		f.giveUp(f.pending.length())
		begin := int64(m.Preamble)
		f.streams = &streams{in: stream{start: p.sequence + 1}, baseIn: begin, asked: begin + int64(m.MessageSize)}
	case f == nil:
		// The connection is older than the capture, so it is not known where its messages begin.
	case p.flags&tcpSYN != 0:
		if !f.streams.outKnown {
			f.streams.out.start, f.streams.outKnown = p.sequence+1, true
		}
	case p.payload == 0 || !f.streams.outKnown:
	case p.out:
		f.went(p)
	default:
		f.came(p)
	}
}

func (f *flow) came(p packet) {
	s, size := f.streams, int64(f.MessageSize)
	from := s.in.position(p.sequence)
	to := from + int64(p.payload)
	if to <= s.in.next {
		return // sent again
	}
	if from > s.in.next {
		s.ahead = insert(s.ahead, span{from, to})
		return
	}
	for len(s.ahead) > 0 && s.ahead[0].from <= to {
		to = max(to, s.ahead[0].to)
		s.ahead = slices.Delete(s.ahead, 0, 1)
	}
	f.heard(p.at)
	begin := max(s.in.next, int64(f.Preamble))
	s.in.next = to
	if to <= begin {
		return
	}
	if s.out.next-s.baseOut >= begin-s.baseIn {
		// Everything before was answered: a message begins here, whatever its size.
		f.giveUp(f.pending.length())
		s.baseIn, s.baseOut, s.asked, s.replied = begin, s.out.next, begin+size, s.out.next
	}
	for ; s.asked <= to; s.asked += size {
		n := s.name
		if start := s.asked - size; start >= from {
			n = nameAt(p.head, start-from, f.MessageSize)
		}
		f.request(p.at, n)
	}
	if start := s.asked - size; start >= from {
		s.name = nameAt(p.head, start-from, f.MessageSize)
	}
}

func (f *flow) went(p packet) {
	s, size := f.streams, int64(f.MessageSize)
	from := s.out.position(p.sequence)
	to := from + int64(p.payload)
	if to <= s.out.next {
		return // sent again
	}
	for ; s.replied < to; s.replied += size {
		switch {
		case s.replied < from:
			// The reply began in a packet that was not captured.
			f.giveUp(min(1, f.pending.length()))
		case !f.OpenLoop && s.in.next-s.baseIn != size:
			// The server answers other traffic than a message of this size.
		default:
			f.reply(p.at, nameAt(p.head, s.replied-from, f.MessageSize))
		}
	}
	s.out.next = to
}

func insert(spans []span, added span) []span {
	i, _ := slices.BinarySearchFunc(spans, added.from, func(s span, from int64) int {
		if s.to < from {
			return -1
		}
		return 1
	})
	j := i
	for ; j < len(spans) && spans[j].from <= added.to; j++ {
		added = span{min(added.from, spans[j].from), max(added.to, spans[j].to)}
	}
	return slices.Replace(spans, i, j, added)
}
