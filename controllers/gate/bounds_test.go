package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// bounded is the part of an OpenAPI schema that bounds values.
type bounded struct {
	MaxLength            *int
	MaxItems             *int
	MaxProperties        *int
	Properties           map[string]*bounded
	Items                *bounded
	AdditionalProperties json.RawMessage
}

// beyond returns where a value is longer than its schema allows, and notes the texts and lists that are as long as they may be.
func (s *bounded) beyond(path string, value any, full map[string]bool) (all []string) {
	check := func(what string, limit *int, n int) {
		if limit != nil && n > *limit {
			all = append(all, fmt.Sprintf("%s has %d %s, more than %d", path, n, what, *limit))
		}
		if limit != nil && n > *limit-4 { // The sign that something is left out may not fit exactly.
			full[path] = true
		}
	}
	switch v := value.(type) {
	case string:
		check("bytes", s.MaxLength, len(v)) // The API counts characters, and messages are shortened by bytes, which are as many or more.
	case []any:
		check("items", s.MaxItems, len(v))
		for _, item := range v {
			all = append(all, s.Items.beyond(path+"[]", item, full)...)
		}
	case map[string]any:
		check("properties", s.MaxProperties, len(v))
		for key, item := range v {
			property, name := s.Properties[key], path+"."+key
			if property == nil && strings.HasPrefix(string(s.AdditionalProperties), "{") {
				property, name = &bounded{}, path+"{}"
				if err := json.Unmarshal(s.AdditionalProperties, property); err != nil {
					return append(all, err.Error())
				}
			}
			if property != nil {
				all = append(all, property.beyond(name, item, full)...)
			}
		}
	}
	return all
}

// The API server refuses a whole status if one text or list in it is too long: the node would keep a state that is no longer true. What
// the controller writes with the longest names and messages is within the bounds of the CRD, and what it shortens is as long as they allow.
func TestStatusWithinTheBoundsOfTheCRD(t *testing.T) {
	content, err := os.ReadFile("../../config/crd/bases/tailgate.dev_latencyverifications.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema bounded }
			}
		}
	}
	if err := yaml.Unmarshal(content, &crd); err != nil {
		t.Fatal(err)
	}
	bounds := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	if bounds == nil || bounds.Properties["retained"].Properties["message"].MaxLength == nil {
		t.Fatal("the CRD has no bounds")
	}
	name, long := strings.Repeat("n", 253), strings.Repeat("long ", 1000)
	longNames := func(w *world) {
		w.gate.Name, w.verification.Name, w.verification.Spec.NodeName = strings.Repeat("g", 63), strings.Repeat("v", 253), name
	}
	next := func(w *world, s step) v1alpha1.LatencyVerificationStatus {
		t.Helper()
		status, err := w.next(s)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	full := map[string]bool{}
	for what, status := range map[string]func() v1alpha1.LatencyVerificationStatus{
		"the gate was deleted": func() v1alpha1.LatencyVerificationStatus {
			w := makeWorld(longNames, func(w *world) { w.verification.Spec.GateName = long })
			status, err := w.dismissed(time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			return status
		},
		"the Node was deleted": func() v1alpha1.LatencyVerificationStatus {
			w := makeWorld(longNames, func(w *world) { w.node = nil })
			return next(w, step{})
		},
		"a result that is not accepted": func() v1alpha1.LatencyVerificationStatus {
			w := makeWorld(longNames, func(w *world) {
				w.verification.Spec.Accept = &v1alpha1.AcceptRequest{Benchmark: long[:253], UserRequest: by}
			})
			return next(w, step{event: eventNotAccepted, reason: v1alpha1.ReasonAcceptRefused, message: long})
		},
		"many step failures with many peers": func() v1alpha1.LatencyVerificationStatus {
			w := makeWorld(measured(metav1.ConditionTrue, v1alpha1.ReasonPass))
			for i := range 20 {
				w.verification.Status.Benchmark = &v1alpha1.VerificationBenchmark{Name: name, UID: "uid", Peer: fmt.Sprint(name[:250], i), StartTime: *at(0)}
				w.verification.Status.State = v1alpha1.VerificationMeasuring
				w.verification.Status = next(w, step{event: eventHeldUp, reason: v1alpha1.ReasonEnvironmentFailed, message: long})
			}
			return w.verification.Status
		},
		"marks that are refused": func() v1alpha1.LatencyVerificationStatus {
			w := makeWorld()
			for _, m := range turns.Marks {
				w.verification.Status.MarkFailures = append(w.verification.Status.MarkFailures, v1alpha1.MarkFailure{
					Mark: m, StepFailure: *turns.OfMark.StepFailure(nil, v1alpha1.ReasonNodeRefused, errors.New(long).Error(), noon),
				})
			}
			return w.verification.Status
		},
		"many sessions after changes with long values": func() v1alpha1.LatencyVerificationStatus {
			w := makeWorld(measured(metav1.ConditionTrue, v1alpha1.ReasonPass), func(w *world) { w.gate.Spec.HistoryLimit = 10 })
			measuring := *w.verification.Status.Benchmark
			for i := range 20 {
				w.benchmark.Status.Session.BootID, w.verification.Status.State, w.verification.Status.Benchmark = fmt.Sprint("boot-", 100+i), v1alpha1.VerificationMeasuring, new(measuring)
				w.verification.Status.Changed = []v1alpha1.IdentityChange{{Key: "Label/onload", From: strings.Repeat("a", 512), To: strings.Repeat("b", 512)}}
				w.verification.Status = next(w, step{event: eventPassed, outcome: v1alpha1.VerdictPass, reason: v1alpha1.ReasonPassed, message: long})
			}
			return w.verification.Status
		},
		"a session with ranges": func() v1alpha1.LatencyVerificationStatus {
			w := makeWorld(measured(metav1.ConditionTrue, v1alpha1.ReasonPass))
			w.verification.Status.Reference = nil
			rounds := slices.Repeat([]stats.Observation{stats.Within(49e12, 50e12, stats.Infinite)}, 20)
			w.benchmark.Status.Session.Rounds = []v1alpha1.ValueRounds{sessions.Rounds(p99, rounds, sessions.FirstRounds)}
			return next(w, step{event: eventPassed, outcome: v1alpha1.VerdictPass, reason: v1alpha1.ReasonPassed})
		},
	} {
		encoded, err := json.Marshal(status())
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal(encoded, &value); err != nil {
			t.Fatal(err)
		}
		for _, line := range bounds.beyond("status", value, full) {
			t.Errorf("%s: %s", what, line)
		}
	}
	for _, path := range []string{
		"status.retained.message", "status.acceptRefused.message", "status.acceptRefused.benchmark", "status.stepFailure.message", "status.stepFailure.peers",
		"status.markFailures[].message", "status.recent", "status.history",
	} {
		if !full[path] {
			t.Errorf("nothing is as long as %s may be: is more left out than necessary?", path)
		}
	}
}
