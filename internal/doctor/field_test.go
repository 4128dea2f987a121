package doctor

import (
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/field"
)

// TestField judges the nodes of the corpus. The arguments are facts of node a, or of the node whose letter is before them; model,
// driver and said are the CPU's model, the driver of the attached interface and what the kubelet said. The answer has the lines of
// node a and of the cluster by check, their remedies as "remedy CHECK", and the CPUs of a core. An input is what kubectl tailgate
// report-bug wrote; the answer then also has the lines of its other nodes, as "NODE CHECK".
func TestField(t *testing.T) {
	field.Run(t, "nodes", "internal/doctor", func(t *testing.T, c field.Case) map[string]string {
		if c.Input != "" {
			return ofBugReport(t, c)
		}
		o := fit(t)
		for key, value := range c.Arguments {
			node, name, other := strings.Cut(key, " ")
			if !other {
				node, name = "a", key
			}
			for _, l := range o.Nodes[strings.Index("ab", node)].Looks {
				set(l.Inspection, l.Kind, name, value)
			}
		}
		answer := map[string]string{"core": strconv.Itoa(WholeCore(&pods.Trouble{Outcome: v1alpha1.OutcomeSMTAlignment, Said: c.Arguments["said"]}))}
		for _, l := range Diagnose(o).Lines {
			if l.Node != "b" {
				answer[l.Check], answer["remedy "+l.Check] = string(l.Level)+": "+l.Found, l.Remedy
			}
		}
		return answer
	})
}

func ofBugReport(t *testing.T, c field.Case) map[string]string {
	t.Helper()
	var written struct{ Facts Observed }
	if err := yaml.Unmarshal(c.Read(t), &written); err != nil {
		t.Fatal(err)
	}
	answer := map[string]string{}
	for _, l := range Diagnose(written.Facts).Lines {
		answer[strings.TrimSpace(l.Node+" "+l.Check)] = string(l.Level) + ": " + l.Found
	}
	return answer
}

func set(i *result.Inspection, kind Kind, name, value string) {
	switch {
	case name == "model":
		i.Evidence.CPUModel = value
	case name == "driver" && kind == KindNetwork:
		i.Evidence.Driver = value
	case value == "":
		delete(i.Evidence.Facts, name)
	default:
		i.Evidence.Facts[name] = value
	}
}
