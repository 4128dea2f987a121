// Command dradriver is the local cluster's stand-in for the SR-IOV driver of Dynamic Resource Allocation. It runs until
// SIGTERM or SIGINT.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/tailgate-dev/tailgate/test/localcluster/dradriver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dradriver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: dradriver FILE")
	}
	content, err := os.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	var c dradriver.Config
	if err := json.Unmarshal(content, &c); err != nil {
		return fmt.Errorf("parsing %s: %w", args[0], err)
	}
	return dradriver.Run(ctx, c, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}
