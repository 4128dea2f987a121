package judge

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func TestAlike(t *testing.T) {
	measured := result.Evidence{Kernel: "6.1", MTU: 9000, Facts: map[string]string{
		"nic.function": "VF", "cpu.governor": "performance", "env.EF_POLL_USEC": "100", "tool.sha256": "1", "cpu.microcode": "0x1",
	}}
	of := func(change func(*result.Evidence)) result.Evidence {
		e := measured
		e.Facts = map[string]string{"nic.function": "VF", "cpu.governor": "performance", "env.EF_POLL_USEC": "100", "cpu.microcode": "0x1"}
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		workload                result.Evidence
		environmentRead         bool
		differs, excused, hides int
	}{
		"equal":                                {workload: of(func(*result.Evidence) {}), environmentRead: true},
		"another MTU":                          {workload: of(func(e *result.Evidence) { e.MTU = 1500 }), differs: 1},
		"another CPU":                          {workload: of(func(e *result.Evidence) { e.MeasuringCPU = 3 })},
		"a difference that the criteria allow": {workload: of(func(e *result.Evidence) { e.Facts["cpu.microcode"] = "0x2" }), excused: 1},
		"a condition that nobody could read":   {workload: of(func(e *result.Evidence) { delete(e.Facts, "cpu.governor") }), environmentRead: true, hides: 1},
		"a variable that is not set":           {workload: of(func(e *result.Evidence) { delete(e.Facts, "env.EF_POLL_USEC") }), environmentRead: true, differs: 1},
		"a variable that nobody could read":    {workload: of(func(e *result.Evidence) { delete(e.Facts, "env.EF_POLL_USEC") }), hides: 1},
		"a variable that only the pod has":     {workload: of(func(e *result.Evidence) { e.Facts["env.EF_UDP"] = "0" }), environmentRead: true, differs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			differs, excused, hidden := Alike(v1alpha1.Criteria{IgnoreDifferences: []string{"cpu.microcode"}}, measured, c.workload, c.environmentRead)
			if diff := cmp.Diff([]int{c.differs, c.excused, c.hides}, []int{len(differs), len(excused), len(hidden)}); diff != "" {
				t.Errorf("%v, %v, %v: %s", differs, excused, hidden, diff)
			}
		})
	}
}
