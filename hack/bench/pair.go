package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// The namespaces and their addresses.
const (
	clientNS, serverNS = "pg-client", "pg-server"
	clientIP, serverIP = "10.231.77.1", "10.231.77.2"
)

// makeNamespaces joins two namespaces. The returned function removes them, in any case.
func makeNamespaces(ctx context.Context) (remove func(), err error) {
	ip := func(ctx context.Context, args string) error {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s (it takes root): %w: %s", args, err, bytes.TrimSpace(out))
		}
		return nil
	}
	var made []string
	remove = func() {
		for _, name := range made {
			_ = ip(context.WithoutCancel(ctx), "netns del "+name)
		}
	}
	for _, name := range []string{clientNS, serverNS} {
		if err := ip(ctx, "netns add "+name); err != nil {
			return remove, err
		}
		made = append(made, name)
	}
	for _, args := range []string{
		"link add pg-a netns " + clientNS + " type veth peer name pg-b netns " + serverNS,
		"-n " + clientNS + " addr add " + clientIP + "/30 dev pg-a",
		"-n " + serverNS + " addr add " + serverIP + "/30 dev pg-b",
		"-n " + clientNS + " link set pg-a up",
		"-n " + serverNS + " link set pg-b up",
	} {
		if err := ip(ctx, args); err != nil {
			return remove, err
		}
	}
	return remove, nil
}

// pair is where and how long the two ends run.
type pair struct {
	clientCPU, serverCPU string
	duration             time.Duration
	size                 int
}

// in is a command in a namespace and on a CPU, in a process group of its own.
func in(ctx context.Context, namespace, cpu string, args []string) *exec.Cmd {
	args = append([]string{"netns", "exec", namespace, "taskset", "-c", cpu}, args...)
	cmd := exec.CommandContext(ctx, "ip", args...)
	cmd.Env = append(cmd.Environ(), "SFNT_AVOID_FORK=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// run lets a tool measure once.
func (p pair) run(ctx context.Context, t benchTool, m mode) (latency, error) {
	ctx, cancel := context.WithTimeout(ctx, p.duration+30*time.Second)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	var said bytes.Buffer
	server := in(serving, serverNS, p.serverCPU, t.server(m))
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		stop()
		return latency{}, fmt.Errorf("starting the server: %w", err)
	}
	defer func() {
		stop()
		_ = server.Wait()
	}()
	if err := awaitPort(ctx); err != nil {
		return latency{}, err
	}
	var stdout, stderr bytes.Buffer
	client := in(ctx, clientNS, p.clientCPU, t.client(m, p.size, p.duration))
	client.Stdout, client.Stderr = &stdout, &stderr
	if err := client.Run(); err != nil {
		return latency{}, fmt.Errorf("the client: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return t.read(stdout.String())
}

// listening matches the line of a TCP socket that listens (state 0A) or of a UDP socket that has no peer (07) at the
// tools' port. Connections of the server before stay in TIME_WAIT at that port.
var listening = regexp.MustCompile(`(?m)^ *[0-9]+: [0-9A-F]+:` + portHex + ` [0-9A-F]+:0000 0[A7] `)

// awaitPort waits until somebody listens, without touching them.
func awaitPort(ctx context.Context) error {
	for range 200 {
		out, err := exec.CommandContext(ctx, "ip", "netns", "exec", serverNS, "cat", "/proc/net/tcp", "/proc/net/udp").Output()
		if err != nil {
			return fmt.Errorf("looking for the server's port: %w", err)
		}
		if listening.Match(out) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the server does not listen")
}
