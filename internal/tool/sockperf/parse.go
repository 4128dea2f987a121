package sockperf

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

// The lines of the report that count. Colours are taken out before.
var (
	colours     = regexp.MustCompile("\x1b\\[[0-9;]*m")
	versionLine = regexp.MustCompile(`== version #(\S+) ==`)
	totalLine   = regexp.MustCompile(`\[Total Run\] RunTime=([0-9.]+) sec;.* SentMessages=(\d+); ReceivedMessages=(\d+)`)
	validLine   = regexp.MustCompile(`\[Valid Duration\] RunTime=[0-9.]+ sec; SentMessages=\d+; ReceivedMessages=(\d+)`)
	averageLine = regexp.MustCompile(`====> avg-(rtt|latency)=([0-9.]+) \(std-dev=([0-9.]+)`)
	errorsLine  = regexp.MustCompile(`# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)`)
	figureLine  = regexp.MustCompile(`---> (<MAX> observation|<MIN> observation|percentile [0-9.]+) *= *([0-9.]+)`)
)

// report is what the tool printed.
type report struct {
	version        string
	sent, received int64
	// logged is the number of rows that the log should have.
	logged   int64
	figures  []tool.Figure
	warnings []string
}

// Parse reads the rows of the log that were sent in the measuring time.
func (driver) Parse(c tool.Cell, out tool.Output, record func(rtt, count int64)) (tool.Measurement, error) {
	said := colours.ReplaceAllString(string(out.Stdout)+"\n"+string(out.Stderr), "")
	r, err := readReport(said)
	if err == nil && out.ExitCode != 0 {
		err = fmt.Errorf("it reported a measurement and failed nonetheless")
	}
	if err != nil {
		return tool.Measurement{}, explain(out.ExitCode, said, err)
	}
	raw, err := out.OpenRaw(logName)
	if err != nil {
		return tool.Measurement{}, tool.Failf("sockperf left no log: %v", err)
	}
	defer raw.Close()
	w := window{cell: c, record: record}
	if err := readLog(raw, w.add); err != nil {
		return tool.Measurement{}, tool.Failf("sockperf's log cannot be read: %v", err)
	}
	if w.rows != r.logged {
		return tool.Measurement{}, tool.Failf("sockperf's log has %d rows, but the report says %d: is its scratch volume full?", w.rows, r.logged)
	}
	if err := w.check(r); err != nil {
		return tool.Measurement{}, err
	}
	return tool.Measurement{
		Version: r.version,
		// Of the messages that were not answered, one is that which the end of the run interrupted; it lies
		// behind the measuring time. A ping-pong goes on after a lost one only if another answer came twice.
		Lost:     max(r.sent-r.received-1, 0),
		Figures:  r.figures,
		Warnings: r.warnings,
	}, nil
}

// readReport collects the figures. It is an error if there are none, for nothing else tells that the tool
// measured.
func readReport(said string) (report, error) {
	var r report
	if m := versionLine.FindStringSubmatch(said); m != nil {
		r.version = m[1]
	}
	total, valid, average := totalLine.FindStringSubmatch(said), validLine.FindStringSubmatch(said), averageLine.FindStringSubmatch(said)
	switch {
	case total == nil:
		return report{}, fmt.Errorf("it reported nothing")
	case valid == nil || average == nil:
		return report{}, fmt.Errorf("it ended before there was anything to report")
	}
	for _, n := range []struct {
		of   *int64
		text string
	}{{&r.sent, total[2]}, {&r.received, total[3]}, {&r.logged, valid[1]}} {
		v, err := strconv.ParseInt(n.text, 10, 64)
		if err != nil {
			return report{}, fmt.Errorf("it reported %s messages", n.text)
		}
		*n.of = v
	}
	if r.received == 0 || r.logged == 0 || r.received > r.sent || r.logged > r.received {
		return report{}, fmt.Errorf("it reported %d messages sent, %d answered and %d measured", r.sent, r.received, r.logged)
	}
	unit := " (us, half RTT)"
	if average[1] == "rtt" {
		unit = " (us, RTT)"
	}
	figure := func(name, value string) { r.figures = append(r.figures, tool.Figure{Name: name, Value: value}) }
	figure("run time (s)", total[1])
	figure("sent", total[2])
	figure("received", total[3])
	figure("observations", valid[1])
	figure("avg"+unit, average[2])
	figure("std-dev"+unit, average[3])
	for _, m := range figureLine.FindAllStringSubmatch(said, -1) {
		figure(strings.ToLower(strings.NewReplacer("<", "", ">", "", " observation", "").Replace(m[1]))+unit, m[2])
	}
	if m := errorsLine.FindStringSubmatch(said); m != nil {
		for i, name := range []string{"dropped", "duplicated", "out-of-order"} {
			figure(name, m[i+1])
			if m[i+1] != "0" {
				r.warnings = append(r.warnings, fmt.Sprintf("sockperf: %s %s messages", m[i+1], name))
			}
		}
	}
	return r, nil
}

// window passes the rows of the measuring time on.
type window struct {
	cell   tool.Cell
	record func(rtt, count int64)

	rows, recorded int64
	// first and last are when the first and the last message of the log were sent.
	first, last int64
}

// from and to are the measuring time. The log begins after the head, which counts as warm-up.
func (w *window) from() int64 { return w.first + int64(max(w.cell.Warmup-head, 0)) }
func (w *window) to() int64   { return w.from() + int64(w.cell.Duration) }

func (w *window) add(r row) error {
	if r.answered <= r.sent {
		return fmt.Errorf("a message sent at %d ns was answered at %d ns", r.sent, r.answered)
	}
	if w.rows == 0 {
		w.first = r.sent
	} else if r.sent < w.last {
		return fmt.Errorf("a message sent at %d ns stands behind one sent at %d ns", r.sent, w.last)
	}
	w.rows++
	w.last = r.sent
	if r.sent >= w.from() && r.sent < w.to() {
		w.record(r.answered-r.sent, 1)
		w.recorded++
	}
	return nil
}

// check says whether the log covers the measuring time. When it ends before, an answer stayed away: the tool
// then waits until the end of the run and reports what it has as if nothing had happened.
func (w *window) check(r report) error {
	if w.last < w.to() {
		measured := max(time.Duration(w.last-w.from()), 0)
		why := "the path stalled, or the server hung"
		if w.cell.Protocol == "UDP" {
			why = "a datagram was lost, or the server ended"
		}
		return tool.Failf("sockperf measured %s of %s and then got no answer any more (%d sent, %d answered): %s",
			measured.Round(time.Millisecond), w.cell.Duration, r.sent, r.received, why)
	}
	if w.recorded == 0 {
		return tool.Failf("sockperf measured no message after the warm-up of %s", w.cell.Warmup)
	}
	return nil
}

// explain turns what the tool said into a failure.
func explain(exitCode int, said string, problem error) error {
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(said, p) {
				return true
			}
		}
		return false
	}
	why := problem.Error()
	switch {
	case has("errno=111 "):
		why = "no server listens"
	case has("errno=113 ", "errno=101 "):
		why = "there is no way to the server"
	case has("forcibly closed by a peer"):
		why = "the server ended before the test did"
	case has("No messages were received"):
		why = "no message was answered: the server is down, or the first datagram was lost"
	case has("No valid observations"):
		why = "answers stayed away before the measurement began: the server is down, or a datagram was lost"
	case has("_seqN > m_maxSequenceNo"):
		why = "round trips of less than 1.7µs are too many for it; use sfnt-pingpong"
	case has("bad_alloc"):
		why = "not enough memory for the samples; raise spec.placement.memory or measure for a shorter time"
	case has("Invalid address"):
		why = "it takes IPv4 addresses only"
	case has("Usage: sockperf", "Type 'sockperf <subcommand> --help'"):
		why = "this build does not take the options it was given; use 3.7 or later"
	}
	message := fmt.Sprintf("sockperf failed (exit code %d): %s", exitCode, why)
	if e := errorLines(said); e != "" {
		message += ": " + e
	}
	return tool.Failf("%s", message)
}

// errorLines are the lines that tell of an error, as one.
func errorLines(said string) string {
	var found []string
	for line := range strings.Lines(said) {
		for _, mark := range []string{"ERROR:", "Invalid ", "terminate called", "what():"} {
			if at := strings.Index(line, mark); at >= 0 {
				found = append(found, strings.ToValidUTF8(strings.TrimPrefix(line[at:], "ERROR:"), "?"))
				break
			}
		}
	}
	const most = 400
	joined := strings.Join(strings.Fields(strings.Join(found, "; ")), " ")
	if len(joined) > most {
		joined = strings.ToValidUTF8(joined[:most], "") + "…"
	}
	return joined
}
