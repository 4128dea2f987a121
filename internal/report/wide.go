package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// wide writes what Table does with all checks, and of each cell and variant a table with a line for each round, with all
// figures.
func wide(w io.Writer, s sheet) error {
	if err := table(w, s.benchmark, true); err != nil {
		return err
	}
	d, err := s.document()
	if err != nil {
		return err
	}
	for _, c := range d.Cells {
		lines := [][]string{roundTitles(c.CellResult)}
		for _, r := range c.EachRound {
			lines = append(lines, roundLine(strconv.Itoa(int(r.Round)), r.CellResult))
		}
		lines = append(lines, roundLine("all", c.CellResult))
		heading := fmt.Sprintf("ROUNDS of %s: %s", label(c.CellResult), roundCounts(c.CellResult))
		if err := writeLines(w, heading, lines); err != nil {
			return fmt.Errorf("writing the rounds of %s: %w", label(c.CellResult), err)
		}
	}
	return nil
}

// roundCounts says what the figures of a cell's rounds are.
func roundCounts(r v1alpha1.CellResult) string {
	if streams(r) {
		return "bandwidth"
	}
	return string(r.LatencyType) + countedFrom(r.CountedFrom)
}

func roundTitles(r v1alpha1.CellResult) []string {
	if streams(r) {
		return []string{"ROUND", "BANDWIDTH", "SENT", "LOST"}
	}
	titles := []string{"ROUND", "SAMPLES", "LOST", "MIN", "MEAN"}
	for _, p := range rounds.Percentiles() {
		titles = append(titles, strings.ToUpper(string(p)))
	}
	return append(titles, "MAX", "STDDEV")
}

func roundLine(round string, r v1alpha1.CellResult) []string {
	if streams(r) {
		if r.Bandwidth == nil {
			return []string{round, "-", "-", strconv.FormatInt(r.Lost, 10)}
		}
		return []string{round, stats.FormatBitRate(r.Bandwidth.BitsPerSecond), stats.FormatBitRate(r.Bandwidth.SentBitsPerSecond), strconv.FormatInt(r.Lost, 10)}
	}
	values := []string{round, strconv.FormatInt(r.Samples, 10), strconv.FormatInt(r.Lost, 10), orEmpty(r.MinNanoseconds), orEmpty(r.MeanNanoseconds)}
	for _, p := range rounds.Percentiles() {
		values = append(values, percentile(r, p, stats.FormatLatency))
	}
	return append(values, orEmpty(r.MaxNanoseconds), orEmpty(r.StddevNanoseconds))
}
