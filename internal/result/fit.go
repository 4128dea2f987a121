package result

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// The part of maxStored that the server's document may use, in bytes: it contains the evidence and, if packets are captured, a
// histogram for each cell. The client's document contains up to two histograms and a log of intervals for each cell.
const (
	serverShare          = 64 << 10
	serverShareOfCapture = maxStored / 3
)

// mostIntervals is the largest number of intervals of a cell after joining: enough to see when a tail occurred.
const mostIntervals = 32

// fewerSlowest is the number of slow samples of a cell that are kept at first: a page of a report.
const fewerSlowest = 16

// Share returns the maximum size of the compressed document of one end, in bytes. Neither end knows the size of the other's
// document, so the shares are fixed; together they fill a ConfigMap.
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

// reduction is a way to make a document smaller.
type reduction struct {
	// said describes the reduction in a document that was reduced.
	said string
	// reduce reports whether there was anything to reduce.
	reduce func(*Document) (bool, error)
}

// reductions are in order of importance, the least important data first.
var reductions = []reduction{
	{"the tools' own figures were left out", leaveOutFigures},
	{
		fmt.Sprintf("only the %d slowest samples of each cell were kept", fewerSlowest),
		func(d *Document) (bool, error) { return keepSlowest(d, fewerSlowest) },
	},
	{
		fmt.Sprintf("intervals were joined to at most %d a cell, whose percentiles are upper limits", mostIntervals),
		joinAllIntervals,
	},
	{"no individual slow samples were kept", func(d *Document) (bool, error) { return keepSlowest(d, 0) }},
	{
		fmt.Sprintf("histograms have %d significant digits instead of %d, so percentiles are up to 1 %% too high", fewerDigits, digits),
		coarsenHistograms,
	},
}

// Fit returns the document, with as many reductions as it needs to take at most limit bytes when compressed and to be within the
// bounds of a reader. Counts, extremes and sums stay exact. The error wraps ErrTooLarge if all reductions are not enough.
func Fit(d Document, limit int) (Document, error) {
	d.Cells, d.Captured, d.Reduced = slices.Clone(d.Cells), slices.Clone(d.Captured), slices.Clone(d.Reduced)
	err := fits(d, limit)
	for _, r := range reductions {
		if !errors.Is(err, ErrTooLarge) {
			break
		}
		reduced, problem := r.reduce(&d)
		if problem != nil {
			return Document{}, problem
		}
		if reduced {
			d.Reduced = append(d.Reduced, r.said)
			err = fits(d, limit)
		}
	}
	if err != nil {
		return Document{}, err
	}
	return d, nil
}

// fits returns an error wrapping ErrTooLarge if a document takes more than limit bytes when compressed, or is larger than a
// reader accepts.
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

func leaveOutFigures(d *Document) (bool, error) {
	some := false
	for i := range d.Cells {
		some = some || len(d.Cells[i].Figures) > 0
		d.Cells[i].Figures = nil
	}
	return some, nil
}

// keepSlowest keeps at most the given number of each cell's slow samples, which are sorted, the slowest first.
func keepSlowest(d *Document, most int) (bool, error) {
	some := false
	for i := range d.Cells {
		a := d.Cells[i].Attribution
		if a == nil || len(a.Slowest) <= most {
			continue
		}
		fewer := *a
		fewer.Slowest = nil
		if most > 0 {
			fewer.Slowest = a.Slowest[:most]
		}
		d.Cells[i].Attribution, some = &fewer, true
	}
	return some, nil
}

func joinAllIntervals(d *Document) (bool, error) {
	some := false
	for i := range d.Cells {
		if log := d.Cells[i].Intervals; len(log) > mostIntervals {
			d.Cells[i].Intervals, some = joinIntervals(log), true
		}
	}
	return some, nil
}

// joinIntervals joins neighbouring intervals, equally many each time, so that at most mostIntervals are left. A percentile of
// the joined samples is not known, but it is at most the largest percentile of the parts.
func joinIntervals(log []tool.Interval) []tool.Interval {
	var joined []tool.Interval
	for part := range slices.Chunk(log, (len(log)+mostIntervals-1)/mostIntervals) {
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

func coarsenHistograms(d *Document) (bool, error) {
	some := false
	coarsen := func(h *Histogram) error {
		// A cell of a tool that reports no samples has no histogram.
		if h == nil || h.Encoded == "" {
			return nil
		}
		coarse, err := h.coarse()
		if err != nil {
			return fmt.Errorf("making a result smaller: %w", err)
		}
		*h, some = coarse, true
		return nil
	}
	for i := range d.Cells {
		c := &d.Cells[i]
		if err := coarsen(&c.Histogram); err != nil {
			return false, err
		}
		if c.ActualStart != nil {
			c.ActualStart = new(*c.ActualStart)
		}
		if err := coarsen(c.ActualStart); err != nil {
			return false, err
		}
	}
	for i := range d.Captured {
		if err := coarsen(&d.Captured[i].Histogram); err != nil {
			return false, err
		}
	}
	return some, nil
}
