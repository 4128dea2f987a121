package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// Document is for programs: see docs/internals/formats.md. Times are in whole nanoseconds.
type Document struct {
	Format      string               `json:"format"`
	Version     int                  `json:"version"`
	Namespace   string               `json:"namespace"`
	Name        string               `json:"name"`
	State       string               `json:"state,omitempty"` // condition Succeeded's reason
	Tool        v1alpha1.Tool        `json:"tool"`
	LatencyType v1alpha1.LatencyType `json:"latencyType"`
	Notes       []v1alpha1.Note      `json:"notes,omitempty"`
	Pair        *v1alpha1.Pair       `json:"pair,omitempty"`
	// RunsMeasured are stored, RunsPlanned those of the spec; 0 for a LatencyMatrix.
	RunsMeasured int                 `json:"runsMeasured"`
	RunsPlanned  int                 `json:"runsPlanned"`
	Variants     []DocumentVariant   `json:"variants,omitempty"`
	Cells        []DocumentCell      `json:"cells,omitempty"`
	Endpoints    []v1alpha1.Endpoint `json:"endpoints,omitempty"`
	Warnings     []v1alpha1.Warning  `json:"warnings,omitempty"`
	Verdict      *v1alpha1.Verdict   `json:"verdict,omitempty"`
	// Pairs are those of a LatencyMatrix, by name, without eachRound.
	Pairs []Document `json:"pairs,omitempty"`
}

// DocumentVariant describes the network, wait mode and acceleration of a variant in a few words.
type DocumentVariant struct {
	Name string `json:"name"`
	Way  string `json:"way"`
}

// DocumentCell is a cell's result as in status.results, over all rounds and in each.
type DocumentCell struct {
	v1alpha1.CellResult `json:",inline"`
	EachRound           []DocumentRound `json:"eachRound,omitempty"`
}

// DocumentRound holds the result of a cell in one round, with the fields of status.results.
type DocumentRound struct {
	// Round counts from 1; Run is the name of the run.
	Round               int32     `json:"round"`
	Run                 string    `json:"run"`
	StartedAt           time.Time `json:"startedAt"`
	v1alpha1.CellResult `json:",inline"`
}

func documentOf(b *v1alpha1.LatencyBenchmark) Document {
	d := Document{
		Format: "tailgate-results", Version: 1, Namespace: b.Namespace, Name: b.Name, Tool: b.Spec.Tool, LatencyType: b.Spec.LatencyType,
		Notes: b.Spec.Notes, Endpoints: b.Status.Endpoints, Warnings: b.Status.Warnings, Verdict: b.Verdict(),
	}
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		d.State = c.Reason
	}
	for _, v := range plan.Variants(b.Spec) {
		d.Variants = append(d.Variants, DocumentVariant{v.Name, Ways(v)})
	}
	if pair := summary.PairOf(b); pair != (v1alpha1.Pair{}) {
		d.Pair = &pair
	}
	d.RunsMeasured, d.RunsPlanned = len(b.Status.Stored), len(plan.Runs(b))
	for _, r := range b.Status.Results {
		d.Cells = append(d.Cells, DocumentCell{CellResult: r})
	}
	return d
}

func noted(notes []v1alpha1.Note) []string {
	return text.Of(notes, func(n v1alpha1.Note) string { return n.Name + ": " + n.Value })
}

func (s sheet) document() (Document, error) {
	d := documentOf(s.benchmark)
	d.RunsMeasured = len(s.runs)
	numbers := plan.RoundNumbers(s.benchmark)
	for _, run := range s.runs {
		alone, err := rounds.Of(s.benchmark.Spec, run)
		if err != nil {
			return Document{}, fmt.Errorf("reading run %s: %w", run.Client.Run, err)
		}
		for _, r := range summary.Summarize(alone).Results {
			i := slices.IndexFunc(d.Cells, func(c DocumentCell) bool { return c.Variant == r.Variant && c.Name == r.Name })
			measured, _ := run.Cell(strings.TrimSuffix(r.Name, result.CapturedSuffix))
			if i >= 0 && measured != nil {
				d.Cells[i].EachRound = append(d.Cells[i].EachRound, DocumentRound{numbers[run.Client.Run], run.Client.Run, measured.StartedAt, r})
			}
		}
	}
	return d, nil
}

func documentOfMatrix(m *v1alpha1.LatencyMatrix, pairs []*v1alpha1.LatencyBenchmark) Document {
	d := documentOf(m.Overview())
	d.Pair, d.RunsPlanned = nil, 0
	for _, p := range pairs {
		d.Pairs = append(d.Pairs, documentOf(p))
	}
	return d
}

// WriteJSON writes a value with indentation, and without escapes for HTML.
func WriteJSON(w io.Writer, d any) error {
	content, err := result.EncodeJSON(d)
	if err == nil {
		_, err = w.Write(content)
	}
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// csvLine returns all columns' names and values, for a round or all (nil). Unknown is empty.
func csvLine(of Document, round *DocumentRound, r v1alpha1.CellResult) (names, values []string) {
	add := func(name string, value any) {
		text := ""
		switch v := value.(type) {
		case *int64:
			if v != nil {
				text = strconv.FormatInt(*v, 10)
			}
		default:
			text = noFormula(fmt.Sprint(v))
		}
		names, values = append(names, name), append(values, text)
	}
	var pair v1alpha1.Pair
	if of.Pair != nil {
		pair = *of.Pair
	}
	scope, number, run, started := "all", "", "", ""
	if round != nil {
		scope, number, run = "round", strconv.Itoa(int(round.Round)), round.Run
		started = round.StartedAt.UTC().Format(time.RFC3339Nano)
	}
	var bits, sent, retransmits *int64
	if b := r.Bandwidth; b != nil {
		bits, sent, retransmits = &b.BitsPerSecond, &b.SentBitsPerSecond, b.Retransmits
	}
	add("namespace", of.Namespace)
	add("benchmark", of.Name)
	add("tool", of.Tool)
	add("client_node", pair.ClientNode)
	add("server_node", pair.ServerNode)
	add("variant", r.Variant)
	add("cell", r.Name)
	add("protocol", r.Protocol)
	add("message_size_bytes", r.MessageSize)
	add("rate_per_second", r.RatePerSecond)
	add("latency_type", r.LatencyType)
	add("counted_from", r.CountedFrom)
	add("scope", scope)
	add("round", number)
	add("run", run)
	add("started_at", started)
	add("rounds", r.Rounds)
	add("samples", r.Samples)
	add("lost", r.Lost)
	add("lost_from", r.LostFrom)
	add("min_ns", r.MinNanoseconds)
	add("mean_ns", r.MeanNanoseconds)
	add("stddev_ns", r.StddevNanoseconds)
	for _, p := range rounds.Percentiles() {
		add(strings.ReplaceAll(string(p), ".", "_")+"_ns", r.Percentile(p))
	}
	add("max_ns", r.MaxNanoseconds)
	add("bits_per_second", bits)
	add("sent_bits_per_second", sent)
	add("retransmits", retransmits)
	add("notes", strings.Join(noted(of.Notes), ", "))
	return names, values
}

// noFormula keeps a spreadsheet from evaluating a text, or from beginning another cell in it.
func noFormula(text string) string {
	text = strings.ReplaceAll(text, ";", ",") // In some locales it ends a cell.
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// writeCSV writes a line for each cell in each round and in all; of a matrix only the latter.
func writeCSV(w io.Writer, d Document) error {
	out := csv.NewWriter(w)
	line := func(of Document, round *DocumentRound, r v1alpha1.CellResult) {
		_, values := csvLine(of, round, r)
		_ = out.Write(values) // out.Error returns the error.
	}
	names, _ := csvLine(Document{}, nil, v1alpha1.CellResult{})
	_ = out.Write(names)
	for _, of := range append([]Document{d}, d.Pairs...) {
		for _, cell := range of.Cells {
			for _, round := range cell.EachRound {
				line(of, &round, round.CellResult)
			}
			line(of, nil, cell.CellResult)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}
