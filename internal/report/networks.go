package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

// networks prints the mean latency and the bandwidth of each network: a table for each protocol, a row for each network, a
// column for each cell and MTU. A second table shows the range of the rounds.
//
// A network measured at several MTUs has several variants, named after the network and its MTU: vf-1500 and vf-9000 form the
// row vf. The MTU of a variant is the one that its endpoints observed; if they differ, the smallest.
func networks(w io.Writer, s sheet) error {
	if len(s.benchmark.Status.Results) == 0 {
		return fmt.Errorf("%w: no cell has a result", ErrNothingToShow)
	}
	fmt.Fprintf(w, "%s\n", s.title())
	g := s.networkGrid()
	for _, p := range []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP, v1alpha1.ProtocolMulticast} {
		columns := g.columns(p)
		if len(columns) == 0 {
			continue
		}
		if err := g.write(w, fmt.Sprintf("%s: mean latency of all round trips, median bandwidth of the rounds", p), columns, figures.typical); err != nil {
			return err
		}
		if len(s.runs) > len(g.variants) {
			if err := g.write(w, fmt.Sprintf("%s: lowest to highest of the rounds", p), columns, figures.between); err != nil {
				return err
			}
		}
	}
	if result.Imported(s.runs) == "" { // No agent observed the interfaces of an imported result.
		if err := g.writeNICs(w, s.runs); err != nil {
			return fmt.Errorf("writing the NICs: %w", err)
		}
	}
	Notes(w, "", append(g.notes, warningLines(s.benchmark)...))
	return nil
}

// writeNICs prints what each row was measured over at each end, and notes if the rows of an end are of several ports.
func (g *grid) writeNICs(w io.Writer, runs []result.Stored) error {
	lines := [][]string{{"NETWORK", "END", "INTERFACE", "DRIVER", "Mb/s", "PORT"}}
	ports := map[string][]string{}
	for _, v := range g.variants {
		for _, run := range result.OfVariant(runs, v.name) {
			for _, d := range []result.Document{run.Client, run.Server} {
				e := d.Evidence
				port := orDash(e.Facts["nic.port"])
				line := []string{v.row, d.Role, orDash(e.Interface), orDash(e.Driver), orDash(e.Facts["nic.speed"]), port}
				if slices.ContainsFunc(lines, func(known []string) bool { return slices.Equal(known, line) }) {
					continue
				}
				lines = append(lines, line)
				if !slices.Contains(ports[d.Role], port) {
					ports[d.Role] = append(ports[d.Role], port)
				}
			}
		}
	}
	for _, role := range []string{v1alpha1.RoleClient, v1alpha1.RoleServer} {
		if all := ports[role]; len(all) > 1 {
			g.notes = append(g.notes, fmt.Sprintf(
				"the rows of the %s are of several NICs or ports (%s; - is an interface without a known NIC): a difference between them may be that of the NIC, its link or its cable",
				role, strings.Join(all, ", ")))
		}
	}
	return writeLines(w, "interface of each network", lines)
}

// grid holds the contents of the tables.
type grid struct {
	// variants holds the variants that have results, in the order of the spec.
	variants []networkVariant
	// results is indexed by variant and cell.
	results map[[2]string]figures
	// order holds the cells in the order of the spec.
	order []v1alpha1.CellResult
	// notes holds remarks that the tables cannot show.
	notes []string
}

// networkVariant is the place of a variant in the tables.
type networkVariant struct {
	name, row string
	mtu       int32
}

// figures holds the result of a cell, and the mean of each round in nanoseconds.
type figures struct {
	v1alpha1.CellResult
	roundMeans []int64
}

// networkColumn is a cell at an MTU.
type networkColumn struct {
	cell v1alpha1.CellResult
	mtu  int32
}

func (s sheet) networkGrid() grid {
	g := grid{results: map[[2]string]figures{}}
	taken := map[string]bool{}
	for _, v := range plan.Variants(s.benchmark.Spec) {
		runs := result.OfVariant(s.runs, v.Name)
		if len(runs) == 0 {
			continue
		}
		seen := mtus(runs)
		placed := networkVariant{name: v.Name, mtu: seen[0]}
		placed.row = strings.TrimSuffix(v.Name, fmt.Sprintf("-%d", placed.mtu))
		// Two variants cannot share a place.
		if place := fmt.Sprint(placed.row, placed.mtu); taken[place] {
			placed.row = v.Name
		} else {
			taken[place] = true
		}
		if len(seen) > 1 {
			g.notes = append(g.notes, fmt.Sprintf("%s: the endpoints had MTUs of %s; the table has it under the smallest", v.Name, strings.Trim(fmt.Sprint(seen), "[]")))
		}
		g.variants = append(g.variants, placed)
		for _, r := range s.benchmark.Status.Results {
			if r.Variant != v.Name || r.LatencyType == v1alpha1.ResultInToOut {
				continue
			}
			g.results[[2]string{v.Name, r.Name}] = figures{r, roundMeans(r, runs, summary.Shown(s.benchmark.Spec.LatencyType))}
			if !slices.ContainsFunc(g.order, func(o v1alpha1.CellResult) bool { return o.Name == r.Name }) {
				g.order = append(g.order, r)
			}
		}
	}
	return g
}

// mtus returns the distinct MTUs of all endpoints of the runs in ascending order.
func mtus(runs []result.Stored) []int32 {
	seen := map[int32]bool{}
	for _, run := range runs {
		seen[run.Client.Evidence.MTU], seen[run.Server.Evidence.MTU] = true, true
	}
	return slices.Sorted(maps.Keys(seen))
}

// roundMeans returns the mean of the round trips of each round, converted by shown.
func roundMeans(r v1alpha1.CellResult, runs []result.Stored, shown func(int64) int64) []int64 {
	var means []int64
	for i := range runs {
		switch c, _ := runs[i].Cell(r.Name); {
		case c == nil || c.Stream:
		case c.Own != nil:
			means = append(means, shown(int64(math.Round(c.Own.MeanNs))))
		case c.Histogram.Count > 0:
			means = append(means, shown(int64(math.Round(float64(c.Histogram.SumNs)/float64(c.Histogram.Count)))))
		}
	}
	return means
}

// columns returns the cells of a protocol at every MTU at which any variant has them, latencies first.
func (g grid) columns(p v1alpha1.Protocol) []networkColumn {
	var latencies, bandwidths []networkColumn
	for _, cell := range g.order {
		if cell.Protocol != p {
			continue
		}
		at := map[int32]bool{}
		for _, v := range g.variants {
			if _, ok := g.results[[2]string{v.name, cell.Name}]; ok {
				at[v.mtu] = true
			}
		}
		for _, mtu := range slices.Sorted(maps.Keys(at)) {
			if summary.Streams(cell) {
				bandwidths = append(bandwidths, networkColumn{cell, mtu})
			} else {
				latencies = append(latencies, networkColumn{cell, mtu})
			}
		}
	}
	return append(latencies, bandwidths...)
}

func (g grid) write(w io.Writer, heading string, columns []networkColumn, show func(figures) string) error {
	var lines [][]string
	line := func(name string, value func(networkColumn) string) {
		values := []string{name}
		for _, c := range columns {
			values = append(values, value(c))
		}
		lines = append(lines, values)
	}
	line("", func(c networkColumn) string { return c.cell.Name })
	line("", func(c networkColumn) string {
		if summary.Streams(c.cell) {
			return "Mb/s"
		}
		return string(c.cell.LatencyType) + " µs"
	})
	line("NETWORK", func(c networkColumn) string { return fmt.Sprintf("MTU=%d", c.mtu) })
	var rows []string
	for _, v := range g.variants {
		if slices.Contains(rows, v.row) {
			continue
		}
		rows = append(rows, v.row)
		line(v.row, func(c networkColumn) string {
			for _, other := range g.variants {
				if f, ok := g.results[[2]string{other.name, c.cell.Name}]; ok && other.row == v.row && other.mtu == c.mtu {
					return show(f)
				}
			}
			return "-"
		})
	}
	if err := writeLines(w, heading, lines); err != nil {
		return fmt.Errorf("writing the networks: %w", err)
	}
	return nil
}

// typical formats the mean latency, or the median bandwidth.
func (f figures) typical() string {
	if f.Bandwidth != nil {
		return megabits(f.Bandwidth.BitsPerSecond)
	}
	return known(f.MeanNanoseconds, micros)
}

// between formats the lowest and the highest value of the rounds.
func (f figures) between() string {
	switch {
	case f.Bandwidth != nil:
		return megabits(f.Bandwidth.MinBitsPerSecond) + "-" + megabits(f.Bandwidth.MaxBitsPerSecond)
	case len(f.roundMeans) == 0:
		return "-"
	}
	return micros(slices.Min(f.roundMeans)) + "-" + micros(slices.Max(f.roundMeans))
}

// megabits formats a bit rate in whole megabits per second.
func megabits(bitsPerSecond int64) string { return fmt.Sprintf("%.0f", float64(bitsPerSecond)/1e6) }
