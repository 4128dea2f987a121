package sfntpingpong

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfnt"
)

// Parse reads the raw samples, without times: the warm-up ends where their sum reaches it.
func (driver) Parse(c tool.Cell, out tool.Output, record, _ func(rtt, count int64)) (tool.Measurement, error) {
	if out.ExitCode != 0 {
		return tool.Measurement{}, sfnt.Explain(v1alpha1.ToolSfntPingpong, c, out, causes(c))
	}
	header, rows, err := ParseTable(out.Stdout)
	if err != nil {
		return tool.Measurement{}, tool.Failf("sfnt-pingpong's table cannot be read: %v", err)
	}
	row, err := rowOf(c, rows)
	if err != nil {
		return tool.Measurement{}, err
	}
	fullRTT, err := header.FullRTT()
	if err != nil {
		return tool.Measurement{}, tool.Failf("sfnt-pingpong's table cannot be read: %v", err)
	}
	if err := header.CheckClock(v1alpha1.ToolSfntPingpong, out.Clocks); err != nil {
		return tool.Measurement{}, err
	}
	w := window{cell: c, fullRTT: fullRTT, record: record, min: math.MaxInt64, max: math.MinInt64}
	if err := sfnt.Samples(v1alpha1.ToolSfntPingpong, out, fmt.Sprintf("%s-%d.dat", rawPrefix, c.MessageSize), w.addLine); err != nil {
		return tool.Measurement{}, err
	}
	if err := w.check(row); err != nil {
		return tool.Measurement{}, err
	}
	return tool.Measurement{
		Version: header.Version(), Figures: figures(header, row, fullRTT), Warnings: header.Warnings(v1alpha1.ToolSfntPingpong),
		// The tool ends at the first message without an answer.
		Lost: 0,
	}, nil
}

func rowOf(c tool.Cell, rows []Row) (Row, error) {
	if len(rows) != 1 || rows[0].Size != int64(c.MessageSize) {
		return Row{}, tool.Failf("sfnt-pingpong ended without an error, but printed %d rows and not the one of %d bytes", len(rows), c.MessageSize)
	}
	return rows[0], nil
}

type window struct {
	cell    tool.Cell
	fullRTT bool
	record  func(rtt, count int64)

	// count, min and max cover all samples as they are in the file.
	count, min, max int64
	// elapsed is all round trips in ns, begun before the last batch; recorded: samples.
	elapsed, begun, recorded int64
}

func (w *window) addLine(_ int, line []byte) error {
	sample, ok := parseInt(line)
	if !ok {
		return fmt.Errorf("%.40q is not a number", line)
	}
	// A bound far above any valid sample keeps the sum from overflowing.
	if sample <= 0 || sample > int64(time.Hour) {
		return fmt.Errorf("sample %d is %d ns: a stall overflowed the tool's counters, as 1.5.0's do after 2 s; use 1.6 or later", w.count+1, sample)
	}
	if w.count%batch == 0 {
		w.begun = w.elapsed
	}
	w.count++
	w.min, w.max = min(w.min, sample), max(w.max, sample)
	if !w.fullRTT {
		sample *= 2
	}
	if from := int64(w.cell.Warmup); w.elapsed >= from && w.elapsed < from+int64(w.cell.Duration) {
		w.record(sample, 1)
		w.recorded++
	}
	if w.elapsed > math.MaxInt64-sample {
		return errors.New("the samples add up to centuries")
	}
	w.elapsed += sample
	return nil
}

// check compares samples with the tool's row: the tool does not notice a full disk.
func (w *window) check(row Row) error {
	if w.count != row.Iterations {
		return tool.Failf("sfnt-pingpong measured %d messages, but left %d samples: is its scratch volume full?", row.Iterations, w.count)
	}
	if w.min != row.Min || w.max != row.Max {
		return tool.Failf("sfnt-pingpong's samples are of %d to %d ns, but its table says %d to %d", w.min, w.max, row.Min, row.Max)
	}
	// Measured: round trips make up 95 to 101 % of the time. If more is missing, a stall overflowed
	// (from 4.3 s in 1.5.0), or occurred between batches, where nothing is timed.
	total := w.cell.Warmup + w.cell.Duration
	if missing := int64(total) - w.elapsed; missing > int64(total/10+500*time.Millisecond) {
		return tool.Failf("sfnt-pingpong ran for %s, but its samples account for %s: a stall is not among them", total, time.Duration(w.elapsed).Round(time.Millisecond))
	}
	// It begins no batch after its time by CLOCK_MONOTONIC; its counter times.
	if begun := time.Duration(w.begun); begun > total+total/100+10*time.Millisecond {
		return tool.Fail(v1alpha1.OutcomeClockWrong, "sfnt-pingpong began its last messages within %s, but the round trips before add up to %s: "+
			"it calibrated its clock wrongly, or a clock was slewed", total, begun.Round(time.Millisecond))
	}
	if w.recorded == 0 {
		return tool.Failf("sfnt-pingpong measured no message after the warm-up of %s", w.cell.Warmup)
	}
	return nil
}

// parseInt reads at most 18 decimal digits. With strconv.ParseInt, a file takes 40 % longer.
func parseInt(b []byte) (n int64, ok bool) {
	digits, negative := bytes.CutPrefix(b, []byte("-"))
	n, rest, ok := tool.CutNumber(digits, 18, 0)
	if negative {
		n = -n
	}
	return n, ok && len(rest) == 0
}

func figures(h sfnt.Header, r Row, fullRTT bool) []tool.Figure {
	unit := " (ns, half RTT)"
	if fullRTT {
		unit = " (ns, RTT)"
	}
	names := []string{
		"mean" + unit, "min" + unit, "median" + unit, "max" + unit, "percentile " + h.Value("percentile") + unit, "stddev" + unit, "iterations",
	}
	return h.Figures(names, r.Mean, r.Min, r.Median, r.Max, r.Percentile, r.StdDev, r.Iterations)
}

func causes(c tool.Cell) []tool.Cause {
	noAnswer := fmt.Sprintf("no answer within %s: the path stalled, or the server hangs", replyTimeout)
	if c.Protocol != v1alpha1.ProtocolTCP {
		noAnswer = fmt.Sprintf("no answer within %s: a datagram was lost, after which sfnt-pingpong cannot continue", replyTimeout)
	}
	return []tool.Cause{
		{"not enough memory for the samples; raise spec.placement.memory or measure for a shorter time", "results != NULL"},
		{noAnswer, "errno=(11 "},
	}
}

// Row is a row as printed: ns, but the size in bytes and the number of iterations.
type Row struct {
	Size, Mean, Min, Median, Max, Percentile, StdDev, Iterations int64
}

var columns = []string{"size", "mean", "min", "median", "max", "%ile", "stddev", "iter"}

// ParseTable reads the tool's standard output, which has one row per measured size.
func ParseTable(output []byte) (sfnt.Header, []Row, error) {
	table, err := sfnt.ParseTable(output, columns)
	if err != nil {
		return nil, nil, err
	}
	var rows []Row
	for _, n := range table.Rows {
		r := Row{n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7]}
		ordered := slices.IsSorted([]int64{1, r.Min, r.Median, r.Percentile, r.Max}) && r.Min <= r.Mean && r.Mean <= r.Max
		if !ordered || r.StdDev < 0 || r.Iterations < 1 || r.Size < 0 || r.Size > math.MaxInt32 {
			return nil, nil, fmt.Errorf("size %d: its figures contradict each other (mean %d, min %d, median %d, max %d ns), or a stall overflowed the tool's counters, as 1.5.0's do after 2 s; use 1.6 or later", r.Size, r.Mean, r.Min, r.Median, r.Max)
		}
		rows = append(rows, r)
	}
	return table.Header, rows, nil
}

// ParseWhole reads another run's whole output, and whether it has whole round trips.
func ParseWhole(output []byte) (header sfnt.Header, rows []Row, fullRTT bool, err error) {
	if header, rows, err = ParseTable(output); err != nil || len(rows) == 0 {
		return header, rows, false, err
	}
	if fullRTT, err = header.FullRTT(); err != nil {
		return nil, nil, false, fmt.Errorf("%w: use the whole output, with its lines that begin with #", err)
	}
	if p := header.Value("percentile"); p != "99" {
		return nil, nil, false, fmt.Errorf("percentile: its %%ile is p%.20s, not p99: run it without --percentile, and use the whole output", p)
	}
	return header, rows, fullRTT, header.CheckClock(Name, tool.Clocks{})
}

const longest = time.Minute

// Own returns the round trips of a row.
func (r Row) Own(fullRTT bool) (*tool.Own, error) {
	factor := int64(2)
	if fullRTT {
		factor = 1
	}
	if r.Max > int64(longest)/factor || r.StdDev > int64(longest) {
		return nil, fmt.Errorf("size %d: a round trip took more than %s", r.Size, longest)
	}
	return &tool.Own{
		Count: r.Iterations, MeanNs: float64(r.Mean * factor), MinNs: r.Min * factor, MaxNs: r.Max * factor,
		StdDevNs: r.StdDev * factor, P50Ns: r.Median * factor, P99Ns: r.Percentile * factor, StepNs: factor,
	}, nil
}
