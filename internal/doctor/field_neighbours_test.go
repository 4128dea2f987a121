package doctor

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/field"
)

// fieldOfError returns the doctor's line about a network of which the runtime reported an error of the input.
func fieldOfError(t *testing.T, c field.Case) map[string]string {
	for l := range strings.Lines(string(c.Read(t))) {
		name, said, _ := strings.Cut(strings.TrimSpace(l), "\t")
		if name != c.Arguments["error"] {
			continue
		}
		event := corev1.Event{Reason: "FailedCreatePodSandBox", Message: strings.ReplaceAll(said, `\n'`, "\n'")}
		o := fit(t)
		lookOnA(KindNetwork, func(l *Look) {
			l.Trouble, l.Inspection = TroubleOf(&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}, []corev1.Event{event}), nil
		})(&o)
		return fieldOfLines(o, "attachment")
	}
	t.Fatalf("%s has no error %q", c.Input, c.Arguments["error"])
	return nil
}

// fieldOfLines returns the lines of a check, without those of the second node.
func fieldOfLines(o Observed, check string) map[string]string {
	answer := map[string]string{}
	for _, l := range Diagnose(o).Lines {
		if l.Check == check && l.Node != "b" {
			answer["level"], answer["found"], answer["remedy"] = string(l.Level), l.Found, l.Remedy
			answer[check] += string(l.Level) + ": " + l.Found + "; " + l.Remedy + "\n"
		}
	}
	return answer
}

// Cases of other projects' objects on real clusters (test/field).
func TestFieldNeighbours(t *testing.T) {
	field.Run(t, "neighbours", "internal/doctor", func(t *testing.T, c field.Case) map[string]string {
		if c.Arguments["error"] != "" {
			return fieldOfError(t, c)
		}
		o := fit(t)
		network(func(n *Network) { n.Config = string(c.Read(t)) })(&o)
		return fieldOfLines(o, "network")
	})
}

// Cases of Onload (test/field).
func TestFieldOnload(t *testing.T) {
	field.Run(t, "onload", "internal/doctor", func(_ *testing.T, c field.Case) map[string]string {
		o := fit(t)
		for i := range o.Nodes {
			n := &o.Nodes[i]
			if nic := c.Arguments["nic"]; nic != "" {
				delete(n.Node.Status.Allocatable, "hugepages-2Mi")
				for j := range n.Looks {
					if in := n.Looks[j].Inspection; in != nil {
						in.NICs = []result.NIC{{PCIAddress: "0000:6f:00.0", ID: nic, Driver: c.Arguments["driver"]}}
					}
				}
				continue
			}
			for j := range n.Looks {
				if n.Looks[j].Kind == KindOnload {
					n.Looks[j].Inspection.Onload = result.Onload{Devices: strings.Fields(c.Arguments["devices"])}
				}
			}
		}
		return fieldOfLines(o, c.Arguments["check"])
	})
}
