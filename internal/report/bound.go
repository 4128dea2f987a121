package report

import (
	"encoding/json"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const (
	// maxStatus bounds a status as JSON, in bytes. etcd takes objects of up to 1.5 MiB, of which the API server's own record
	// of who wrote which field takes up to as much as the status.
	maxStatus = 640 << 10
	// fewAttempts is how many attempts a status that is too large keeps.
	fewAttempts = 50
)

// shed are the parts that a status can do without, in the order in which it loses them. All but the attempts can be computed
// from the stored results.
var shed = []func(*v1alpha1.LatencyBenchmarkStatus){
	func(s *v1alpha1.LatencyBenchmarkStatus) {
		s.Attempts = s.Attempts[max(0, len(s.Attempts)-fewAttempts):]
	},
	func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Results {
			s.Results[i].Spread, s.Results[i].Outliers = nil, ""
		}
	},
	func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Results {
			s.Results[i].Ratios = nil
		}
	},
	func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Endpoints {
			s.Endpoints[i].Proof = slices.DeleteFunc(s.Endpoints[i].Proof, func(l v1alpha1.ProofLine) bool { return l.State == v1alpha1.ProofProved })
		}
	},
}

// Bound leaves out of a status what makes it larger than the API server stores, and says so in a warning. A status that
// cannot be written would keep its nodes for ever.
func Bound(s *v1alpha1.LatencyBenchmarkStatus) {
	for _, leaveOut := range shed {
		// A status can always be encoded.
		if encoded, _ := json.Marshal(s); len(encoded) <= maxStatus {
			return
		}
		leaveOut(s)
		s.Warnings = slices.DeleteFunc(s.Warnings, func(w v1alpha1.Warning) bool { return w.Reason == v1alpha1.WarningStatusShortened })
		s.Warnings = append(s.Warnings, v1alpha1.Warning{Reason: v1alpha1.WarningStatusShortened, Message: "the status would be larger than the API server " +
			"stores: early attempts, and of large results the spread, outliers, ratios and proved checks, are left out; kubectl tailgate get and report have them"})
	}
}
