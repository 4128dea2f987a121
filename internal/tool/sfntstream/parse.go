package sfntstream

import (
	"fmt"
	"math"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfnt"
)

func (driver) Parse(c tool.Cell, out tool.Output, record, actual func(rtt, count int64)) (tool.Measurement, error) {
	if out.ExitCode != 0 {
		return tool.Measurement{}, sfnt.Explain(v1alpha1.ToolSfntStream, c, out, causes(c))
	}
	table, err := sfnt.ParseTable(out.Stdout, columns)
	if err != nil {
		return tool.Measurement{}, tool.Failf("sfnt-stream's table cannot be read: %v", err)
	}
	r, err := rowOf(c, table)
	if err != nil {
		return tool.Measurement{}, err
	}
	if err := table.CheckClock(v1alpha1.ToolSfntStream, out.Clocks); err != nil {
		return tool.Measurement{}, err
	}
	w, err := newWindow(c, table.Header, r, record, actual)
	if err != nil {
		return tool.Measurement{}, tool.Failf("sfnt-stream's table cannot be read: %v", err)
	}
	file := fmt.Sprintf("%s-%d-%d.dat", rawPrefix, c.MessageSize, c.RatePerSecond)
	if err := sfnt.Samples(v1alpha1.ToolSfntStream, out, file, w.addLine); err != nil {
		return tool.Measurement{}, err
	}
	if err := w.check(); err != nil {
		return tool.Measurement{}, err
	}
	lost, late := w.lost()
	bits := 8 * float64(c.MessageSize)
	return tool.Measurement{
		Version: table.Version(), Lost: lost, Start: tool.StartIntended,
		// The tool reports rates as integers, and counts messages that arrive twice.
		Bandwidth: &tool.Bandwidth{BitsPerSecond: float64(min(r.received(), r.sent())) * bits, SentBitsPerSecond: float64(r.sent()) * bits},
		Figures:   figures(table, r),
		Warnings:  append(table.Warnings(v1alpha1.ToolSfntStream), warnings(r, w, late)...),
	}, nil
}

// columns: three rates, seven fields of round trips, four of lateness, three of missed messages.
var columns = []string{
	"target", "send", "recv",
	"mean", "min", "median", "max", "%ile", "stddev", "samples",
	"mean", "min", "max", "behind",
	"n_gaps", "n_drops", "n_ooo",
}

// row is the single line of results, in ns as C's int, which overflows beyond 2.1 s.
type row []int64

func (r row) sent() int64       { return r[1] }
func (r row) received() int64   { return r[2] }
func (r row) min() int64        { return r[4] }
func (r row) max() int64        { return r[6] }
func (r row) samples() int64    { return r[9] }
func (r row) restarts() int64   { return r[13] }
func (r row) missing() int64    { return r[15] }
func (r row) outOfOrder() int64 { return r[16] }

// rowOf returns the only row, which must have the cell's rate, if that rate was reached.
func rowOf(c tool.Cell, t sfnt.Table) (row, error) {
	rate := int64(c.RatePerSecond)
	if len(t.Rows) != 1 || t.Rows[0][0] != rate {
		return nil, tool.Failf("sfnt-stream ended without an error, but printed %d rows and not the one of %d messages a second",
			len(t.Rows), rate)
	}
	r := row(t.Rows[0])
	for _, i := range []int{1, 2, 9, 13, 14, 15, 16} {
		if r[i] < 0 || r[i] > math.MaxUint32 {
			return nil, tool.Failf("sfnt-stream printed an impossible number in column %d, %s: %d", i+1, columns[i], r[i])
		}
	}
	if r.sent()*100 < rate*leastPercent {
		return nil, tool.Failf("sfnt-stream sent %d of %d messages a second, less than %d %%: "+
			"its CPU cannot sustain that rate, or was preempted; set a lower rate", r.sent(), rate, leastPercent)
	}
	return r, nil
}

func figures(t sfnt.Table, r row) []tool.Figure {
	names := []string{
		"target (messages/s)", "send (messages/s)", "recv (messages/s)",
		"mean (ns, RTT)", "min (ns, RTT)", "median (ns, RTT)", "max (ns, RTT)",
		"percentile " + t.Value("percentile") + " (ns, RTT)", "stddev (ns, RTT)", "samples",
		"sendjit mean (ns)", "sendjit min (ns)", "sendjit max (ns)", "behind",
		"n_gaps", "n_drops", "n_ooo",
	}
	out := t.Figures(names, r...)
	if v := t.Value("return_latency"); v != "" {
		out = slices.Insert(out, len(names), tool.Figure{Name: "return_latency (ns, half RTT when idle)", Value: v})
	}
	return out
}

func warnings(r row, w *window, late int64) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf("sfnt-stream: "+format, args...)) }
	if w.every > 1 {
		add("one of %d messages is timed: it can time %d at most", w.every, mostTimed)
	}
	if w.repeated > 0 {
		add("duplicated answers, which do not count: %d", w.repeated)
	}
	if r.restarts() > 0 {
		add("the sender was delayed by more than %s and restarted its schedule, %d times: this delay is not part of the samples, "+
			"and lost messages are counted over the whole run, to within one for each of its seconds", patience, r.restarts())
	}
	if late > 0 {
		add("the sender was late at the end of the measuring time; messages that were due and were not sent: %d", late)
	}
	if r.missing() > 0 || r.outOfOrder() > 0 {
		add("messages that its server missed in their order: %d; of these came later: %d (warm-up included)",
			r.missing(), r.outOfOrder())
	}
	return out
}

// causes returns the causes that only this tool has, or that have a different meaning for it.
func causes(c tool.Cell) []tool.Cause {
	refused := func(size int32) string { return fmt.Sprintf("msg_len=%d errno=(111 ", size) }
	return []tool.Cause{
		{"the server ended before the test did", refused(c.MessageSize), refused(answerSize)},
		{"no answer for 100ms, after which it gives up when it spins or uses a muxer: " +
			"an end or the path stalled, or the server is gone", "short read or error receiving"},
		{"a datagram was lost before the measurement began, or no datagram arrives: " +
			"are all UDP ports between the two ends open?", "Timeout waiting for synchronisation message"},
		{"no more answers came: the path broke, or the server hangs", "Sync messages at end of test lost"},
	}
}
