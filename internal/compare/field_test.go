package compare

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/text/width"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/test/field"
)

func TestField(t *testing.T) {
	field.Run(t, "looks", "internal/compare", func(t *testing.T, c field.Case) map[string]string {
		switch {
		case c.Arguments["note"] != "":
			return aligned(t, c.Arguments["note"])
		case c.Arguments["values"] != "":
			return units(c.Arguments["values"])
		}
		return ratioOfP50(t, c.Arguments["baseline"], c.Arguments["candidate"])
	})
}

// ratioOfP50 returns what compare and get show for two variants whose rounds have these p50, in nanoseconds of the full round trip.
func ratioOfP50(t *testing.T, baseline, candidate string) map[string]string {
	values := map[string][]string{"a": strings.Fields(baseline), "b": strings.Fields(candidate)}
	spec := v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{Tool: v1alpha1.ToolPinger, LatencyType: v1alpha1.LatencyRTT, Rounds: int32(len(values["a"])),
		Workload: v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64}},
		Variants: []v1alpha1.Variant{{Name: "a"}, {Name: "b"}}}}
	b := &v1alpha1.LatencyBenchmark{Spec: spec}
	b.Name = "x"
	var stored []result.Stored
	for _, run := range plan.Runs(b) {
		ns, err := strconv.ParseInt(values[run.Variant.Name][run.Round-1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		document := result.Document{Run: run.Name, Variant: run.Variant.Name, Role: v1alpha1.RoleClient}
		for _, cell := range run.Cells {
			recorder := result.NewRecorder()
			recorder.RecordN(ns, 1_000)
			h, err := recorder.Histogram()
			if err != nil {
				t.Fatal(err)
			}
			document.Cells = append(document.Cells, result.Cell{Cell: cell, Histogram: h})
		}
		stored = append(stored, result.Stored{Client: document})
	}
	collected, err := rounds.Of(spec, stored...)
	if err != nil {
		t.Fatal(err)
	}
	side := func(variant string) Side {
		return Side{Name: "x/" + variant, Variant: variant, Results: judge.Results{Collection: collected}}
	}
	c, err := Compare(side("a"), side("b"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range c.Figures {
		if row := f.Row(); f.Metric == v1alpha1.MetricP50 {
			got["ratio"], got["interval"] = row[3], row[4]
		}
	}
	results := summary.Summarize(collected).Results
	for _, r := range results[len(results)-1].Ratios {
		if r.Percentile == v1alpha1.P50 {
			got["get"] = fmt.Sprintf("%s %s..%s", r.Estimate, r.Lower, r.Upper)
		}
	}
	return got
}

// aligned says whether the columns behind a note begin at the same place of a terminal.
func aligned(t *testing.T, note string) map[string]string {
	var out bytes.Buffer
	if err := Table(&out, Comparison{Differences: []Difference{{Key: "note.a", Baseline: note, Candidate: "CANDIDATE", Note: true}, {Key: "note.b", Baseline: "x", Candidate: "CANDIDATE", Note: true}}}); err != nil {
		t.Fatal(err)
	}
	places := map[int]bool{}
	for line := range strings.Lines(out.String()) {
		if before, _, found := strings.Cut(line, "CANDIDATE"); found {
			cells := 0
			for _, r := range before {
				cells++
				if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
					cells++
				}
			}
			places[cells] = true
		}
	}
	return map[string]string{"aligned": map[bool]string{true: "yes", false: "no"}[len(places) == 1]}
}

// units returns the units of latencies in one column.
func units(values string) map[string]string {
	var all []string
	for text := range strings.FieldsSeq(values) {
		ns, _ := strconv.ParseInt(text, 10, 64)
		all = append(all, strings.TrimLeft(Figure{Unit: v1alpha1.UnitNanoseconds}.value(&ns), "0123456789."))
	}
	return map[string]string{"units": strings.Join(all, " ")}
}
