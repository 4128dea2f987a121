package proof

import (
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/field"
)

// counted is a cell with what both ends' kernels counted, as in neighbours/counters.yaml.
type counted struct {
	Protocol          v1alpha1.Protocol `json:"protocol"`
	Size              int32             `json:"size"`
	Rate              int32             `json:"rate"`
	Stream            bool              `json:"stream"`
	Bytes             int64             `json:"bytes"`
	Count             int64             `json:"count"`
	MinNs             int64             `json:"minNs"`
	DurationNs, RanNs int64
	Client            map[string]int64 `json:"client"`
	Server            map[string]int64 `json:"server"`
}

// fieldOfCounters returns the line about the path of each end.
func fieldOfCounters(t *testing.T, c field.Case) map[string]string {
	var all map[string]counted
	if err := yaml.UnmarshalStrict(c.Read(t), &all); err != nil {
		t.Fatal(err)
	}
	seen, ok := all[c.Arguments["counters"]]
	if !ok {
		t.Fatalf("%s has no counters %q", c.Input, c.Arguments["counters"])
	}
	w := good(network(v1alpha1.NetworkPod, "eth0"), func(w *world) {
		cell := cellOf("cell", seen.Protocol)
		cell.MessageSize, cell.RatePerSecond, cell.Stream, cell.Duration = seen.Size, seen.Rate, seen.Stream, time.Duration(seen.DurationNs)
		cell.Histogram = result.Histogram{Count: seen.Count, MinNs: seen.MinNs}
		cell.FinishedAt = cell.StartedAt.Add(time.Duration(seen.RanNs))
		if seen.Stream {
			bits := float64(8*seen.Bytes) / cell.Duration.Seconds()
			cell.Bandwidth = &tool.Bandwidth{BitsPerSecond: bits, SentBitsPerSecond: bits}
		}
		w.run.Client.Cells = []result.Cell{cell}
		w.client().Paths, w.server().Paths = []result.Path{{Cell: "cell", Grown: seen.Client}}, []result.Path{{Cell: "cell", Grown: seen.Server}}
	})
	client, server := Endpoints(w.spec, w.variant(), w.run)
	answer := map[string]string{"client": string(lineOf(client, v1alpha1.ProofAcceleration).State), "server": string(lineOf(server, v1alpha1.ProofAcceleration).State)}
	answer["found"] = lineOf(client, v1alpha1.ProofAcceleration).Found
	for _, warned := range Warnings(w.spec, w.variant(), w.run) {
		answer["warning"] = warned.Reason
	}
	return answer
}

// fieldOfConfig returns the lines about NUMA nodes of an end whose CPUs are on NUMA node 1, on a network with the configuration in the
// input. Its NIC is not known to the agent.
func fieldOfConfig(t *testing.T, c field.Case) map[string]string {
	w := good(network(v1alpha1.NetworkNAD, "net1"), numa(v1alpha1.NUMAPolicy(c.Arguments["numaPolicy"])), func(w *world) {
		for _, e := range []*result.Evidence{w.client(), w.server()} {
			delete(e.Facts, "nic.parent")
			config := c.Arguments["config"]
			if c.Input != "" {
				config = string(c.Read(t))
			}
			if parent := foreign.Parent(config); parent != "" {
				e.Facts["nic.parent"] = parent
			}
		}
	})
	client, _ := Endpoints(w.spec, w.variant(), w.run)
	l := lineOf(client, v1alpha1.ProofNUMALocal)
	return map[string]string{"NUMALocal": string(l.State), "found": l.Found}
}

// Cases of other projects' objects on real clusters (test/field).
func TestFieldNeighbours(t *testing.T) {
	field.Run(t, "neighbours", "internal/proof", func(t *testing.T, c field.Case) map[string]string {
		if c.Arguments["counters"] != "" {
			return fieldOfCounters(t, c)
		}
		return fieldOfConfig(t, c)
	})
}
