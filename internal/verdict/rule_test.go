package verdict

import (
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

func TestParseRule(t *testing.T) {
	cases := map[string]struct {
		rule v1alpha1.Rule
		ok   bool
	}{
		"a latency at most":                     {v1alpha1.Rule{Metric: "p99", Max: v1alpha1.Limit{Text: "2us"}}, true},
		"a latency against a baseline":          {v1alpha1.Rule{Metric: "p99.999", MaxIncrease: v1alpha1.Limit{Text: "5%"}}, true},
		"min":                                   {v1alpha1.Rule{Metric: "min", Max: v1alpha1.Limit{Text: "2us"}}, true},
		"mean":                                  {v1alpha1.Rule{Metric: "mean", MaxIncrease: v1alpha1.Limit{Text: "0%"}}, true},
		"stddev":                                {v1alpha1.Rule{Metric: "stddev", MaxIncrease: v1alpha1.Limit{Text: "50%"}}, true},
		"lost at most":                          {v1alpha1.Rule{Metric: "lost", Max: v1alpha1.Limit{Text: "0"}}, true},
		"lost against a baseline":               {v1alpha1.Rule{Metric: "lost", MaxIncrease: v1alpha1.Limit{Text: "10"}}, true},
		"throughput at least":                   {v1alpha1.Rule{Metric: "throughput", Min: v1alpha1.Limit{Text: "9G"}}, true},
		"throughput against a baseline":         {v1alpha1.Rule{Metric: "throughput", MaxDecrease: v1alpha1.Limit{Text: "5%"}}, true},
		"max is never judged":                   {v1alpha1.Rule{Metric: "max", Max: v1alpha1.Limit{Text: "2us"}}, false},
		"an unknown metric":                     {v1alpha1.Rule{Metric: "p42", Max: v1alpha1.Limit{Text: "2us"}}, false},
		"no metric":                             {v1alpha1.Rule{Max: v1alpha1.Limit{Text: "2us"}}, false},
		"no limit":                              {v1alpha1.Rule{Metric: "p99"}, false},
		"two limits":                            {v1alpha1.Rule{Metric: "p99", Max: v1alpha1.Limit{Text: "2us"}, MaxIncrease: v1alpha1.Limit{Text: "5%"}}, false},
		"a latency as a throughput":             {v1alpha1.Rule{Metric: "p99", Min: v1alpha1.Limit{Text: "9G"}}, false},
		"a latency that may decrease":           {v1alpha1.Rule{Metric: "p99", MaxDecrease: v1alpha1.Limit{Text: "5%"}}, false},
		"a latency as a number of messages":     {v1alpha1.Rule{Metric: "p99", Max: v1alpha1.Limit{Text: "5"}}, false},
		"an increase of latency in nanoseconds": {v1alpha1.Rule{Metric: "p99", MaxIncrease: v1alpha1.Limit{Text: "100us"}}, false},
		"lost in time":                          {v1alpha1.Rule{Metric: "lost", Max: v1alpha1.Limit{Text: "2us"}}, false},
		"lost in percent":                       {v1alpha1.Rule{Metric: "lost", MaxIncrease: v1alpha1.Limit{Text: "5%"}}, false},
		"throughput at most":                    {v1alpha1.Rule{Metric: "throughput", Max: v1alpha1.Limit{Text: "9"}}, false},
		"throughput that may increase":          {v1alpha1.Rule{Metric: "throughput", MaxIncrease: v1alpha1.Limit{Text: "5%"}}, false},
		"a throughput in time":                  {v1alpha1.Rule{Metric: "throughput", Max: v1alpha1.Limit{Text: "2us"}}, false},
		"a percentage that is not a number":     {v1alpha1.Rule{Metric: "p99", MaxIncrease: v1alpha1.Limit{Text: "much%"}}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parseRule(c.rule)
			if (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %v", err)
			}
			_, judgeErr := Judge(Input{Criteria: v1alpha1.Criteria{Rules: []v1alpha1.Rule{c.rule}}})
			if (judgeErr == nil) != c.ok {
				t.Errorf("parsed %v, judged %v", err, judgeErr)
			}
		})
	}
}

func TestSelects(t *testing.T) {
	pingPong := Cell{Variant: "vf-onload", Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}
	atRate := Cell{Variant: "host", Name: "udp-64-at-23000", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 64, RatePerSecond: 23_000}}
	stream := Cell{Variant: "host", Name: "tcp-stream-65536", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 65_536, Stream: true}}
	cells := []Cell{pingPong, atRate, stream}
	cases := map[string]struct {
		rule     v1alpha1.Rule
		baseline string
		want     string
	}{
		"a latency of every cell that answers":        {v1alpha1.Rule{Metric: "p99", Max: v1alpha1.Limit{Text: "2us"}}, "", "tcp-64 udp-64-at-23000"},
		"throughput of every stream":                  {v1alpha1.Rule{Metric: "throughput", Min: v1alpha1.Limit{Text: "1"}}, "", "tcp-stream-65536"},
		"lost of every cell":                          {v1alpha1.Rule{Metric: "lost", Max: v1alpha1.Limit{Text: "0"}}, "", "tcp-64 udp-64-at-23000 tcp-stream-65536"},
		"of a variant":                                {v1alpha1.Rule{Metric: "lost", Max: v1alpha1.Limit{Text: "0"}, Variants: []string{"host"}}, "", "udp-64-at-23000 tcp-stream-65536"},
		"of a protocol":                               {v1alpha1.Rule{Metric: "lost", Max: v1alpha1.Limit{Text: "0"}, Protocols: []v1alpha1.Protocol{"TCP"}}, "", "tcp-64 tcp-stream-65536"},
		"of a size":                                   {v1alpha1.Rule{Metric: "lost", Max: v1alpha1.Limit{Text: "0"}, MessageSizes: []int32{64}}, "", "tcp-64 udp-64-at-23000"},
		"of a rate":                                   {v1alpha1.Rule{Metric: "lost", Max: v1alpha1.Limit{Text: "0"}, RatesPerSecond: []int32{23_000}}, "", "udp-64-at-23000"},
		"of a name":                                   {v1alpha1.Rule{Metric: "lost", Max: v1alpha1.Limit{Text: "0"}, Cells: []string{"tcp-64"}}, "", "tcp-64"},
		"all selectors must agree":                    {v1alpha1.Rule{Metric: "lost", Max: v1alpha1.Limit{Text: "0"}, Variants: []string{"host"}, MessageSizes: []int32{64}}, "", "udp-64-at-23000"},
		"not the baseline":                            {v1alpha1.Rule{Metric: "lost", MaxIncrease: v1alpha1.Limit{Text: "0"}}, "host", "tcp-64"},
		"an absolute limit of the baseline":           {v1alpha1.Rule{Metric: "lost", Max: v1alpha1.Limit{Text: "0"}, Variants: []string{"host"}}, "host", "udp-64-at-23000 tcp-stream-65536"},
		"nothing has this size":                       {v1alpha1.Rule{Metric: "lost", Max: v1alpha1.Limit{Text: "0"}, MessageSizes: []int32{65}}, "", ""},
		"a latency of a stream, which there never is": {v1alpha1.Rule{Metric: "p50", Max: v1alpha1.Limit{Text: "1s"}, Cells: []string{"tcp-stream-65536"}}, "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := parseRule(c.rule)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, cell := range cells {
				if r.selects(cell, c.baseline) {
					got = append(got, cell.Name)
				}
			}
			if line := strings.Join(got, " "); line != c.want {
				t.Errorf("selected %q, want %q", line, c.want)
			}
		})
	}
}

func TestRuleText(t *testing.T) {
	cases := map[string]v1alpha1.Rule{
		"p99 max 2µs": {Metric: "p99", Max: v1alpha1.Limit{Text: "2us"}},
		"throughput min 9.00Gb/s of protocols TCP UDP": {Metric: "throughput", Min: v1alpha1.Limit{Text: "9G"}, Protocols: []v1alpha1.Protocol{"TCP", "UDP"}},
		"lost maxIncrease 0 of ratesPerSecond 23000":   {Metric: "lost", MaxIncrease: v1alpha1.Limit{Text: "0"}, RatesPerSecond: []int32{23_000}},
		"throughput maxDecrease 5% of variants a, cells b c d e and 2 more": {
			Metric: "throughput", MaxDecrease: v1alpha1.Limit{Text: "5%"}, Variants: []string{"a"}, Cells: []string{"b", "c", "d", "e", "f", "g"}},
	}
	for want, r := range cases {
		parsed, err := parseRule(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
