package gate

import (
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

func TestNames(t *testing.T) {
	long, seen := strings.Repeat("n", 60), map[string]bool{}
	for _, c := range [][2]string{{"up", "a.b"}, {"up", "a-b"}, {"a", "b-c"}, {"a-b", "c"}, {long, long}, {long, long + ".x"}} {
		name := holdPodName(c[0], c[1])
		if len(name) > maxPodName || strings.Contains(name, ".") || seen[name] {
			t.Errorf("%v: %s", c, name)
		}
		seen[name] = true
	}
	if a, b := v1alpha1.VerificationName("up", strings.Repeat("n", 300)), v1alpha1.VerificationName("up", strings.Repeat("n", 301)); len(a) != 253 || a == b {
		t.Errorf("%s and %s", a, b)
	}
	if got := v1alpha1.VerificationName("up", "node-a.example"); got != "up.node-a.example" {
		t.Errorf("got %s", got)
	}
}

func TestSpecDigest(t *testing.T) {
	digest := func(change func(*v1alpha1.LatencyBenchmarkSpec)) string {
		spec := turns.Benchmark(makeGate(), makeVerification("a"), "b", 4).Spec
		change(&spec)
		got, err := specDigest(spec)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	made := digest(func(*v1alpha1.LatencyBenchmarkSpec) {})
	if got := digest(func(s *v1alpha1.LatencyBenchmarkSpec) { s.Priority = 5 }); got != made {
		t.Error("a priority changes nothing that is measured")
	}
	if got := digest(func(s *v1alpha1.LatencyBenchmarkSpec) { s.Suspend = true }); got == made {
		t.Error("a benchmark that was suspended goes unseen")
	}
	if got := digest(func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Rules[0].Max.Text = "1s" }); got == made {
		t.Error("a rule that was loosened goes unseen")
	}
	if got := digest(func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Baseline.Gate.Name = "slow" }); got == made {
		t.Error("another baseline goes unseen")
	}
}
