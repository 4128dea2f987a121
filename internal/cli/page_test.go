package cli

import (
	"fmt"
	"testing"

	"github.com/tailgate-dev/tailgate/test/docs"
)

// docs/cli.md has the commands as --help lists them.
func TestPage(t *testing.T) {
	table := "| command | what it does |\n|---|---|\n"
	for _, c := range Command().Commands() {
		if c.Name() == "help" || c.Name() == "completion" { // cobra's own
			continue
		}
		table += fmt.Sprintf("| `%s` | %s |\n", c.Name(), c.Short)
	}
	docs.CheckTable(t, "../..", "cli.md", "internal/cli", table)
}
