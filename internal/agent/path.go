package agent

import (
	"maps"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// pathCounters are the counters of a result.Path, each the sum of counters of the watch.
var pathCounters = map[string][]string{
	result.PathUDPIn:     {"udp.InDatagrams", "udp6.InDatagrams"},
	result.PathUDPOut:    {"udp.OutDatagrams", "udp6.OutDatagrams"},
	result.PathTCPIn:     {"tcp.InSegs"},
	result.PathTCPOut:    {"tcp.OutSegs"},
	result.PathIPIn:      {"ip.InOctets", "ip6.InOctets"},
	result.PathIPOut:     {"ip.OutOctets", "ip6.OutOctets"},
	result.PathNICIn:     {"nic.rx-packets"},
	result.PathNICOut:    {"nic.tx-packets"},
	result.PathTCPData:   {"tcp.TCPOrigDataSent"},
	result.PathTCPAgain:  {"tcp.RetransSegs"},
	result.PathLocal:     {"lo.rx-packets"},
	result.PathThrottled: {"cpu.thermal-throttles"},

	result.PathDelivered:      {"ip.InDelivers", "ip6.InDelivers"},
	result.PathDeliveredOther: {"tcp.InSegs", "icmp.InMsgs", "icmp6.InMsgs"},
	result.PathDeliveredAll:   {"ip.InMcastPkts", "ip.InBcastPkts"},
}

// pathGrowth returns a path's growth. Only a sum's first counter must exist: IPv6 may be absent.
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

// addLate takes up what arrived at the client after its tool had ended: its server has, too, now.
func (e *endpoint) addLate() {
	late := pathGrowth(growth(e.watch.before, e.watch.counters()), nil)
	for _, name := range []string{result.PathDelivered, result.PathDeliveredOther, result.PathDeliveredAll} {
		if n, ok := late[name]; ok {
			e.paths[len(e.paths)-1].Grown[name] = n
		}
	}
}

// segmentHeaders are the smallest headers in the agents' connection: IPv4, TCP with timestamps.
const segmentHeaders = 52

// traffic returns what the agents' connection has added so far to the counters of a path. TCP's OutSegs, unlike Segs_out and the counters
// of IP, does not contain retransmitted segments.
func (l *link) traffic() map[string]int64 {
	tcp, ok := l.tcp()
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
		result.PathTCPIn: in, result.PathTCPOut: out - int64(info.Total_retrans), result.PathTCPData: int64(info.Data_segs_out) - int64(info.Total_retrans),
		result.PathIPIn:  int64(info.Bytes_received) + in*segmentHeaders,
		result.PathIPOut: int64(info.Bytes_acked) + out*segmentHeaders,
	}
}

func (e *endpoint) recordPath(p *process, cell string, grown map[string]int64, l *link) {
	p.path.Cell = cell
	p.path.Grown = pathGrowth(grown, growth(p.linkBefore, l.traffic()))
	maps.Copy(p.path.Grown, p.stackEvents)
	said := onload.Read(p.stderr.Bytes())
	if f := said.Failure; f != nil && e.accelerated() {
		p.path.Said = line(f.Why+" ("+f.Words+")", maxValue)
	}
	p.path.Banner = line(said.Banner, maxValue)
	maps.Copy(e.settings, said.Settings)
	e.paths = append(e.paths, p.path)
}
