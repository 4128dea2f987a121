package proof

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// recorded is a cell that was measured with a real Onload, over AF_XDP in an emulated machine, or with the kernel for
// comparison: what the agents of both ends recorded, and which way the messages went by the counters of Onload's stacks. The
// tests in test/lab/onload print recordings if LAB_RECORD is set.
type recorded struct {
	Name, Truth string
	Protocol    v1alpha1.Protocol
	MessageSize int32
	Count       int64
	Client      recordedEnd
	Server      recordedEnd
	Want        map[string]Way
	// Bypassed is the expected share of a cell that is partly accelerated. Kernel is the state of the line if the kernel was
	// requested; all other recordings requested Onload.
	Bypassed float64
	Kernel   v1alpha1.ProofState
}

type recordedEnd struct {
	result.Path
	Word tool.Acceleration
}

func recordings(t *testing.T) []recorded {
	t.Helper()
	data, err := os.ReadFile("testdata/onload.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []recorded
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// world returns a run with only the recorded cell.
func (r recorded) world() *world {
	return good(func(w *world) {
		if r.Kernel == "" {
			withOnload(w)
		}
		r.Client.Cell, r.Server.Cell = "cell", "cell"
		c := cellOf("cell", r.Protocol)
		c.MessageSize, c.Histogram.Count = r.MessageSize, r.Count
		c.Accelerated = tool.Accelerated{Client: r.Client.Word, Server: r.Server.Word}
		w.run.Client.Cells = []result.Cell{c}
		w.client().Paths, w.server().Paths = []result.Path{r.Client.Path}, []result.Path{r.Server.Path}
		w.client().MTU, w.server().MTU = 1500, 1500
	})
}

func (w *world) ways() (client, server CellWay) {
	ends := endpoints(w.spec, w.variant(), w.run)
	c, s := ends[0].ways(), ends[1].ways()
	return c[0], s[0]
}

// TestRecordings checks that every recording is judged as it really was.
func TestRecordings(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.Name, func(t *testing.T) {
			w := r.world()
			client, server := w.ways()
			clientLines, serverLines := Endpoints(w.spec, w.variant(), w.run)
			for role, got := range map[string]struct {
				way  CellWay
				line v1alpha1.ProofLine
			}{"client": {client, lineOf(clientLines, "Acceleration")}, "server": {server, lineOf(serverLines, "Acceleration")}} {
				if got.way.Way != r.Want[role] {
					t.Errorf("%s: %s, want %s: %s", role, got.way.Way, r.Want[role], got.way.inCell())
				}
				if got.way.Way == Partly && got.way.Bypassed != r.Bypassed {
					t.Errorf("%s: %g bypassed the kernel, want %g", role, got.way.Bypassed, r.Bypassed)
				}
				state := r.Kernel
				if state == "" {
					state = map[Way]v1alpha1.ProofState{Accelerated: isProved, NotAccelerated: isFailed, Partly: isFailed}[r.Want[role]]
				}
				if got.line.State != state {
					t.Errorf("%s: %s, want %s: %s", role, got.line.State, state, got.line.Found)
				}
			}
		})
	}
}

// recordedAs returns a recording by its name.
func recordedAs(t *testing.T, name string) recorded {
	t.Helper()
	for _, r := range recordings(t) {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no recording %q", name)
	return recorded{}
}

// TestWitnesses removes or reverses each witness, and checks that the outcome changes where it must, and only there.
func TestWitnesses(t *testing.T) {
	const (
		udp    = "pinger UDP"
		tcp    = "sockperf TCP"
		kernel = "kernel"
		past   = "unregistered NIC, sockperf multicast"
	)
	grown := func(name string, n int64) func(*world) {
		return func(w *world) { w.server().Paths[0].Grown[name] = n }
	}
	without := func(names ...string) func(*world) {
		return func(w *world) {
			for _, name := range names {
				delete(w.server().Paths[0].Grown, name)
			}
		}
	}
	path := func(change func(*result.Path)) func(*world) {
		return func(w *world) { change(&w.server().Paths[0]) }
	}
	word := func(said tool.Acceleration) func(*world) {
		return func(w *world) { w.run.Client.Cells[0].Accelerated.Server = said }
	}
	uncounted := path(func(p *result.Path) { p.Begun, p.Ended, p.Banner = nil, nil, "" })
	alone := all(uncounted, without(result.PathNICIn, result.PathNICOut, result.PathStackIn, result.PathStackOut))
	noStack := without(result.PathStackIn, result.PathStackOut)
	// sockets are the packets of the server's sockets, and noise those of other processes, over the loopback interface.
	sockets := func(stackIn, stackOut, kernelIn, kernelOut int64) func(*world) {
		return all(grown(result.PathSocketIn, stackIn), grown(result.PathSocketOut, stackOut), grown(result.PathSocketKernelIn, kernelIn), grown(result.PathSocketKernelOut, kernelOut))
	}
	noise := func(n int64) func(*world) {
		return all(grown(result.PathUDPIn, n), grown(result.PathUDPOut, n), grown(result.PathLocal, n))
	}
	fragments := func(w *world) { w.run.Client.Cells[0].MessageSize = 2000 }
	host := func(w *world) {
		w.spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkHost, Host: &v1alpha1.HostNetwork{Interface: "net1"}}
	}
	cases := map[string]struct {
		recording string
		change    func(*world)
		want      Way
		state     v1alpha1.ProofState
		why       string
	}{
		"as recorded":                            {udp, func(*world) {}, Accelerated, isProved, ""},
		"datagrams in by the kernel":             {udp, all(noStack, grown(result.PathUDPIn, 276)), Partly, isFailed, "50 % of the messages bypassed the kernel (sent 100 %, received 0 %)"},
		"datagrams out by the kernel":            {udp, all(noStack, grown(result.PathUDPOut, 272)), Partly, isFailed, "(sent 0 %, received 100 %)"},
		"datagrams both ways by the kernel":      {udp, all(noStack, grown(result.PathUDPIn, 276), grown(result.PathUDPOut, 272)), NotAccelerated, isFailed, "all messages went through the kernel"},
		"some datagrams by the kernel":           {udp, all(noStack, grown(result.PathUDPIn, 24), grown(result.PathUDPOut, 24)), Unknown, isUnknown, "a part of the messages, or the traffic of other processes"},
		"stray datagrams":                        {udp, all(grown(result.PathUDPIn, 8), grown(result.PathUDPOut, 8)), Accelerated, isProved, ""},
		"datagrams of the kernel not counted":    {udp, without(result.PathUDPIn), Unknown, isUnknown, "could not be read"},
		"segments in by the kernel":              {tcp, all(noStack, grown(result.PathTCPIn, 171), grown(result.PathTCPOut, 167)), NotAccelerated, isFailed, "all messages"},
		"segments of the kernel not counted":     {tcp, without(result.PathTCPOut), Unknown, isUnknown, "could not be read"},
		"segments of UDP's control connection":   {udp, all(grown(result.PathTCPIn, 500), grown(result.PathTCPOut, 500)), Accelerated, isProved, ""},
		"only the interface beside the counters": {udp, all(uncounted, without(result.PathStackIn), word("")), Accelerated, isProved, "interface 234/232"},
		"an interface that counted too few":      {udp, all(uncounted, without(result.PathStackIn), grown(result.PathNICIn, 100)), Unknown, isUnknown, "no evidence of Onload"},
		"an interface that sent too few":         {udp, all(uncounted, without(result.PathStackIn), grown(result.PathNICOut, 50)), Unknown, isUnknown, "no evidence of Onload"},
		"only the stack beside the counters":     {udp, all(uncounted, without(result.PathNICIn, result.PathNICOut)), Accelerated, isProved, "stack 228/232"},
		"a stack that received nothing":          {udp, all(uncounted, without(result.PathNICIn), grown(result.PathStackIn, 0)), Unknown, isUnknown, "no evidence of Onload"},
		"a stack that received a few":            {udp, all(uncounted, without(result.PathNICIn), grown(result.PathStackIn, 50)), Unknown, isUnknown, "no evidence of Onload"},
		"only sockets of the kernel beside them": {udp, all(alone, path(func(p *result.Path) { p.Ended = &result.Look{Sockets: 2} })), Unknown, isUnknown, "no evidence of Onload"},
		"messages out of the histogram's range": {udp, all(grown(result.PathUDPIn, 200), grown(result.PathUDPOut, 200), func(w *world) {
			w.run.Client.Cells[0].Histogram.Count, w.run.Client.Cells[0].Histogram.OverRange = 200, 1800
		}), Unknown, isUnknown, "received of 2000 messages"},
		"messages that the tool itself counted": {udp, all(grown(result.PathUDPIn, 200), grown(result.PathUDPOut, 200), func(w *world) {
			w.run.Client.Cells[0].Own = &tool.Own{Count: 2000}
		}), Unknown, isUnknown, "received of 2000 messages"},
		"only the library beside the counters":    {udp, all(alone, path(func(p *result.Path) { p.Begun = &result.Look{Library: "/l/libonload.so"} })), Accelerated, isProved, "library /l/libonload.so"},
		"only the banner beside the counters":     {udp, all(alone, path(func(p *result.Path) { p.Banner = "9.0.2" })), Accelerated, isProved, "banner 9.0.2"},
		"only a descriptor beside the counters":   {udp, all(alone, path(func(p *result.Path) { p.Ended = &result.Look{Sockets: 2, Onload: 1} })), Accelerated, isProved, "1 of 2 sockets Onload's"},
		"only the tool's word beside them":        {udp, all(alone, word("Yes")), Unknown, isUnknown, "no evidence of Onload"},
		"the counters alone":                      {udp, all(alone, word("")), Unknown, isUnknown, "no evidence of Onload"},
		"a server without the library":            {udp, path(func(p *result.Path) { p.Begun.Library = "" }), Unknown, isUnknown, "library was not in the tool's server"},
		"the tool says no":                        {udp, word("No"), Unknown, isUnknown, "its socket is not one of Onload's"},
		"the tool sees no Onload":                 {udp, word("Absent"), Unknown, isUnknown, "its socket is not one of Onload's"},
		"the tool says nothing":                   {udp, word(""), Accelerated, isProved, ""},
		"nothing was recorded":                    {udp, func(w *world) { w.server().Paths = nil }, Unknown, isUnknown, "could not be read"},
		"no messages":                             {udp, func(w *world) { w.run.Client.Cells[0].Histogram.Count = 0 }, Unknown, isUnknown, "the number of messages is unknown"},
		"too few messages":                        {udp, func(w *world) { w.run.Client.Cells[0].Histogram.Count = 16 }, Unknown, isUnknown, "too few messages"},
		"the host's network, and nothing counted": {udp, host, Accelerated, isProved, ""},
		"the host's network, and all counted":     {past, host, Unknown, isUnknown, "those of all its processes"},
		"every witness says yes, but the kernel counts": {past, all(word("Yes"), grown(result.PathStackIn, 500), path(func(p *result.Path) { p.Ended = &result.Look{Library: "l", Sockets: 1, Onload: 1} })),
			NotAccelerated, isFailed, "all messages went through the kernel"},
		"noise, the stack carried all":              {udp, noise(60), Unknown, isUnknown, "the stack sent and received all messages, but the kernel carried packets, too (60 sent, 60 received)"},
		"noise for more than the messages":          {udp, noise(670), Unknown, isUnknown, "stop them"},
		"noise over lo, and no stack is seen":       {udp, all(noStack, noise(670)), Unknown, isUnknown, "670 of the 670 datagrams that the kernel sent went over the loopback interface"},
		"noise over lo beside the kernel's":         {udp, all(noStack, noise(670), grown(result.PathUDPOut, 670+187), grown(result.PathUDPIn, 670+187)), Repeated, isFailed, "loopback interface"},
		"noise, and the server's own sockets":       {udp, all(noise(670), sockets(232, 228, 0, 0)), Accelerated, isProved, "sockets of the stack 228/232"},
		"noise in the host's network":               {udp, all(host, noise(670)), Unknown, isUnknown, "those of all its processes"},
		"noise there, and the server's own sockets": {udp, all(host, noise(670), sockets(232, 228, 0, 0)), Accelerated, isProved, ""},
		"sockets of the host's by the kernel":       {udp, all(host, noise(670), sockets(0, 0, 232, 228)), NotAccelerated, isFailed, "all messages went through the kernel"},
		"sockets that receive by the kernel":        {udp, all(sockets(0, 228, 232, 0)), Partly, isFailed, "(sent 100 %, received 0 %)"},
		"fragments, which the kernel receives":      {udp, all(fragments, grown(result.PathUDPIn, 276)), Partly, isFailed, "several packets"},
		"sockets of another purpose":                {udp, all(host, noise(670), sockets(20, 20, 0, 0)), Unknown, isUnknown, "those of all its processes"},

		"Kernel, as recorded":                 {kernel, func(*world) {}, NotAccelerated, isProved, ""},
		"Kernel, messages bypass it":          {kernel, all(grown(result.PathUDPIn, 0), grown(result.PathUDPOut, 0)), Unknown, isFailed, "library was not in the tool's server"},
		"Kernel, some messages bypass it":     {kernel, grown(result.PathUDPIn, 200), Partly, isFailed, "of the messages bypassed the kernel"},
		"Kernel, not counted":                 {kernel, without(result.PathUDPOut), Unknown, isUnknown, "could not be read"},
		"Kernel, the library in the server":   {kernel, path(func(p *result.Path) { p.Begun.Library = "/l/libonload.so" }), NotAccelerated, isFailed, ""},
		"Kernel, the library at the end":      {kernel, path(func(p *result.Path) { p.Ended.Library = "/l/libonload.so" }), NotAccelerated, isFailed, ""},
		"Kernel, a socket of Onload":          {kernel, path(func(p *result.Path) { p.Ended.Onload = 1 }), NotAccelerated, isFailed, ""},
		"Kernel, a banner":                    {kernel, path(func(p *result.Path) { p.Banner = "9.0.2" }), NotAccelerated, isFailed, ""},
		"Kernel, the tool says yes":           {kernel, word("Yes"), NotAccelerated, isFailed, ""},
		"Kernel, the tool says no":            {kernel, word("No"), NotAccelerated, isFailed, ""},
		"Kernel, the tool says nothing":       {kernel, word(""), NotAccelerated, isProved, ""},
		"Kernel, a preload file":              {kernel, func(w *world) { w.server().Facts["onload.preload-file"] = "/l/libonload.so" }, NotAccelerated, isFailed, ""},
		"Kernel, a library of each process":   {kernel, func(w *world) { w.server().Facts["preload-file"] = "/usr/local/vgpu/libvgpu.so" }, NotAccelerated, isUnknown, ""},
		"Kernel, a library that audits":       {kernel, func(w *world) { w.server().Facts["env.LD_AUDIT"] = "libaudit.so" }, NotAccelerated, isUnknown, ""},
		"Kernel, another library":             {kernel, func(w *world) { w.server().Facts["env.LD_PRELOAD"] = "libvma.so" }, NotAccelerated, isUnknown, ""},
		"Kernel in the host's network":        {kernel, host, Unknown, isProved, ""},
		"Kernel in the host's, bypassed":      {kernel, all(host, grown(result.PathUDPIn, 0)), Unknown, isFailed, ""},
		"Kernel in the host's, not recorded":  {kernel, all(host, func(w *world) { w.server().Paths = nil }), Unknown, isUnknown, "could not be read"},
		"Kernel in the host's, not countable": {kernel, all(host, without(result.PathUDPIn)), Unknown, isProved, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := recordedAs(t, c.recording).world()
			c.change(w)
			_, server := w.ways()
			_, lines := Endpoints(w.spec, w.variant(), w.run)
			line := lineOf(lines, "Acceleration")
			if server.Way != c.want || line.State != c.state {
				t.Errorf("%s and %s, want %s and %s: %s", server.Way, line.State, c.want, c.state, line.Found)
			}
			if !strings.Contains(server.inCell(), c.why) {
				t.Errorf("%q does not say %q", server.inCell(), c.why)
			}
		})
	}
}

// A share that equals a limit is on the side that the limit's name says: at most mostStray is stray, and at least leastThrough is all.
func TestLimitsOfShares(t *testing.T) {
	for name, c := range map[string]struct {
		// in and out are the datagrams, of 1000, that the server's kernel counted; local of those it sent went over loopback.
		in, out, local int64
		stackIn        int64 // and stackOut are what Onload's stacks counted
		stackOut       int64
		want           Way
		why            string
	}{
		"as many as may be stray":                {strayPackets + 10, strayPackets + 10, 0, 1000, 1000, Accelerated, ""},
		"one more than may be stray":             {strayPackets + 11, strayPackets + 10, 0, 1000, 1000, Unknown, "the stack sent and received all messages"},
		"the stack received one less":            {500, 500, 0, 999, 1000, Unknown, "a part of the messages, or the traffic of other processes"},
		"the stack sent one less":                {500, 500, 0, 1000, 999, Unknown, "a part of the messages, or the traffic of other processes"},
		"as many as are all":                     {950, 950, 0, 0, 0, NotAccelerated, "all messages went through the kernel"},
		"one received less than all":             {949, 950, 0, 0, 0, Partly, "5 % of the messages bypassed the kernel"},
		"all were sent, and a part received":     {500, 950, 0, 0, 0, Partly, "(sent 5 %, received 50 %)"},
		"all were received, and a part sent":     {950, 500, 0, 0, 0, Partly, "(sent 50 %, received 5 %)"},
		"all, of which some went over loopback":  {950, 950, 100, 0, 0, Unknown, "100 of the 950 datagrams that the kernel sent went over the loopback interface"},
		"the rest without loopback is still all": {1000, 1000, 50, 0, 0, NotAccelerated, "all messages went through the kernel"},
		"the rest without loopback is one less":  {1000, 1000, 51, 0, 0, Unknown, "51 of the 1000 datagrams"},
	} {
		t.Run(name, func(t *testing.T) {
			w := good(withOnload, func(w *world) {
				w.run.Client.Cells = []result.Cell{cellOf("cell", v1alpha1.ProtocolUDP)}
				w.server().Paths = []result.Path{{Cell: "cell", Banner: "9.0.2", Grown: map[string]int64{
					result.PathUDPIn: c.in, result.PathUDPOut: c.out, result.PathLocal: c.local, result.PathStackIn: c.stackIn, result.PathStackOut: c.stackOut,
				}}}
			})
			if _, server := w.ways(); server.Way != c.want || !strings.Contains(server.Why, c.why) {
				t.Errorf("%s, %q; want %s, %q", server.Way, server.Why, c.want, c.why)
			}
		})
	}
}

// TestStreams: the payload is compared for messages that do not wait for an answer, because TCP and the kernel join them; for a
// stream, only in the direction in which it flows.
func TestStreams(t *testing.T) {
	const seconds = 2
	tcp := func(rate int32, stream bool, size int32) result.Cell {
		c := cellOf("cell", v1alpha1.ProtocolTCP)
		c.RatePerSecond, c.Stream, c.MessageSize, c.Duration = rate, stream, size, seconds*time.Second
		if stream {
			c.Histogram.Count, c.Bandwidth = 0, &tool.Bandwidth{BitsPerSecond: 8e6 / seconds}
		}
		return c
	}
	datagrams := cellOf("cell", v1alpha1.ProtocolUDP)
	datagrams.Stream, datagrams.Histogram.Count = true, 0
	datagrams.Bandwidth = &tool.Bandwidth{Sent: 2000, Received: 1000}
	grown := func(in, out, inBytes, outBytes int64) map[string]int64 {
		return map[string]int64{result.PathTCPIn: in, result.PathTCPOut: out, result.PathIPIn: inBytes, result.PathIPOut: outBytes, result.PathUDPIn: in, result.PathUDPOut: out}
	}
	cases := map[string]struct {
		cell  result.Cell
		grown map[string]int64
		// client and server are the shares that may have gone through the kernel, in percent; -1 if unknown.
		client, server int64
	}{
		"a stream by Onload":                      {tcp(0, true, 65536), grown(4, 4, 600, 600), 0, 0},
		"a stream by the kernel, its server":      {tcp(0, true, 65536), grown(20, 350, 1_000_800, 18_200), 0, 100},
		"a stream by the kernel, its client":      {tcp(0, true, 65536), grown(350, 700, 18_200, 1_002_000), 100, 0},
		"a stream too small to tell":              {func() result.Cell { c := tcp(0, true, 64); c.Bandwidth.BitsPerSecond = 8000; return c }(), grown(4, 4, 600, 600), -1, -1},
		"a stream of which no bytes were counted": {tcp(0, true, 65536), map[string]int64{result.PathTCPIn: 4, result.PathTCPOut: 4}, -1, -1},
		"a rate by Onload":                        {tcp(1000, false, 64), grown(4, 4, 600, 600), 0, 0},
		"a rate by the kernel":                    {tcp(1000, false, 64), grown(1000, 1000, 116_000, 116_000), 100, 100},
		"a rate by the kernel, joined by the NIC": {tcp(1000, false, 1000), grown(40, 700, 1_002_000, 1_035_000), 100, 100},
		"datagrams that only the client reports":  {datagrams, grown(1000, 0, 0, 0), 0, 100},
		"datagrams that its own queue dropped":    {datagrams, grown(0, 1000, 0, 0), 100, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := good(withOnload, func(w *world) {
				w.run.Client.Cells = []result.Cell{c.cell}
				for _, e := range []*result.Evidence{w.client(), w.server()} {
					e.Paths = []result.Path{{Cell: "cell", Grown: c.grown, Banner: "9.0.2"}}
				}
			})
			client, server := w.ways()
			for role, got := range map[string]struct {
				way  CellWay
				want int64
			}{"client": {client, c.client}, "server": {server, c.server}} {
				through := int64(100 - 100*got.way.Bypassed + 0.5)
				if got.way.Bypassed < 0 {
					through = -1
				}
				if through != got.want {
					t.Errorf("%s: %d %% through the kernel, want %d %%: %s", role, through, got.want, got.way.inCell())
				}
			}
		})
	}
}
