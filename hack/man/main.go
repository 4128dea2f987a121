// Command man writes the man pages of kubectl-tailgate to a directory.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"github.com/tailgate-dev/tailgate/internal/cli"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("one argument is needed, the directory, not %d", len(args))
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	command := cli.Command()
	command.DisableAutoGenTag = true // The same source must give the same pages.
	return doc.GenManTree(command, &doc.GenManHeader{Title: "KUBECTL-TAILGATE", Section: "1", Source: "Tailgate"}, args[0])
}
