package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailgate-dev/tailgate/docs/internals"
)

func newExplain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain REASON",
		Short: "Explain a reason of a condition, an attempt, a warning, a rule or an event",
		Long: "Explain a reason that a status, an event, an attempt or a warning has: its cause, and what to do. The same reason may\n" +
			"have several meanings; the command prints each.",
		Example: "  " + name + " explain NodeBusy",
		Args:    takes("one reason", 1, 1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var known []string
			for _, r := range reasons() {
				known = append(known, r.name)
			}
			return known, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var out strings.Builder
			var similar []string
			likely := strings.ToLower(args[0])
			likely = likely[:len(likely)*2/3] // A word that is mistyped at its end.
			for _, r := range reasons() {
				switch {
				case strings.EqualFold(r.name, args[0]):
					fmt.Fprintf(&out, "%s (%s)\n  cause:  %s\n", r.name, r.of, r.cause)
					if r.remedy != "" {
						fmt.Fprintf(&out, "  remedy: %s\n", r.remedy)
					}
				case strings.Contains(strings.ToLower(r.name), likely) && !slices.Contains(similar, r.name):
					similar = append(similar, r.name)
				}
			}
			switch {
			case out.Len() > 0:
				return emit(cmd.OutOrStdout(), out.String(), nil)
			case len(similar) > 0:
				return fmt.Errorf("there is no reason %q; did you mean %s?", args[0], strings.Join(similar, ", "))
			}
			return fmt.Errorf("there is no reason %q; a reason is one word of a condition, an event, an attempt or a warning, such as NodeBusy", args[0])
		},
	}
}

// reason is a row of the page of reasons; of is the heading above it.
type reason struct{ of, name, cause, remedy string }

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
			all = append(all, reason{of, row[1], row[2], row[3]})
		}
	}
	return all
}
