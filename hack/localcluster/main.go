// Command localcluster starts and stops the two-node Kubernetes cluster of the demo and the tests.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/tailgate-dev/tailgate/test/localcluster"
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 1 && args[0] == "assets" {
		dir, err := localcluster.Assets(ctx, stderr)
		if err == nil {
			fmt.Fprintln(stdout, dir)
		}
		return err
	}
	if len(args) == 1 && args[0] == "binaries" {
		dir, err := localcluster.Binaries(ctx, stderr)
		if err == nil {
			fmt.Fprintln(stdout, dir)
		}
		return err
	}
	return errors.New("usage")
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "localcluster:", err)
		os.Exit(1)
	}
}
