package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// Table writes results for people: cells or, with several variants, a table for each with ratios to
// the first; then the limits, the verdict and placements, with all checks of unverified ones.
func Table(w io.Writer, b *v1alpha1.LatencyBenchmark) error { return table(w, b, false) }

func table(w io.Writer, b *v1alpha1.LatencyBenchmark, all bool) error {
	fmt.Fprintf(w, "%s/%s: %s, %s\n", b.Namespace, b.Name, b.Spec.Tool, b.Spec.LatencyType)
	for _, line := range noted(b.Spec.Notes) {
		fmt.Fprintln(w, line)
	}
	variants := plan.Variants(b.Spec)
	tables := bandwidths(variants[0].Name, b.Status.Results)
	if len(variants) > 1 {
		tables = append(comparison(variants[0].Name, b.Status.Results), tables...)
	} else {
		tables = append(latencies(b.Status.Results), tables...)
	}
	for _, t := range tables {
		if err := t.write(w); err != nil {
			return fmt.Errorf("writing %s: %w", t.heading, err)
		}
	}
	Notes(w, "", limits(b))
	Notes(w, "", verdict(b.Verdict()))
	return placements(w, variants, b.Status.Endpoints, all)
}

func limits(b *v1alpha1.LatencyBenchmark) []string {
	var lines []string
	for _, r := range b.Status.Results {
		if r.Outliers != "" {
			lines = append(lines, summary.Label(r)+": "+r.Outliers)
		}
	}
	return append(lines, warningLines(b)...)
}

func verdict(v *v1alpha1.Verdict) []string {
	if v == nil {
		return nil
	}
	rules := text.Of(v.Rules, func(r v1alpha1.RuleVerdict) string { return fmt.Sprintf("  %s: %s (%s)", r.Rule, r.Message, r.Reason) })
	return append([]string{fmt.Sprintf("verdict %s", v.Outcome)}, rules...)
}

type tableColumn struct {
	title string
	value func(v1alpha1.CellResult) string
}

var (
	variantColumn = tableColumn{"VARIANT", func(r v1alpha1.CellResult) string { return r.Variant }}
	cellColumn    = tableColumn{"CELL", func(r v1alpha1.CellResult) string { return r.Name }}
	roundsColumn  = countColumn("ROUNDS", func(r v1alpha1.CellResult) int64 { return int64(r.Rounds) })
	samplesColumn = countColumn("SAMPLES", func(r v1alpha1.CellResult) int64 { return r.Samples })
	lostColumn    = countColumn("LOST", func(r v1alpha1.CellResult) int64 { return r.Lost })
)

func countColumn(title string, of func(v1alpha1.CellResult) int64) tableColumn {
	return tableColumn{title, func(r v1alpha1.CellResult) string { return strconv.FormatInt(of(r), 10) }}
}

func latencyColumn(title string, format func(int64) string, of func(v1alpha1.CellResult) *int64) tableColumn {
	return tableColumn{title, func(r v1alpha1.CellResult) string { return known(of(r), format) }}
}

func rateColumn(title string, of func(*v1alpha1.BandwidthResult) int64) tableColumn {
	return tableColumn{title, func(r v1alpha1.CellResult) string {
		if r.Bandwidth == nil {
			return "-"
		}
		return stats.FormatBitRate(of(r.Bandwidth))
	}}
}

func figureColumns(percentiles []v1alpha1.Percentile, format func(int64) string, deviation bool) []tableColumn {
	column := func(title string, of func(v1alpha1.CellResult) *int64) tableColumn {
		return latencyColumn(title, format, of)
	}
	columns := []tableColumn{samplesColumn, lostColumn,
		column("MIN", func(r v1alpha1.CellResult) *int64 { return r.MinNanoseconds }), column("MEAN", func(r v1alpha1.CellResult) *int64 { return r.MeanNanoseconds })}
	for _, p := range percentiles {
		columns = append(columns, percentileColumn(p, format))
	}
	columns = append(columns, column("MAX", func(r v1alpha1.CellResult) *int64 { return r.MaxNanoseconds }))
	if deviation {
		columns = append(columns, column("STDDEV", func(r v1alpha1.CellResult) *int64 { return r.StddevNanoseconds }))
	}
	return columns
}

// TablePercentiles have columns in tables of results. Other forms have p75 and p95, too.
func TablePercentiles() []v1alpha1.Percentile {
	return slices.DeleteFunc(rounds.Percentiles(), func(p v1alpha1.Percentile) bool { return p == v1alpha1.P75 || p == v1alpha1.P95 })
}

func percentileColumn(p v1alpha1.Percentile, format func(int64) string) tableColumn {
	return tableColumn{strings.ToUpper(string(p)), func(r v1alpha1.CellResult) string { return percentile(r, p, format) }}
}

type resultTable struct {
	heading string
	columns []tableColumn
	rows    []v1alpha1.CellResult
}

func (t resultTable) lines() [][]string {
	all := [][]string{text.Of(t.columns, func(c tableColumn) string { return c.title })}
	for _, r := range t.rows {
		all = append(all, text.Of(t.columns, func(c tableColumn) string { return c.value(r) }))
	}
	return all
}

func (t resultTable) write(w io.Writer) error { return writeLines(w, t.heading, t.lines()) }

// writeLines writes right-aligned columns, after a blank line and a heading.
func writeLines(w io.Writer, heading string, lines [][]string) error {
	return writeColumns(w, heading, tabwriter.AlignRight, "%s\t\n", lines)
}

// WriteLeft writes indented left-aligned columns, after a blank line and a heading.
func WriteLeft(w io.Writer, heading string, lines [][]string) error {
	return writeColumns(w, heading, 0, "  %s\n", lines)
}

func writeColumns(w io.Writer, heading string, flags uint, format string, lines [][]string) error {
	fmt.Fprintln(w)
	if heading != "" {
		fmt.Fprintln(w, heading)
	}
	t := text.NewColumns(w, flags)
	for _, values := range lines {
		fmt.Fprintf(t, format, strings.Join(values, "\t"))
	}
	return t.Flush()
}

// latencies returns a table for each interval; with percentiles to p99.99 it fits into 80 columns.
func latencies(results []v1alpha1.CellResult) []resultTable {
	var all []resultTable
	for _, rows := range ByInterval(results) {
		heading, counts := counts(fmt.Sprintf("LATENCY of variant %s: %s, µs", rows[0].Variant, Interval(rows[0])), rows)
		columns := append([]tableColumn{cellColumn}, counts...)
		columns = append(columns, latencyColumn("MIN", stats.Micros, func(r v1alpha1.CellResult) *int64 { return r.MinNanoseconds }))
		columns = append(columns, reached(rows, stats.Micros)...)
		all = append(all, resultTable{heading, append(columns, latencyColumn("MAX", stats.Micros, func(r v1alpha1.CellResult) *int64 { return r.MaxNanoseconds })), rows})
	}
	return all
}

// counts returns the columns of rounds, samples and losses; equal rounds are in the heading.
func counts(heading string, rows []v1alpha1.CellResult) (string, []tableColumn) {
	var columns []tableColumn
	if slices.ContainsFunc(rows, func(r v1alpha1.CellResult) bool { return r.Rounds != rows[0].Rounds }) {
		columns = append(columns, roundsColumn)
	} else {
		heading += fmt.Sprintf(", %d rounds", rows[0].Rounds)
	}
	columns = append(columns, samplesColumn)
	if slices.ContainsFunc(rows, func(r v1alpha1.CellResult) bool { return r.Lost > 0 }) {
		columns = append(columns, lostColumn)
	}
	return heading, columns
}

// reached returns the columns that any of the rows has; without samples only the mean is exact.
func reached(rows []v1alpha1.CellResult, format func(int64) string) []tableColumn {
	var columns []tableColumn
	if slices.ContainsFunc(rows, func(r v1alpha1.CellResult) bool { return r.StepNanoseconds > 0 }) {
		columns = append(columns, latencyColumn("MEAN", format, func(r v1alpha1.CellResult) *int64 { return r.MeanNanoseconds }))
	}
	for _, p := range TablePercentiles() {
		if slices.ContainsFunc(rows, func(r v1alpha1.CellResult) bool { return r.Percentile(p) != nil || summary.IsLost(r, p) }) {
			columns = append(columns, percentileColumn(p, format))
		}
	}
	return columns
}

// Interval describes what a cell's latencies count: HalfRTT, RTT from the intended send, InToOut.
func Interval(r v1alpha1.CellResult) string {
	return string(r.LatencyType) + countedFrom(r.CountedFrom)
}

// ByInterval groups results with latencies: different intervals cannot be compared.
func ByInterval(results []v1alpha1.CellResult) [][]v1alpha1.CellResult {
	return grouped(answered(results), Interval)
}

func answered(results []v1alpha1.CellResult) []v1alpha1.CellResult {
	return slices.DeleteFunc(slices.Clone(results), func(r v1alpha1.CellResult) bool { return r.Stream })
}

func grouped[T any, K comparable](results []T, key func(T) K) [][]T {
	var all [][]T
	for _, r := range results {
		if i := slices.IndexFunc(all, func(rows []T) bool { return key(rows[0]) == key(r) }); i >= 0 {
			all[i] = append(all[i], r)
		} else {
			all = append(all, []T{r})
		}
	}
	return all
}

func ByCell(results []v1alpha1.CellResult) [][]v1alpha1.CellResult {
	return grouped(results, func(r v1alpha1.CellResult) string { return r.Name })
}

// comparison returns a table for each cell: a line for each variant, with ratios to the reference
// and the percentiles that any has. To p99.99 it fits into 120 columns, to p99.999 into 126.
func comparison(reference string, results []v1alpha1.CellResult) []resultTable {
	var all []resultTable
	for _, rows := range ByCell(answered(results)) {
		heading, counts := counts(fmt.Sprintf("LATENCY of %s: %s", rows[0].Name, Interval(rows[0])), rows)
		columns := append(append([]tableColumn{variantColumn}, counts...), reached(rows, stats.FormatLatency)...)
		for _, p := range []v1alpha1.Percentile{v1alpha1.P50, v1alpha1.P99} {
			columns = append(columns, tableColumn{"RATIO " + strings.ToUpper(string(p)), func(r v1alpha1.CellResult) string { return ratioText(r, reference, p) }})
		}
		heading += ", ratios to " + reference
		if slices.ContainsFunc(rows, func(r v1alpha1.CellResult) bool { return slices.ContainsFunc(r.Ratios, summary.Bounded) }) {
			heading += " with " + stats.Confidence
		}
		all = append(all, resultTable{heading, columns, rows})
	}
	return all
}

func bandwidths(reference string, results []v1alpha1.CellResult) []resultTable {
	cells := ByCell(slices.DeleteFunc(slices.Clone(results), func(r v1alpha1.CellResult) bool { return r.Bandwidth == nil }))
	rows := slices.Concat(cells...)
	if len(rows) == 0 {
		return nil
	}
	columns := []tableColumn{variantColumn, cellColumn, roundsColumn,
		rateColumn("BANDWIDTH", func(b *v1alpha1.BandwidthResult) int64 { return b.BitsPerSecond }),
		rateColumn("LOWEST", func(b *v1alpha1.BandwidthResult) int64 { return b.MinBitsPerSecond }),
		rateColumn("HIGHEST", func(b *v1alpha1.BandwidthResult) int64 { return b.MaxBitsPerSecond }),
		rateColumn("SENT", func(b *v1alpha1.BandwidthResult) int64 { return b.SentBitsPerSecond }),
		lostColumn,
		{"RETRANSMITS", func(r v1alpha1.CellResult) string { return whole(r.Bandwidth.Retransmits) }},
	}
	if len(rows) > len(cells) {
		columns = append(columns, tableColumn{"RATIO", func(r v1alpha1.CellResult) string {
			i := slices.IndexFunc(rows, func(first v1alpha1.CellResult) bool { return first.Variant == reference && first.Name == r.Name })
			if i < 0 || rows[i].Bandwidth.BitsPerSecond == 0 {
				return "-"
			}
			return stats.FormatRatio(float64(r.Bandwidth.BitsPerSecond)/float64(rows[i].Bandwidth.BitsPerSecond), math.Round)
		}})
	}
	return []resultTable{{"BANDWIDTH", columns, rows}}
}

func percentile(r v1alpha1.CellResult, name v1alpha1.Percentile, format func(ns int64) string) string {
	p, _ := stats.Named(string(name))
	switch ns := r.Percentile(name); {
	case ns != nil:
		return format(*ns)
	case summary.IsLost(r, name):
		return "lost"
	case r.StepNanoseconds > 0:
		return "-"
	default:
		return fmt.Sprintf("needs %d", p.Needs())
	}
}

func known(ns *int64, format func(int64) string) string {
	if ns == nil {
		return "-"
	}
	return format(*ns)
}

func network(n *v1alpha1.Network) string {
	text := string(n.Type)
	if ref := n.NetworkRef(); ref != nil {
		text += " " + ref.Name
	}
	if name := n.Interface(); name != "" {
		text += " " + name
	}
	if name := n.ResourceName(); name != "" {
		text += " (" + name + ")"
	}
	if name := n.AlignWith(); name != "" {
		text += ", aligned with " + name
	}
	return text
}

func numa(n int32) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
}

func orDash(s string) string { return cmp.Or(s, "-") }

// ratioText formats a ratio for people, such as 1.54 (1.49..1.60); a dash if it is unknown.
func ratioText(r v1alpha1.CellResult, reference string, p v1alpha1.Percentile) string {
	switch ratio, found := summary.RatioOf(r, reference, p); {
	case !found:
		return "-"
	case !summary.Bounded(ratio):
		return string(ratio.Estimate)
	default:
		return fmt.Sprintf("%s (%s..%s)", ratio.Estimate, cmp.Or(ratio.Lower, "0"), cmp.Or(ratio.Upper, "∞"))
	}
}

// wide writes Table with all checks, and a table of each cell and variant with each round.
func wide(w io.Writer, s sheet) error {
	if err := table(w, s.benchmark, true); err != nil {
		return err
	}
	d, err := s.document()
	if err != nil {
		return err
	}
	for _, c := range d.Cells {
		columns, counts := figureColumns(rounds.Percentiles(), stats.FormatLatency, true), Interval(c.CellResult)
		if c.Stream {
			counts = "bandwidth"
			columns = []tableColumn{rateColumn("BANDWIDTH", func(b *v1alpha1.BandwidthResult) int64 { return b.BitsPerSecond }),
				rateColumn("SENT", func(b *v1alpha1.BandwidthResult) int64 { return b.SentBitsPerSecond }), lostColumn}
		}
		names, rows := []string{"ROUND"}, []v1alpha1.CellResult{}
		for _, r := range c.EachRound {
			names, rows = append(names, strconv.Itoa(int(r.Round))), append(rows, r.CellResult)
		}
		lines := resultTable{"", columns, append(rows, c.CellResult)}.lines()
		for i, name := range append(names, "all") {
			lines[i] = slices.Insert(lines[i], 0, name)
		}
		if err := writeLines(w, fmt.Sprintf("ROUNDS of %s: %s", summary.Label(c.CellResult), counts), lines); err != nil {
			return fmt.Errorf("writing the rounds of %s: %w", summary.Label(c.CellResult), err)
		}
	}
	return nil
}

// matrix prints a table for each variant and protocol: all rounds, by rate and message size.
func matrix(w io.Writer, s sheet) error {
	blocks := s.roundTrips(func(r v1alpha1.CellResult) block {
		r.MessageSize, r.RatePerSecond = 0, 0
		return block{r.Variant, r.Traffic}
	})
	if len(blocks) == 0 {
		return fmt.Errorf("%w: no cell measured round trips", ErrNothingToShow)
	}
	fmt.Fprintln(w, s.title())
	for _, rows := range blocks {
		columns := []tableColumn{{"RATE/S", func(r v1alpha1.CellResult) string {
			if r.OpenLoop() {
				return strconv.Itoa(int(r.RatePerSecond))
			}
			return "ping-pong"
		}}, countColumn("SIZE", func(r v1alpha1.CellResult) int64 { return int64(r.MessageSize) }), roundsColumn}
		first := rows[0]
		heading := fmt.Sprintf("variant %s (%s), %s, %s, µs", first.Variant, Ways(s.collected.Variant(first.Variant).Variant), first.Protocol, Interval(first))
		if err := (resultTable{heading, append(columns, figureColumns(rounds.Percentiles(), micros, false)...), rows}).write(w); err != nil {
			return fmt.Errorf("writing the matrix: %w", err)
		}
	}
	Notes(w, "", warningLines(s.benchmark))
	return nil
}
