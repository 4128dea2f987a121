package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

// networks prints mean latencies and bandwidths with the rounds' range, in a table for each protocol:
// networks are rows (vf-1500 and vf-9000: vf), cells and observed MTUs columns.
func networks(w io.Writer, s sheet) error {
	if len(s.benchmark.Status.Results) == 0 {
		return fmt.Errorf("%w: no cell has a result", ErrNothingToShow)
	}
	fmt.Fprintln(w, s.title())
	g := s.networkGrid()
	for _, p := range []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP, v1alpha1.ProtocolMulticast} {
		if err := g.write(w, p, "mean latency of all round trips, median bandwidth of the rounds", typical); err != nil {
			return err
		}
		if len(s.runs) > len(g.places) {
			if err := g.write(w, p, "lowest to highest of the rounds", s.between); err != nil {
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

type grid struct {
	places  []networkPlace        // of the variants that have results, in the spec's order
	results []v1alpha1.CellResult // those of the tables, in the spec's order
	notes   []string              // remarks that the tables cannot show
}

type networkPlace struct {
	variant, row string
	mtu          int32
}

type networkColumn struct {
	cell, unit string
	mtu        int32
}

const megabitsUnit = "Mb/s"

func (s sheet) networkGrid() grid {
	var g grid
	for _, v := range plan.Variants(s.benchmark.Spec) {
		runs := result.OfVariant(s.runs, v.Name)
		if len(runs) == 0 {
			continue
		}
		seen := sets.New[int32]()
		for _, run := range runs {
			seen.Insert(run.Client.Evidence.MTU, run.Server.Evidence.MTU)
		}
		mtus := sets.List(seen)
		place := networkPlace{v.Name, strings.TrimSuffix(v.Name, fmt.Sprintf("-%d", mtus[0])), mtus[0]}
		// Two variants cannot share a place: both then have their full names.
		if i := slices.IndexFunc(g.places, func(p networkPlace) bool { return p.row == place.row && p.mtu == place.mtu }); i >= 0 {
			place.row, g.places[i].row = v.Name, g.places[i].variant
		}
		if len(mtus) > 1 {
			g.notes = append(g.notes, fmt.Sprintf("%s: the endpoints had MTUs of %s; the table has it under the smallest", v.Name, strings.Trim(fmt.Sprint(mtus), "[]")))
		}
		g.places = append(g.places, place)
	}
	g.results = slices.DeleteFunc(slices.Clone(s.benchmark.Status.Results), func(r v1alpha1.CellResult) bool { return r.LatencyType == v1alpha1.ResultInToOut })
	return g
}

func (g grid) place(r v1alpha1.CellResult) networkPlace {
	return g.places[slices.IndexFunc(g.places, func(p networkPlace) bool { return p.variant == r.Variant })]
}

// columns returns a protocol's cells at every MTU at which a variant has them, latencies first.
func (g grid) columns(p v1alpha1.Protocol) []networkColumn {
	var columns []networkColumn
	for _, r := range g.results {
		c := networkColumn{r.Name, string(r.LatencyType) + " µs", g.place(r).mtu}
		if r.Stream {
			c.unit = megabitsUnit
		}
		if r.Protocol == p && !slices.Contains(columns, c) {
			columns = append(columns, c)
		}
	}
	place := func(c networkColumn) int {
		first := slices.IndexFunc(g.results, func(r v1alpha1.CellResult) bool { return r.Name == c.cell })
		if c.unit == megabitsUnit {
			first += len(g.results)
		}
		return first
	}
	slices.SortFunc(columns, func(a, b networkColumn) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.mtu, b.mtu))
	})
	return columns
}

func (g grid) write(w io.Writer, p v1alpha1.Protocol, of string, show func(v1alpha1.CellResult) string) error {
	columns := g.columns(p)
	if len(columns) == 0 {
		return nil
	}
	lines := [][]string{{""}, {""}, {"NETWORK"}}
	for _, c := range columns {
		lines[0], lines[1], lines[2] = append(lines[0], c.cell), append(lines[1], c.unit), append(lines[2], fmt.Sprintf("MTU=%d", c.mtu))
	}
	for _, rows := range grouped(g.places, func(p networkPlace) string { return p.row }) {
		line := append([]string{rows[0].row}, slices.Repeat([]string{"-"}, len(columns))...)
		for _, r := range g.results {
			place := g.place(r)
			for i, c := range columns {
				if place.row == rows[0].row && place.mtu == c.mtu && r.Name == c.cell {
					line[1+i] = show(r)
				}
			}
		}
		lines = append(lines, line)
	}
	if err := writeLines(w, fmt.Sprintf("%s: %s", p, of), lines); err != nil {
		return fmt.Errorf("writing the networks: %w", err)
	}
	return nil
}

// writeNICs prints over what each row was measured, and notes rows of several ports.
func (g *grid) writeNICs(w io.Writer, runs []result.Stored) error {
	lines := [][]string{{"NETWORK", "END", "INTERFACE", "DRIVER", "Mb/s", "PORT"}}
	ports := map[string][]string{}
	for _, p := range g.places {
		for _, run := range result.OfVariant(runs, p.variant) {
			for _, d := range []result.Document{run.Client, run.Server} {
				e := d.Evidence
				port := orDash(e.Facts["nic.port"])
				line := []string{p.row, d.Role, orDash(e.Interface), orDash(e.Driver), orDash(e.Facts["nic.speed"]), port}
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

func typical(r v1alpha1.CellResult) string {
	if r.Bandwidth != nil {
		return megabits(r.Bandwidth.BitsPerSecond)
	}
	return known(r.MeanNanoseconds, micros)
}

func (s sheet) between(r v1alpha1.CellResult) string {
	if r.Bandwidth != nil {
		return megabits(r.Bandwidth.MinBitsPerSecond) + "-" + megabits(r.Bandwidth.MaxBitsPerSecond)
	}
	cells := s.collected.Variant(r.Variant).Cells
	var means []int64
	for _, round := range cells[slices.IndexFunc(cells, func(c *rounds.Cell) bool { return c.Name == r.Name })].Measured.Found() {
		switch {
		case round.Own != nil:
			means = append(means, int64(math.Round(round.Own.MeanNs)))
		case round.Samples != nil && round.Samples.Count > 0:
			means = append(means, round.Samples.Mean)
		}
	}
	if len(means) == 0 {
		return "-"
	}
	shown := summary.Shown(r.LatencyType)
	return micros(shown(slices.Min(means))) + "-" + micros(shown(slices.Max(means)))
}

func megabits(bitsPerSecond int64) string { return fmt.Sprintf("%.0f", float64(bitsPerSecond)/1e6) }
