package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func newCalibrate(c *cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "calibrate GATE",
		Short: "Say how much rounds, boots and peers of a LatencyGate differ, and recommend tolerance and rounds",
		Long: "Say how much the rounds of a session, the boots of a node and its peers differ although nothing changed, as standard\n" +
			"deviations, from the sessions that the LatencyVerifications of a LatencyGate have kept. To calibrate a new gate, reboot each\n" +
			"node once, unchanged, and wait until it is verified again.\n\n" +
			"TOLERANCE 1 and 5 are the smallest with which 95 % of unchanged boots pass in all values together, against one and against five\n" +
			"accepted boots. They are found by judging boots that are drawn as differently as the gate's, with the code of the gate.\n" +
			"ROUNDS is the number with which the rounds widen an interval no more than the boots do.\n\n" +
			"It needs the rights to get the gate and to list latencyverifications (ClusterRole tailgate-gate-reader).",
		Example: "  " + name + " calibrate fast-nodes",
		Args:    takes("the name of one LatencyGate", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := calibrate(cmd.Context(), c, args[0])
			return emit(cmd.OutOrStdout(), text, err)
		},
	}
}

func calibrate(ctx context.Context, c *cluster, gate string) ([]byte, error) {
	api, _, err := c.client()
	if err != nil {
		return nil, err
	}
	all, err := verificationsOf(ctx, api, gate)
	if err != nil {
		return nil, err
	}
	var nodes []sessions.Node
	for i := range all.Items {
		nodes = append(nodes, sessions.OfNode(&all.Items[i]))
	}
	var out bytes.Buffer
	writeCalibration(&out, sessions.Calibrate(nodes))
	return out.Bytes(), nil
}

func writeCalibration(w *bytes.Buffer, all []sessions.Calibration) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no node of the gate has a session yet: a rule with maxIncrease or maxDecrease, and one verification of each node, are needed")
		return
	}
	share := func(sd float64, from int) string {
		if sd == 0 {
			return "unknown"
		}
		return fmt.Sprintf("%.1f%% (%d)", 100*sd, from)
	}
	t := text.NewColumns(w, 0)
	first, later := recommended(all, 1), recommended(all, 5)
	fmt.Fprintln(t, "VALUE\tSD ROUNDS\tSD BOOTS\tSD PEERS\tNODES\tTOLERANCE 1\tTOLERANCE 5\tROUNDS")
	for i, c := range all {
		rounds, recommended := "unknown", "unknown\tunknown\tunknown"
		if c.Rounds > 0 {
			rounds = fmt.Sprintf("%.1f%%", 100*c.Rounds)
		}
		if c.Sessions > 0 {
			recommended = fmt.Sprintf("%.1f%%\t%.1f%%\t%d", 100*first[i], 100*later[i], c.Enough())
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", strings.TrimSpace(c.Of.String()+" "+c.Kind), rounds, share(c.Boots(), c.Differences), share(c.Peers, c.Pairs), c.Nodes, recommended)
	}
	_ = t.Flush() // A buffer cannot refuse text.
	for _, c := range all {
		if c.Nodes < 8 {
			fmt.Fprintf(w, "\nOnly %d nodes were measured on two boots; with fewer than 8, every Pass of the gate is provisional. A recommendation needs 4 differences.\n", c.Nodes)
			return
		}
	}
}

// recommended returns the tolerance of each value: a boot must pass in all values of its kind.
func recommended(all []sessions.Calibration, boots int) []float64 {
	out := make([]float64, len(all))
	for i, c := range all {
		var kind []sessions.Calibration
		var at []int
		for k, other := range all {
			if other.Kind == c.Kind && other.Sessions > 0 {
				kind, at = append(kind, other), append(at, k)
			}
		}
		if len(at) > 0 && at[0] == i {
			for k, tolerance := range judge.Recommend(kind, boots) {
				out[at[k]] = tolerance
			}
		}
	}
	return out
}
