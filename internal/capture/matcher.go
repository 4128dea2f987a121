package capture

import (
	"errors"
	"fmt"
	"maps"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const (
	mostFlows = 1024
	// mostPending bounds the requests of a flow without reply: 45 s at 23,000 a second.
	mostPending = 1 << 20
	// enough is the number of answered messages after which a flow is taken to carry the messages.
	enough = 256
	// dominance is the factor by which it must have more of them than any other flow in the end.
	dominance = 10
)

// matcher pairs requests with their replies, from the packets in the order of their capture.
type matcher struct {
	Traffic
	// record takes the samples, in ns.
	record func(ns int64)
	result Result
	flows  map[ports]*flow
	// chosen is the flow with the messages, once known: only its samples are recorded.
	chosen    *flow
	fragments fragments
}

type ports struct{ client, server uint16 }

func newMatcher(t Traffic, record func(ns int64)) *matcher {
	return &matcher{Traffic: t, record: record, flows: map[ports]*flow{}}
}

// packet takes a packet: b was kept of wire bytes; late: its time was taken late.
func (m *matcher) packet(at int64, out, late bool, b []byte, wire int) {
	p, err := parse(b, wire)
	if err != nil {
		if errors.Is(err, errTruncated) {
			m.result.Truncated++
		}
		return
	}
	p.at, p.out = at, out
	if !m.wants(p) {
		return
	}
	m.result.Packets++
	if late {
		m.result.Late++
	}
	if m.Protocol == v1alpha1.ProtocolTCP {
		m.segment(p)
		return
	}
	if p.fragment != nil {
		// A request arrived when its last fragment did; a reply left when its first fragment did.
		whole := false
		if p, whole = m.fragments.join(p); !whole {
			return
		}
	}
	m.datagram(p)
}

func (m *matcher) wants(p packet) bool {
	from, to, serverPort := m.Client, m.Server, p.targetPort
	if p.out {
		from, to, serverPort = to, from, p.sourcePort
	}
	if p.source != from || (p.target != to && !(m.Protocol == v1alpha1.ProtocolMulticast && p.target.IsMulticast())) {
		return false
	}
	if p.fragment != nil && p.fragment.offset > 0 {
		return p.protocol == m.transport()
	}
	return p.protocol == m.transport() && (m.ExceptPort == 0 || serverPort != m.ExceptPort)
}

func (t Traffic) transport() uint8 {
	if t.Protocol == v1alpha1.ProtocolTCP {
		return ipTCP
	}
	return ipUDP
}

func (m *matcher) portsOf(p packet) ports {
	switch {
	case m.Protocol == v1alpha1.ProtocolMulticast:
		return ports{} // the two directions of a group have no port in common
	case p.out:
		return ports{client: p.targetPort, server: p.sourcePort}
	default:
		return ports{client: p.sourcePort, server: p.targetPort}
	}
}

func (m *matcher) open(id ports) *flow {
	if len(m.flows) >= mostFlows {
		maps.DeleteFunc(m.flows, func(_ ports, f *flow) bool { return f.answered == 0 })
	}
	if len(m.flows) >= mostFlows {
		return nil
	}
	f := &flow{matcher: m, ports: id}
	m.flows[id] = f
	return f
}

func (m *matcher) datagram(p packet) {
	id := m.portsOf(p)
	f := m.flows[id]
	if f == nil && !p.out {
		f = m.open(id)
	}
	if f == nil {
		return
	}
	if !p.out {
		f.heard(p.at)
	}
	if p.payload != m.MessageSize {
		return // other traffic of the tool
	}
	name := nameAt(p.head, 0, m.MessageSize)
	if p.out {
		f.reply(p.at, name)
		return
	}
	if !m.OpenLoop && f.indistinct(name) {
		// In a closed loop, a new request means that the client gave up the last one.
		f.giveUp(f.pending.length())
	}
	f.request(p.at, name)
}

func (m *matcher) finish() (Result, error) {
	most := &flow{matcher: m}
	for _, f := range m.flows {
		f.giveUp(f.pending.length())
		if f.answered > most.answered || (f.answered == most.answered && f.requests > most.requests) {
			most = f
		}
	}
	if m.chosen == nil {
		most.choose()
	}
	r, best := m.result, m.chosen
	r.ClientPort, r.ServerPort = best.ports.client, best.ports.server
	r.Requests, r.WarmUp, r.Matched, r.Unanswered = best.requests, best.warmUp, best.matched, best.unanswered
	r.Stray, r.ByOrder, r.Backwards = best.stray, best.byOrder, best.backwards
	if err := r.err(); err != nil {
		return r, err
	}
	for _, f := range m.flows {
		if f != best && f.answered*dominance > best.answered {
			return r, fmt.Errorf("%d messages of %d bytes were answered between ports %d and %d, and %d between %d and %d: "+
				"the measured ones cannot be identified", best.answered, m.MessageSize, best.ports.client,
				best.ports.server, f.answered, f.ports.client, f.ports.server)
		}
	}
	return r, nil
}

type flow struct {
	*matcher
	ports   ports
	streams *streams // TCP only

	// pending holds the requests without a reply, oldest first.
	pending queue
	// begin is when the first bytes of the client arrived, if begun.
	begin int64
	begun bool
	// repeats: a reply repeated its request. skips: one came before earlier replies.
	repeats, skips bool
	// early holds the samples from before a flow was chosen.
	early []int64

	// answered counts the replies that were matched to their requests. See Result for the others.
	answered, requests, warmUp, matched, unanswered, stray, byOrder, backwards int64
}

// name identifies a message by its first bytes.
type name struct {
	bytes uint64
	// known is false if they were not captured.
	known bool
}

// nameAt names the message at an offset in a payload, of which head was captured.
func nameAt(head []byte, offset int64, size int) name {
	length := int64(min(8, size))
	if offset+length > int64(len(head)) {
		return name{}
	}
	n := name{known: true}
	for _, b := range head[offset : offset+length] {
		n.bytes = n.bytes<<8 | uint64(b)
	}
	return n
}

type pending struct {
	at   int64
	name name
}

func (f *flow) heard(at int64) {
	if !f.begun {
		f.begin, f.begun = at, true
	}
}

func (f *flow) request(at int64, n name) {
	f.requests++
	if f.pending.length() == mostPending {
		f.giveUp(1)
	}
	f.pending.push(pending{at: at, name: n})
}

// indistinct reports whether a reply could be mistaken for one to an earlier request.
func (f *flow) indistinct(n name) bool {
	for _, p := range f.pending.all() {
		if p.name == n || !f.repeats {
			return true
		}
	}
	return false
}

func (f *flow) giveUp(n int) {
	for range n {
		if f.inWarmUp(f.pending.pop()) {
			f.warmUp++
		} else {
			f.unanswered++
		}
	}
}

func (f *flow) inWarmUp(p pending) bool { return p.at-f.begin < int64(f.Warmup) }

func (f *flow) reply(at int64, n name) {
	if f.pending.length() == 0 {
		f.stray++
		return
	}
	overtaken, found := f.find(n)
	switch {
	case found:
		f.repeats = true
		f.skips = f.skips || overtaken > 0
		f.giveUp(overtaken)
	case f.skips || (f.repeats && n.known && f.pending.all()[0].name.known):
		// Not every request is answered, or this reply does not answer the oldest request.
		f.stray++
		return
	default:
		f.byOrder++
	}
	asked := f.pending.pop()
	f.answered++
	latency := at - asked.at
	switch {
	case f.inWarmUp(asked):
		f.warmUp++
	case latency < 0:
		f.backwards++
		f.unanswered++
	default:
		f.matched++
		f.sample(latency)
	}
	if f.answered == enough && f.chosen == nil {
		f.choose()
	}
}

// find returns how many requests are older than the oldest of a name. If every request is answered,
// it does not pass one without a known name, which may be the one.
func (f *flow) find(n name) (int, bool) {
	if !n.known {
		return 0, false
	}
	for i, p := range f.pending.all() {
		if !p.name.known && !f.skips {
			return 0, false
		}
		if p.name == n {
			return i, true
		}
	}
	return 0, false
}

func (f *flow) sample(ns int64) {
	switch f.chosen {
	case f:
		f.record(ns)
	case nil:
		f.early = append(f.early, ns)
	}
}

func (f *flow) choose() {
	f.chosen = f
	for _, ns := range f.early {
		f.record(ns)
	}
	f.early = nil
}

type queue struct {
	items []pending
	head  int
}

func (q *queue) length() int    { return len(q.items) - q.head }
func (q *queue) all() []pending { return q.items[q.head:] }

func (q *queue) push(p pending) {
	if q.head > len(q.items)/2 && len(q.items) == cap(q.items) {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, p)
}

func (q *queue) pop() pending {
	p := q.items[q.head]
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return p
}
