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

// Fragile configures the behavior of AMD's device plugin of Onload when the interfaces of its node change. That plugin lists
// the interfaces of Solarflare NICs when it starts (lshw in the network namespace of the node), lists them again every 60 s,
// and exits when the two lists differ. The kubelet restarts the container after 10 s, and doubles the delay each time, up to
// 5 minutes, until the container has run for 10 minutes. The intervals in test clusters are different.
type Fragile struct {
	// PCIDevices is the folder of the PCI devices in sysfs.
	PCIDevices string `json:"pciDevices"`
	// CheckMilliseconds is the interval at which the interfaces are listed.
	CheckMilliseconds int64 `json:"checkMilliseconds"`
	// BackoffMilliseconds is the first delay before a restart, and MaxBackoffMilliseconds the longest. After a plugin has run
	// for twice the longest delay, the delay starts at the first again, as for a container.
	BackoffMilliseconds    int64 `json:"backoffMilliseconds"`
	MaxBackoffMilliseconds int64 `json:"maxBackoffMilliseconds"`
}

// RunFragile runs the plugin like a container that the kubelet restarts, until ctx ends.
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

// interfaces returns the interfaces of the PCI devices that are in this network namespace.
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
