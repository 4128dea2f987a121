package verdict

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// rule is a GateRule that was read.
type rule struct {
	v1alpha1.GateRule
	kind kind
	// limit of an absolute rule: ns, bit/s or messages. Of lost with maxIncrease: messages.
	limit int64
	// tolerance of a rule with maxIncrease or maxDecrease in percent.
	tolerance stats.Tolerance
	// percentile of the metric; nil when it is none.
	percentile *stats.Percentile
}

// kind is how a rule is judged.
type kind int

const (
	// absolute holds the median round against a limit.
	absolute kind = iota
	// byRatio holds the ratios to the baseline's rounds against a tolerance.
	byRatio
	// byDifference holds the differences from the baseline's rounds against a limit: of lost, whose baseline is mostly 0.
	byDifference
)

// percentiles are the metrics that are percentiles.
var percentiles = map[v1alpha1.GateMetric]stats.Percentile{
	v1alpha1.MetricP50: stats.P50, v1alpha1.MetricP75: stats.P75, v1alpha1.MetricP90: stats.P90, v1alpha1.MetricP95: stats.P95, v1alpha1.MetricP99: stats.P99,
	v1alpha1.MetricP999: stats.P999, v1alpha1.MetricP9999: stats.P9999, v1alpha1.MetricP99999: stats.P99999,
}

// otherLatencies are the latencies that are none.
var otherLatencies = []v1alpha1.GateMetric{v1alpha1.MetricMin, v1alpha1.MetricMean, v1alpha1.MetricStdDev}

// ValidateRule says why a rule cannot be judged, or nil. The API refuses the same.
func ValidateRule(r v1alpha1.GateRule) error {
	_, err := parseRule(r)
	return err
}

func parseRule(r v1alpha1.GateRule) (rule, error) {
	out := rule{GateRule: r}
	given := 0
	for _, limit := range []string{r.Max, r.Min, r.MaxIncrease, r.MaxDecrease} {
		if limit != "" {
			given++
		}
	}
	if given != 1 {
		return rule{}, fmt.Errorf("rule on %s: give exactly one of max, min, maxIncrease and maxDecrease", r.Metric)
	}
	var err error
	switch r.Metric {
	case v1alpha1.MetricThroughput:
		switch {
		case r.Min != "":
			out.limit, err = ParseBitRate(r.Min)
		case r.MaxDecrease != "":
			out.kind = byRatio
			out.tolerance, err = ParsePercent(r.MaxDecrease, 100)
		default:
			err = errors.New("more throughput is better; give min or maxDecrease")
		}
	case v1alpha1.MetricLost:
		switch {
		case r.Max != "":
			out.limit, err = ParseMessages(r.Max)
		case r.MaxIncrease != "":
			out.kind = byDifference
			out.limit, err = ParseMessages(r.MaxIncrease)
		default:
			err = errors.New("less loss is better; give max or maxIncrease")
		}
	case v1alpha1.MetricMax:
		err = errors.New("a single sample of each round cannot be judged; use p99.999 or a lower percentile")
	default:
		percentile, isPercentile := percentiles[r.Metric]
		if isPercentile {
			out.percentile = &percentile
		}
		switch {
		case !isPercentile && !slices.Contains(otherLatencies, r.Metric):
			err = errors.New("unknown metric; use min, mean, p50, p75, p90, p95, p99, p99.9, p99.99, p99.999, stddev, lost or throughput")
		case r.Max != "":
			out.limit, err = ParseLatency(r.Max)
		case r.MaxIncrease != "":
			out.kind = byRatio
			out.tolerance, err = ParsePercent(r.MaxIncrease, 10_000)
		default:
			err = errors.New("less latency is better; give max or maxIncrease")
		}
	}
	if err != nil {
		return rule{}, fmt.Errorf("rule on %s: %w", r.Metric, err)
	}
	return out, nil
}

// lowerIsWorse says of which metric more is better.
func (r rule) lowerIsWorse() bool { return r.Metric == v1alpha1.MetricThroughput }

// selects says whether a rule holds for a cell of which baselineVariant, if any, is the variant that is compared with.
func (r rule) selects(c Cell, baselineVariant string) bool {
	switch {
	case c.Stream && r.Metric != v1alpha1.MetricThroughput && r.Metric != v1alpha1.MetricLost:
		return false
	case !c.Stream && r.Metric == v1alpha1.MetricThroughput:
		return false
	case r.kind != absolute && baselineVariant != "" && c.Variant == baselineVariant:
		return false
	}
	return among(r.Variants, c.Variant) && among(r.Protocols, c.Protocol) && among(r.MessageSizes, c.MessageSize) &&
		among(r.RatesPerSecond, c.RatePerSecond) && among(r.Cells, c.Name)
}

// among says whether a selector, which selects everything when it is empty, has a value.
func among[T comparable](selector []T, value T) bool {
	return len(selector) == 0 || slices.Contains(selector, value)
}

// text of the limit as the user wrote it, with its name.
func (r rule) text() (name, limit string) {
	switch {
	case r.Max != "":
		return "max", r.Max
	case r.Min != "":
		return "min", r.Min
	case r.MaxIncrease != "":
		return "maxIncrease", r.MaxIncrease
	}
	return "maxDecrease", r.MaxDecrease
}

// String is the rule in a line, such as p99 max 2us of variants vf-onload, messageSizes 64 256.
func (r rule) String() string {
	name, limit := r.text()
	line := fmt.Sprintf("%s %s %s", r.Metric, name, limit)
	var selectors []string
	selectors = appendSelector(selectors, "variants", r.Variants)
	selectors = appendSelector(selectors, "protocols", r.Protocols)
	selectors = appendSelector(selectors, "messageSizes", r.MessageSizes)
	selectors = appendSelector(selectors, "ratesPerSecond", r.RatesPerSecond)
	selectors = appendSelector(selectors, "cells", r.Cells)
	if len(selectors) > 0 {
		line += " of " + strings.Join(selectors, ", ")
	}
	return line
}

// shownValues is how many values of a selector a line shows.
const shownValues = 4

func appendSelector[T any](to []string, name string, values []T) []string {
	if len(values) == 0 {
		return to
	}
	text := name
	for _, v := range values[:min(len(values), shownValues)] {
		text += fmt.Sprintf(" %v", v)
	}
	if more := len(values) - shownValues; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return append(to, text)
}
