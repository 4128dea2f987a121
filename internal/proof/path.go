package proof

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
	tools "github.com/tailgate-dev/tailgate/internal/tool/all"
)

// Way is the way that the messages of a cell took at one end.
type Way string

const (
	Accelerated    Way = "Accelerated" // all messages bypassed the kernel; Onload was present
	NotAccelerated Way = "NotAccelerated"
	Partly         Way = "Partly"
	Repeated       Way = "Repeated" // the kernel carried messages more than once
	Unknown        Way = "Unknown"
)

// CellWay is the judgement of one cell at one end.
type CellWay struct {
	Cell      string
	Way       Way
	Bypassed  float64 // the share past the kernel, 0 to 1, by counters; -1: undecided
	Why       string  // the decisive evidence; Witnesses: all, as parts of sentences
	Witnesses []string
}

// How much the kernel's counters may grow although messages bypass it: name resolution, a packet
// before the neighbour's address is known, a connection reset by a peer.
const (
	strayPackets = 8
	strayBytes   = strayPackets * 1500
)

const (
	// mostStray is the largest share of an accelerated cell's messages through the kernel,
	// leastThrough the smallest of another: below 1, as bandwidth has a rate and a time.
	mostStray      = 0.01
	leastThrough   = 0.95
	segmentHeaders = 40 // bytes of IPv4 and TCP without options
)

// load is what a cell's messages add to one direction's counters through the kernel.
type load struct {
	messages, bytes int64 // messages is 0 for a TCP stream; bytes is their payload
}

func roundTrips(c result.Cell) int64 {
	if c.Own != nil {
		return c.Own.Count
	}
	return c.Histogram.Count + c.Histogram.OverRange
}

// fewPackets is why the kernel cannot have carried a user's messages: a packet may have many.
func fewPackets(c result.Cell, p result.Path) string {
	n, sent := roundTrips(c), p.Grown[result.PathTCPOut]+p.Grown[result.PathUDPOut]
	if n <= 2*strayPackets || sent > strayPackets+n/100 {
		return ""
	}
	return fmt.Sprintf("%s: the kernel sent %d packets, and the program timed %d round trips", c.Name, sent, n)
}

// loads returns the loads of a cell at one end, without the warm-up, so that they are lower bounds.
func loads(c result.Cell, role string) (in, out load) {
	if tools.Limits(v1alpha1.Tool(c.Tool)).Opaque {
		return load{}, load{} // It may send any messages beside those that it times.
	}
	if !c.Stream {
		n := roundTrips(c)
		l := load{n, n * int64(c.MessageSize)}
		return l, l
	}
	if c.Bandwidth == nil {
		return load{}, load{}
	}
	arrived := load{c.Bandwidth.Received, int64(c.Bandwidth.BitsPerSecond / 8 * c.Duration.Seconds())}
	if arrived.messages == 0 && c.Protocol != v1alpha1.ProtocolTCP && c.MessageSize > 0 {
		arrived.messages = arrived.bytes / int64(c.MessageSize)
	}
	if role == v1alpha1.RoleServer {
		return arrived, load{}
	}
	return load{}, arrived
}

type direction struct {
	name string
	load
	kernel          int64 // packets that its stack carried; known: it was read
	known           bool
	through, beyond float64 // shares of messages maybe through the kernel; beyond: without stray
	few             bool    // too few messages to distinguish them from stray packets
	exact           bool    // the tool's own sockets were counted, not those of other processes
}

// ofSockets takes the counters of the tool's sockets, if Onload counted all messages there.
func (d direction) ofSockets(p result.Path, stack, kernel string) direction {
	through, bypassed := p.Grown[kernel], p.Grown[stack]
	if d.messages == 0 || through+bypassed < d.messages {
		return d
	}
	d.exact = true
	d.through, d.beyond, d.few = share(through, d.messages, strayPackets)
	return d
}

// newDirection compares counters with a load. A datagram counts once, in any number of packets. TCP
// may join messages, and the kernel received segments: only a message that waits for its answer has
// its own segment. For others, the payload is compared.
func newDirection(name string, c result.Cell, p result.Path, l load, udp, segments, bytes string) direction {
	d := direction{name: name, load: l}
	if c.Protocol != v1alpha1.ProtocolTCP {
		d.kernel, d.known = p.Grown[udp]
		d.through, d.beyond, d.few = share(d.kernel, l.messages, strayPackets)
		return d
	}
	d.kernel, d.known = p.Grown[segments]
	if !c.Stream {
		d.through, d.beyond, d.few = share(d.kernel, l.messages, strayPackets)
	}
	if c.Stream || c.OpenLoop() {
		octets, ok := p.Grown[bytes]
		d.known = d.known && ok
		through, beyond, few := share(max(0, octets-d.kernel*segmentHeaders), l.bytes, strayBytes)
		d.through, d.beyond = max(d.through, through), max(d.beyond, beyond)
		d.few = few && (c.Stream || d.few)
	}
	return d
}

// share returns the counted share of a load, with and without stray packets, if it is large enough.
func share(counted, load, stray int64) (through, beyond float64, few bool) {
	if load <= 0 {
		return 0, 0, true
	}
	return math.Min(1, float64(counted)/float64(load)), math.Min(1, float64(max(0, counted-stray))/float64(load)), load <= 2*stray
}

func (e endpoint) directions(c result.Cell, p result.Path) []direction {
	in, out := loads(c, e.role)
	both := []direction{
		newDirection("sent", c, p, out, result.PathUDPOut, result.PathTCPOut, result.PathIPOut).
			ofSockets(p, result.PathSocketOut, result.PathSocketKernelOut),
		newDirection("received", c, p, in, result.PathUDPIn, result.PathTCPIn, result.PathIPIn).
			ofSockets(p, result.PathSocketIn, result.PathSocketKernelIn),
	}
	return slices.DeleteFunc(both, func(d direction) bool { return d.load == load{} })
}

func (e endpoint) path(c result.Cell) result.Path { return pathOf(e.own, c) }

func pathOf(of result.Evidence, c result.Cell) result.Path {
	for _, p := range of.Paths {
		if p.Cell == c.Name {
			return p
		}
	}
	return result.Path{Cell: c.Name}
}

// way judges a cell. The kernel's counters decide: what they did not count did not go through it. A
// second witness must show that Onload carried it. The tool's report or a descriptor never decides.
func (e endpoint) way(c result.Cell) CellWay {
	p := e.path(c)
	directions := e.directions(c, p)
	w := CellWay{Cell: c.Name, Way: Unknown, Bypassed: -1, Witnesses: e.witnesses(c, p, directions)}
	if len(directions) == 0 {
		w.Why = "the number of messages is unknown"
		return w
	}
	least, most, few, through, exact := 1.0, 0.0, false, 0.0, true
	for _, d := range directions {
		if !d.known && !d.exact {
			w.Why = "the counters of the kernel could not be read"
			return w
		}
		least, most, few = math.Min(least, d.through), math.Max(most, d.beyond), few || d.few
		through += d.through / float64(len(directions))
		exact = exact && d.exact
	}
	shared, repeated, others := e.network().Type == v1alpha1.NetworkHost && !exact, "", ""
	if !exact {
		repeated, others = e.repeated(c, p), e.others(c, p, directions)
	}
	switch {
	case most <= mostStray && !few:
		w.Bypassed = 1
		e.accelerated(&w, c, p)
	case shared:
		// Others' traffic makes the share past the kernel look smaller, never larger.
		w.Bypassed, w.Why = 1-through, "the counters of the host's network are those of all its processes"
	case others != "" && !few:
		w.Why = others
	case repeated != "":
		w.Way, w.Bypassed, w.Why = Repeated, 0, repeated
	case least >= leastThrough:
		w.Way, w.Bypassed, w.Why = NotAccelerated, 0, "all messages went through the kernel"+e.fragments(c)
	case few:
		w.Why = "too few messages to decide"
	default:
		w.Way, w.Bypassed = Partly, 1-through
		w.Why = fmt.Sprintf("%.0f %% of the messages bypassed the kernel (%s)%s", math.Floor(100*w.Bypassed), perDirection(directions), e.fragments(c))
	}
	if w.Way != Accelerated && p.Said != "" {
		w.Why += "; Onload was not used: " + p.Said
	}
	return w
}

// others describes why the kernel's counters do not decide about Onload: they contain, or may
// contain, other processes' traffic. Datagrams above the MTU reach the stack, then the kernel.
func (e endpoint) others(c result.Cell, p result.Path, directions []direction) string {
	if e.variant.Acceleration.Type != v1alpha1.AccelerationOnload || len(directions) < 2 || e.fragments(c) != "" {
		return ""
	}
	sent, received := directions[0], directions[1]
	const remedy = ", so that other processes have traffic in the network namespace: stop them; with onload_stackdump in the bench image, the server's own sockets are counted"
	if n := sent.messages; n > 0 && p.Grown[result.PathStackOut] >= n && p.Grown[result.PathStackIn] >= n {
		return fmt.Sprintf("the stack sent and received all messages, but the kernel carried packets, too (%d sent, %d received)%s", sent.kernel, received.kernel, remedy)
	}
	local := p.Grown[result.PathLocal]
	if c.Protocol != v1alpha1.ProtocolTCP && local > 0 && sent.through >= leastThrough && float64(sent.kernel-local) < leastThrough*float64(sent.messages) {
		return fmt.Sprintf("%d of the %d datagrams that the kernel sent went over the loopback interface%s", local, sent.kernel, remedy)
	}
	if sent.through < leastThrough && received.through < leastThrough {
		return fmt.Sprintf("the kernel carried some packets (%d sent, %d received): a part of the messages, or the traffic of other processes in the network namespace; "+
			"stop these; with onload_stackdump in the bench image, the server's own sockets are counted", sent.kernel, received.kernel)
	}
	return ""
}

func (e endpoint) accelerated(w *CellWay, c result.Cell, p result.Path) {
	word := e.word(c)
	switch {
	case p.Begun != nil && p.Begun.Library == "":
		w.Why = "the messages bypassed the kernel, but Onload's library was not in the tool's server"
	case word == tool.AccelerationNo || word == tool.AccelerationAbsent:
		w.Why = "the messages bypassed the kernel, but the tool reports that its socket is not one of Onload's"
	case len(e.supporting(c, p)) == 0:
		w.Why = "the messages bypassed the kernel, but there is no evidence of Onload apart from what the tool reports"
	default:
		w.Way, w.Why = Accelerated, "all messages bypassed the kernel"
	}
}

// supporting returns Onload's own evidence. Some drivers' interfaces count packets that bypassed
// the kernel. Numbers are sent and received; the longest texts come last, as lines may be cut.
func (e endpoint) supporting(c result.Cell, p result.Path) []string {
	var all []string
	in, out := loads(c, e.role)
	nicIn, knownIn := p.Grown[result.PathNICIn]
	nicOut, knownOut := p.Grown[result.PathNICOut]
	if knownIn && knownOut && nicIn >= packets(c, in) && nicOut >= packets(c, out) {
		all = append(all, fmt.Sprintf("interface %d/%d", nicOut, nicIn))
	}
	if n := p.Grown[result.PathSocketIn] + p.Grown[result.PathSocketOut]; n > 0 && n >= in.messages+out.messages-p.Grown[result.PathSocketKernelIn]-p.Grown[result.PathSocketKernelOut] {
		all = append(all, fmt.Sprintf("sockets of the stack %d/%d", p.Grown[result.PathSocketOut], p.Grown[result.PathSocketIn]))
	}
	stackIn := p.Grown[result.PathStackIn]
	if stackIn > 0 && stackIn >= packets(c, in)/2 {
		all = append(all, fmt.Sprintf("stack %d/%d", p.Grown[result.PathStackOut], stackIn))
	}
	if p.Ended != nil && p.Ended.Onload > 0 {
		all = append(all, fmt.Sprintf("%d of %d sockets Onload's at the end", p.Ended.Onload, p.Ended.Sockets))
	}
	if p.Banner != "" {
		all = append(all, "banner "+p.Banner)
	}
	if p.Begun != nil && p.Begun.Library != "" {
		all = append(all, "library "+p.Begun.Library)
	}
	return all
}

// packets returns the smallest number of packets of a load at the interface.
func packets(c result.Cell, l load) int64 {
	if c.Protocol == v1alpha1.ProtocolTCP && (c.Stream || c.OpenLoop()) {
		return l.bytes >> 16
	}
	return l.messages
}

func (e endpoint) witnesses(c result.Cell, p result.Path, directions []direction) []string {
	var kernel []string
	for _, d := range directions {
		if d.known {
			kernel = append(kernel, fmt.Sprintf("%d %s", d.kernel, d.name))
		}
	}
	var all []string
	if len(kernel) > 0 {
		of := fmt.Sprintf("%d messages", directions[0].messages)
		if directions[0].messages == 0 {
			of = fmt.Sprintf("%d bytes", directions[0].bytes)
		}
		all = append(all, "kernel "+strings.Join(kernel, ", ")+" of "+of)
	}
	if word := e.word(c); word != "" {
		all = append(all, "the tool reports "+string(word))
	}
	if p.Begun != nil && p.Begun.Library == "" {
		all = append(all, "no library in the tool's server")
	}
	return append(all, e.supporting(c, p)...)
}

func perDirection(directions []direction) string {
	return strings.Join(text.Of(directions, func(d direction) string { return fmt.Sprintf("%s %.0f %%", d.name, math.Floor(100*(1-d.through))) }), ", ")
}

func (e endpoint) fragments(c result.Cell) string {
	if c.Protocol == v1alpha1.ProtocolTCP || c.MessageSize <= e.own.MTU-tool.DatagramHeaders {
		return ""
	}
	return fmt.Sprintf("; datagrams of %d bytes need several packets of MTU %d, which Onload does not receive itself", c.MessageSize, e.own.MTU)
}
