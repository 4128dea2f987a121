package verdict

import (
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// What rules compare needs an absolute limit of its own cell, because a first result is compared with nothing.
func TestUnbounded(t *testing.T) {
	cell := func(variant string, of v1alpha1.Traffic) Cell {
		return Cell{Variant: variant, Name: of.CellName(), Traffic: of}
	}
	tcp, udp := v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}, v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 64}
	cells := []Cell{cell("vf", tcp), cell("vf", udp), cell("pf", tcp), cell("vf", v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 1400, Stream: true})}
	limit := func(text string) v1alpha1.Limit { return v1alpha1.Limit{Text: text} }
	compared := v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: limit("10%")}
	of := func(r v1alpha1.Rule, cells ...string) v1alpha1.Rule { r.Cells = cells; return r }
	most := v1alpha1.Rule{Metric: v1alpha1.MetricP50, Max: limit("20us")}
	for name, c := range map[string]struct {
		compare, bound []v1alpha1.Rule
		want           string
	}{
		"all cells":                              {[]v1alpha1.Rule{compared}, []v1alpha1.Rule{most}, ""},
		"nothing":                                {[]v1alpha1.Rule{compared}, nil, "vf/tcp-64"},
		"one of two cells":                       {[]v1alpha1.Rule{compared}, []v1alpha1.Rule{of(most, "tcp-64")}, "vf/udp-64"},
		"one of two variants":                    {[]v1alpha1.Rule{of(compared, "tcp-64")}, []v1alpha1.Rule{{Metric: most.Metric, Max: most.Max, Variants: []string{"vf"}}}, "pf/tcp-64"},
		"a cell that nothing compares":           {[]v1alpha1.Rule{of(compared, "tcp-64")}, []v1alpha1.Rule{of(most, "tcp-64")}, ""},
		"the least sample":                       {[]v1alpha1.Rule{compared}, []v1alpha1.Rule{{Metric: v1alpha1.MetricMin, Max: limit("20us")}}, ""},
		"the spread":                             {[]v1alpha1.Rule{compared}, []v1alpha1.Rule{{Metric: v1alpha1.MetricStdDev, Max: limit("20us")}}, "vf/tcp-64"},
		"of the least sample, in another cell":   {[]v1alpha1.Rule{{Metric: v1alpha1.MetricMin, MaxIncrease: limit("10%"), Cells: []string{"udp-64"}}}, []v1alpha1.Rule{of(most, "tcp-64")}, "vf/udp-64"},
		"losses":                                 {[]v1alpha1.Rule{compared}, []v1alpha1.Rule{{Metric: v1alpha1.MetricLost, Max: limit("0")}}, "vf/tcp-64"},
		"only losses are compared":               {[]v1alpha1.Rule{{Metric: v1alpha1.MetricLost, MaxIncrease: limit("0")}}, []v1alpha1.Rule{of(most, "tcp-64")}, ""},
		"only losses are compared, and no limit": {[]v1alpha1.Rule{{Metric: v1alpha1.MetricLost, MaxIncrease: limit("0")}}, nil, "vf/tcp-64"},
		"the rate of a stream":                   {[]v1alpha1.Rule{{Metric: v1alpha1.MetricThroughput, MaxDecrease: limit("10%")}}, []v1alpha1.Rule{{Metric: v1alpha1.MetricThroughput, Min: limit("1G")}}, ""},
		"a stream, and a limit of a latency":     {[]v1alpha1.Rule{{Metric: v1alpha1.MetricThroughput, MaxDecrease: limit("10%")}}, []v1alpha1.Rule{most}, "vf/tcp-stream-1400"},
	} {
		if got := Unbounded(c.compare, c.bound, cells); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
