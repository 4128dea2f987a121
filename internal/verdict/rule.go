package verdict

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
)

type rule struct {
	v1alpha1.Rule
	metric     v1alpha1.MetricKind
	kind       kind
	limit      int64             // absolute, in ns, bit/s or messages; or maxIncrease of lost
	tolerance  stats.Tolerance   // maxIncrease of a latency, or maxDecrease of a throughput
	percentile *stats.Percentile // that the metric names; otherwise nil
}

type kind int

const (
	absolute     kind = iota // compares the median round with a limit
	byRatio                  // compares the ratios to the baseline's rounds with a tolerance
	byDifference             // compares the differences: for lost, whose baseline is mostly 0
)

// parseRule parses a rule. The API has validated the ranges of its limits.
func parseRule(r v1alpha1.Rule) (rule, error) {
	out := rule{Rule: r, metric: r.Metric.Kind()}
	if percentile, known := stats.Named(string(r.Metric)); known && out.metric.Percentile {
		out.percentile = &percentile
	}
	limit, change := r.Max, r.MaxIncrease
	if out.metric.LowerIsWorse {
		limit, change = r.Min, r.MaxDecrease
	}
	given := slices.DeleteFunc([]v1alpha1.Limit{r.Max, r.Min, r.MaxIncrease, r.MaxDecrease}, func(l v1alpha1.Limit) bool { return l.Text == "" })
	err := errors.New("throughput takes min or maxDecrease, lost and latencies take max or maxIncrease; give exactly one")
	switch {
	case len(given) != 1 || out.metric.Unit == "" || out.metric.NeverJudged:
	case limit.Text != "" && out.metric.Unit == v1alpha1.UnitNanoseconds:
		var longest time.Duration
		longest, err = limit.Duration()
		out.limit = longest.Nanoseconds()
	case limit.Text != "":
		out.limit, err = limit.Whole()
	case change.Text != "" && out.counted():
		out.kind = byDifference
		out.limit, err = change.Whole()
	case change.Text != "":
		var thousandths int64
		thousandths, err = change.Thousandths()
		out.kind, out.tolerance = byRatio, stats.Tolerance(thousandths)
	}
	if err != nil {
		return rule{}, fmt.Errorf("rule on %s: %w", r.Metric, err)
	}
	return out, nil
}

// Limit is the limit of a rule, in the unit of the estimate of its verdict.
type Limit struct {
	Value float64
	// Ratio means that both are ratios to the baseline, Least that lower values are beyond it.
	Ratio, Least bool
}

// LimitOf returns the limit of the rule whose verdict has this text; false if the criteria changed.
func LimitOf(rules []v1alpha1.Rule, text string) (Limit, bool) {
	for _, r := range rules {
		parsed, err := parseRule(r)
		if err != nil || parsed.String() != text {
			continue
		}
		limit := Limit{Value: float64(parsed.limit), Ratio: parsed.kind == byRatio, Least: parsed.metric.LowerIsWorse}
		switch {
		case limit.Ratio && limit.Least:
			limit.Value = parsed.tolerance.Below().Float64()
		case limit.Ratio:
			limit.Value = parsed.tolerance.Above().Float64()
		}
		return limit, true
	}
	return Limit{}, false
}

// counted reports whether the values are numbers of messages, which are mostly 0.
func (r rule) counted() bool { return r.metric.Unit == v1alpha1.UnitMessages }

// selects reports whether a rule applies to a cell. Others are compared with baselineVariant.
func (r rule) selects(c Cell, baselineVariant string) bool {
	switch {
	case !r.metric.Of(c.Traffic):
		return false
	case r.kind != absolute && baselineVariant != "" && c.Variant == baselineVariant:
		return false
	}
	return among(r.Variants, c.Variant) && among(r.Protocols, c.Protocol) && among(r.MessageSizes, c.MessageSize) &&
		among(r.RatesPerSecond, c.RatePerSecond) && among(r.Cells, c.Name)
}

func among[T comparable](selector []T, value T) bool {
	return len(selector) == 0 || slices.Contains(selector, value)
}

func (r rule) text() (name, limit string) {
	switch {
	case r.Min.Text != "":
		return "min", stats.FormatBitRate(r.limit)
	case r.MaxIncrease.Text != "":
		return "maxIncrease", r.MaxIncrease.Text
	case r.MaxDecrease.Text != "":
		return "maxDecrease", r.MaxDecrease.Text
	case r.counted():
		return "max", r.Max.Text
	}
	return "max", time.Duration(r.limit).String()
}

// String returns the rule, such as p99 max 2µs of variants vf-onload, messageSizes 64 256.
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

const shownValues = 4

func appendSelector[T any](to []string, name string, values []T) []string {
	if len(values) == 0 {
		return to
	}
	items := text.Of(values, func(v T) string { return fmt.Sprint(v) })
	return append(to, name+" "+text.List(items, shownValues, " "))
}
