package summary

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const (
	// maxStatus is in bytes of JSON. etcd takes 1.5 MiB, and managed fields can be as large.
	maxStatus   = 512 << 10
	fewAttempts = 50
)

// shed is what a status omits, in order: the stored results have all but the attempts.
var shed = []struct {
	what     string
	leaveOut func(*v1alpha1.LatencyBenchmarkStatus)
}{
	{fmt.Sprintf("all attempts but the last %d", fewAttempts), func(s *v1alpha1.LatencyBenchmarkStatus) {
		s.Attempts = s.Attempts[max(0, len(s.Attempts)-fewAttempts):]
	}},
	{"spread and outliers", func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Results {
			s.Results[i].Spread, s.Results[i].Outliers = nil, ""
		}
	}},
	{"ratios", func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Results {
			s.Results[i].Ratios = nil
		}
	}},
	{"proved checks", func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Endpoints {
			s.Endpoints[i].Proof = slices.DeleteFunc(s.Endpoints[i].Proof, func(l v1alpha1.ProofLine) bool { return l.State == v1alpha1.ProofProved })
		}
	}},
	{"mean, standard deviation and all percentiles but p50, p99 and p99.9", func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Results {
			r := &s.Results[i]
			r.MeanNanoseconds, r.StddevNanoseconds = nil, nil
			r.Percentiles = slices.DeleteFunc(r.Percentiles, func(p v1alpha1.PercentileResult) bool {
				return !slices.Contains(v1alpha1.HeadlinePercentiles(), p.Name)
			})
		}
	}},
	{"checks that failed", func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Endpoints {
			s.Endpoints[i].Proof = nil
		}
	}},
}

// Bound omits parts of a status that would be refused, with a warning, so that it is written.
func Bound(s *v1alpha1.LatencyBenchmarkStatus) {
	isShortened := func(w v1alpha1.Warning) bool { return w.Reason == v1alpha1.WarningStatusShortened }
	before := ""
	if i := slices.IndexFunc(s.Warnings, isShortened); i >= 0 {
		before = s.Warnings[i].Message
	}
	for i := range shed {
		// A status can always be encoded.
		if encoded, _ := json.Marshal(s); len(encoded) <= maxStatus {
			return
		}
		shed[i].leaveOut(s)
		var parts []string
		for k, part := range shed {
			// What was omitted earlier is still missing, unless the results were computed again.
			if k <= i || strings.Contains(before, part.what) {
				parts = append(parts, part.what)
			}
		}
		s.Warnings = append(slices.DeleteFunc(s.Warnings, isShortened), v1alpha1.Warning{
			Reason: v1alpha1.WarningStatusShortened,
			Message: fmt.Sprintf("the status would be larger than %d KiB and omits: %s; kubectl tailgate get and report have everything except the attempts",
				maxStatus>>10, strings.Join(parts, "; ")),
		})
	}
}
