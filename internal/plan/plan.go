// Package plan turns a benchmark into its ordered runs. It is pure and deterministic: the same spec and the
// same nodes give the same runs with the same names, in the controller, in the command line and in tests.
//
// Rounds are outermost, so that what drifts (temperature, neighbours) is spread over all cells alike, and
// the order of the cells rotates from round to round, so that none is always measured first.
package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Run is one client pod and one server pod that measure every cell once.
type Run struct {
	// Name is unique in the benchmark's namespace; pods and the stored result are named after it.
	Name string
	// Round is counted from 1.
	Round int32
	// Cells in the order in which they are measured.
	Cells []tool.Cell
}

// Runs returns all runs of a benchmark, in order.
func Runs(b *v1alpha1.LatencyBenchmark) []Run {
	cells := Cells(b.Spec)
	runs := make([]Run, 0, b.Spec.Rounds)
	for round := int32(1); round <= b.Spec.Rounds; round++ {
		runs = append(runs, Run{
			Name:  fmt.Sprintf("%s-r%d", b.Name, round),
			Round: round,
			Cells: rotate(cells, int(round-1)),
		})
	}
	return runs
}

// Cells returns the cells of a spec in the order in which results show them: protocols outermost, sizes
// as the user wrote them.
func Cells(spec v1alpha1.LatencyBenchmarkSpec) []tool.Cell {
	var cells []tool.Cell
	for _, protocol := range spec.Workload.Protocols {
		for _, size := range spec.Workload.MessageSizes {
			cells = append(cells, tool.Cell{
				Name:        fmt.Sprintf("%s-%d", strings.ToLower(string(protocol)), size),
				Protocol:    protocol,
				MessageSize: size,
				Duration:    spec.Workload.Duration.Duration,
				Warmup:      spec.Workload.Warmup.Duration,
			})
		}
	}
	return cells
}

// MeasuringTime is how long the cells are measured, warm-ups included.
func MeasuringTime(cells []tool.Cell) time.Duration {
	var sum time.Duration
	for _, c := range cells {
		sum += c.Warmup + c.Duration
	}
	return sum
}

// Deadline is the longest that a client may take for all cells before something is certainly wrong.
func Deadline(d tool.Driver, cells []tool.Cell) time.Duration {
	var sum time.Duration
	for _, c := range cells {
		sum += d.Deadline(c) + prepareAllowance
	}
	return sum
}

// prepareAllowance is the longest that a cell's server may take to listen, and its raw samples to be read.
const prepareAllowance = 15 * time.Second

func rotate(cells []tool.Cell, by int) []tool.Cell {
	if len(cells) == 0 {
		return nil
	}
	by %= len(cells)
	return append(append(make([]tool.Cell, 0, len(cells)), cells[by:]...), cells[:by]...)
}
