//go:build e2e

package onload

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Paths of the messages of a run at one end.
const (
	accelerated = "accelerated"
	partly      = "partly"
	kernel      = "kernel"
)

// packets holds the numbers of packets that the sockets of a process sent and received, by Onload's own counters: through the
// stack, and through the kernel on behalf of a socket of the stack.
type packets struct{ stack, kernel int64 }

var (
	socketOf  = regexp.MustCompile(`^(TCP|UDP) \d+:\d+ .* (\w+)$`)
	received  = regexp.MustCompile(`^  rcv: .*\btot_pkts=([0-9a-f]+)`)
	receivedK = regexp.MustCompile(`^  rcv: os=(\d+)`)
	sent      = regexp.MustCompile(`^  snd: .* ul=(\d+) os=(\d+)`)
)

// leastTCP is the minimum number of packets of a connection that carries more than a tool's control messages.
const leastTCP = 15

// dump returns the packets that onload_stackdump shows for the sockets of a protocol, by the process that created the stack.
func dump(p v1alpha1.Protocol) (map[int]packets, error) {
	out, err := exec.Command("onload_stackdump", "lots").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("onload_stackdump: %w: %s", err, out)
	}
	all, kind := map[int]packets{}, ""
	var pids []string
	for l := range strings.Lines(string(out)) {
		l = strings.TrimRight(l, " \n")
		number := func(pattern *regexp.Regexp, group, base int) (n int64) {
			if m := pattern.FindStringSubmatch(l); m != nil {
				n, _ = strconv.ParseInt(m[group], base, 64)
			}
			return n
		}
		var add packets
		switch m := socketOf.FindStringSubmatch(l); {
		case m != nil:
			if kind = m[1]; m[2] == "LISTEN" {
				kind = ""
			}
		case strings.HasPrefix(l, "pids: "): // of a stack whose sockets follow
			pids, kind = strings.Fields(l)[1:], ""
		case kind == "UDP" && p != v1alpha1.ProtocolTCP:
			add = packets{number(received, 1, 10) + number(sent, 1, 10), number(receivedK, 1, 10) + number(sent, 2, 10)}
		case kind == "TCP" && p == v1alpha1.ProtocolTCP:
			if n := number(received, 1, 16); n >= leastTCP {
				add.stack = n
			}
		}
		for _, field := range pids {
			if pid, err := strconv.Atoi(field); err == nil {
				all[pid] = packets{all[pid].stack + add.stack, all[pid].kernel + add.kernel}
			}
		}
	}
	return all, nil
}

// watch dumps the stacks when they have received messages, at least twice and until sockets of both ends have carried some, and
// returns the maximum at each end. A dump takes the lock of a stack, and a second of an emulated CPU.
func watch(o *outcome, p v1alpha1.Protocol) (most [2]packets, err error) {
	const dumps = 6
	for taken := 0; taken < dumps && o.alive(); time.Sleep(200 * time.Millisecond) {
		if taken > 1 && most[0].stack > 0 && most[1].stack > 0 {
			break
		}
		events, readErr := os.ReadFile("/proc/driver/onload/stacks")
		err = cmp.Or(err, readErr)
		if !busy(string(events)) {
			continue
		}
		time.Sleep(time.Second)
		all, dumpErr := dump(p)
		err = cmp.Or(err, dumpErr)
		taken++
		for i, e := range o.ends {
			pids, _ := e.Process.PIDs() // empty for a pod that has ended meanwhile
			for pid, n := range all {
				if slices.Contains(pids, pid) && n.stack+n.kernel > most[i].stack+most[i].kernel {
					most[i] = n
				}
			}
		}
	}
	return most, err
}

// busy reports whether a stack has received more than a tool's control messages.
func busy(stacks string) bool {
	for l := range strings.Lines(stacks) {
		fields := strings.Fields(l)
		if n, err := strconv.Atoi(fields[len(fields)-2]); err == nil && n >= leastTCP {
			return true
		}
	}
	return false
}

// alive reports whether an end is still running.
func (o *outcome) alive() bool {
	for _, e := range o.ends {
		if !e.Ended() {
			return true
		}
	}
	return false
}

// way returns the path of the packets. Packets that no socket of an Onload stack counts went through the kernel.
func (p packets) way() string {
	switch {
	case p.stack == 0:
		return kernel
	case p.kernel == 0:
		return accelerated
	}
	return partly
}
