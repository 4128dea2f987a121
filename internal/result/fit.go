package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// The server's part of maxStored, in bytes: it has no histograms unless it captures.
const (
	serverShare          = 64 << 10
	serverShareOfCapture = maxStored / 3
)

// mostIntervals remain of a cell after joining: enough to see when a tail occurred.
const mostIntervals = 32

// Share is the limit of one end's compressed document, in bytes: it does not know the other's.
func Share(role string, capture bool) int {
	server := serverShare
	if capture {
		server = serverShareOfCapture
	}
	if role == v1alpha1.RoleServer {
		return server
	}
	return maxStored - server
}

// reductions make a document smaller, the least important data first, and say so.
var reductions = []struct {
	said   string
	reduce func(*Document) error
}{
	{"the tools' own figures and the individual slow samples were left out", leaveOut},
	{fmt.Sprintf("intervals were joined to at most %d a cell, whose percentiles are upper limits", mostIntervals), joinAllIntervals},
	{fmt.Sprintf("histograms have %d significant digits instead of %d, so percentiles are up to 1 %% too high", fewerDigits, digits), coarsenHistograms},
}

// Fit reduces a document until its compressed form takes at most limit bytes and a reader accepts
// it. Counts, extremes and sums stay exact. The error wraps ErrTooLarge.
func Fit(d Document, limit int) (Document, error) {
	d.Cells, d.Captured, d.Reduced = slices.Clone(d.Cells), slices.Clone(d.Captured), slices.Clone(d.Reduced)
	err := fits(d, limit)
	for _, r := range reductions {
		if !errors.Is(err, ErrTooLarge) {
			break
		}
		before, _ := json.Marshal(d)
		if err := r.reduce(&d); err != nil {
			return Document{}, fmt.Errorf("making a result smaller: %w", err)
		}
		if after, _ := json.Marshal(d); bytes.Equal(before, after) {
			continue // there was nothing to reduce
		}
		d.Reduced = append(d.Reduced, r.said)
		err = fits(d, limit)
	}
	if err != nil {
		return Document{}, err
	}
	return d, nil
}

// fits returns an error wrapping ErrTooLarge if a document is too large for limit or a reader.
func fits(d Document, limit int) error {
	framed, err := compress(d)
	if err != nil {
		return err
	}
	if n := len(framed.Compressed); n > limit {
		return fmt.Errorf("%w: the %s's is of %d KiB at its coarsest, and a ConfigMap keeps %d KiB of it",
			ErrTooLarge, d.Role, (n+1023)>>10, limit>>10)
	}
	return nil
}

func leaveOut(d *Document) error {
	for i := range d.Cells {
		d.Cells[i].Figures = nil
		if a := d.Cells[i].Attribution; a != nil {
			d.Cells[i].Attribution = new(*a)
			d.Cells[i].Attribution.Slowest = nil
		}
	}
	return nil
}

func joinAllIntervals(d *Document) error {
	for i := range d.Cells {
		d.Cells[i].Intervals = joinIntervals(d.Cells[i].Intervals)
	}
	return nil
}

// joinIntervals joins neighbours to at most mostIntervals; percentiles become the parts' largest.
func joinIntervals(log []tool.Interval) []tool.Interval {
	var joined []tool.Interval
	for part := range slices.Chunk(log, max((len(log)+mostIntervals-1)/mostIntervals, 1)) {
		all := part[0]
		for _, next := range part[1:] {
			all.LengthNs += next.LengthNs
			all.Count += next.Count
			all.Lost += next.Lost
			all.P50Ns, all.P99Ns = max(all.P50Ns, next.P50Ns), max(all.P99Ns, next.P99Ns)
			all.P999Ns, all.MaxNs = max(all.P999Ns, next.P999Ns), max(all.MaxNs, next.MaxNs)
		}
		joined = append(joined, all)
	}
	return joined
}

func coarsenHistograms(d *Document) error {
	var all []*Histogram
	for i := range d.Cells {
		all = append(all, &d.Cells[i].Histogram)
		if h := d.Cells[i].ActualStart; h != nil {
			d.Cells[i].ActualStart = new(*h)
			all = append(all, d.Cells[i].ActualStart)
		}
	}
	for i := range d.Captured {
		all = append(all, &d.Captured[i].Histogram)
	}
	var failed error
	for _, h := range all {
		if h.Encoded != "" { // a cell of a tool that reports no samples has no histogram
			coarse, err := h.coarse()
			*h, failed = coarse, errors.Join(failed, err)
		}
	}
	return failed
}
