package htmlreport

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

func TestSlowestAdds(t *testing.T) {
	s := slowest{Halved: true}
	drawn := s.add(3, tool.Attribution{Beyond: 70, Examined: 60, ClientSeesGaps: true, ServerSeesGaps: true, Slowest: []tool.Outlier{
		{AtNs: 1_999_999, RTTNs: 5_000_001, Samples: 1_200, Where: tool.WhereServer, ClientGapNs: 7, ServerGapNs: new(int64(4_000_000))},
		{AtNs: 2_000_000, RTTNs: 4_000, Samples: 1, Where: "moon"},
		{RTTNs: 3_000, Samples: 1, Where: tool.WhereClient},
	}}, 2, func(ns int64) int64 { return ns / 2 })
	if diff := cmp.Diff([][3]int64{{1, 2_500_000, 1}, {2, 2_000, 4}}, drawn); diff != "" {
		t.Errorf("drawn (-want +got):\n%s", diff)
	}
	s.add(4, tool.Attribution{Examined: 2_000, Slowest: []tool.Outlier{{RTTNs: 1, Samples: 1, Where: tool.WhereBoth}}}, 2, func(ns int64) int64 { return ns })
	want := slowest{Shown: 3, Stored: 4, Examined: 2_060, Halved: true, Blind: true, Rounds: []slowRound{
		{3, []slowSample{
			{At: "0.002000", RTT: "5,000.001", For: "1,200", Where: "server", Client: "0.007", Server: "4,000.000"},
			{At: "0.002000", RTT: "4.000", For: "1", Where: "unknown", Client: "0.000", Server: "–"},
		}},
		{4, []slowSample{{At: "0.000000", RTT: "0.001", For: "1", Where: "both ends", Client: "0.000", Server: "–"}}},
	}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("in the table (-want +got):\n%s", diff)
	}
}

// The number of samples shown for each round depends on the number of rounds of a page.
func TestSlowestShown(t *testing.T) {
	for name, want := range map[string]int{"percentile-ladder": 66, "fail": 400, "networks": 400} {
		if got := slowestShown(samples()[name](t)); got != want {
			t.Errorf("%s: %d", name, got)
		}
	}
	if got := slowestShown(largeSample(t)); got != fewestSlowSamples {
		t.Errorf("large: %d", got)
	}
}
