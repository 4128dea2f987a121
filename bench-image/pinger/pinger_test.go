package pinger_test

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/test/pinger"
)

func TestUnits(t *testing.T) {
	if out, err := command(unitTest, t.TempDir()).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCells runs every protocol, polling and blocking, closed and open, smallest and largest, with the sanitizers.
func TestCells(t *testing.T) {
	for protocol, largest := range map[string]string{"tcp": "65536", "udp": "65507", "multicast": "65507"} {
		for _, spin := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, spin %v", protocol, spin), func(t *testing.T) {
				skipUnknown(t, protocol)
				args := clientArgs("", "--protocol", protocol, "--sizes", "1,2,3000,"+largest, "--rates", "0,100", "--duration", "120ms", "--warmup", "20ms",
					"--interval", "1ms", "--local", "127.0.0.1")
				var serverArgs []string
				if spin {
					args, serverArgs = append(args, "--spin"), []string{"--spin"}
				}
				_, port := serve(t, sanitized, nil, serverArgs...)
				args[slices.Index(args, "--port")+1] = port
				r := wantResult(t, start(t, sanitized, nil, args...), 8)
				for i, c := range r.Cells {
					want := fmt.Sprintf("%s %d %v", protocol, []int{1, 2, 3000, map[string]int{"tcp": 65536, "udp": 65507, "multicast": 65507}[protocol]}[i/2], spin)
					if got := fmt.Sprintf("%s %d %v", c.Protocol, c.Size, c.Spin); got != want || c.Loop != []string{"closed", "open"}[i%2] {
						t.Errorf("cell %d is %s, %s; want %s", i, got, c.Loop, want)
					}
					if c.Loop == "open" && c.Sent != 12 {
						t.Errorf("%d sent at 100 a second in 120 ms", c.Sent)
					}
					if c.Client.Accelerated != "absent" || c.Server.Accelerated != "absent" || c.Server.Served < c.Received {
						t.Errorf("endpoints %+v, %+v", c.Client, c.Server)
					}
				}
			})
		}
	}
}

// At a rate, a client that blocks is woken late by its timer. This is not latency, up to 100 µs a message; all other lateness is, and all
// of that of a client that polls.
func TestWokenLate(t *testing.T) {
	for _, wait := range []string{"--block", "--spin"} {
		t.Run(wait, func(t *testing.T) {
			_, port := serve(t, program, nil, wait)
			r := wantResult(t, start(t, program, nil, clientArgs(port, wait, "--protocol", "udp", "--sizes", "64", "--rates", "200", "--duration", "500ms", "--loss-after", "30s")...), 1)
			c := r.Cells[0]
			// The tool counts the lateness of a message plus one ns. The times are rounded to whole ns.
			late, counted := c.Lateness.Sum-float64(c.Lateness.Count), c.Intended.Sum-c.RTT.Sum
			n := float64(c.Received)
			if own := late - counted; wait == "--spin" && (own < -2*n || own > 2*n) || wait == "--block" && (own < 10*n || own > 100_002*n) {
				t.Errorf("%s: %.0f messages were late by %.0f ns together, of which %.0f count", wait, n, late, counted)
			}
		})
	}
}

func TestClocks(t *testing.T) {
	if emulated {
		_, port := serve(t, program, nil)
		r := wantResult(t, start(t, program, nil, clientArgs(port, "--protocol", "tcp", "--sizes", "64", "--duration", "50ms", "--warmup", "0s")...), 1)
		if r.Clock.Source != "cntvct" || r.Cells[0].Client.Clock != "cntvct" || r.Cells[0].Server.Clock != "cntvct" {
			t.Errorf("clock %+v, %+v", r.Clock, r.Cells[0].Client)
		}
	}
	_, port := serve(t, program, nil, "--clock", "monotonic")
	for range 2 { // one server serves many clients
		r := wantResult(t, start(t, program, nil, clientArgs(port, "--protocol", "tcp", "--sizes", "64", "--duration", "50ms", "--warmup", "0s", "--clock", "monotonic")...), 1)
		if r.Clock.Source != "monotonic" || r.Cells[0].Client.Clock != "monotonic" || r.Cells[0].Server.Clock != "monotonic" {
			t.Errorf("clock %+v, %+v", r.Clock, r.Cells[0].Client)
		}
	}
}

// TestPreload checks that a preloaded library sees every message and is asked about each socket.
func TestPreload(t *testing.T) {
	dir := t.TempDir()
	shim := filepath.Join(dir, pinger.Program+".shim.so")
	if err := compile(shim, "PROGRAM="+strings.TrimSuffix(shim, ".shim.so")); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"tcp", "udp"} {
		t.Run(protocol, func(t *testing.T) {
			_, port := serve(t, program, []string{"LD_PRELOAD=" + shim})
			report := filepath.Join(dir, protocol)
			client := start(t, program, []string{"LD_PRELOAD=" + shim, "SHIM_REPORT=" + report},
				clientArgs(port, "--protocol", protocol, "--sizes", "64", "--duration", "100ms", "--warmup", "0s")...)
			c := wantResult(t, client, 1).Cells[0]
			if c.Client.Accelerated != "yes" || c.Server.Accelerated != "yes" {
				t.Errorf("accelerated: client %q, server %q", c.Client.Accelerated, c.Server.Accelerated)
			}
			data, err := os.ReadFile(report)
			if err != nil {
				t.Fatal(err)
			}
			var seen struct{ Sockets, Sends, Receives int64 }
			if err := json.Unmarshal(data, &seen); err != nil {
				t.Fatal(err)
			}
			// Besides the messages there are only a few calls on the control connection.
			if seen.Sockets != 2 || seen.Sends < c.Sent || seen.Sends > c.Sent+20 || seen.Receives < c.Received {
				t.Errorf("the library saw %+v of %d messages", seen, c.Sent)
			}
		})
	}
}

// TestSIGIOAlone checks that the server continues after a SIGIO without data on the control connection: Onload sends SIGIO
// whenever it wakes that connection.
func TestSIGIOAlone(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp"} {
		t.Run(protocol, func(t *testing.T) {
			server, port := serve(t, program, nil)
			client := start(t, program, nil, clientArgs(port, "--protocol", protocol, "--sizes", "64,128", "--duration", "500ms", "--warmup", "0s")...)
			for ended := false; !ended; {
				select {
				case <-client.done:
					ended = true
				case <-time.After(20 * time.Millisecond):
					if err := server.Process.Signal(syscall.SIGIO); err != nil {
						t.Fatal(err)
					}
				}
			}
			wantResult(t, client, 2)
		})
	}
}

// TestNoTimeWait checks that no connection stays in TIME_WAIT after a client has ended: under Onload it would keep a stack alive.
func TestNoTimeWait(t *testing.T) {
	// Only the client connects to this address: the connection that asks whether the server listens may end later than one of the client.
	_, port := serve(t, program, nil, "--bind", "0.0.0.0")
	client := start(t, program, nil, clientArgs(port, "--protocol", "tcp", "--sizes", "64,128", "--duration", "50ms", "--warmup", "0s", "--server", "127.0.0.3")...)
	wantResult(t, client, 2)
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	server := fmt.Sprintf("0300007F:%04X", n)
	for line := range strings.Lines(string(table)) {
		// Local address, remote address, state.
		if f := strings.Fields(line); len(f) > 3 && f[3] == "06" && (f[1] == server || f[2] == server) {
			t.Errorf("in TIME_WAIT: %q", line)
		}
	}
}

func TestIsDynamic(t *testing.T) {
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range symbols {
		names = append(names, s.Name)
	}
	for _, want := range []string{"socket", "connect", "send", "recv"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not called in the C library", want)
		}
	}
}

// stalled is a cell during which an end was frozen for a while. From is the start of the stall since the start of the
// measurement, computed by the test's own clock from the end of the client: it is too early by the time that the client needs
// after the measurement.
type stalled struct {
	cellResult
	From, Frozen time.Duration
}

// whileFrozen measures, at a rate or (0) in a closed loop, and freezes one end for a quarter of that time: half a second in the
// first try, and a second in later ones, so that it is the longest stall even on a machine that stalls by itself. It returns an
// error if such a machine does not keep the rate.
func whileFrozen(t *testing.T, try int, who, protocol string, rate int, wait string) (stalled, error) {
	t.Helper()
	if emulated {
		t.Skip("the emulator stalls both ends by itself, and for longer")
	}
	frozen := time.Duration(min(try, 2)) * 500 * time.Millisecond
	whole := (4 * frozen).String()
	server, port := serve(t, program, nil, wait)
	client := start(t, program, nil, clientArgs(port, "--protocol", protocol, "--sizes", "64", "--rates", fmt.Sprint(rate),
		"--duration", whole, "--loss-after", whole, "--warmup", "100ms", wait)...)
	client.during(t)
	begin := time.Now()
	map[string]*process{"server": server, "client": client}[who].freeze(t, frozen)
	const overloaded = 12
	if client.code(t) == overloaded {
		return stalled{}, errors.New(client.stderr.String())
	}
	end := time.Now()
	c := wantResult(t, client, 1).Cells[0]
	_ = server.Process.Kill()
	return stalled{c, time.Duration(c.Elapsed) - end.Sub(begin), frozen}, nil
}

// slowest returns an error unless the slowest sample is the sample of the stall, at its time and at the frozen end, and at a rate
// represents the others that were due meanwhile.
func (c stalled) slowest(who string) error {
	first, frozen := c.Attribution.Slowest[0], c.Frozen
	gap, other := time.Duration(first.ClientGap), time.Duration(0)
	if first.ServerGap != nil {
		other = time.Duration(*first.ServerGap)
	}
	if who == "server" {
		gap, other = other, gap
	}
	if c.Loop == "open" && first.Samples < c.Attribution.Examined/2 {
		return fmt.Errorf("the slowest stands for %d of %d", first.Samples, c.Attribution.Examined)
	}
	if at := time.Duration(first.At); at < c.From-frozen/10 || at > c.From+frozen || gap < frozen*9/10 || other > frozen/2 || first.Where != who {
		return fmt.Errorf("a %s frozen %s after the start is reported first as %+v, of %s at that end and %s at the other", who, c.From, first, gap, other)
	}
	return nil
}

// attributedTo returns an error unless at least 90 % of the slowest samples, and of the time they took, are attributed to one end
// and the first listed sample is the sample of the stall.
func attributedTo(c stalled, who string) error {
	a := c.Attribution
	n, excess := a.Client, a.ClientExcess
	if who == "server" {
		n, excess = a.Server, a.ServerExcess
	}
	if a.Examined == 0 || n*10 < a.Examined*9 || excess < 0.9*a.Excess {
		return fmt.Errorf("a frozen %s is reported as %+v", who, a)
	}
	return c.slowest(who)
}

// TestFrozenServer: at a rate a stall causes as many slow samples as messages were due meanwhile, here in a quarter of the time.
// A stall of the server also shows in the round trips from the actual time, because the messages were sent.
func TestFrozenServer(t *testing.T) {
	quietly(t, func(t *testing.T, _ int) error {
		// The server would not remember more messages one by one than are due in half a second.
		c, err := whileFrozen(t, 1, "server", "tcp", 23000, "--spin")
		if err != nil {
			return err
		}
		if intended, actual := c.Intended.quantile(0.99), c.RTT.quantile(0.99); intended < c.Frozen*3/4 || actual < c.Frozen*3/4 {
			return fmt.Errorf("p99 is %s from the intended time, %s from the actual one", intended, actual)
		}
		return attributedTo(c, "server")
	})
}

// TestFrozenClient: a frozen client sends the messages that were due meanwhile late, which is every fourth message. That shows
// only from the intended time: by half the stall in each of these, however long the answers themselves take.
func TestFrozenClient(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp"} {
		for _, wait := range []string{"--spin", "--block"} {
			t.Run(protocol+" "+wait, func(t *testing.T) {
				quietly(t, func(t *testing.T, try int) error {
					const rate = 23000
					c, err := whileFrozen(t, try, "client", protocol, rate, wait)
					if err != nil {
						return err
					}
					due := rate * c.Frozen.Seconds()
					if c.Sent != int64(4*due) {
						t.Errorf("%d messages of %.0f: the schedule was put off", c.Sent, 4*due)
					}
					if late, want := c.Intended.Sum-c.RTT.Sum, due*float64(c.Frozen)/2; late < 0.9*want {
						return fmt.Errorf("from the intended time all messages together took longer by %.0f ns, want %.0f", late, want)
					}
					return attributedTo(c, "client")
				})
			})
		}
	}
}

// TestFrozenInClosedLoop: in the closed loop a stall is one sample. Its percentiles do not change, but the sample is reported
// with its cause.
func TestFrozenInClosedLoop(t *testing.T) {
	for _, who := range []string{"server", "client"} {
		t.Run(who, func(t *testing.T) {
			quietly(t, func(t *testing.T, try int) error {
				c, err := whileFrozen(t, try, who, "udp", 0, "--spin")
				if err != nil {
					return err
				}
				frozen := c.Frozen
				// A client may also stop between two round trips: then the stall shows in the pause between them.
				if longest := max(c.RTT.Max, c.Idle.Max); longest < int64(frozen*9/10) || c.RTT.quantile(0.999) > frozen/4 {
					return fmt.Errorf("the longest took %s, p99.9 %s", time.Duration(longest), c.RTT.quantile(0.999))
				}
				a := c.Attribution
				excess := map[string]float64{"server": a.ServerExcess, "client": a.ClientExcess}[who]
				if c.RTT.Max < int64(frozen*9/10) {
					return nil
				}
				if excess < 0.9*float64(frozen) {
					return fmt.Errorf("reported as %+v", a)
				}
				return c.slowest(who)
			})
		})
	}
}

func TestStrangers(t *testing.T) {
	server, port := serve(t, program, nil)
	address := "127.0.0.1:" + port
	dial := func(network string, send string) {
		c, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := c.Write([]byte(send)); err != nil {
			t.Fatal(err)
		}
	}
	dial("tcp", "")
	dial("tcp", "GET / HTTP/1.1\r\n\r\n")
	dial("tcp", strings.Repeat("x", 10000))
	dial("tcp", "TAILGATE-PINGER 3 \n")
	dial("tcp", "TAILGATE-PINGER 3 "+key+"\nCELL tcp 64 0 - 0\n")
	dial("tcp", "TAILGATE-PINGER 3 "+key+"\n") // challenged, it says no more
	dial("tcp", "PROOF 0000000000000000\n")
	dial("tcp", "DATA 00000000000000000000000000000000\n")
	// However late an answer arrives on a busy machine, it does not count as lost because of the strangers.
	first := start(t, program, nil, clientArgs(port, "--protocol", "udp", "--sizes", "64", "--duration", "1500ms", "--spin", "--loss-after", "30s")...)
	first.during(t)
	for range 100 {
		dial("udp", strings.Repeat("y", 64))
		dial("tcp", "hello\n")
	}
	// A client of another version gets that message once the running client has been served.
	other, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	fmt.Fprintf(other, "TAILGATE-PINGER 0 %s\n", key)
	second := start(t, program, nil, clientArgs(port, "--protocol", "tcp", "--sizes", "64", "--duration", "100ms")...)
	if c := wantResult(t, first, 1).Cells[0]; c.Lost > 0 || c.Strays > 0 {
		t.Errorf("%d lost, %d strays: the strangers were heard", c.Lost, c.Strays)
	}
	wantResult(t, second, 1)
	answer := make([]byte, 64)
	if n, err := other.Read(answer); err != nil || string(answer[:n]) != "VERSION 3\n" {
		t.Errorf("another version is answered %q, %v", answer[:n], err)
	}
	wrong := start(t, program, nil, append(clientArgs(port, "--protocol", "tcp", "--sizes", "64", "--duration", "1s"), "--key", strings.Repeat("0", 32))...)
	wantFailure(t, wrong, 4, "does not have the key")
	wantResult(t, start(t, program, nil, clientArgs(port, "--protocol", "tcp", "--sizes", "64", "--duration", "50ms")...), 1)
	select {
	case <-server.done:
		t.Errorf("the server ended: %s", server.stderr.String())
	default:
	}
}

// TestDeaths: when one end dies, the other reports it at once, and a server continues with the next client.
func TestDeaths(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp", "multicast"} {
		for _, spin := range []string{"--spin", "--block"} {
			t.Run(protocol+" "+spin, func(t *testing.T) {
				skipUnknown(t, protocol)
				t.Parallel()
				server, port := serve(t, program, nil, spin)
				args := clientArgs(port, "--protocol", protocol, "--sizes", "64", "--duration", "30s", spin, "--loss-after", "200ms")
				client := start(t, program, nil, args...)
				client.during(t)
				_ = client.Process.Kill()
				short := slices.Clone(args)
				short[slices.Index(short, "30s")], short[slices.Index(short, "200ms")] = "50ms", "20s"
				wantResult(t, start(t, program, nil, short...), 1)

				client = start(t, program, nil, args...)
				client.during(t)
				_ = server.Process.Kill()
				wantFailure(t, client, 5, "server")
			})
		}
	}
}

// TestOverload: a rate that cannot be kept is reported, instead of a result of messages that pile up forever.
func TestOverload(t *testing.T) {
	t.Parallel()
	server, port := serve(t, program, nil)
	client := start(t, program, nil, clientArgs(port, "--protocol", "tcp", "--sizes", "64", "--rates", "100", "--duration", "5s", "--loss-after", "1ms")...)
	client.during(t)
	if err := server.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, client, 12, "100 a second", "lower rate")
}

func TestDeadlines(t *testing.T) {
	server, port := serve(t, program, nil)
	args := clientArgs(port, "--protocol", "tcp", "--sizes", "64", "--duration", "30s")
	args[slices.Index(args, "--deadline")+1] = "1.2"
	client := start(t, program, nil, args...)
	client.during(t)
	server.freeze(t, time.Second)
	wantFailure(t, client, 7, "deadline")

	late := start(t, program, nil, "server", "--bind", "127.0.0.1", "--port", freePort(t), "--deadline", "0.3")
	wantFailure(t, late, 7, "deadline")
}

func TestFailures(t *testing.T) {
	_, port := serve(t, program, nil)
	good := []string{"--protocol", "tcp", "--sizes", "64", "--duration", "50ms"}
	cases := map[string]struct {
		args  []string
		code  int
		words string
	}{
		"no server":                 {clientArgs("1", good...), 3, "refused"},
		"the server's port in use":  {[]string{"server", "--bind", "127.0.0.1", "--port", port}, 9, "in use"},
		"an address of others":      {[]string{"server", "--bind", "192.0.2.1", "--port", port}, 9, "192.0.2.1"},
		"no arguments":              {nil, 2, "server or client"},
		"a third role":              {[]string{"relay"}, 2, "server or client"},
		"an unknown option":         {clientArgs(port, append(good, "--fast")...), 2, "--fast"},
		"an option without value":   {clientArgs(port, append(good, "--rates")...), 2, "--rates"},
		"a server's option":         {clientArgs(port, append(good, "--bind", "127.0.0.1")...), 2, "--bind"},
		"a client's option":         {[]string{"server", "--bind", "127.0.0.1", "--port", port, "--sizes", "1"}, 2, "--sizes"},
		"a word too many":           {clientArgs(port, append(good, "tcp")...), 2, "too many"},
		"a name":                    {append(clientArgs(port, good...), "--server", "localhost"), 2, "not an IP address"},
		"no sizes":                  {clientArgs(port, "--protocol", "tcp", "--duration", "1s"), 2, "--sizes"},
		"no protocol":               {clientArgs(port, "--sizes", "1", "--duration", "1s"), 2, "--protocol"},
		"another protocol":          {clientArgs(port, append(good, "--protocol", "sctp")...), 2, "sctp"},
		"size 0":                    {clientArgs(port, append(good, "--sizes", "0")...), 2, "--sizes"},
		"size 65537":                {clientArgs(port, append(good, "--sizes", "65537")...), 2, "65536"},
		"size 65508 with UDP":       {clientArgs(port, append(good, "--protocol", "udp", "--sizes", "65508")...), 2, "65507"},
		"an empty size":             {clientArgs(port, append(good, "--sizes", "1,,2")...), 2, "--sizes"},
		"a negative rate":           {clientArgs(port, append(good, "--rates", "-1")...), 2, "--rates"},
		"datagrams too small":       {clientArgs(port, append(good, "--protocol", "udp", "--sizes", "1", "--rates", "1000")...), 2, "told apart"},
		"no unit":                   {clientArgs(port, append(good, "--duration", "5")...), 2, "--duration"},
		"an unknown unit":           {clientArgs(port, append(good, "--duration", "5d")...), 2, "--duration"},
		"no time":                   {clientArgs(port, append(good, "--duration", "0s")...), 2, "--duration"},
		"no port":                   {[]string{"client", "--server", "127.0.0.1"}, 2, "--port"},
		"an invalid port":           {clientArgs("65536", good...), 2, "--port"},
		"a word for a key":          {clientArgs(port, append(good, "--key", "secret")...), 2, "--key"},
		"an empty key":              {clientArgs(port, append(good, "--key", "")...), 2, "--key"},
		"another clock":             {clientArgs(port, append(good, "--clock", "sundial")...), 2, "sundial"},
		"a local address of others": {clientArgs(port, append(good, "--local", "192.0.2.1")...), 9, "192.0.2.1"},
		"an invalid group":          {clientArgs(port, append(good, "--group", "10.0.0.1")...), 2, "10.0.0.1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { wantFailure(t, start(t, sanitized, nil, c.args...), c.code, c.words) })
	}
}

func TestOutputThatCannotBeWritten(t *testing.T) {
	_, port := serve(t, program, nil)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer full.Close()
	cmd := command(program, clientArgs(port, "--protocol", "tcp", "--sizes", "64", "--duration", "50ms", "--key", key)...)
	cmd.Stdout = full
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != 11 {
		t.Errorf("exit code %d, want 11", cmd.ProcessState.ExitCode())
	}
}

func TestHelp(t *testing.T) {
	out, err := command(program, "--help").Output()
	if err != nil || !strings.Contains(string(out), "exit code") {
		t.Errorf("%v\n%s", err, out)
	}
}
