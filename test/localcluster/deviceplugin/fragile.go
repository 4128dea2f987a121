package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Fragile is what AMD's device plugin of Onload does when the interfaces of its node change. It lists the interfaces of
// Solarflare NICs when it starts (lshw in the network namespace of the node), lists them again every 60 s, and exits when
// the two lists differ. The kubelet starts the container again after 10 s, and after twice as long each time, up to 5
// minutes, until the container has run for 10 minutes. A cluster for tests has other times.
type Fragile struct {
	// PCIDevices is where sysfs has the PCI devices.
	PCIDevices string `json:"pciDevices"`
	// CheckMilliseconds is how often the interfaces are listed.
	CheckMilliseconds int64 `json:"checkMilliseconds"`
	// BackoffMilliseconds is the first time until the next start, and MaxBackoffMilliseconds the longest. A plugin that ran
	// for twice the latter begins with the former again, as a container does.
	BackoffMilliseconds    int64 `json:"backoffMilliseconds"`
	MaxBackoffMilliseconds int64 `json:"maxBackoffMilliseconds"`
}

// RunFragile runs the plugin as a container that the kubelet starts again, until ctx ends.
func RunFragile(ctx context.Context, c Config, log *slog.Logger) {
	f := *c.Fragile
	first, longest := time.Duration(f.BackoffMilliseconds)*time.Millisecond, time.Duration(f.MaxBackoffMilliseconds)*time.Millisecond
	backoff := first
	for ctx.Err() == nil {
		started := time.Now()
		log.Error("exit", "error", f.once(ctx, c, log))
		if time.Since(started) > 2*longest {
			backoff = first
		}
		log.Info("back-off restarting", "after", backoff)
		sleep(ctx, backoff)
		backoff = min(2*backoff, longest)
	}
}

// once serves until the interfaces change.
func (f Fragile) once(ctx context.Context, c Config, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	before, err := f.interfaces()
	if err != nil {
		cancel()
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Run(ctx, c, log)
	}()
	defer func() { cancel(); <-done }()
	for sleep(ctx, time.Duration(f.CheckMilliseconds)*time.Millisecond) {
		now, err := f.interfaces()
		if err != nil {
			return err
		}
		if !slices.Equal(before, now) {
			return fmt.Errorf("SFC interfaces on host have changed (%s -> %s)", before, now)
		}
	}
	return ctx.Err()
}

// interfaces are those of the PCI devices that are in this network namespace.
func (f Fragile) interfaces() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(f.PCIDevices, "*", "net", "*"))
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces: %w", err)
	}
	var found []string
	for _, path := range paths {
		if _, err := os.Stat(filepath.Join("/sys/class/net", filepath.Base(path))); err == nil {
			found = append(found, filepath.Base(path))
		}
	}
	return found, nil
}
