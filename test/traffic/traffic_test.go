// Package traffic tests that cells which send different things are distinguished everywhere. A new field of Traffic that is
// forgotten somewhere fails here, with the name of the field and of the place.
package traffic

import (
	"bytes"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/compare"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/imported"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/metrics"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// pair is two kinds of traffic that differ only in one field.
type pair struct {
	field    string
	one, two v1alpha1.Traffic
}

func pairs(t *testing.T) []pair {
	t.Helper()
	var all []pair
	for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.Traffic]()) {
		p := pair{field: field.Name, one: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64, RatePerSecond: 1000}}
		if field.Name == "Stream" {
			p.one.RatePerSecond = 0 // A stream has no rate.
		}
		p.two = p.one
		switch v := reflect.ValueOf(&p.two).Elem().FieldByIndex(field.Index); v.Kind() {
		case reflect.String:
			v.SetString(string(v1alpha1.ProtocolUDP))
		case reflect.Int32:
			v.SetInt(v.Int() + 1)
		case reflect.Bool:
			v.SetBool(!v.Bool())
		default:
			t.Fatalf("Traffic.%s is a %s; this test cannot change it", field.Name, v.Kind())
		}
		all = append(all, p)
	}
	return all
}

// measured returns a benchmark whose cells have this traffic, and the same results.
func measured(t *testing.T, inToOut bool, all ...v1alpha1.Traffic) export.Benchmark {
	t.Helper()
	var round imported.Round
	for _, traffic := range all {
		c := result.Cell{Cell: tool.Cell{Traffic: traffic}, Own: &tool.Own{Count: 1000, MeanNs: 4000, P50Ns: 4000, StepNs: 1}}
		if traffic.Stream {
			c.Own, c.Bandwidth = nil, &tool.Bandwidth{BitsPerSecond: 1e9, SentBitsPerSecond: 1e9}
		}
		round = append(round, c)
	}
	b, err := imported.Result{
		Namespace: "perf", Name: "x", Source: "test", At: time.Unix(1, 0), Tool: v1alpha1.ToolSockperf, LatencyType: v1alpha1.LatencyRTT,
		InToOut: inToOut, Variants: []imported.Variant{{Name: plan.DefaultVariant, Rounds: []imported.Round{round}}},
	}.Benchmark()
	if err != nil {
		t.Fatal(err)
	}
	collected, err := rounds.Of(b.Object.Spec, b.Runs...)
	if err != nil {
		t.Fatal(err)
	}
	b.Object.Status.Results = summary.Summarize(collected).Results
	return b
}

func each(t *testing.T, test func(t *testing.T, p pair)) {
	t.Helper()
	for _, p := range pairs(t) {
		t.Run(p.field, func(t *testing.T) { test(t, p) })
	}
}

// apart fails if two texts are equal, except for the names of the cells.
func apart(t *testing.T, p pair, where, one, two string) {
	t.Helper()
	if one == strings.ReplaceAll(two, p.two.CellName(), p.one.CellName()) {
		t.Errorf("%s does not tell cells apart that differ only in Traffic.%s:\n%s", where, p.field, one)
	}
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, p pair) {
		if p.one.CellName() == p.two.CellName() {
			t.Errorf("two cells have the name %s", p.one.CellName())
		}
	})
}

// A workload has both kinds of traffic, and an import, an export, a verdict and a status have the traffic of the cell.
func TestTrafficIsCarried(t *testing.T) {
	each(t, func(t *testing.T, p pair) {
		dir := filepath.Join(t.TempDir(), "exported")
		if _, err := export.Write(dir, measured(t, false, p.one, p.two), false); err != nil {
			t.Fatal(err)
		}
		b, err := export.ReadDir(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		collected, err := rounds.Of(b.Object.Spec, b.Runs...)
		if err != nil {
			t.Fatal(err)
		}
		var planned, stored, judged, shown []v1alpha1.Traffic
		for _, c := range plan.Cells(b.Object.Spec, v1alpha1.Variant{}) {
			planned = append(planned, c.Traffic)
		}
		for _, c := range b.Runs[0].Client.Cells {
			stored = append(stored, c.Traffic)
		}
		for _, c := range judge.Cells(judge.Results{Collection: collected}) {
			judged = append(judged, c.Traffic)
		}
		for _, c := range b.Object.Status.Results {
			shown = append(shown, c.Traffic)
		}
		for where, all := range map[string][]v1alpha1.Traffic{"the plan": planned, "the result": stored, "the verdict": judged, "the status": shown} {
			for _, want := range []v1alpha1.Traffic{p.one, p.two} {
				if !slices.Contains(all, want) {
					t.Errorf("%s has %+v, not %+v", where, all, want)
				}
			}
		}
	})
}

// A form that does not print the names of the cells prints what tells them apart.
func TestForms(t *testing.T) {
	each(t, func(t *testing.T, p pair) {
		for _, form := range report.Forms() {
			print := func(traffic v1alpha1.Traffic) string {
				var out bytes.Buffer
				b := measured(t, false, traffic)
				if err := form.Write(&out, b.Object, b.Runs); err != nil {
					return err.Error()
				}
				return out.String()
			}
			switch one, two := print(p.one), print(p.two); form.Name {
			case "sfnt", "matrix", "csv", "json":
				apart(t, p, form.Name, one, two)
			case report.FormPairs:
			default:
				if one == two && !strings.Contains(one, report.ErrNothingToShow.Error()) {
					t.Errorf("%s prints the same:\n%s", form.Name, one)
				}
			}
		}
	})
}

func TestMetricLabels(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, p pair) {
		scrape := func(traffic v1alpha1.Traffic) string {
			elected := make(chan struct{})
			close(elected)
			registry := prometheus.NewRegistry()
			registry.MustRegister(metrics.NewCollector(fake.NewClientBuilder().WithScheme(scheme).WithObjects(measured(t, false, traffic).Object).Build(), elected))
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			for _, f := range families {
				if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
					t.Fatal(err)
				}
			}
			return out.String()
		}
		one := scrape(p.one)
		if !strings.Contains(one, p.one.CellName()) {
			t.Fatalf("no metrics of %s:\n%s", p.one.CellName(), one)
		}
		apart(t, p, "a metric", one, scrape(p.two))
	})
}

// Only a message size that was not published may differ between two compared cells.
func TestComparisons(t *testing.T) {
	each(t, func(t *testing.T, p pair) {
		unknown := p.two
		unknown.MessageSize = 0
		for name, c := range map[string]struct {
			inToOut, want bool
			two           v1alpha1.Traffic
		}{"measured": {two: p.two}, "captured": {inToOut: true, two: p.two}, "of an unknown size": {true, p.field == "MessageSize", unknown}} {
			if c.inToOut && p.two.Stream {
				continue // Streams are not captured.
			}
			side := func(name string, traffic v1alpha1.Traffic) compare.Side {
				b := measured(t, c.inToOut, traffic)
				collected, err := rounds.Of(b.Object.Spec, b.Runs...)
				if err != nil {
					t.Fatal(err)
				}
				return compare.Side{Name: name, Results: judge.Results{Collection: collected}}
			}
			_, err := compare.Compare(side("one", p.one), side("two", c.two))
			if compared := !errors.Is(err, compare.ErrNothingInCommon); compared != c.want {
				t.Errorf("%s: cells that differ in Traffic.%s are compared %v, want %v: %v", name, p.field, compared, c.want, err)
			}
		}
	})
}

// A rule with every selector of traffic, and a headline with every field, select one and not the other.
func TestSelectors(t *testing.T) {
	each(t, func(t *testing.T, p pair) {
		rule := v1alpha1.Rule{Metric: v1alpha1.MetricMean, Max: v1alpha1.Limit{Text: "1s"}}
		selectors, traffic := reflect.ValueOf(&rule).Elem(), reflect.ValueOf(&p.one).Elem()
		for selector, field := range map[string]string{"Protocols": "Protocol", "MessageSizes": "MessageSize", "RatesPerSecond": "RatePerSecond"} {
			if to, from := selectors.FieldByName(selector), traffic.FieldByName(field); !from.IsZero() {
				to.Set(reflect.Append(to, from))
			}
		}
		selects := func(traffic v1alpha1.Traffic) bool {
			in := verdict.Input{Criteria: v1alpha1.Criteria{Rules: []v1alpha1.Rule{rule}}, Candidate: []verdict.Cell{{Traffic: traffic}}, Rounds: 10}
			all, err := verdict.Foresee(in, func(verdict.Cell) (int64, bool) { return 0, false })
			if err != nil {
				t.Fatal(err)
			}
			return !strings.Contains(all[0].Never, "selects no cell")
		}
		if !selects(p.one) || selects(p.two) {
			t.Errorf("no selector of a rule tells cells apart that differ in Traffic.%s", p.field)
		}
		if p.two.Stream {
			return // A headline is a cell that answers.
		}
		spec := v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{Workload: plan.Workload(p.one, p.two), Headline: &v1alpha1.Headline{}}}
		headline, wanted := reflect.ValueOf(spec.Headline).Elem(), reflect.ValueOf(&p.two).Elem()
		for _, f := range reflect.VisibleFields(headline.Type()) {
			from, to := wanted.FieldByName(f.Name), headline.FieldByIndex(f.Index)
			if to.Kind() == reflect.Pointer {
				from = from.Addr()
			}
			to.Set(from)
		}
		if got := plan.Headline(spec); got != p.two.CellName() {
			t.Errorf("the headline is %s, not %s", got, p.two.CellName())
		}
	})
}
