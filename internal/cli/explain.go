package cli

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailgate-dev/tailgate/docs/internals"
	"github.com/tailgate-dev/tailgate/internal/report"
)

func newExplain() *cobra.Command {
	var form string
	cmd := &cobra.Command{
		Use:   "explain REASON",
		Short: "Explain a reason of a condition, an attempt, a warning, a rule or an event",
		Long: "Explain a reason that a status, an event, an attempt or a warning has: its cause, and what to do. The same reason may\n" +
			"have several meanings; the command prints each.",
		Example: "  " + name + " explain NodeBusy",
		Args:    takes("one reason", 1, 1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var known []string
			for _, r := range reasons() {
				known = append(known, r.Name)
			}
			return known, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var out bytes.Buffer
			var found []reason
			var similar []string
			likely := strings.ToLower(args[0])
			likely = likely[:len(likely)*2/3] // A word that is mistyped at its end.
			for _, r := range reasons() {
				switch {
				case strings.EqualFold(r.Name, args[0]):
					found = append(found, r)
					fmt.Fprintf(&out, "%s (%s)\n  cause:  %s\n", r.Name, r.Of, r.Cause)
					if r.Remedy != "" {
						fmt.Fprintf(&out, "  remedy: %s\n", r.Remedy)
					}
				case strings.Contains(strings.ToLower(r.Name), likely) && !slices.Contains(similar, r.Name):
					similar = append(similar, r.Name)
				}
			}
			switch {
			case len(found) > 0 && form == "json":
				return report.WriteJSON(cmd.OutOrStdout(), found)
			case len(found) > 0:
				return emit(cmd.OutOrStdout(), out.Bytes(), nil)
			case len(similar) > 0:
				return fmt.Errorf("there is no reason %q; did you mean %s?", args[0], strings.Join(similar, ", "))
			}
			return fmt.Errorf("there is no reason %q; a reason is one word of a condition, an event, an attempt or a warning, such as NodeBusy", args[0])
		},
	}
	outputFlag(cmd, &form, "table", "json")
	return cmd
}

// reason is a row of the page of reasons; Of is the heading above it.
type reason struct {
	Name   string `json:"reason"`
	Of     string `json:"of"`
	Cause  string `json:"cause"`
	Remedy string `json:"remedy,omitempty"`
}

var (
	reasonRow = regexp.MustCompile("^\\| `(\\w+)` \\| (.*) \\| (.*?) ?\\|$")
	pageLink  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

func reasons() []reason {
	var all []reason
	of := ""
	for line := range strings.Lines(internals.Reasons) {
		line = pageLink.ReplaceAllString(strings.TrimSpace(line), "$1")
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			of = heading
		}
		if row := reasonRow.FindStringSubmatch(line); row != nil {
			all = append(all, reason{row[1], of, row[2], row[3]})
		}
	}
	return all
}
