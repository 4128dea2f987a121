package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	// poll is the interval at which the sockets are checked. A starting kubelet empties its folder and recreates
	// its socket; polling detects both, whatever the order of the events.
	poll = 200 * time.Millisecond
	// registerTimeout bounds a registration, in which the kubelet connects back to the plugin.
	registerTimeout = 10 * time.Second
)

// Run serves every resource until ctx ends, and registers again whenever the kubelet restarts. It logs errors
// and retries, since the kubelet may stop and start at any time. Run returns when all sockets are closed and
// removed.
func Run(ctx context.Context, c Config, log *slog.Logger) {
	if err := c.writeInfos(); err != nil {
		log.Warn(err.Error())
	}
	var wg sync.WaitGroup
	for _, r := range c.Resources {
		wg.Go(func() { keepServing(ctx, c.KubeletDir, r, log.With("resource", r.Name)) })
	}
	wg.Wait()
}

// keepServing serves one resource, through any number of kubelets, until ctx ends.
func keepServing(ctx context.Context, dir string, r Resource, log *slog.Logger) {
	lastErr := ""
	for ctx.Err() == nil {
		if err := serve(ctx, dir, r, log); err != nil {
			// While there is no kubelet, the same error occurs several times a second. It is logged once.
			if err.Error() != lastErr {
				log.Warn("will try again", "error", err)
			}
			lastErr = err.Error()
		} else {
			lastErr = ""
		}
		sleep(ctx, poll)
	}
}

// serve listens and registers with the running kubelet. It returns nil when ctx ends, when another kubelet has
// taken over, or when the plugin's socket was removed.
func serve(ctx context.Context, dir string, r Resource, log *slog.Logger) error {
	kubeletSocket := filepath.Join(dir, "kubelet.sock")
	// Stat precedes the registration, so that a kubelet that starts afterwards is always recognized as another one.
	kubelet, err := os.Stat(kubeletSocket)
	if err != nil {
		return fmt.Errorf("looking for the kubelet: %w", err)
	}
	socket := filepath.Join(dir, socketName(r.Name))
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing an old socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("listening for the kubelet: %w", err)
	}
	stop := make(chan struct{})
	g := grpc.NewServer()
	api.RegisterDevicePluginServer(g, &server{resource: r, stop: stop})
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	defer func() {
		close(stop)
		g.GracefulStop() // closes the listener, which removes the socket
		<-served
	}()

	if err := register(ctx, kubeletSocket, r.Name); err != nil {
		return err
	}
	for _, d := range r.Devices {
		log.Info("registered", "device", d.ID, "netdev", d.Netdev)
	}
	for sleep(ctx, poll) {
		if _, err := os.Stat(socket); err != nil {
			log.Info("the plugin's socket is gone, serving again")
			return nil
		}
		now, err := os.Stat(kubeletSocket)
		if err == nil && !sameSocket(kubelet, now) {
			log.Info("another kubelet has started, registering again")
			return nil
		}
	}
	return nil
}

// sameSocket also compares times: a new socket often gets the inode of the one just removed.
func sameSocket(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

func register(ctx context.Context, kubeletSocket, resource string) error {
	conn, err := grpc.NewClient("unix:"+kubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connecting to the kubelet: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version:      api.Version,
		Endpoint:     socketName(resource),
		ResourceName: resource,
		Options:      &api.DevicePluginOptions{},
	})
	if err != nil {
		return fmt.Errorf("registering %s with the kubelet: %w", resource, err)
	}
	return nil
}

// sleep waits for d, or until ctx ends, and reports whether d has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
