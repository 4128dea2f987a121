// Command kubectl-tailgate is the plugin behind "kubectl tailgate". kubectl finds it in PATH.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tailgate-dev/tailgate/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
