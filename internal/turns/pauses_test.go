package turns

import (
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

func TestStepFailure(t *testing.T) {
	var last *v1alpha1.StepFailure
	for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, 10 * time.Minute, 10 * time.Minute} {
		last = OfNode.StepFailure(last, v1alpha1.ReasonHoldPodEnded, "why", noon)
		if got := OfNode.Left(last, noon); got != want || int(last.Count) != i+1 {
			t.Errorf("rest %d is %s, want %s", i+1, got, want)
		}
	}
	last.Count = 1 << 30
	if got := OfNode.Left(OfNode.StepFailure(last, "x", "y", noon), noon); got != OfNode.longest {
		t.Errorf("rests %s", got)
	}
	if OfNode.Left(last, noon.Add(10*time.Minute)) != 0 || OfNode.Left(nil, noon) != 0 || OfNode.Left(last, noon.Add(-24*time.Hour)) != 0 {
		t.Error("it rests when its time is over, without a step failure, or when the clock was set back")
	}
}
