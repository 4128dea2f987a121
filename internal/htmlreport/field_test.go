package htmlreport

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/test/field"
)

// TestField tries the cases that need no browser; the argument "try" says what is computed.
func TestField(t *testing.T) {
	try := map[string]func(*testing.T, field.Case) map[string]string{
		"times": times, "colours": colours, "rounds": roundsOf, "names": turned, "types": types, "pairs": fewSamples, "matrices": twoMatrices, "line ends": lineEnds,
	}
	field.Run(t, "looks", "internal/htmlreport", func(t *testing.T, c field.Case) map[string]string { return try[c.Arguments["try"]](t, c) })
}

// times formats times in nanoseconds.
func times(_ *testing.T, c field.Case) map[string]string {
	var all []string
	for text := range strings.FieldsSeq(c.Arguments["ns"]) {
		ns, _ := strconv.ParseInt(text, 10, 64)
		all = append(all, seconds(ns))
	}
	return map[string]string{"times": strings.Join(all, ", ")}
}

// colours returns the colours of the pairs of a column of the input.
func colours(t *testing.T, c field.Case) map[string]string {
	lines := strings.Split(strings.TrimSpace(string(c.Read(t))), "\n")
	column := slices.Index(strings.Split(lines[0], ","), c.Arguments["column"])
	var all []export.Benchmark
	for _, line := range lines[1:] {
		values := strings.Split(line, ",")
		ns, err := strconv.ParseInt(values[column], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		b := &v1alpha1.LatencyBenchmark{}
		b.Status.Pair = &v1alpha1.Pair{ClientNode: values[0], ServerNode: values[1]}
		b.Status.Results = []v1alpha1.CellResult{{Name: "tcp-64", Variant: plan.DefaultVariant, LatencyType: "HalfRTT", Percentiles: []v1alpha1.PercentileResult{{Name: v1alpha1.P50, Nanoseconds: ns}}}}
		all = append(all, export.Benchmark{Object: b})
	}
	m := matricesOf(export.Benchmark{Matrix: &v1alpha1.LatencyMatrix{}, Pairs: all})[0]
	var classes []string
	for _, b := range all {
		pair := b.Object.Status.Pair
		for _, row := range m.Rows {
			if row.Client == pair.ClientNode {
				classes = append(classes, row.Fields[slices.Index(m.Servers, pair.ServerNode)].Class)
			}
		}
	}
	return map[string]string{"colours": strings.Join(classes, " "), "median": m.Median}
}

// roundsOf returns what the tables of a number of rounds have.
func roundsOf(t *testing.T, c field.Case) map[string]string {
	n, _ := strconv.Atoi(c.Arguments["rounds"])
	median, _ := strconv.ParseFloat(c.Arguments["median_ns"], 64)
	benchmarks := roundsSample(t, int32(n), median)
	s := report.AllSeries(benchmarks[0].Object, benchmarks[0].Runs)[0]
	columns, err := s.Columns()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	l := ladderOf("x", s, columns)
	fits := "yes"
	for _, part := range l.Parts() {
		width := columnWidth("p99.999999")
		for i, title := range within(l.Columns, part) {
			seen[title] = true
			texts := []string{title}
			for _, r := range l.Rows {
				texts = append(texts, within(r.Figures, part)[i].Text)
			}
			width += columnWidth(texts...)
		}
		if width > paperWidth {
			fits = fmt.Sprintf("%f points", width)
		}
	}
	return map[string]string{"first": l.Columns[0], "columns": strconv.Itoa(len(seen)), "fits": fits}
}

// turned returns the form of the heads of a matrix between the nodes of the input.
func turned(t *testing.T, c field.Case) map[string]string {
	names := strings.Fields(string(c.Read(t)))
	m := matrix{Servers: names}
	for _, name := range names {
		r := matrixRow{Client: name}
		for range names {
			r.Fields = append(r.Fields, matrixField{Text: "4.701"})
		}
		m.Rows = append(m.Rows, r)
	}
	m.divide()
	return map[string]string{"turned": fmt.Sprint(m.Turned), "tables": strconv.Itoa(len(m.Parts))}
}

// types returns the headings of a report of a benchmark of half round trips and one of full ones.
func types(t *testing.T, _ field.Case) map[string]string {
	p, err := newPage(mixedSample(t))
	if err != nil {
		t.Fatal(err)
	}
	c := p.Comparisons[0]
	return map[string]string{"before": p.Benchmarks[0].Tables[0].Caption, "after": p.Benchmarks[1].Tables[0].Caption, "comparison": string(c.LatencyType),
		"rounds": c.Rows[0].Rounds, "notes": strings.Join(c.Notes, "; "), "groups": p.Groups[0].Label + ", " + p.Groups[2].Label}
}

// fewSamples returns the field of a pair with few samples, and that of one that was not measured.
func fewSamples(t *testing.T, _ field.Case) map[string]string {
	all := pairsSample(t, 3)
	pairs := all[0].Pairs
	few := &pairs[0].Object.Status.Results[0]
	few.Percentiles, few.Samples = few.Percentiles[:1], 400
	fields := map[string]string{}
	for _, m := range matricesOf(all[0]) {
		for _, row := range m.Rows {
			for i, f := range row.Fields {
				fields[m.Percentile+" "+row.Client+" "+m.Servers[i]] = f.Text
			}
		}
	}
	at := func(b export.Benchmark) string {
		return "p99 " + b.Object.Status.Pair.ClientNode + " " + b.Object.Status.Pair.ServerNode
	}
	return map[string]string{"few": fields[at(pairs[0])], "queued": fields[at(pairs[len(pairs)-1])]}
}

// twoMatrices returns what stands in the place of a comparison of two matrices.
func twoMatrices(t *testing.T, _ field.Case) map[string]string {
	p, err := newPage(append(pairsSample(t, 3), pairsSample(t, 3)...))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"missing": p.Comparisons[0].Missing}
}

// lineEnds says whether the policy allows an asset with the line ends of Windows, which a browser changes before it computes the digest.
func lineEnds(_ *testing.T, _ field.Case) map[string]string {
	return map[string]string{"digest": fmt.Sprint(hashed("a\r\nb") == hashed("a\nb"))}
}
