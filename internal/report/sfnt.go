package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

// sfnt prints sfnt-pingpong's columns, after tabs, in whole ns, in a block for each variant, protocol and
// rate; # begins other lines. Figures are of all rounds; unknown is a dash or the word lost.
func sfnt(w io.Writer, s sheet) error {
	blocks := s.roundTrips(func(r v1alpha1.CellResult) block { return block{r.Variant, r.OfSize(0)} })
	if len(blocks) == 0 {
		return fmt.Errorf("%w: no cell measured round trips", ErrNothingToShow)
	}
	for i, rows := range blocks {
		if i > 0 {
			fmt.Fprintln(w)
		}
		s.sfntHeader(w, rows[0])
		for _, r := range rows {
			fmt.Fprintf(w, "\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", r.MessageSize, whole(r.MeanNanoseconds), whole(r.MinNanoseconds),
				wholePercentile(r, v1alpha1.P50), whole(r.MaxNanoseconds), wholePercentile(r, v1alpha1.P99), whole(r.StddevNanoseconds), r.Samples)
		}
		betweenRounds(w, rows)
	}
	Notes(w, "# ", warningLines(s.benchmark))
	return nil
}

func (s sheet) sfntHeader(w io.Writer, first v1alpha1.CellResult) {
	fmt.Fprintf(w, "# %s\n", s.title())
	if result.Imported(s.runs) == "" {
		fmt.Fprintf(w, "# variant: %s: %s\n", first.Variant, Ways(s.collected.Variant(first.Variant).Variant))
	}
	for _, line := range noted(s.benchmark.Spec.Notes) {
		fmt.Fprintf(w, "# %s\n", line)
	}
	fmt.Fprintf(w, "# protocol: %s\n", strings.ToLower(string(first.Protocol)))
	if first.OpenLoop() {
		fmt.Fprintf(w, "# rate: %d messages a second, counted%s\n", first.RatePerSecond, countedFrom(first.CountedFrom))
	}
	for _, e := range s.benchmark.Status.Endpoints {
		if e.Variant != first.Variant {
			continue
		}
		if e.ToolVersion != "" {
			fmt.Fprintf(w, "# version: %s\n", e.ToolVersion)
		}
		device := ""
		if e.PCIAddress != "" {
			device = fmt.Sprintf(" at %s (NUMA node %s)", e.PCIAddress, numa(e.DeviceNUMANode))
		}
		fmt.Fprintf(w, "# %s: %s, CPU %d, %s mtu %d driver %s%s, kernel %s\n", e.Role, e.Node, e.MeasuringCPU, e.Interface, e.MTU, orDash(e.Driver), device, e.Kernel)
	}
	if first.StepNanoseconds > 0 {
		fmt.Fprintf(w, "# the tool reports no samples: median and percentile are the medians of its own in each round, in steps of %d ns\n", first.StepNanoseconds)
	}
	fmt.Fprintf(w, "# percentile=99\n# reporting: %s\n#\n", strings.Replace(string(first.LatencyType), "HalfRTT", "1/2 RTT", 1))
	fmt.Fprintf(w, "#\tsize\tmean\tmin\tmedian\tmax\t%%ile\tstddev\titer\n")
}

func betweenRounds(w io.Writer, rows []v1alpha1.CellResult) {
	for _, r := range rows {
		text := ""
		for _, spread := range r.Spread {
			switch spread.Percentile {
			case v1alpha1.P50:
				text += fmt.Sprintf(", median %d to %d", spread.MinNanoseconds, spread.MaxNanoseconds)
			case v1alpha1.P99:
				text += fmt.Sprintf(", %%ile %d to %d", spread.MinNanoseconds, spread.MaxNanoseconds)
			}
		}
		if text != "" {
			fmt.Fprintf(w, "# between %d rounds: size %d%s\n", r.Rounds, r.MessageSize, text)
		}
	}
}

func whole(ns *int64) string {
	return known(ns, func(n int64) string { return strconv.FormatInt(n, 10) })
}

func wholePercentile(r v1alpha1.CellResult, p v1alpha1.Percentile) string {
	if summary.IsLost(r, p) {
		return "lost"
	}
	return whole(r.Percentile(p))
}
