package turns

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

const (
	// maxBenchmarkName is 57, for benchmark and variant together, minus the 16 of a gate's variant.
	maxBenchmarkName = 41
	maxLabel         = 63
	keyNode          = "node" // the key of the evidence that names the node; see internal/result
)

// ObjectName returns the name of a node's object, without dots, which would lead to odd host names
// of pods. Two nodes may have the same name before the suffix.
func ObjectName(gate, node, suffix string, limit int) string {
	name := v1alpha1.Shortened(gate+"-"+node, limit-len(suffix))
	return strings.ReplaceAll(name, ".", "-") + suffix
}

func benchmarkName(gate, node string, number int64) string {
	return ObjectName(gate, node, fmt.Sprintf("-%d", number), maxBenchmarkName)
}

// NumberOf returns the number at the end of a benchmark's name; 0 if there is none.
func NumberOf(name string) int64 {
	number, err := strconv.ParseInt(name[strings.LastIndex(name, "-")+1:], 10, 64)
	if err != nil {
		return 0
	}
	return number
}

func LabelsOf(v *v1alpha1.LatencyVerification) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate,
		v1alpha1.LabelGate:      v.Spec.GateName,
		v1alpha1.LabelNode:      v1alpha1.Shortened(v.Spec.NodeName, maxLabel),
	}
}

func OwnedBy(v *v1alpha1.LatencyVerification) metav1.OwnerReference {
	return *metav1.NewControllerRef(v, v1alpha1.GroupVersion.WithKind("LatencyVerification"))
}

// Benchmark returns the benchmark of a node and a peer. The first session of a reference limits
// what later ones can show: it has twice the rounds. A left-out warm-up adds as many rounds.
func Benchmark(gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification, peer string, number int64) *v1alpha1.LatencyBenchmark {
	spec := gate.Spec.Template.DeepCopy().Benchmark()
	spec.Placement.Client = spec.Placement.Client.On(v1alpha1.NodeSelection{NodeName: v.Spec.NodeName})
	spec.Placement.Server = spec.Placement.Server.On(v1alpha1.NodeSelection{NodeName: peer})
	spec.Pods = podsOf(gate)
	spec.Priority = priority(spec.Priority, v.Status.StepFailure)
	if spec.Criteria.Against(v1alpha1.BaselineGate) {
		spec.Session = Compared(spec)
		switch {
		case len(v.Status.Reference) == 0:
			spec.Rounds = max(spec.Rounds, min(2*spec.Rounds, sessions.FirstRounds))
		case sessions.WarmUp(&gate.Status) != "":
			spec.Rounds = max(spec.Rounds, min(spec.Rounds+sessions.LaterRounds, 2*sessions.FirstRounds))
		}
		if spec.MaxRounds > 0 {
			spec.MaxRounds = max(spec.MaxRounds, spec.Rounds)
		}
	}
	spec.Criteria = rulesOf(gate.Name, spec.Criteria, v.Status.Accepted, peer)
	return &v1alpha1.LatencyBenchmark{
		ObjectMeta: gate.Spec.Template.Metadata.ObjectMeta(metav1.ObjectMeta{
			Namespace: gate.Spec.Namespace, Name: benchmarkName(gate.Name, v.Spec.NodeName, number),
			Labels: LabelsOf(v), OwnerReferences: []metav1.OwnerReference{OwnedBy(v)},
		}),
		Spec: spec,
	}
}

// Compared returns the first values, in order, that rules with maxIncrease or maxDecrease compare.
func Compared(spec v1alpha1.LatencyBenchmarkSpec) []v1alpha1.ComparedValue {
	all := slices.SortedFunc(maps.Keys(Tolerances(spec)), func(a, b v1alpha1.ComparedValue) int { return strings.Compare(a.String(), b.String()) })
	return all[:min(len(all), v1alpha1.MaxSeries)]
}

// Tolerances returns the smallest tolerance of the rules that compare a value.
func Tolerances(spec v1alpha1.LatencyBenchmarkSpec) sessions.Tolerances {
	all := sessions.Tolerances{}
	if spec.Criteria == nil {
		return all
	}
	verdict.Compared(*spec.Criteria, preflight.Planned(spec), func(c verdict.Cell, m v1alpha1.Metric, t stats.Tolerance) {
		value := v1alpha1.ComparedValue{Variant: c.Variant, Cell: c.Name, Metric: m}
		if smallest, known := all[value]; !known || t < smallest {
			all[value] = t
		}
	})
	return all
}

const maxPriority = 1000 // of a benchmark; a minute of waiting counts as much as one unit

// priority adds the age of earlier abandoned benchmarks: the node keeps its place in the queue.
func priority(template int32, last *v1alpha1.StepFailure) int32 {
	if last == nil || last.StartTime == nil {
		return template
	}
	waited := last.RetryTime.Sub(last.StartTime.Time) / time.Minute
	return min(template+int32(min(max(waited, 0), 2*maxPriority)), maxPriority)
}

func podsOf(gate *v1alpha1.LatencyGate) *v1alpha1.PodSettings {
	pods := cmp.Or(gate.Spec.Template.Spec.Pods.DeepCopy(), &v1alpha1.PodSettings{})
	if !slices.Contains(pods.Tolerations, ofGate) {
		pods.Tolerations = append(pods.Tolerations, ofGate)
	}
	return pods
}

var ofGate = corev1.Toleration{Key: v1alpha1.NodeTaintUnverified, Operator: corev1.TolerationOpExists}

// rulesOf leaves out rules that compare with a missing accepted result; nil if no rule remains.
func rulesOf(gate string, c *v1alpha1.Criteria, accepted *v1alpha1.AcceptedResult, peer string) *v1alpha1.Criteria {
	if !c.Against(v1alpha1.BaselineGate) {
		return c
	}
	if accepted != nil {
		c.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineGate, Gate: &v1alpha1.ObjectName{Name: gate}}
		if accepted.Peer != peer && !slices.Contains(c.IgnoreDifferences, keyNode) {
			// Only the peer's node can differ.
			c.IgnoreDifferences = append(c.IgnoreDifferences, keyNode)
		}
		return c
	}
	c.Baseline, c.IgnoreDifferences = nil, nil
	c.Rules = slices.DeleteFunc(c.Rules, func(r v1alpha1.Rule) bool { return r.Compares() })
	if len(c.Rules) == 0 {
		return nil
	}
	return c
}
