package cli

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/sessions"
)

func TestWriteCalibration(t *testing.T) {
	for name, c := range map[string]struct {
		all  []sessions.Calibration
		want string
	}{
		"no sessions": {nil, "no node of the gate has a session yet: a rule with maxIncrease or maxDecrease, and one verification of each node, are needed\n"},
		"many": {[]sessions.Calibration{{Of: v1alpha1.ComparedValue{Variant: "default", Cell: "tcp-64", Metric: v1alpha1.MetricP99}, Rounds: 0.02, Sessions: 0.022, Differences: 200, Nodes: 40, Peers: 0.05, Pairs: 12}},
			"VALUE               SD ROUNDS  SD BOOTS    SD PEERS   NODES  TOLERANCE 1  TOLERANCE 5  ROUNDS\n" +
				"default/tcp-64/p99  2.0%       2.0% (200)  5.0% (12)  40     10.2%        6.6%         6\n"},
		"few": {[]sessions.Calibration{{Of: v1alpha1.ComparedValue{Variant: "default", Cell: "tcp-64", Metric: v1alpha1.MetricP99}, Rounds: 0.02, Differences: 3, Nodes: 3}},
			"VALUE               SD ROUNDS  SD BOOTS  SD PEERS  NODES  TOLERANCE 1  TOLERANCE 5  ROUNDS\n" +
				"default/tcp-64/p99  2.0%       unknown   unknown   3      unknown      unknown      unknown\n" +
				"\nOnly 3 nodes were measured on two boots; with fewer than 8, every Pass of the gate is provisional. A recommendation needs 4 differences.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			writeCalibration(&out, c.all)
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
