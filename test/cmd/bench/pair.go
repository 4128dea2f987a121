package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"time"

	"github.com/tailgate-dev/tailgate/test/netpair"
)

// The addresses of the two ends.
const clientIP, serverIP = "10.231.77.1", "10.231.77.2"

// newNamespaces creates the two ends' network namespaces.
func newNamespaces() (*netpair.Pair, error) {
	return netpair.New(
		netpair.Interface{Name: "client", Addresses: []string{clientIP + "/30"}},
		netpair.Interface{Name: "server", Addresses: []string{serverIP + "/30"}})
}

// pair holds where and how long the two ends run.
type pair struct {
	*netpair.Pair
	clientCPU, serverCPU string
	duration             time.Duration
	size                 int
}

// on returns a command that runs on a CPU, in a process group of its own.
func on(ctx context.Context, cpu string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"-c", cpu}, args...)...)
	cmd.Env = append(cmd.Environ(), "SFNT_AVOID_FORK=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// run measures once with a tool.
func (p pair) run(ctx context.Context, t benchTool, m mode) (latency, error) {
	ctx, cancel := context.WithTimeout(ctx, p.duration+30*time.Second)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	var said bytes.Buffer
	server := on(serving, p.serverCPU, t.server(m))
	server.Stdout, server.Stderr = &said, &said
	if err := p.Server.Start(server); err != nil {
		stop()
		return latency{}, fmt.Errorf("starting the server: %w", err)
	}
	defer func() {
		stop()
		_ = server.Wait()
	}()
	if err := p.awaitPort(); err != nil {
		return latency{}, err
	}
	var stdout, stderr bytes.Buffer
	client := on(ctx, p.clientCPU, t.client(m, p.size, p.duration))
	client.Stdout, client.Stderr = &stdout, &stderr
	if err := p.Client.Start(client); err != nil {
		return latency{}, fmt.Errorf("starting the client: %w", err)
	}
	if err := client.Wait(); err != nil {
		return latency{}, fmt.Errorf("the client: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return t.read(stdout.String())
}

// listening matches the line of a TCP socket that listens (state 0A) or of a UDP socket without a peer (07) at the tools' port.
// Connections of the previous server stay in TIME_WAIT at that port.
var listening = regexp.MustCompile(`(?m)^ *[0-9]+: [0-9A-F]+:` + portHex + ` [0-9A-F]+:0000 0[A7] `)

// awaitPort waits until a process listens, without connecting to it.
func (p pair) awaitPort() error {
	for range 200 {
		var sockets []byte
		err := p.Server.In(func() error {
			for _, protocol := range []string{"tcp", "udp"} {
				data, err := os.ReadFile("/proc/thread-self/net/" + protocol)
				if err != nil {
					return err
				}
				sockets = append(sockets, data...)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("looking for the server's port: %w", err)
		}
		if listening.Match(sockets) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the server does not listen")
}
