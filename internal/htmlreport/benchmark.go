package htmlreport

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

type benchmark struct {
	ID              string // the prefix of the names of its parts in the page
	Namespace, Name string // Name distinguishes the benchmark from all others in the report
	Facts           [][2]string
	Simulated       bool
	Standing        string // the state of a benchmark that is not complete; empty if it is
	Verdict         *outcome
	Warnings        []v1alpha1.Warning
	Tables          []table
	Causes          []cause
	Placements      []placement
	Failures        []v1alpha1.Attempt
	Matrices        []matrix
	Manifest        string // the YAML with which the measurement can be repeated
	Stored          []v1alpha1.StoredResult

	collected *rounds.Collection
}

type table struct {
	Caption string
	Texts   []string
	Columns []string
	Rows    []tableRow
}

type tableRow struct {
	Texts   []string
	Begin   bool
	Figures []figure
}

func newBenchmark(b export.Benchmark, i int, name string) (benchmark, error) {
	collected, err := rounds.Of(b.Object.Spec, b.Runs...)
	if err != nil {
		return benchmark{}, err
	}
	computed := summary.Summarize(collected)
	manifest, err := manifestOf(b)
	if source := result.Imported(b.Runs); source != "" {
		manifest = "# Not measured by Tailgate: " + source + "\n"
	}
	if err != nil {
		return benchmark{}, err
	}
	one := benchmark{
		ID: fmt.Sprintf("b%d", i), Namespace: b.Object.Namespace, Name: name, Facts: factsOf(b),
		Verdict: verdictOf(b.Object), Warnings: computed.Warnings,
		Tables: tablesOf(b.Object, computed.Results), Causes: causesOf(collected),
		Placements: placementsOf(b.Object.Spec, computed.Endpoints), Matrices: matricesOf(b),
		Manifest: manifest, Stored: b.Object.Status.Stored, collected: collected,
	}
	measured := one.Warnings
	for _, p := range b.Pairs {
		measured = append(slices.Clip(measured), p.Object.Status.Warnings...)
	}
	one.Simulated = slices.ContainsFunc(measured, func(w v1alpha1.Warning) bool { return w.Reason == v1alpha1.WarningSimulatedNIC })
	if !meta.IsStatusConditionTrue(b.Object.Status.Conditions, v1alpha1.ConditionSucceeded) {
		one.Standing = summary.Standing(b.Object)
	}
	one.Failures = slices.DeleteFunc(slices.Clone(b.Object.Status.Attempts), func(a v1alpha1.Attempt) bool { return a.Outcome.Reason == v1alpha1.OutcomeMeasured })
	return one, nil
}

func factsOf(b export.Benchmark) [][2]string {
	spec, status := b.Object.Spec, b.Object.Status
	var facts [][2]string
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, [2]string{name, value})
		}
	}
	toolText := string(spec.Tool)
	if e := status.Endpoints; len(e) > 0 && e[0].ToolVersion != "" {
		toolText += " " + e[0].ToolVersion
	}
	add("Tool", toolText)
	add("Source", result.Imported(b.Runs))
	if p := status.Pair; p != nil {
		add("Nodes", p.ClientNode+" to "+p.ServerNode)
	}
	if b.Matrix != nil {
		add("Topology", fmt.Sprintf("%s, %s", b.Matrix.Spec.Topology, plural(len(b.Pairs), "pair")))
	}
	latencyType := "half round trip (HalfRTT)"
	if spec.LatencyType == v1alpha1.LatencyRTT {
		latencyType = "round trip (RTT)"
	}
	add("Latency", latencyType)
	if result.Imported(b.Runs) != "" {
		for _, n := range spec.Notes {
			add(n.Name, n.Value)
		}
		return facts
	}
	if len(b.Runs) > 0 {
		add("Runs", fmt.Sprintf("%d of %d: %s", len(b.Runs), len(plan.Runs(b.Object)), plural(int(plan.Rounds(b.Object)), "round")))
	} else {
		add("Rounds", fmt.Sprint(spec.Rounds))
	}
	each := spec.Workload.Duration.Duration.String()
	if warmup := spec.Workload.Warmup.Duration; warmup > 0 {
		each += fmt.Sprintf(" after %s of warm-up", warmup)
	}
	add("Each cell", each)
	add("Measured", at(status.StartTime))
	add("Took", duration(status.StartTime, status.CompletionTime))
	for _, n := range spec.Notes {
		add("Note: "+n.Name, n.Value)
	}
	return facts
}

type outcome struct {
	v1alpha1.Verdict
	Judged  []judgedRule
	Errors  string // the probabilities of a wrong verdict
	Against string // names the baseline; empty if there is none
}

const notJudged = "NotJudged"

var baselines = map[v1alpha1.BaselineType]string{
	v1alpha1.BaselineBenchmark: "LatencyBenchmark", v1alpha1.BaselineVariant: "variant", v1alpha1.BaselineGate: "LatencyGate",
	v1alpha1.BaselineMatrix: "LatencyMatrix", v1alpha1.BaselineExport: "export in ConfigMap",
}

// verdictOf returns nil without criteria; one that contradicts the newer Passed is Inconclusive.
func verdictOf(b *v1alpha1.LatencyBenchmark) *outcome {
	if b.Spec.Criteria == nil {
		return nil
	}
	v := outcome{Verdict: v1alpha1.Verdict{Outcome: notJudged, Message: "the benchmark has no verdict yet"}}
	if baseline := b.Spec.Criteria.Baseline; baseline != nil {
		v.Against = baselines[baseline.Type] + " " + b.Spec.Criteria.BaselineOf(baseline.Type)
	}
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionPassed)
	if c != nil && c.ObservedGeneration >= b.Generation {
		v.Message = c.Message
	}
	given := b.Verdict()
	if given == nil {
		return &v
	}
	v.Verdict = *given
	v.Judged = judgedRules(b.Spec.Criteria.Rules, v.Rules)
	if g := v.Baseline; g != nil {
		v.Against += fmt.Sprintf(", LatencyBenchmark %s/%s", g.Namespace, g.Benchmark)
	}
	if n := v.WrongOneIn; n > 0 {
		v.Errors = fmt.Sprintf("If rounds are independent of each other, a result at its limit passes with a probability of at most 1 in %d, and any result within its limit fails with a probability of at most 1 in %d.", n, n)
	}
	stands := map[v1alpha1.VerdictOutcome]metav1.ConditionStatus{v1alpha1.VerdictPass: metav1.ConditionTrue, v1alpha1.VerdictFail: metav1.ConditionFalse}
	if want, decided := stands[v.Outcome]; c != nil && decided && c.Status != want {
		v.Outcome, v.Message = v1alpha1.VerdictInconclusive, fmt.Sprintf("%s: %s", c.Reason, c.Message)
	}
	return &v
}

func tablesOf(b *v1alpha1.LatencyBenchmark, results []v1alpha1.CellResult) []table {
	var all []table
	for _, rows := range report.ByInterval(results) {
		all = append(all, latenciesOf(b, rows))
	}
	streams := slices.DeleteFunc(slices.Clone(results), func(r v1alpha1.CellResult) bool { return r.Bandwidth == nil || !r.Stream })
	if len(streams) > 0 {
		all = append(all, bandwidthsOf(slices.Concat(report.ByCell(streams)...)))
	}
	return all
}

func latenciesOf(b *v1alpha1.LatencyBenchmark, rows []v1alpha1.CellResult) table {
	some := func(has func(v1alpha1.CellResult) bool) bool { return slices.ContainsFunc(rows, has) }
	t := table{Caption: "Latency in µs: " + report.Interval(rows[0]) + ", all rounds together", Texts: []string{"Cell"}, Columns: []string{"Rounds", "Samples", "Lost", "min", "mean"}}
	variants := len(b.Spec.Variants) > 0
	if variants {
		t.Texts = append(t.Texts, "Variant")
		rows = slices.Concat(report.ByCell(rows)...)
	}
	var percentiles []v1alpha1.Percentile
	sampled := some(func(r v1alpha1.CellResult) bool { return r.StepNanoseconds == 0 })
	for _, p := range report.TablePercentiles() {
		has := some(func(r v1alpha1.CellResult) bool { return r.Percentile(p) != nil || summary.IsLost(r, p) })
		if has || sampled {
			percentiles = append(percentiles, p)
		}
		if !has && sampled { // The first that no cell has shows how many samples it needs.
			break
		}
	}
	for _, p := range percentiles {
		t.Columns = append(t.Columns, string(p))
	}
	t.Columns = append(t.Columns, "max", "std dev")
	for i, r := range rows {
		row := tableRow{Texts: []string{r.Name}, Begin: i == 0 || rows[i-1].Name != r.Name}
		if variants {
			row.Texts = append(row.Texts, r.Variant)
		}
		row.Figures = []figure{number(int64(r.Rounds)), number(r.Samples), number(r.Lost), rounded(r.MinNanoseconds, r.StepNanoseconds), rounded(r.MeanNanoseconds, 0)}
		for _, p := range percentiles {
			row.Figures = append(row.Figures, percentile(r, p))
		}
		row.Figures = append(row.Figures, rounded(r.MaxNanoseconds, r.StepNanoseconds), rounded(r.StddevNanoseconds, r.StepNanoseconds))
		t.Rows = append(t.Rows, row)
	}
	return t
}

func bandwidthsOf(rows []v1alpha1.CellResult) table {
	t := table{Caption: "Payload that arrived: median, lowest and highest of the rounds",
		Texts: []string{"Cell", "Variant"}, Columns: []string{"Rounds", "median", "lowest", "highest", "sent", "Lost", "Retransmits"}}
	for i, r := range rows {
		retransmits := absent
		if n := r.Bandwidth.Retransmits; n != nil {
			retransmits = number(*n)
		}
		t.Rows = append(t.Rows, tableRow{Texts: []string{r.Name, r.Variant}, Begin: i == 0 || rows[i-1].Name != r.Name, Figures: []figure{
			number(int64(r.Rounds)), bitRate(r.Bandwidth.BitsPerSecond), bitRate(r.Bandwidth.MinBitsPerSecond), bitRate(r.Bandwidth.MaxBitsPerSecond),
			bitRate(r.Bandwidth.SentBitsPerSecond), number(r.Lost), retransmits,
		}})
	}
	return t
}

func percentile(r v1alpha1.CellResult, p v1alpha1.Percentile) figure {
	switch ns := r.Percentile(p); {
	case ns != nil:
		return rounded(ns, r.StepNanoseconds)
	case summary.IsLost(r, p):
		return lost
	case r.StepNanoseconds > 0:
		return absent
	}
	named, _ := stats.Named(string(p))
	return needs(named.Needs())
}

type cause struct {
	Name             string
	Beyond, Examined string // samples beyond p99.9; those of them that were examined
	Parts            []part
	Blind            bool // an endpoint slept while waiting; only interruptions of sends show
}

type part struct {
	place
	Count       string
	From, Width float64 // its place in a bar, in percent; Percent is its share as text
	Percent     string
}

func causesOf(collected *rounds.Collection) []cause {
	var all []cause
	for _, v := range collected.Variants {
		for _, cell := range v.Cells {
			sum := cell.Measured.Attribution()
			if sum == nil {
				continue
			}
			c := cause{Name: cell.Name, Beyond: thousands(sum.Beyond), Examined: thousands(sum.Examined), Blind: !sum.ClientSeesGaps || !sum.ServerSeesGaps}
			if len(collected.Spec.Variants) > 0 {
				c.Name = v.Name + " " + cell.Name
			}
			from := 0.0
			for i, n := range []int64{sum.Client, sum.Server, sum.Both, sum.Neither, sum.Undetermined} {
				percent := 100 * float64(n) / float64(sum.Examined)
				c.Parts = append(c.Parts, part{place: places[i], Count: thousands(n), From: from, Width: percent, Percent: fmt.Sprintf("%.0f %%", percent)})
				from += percent
			}
			all = append(all, c)
		}
	}
	return all
}

type placement struct {
	Variant, Ways string
	Verified      bool
	Facts         []report.Fact
	Checks        []report.Check
}

func placementsOf(spec v1alpha1.LatencyBenchmarkSpec, endpoints []v1alpha1.Endpoint) []placement {
	var all []placement
	for _, v := range plan.Variants(spec) {
		own, client, server := report.Ends(endpoints, v.Name)
		if len(own) == 0 {
			continue
		}
		all = append(all, placement{
			Variant: v.Name, Ways: report.Ways(v), Verified: summary.Placement(own) == v1alpha1.PlacementVerified,
			Facts: report.Facts(client, server), Checks: report.Checks(client.Proof, server.Proof),
		})
	}
	return all
}

func manifestOf(b export.Benchmark) (string, error) {
	kind, spec := "LatencyBenchmark", any(b.Object.Spec)
	if b.Matrix != nil {
		kind, spec = "LatencyMatrix", b.Matrix.Spec
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind,
		"metadata": map[string]string{"name": b.Object.Name, "namespace": b.Object.Namespace}, "spec": spec,
	})
	if err != nil {
		return "", fmt.Errorf("writing the manifest: %w", err)
	}
	return string(text), nil
}
