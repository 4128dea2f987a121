package v1alpha1

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Criteria are the conditions that a benchmark's results must meet.
// +kubebuilder:validation:XValidation:rule="has(self.baseline) || self.rules.all(r, !has(r.maxIncrease) && !has(r.maxDecrease))",message="baseline: maxIncrease and maxDecrease compare with a baseline; give one of type Benchmark, Variant, Gate or Export, or use max and min"
// +kubebuilder:validation:XValidation:rule="!has(self.ignoreDifferences) || has(self.baseline)",message="ignoreDifferences: applies only to a baseline; remove it, or set baseline"
type Criteria struct {
	// rules are the limits, 1 to 32. The verdict is Fail if a rule fails, Pass if all pass, and otherwise Inconclusive.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.map(r, (has(r.cells) ? r.cells.size() : 0) + (has(r.variants) ? r.variants.size() : 0)).sum() <= 256",message="all rules together name at most 256 cells and variants; select cells by protocols, messageSizes and ratesPerSecond"
	Rules []Rule `json:"rules"`

	// baseline is what maxIncrease and maxDecrease compare with.
	Baseline *Baseline `json:"baseline,omitempty"`

	// ignoreDifferences are keys of the evidence that may differ from the baseline, at most 32; any other difference makes
	// the comparison Inconclusive. kernelUpgrade stands for what another kernel of a distribution changes. One * matches
	// any text, except nic.firmware-variant, nic.function, numa.relation and cell.CELL.accelerated.END.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_][-A-Za-z0-9_./]*([*][-A-Za-z0-9_./]*)?$`
	IgnoreDifferences []string `json:"ignoreDifferences,omitempty"`
}

// IgnoreKernelUpgrade is the name in ignoreDifferences of what another kernel of a distribution changes by itself.
const IgnoreKernelUpgrade = "kernelUpgrade"

// Metric is the metric of each round that a rule limits.
// +kubebuilder:validation:Enum=min;mean;p50;p75;p90;p95;p99;p99.9;p99.99;p99.999;max;stddev;lost;throughput
type Metric string

// The metrics. Percentiles, min, mean and stddev are latencies of the round's own samples.
const (
	// MetricMin is the smallest sample. The minimum decreases with the number of samples: compare equal durations.
	MetricMin Metric = "min"
	// MetricMean is the mean of the samples. Lost messages are not among them: add a rule on lost.
	MetricMean   Metric = "mean"
	MetricP50    Metric = "p50"
	MetricP75    Metric = "p75"
	MetricP90    Metric = "p90"
	MetricP95    Metric = "p95"
	MetricP99    Metric = "p99"
	MetricP999   Metric = "p99.9"
	MetricP9999  Metric = "p99.99"
	MetricP99999 Metric = "p99.999"
	// MetricMax is the largest sample, a single one of each round: it is shown and never judged.
	MetricMax Metric = "max"
	// MetricStdDev is the standard deviation of the samples. Lost messages are not among them.
	MetricStdDev Metric = "stddev"
	// MetricLost is the number of messages that were sent and not answered, or not received in a stream.
	MetricLost Metric = "lost"
	// MetricThroughput is the payload that arrived at the receiver of a stream, in bits per second.
	MetricThroughput Metric = "throughput"
)

// Unit is the unit in which a metric is judged and shown.
// +kubebuilder:validation:Enum=Nanoseconds;BitsPerSecond;Messages
type Unit string

const (
	UnitNanoseconds   Unit = "Nanoseconds"
	UnitBitsPerSecond Unit = "BitsPerSecond"
	UnitMessages      Unit = "Messages"
)

// MetricKind says how a metric is judged and shown.
type MetricKind struct {
	Metric Metric
	Unit   Unit
	// OfAnswers and OfStreams state which cells have the metric.
	OfAnswers, OfStreams bool
	// LowerIsWorse is true for a metric whose limits are min and maxDecrease, not max and maxIncrease.
	LowerIsWorse bool
	// Percentile is true for a percentile, which needs samples beyond it.
	Percentile bool
	// WithoutLost is true for a metric that does not include lost messages.
	WithoutLost bool
	// NeverJudged is true for a metric that rules must not use.
	NeverJudged bool
	// Compared is true for a metric that comparisons of two benchmarks show.
	Compared bool
}

// metricKinds are the metrics in the order of tables. The enum of Metric and the CEL rules of Rule repeat parts of it.
var metricKinds = []MetricKind{
	{Metric: MetricMin, Unit: UnitNanoseconds, OfAnswers: true},
	{Metric: MetricMean, Unit: UnitNanoseconds, OfAnswers: true, WithoutLost: true, Compared: true},
	{Metric: MetricP50, Unit: UnitNanoseconds, OfAnswers: true, Percentile: true, Compared: true},
	{Metric: MetricP75, Unit: UnitNanoseconds, OfAnswers: true, Percentile: true},
	{Metric: MetricP90, Unit: UnitNanoseconds, OfAnswers: true, Percentile: true, Compared: true},
	{Metric: MetricP95, Unit: UnitNanoseconds, OfAnswers: true, Percentile: true},
	{Metric: MetricP99, Unit: UnitNanoseconds, OfAnswers: true, Percentile: true, Compared: true},
	{Metric: MetricP999, Unit: UnitNanoseconds, OfAnswers: true, Percentile: true, Compared: true},
	{Metric: MetricP9999, Unit: UnitNanoseconds, OfAnswers: true, Percentile: true, Compared: true},
	{Metric: MetricP99999, Unit: UnitNanoseconds, OfAnswers: true, Percentile: true, Compared: true},
	{Metric: MetricMax, Unit: UnitNanoseconds, OfAnswers: true, NeverJudged: true},
	{Metric: MetricStdDev, Unit: UnitNanoseconds, OfAnswers: true, WithoutLost: true},
	{Metric: MetricLost, Unit: UnitMessages, OfAnswers: true, OfStreams: true, Compared: true},
	{Metric: MetricThroughput, Unit: UnitBitsPerSecond, OfStreams: true, LowerIsWorse: true, Compared: true},
}

func MetricKinds() []MetricKind { return slices.Clone(metricKinds) }

// Kind returns the kind of a metric; it is empty if the API does not have the metric.
func (m Metric) Kind() MetricKind {
	for _, k := range metricKinds {
		if k.Metric == m {
			return k
		}
	}
	return MetricKind{}
}

func (k MetricKind) Of(t Traffic) bool { return t.Stream && k.OfStreams || !t.Stream && k.OfAnswers }

// Limit is a text or a whole number, whose unit depends on the field and the metric.
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=24
type Limit struct {
	// Text is the limit as the user wrote it; empty if there is none.
	Text string `json:"-"`
	// Number means that the user wrote a number, not a text: 5, not "5".
	Number bool `json:"-"`
}

func (l Limit) MarshalJSON() ([]byte, error) {
	if l.Number {
		return []byte(l.Text), nil
	}
	return json.Marshal(l.Text)
}

// UnmarshalJSON reads a text, or else a number; the API refuses anything else.
func (l *Limit) UnmarshalJSON(raw []byte) error {
	*l = Limit{}
	if err := json.Unmarshal(raw, &l.Text); err != nil {
		*l = Limit{Text: string(raw), Number: true}
	}
	return nil
}

// Duration returns the limit of a latency.
func (l Limit) Duration() (time.Duration, error) { return time.ParseDuration(l.Text) }

// Whole returns the limit in messages or in bits per second.
func (l Limit) Whole() (int64, error) {
	q, err := resource.ParseQuantity(l.Text)
	if n, whole := q.AsInt64(); err == nil && whole {
		return n, nil
	}
	return 0, fmt.Errorf("%q is not a whole number", l.Text)
}

// Thousandths returns the limit in thousandths of a percent.
func (l Limit) Thousandths() (int64, error) {
	percent, isPercent := strings.CutSuffix(l.Text, "%")
	q, err := resource.ParseQuantity(percent)
	if err != nil || !isPercent {
		return 0, fmt.Errorf("%q is not a percentage", l.Text)
	}
	return q.MilliValue(), nil
}

// Rule limits a metric of the cells that it selects: without any, it is Inconclusive. A value equal to the limit is
// within it. Except for lost, a Pass allows one round in ten beyond the limit, or one in ten more than in the baseline.
// +kubebuilder:validation:XValidation:rule="self.metric != 'max'",message="metric: max is a single sample of each round and cannot be judged; use p99.999 or a lower percentile"
// +kubebuilder:validation:XValidation:rule="[has(self.max), has(self.min), has(self.maxIncrease), has(self.maxDecrease)].filter(given, given).size() == 1",message="give exactly one of max, min, maxIncrease and maxDecrease; write a separate rule for each limit"
// +kubebuilder:validation:XValidation:rule="self.metric == 'throughput' ? !has(self.max) && !has(self.maxIncrease) : !has(self.min) && !has(self.maxDecrease)",message="throughput takes min or maxDecrease, such as min: 9G or maxDecrease: 5%; lost takes max or maxIncrease, such as max: 0; every other metric takes max or maxIncrease, such as max: 10us or maxIncrease: 5%"
// +kubebuilder:validation:XValidation:rule="self.metric in ['lost', 'throughput'] || !has(self.max) || type(self.max) == string && self.max.matches('^([0-9]{1,9}([.][0-9]{1,9})?(ns|us|µs|μs|ms|s|m))+$') && duration(self.max) >= duration('1ns') && duration(self.max) <= duration('60s')",fieldPath=".max",messageExpression="'\"' + string(self.max) + '\"' + (string(self.max).matches('^[1-9][0-9.]*$') ? ' has no unit; write ' + string(self.max) + 'us' : ' is not a duration from 1ns to 60s; write one, such as 10us or 1.75ms')",message="must be a duration from 1ns to 60s, such as 10us or 1.75ms"
// +kubebuilder:validation:XValidation:rule="self.metric != 'lost' || !has(self.max) || string(self.max).matches('^[0-9]{1,12}$')",fieldPath=".max",messageExpression="'\"' + string(self.max) + '\" is not a number of messages from 0 to 999999999999; write a number, such as 5'",message="must be a number of messages from 0 to 999999999999, such as 5"
// +kubebuilder:validation:XValidation:rule="!has(self.min) || string(self.min).matches('^[0-9]{1,15}([.][0-9]{1,12})?[kMGT]?$') && quantity(string(self.min)).isInteger() && quantity(string(self.min)).compareTo(quantity('1')) >= 0 && quantity(string(self.min)).compareTo(quantity('999999999999999')) <= 0",fieldPath=".min",messageExpression="'\"' + string(self.min) + '\" is not a number of bits per second from 1 to 999999999999999; write a number with k, M, G or T, such as 9G or 2.5G'",message="must be a number of bits per second from 1 to 999999999999999, such as 9G"
// +kubebuilder:validation:XValidation:rule="self.metric == 'lost' || !has(self.maxIncrease) || type(self.maxIncrease) == string && self.maxIncrease.matches('^(0|[1-9][0-9]{0,3})([.][0-9]{1,3})?%$') && !self.maxIncrease.matches('^[0.]+%$')",fieldPath=".maxIncrease",messageExpression="'\"' + string(self.maxIncrease) + '\"' + (string(self.maxIncrease).matches('^[1-9][0-9.]*$') ? ' has no percent sign; write ' + string(self.maxIncrease) + '%' : ' is not a percentage above 0% and below 10000% with at most three decimals; write one, such as 5% or 2.5%')",message="must be a percentage above 0% and below 10000% with at most three decimals, such as 5% or 2.5%"
// +kubebuilder:validation:XValidation:rule="self.metric != 'lost' || !has(self.maxIncrease) || string(self.maxIncrease).matches('^[0-9]{1,12}$')",fieldPath=".maxIncrease",messageExpression="'\"' + string(self.maxIncrease) + '\" is not a number of messages from 0 to 999999999999; write a number, such as 5'",message="must be a number of messages from 0 to 999999999999, such as 5"
// +kubebuilder:validation:XValidation:rule="!has(self.maxDecrease) || type(self.maxDecrease) == string && self.maxDecrease.matches('^(0|[1-9][0-9]?)([.][0-9]{1,3})?%$') && !self.maxDecrease.matches('^[0.]+%$')",fieldPath=".maxDecrease",messageExpression="'\"' + string(self.maxDecrease) + '\"' + (string(self.maxDecrease).matches('^[1-9][0-9.]*$') ? ' has no percent sign; write ' + string(self.maxDecrease) + '%' : ' is not a percentage above 0% and below 100% with at most three decimals; write one, such as 5% or 2.5%')",message="must be a percentage above 0% and below 100% with at most three decimals, such as 5% or 2.5%"
type Rule struct {
	// metric is the limited metric: throughput in streams, lost in all cells, any other (except max) in cells that answer.
	// +required
	Metric Metric `json:"metric"`

	// max is the highest latency of the median round, 1ns to 60s, such as 1.75ms. For lost, it limits each round's lost
	// messages: 0 to 999999999999.
	// +optional
	Max Limit `json:"max,omitzero"`

	// min is the lowest throughput of the median round, in bits per second: 1 to 999999999999999, such as 2.5G.
	// +optional
	Min Limit `json:"min,omitzero"`

	// maxIncrease is how much a latency may exceed the baseline, above 0%, below 10000%; for lost, how many messages more.
	// +optional
	MaxIncrease Limit `json:"maxIncrease,omitzero"`

	// maxDecrease is how much lower than the baseline a throughput may be: above 0% and below 100%, such as 5%.
	// +optional
	MaxDecrease Limit `json:"maxDecrease,omitzero"`

	// variants selects cells of these variants; absent: all.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[!-~]+$`
	Variants []string `json:"variants,omitempty"`

	// protocols selects cells of these protocols; absent: all.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	Protocols []Protocol `json:"protocols,omitempty"`

	// messageSizes selects cells of these payload sizes, in bytes; absent: all.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=1048576
	MessageSizes []int32 `json:"messageSizes,omitempty"`

	// ratesPerSecond selects cells whose messages are sent at these rates; absent: all, including ping-pong.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=10000000
	RatesPerSecond []int32 `json:"ratesPerSecond,omitempty"`

	// cells selects cells by the names that the results show, such as tcp-64 or udp-64-at-23000; absent: all.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[!-~]+$`
	Cells []string `json:"cells,omitempty"`
}

func (r *Rule) Compares() bool {
	return r.MaxIncrease.Text != "" || r.MaxDecrease.Text != ""
}

// +kubebuilder:validation:Enum=Benchmark;Variant;Gate;Matrix;Export
type BaselineType string

const (
	BaselineBenchmark BaselineType = "Benchmark"
	BaselineVariant   BaselineType = "Variant"
	BaselineGate      BaselineType = "Gate"
	BaselineMatrix    BaselineType = "Matrix"
	BaselineExport    BaselineType = "Export"
)

// Baseline names results to compare with: a union whose type selects the one member that is set.
// +union
// +kubebuilder:validation:XValidation:rule="(self.type == 'Benchmark') == has(self.benchmark)",message="benchmark belongs to type Benchmark, which requires it: give benchmark.name, or remove benchmark"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Variant') == has(self.variant)",message="variant belongs to type Variant, which requires it: give variant.name, or remove variant"
// +kubebuilder:validation:XValidation:rule="self.type == 'Gate' || !has(self.gate)",message="gate belongs to type Gate: set type: Gate, or remove gate"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Matrix') == has(self.matrix)",message="matrix belongs to type Matrix, which requires it: give matrix.name, or remove matrix"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Export') == has(self.export)",message="export belongs to type Export, which requires it: give export.configMapName and export.sha256, or remove export"
type Baseline struct {
	// type is the kind of the baseline: Benchmark, Variant, Gate, Matrix or Export.
	// +unionDiscriminator
	// +required
	Type BaselineType `json:"type"`

	// benchmark is one of the namespace with variants of the same names. The verdict is Inconclusive until it is complete.
	// +unionMember
	Benchmark *BenchmarkReference `json:"benchmark,omitempty"`

	// variant is another variant of the benchmark. Rules with maxIncrease or maxDecrease do not select its cells.
	// +unionMember
	Variant *ObjectName `json:"variant,omitempty"`

	// gate is the LatencyGate of the namespace whose accepted result of the client's node at the first verdict is the
	// baseline. The template of a LatencyGate must not set the field; all others must.
	// +unionMember
	Gate *ObjectName `json:"gate,omitempty"`

	// matrix is, for a LatencyMatrix, another one of the namespace. Pairs of the same nodes and roles are compared.
	// +unionMember
	Matrix *ObjectName `json:"matrix,omitempty"`

	// export is a complete export of any cluster's benchmark, with evidence of all runs and the same tool and latencyType.
	// Otherwise, the verdict is Inconclusive.
	// +unionMember
	Export *ExportedBaseline `json:"export,omitempty"`
}

// BaselineOf returns the name of the object of a type that the criteria compare with; empty if there is none by name.
func (c *Criteria) BaselineOf(t BaselineType) string {
	if !c.Against(t) {
		return ""
	}
	switch b := c.Baseline; {
	case b.Benchmark != nil:
		return b.Benchmark.Name
	case b.Export != nil:
		return b.Export.ConfigMapName
	default:
		return cmp.Or(b.Variant, b.Gate, b.Matrix, &ObjectName{}).Name
	}
}

// Against reports whether the criteria, which may be nil, compare with a baseline of a type.
func (c *Criteria) Against(t BaselineType) bool {
	return c != nil && c.Baseline != nil && c.Baseline.Type == t
}

// ExportedBaseline names an export that a ConfigMap contains, as `kubectl tailgate export --configmap` writes it.
type ExportedBaseline struct {
	// configMapName is the name of the ConfigMap, in the namespace of the benchmark.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ConfigMapName string `json:"configMapName"`

	// sha256 is the SHA-256 of the export's manifest.json in hexadecimal, which `kubectl tailgate export` prints.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256"`
}

type BenchmarkReference struct {
	ObjectName `json:",inline"`
	// uid is its UID: another benchmark of the name does not count. The template of a LatencyGate must set it.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
}

type ObjectName struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// +kubebuilder:validation:Enum=Pass;Fail;Inconclusive
type VerdictOutcome string

const (
	// VerdictPass surfaces when even the pessimistic bound is within the limit.
	VerdictPass VerdictOutcome = "Pass"
	// VerdictFail surfaces when even the optimistic bound is beyond the limit.
	VerdictFail VerdictOutcome = "Fail"
	// VerdictInconclusive surfaces when neither a Pass nor a Fail can be shown; it is never a pass.
	VerdictInconclusive VerdictOutcome = "Inconclusive"
)

// Compare orders outcomes from the best to the worst: none, Pass, Inconclusive, Fail.
func (o VerdictOutcome) Compare(other VerdictOutcome) int {
	order := []VerdictOutcome{"", VerdictPass, VerdictInconclusive, VerdictFail}
	return slices.Index(order, o) - slices.Index(order, other)
}

// Reasons of a RuleVerdict. If a condition of a comparison does not hold, its reason is there instead.
const (
	ReasonWithinLimit           = "WithinLimit"           // with Pass
	ReasonBeyondLimit           = "BeyondLimit"           // with Fail
	ReasonLimitInsideBounds     = "LimitInsideBounds"     // when the limit is between the bounds
	ReasonTooNoisy              = "TooNoisy"              // when not even an unchanged result would pass
	ReasonSlowRounds            = "SlowRounds"            // when more than one round in ten is beyond the limit
	ReasonRoundsDrift           = "RoundsDrift"           // when only the correlation of rounds prevents a decision
	ReasonUndefinedRatio        = "UndefinedRatio"        // when most ratios are 0 to 0, or of lost messages
	ReasonStepTooCoarse         = "StepTooCoarse"         // when the tool's resolution is too low
	ReasonTooFewRounds          = "TooFewRounds"          // when there are too few rounds for a bound or for a Fail
	ReasonTooFewSamples         = "TooFewSamples"         // when a round has too few samples beyond the percentile
	ReasonWorstRoundBeyondLimit = "WorstRoundBeyondLimit" // when a single round lost too many
	ReasonNotMeasured           = "NotMeasured"           // when the tool does not report the metric
	ReasonNoBaseline            = "NoBaseline"            // when the baseline does not have the cell
	ReasonNoCells               = "NoCells"               // when a rule selects no cell
)

// Verdict is the result of the rules of spec.criteria.
type Verdict struct {
	// outcome is Fail when a rule fails, Pass when all pass, otherwise Inconclusive.
	Outcome VerdictOutcome `json:"outcome"`
	// message is the message of the rule that decided the outcome.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// comparisons is the number of pairs of a rule and a cell. A Fail is decided over all of them together.
	Comparisons int32 `json:"comparisons"`
	// evaluations is how often the data are judged, 1 or 2: after spec.rounds and after spec.maxRounds.
	Evaluations int32 `json:"evaluations,omitempty"`
	// wrongOneIn is 20 if at most one in 20 verdicts is wrong; absent for dependent rounds or a comparison of benchmarks.
	WrongOneIn int64 `json:"wrongOneIn,omitempty"`
	// beyondOneIn is one in how many benchmarks within all limits would look as bad at an evaluation: a Fail from 40 on.
	BeyondOneIn int64 `json:"beyondOneIn,omitempty"`
	// rules are the results of the rules, in the order of spec.criteria.rules.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Rules []RuleVerdict `json:"rules"`
	// baseline is the benchmark that was compared with if criteria.baseline is of type Gate.
	Baseline *VerdictBaseline `json:"baseline,omitempty"`
	// inputs are digests of the judged data. A change, except the deletion of the baseline, leads to a new verdict.
	// +kubebuilder:validation:MaxLength=129
	Inputs string `json:"inputs,omitempty"`
}

// VerdictBaseline is a result that a LatencyGate had accepted.
type VerdictBaseline struct {
	// gate is the name of the LatencyGate.
	// +kubebuilder:validation:MaxLength=63
	Gate string `json:"gate"`
	// namespace of the benchmark.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// benchmark is its name.
	// +kubebuilder:validation:MaxLength=253
	Benchmark string `json:"benchmark"`
	// uid of the benchmark. A benchmark with the same name and another uid is not the baseline.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

// RuleVerdict is the result of one rule, with the numbers of the worst failed, else inconclusive, else passed cell.
type RuleVerdict struct {
	// rule as text, such as p99 max 2µs of variants vf-onload.
	// +kubebuilder:validation:MaxLength=512
	Rule string `json:"rule"`
	// outcome is Fail when a cell fails, Pass when all pass, otherwise Inconclusive.
	Outcome VerdictOutcome `json:"outcome"`
	// reason of the outcome as one word.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message explains the outcome, with its numbers.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// passed is the number of cells that pass.
	Passed int32 `json:"passed"`
	// failed is the number of cells that fail.
	Failed int32 `json:"failed"`
	// inconclusive is the number of cells that neither pass nor fail.
	Inconclusive int32 `json:"inconclusive"`
	// variant is the variant of the cell that decided; absent when no cell was selected.
	// +kubebuilder:validation:MaxLength=63
	Variant string `json:"variant,omitempty"`
	// cell is the name of the cell that decided.
	// +kubebuilder:validation:MaxLength=63
	Cell string `json:"cell,omitempty"`
	// unit is the unit of candidate and baseline, and of lower and upper if they are not ratios.
	Unit Unit `json:"unit,omitempty"`
	// candidate is the value of the (lower) median round; absent if unmeasured, or unbounded because of lost messages.
	Candidate *int64 `json:"candidate,omitempty"`
	// baseline is the same value of the baseline.
	Baseline *int64 `json:"baseline,omitempty"`
	// candidateRounds is the number of rounds judged.
	CandidateRounds int32 `json:"candidateRounds,omitempty"`
	// baselineRounds is the number of rounds compared with.
	BaselineRounds int32 `json:"baselineRounds,omitempty"`
	// estimate is the median round's value or, with a baseline, the median ratio (lost: difference); absent if unbounded.
	// +kubebuilder:validation:MaxLength=32
	Estimate string `json:"estimate,omitempty"`
	// lower is the lower bound of the 95 % interval of the estimate; absent if there are too few rounds.
	// +kubebuilder:validation:MaxLength=32
	Lower string `json:"lower,omitempty"`
	// upper is the upper bound of the same interval; absent if there are too few rounds.
	// +kubebuilder:validation:MaxLength=32
	Upper string `json:"upper,omitempty"`
	// worstRound is the value of the worst round; absent for lost, or if it is unbounded because messages were lost.
	WorstRound *int64 `json:"worstRound,omitempty"`
	// roundsBeyond is how many rounds may be beyond the limit (of the baseline's worst round). A Pass allows one in ten.
	RoundsBeyond int32 `json:"roundsBeyond,omitempty"`
	// needsRounds is the estimated number of rounds on each side that would decide; 0 if that is unknown or above 1000.
	NeedsRounds int32 `json:"needsRounds,omitempty"`
	// needsSamples is the number of samples that each round needs; 0 if there are enough.
	NeedsSamples int64 `json:"needsSamples,omitempty"`
}
