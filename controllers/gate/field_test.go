package gate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/turns"
	"github.com/tailgate-dev/tailgate/test/field"
)

// timeline is the input of a case: versions of a Node of which the gate has a result, each of which changes the node of the tests.
type timeline struct {
	// State is the state of the node at the first version; Verified if it is empty.
	State v1alpha1.VerificationState `json:"state"`
	// Keys and Labels are the identity of the gate, if there are any.
	Keys   []v1alpha1.IdentityKey `json:"keys"`
	Labels []string               `json:"labels"`
	Steps  []struct {
		// After is the time since the first version. Gone is true if there is no Node, and Lost if the gate does not select it.
		After metav1.Duration `json:"after"`
		Gone  bool            `json:"gone"`
		Lost  bool            `json:"lost"`
		Node  json.RawMessage `json:"node"`
	} `json:"steps"`
}

// TestField follows the node through the versions of its Node. Each answer has one part for each version.
func TestField(t *testing.T) {
	field.Run(t, "gates", "controllers/gate", func(t *testing.T, c field.Case) map[string]string {
		var line timeline
		if err := yaml.UnmarshalStrict(c.Read(t), &line); err != nil {
			t.Fatal(err)
		}
		answers := map[string][]string{}
		add := func(key, value string) { answers[key] = append(answers[key], value) }
		begin := time.Now()
		w := makeWorld(func(w *world) {
			if line.Keys != nil || line.Labels != nil {
				w.gate.Spec.Identity = v1alpha1.GateIdentity{Keys: line.Keys, Labels: line.Labels}
			}
			if s := &w.verification.Status; line.State != "" {
				s.State = line.State
			}
			w.verification.Status.Conditions[0].Status = metav1.ConditionTrue
		})
		for i, step := range line.Steps {
			w.now, w.owner, w.node = begin.Add(step.After.Duration), w.gate, nil
			if !step.Gone {
				w.node = makeNode("a")
				if err := json.Unmarshal(step.Node, w.node); err != nil {
					t.Fatal(err)
				}
				if step.Lost {
					w.owner = nil
					w.node.Labels = map[string]string{"kubernetes.io/hostname": "a"}
				}
			} else {
				w.owner = nil
			}
			if s := &w.verification.Status; i == 0 {
				s.NodeUID, s.SystemUUID, s.Identity = string(w.node.UID), w.node.Status.NodeInfo.SystemUUID, identity.KeysOf(w.gate).Of(w.subject())
				s.Accepted.Identity = s.Identity
			}
			d := decide(w)
			next, err := w.next(d)
			if err != nil {
				t.Fatal(err)
			}
			w.verification.Status = next
			p := turns.PublicationOf(w.gate, w.verification)
			add("states", string(next.State)+" "+next.Verified().Reason+" "+string(p.Condition.Status))
			add("events", string(d.event))
			answers["message"] = []string{next.Verified().Message}
			var absent, taints []string
			for _, a := range next.Absent {
				absent = append(absent, a.Key)
			}
			retained, outcome := "", "no Node"
			if next.Retained != nil {
				retained = next.Retained.Reason
			}
			if w.node != nil {
				for _, taint := range p.Taints(w.node) {
					taints = append(taints, string(taint.Effect))
				}
				if outcome = string(standing.OfNode(w.verification, w.node).Outcome); outcome == "" {
					outcome = "not judged"
				}
			}
			add("absent", strings.Join(absent, ","))
			add("retained", retained)
			add("standing", outcome)
			add("taints", strings.Join(taints, ","))
			answers["accepted"] = []string{"none"}
			if next.Accepted != nil {
				answers["accepted"] = []string{next.Accepted.Benchmark}
			}
		}
		joined := map[string]string{}
		for key, parts := range answers {
			joined[key] = strings.Join(parts, map[bool]string{true: ", ", false: "; "}[key == "events"])
		}
		return joined
	})
}
