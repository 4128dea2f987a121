package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/rounds"
)

// matrix prints a line for each rate and message size, from min to max, of all rounds together: a table for each variant
// and protocol.
func matrix(w io.Writer, s sheet) error {
	blocks := s.roundTrips(func(a, b v1alpha1.CellResult) bool { return a.Variant == b.Variant && a.Protocol == b.Protocol })
	if len(blocks) == 0 {
		return fmt.Errorf("%w: no cell measured round trips", ErrNothingToShow)
	}
	fmt.Fprintln(w, s.title())
	for _, rows := range blocks {
		first := rows[0]
		fmt.Fprintf(w, "\nvariant %s (%s), %s, %s%s, µs\n", first.Variant, Ways(s.variant(first.Variant)), first.Protocol, first.LatencyType, countedFrom(first.CountedFrom))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		header := "RATE/S\tSIZE\tROUNDS\tSAMPLES\tLOST\tMIN\tMEAN\t"
		for _, p := range rounds.Percentiles() {
			header += strings.ToUpper(string(p)) + "\t"
		}
		fmt.Fprintln(t, header+"MAX\t")
		for _, r := range rows {
			rate := "ping-pong"
			if r.RatePerSecond > 0 {
				rate = strconv.Itoa(int(r.RatePerSecond))
			}
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t", rate, r.MessageSizeBytes, r.Rounds, r.Samples, r.Lost, microsOf(r.MinNanoseconds), microsOf(r.MeanNanoseconds))
			for _, p := range rounds.Percentiles() {
				fmt.Fprintf(t, "%s\t", percentile(r, p, micros))
			}
			fmt.Fprintf(t, "%s\t\n", microsOf(r.MaxNanoseconds))
		}
		if err := t.Flush(); err != nil {
			return fmt.Errorf("writing the matrix: %w", err)
		}
	}
	notes(w, "", s.warnings())
	return nil
}
