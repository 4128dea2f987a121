package agent

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	// listenTimeout bounds a tool's start, apart from Onload's control plane.
	listenTimeout = 10 * time.Second
	listenPoll    = 10 * time.Millisecond
	// tcpListen is the state of a listening TCP socket in /proc/net/tcp.
	tcpListen = "0A"
)

// awaitListening waits until a port is bound, by the kernel's tables: a tool counts connections.
func awaitListening(ctx context.Context, p *process, protocol v1alpha1.Protocol, port int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(listenPoll)
	defer tick.Stop()
	for {
		if listening, err := isListening(protocol, port); err != nil || listening {
			return err
		}
		select {
		case <-p.done:
			return tool.Fail(v1alpha1.OutcomeToolFailed, "the tool's server %s before it listened: %s", p.ending(), p.lastWords())
		case <-ctx.Done():
			p.kill() // its output is complete only then
			return tool.Fail(v1alpha1.OutcomeToolFailed, "the tool's server does not listen on %s port %d after %s: %s", protocol, port, limit, cmp.Or(p.lastWords(), "it printed nothing"))
		case <-tick.C:
		}
	}
}

func isListening(protocol v1alpha1.Protocol, port int) (bool, error) {
	for _, suffix := range []string{"", "6"} {
		f, err := os.Open("/proc/self/net/" + strings.ToLower(string(protocol)) + suffix)
		if os.IsNotExist(err) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return false, fmt.Errorf("reading the sockets: %w", err)
		}
		found, err := hasListener(f, protocol, port)
		f.Close()
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// hasListener looks for a port in a table in the format of /proc/net/tcp and /proc/net/udp.
func hasListener(table io.Reader, protocol v1alpha1.Protocol, port int) (bool, error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			continue
		}
		_, hex, ok := strings.Cut(fields[1], ":")
		if !ok {
			continue // the heading
		}
		local, err := strconv.ParseUint(hex, 16, 16)
		if err != nil {
			return false, fmt.Errorf("reading the sockets: port %q: %w", hex, err)
		}
		if int(local) == port && (protocol == v1alpha1.ProtocolUDP || fields[3] == tcpListen) {
			return true, nil
		}
	}
	return false, lines.Err()
}
