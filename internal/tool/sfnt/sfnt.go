// Package sfnt holds the common parts of the drivers of AMD's two tools (cns-sfnettest).
package sfnt

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// hops suffice in a cluster; with the tools' default, 1, no router passes a message.
const hops = "64"

// Driver is the common part of the two drivers. The name of the tool is also that of the program.
type Driver struct{ tool.Base }

// Server listens for the control connection of one client, and gets everything else from it.
func (d Driver) Server(_ tool.Cell, t tool.Target) tool.Command {
	return tool.Command{Path: string(d.Tool), Args: []string{"--port=" + strconv.Itoa(t.Port)}, Env: Environment()}
}

// Environment keeps tools from running date, uname, lspci and ethtool on the measuring CPU.
func Environment() []string { return []string{"SFNT_AVOID_FORK=1"} }

// muxers are the values of --muxer. Without a muxer both ends call recv.
var muxers = map[v1alpha1.Muxer]string{
	"": "", v1alpha1.MuxerNone: "",
	v1alpha1.MuxerSelect: "select", v1alpha1.MuxerPoll: "poll", v1alpha1.MuxerEpoll: "epoll",
}

// WaitOptions returns the options of how both ends wait for a message.
func WaitOptions(c tool.Cell) []string {
	var options []string
	if c.Spins() {
		options = append(options, "--spin")
	}
	if m := muxers[c.Muxer]; m != "" {
		options = append(options, "--muxer="+m)
	}
	return options
}

// PathOptions returns options of the messages' path, which the client passes to the server; where
// they differ, the client's come first. Messages to a group keep TTL 1, for the subnet.
func PathOptions(c tool.Cell, t tool.Target) []string {
	switch c.Protocol {
	case v1alpha1.ProtocolTCP:
	case v1alpha1.ProtocolUDP:
		return []string{"--ttl=" + hops}
	case v1alpha1.ProtocolMulticast:
		options := []string{"--ttl=1;" + hops, "--mcastintf=" + t.LocalAddress + ";" + t.Address}
		if c.MulticastGroup != "" {
			options = append(options, "--mcast="+c.MulticastGroup)
		}
		return options
	}
	return nil
}

// common are the causes that both tools share. The numbers are values of errno.
var common = []tool.Cause{
	{"client and server are different builds; use one bench image on both nodes", "Version mismatch", "Source Checksum mismatch"},
	{"it may not run on the CPU that it should use", "Failed to set CPU affinity"},
	{"it cannot write its samples to the scratch volume", "Could not open output file"},
	{"it cannot join the multicast group on the interface of the measured network", "failed to join"},
	{tool.SecondPort, "connect(read_fd", "connect(ctx->read_fd"},
	{"no server listened for 10s", "errno=(111 "},
	{"it cannot reach the server: does a firewall or a NetworkPolicy block the connection?", "errno=(110 ", "errno=(1 "},
	{"there is no route to the server", "errno=(113 ", "errno=(101 "},
	{"the server ended before the test did", "errno=(104 ", "errno=(32 ", "errno=(0 "},
}

// Explain builds a failure from exit code and ERROR lines; a tool's own causes come first.
func Explain(name v1alpha1.Tool, c tool.Cell, out tool.Output, own []tool.Cause) error {
	said := errorLines(out.Stderr)
	tooLong := tool.Cause{fmt.Sprintf("messages of %d bytes are too long for the path", c.MessageSize), "errno=(90 "}
	why := cmp.Or(tool.WhyOf(said, slices.Concat(own, common, []tool.Cause{tooLong})),
		map[int]string{2: "it could not set the test up", 3: "the test failed"}[out.ExitCode], "it ended in an unexpected way")
	if out.ExitCode == 1 {
		why = "this build does not accept its options; use 1.5.0 or later"
	}
	return tool.Exited(string(name), out.ExitCode, why, said)
}

// errorLines joins the ERROR lines into one, without the source positions.
func errorLines(stderr []byte) string {
	var said []string
	for line := range strings.Lines(string(stderr)) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "ERROR: ")
		if !ok || strings.HasPrefix(text, "at ") || text == "Test failed." || text == "Test setup failed." {
			continue
		}
		said = append(said, text)
	}
	return tool.OneLine(strings.Join(said, "; "))
}

// Samples calls tool.EachLine with a file of samples. The error is a Failure.
func Samples(name v1alpha1.Tool, out tool.Output, file string, do func(number int, line []byte) error) error {
	raw, err := out.OpenRaw(file)
	if err != nil {
		return tool.Failf("%s left no samples: %v", name, err)
	}
	defer raw.Close()
	if err := tool.EachLine(raw, do); err != nil {
		return tool.Failf("%s's samples in %s cannot be read: %v", name, file, err)
	}
	return nil
}

// Table is the standard output of a tool.
type Table struct {
	Header
	Rows [][]int64
}

// Header is the list of lines that begin with #; their order differs from run to run.
type Header []Entry

// Entry is a line of the header: "# key: value" or "# key=value".
type Entry struct {
	Key, Value string
}

// once are the keys that one run prints once.
var once = []string{"cmdline", "version", "src", "date", "tsc_hz", "percentile", "reporting", "msgsize"}

// ParseTable reads a tool's standard output, also with spaces (or non-breaking ones) for tabs. Its
// columns must have these names. Other lines are skipped, as of Onload or a shell. Output that was
// cut, or of two runs, whose rows would share a header, is refused.
func ParseTable(output []byte, columns []string) (Table, error) {
	var t Table
	number, headed := 0, false
	for line := range bytes.Lines(output) {
		number++
		if !bytes.HasSuffix(line, []byte("\n")) {
			return Table{}, fmt.Errorf("line %d: %w", number, tool.ErrCut)
		}
		text := strings.TrimSpace(string(line))
		if comment, ok := strings.CutPrefix(text, "#"); ok {
			comment = strings.TrimSpace(comment)
			if fields := strings.Fields(comment); len(fields) > 0 && fields[0] == columns[0] {
				if !slices.Equal(fields, columns) {
					return Table{}, fmt.Errorf("line %d: columns %v, not %v", number, fields, columns)
				}
				if headed {
					return Table{}, fmt.Errorf("line %d: a second heading, of another run; use the output of one run", number)
				}
				headed = true
				continue
			}
			if comment != "" {
				e := parseEntry(comment)
				if before := t.Value(e.Key); before != "" && before != e.Value && slices.Contains(once, e.Key) {
					return Table{}, fmt.Errorf("line %d: a second %s, of another run; use the output of one run", number, e.Key)
				}
				t.Header = append(t.Header, e)
			}
			continue
		}
		if text == "" || text[0] < '0' || text[0] > '9' {
			continue
		}
		row, err := parseRow(strings.Fields(text), columns)
		if err != nil {
			return Table{}, fmt.Errorf("line %d: %w", number, err)
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// parseEntry splits the text after a # at the first ": " or "=": command lines contain both.
func parseEntry(comment string) Entry {
	colon := strings.Index(comment+" ", ": ")
	equals := strings.IndexByte(comment, '=')
	if colon < 0 && equals < 0 {
		return Entry{Key: comment}
	}
	at := colon
	if colon < 0 || equals >= 0 && equals < colon {
		at = equals
	}
	return Entry{Key: comment[:at], Value: strings.TrimSpace(comment[at+1:])}
}

func parseRow(fields, columns []string) ([]int64, error) {
	if len(fields) != len(columns) {
		return nil, fmt.Errorf("%d columns, not %d", len(fields), len(columns))
	}
	row := make([]int64, len(fields))
	for i, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", columns[i], err)
		}
		row[i] = n
	}
	return row, nil
}

// Value returns the first value with a key, or "".
func (h Header) Value(key string) string {
	for _, e := range h {
		if e.Key == key {
			return e.Value
		}
	}
	return ""
}

// Version returns the version with the source's checksum: a checkout has no version.
func (h Header) Version() string {
	v, src := h.Value("version"), h.Value("src")
	if src == "" {
		return v
	}
	return strings.TrimSpace(v + " (src " + src + ")")
}

// FullRTT reports whether latencies are whole round trips. Builds before 2026 do not say it: the
// argument --rtt decides. It is an error if neither is known, or they contradict each other.
func (h Header) FullRTT() (bool, error) {
	arguments, reporting := strings.Fields(h.Value("cmdline")), h.Value("reporting")
	asked := slices.ContainsFunc(arguments, func(a string) bool {
		value, found := strings.CutPrefix(a, "--rtt")
		return found && (value == "" || value[0] == '=' && value != "=0")
	})
	switch full := reporting == "RTT"; {
	case reporting == "" && len(arguments) == 0:
		return false, fmt.Errorf("its output does not contain whether it reports RTT or 1/2 RTT")
	case reporting == "":
		return asked, nil
	case !full && reporting != "1/2 RTT":
		return false, fmt.Errorf("it reports %q, which is neither RTT nor 1/2 RTT", reporting)
	case len(arguments) > 0 && full != asked:
		return false, fmt.Errorf("it reports %s, and its command line has --rtt: %t", reporting, asked)
	default:
		return full, nil
	}
}

// TicksPerSecond returns the rate to which the tool calibrated the CPU's time stamp counter.
func (h Header) TicksPerSecond() (int64, error) {
	hz, err := strconv.ParseInt(h.Value("tsc_hz"), 10, 64)
	if err != nil || hz < 100e6 || hz > 100e9 {
		return 0, fmt.Errorf("tsc_hz: its clock has no plausible rate: %q", h.Value("tsc_hz"))
	}
	return hz, nil
}

// CheckClock returns a Failure if a calibration, the tool's second or the agent's, differs.
func (h Header) CheckClock(name v1alpha1.Tool, clocks tool.Clocks) error {
	hz, err := h.TicksPerSecond()
	if err != nil {
		return tool.Failf("%s's table cannot be read: %v", name, err)
	}
	wrong := cmp.Or(clocks.CheckSteady(string(name), clocks.Monotonic), clocks.CheckTicks(string(name), hz))
	again := h.checkRecalibration(name)
	// Until October 2025, the second overflows at 2^64 / 10^9 ticks, in a slow path's warm-up.
	if again != nil && wrong == nil && clocks.Raw > 0 && clocks.Ticks > math.MaxUint64/1_000_000_000 {
		return tool.Failf("%s cannot measure a path of this length: its first calibration is right, and its second one overflowed, because its own warm-up took too long; "+
			"use another tool, or a build of cns-sfnettest of October 2025 or later (%v)", name, again)
	}
	return cmp.Or(again, wrong)
}

func (h Header) checkRecalibration(name v1alpha1.Tool) error {
	for _, e := range h {
		if e.Key == "WARNING" && strings.HasPrefix(e.Value, "tsc_hz changed") {
			return tool.Fail(v1alpha1.OutcomeClockWrong, "%s calibrated the CPU's time stamp counter to %s ticks a second, and then: %s", name, h.Value("tsc_hz"), e.Value)
		}
	}
	return nil
}

// Figures returns a row's numbers by name, the clock's rate, and lines about acceleration.
func (h Header) Figures(names []string, row ...int64) []tool.Figure {
	var out []tool.Figure
	for i, name := range names {
		out = append(out, tool.Figure{Name: name, Value: strconv.FormatInt(row[i], 10)})
	}
	for _, e := range h {
		switch {
		case e.Key == "tsc_hz", e.Key == "onload_version", strings.HasPrefix(e.Key, "EF_"),
			e.Key == "LD_PRELOAD", e.Key == "server LD_PRELOAD":
			out = append(out, tool.Figure{Name: e.Key, Value: e.Value})
		}
	}
	return out
}

// Warnings returns the tool's own. They do not show whether Onload was there: Onload 9 does not
// export onload_version, and LD_PRELOAD and EF_* lines show only the environment.
func (h Header) Warnings(name v1alpha1.Tool) []string {
	var out []string
	for _, e := range h {
		if e.Key == "WARNING" {
			out = append(out, string(name)+": "+e.Value)
		}
	}
	return out
}
