package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

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
