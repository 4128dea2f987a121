package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// twoWays returns a benchmark of two variants in two rounds that measures round trips and a stream, and loses messages.
func twoWays(t *testing.T) (*v1alpha1.LatencyBenchmark, []result.Stored) {
	t.Helper()
	b := experiment("ways", v1alpha1.ToolSockperf, v1alpha1.Workload{
		Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, MessageSizes: []int32{64}, RatesPerSecond: []int32{5_000},
		Streams: []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolTCP, MessageSize: 1024}},
	}, v1alpha1.Variant{Name: "block"}, v1alpha1.Variant{Name: "spin", Wait: v1alpha1.WaitSpin})
	b.Spec.Rounds = 2
	b.Spec.Notes = []v1alpha1.Note{{Name: "bios", Value: "low latency"}, {Name: "switch", Value: "leaf-1, cut-through"}}
	b.Status.Pair = &v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}
	b.Status.Verdict = &v1alpha1.Verdict{Outcome: v1alpha1.VerdictPass}
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	runs := measured(b, func(run plan.Run, c *result.Cell) {
		c.StartedAt = began.Add(time.Duration(run.Round) * time.Minute)
		c.FinishedAt = c.StartedAt.Add(time.Second)
		if c.Stream {
			c.Bandwidth = &tool.Bandwidth{BitsPerSecond: 1e9, SentBitsPerSecond: 2e9, Retransmits: new(int64(3))}
			return
		}
		first := 20_000 + 1_000*int64(run.Round)
		if run.Variant.Name == "spin" {
			first /= 2
		}
		c.Start, c.Histogram = tool.StartIntended, histogram(t, first, 1, 2_000)
		c.ActualStart = new(histogram(t, first-1_000, 1, 2_000))
		if run.Round == 2 {
			c.Lost = 1
		}
	})
	return b, runs
}

// The golden files hold what programs and reports rely on: names, units, columns.
func TestForms(t *testing.T) {
	b, runs := twoWays(t)
	for form, file := range map[string]string{"wide": "wide.txt", "json": "results.json", "csv": "results.csv"} {
		golden.Check(t, file, printed(t, form, b, runs))
	}
}

// Every line of CSV has every column, and the lines of all rounds hold the results of the table.
func TestFormCSVIsOfTheResults(t *testing.T) {
	b, runs := twoWays(t)
	lines, err := csv.NewReader(strings.NewReader(printed(t, "csv", b, runs))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := func(line []string, column string) string { return line[slices.Index(lines[0], column)] }
	summary := summarize(t, b.Spec, runs...)
	var all int
	for _, line := range lines[1:] {
		if at(line, "scope") != "all" {
			continue
		}
		r := summary.Results[all]
		all++
		want := ""
		if r.Percentile(v1alpha1.P99) != nil {
			want = fmt.Sprint(*r.Percentile(v1alpha1.P99))
		}
		if at(line, "variant") != r.Variant || at(line, "cell") != r.Name || at(line, "p99_ns") != want {
			t.Errorf("%q is not %+v", line, r)
		}
	}
	if rounds := len(lines) - 1 - all; all != len(summary.Results) || rounds != 2*all {
		t.Errorf("%d lines of all rounds and %d of a round, of %d results", all, rounds, len(summary.Results))
	}
}

func TestFormsOfPairs(t *testing.T) {
	m, pairs := matrixOf(v1alpha1.TopologyRing, 3, func(b *v1alpha1.LatencyBenchmark) { found(b, plan.DefaultVariant, 5_000, 9_000, true) })
	for form, file := range map[string]string{"csv": "pairs.csv", "json": "pairs.json"} {
		f, err := FormNamed(form)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := f.WritePairs(&out, m, pairs); err != nil || !f.ShowsPairs() {
			t.Fatal(err)
		}
		golden.Check(t, file, out.String())
	}
	f, _ := FormNamed("sfnt")
	if err := f.WritePairs(&bytes.Buffer{}, m, pairs); err == nil || f.ShowsPairs() {
		t.Error("sfnt shows pairs")
	}
}

// No cell of a text begins like a formula.
func TestCSVHasNoFormulas(t *testing.T) {
	for in, want := range map[string]string{"": "", "p99": "p99", "=HYPERLINK(1)": "'=HYPERLINK(1)", "+1": "'+1", "-1": "'-1", "@x": "'@x", "\t=1": "'\t=1", "\r=1": "'\r=1", "hw: x;=cmd|/C calc!A0;y": "hw: x,=cmd|/C calc!A0,y", ";=1": ",=1"} {
		if got := noFormula(in); got != want {
			t.Errorf("%q is %q", in, got)
		}
	}
	cell := DocumentCell{CellResult: v1alpha1.CellResult{Name: "tcp-64", CountedFrom: `=HYPERLINK("http://x","y")`}}
	var out strings.Builder
	if err := writeCSV(&out, Document{Cells: []DocumentCell{cell}, Notes: []v1alpha1.Note{{Name: "=1", Value: "x"}, {Name: "hw", Value: "x;=1;y"}}}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range slices.Concat(rows[1], strings.Split(out.String(), ";")[1:]) {
		if strings.HasPrefix(field, "=") {
			t.Errorf("the cell %q", field)
		}
	}
	if !slices.Contains(rows[1], `'=HYPERLINK("http://x","y")`) {
		t.Errorf("%q", rows[1])
	}
}
