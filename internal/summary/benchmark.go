package summary

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// PairOf returns a benchmark's nodes: those chosen or, before, those that its spec names.
func PairOf(b *v1alpha1.LatencyBenchmark) v1alpha1.Pair {
	if b.Status.Pair != nil {
		return *b.Status.Pair
	}
	var p v1alpha1.Pair
	if c := b.Spec.Placement.Client; c != nil {
		p.ClientNode = c.NodeName
	}
	if s := b.Spec.Placement.Server; s != nil {
		p.ServerNode = s.NodeName
	}
	return p
}

// Standing describes the state of a benchmark without results.
func Standing(b *v1alpha1.LatencyBenchmark) string {
	for _, conditionType := range []string{v1alpha1.ConditionSucceeded, v1alpha1.ConditionAccepted} {
		if c := meta.FindStatusCondition(b.Status.Conditions, conditionType); c != nil {
			return fmt.Sprintf("%s (%s)", c.Reason, c.Message)
		}
	}
	return "the operator has not processed it yet; is it running?"
}

// Shown converts a time in ns to the displayed one: half of a round trip for HalfRTT.
func Shown[T ~string](t T) func(ns int64) int64 {
	if string(t) == string(v1alpha1.LatencyHalfRTT) {
		return stats.HalfRTT
	}
	return func(ns int64) int64 { return ns }
}
