// Command deviceplugin is the local cluster's stand-in for the SR-IOV network device plugin. It runs until
// SIGTERM or SIGINT.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/tailgate-dev/tailgate/test/localcluster/deviceplugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("deviceplugin", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	config := flags.String("config", "", "file that names the devices (JSON)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *config == "" || flags.NArg() > 0 {
		return errors.New("usage: deviceplugin -config FILE")
	}
	c, err := deviceplugin.LoadConfig(*config)
	if err != nil {
		return err
	}
	if err := c.Discover(); err != nil {
		return err
	}
	if c.Fragile != nil {
		deviceplugin.RunFragile(ctx, c, slog.New(slog.NewTextHandler(stderr, nil)))
		return nil
	}
	deviceplugin.Run(ctx, c, slog.New(slog.NewTextHandler(stderr, nil)))
	return nil
}
