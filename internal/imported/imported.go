// Package imported makes exports of what no agent measured: embedded published tables, and output
// of tools on other machines. A result keeps only what its source has: percentiles stay
// percentiles.
//
// Its documents name the source (result.Document.Imported). Nothing proves such a result, so that it can be printed and compared,
// and no gate can be based on it.
package imported

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Result is a result that no agent measured.
type Result struct {
	Namespace string `json:"-"`
	Name      string `json:"name"`
	// Source says in a few words where the result is from, At when it was measured or published, or
	// zero. Tool may be another than the API's.
	Source string    `json:"source"`
	At     time.Time `json:"at"`
	// Notes describe its hardware and its limits.
	Notes map[string]string `json:"notes"`
	Tool  v1alpha1.Tool     `json:"tool"`
	// LatencyType is how latencies are shown; cells have whole round trips.
	LatencyType v1alpha1.LatencyType `json:"latencyType"`
	// InToOut: latencies are the server's, from IN to OUT.
	InToOut  bool      `json:"inToOut"`
	Variants []Variant `json:"-"`
}

// Variant has a variant's rounds in order, and maybe the name plan.DefaultVariant.
type Variant struct {
	Name string
	// MTU is that of the network, in bytes; 0 if it is not known.
	MTU    int32
	Rounds []Round
}

// Round has a round's cells: the protocol, message size and rate of their traffic.
type Round []result.Cell

// Benchmark returns the result as a complete benchmark with stored runs.
func (r Result) Benchmark() (export.Benchmark, error) {
	b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, UID: export.Imported}, Spec: r.spec()}
	completed := r.At
	if completed.IsZero() {
		completed = time.Now()
	}
	b.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonComplete, Message: r.Source,
		LastTransitionTime: metav1.NewTime(completed.UTC().Truncate(time.Second)),
	}}
	all := export.Benchmark{Object: b}
	for _, run := range plan.Runs(b) {
		v := r.Variants[slices.IndexFunc(r.Variants, func(v Variant) bool { return v.Name == run.Variant.Name })]
		if int(run.Round) > len(v.Rounds) {
			continue
		}
		stored, err := r.run(run, v)
		if err != nil {
			return export.Benchmark{}, fmt.Errorf("%s: %w", run.Name, err)
		}
		all.Runs = append(all.Runs, stored)
		b.Status.Stored = append(b.Status.Stored, stored.Named(run.Name))
	}
	return all, nil
}

// spec returns the spec that a benchmark with these cells would have.
func (r Result) spec() v1alpha1.LatencyBenchmarkSpec {
	end := func() *v1alpha1.EndpointPlacement {
		return &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "unknown"}}
	}
	s := v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
		Tool: r.Tool, LatencyType: r.LatencyType, Notes: Notes(r.Notes), Network: v1alpha1.Network{Type: v1alpha1.NetworkHost},
		Placement: v1alpha1.Placement{CPUs: 1, Memory: resource.MustParse("512Mi"), Client: end(), Server: end()},
	}}
	if r.InToOut {
		s.Capture = v1alpha1.CaptureServer
	}
	var traffic []v1alpha1.Traffic
	for _, v := range r.Variants {
		s.Rounds = max(s.Rounds, int32(len(v.Rounds)))
		if v.Name != plan.DefaultVariant {
			s.Variants = append(s.Variants, v1alpha1.Variant{Name: v.Name})
		}
		for _, c := range slices.Concat(v.Rounds...) {
			traffic = append(traffic, c.Traffic)
		}
	}
	s.Workload = plan.Workload(traffic...)
	return s
}

func (r Result) run(run plan.Run, v Variant) (result.Stored, error) {
	var ends [2]result.Framed
	for i, role := range []string{v1alpha1.RoleClient, v1alpha1.RoleServer} {
		d := result.Document{
			Version: result.Version, Run: run.Name, Variant: run.Variant.Name, Attempt: 1, Role: role, Imported: r.Source,
			Evidence: result.Evidence{MTU: v.MTU},
		}
		for _, c := range v.Rounds[run.Round-1] {
			of := slices.IndexFunc(run.Cells, func(p tool.Cell) bool { return p.Traffic == c.Traffic })
			if of < 0 {
				return result.Stored{}, fmt.Errorf("no benchmark measures %s together with its other cells", c.CellName())
			}
			c.Cell, c.Tool, c.FinishedAt = run.Cells[of], string(r.Tool), c.StartedAt
			switch {
			case r.InToOut && role == v1alpha1.RoleServer:
				d.Captured = append(d.Captured, result.Captured{Cell: c.Name, Histogram: c.Histogram, Own: c.Own})
			case !r.InToOut && role == v1alpha1.RoleClient:
				d.Cells = append(d.Cells, c)
			}
		}
		var log bytes.Buffer
		err := result.WriteFrame(&log, d)
		if err == nil {
			ends[i], err = result.ReadFrame(&log)
		}
		if err != nil {
			return result.Stored{}, err
		}
	}
	return result.NewStored(ends[0], ends[1], result.Seen{}, result.Seen{})
}
