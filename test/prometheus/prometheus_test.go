// Package prometheus tests config/prometheus: the alerts and the dashboard name existing metrics, and, with the build tag nightly, promtool
// tries the alerts with the series in testdata and parses the expressions of the dashboard.
package prometheus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	_ "sigs.k8s.io/controller-runtime/pkg/controller" // registers the controllers' metrics
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/internal/metrics"
)

const config = "../../config/prometheus"

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// rule is an alert or a recorded series.
type rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type groups struct {
	Groups []group `json:"groups"`
}

// rules returns the rules of the PrometheusRule, and the groups in which they are.
func rules(t *testing.T) (all []rule, of groups) {
	t.Helper()
	var object struct {
		Spec groups `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(onlySpec(t, read(t, filepath.Join(config, "rules.yaml"))), &object); err != nil {
		t.Fatal(err)
	}
	for _, g := range object.Spec.Groups {
		all = append(all, g.Rules...)
	}
	return all, object.Spec
}

// onlySpec returns an object without its metadata, so that the rest can be parsed strictly.
func onlySpec(t *testing.T, data []byte) []byte {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	data, err := yaml.Marshal(map[string]any{"spec": object["spec"]})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// tests are the files with series for the alerts, in the format of promtool.
func tests(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests of the alerts: %v", err)
	}
	return files
}

func TestRules(t *testing.T) {
	all, _ := rules(t)
	var text strings.Builder
	for _, path := range tests(t) {
		text.Write(read(t, path))
	}
	for _, r := range all {
		if name := r.Alert + r.Record; !strings.Contains(text.String(), name) {
			t.Errorf("%s has no test", name)
		}
		if r.Alert == "" {
			continue
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%s needs a summary, a description and a severity", r.Alert)
		}
	}
}

// kured uses these names as docs/integrations/kured.md describes, and other users in their own tools.
func TestNamesThatOthersUse(t *testing.T) {
	all, _ := rules(t)
	for _, want := range []string{"TailgateGateFailed", "TailgateGateNotPassed", "TailgateManagerAbsent"} {
		if !slices.ContainsFunc(all, func(r rule) bool { return r.Alert == want }) {
			t.Errorf("no alert %s", want)
		}
	}
	if !exported(t)["tailgate_gate_passed"] {
		t.Error("no metric tailgate_gate_passed")
	}
}

// exported returns the names of all metrics that the manager exports, or that Prometheus adds for it.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	// Prometheus adds these metrics for every target.
	names := map[string]bool{"up": true, "scrape_duration_seconds": true, "scrape_samples_scraped": true}
	for line := range strings.Lines(string(read(t, "../../internal/metrics/testdata/metrics.txt"))) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[1] == "TYPE" {
			names[fields[2]] = true
			if fields[3] == "histogram" {
				names[fields[2]+"_bucket"], names[fields[2]+"_sum"], names[fields[2]+"_count"] = true, true, true
			}
		}
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		ctrlmetrics.Registry.(*prometheus.Registry).Describe(descs)
		metrics.NewProtection(nil).Describe(descs)
		close(descs)
	}()
	for desc := range descs {
		name := strings.SplitN(desc.String(), `"`, 3)[1]
		names[name] = true
		// A desc does not state whether it belongs to a histogram.
		if strings.HasSuffix(name, "_seconds") {
			names[name+"_bucket"] = true
		}
	}
	return names
}

var (
	quoted = regexp.MustCompile(`"[^"]*"`)
	metric = regexp.MustCompile(`\b(tailgate|controller_runtime|workqueue|rest_client|process|go|leader_election|scrape|certwatcher)_\w+`)
)

// Rules and dashboard name only existing metrics.
func TestMetricsExist(t *testing.T) {
	names := exported(t)
	all, _ := rules(t)
	recorded := map[string]bool{}
	expressions := map[string]string{}
	for _, r := range all {
		recorded[r.Record] = true
		expressions["rule "+r.Alert+r.Record] = r.Expr
	}
	maps.Copy(expressions, readDashboard(t).expressions())
	for where, expr := range expressions {
		expr = quoted.ReplaceAllString(expr, `""`)
		found := metric.FindAllString(expr, -1)
		for name := range recorded {
			if name != "" && strings.Contains(expr, name) {
				found = append(found, "up")
			}
		}
		if len(found) == 0 {
			t.Errorf("%s names no metric: %s", where, expr)
		}
		for _, name := range found {
			if !names[name] {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
	}
}

var matcher = regexp.MustCompile(`(\w+)_bucket\{[^}]*\ble(=~?)"([^"]*)"`)

// A rule that selects a bucket of a histogram finds exactly one of those that the manager exports, as Prometheus 2 stores its bound (60) and
// as Prometheus 3 does (60.0).
func TestBucketsExist(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics.NewActivity(registry)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	bounds := map[string][]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				bounds[f.GetName()] = append(bounds[f.GetName()], b.GetUpperBound())
			}
		}
	}
	all, _ := rules(t)
	checked := 0
	for _, r := range all {
		for _, found := range matcher.FindAllStringSubmatch(r.Expr, -1) {
			checked++
			wanted := found[3]
			if found[2] == "=" {
				wanted = regexp.QuoteMeta(wanted)
			}
			wants := regexp.MustCompile("^(?:" + wanted + ")$")
			for version, format := range map[int]string{2: "%v", 3: "%.1f"} {
				matched := 0
				for _, bound := range bounds[found[1]] {
					if wants.MatchString(fmt.Sprintf(format, bound)) {
						matched++
					}
				}
				if matched != 1 {
					t.Errorf("%s: in Prometheus %d, %s selects %d of the buckets %v of %s", r.Alert, version, found[0], matched, bounds[found[1]], found[1])
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no rule selects a bucket")
	}
}

// dashboard is the tested part of Grafana's model.
type dashboard struct {
	UID         string `json:"uid"`
	Annotations struct {
		List []struct {
			Name, Expr string
			Datasource source
		}
	}
	Templating struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Panels []panel
}

type source struct{ Type, UID string }

type panel struct {
	ID         int
	Type       string
	Title      string
	GridPos    struct{ X, Y, W, H int }
	Datasource source
	Targets    []struct {
		RefID      string
		Expr       string
		Datasource source
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal(read(t, filepath.Join(config, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

var labelValues = regexp.MustCompile(`^label_values\((.*), \w+\)$`)

// expressions returns all queries by their location.
func (d dashboard) expressions() map[string]string {
	all := map[string]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[fmt.Sprintf("panel %q %s", p.Title, target.RefID)] = target.Expr
		}
	}
	for _, a := range d.Annotations.List {
		all["annotation "+a.Name] = a.Expr
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			all["variable "+v.Name] = labelValues.ReplaceAllString(v.Definition, "$1")
		}
	}
	return all
}

func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.UID == "" {
		t.Error("no uid: every import would make another dashboard")
	}
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	ids, taken := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if other, ok := ids[p.ID]; ok {
			t.Errorf("%q and %q have the id %d", p.Title, other, p.ID)
		}
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
					t.Fatalf("%q lies on %q, or out of the grid", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%q shows nothing", p.Title)
		}
		want := source{"prometheus", "${datasource}"}
		for _, target := range p.Targets {
			if p.Datasource != want || target.Datasource != want {
				t.Errorf("%q does not ask the data source of the variable", p.Title)
			}
		}
	}
	if !variables["datasource"] || len(d.Annotations.List) == 0 {
		t.Error("the variable datasource, or the marks of upgrades, are missing")
	}
	used := regexp.MustCompile(`\$\{?(\w+)`)
	for where, expr := range d.expressions() {
		for _, name := range used.FindAllStringSubmatch(expr, -1) {
			if !variables[name[1]] {
				t.Errorf("%s: there is no variable %s", where, name[1])
			}
		}
	}
}

// The page for contributors has each metric of the manager's own and no other. The page for users has no other metric either, and
// each alert with its severity.
func TestPage(t *testing.T) {
	const full = "docs/internals/metrics.md"
	page, names := string(read(t, "../../docs/metrics.md")), exported(t)
	documented := map[string]map[string]bool{full: {}, "docs/metrics.md": {}}
	for file, found := range documented {
		for _, m := range regexp.MustCompile("`(tailgate_[a-z_]+)`").FindAllStringSubmatch(string(read(t, "../../"+file)), -1) {
			if found[m[1]] = true; !names[m[1]] {
				t.Errorf("%s has %s, which the manager does not export", file, m[1])
			}
		}
	}
	for name := range names {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if strings.HasPrefix(name, "tailgate_") && !documented[full][name] && !documented[full][base] {
			t.Errorf("%s does not have %s", full, name)
		}
	}
	all, _ := rules(t)
	rows := map[string]string{}
	severity := ""
	for _, m := range regexp.MustCompile("(?m)^(?:- `(Tailgate[A-Za-z]+)`: |([A-Z][a-z]+):$)").FindAllStringSubmatch(page, -1) {
		if severity = cmp.Or(strings.ToLower(m[2]), severity); m[1] != "" {
			rows[m[1]] = severity
		}
	}
	for _, r := range all {
		if r.Alert != "" && rows[r.Alert] != r.Labels["severity"] {
			t.Errorf("docs/metrics.md has alert %s with severity %q, want %q", r.Alert, rows[r.Alert], r.Labels["severity"])
		}
		delete(rows, r.Alert)
	}
	for name := range rows {
		t.Errorf("docs/metrics.md has alert %s, which the rules do not have", name)
	}
}
