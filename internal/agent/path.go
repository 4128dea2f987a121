package agent

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// pathCounters are the counters of a result.Path, each the sum of counters of the watch.
var pathCounters = map[string][]string{
	result.PathUDPIn:  {"udp.InDatagrams", "udp6.InDatagrams"},
	result.PathUDPOut: {"udp.OutDatagrams", "udp6.OutDatagrams"},
	result.PathTCPIn:  {"tcp.InSegs"},
	result.PathTCPOut: {"tcp.OutSegs"},
	result.PathIPIn:   {"ip.InOctets", "ip6.InOctets"},
	result.PathIPOut:  {"ip.OutOctets", "ip6.OutOctets"},
	result.PathNICIn:  {"nic.rx-packets"},
	result.PathNICOut: {"nic.tx-packets"},
}

// pathGrowth is by how much the counters of a path grew. Of a sum the first has to be known: a kernel may be without IPv6.
// What the agents' own connection added meanwhile is not counted.
func pathGrowth(grown, own map[string]int64) map[string]int64 {
	all := map[string]int64{}
	for name, parts := range pathCounters {
		if _, ok := grown[parts[0]]; !ok {
			continue
		}
		for _, part := range parts {
			all[name] += grown[part]
		}
		all[name] = max(0, all[name]-own[name])
	}
	return all
}

// segmentHeaders is how many bytes of headers a segment of the agents' connection has at least: IPv4, and TCP with
// timestamps.
const segmentHeaders = 52

// traffic is what the agents' connection has added so far to the counters of a path. The kernel counts a segment that is
// sent again elsewhere.
func (l *link) traffic() map[string]int64 {
	tcp, ok := l.conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	var info *unix.TCPInfo
	if raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }) != nil || err != nil {
		return nil
	}
	in, out := int64(info.Segs_in), int64(info.Segs_out)
	return map[string]int64{
		result.PathTCPIn: in, result.PathTCPOut: out,
		result.PathIPIn:  int64(info.Bytes_received) + in*segmentHeaders,
		result.PathIPOut: int64(info.Bytes_acked) + out*segmentHeaders,
	}
}

// since is by how much counters grew.
func since(before, after map[string]int64) map[string]int64 {
	grown := map[string]int64{}
	for name, n := range after {
		grown[name] = max(0, n-before[name])
	}
	return grown
}

// recordPath adds what is known of the path of the messages of a cell whose process has ended.
func (e *endpoint) recordPath(p *process, cell string, grown map[string]int64, l *link) {
	p.path.Cell = cell
	p.path.Grown = pathGrowth(grown, since(p.linkBefore, l.traffic()))
	for name, n := range p.stackEvents {
		p.path.Grown[name] = n
	}
	p.path.Banner = line(onload.Banner(p.stderr.Bytes()), maxValue)
	for name, value := range onload.Settings(p.stderr.Bytes()) {
		e.settings[name] = value
	}
	e.paths = append(e.paths, p.path)
}
