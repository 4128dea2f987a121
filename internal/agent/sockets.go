package agent

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// The lines of a socket in onload_stackdump's dump: its heading (citp_waitable_dump2 in waitable.c), and the counters of UDP
// (ci_udp_state_dump in udp.c) and TCP (ci_tcp_state_dump in tcp_debug.c), whose number of packets is hexadecimal. A connection
// of a stack also sends through it: TCP counts only received packets, but each message has an answer.
var (
	socketLine     = regexp.MustCompile(`^(\S+) \d+:\d+(?: |$)`)
	socketCounters = map[string][]socketCounter{
		"UDP": {
			{regexp.MustCompile(`^  rcv: .*\btot_pkts=(\d+)`), 10, []string{result.PathSocketIn}}, {regexp.MustCompile(`^  rcv: os=(\d+)`), 10, []string{result.PathSocketKernelIn}},
			{regexp.MustCompile(`^  snd: .*\bul=(\d+)`), 10, []string{result.PathSocketOut}}, {regexp.MustCompile(`^  snd: .*\bos=(\d+)`), 10, []string{result.PathSocketKernelOut}},
		},
		"TCP": {{regexp.MustCompile(`^  rcv: .*\btot_pkts=([0-9a-f]+)`), 16, []string{result.PathSocketIn, result.PathSocketOut}}},
	}
)

// socketCounter is a number in a line of a socket, in a base, and the counters of a path to which it belongs.
type socketCounter struct {
	pattern *regexp.Regexp
	base    int
	names   []string
}

// addSockets adds the packets of all sockets of a protocol in a stack to the counters of a path, from the output of
// onload_stackdump.
func addSockets(grown map[string]int64, dump []byte, protocol v1alpha1.Protocol) {
	wanted, kind := "UDP", ""
	if protocol == v1alpha1.ProtocolTCP {
		wanted = "TCP"
	}
	for line := range strings.Lines(string(dump)) {
		if found := socketLine.FindStringSubmatch(line); found != nil {
			kind = found[1]
		}
		if kind != wanted {
			continue
		}
		for _, c := range socketCounters[kind] {
			if found := c.pattern.FindStringSubmatch(line); found != nil {
				n, _ := strconv.ParseInt(found[1], c.base, 40) // the largest number, if it is beyond its range
				for _, name := range c.names {
					grown[name] += n
				}
			}
		}
	}
}
