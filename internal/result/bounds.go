package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// The limits of a document, checked before it is decoded: kilobytes can expand to gigabytes. A legal run
// has 400 cells, each with 128 intervals, 64 slow samples and about 60 strings, and some 400 facts.
const (
	maxPlain      = 8 << 20   // bytes of the JSON of a document
	maxOuter      = 4096      // members and elements outside arrays, such as cells
	maxMembers    = 128 << 10 // of objects in outer arrays: the fields of cells
	maxInner      = 128 << 10 // elements of inner arrays: intervals, slow samples, commands
	maxConditions = 512 << 10 // bytes of the JSON without its measurements
	maxDepth      = 16
)

func checkPlain(plain []byte) error {
	if len(plain) > maxPlain {
		return fmt.Errorf("it has more than %d MiB of JSON", maxPlain>>20)
	}
	if _, found := withoutControls(plain); found {
		return errors.New("it has characters that control a terminal")
	}
	return checkStructure(plain)
}

// withoutControls replaces characters of a JSON text that control a terminal, raw or escaped,
// except tabs and line ends. It copies the text only if it found some.
func withoutControls(plain []byte) (clean []byte, found bool) {
	kept := 0
	for i := 0; i < len(plain); {
		length, control := 1, plain[i] == 0x7f
		switch {
		case plain[i] == '\\' && i+1 < len(plain):
			length, control = 2, bytes.IndexByte([]byte("bfr"), plain[i+1]) >= 0
			if plain[i+1] == 'u' && i+6 <= len(plain) {
				code, err := strconv.ParseUint(string(plain[i+2:i+6]), 16, 16)
				length, control = 6, err == nil && unicode.IsControl(rune(code)) && code != '\n' && code != '\t'
			}
		case plain[i] == 0xc2 && i+1 < len(plain):
			length, control = 2, plain[i+1] < 0xa0
		}
		if control {
			clean, kept = append(append(clean, plain[kept:i]...), string(unicode.ReplacementChar)...), i+length
		}
		i += length
	}
	if kept == 0 {
		return plain, false
	}
	return append(clean, plain[kept:]...), true
}

func checkConditions(d Document) error {
	text, err := json.Marshal(d.withoutMeasurements())
	if err == nil && len(text) > maxConditions {
		err = fmt.Errorf("its conditions take %d KiB, and at most %d KiB are possible", (len(text)+1023)>>10, maxConditions>>10)
	}
	return err
}

// checkStructure refuses a JSON text with too many elements. It neither allocates nor validates.
func checkStructure(plain []byte) error {
	var (
		inArray               [maxDepth + 1]int // the number of enclosing containers that are arrays
		array                 [maxDepth + 1]bool
		depth                 int
		outer, members, inner int
	)
	for i := 0; i < len(plain); i++ {
		switch plain[i] {
		case '"':
			for i++; i < len(plain) && plain[i] != '"'; i++ {
				if plain[i] == '\\' {
					i++
				}
			}
			continue
		case '{', '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("it is nested deeper than %d", maxDepth)
			}
			array[depth] = plain[i] == '['
			inArray[depth] = inArray[depth-1]
			if array[depth] {
				inArray[depth]++
			}
		case '}', ']':
			depth = max(0, depth-1)
			continue
		case ',':
		default:
			continue
		}
		// A first element counts at its bracket, others at the comma before.
		switch {
		case inArray[depth] == 0 || inArray[depth] == 1 && array[depth]:
			outer++
		case array[depth]:
			inner++
		case inArray[depth] == 1:
			members++
		}
		if outer > maxOuter || members > maxMembers || inner > maxInner {
			return fmt.Errorf("it has more than %d values outside of arrays, %d members of objects in arrays, or %d elements of arrays in arrays",
				maxOuter, maxMembers, maxInner)
		}
	}
	return nil
}

// The server's part of maxStored, in bytes: it has no histograms unless it captures.
const (
	serverShare          = 64 << 10
	serverShareOfCapture = maxStored / 3
)

const mostIntervals = 32 // of a cell after joining: enough to see when a tail occurred

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
