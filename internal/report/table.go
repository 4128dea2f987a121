package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Table writes a benchmark's results for people: where it was measured and what proves it, a line for each cell, what
// limits the numbers, and what the gate says of them. Of several variants each cell has a table of its own, with ratios
// to the first variant.
func Table(w io.Writer, b *v1alpha1.LatencyBenchmark) error {
	fmt.Fprintf(w, "%s/%s: %s, %s\n", b.Namespace, b.Name, b.Spec.Tool, b.Spec.LatencyType)
	variants := plan.Variants(b.Spec)
	if err := placements(w, variants, b.Status.Endpoints); err != nil {
		return err
	}
	if len(variants) > 1 {
		if err := comparison(w, variants[0].Name, b.Status.Results); err != nil {
			return err
		}
	} else if err := latencies(w, b.Status.Results); err != nil {
		return err
	}
	if err := bandwidths(w, variants[0].Name, b.Status.Results); err != nil {
		return err
	}
	var limits []string
	for _, r := range b.Status.Results {
		if r.Outliers != "" {
			limits = append(limits, label(r)+": "+r.Outliers)
		}
	}
	for _, warning := range b.Status.Warnings {
		limits = append(limits, warning.Reason+": "+warning.Message)
	}
	notes(w, "", limits)
	notes(w, "", verdict(b.Status.Verdict))
	return nil
}

// verdict has a line for the whole and one for each rule, with the numbers that made it.
func verdict(v *v1alpha1.Verdict) []string {
	if v == nil {
		return nil
	}
	lines := []string{fmt.Sprintf("verdict %s", v.Outcome)}
	for _, r := range v.Rules {
		lines = append(lines, fmt.Sprintf("  %s: %s (%s)", r.Rule, r.Message, r.Reason))
	}
	return lines
}

// tableColumn is one of a table of results.
type tableColumn struct {
	title string
	value func(v1alpha1.CellResult) string
}

// The columns that several tables have.
var (
	variantColumn = tableColumn{"VARIANT", func(r v1alpha1.CellResult) string { return r.Variant }}
	cellColumn    = tableColumn{"CELL", func(r v1alpha1.CellResult) string { return r.Name }}
	roundsColumn  = countColumn("ROUNDS", func(r v1alpha1.CellResult) int64 { return int64(r.Rounds) })
	samplesColumn = countColumn("SAMPLES", func(r v1alpha1.CellResult) int64 { return r.Samples })
	lostColumn    = countColumn("LOST", func(r v1alpha1.CellResult) int64 { return r.Lost })
	meanColumn    = latencyColumn("MEAN", func(r v1alpha1.CellResult) *int64 { return r.MeanNanoseconds })
)

func countColumn(title string, of func(v1alpha1.CellResult) int64) tableColumn {
	return tableColumn{title, func(r v1alpha1.CellResult) string { return strconv.FormatInt(of(r), 10) }}
}

func latencyColumn(title string, of func(v1alpha1.CellResult) *int64) tableColumn {
	return tableColumn{title, func(r v1alpha1.CellResult) string { return orEmpty(of(r)) }}
}

func percentileColumn(p v1alpha1.Percentile) tableColumn {
	return tableColumn{strings.ToUpper(string(p)), func(r v1alpha1.CellResult) string { return percentile(r, p, stats.FormatLatency) }}
}

// writeColumns writes a table with a line for each result, and a blank line and a heading before it.
func writeColumns(w io.Writer, heading string, columns []tableColumn, rows []v1alpha1.CellResult) error {
	fmt.Fprintf(w, "\n%s\n", heading)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(text func(tableColumn) string) {
		for _, c := range columns {
			fmt.Fprintf(t, "%s\t", text(c))
		}
		fmt.Fprintln(t)
	}
	line(func(c tableColumn) string { return c.title })
	for _, r := range rows {
		line(func(c tableColumn) string { return c.value(r) })
	}
	return t.Flush()
}

// latencies has a line for each cell that was answered.
func latencies(w io.Writer, results []v1alpha1.CellResult) error {
	rows := slices.DeleteFunc(slices.Clone(results), streams)
	if len(rows) == 0 {
		return nil
	}
	columns := []tableColumn{variantColumn, cellColumn, roundsColumn, samplesColumn, lostColumn,
		latencyColumn("MIN", func(r v1alpha1.CellResult) *int64 { return r.MinNanoseconds }), meanColumn}
	for _, p := range Percentiles() {
		columns = append(columns, percentileColumn(p))
	}
	columns = append(columns, latencyColumn("MAX", func(r v1alpha1.CellResult) *int64 { return r.MaxNanoseconds }),
		latencyColumn("STDDEV", func(r v1alpha1.CellResult) *int64 { return r.StddevNanoseconds }))
	if err := writeColumns(w, "LATENCY", columns, rows); err != nil {
		return fmt.Errorf("writing the latencies: %w", err)
	}
	return nil
}

// byCell puts the results of each cell together, in the order in which the cells appear.
func byCell(results []v1alpha1.CellResult) []block {
	var blocks []block
	for _, r := range results {
		if i := slices.IndexFunc(blocks, func(b block) bool { return b[0].Name == r.Name }); i >= 0 {
			blocks[i] = append(blocks[i], r)
		} else {
			blocks = append(blocks, block{r})
		}
	}
	return blocks
}

// comparison has a table for each cell that was answered: the variants one below the other, with ratios to the
// reference. It has the percentiles that any of them has, and fits into 120 columns with those up to p99.999; form
// matrix has the rest.
func comparison(w io.Writer, reference string, results []v1alpha1.CellResult) error {
	for _, rows := range byCell(slices.DeleteFunc(slices.Clone(results), streams)) {
		some := func(has func(v1alpha1.CellResult) bool) bool { return slices.ContainsFunc(rows, has) }
		first := rows[0]
		heading := fmt.Sprintf("LATENCY of %s: %s%s", first.Name, first.LatencyType, countedFrom(first.CountedFrom))
		columns := []tableColumn{variantColumn}
		if some(func(r v1alpha1.CellResult) bool { return r.Rounds != first.Rounds }) {
			columns = append(columns, roundsColumn)
		} else {
			heading += fmt.Sprintf(", %d rounds", first.Rounds)
		}
		columns = append(columns, samplesColumn)
		if some(func(r v1alpha1.CellResult) bool { return r.Lost > 0 }) {
			columns = append(columns, lostColumn)
		}
		// Of a tool without samples only the mean is exact.
		if some(func(r v1alpha1.CellResult) bool { return r.StepNanoseconds > 0 }) {
			columns = append(columns, meanColumn)
		}
		for _, p := range Percentiles() {
			if some(func(r v1alpha1.CellResult) bool { return *PercentileOf(&r, p) != nil || isLost(r, p) }) {
				columns = append(columns, percentileColumn(p))
			}
		}
		for _, p := range []v1alpha1.Percentile{v1alpha1.P50, v1alpha1.P99} {
			columns = append(columns, tableColumn{"RATIO " + strings.ToUpper(string(p)), func(r v1alpha1.CellResult) string { return ratioText(r, reference, p) }})
		}
		heading += ", ratios to " + reference
		if some(func(r v1alpha1.CellResult) bool { return slices.ContainsFunc(r.Ratios, bounded) }) {
			heading += " with 95 % bounds"
		}
		if err := writeColumns(w, heading, columns, rows); err != nil {
			return fmt.Errorf("writing the comparison of %s: %w", first.Name, err)
		}
	}
	return nil
}

// bandwidths has a line for each cell that streamed; of several variants they stand one below the other, with ratios to
// the reference.
func bandwidths(w io.Writer, reference string, results []v1alpha1.CellResult) error {
	cells := byCell(slices.DeleteFunc(slices.Clone(results), func(r v1alpha1.CellResult) bool { return r.Bandwidth == nil }))
	rows := slices.Concat(cells...)
	if len(rows) == 0 {
		return nil
	}
	rate := func(title string, of func(*v1alpha1.BandwidthResult) int64) tableColumn {
		return tableColumn{title, func(r v1alpha1.CellResult) string { return stats.FormatBitRate(of(r.Bandwidth)) }}
	}
	columns := []tableColumn{variantColumn, cellColumn, roundsColumn,
		rate("BANDWIDTH", func(b *v1alpha1.BandwidthResult) int64 { return b.BitsPerSecond }),
		rate("LOWEST", func(b *v1alpha1.BandwidthResult) int64 { return b.MinBitsPerSecond }),
		rate("HIGHEST", func(b *v1alpha1.BandwidthResult) int64 { return b.MaxBitsPerSecond }),
		rate("SENT", func(b *v1alpha1.BandwidthResult) int64 { return b.SentBitsPerSecond }),
		lostColumn,
		{"RETRANSMITS", func(r v1alpha1.CellResult) string {
			if r.Bandwidth.Retransmits == nil {
				return "-"
			}
			return strconv.FormatInt(*r.Bandwidth.Retransmits, 10)
		}},
	}
	if len(rows) > len(cells) {
		columns = append(columns, tableColumn{"RATIO", func(r v1alpha1.CellResult) string {
			i := slices.IndexFunc(rows, func(first v1alpha1.CellResult) bool { return first.Variant == reference && first.Name == r.Name })
			if i < 0 || rows[i].Bandwidth.BitsPerSecond == 0 {
				return "-"
			}
			return decimals(float64(r.Bandwidth.BitsPerSecond)/float64(rows[i].Bandwidth.BitsPerSecond), math.Round)
		}})
	}
	if err := writeColumns(w, "BANDWIDTH", columns, rows); err != nil {
		return fmt.Errorf("writing the bandwidths: %w", err)
	}
	return nil
}

// percentile shows a percentile in a format, or why there is none.
func percentile(r v1alpha1.CellResult, name v1alpha1.Percentile, format func(ns int64) string) string {
	p, _ := stats.Named(string(name))
	switch ns := *PercentileOf(&r, name); {
	case ns != nil:
		return format(*ns)
	case isLost(r, name):
		return "lost"
	case r.StepNanoseconds > 0:
		return "-"
	default:
		return fmt.Sprintf("needs %d", p.Needs())
	}
}

func orEmpty(ns *int64) string {
	if ns == nil {
		return "-"
	}
	return stats.FormatLatency(*ns)
}

func muxer(m v1alpha1.Muxer) string {
	if m == v1alpha1.MuxerNone {
		return ""
	}
	return " with " + strings.ToLower(string(m))
}

// network names a way to the peer: its type, what it is made of, and the device's resource.
func network(n v1alpha1.Network) string {
	text := string(n.Type)
	switch {
	case n.NetworkRef != nil:
		text += " " + n.NetworkRef.Name
	case n.Interface != "":
		text += " " + n.Interface
	}
	if n.ResourceName != "" {
		text += " (" + n.ResourceName + ")"
	}
	return text
}

func device(e v1alpha1.Endpoint) string {
	if e.PCIAddress == "" {
		return ""
	}
	return fmt.Sprintf(" at %s (NUMA node %s)", e.PCIAddress, numa(e.DeviceNUMANode))
}

func numa(n int32) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
