package report

import (
	"fmt"
	"io"
	"strconv"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/rounds"
)

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
