package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/netperf"
	"github.com/tailgate-dev/tailgate/internal/verdict"
	"github.com/tailgate-dev/tailgate/test/field"
)

func TestField(t *testing.T) {
	field.Run(t, "tools", "internal/judge", func(t *testing.T, c field.Case) map[string]string {
		in := verdict.Input{
			Criteria: v1alpha1.Criteria{
				Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineGate},
				Rules:    []v1alpha1.Rule{{Metric: v1alpha1.Metric(c.Arguments["metric"]), MaxIncrease: v1alpha1.Limit{Text: c.Arguments["limit"]}}},
			},
			Baseline: []verdict.Cell{netperfRounds(t, c.Arguments["before"])}, Candidate: []verdict.Cell{netperfRounds(t, c.Arguments["after"])},
		}
		j, err := verdict.Judge(in)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]string{"outcome": string(j.Outcome), "reason": j.Rules[0].Comparisons[0].Reason}
	})
}

// netperfRounds returns ten rounds as netperf reports them. shares are shares of the round trips, each followed by their latency.
func netperfRounds(t *testing.T, shares string) verdict.Cell {
	t.Helper()
	c := verdict.Cell{Variant: "v", Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}
	for round := range 10 {
		h := &netperfHistogram{}
		words := strings.Fields(shares)
		for i := 0; i < len(words); i += 2 {
			var percent int
			_, err := fmt.Sscanf(words[i], "%d%%", &percent)
			latency, err2 := time.ParseDuration(words[i+1])
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			for k := range (20_000 + 100*round) * percent / 100 {
				h.add(int(latency/time.Microsecond) + k%2)
			}
		}
		cell := tool.Cell{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}, Duration: h.took().Round(10 * time.Millisecond)}
		m, err := netperf.New().Parse(cell, tool.Output{Stdout: []byte(h.output())}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Rounds = append(c.Rounds, ownRound(*m.Own, m.Lost))
	}
	return c
}

// netperfHistogram is netperf's histogram (HIST_add and HIST_get_percentile of its netlib.c): rows of 100 buckets.
type netperfHistogram struct {
	rows                 [8][100]int
	total, sum, min, max int
}

func (h *netperfHistogram) add(us int) {
	if h.total == 0 {
		h.min = us
	}
	h.min, h.max = min(h.min, us), max(h.max, us)
	h.total++
	h.sum += us
	v := float32(us)
	for r := range h.rows {
		if v < 10 {
			h.rows[r][int(v*10)]++
			return
		}
		v /= 10
	}
}

func (h *netperfHistogram) percentile(share float64) int {
	number, last, current, scale := int(share*float64(h.total)), 0, 0, 1.0
	for r := range h.rows {
		for i, n := range h.rows[r] {
			last = current
			if current += n; current >= number {
				return int((float64(i) + float64(number-last)/float64(current-last)) * scale / 10)
			}
		}
		scale *= 10
	}
	return 1e8
}

func (h *netperfHistogram) took() time.Duration { return time.Duration(h.sum) * time.Microsecond }

func (h *netperfHistogram) output() string {
	rate, bytes := float64(h.total)/h.took().Seconds(), h.total*64
	return fmt.Sprintf("TRANSACTION_RATE=%.3f\nRT_LATENCY=%.3f\nMEAN_LATENCY=%.2f\nMIN_LATENCY=%d\nP50_LATENCY=%d\nP90_LATENCY=%d\n"+
		"P99_LATENCY=%d\nMAX_LATENCY=%d\nSTDDEV_LATENCY=20.00\nELAPSED_TIME=%.2f\nREQUEST_SIZE=64\nRESPONSE_SIZE=64\n"+
		"LOCAL_BYTES_SENT=%d\nLOCAL_BYTES_RECVD=%d\nREMOTE_BYTES_RECVD=%d\nLOCAL_TRANSPORT_RETRANS=0\n",
		rate, 1e6/rate, float64(h.sum)/float64(h.total), h.min, h.percentile(.5), h.percentile(.9), h.percentile(.99), h.max,
		h.took().Seconds(), bytes, bytes, bytes)
}
