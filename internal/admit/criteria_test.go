package admit

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The API accepts each limit in the forms that people write, and says of any other what to write.
func TestLimits(t *testing.T) {
	const duration, count = "is not a duration from 1ns to 60s; write one, such as 10us or 1.75ms", "is not a number of messages from 0 to 999999999999; write a number, such as 5"
	const bits = "is not a number of bits per second from 1 to 999999999999999; write a number with k, M, G or T, such as 9G or 2.5G"
	const increase = "is not a percentage above 0% and below 10000% with at most three decimals; write one, such as 5% or 2.5%"
	const decrease = "is not a percentage above 0% and below 100% with at most three decimals; write one, such as 5% or 2.5%"
	const takes = "throughput takes min or maxDecrease, such as min: 9G or maxDecrease: 5%; lost takes max or maxIncrease, such as max: 0; " +
		"every other metric takes max or maxIncrease, such as max: 10us or maxIncrease: 5%"
	const one, types = "give exactly one of max, min, maxIncrease and maxDecrease", "write a whole number, or a text such as 10us, 9G or 5%"
	for rule, want := range map[string]string{
		"metric: p99, max: 10us": "", "metric: p99, max: 2.5µs": "", "metric: p99, max: 2.5μs": "", "metric: min, max: 60s": "", "metric: mean, max: 1ns": "", "metric: p50, max: 1m": "",
		"metric: p99, max: '10'":                          `.max: Invalid value: "10" has no unit; write 10us`,
		"metric: p99, max: 10":                            `.max: Invalid value: "10" has no unit; write 10us`,
		"metric: p99, max: '2.5'":                         `.max: Invalid value: "2.5" has no unit; write 2.5us`,
		"metric: p99, max: 2.5":                           types,
		"metric: p99, max: true":                          types,
		"metric: p99, max: 0":                             `.max: Invalid value: "0" ` + duration,
		"metric: p99, max: 0us":                           `.max: Invalid value: "0us" ` + duration,
		"metric: p99, max: 0.5ns":                         `.max: Invalid value: "0.5ns" ` + duration,
		"metric: p99, max: 61s":                           `.max: Invalid value: "61s" ` + duration,
		"metric: p99, max: -1us":                          `.max: Invalid value: "-1us" ` + duration,
		"metric: p99, max: 5%":                            `.max: Invalid value: "5%" ` + duration,
		"metric: p99, max: 10 us":                         `.max: Invalid value: "10 us" ` + duration,
		"metric: p99, max: 10usec":                        `.max: Invalid value: "10usec" ` + duration,
		"metric: p99, max: ''":                            `.max: Invalid value: "" ` + duration,
		"metric: p99, max: '99999999s'":                   `.max: Invalid value: "99999999s" ` + duration,
		"metric: p99, max: '0000000000000000000000000us'": "may not be more than 24",
		"metric: lost, max: 5":                            "", "metric: lost, max: '5'": "", "metric: lost, max: 0": "", "metric: lost, max: 999999999999": "",
		"metric: lost, max: 1000000000000": `.max: Invalid value: "1000000000000" ` + count,
		"metric: lost, max: -1":            `.max: Invalid value: "-1" ` + count,
		"metric: lost, max: 1us":           `.max: Invalid value: "1us" ` + count,
		"metric: lost, max: 5%":            `.max: Invalid value: "5%" ` + count,
		"metric: lost, max: 5k":            `.max: Invalid value: "5k" ` + count,
		"metric: throughput, min: 9G":      "", "metric: throughput, min: 9000000000": "", "metric: throughput, min: 2.5G": "", "metric: throughput, min: '1'": "",
		"metric: throughput, min: 999999999999999": "", "metric: throughput, min: 100k": "", "metric: throughput, min: 999M": "", "metric: throughput, min: 0.4T": "",
		"metric: throughput, min: 0":                `.min: Invalid value: "0" ` + bits,
		"metric: throughput, min: 0.5":              types,
		"metric: throughput, min: '0.5'":            `.min: Invalid value: "0.5" ` + bits,
		"metric: throughput, min: 1.0001k":          `.min: Invalid value: "1.0001k" ` + bits,
		"metric: throughput, min: 9Gbps":            `.min: Invalid value: "9Gbps" ` + bits,
		"metric: throughput, min: 9Gi":              `.min: Invalid value: "9Gi" ` + bits,
		"metric: throughput, min: 9K":               `.min: Invalid value: "9K" ` + bits,
		"metric: throughput, min: '9e9'":            `.min: Invalid value: "9e9" ` + bits,
		"metric: throughput, min: '1e99999999'":     `.min: Invalid value: "1e99999999" ` + bits,
		"metric: throughput, min: 1000T":            `.min: Invalid value: "1000T" ` + bits,
		"metric: throughput, min: 1000000000000000": `.min: Invalid value: "1000000000000000" ` + bits,
		"metric: throughput, min: -9G":              `.min: Invalid value: "-9G" ` + bits,
		"metric: p99, maxIncrease: 5%":              "", "metric: p99, maxIncrease: 2.125%": "", "metric: p99, maxIncrease: 9999.999%": "",
		"metric: p99, maxIncrease: 0%":      `.maxIncrease: Invalid value: "0%" ` + increase,
		"metric: p99, maxIncrease: 0.00%":   `.maxIncrease: Invalid value: "0.00%" ` + increase,
		"metric: p99, maxIncrease: 0.01%":   "",
		"metric: p99, maxIncrease: 5":       `.maxIncrease: Invalid value: "5" has no percent sign; write 5%`,
		"metric: p99, maxIncrease: '2.5'":   `.maxIncrease: Invalid value: "2.5" has no percent sign; write 2.5%`,
		"metric: p99, maxIncrease: 10000%":  `.maxIncrease: Invalid value: "10000%" ` + increase,
		"metric: p99, maxIncrease: 5.1234%": `.maxIncrease: Invalid value: "5.1234%" ` + increase,
		"metric: p99, maxIncrease: -5%":     `.maxIncrease: Invalid value: "-5%" ` + increase,
		"metric: p99, maxIncrease: 10us":    `.maxIncrease: Invalid value: "10us" ` + increase,
		"metric: lost, maxIncrease: 10":     "", "metric: lost, maxIncrease: '10'": "",
		"metric: lost, maxIncrease: 5%":           `.maxIncrease: Invalid value: "5%" ` + count,
		"metric: throughput, maxDecrease: 5%":     "",
		"metric: throughput, maxDecrease: 5":      `.maxDecrease: Invalid value: "5" has no percent sign; write 5%`,
		"metric: throughput, maxDecrease: 100%":   `.maxDecrease: Invalid value: "100%" ` + decrease,
		"metric: throughput, maxDecrease: 99.9%":  "",
		"metric: throughput, max: 9G":             takes,
		"metric: throughput, maxIncrease: 5%":     takes,
		"metric: p99, min: 10us":                  takes,
		"metric: p99, maxDecrease: 5%":            takes,
		"metric: lost, min: 5":                    takes,
		"metric: p99":                             one,
		"metric: p99, max: 10us, maxIncrease: 5%": one,
		"metric: max, max: 10us":                  "use p99.999 or a lower percentile",
		"metric: p99, maxLatency: 10us":           "unknown field",
	} {
		u := &unstructured.Unstructured{}
		text := `{apiVersion: tailgate.dev/v1alpha1, kind: LatencyBenchmark, metadata: {name: x, namespace: perf}, spec: {tool: netperf, placement: {client: {}, server: {}},
			workload: {protocols: [UDP], messageSizes: [64], streams: [{protocol: TCP, messageSize: 65536}], duration: 1s},
			criteria: {rules: [{` + rule + `}], baseline: {type: Benchmark, benchmark: {name: before}}}}}`
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err == nil {
			err = u.UnmarshalJSON(raw)
		}
		if err != nil {
			t.Fatal(rule, err)
		}
		err = Object(t.Context(), u)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "spec.criteria.rules[0]")) {
			t.Errorf("%s: %v; want %q", rule, err, want)
		}
	}
}
