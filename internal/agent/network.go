package agent

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	attachTimeout     = 10 * time.Second // for the measured interface to get an address
	maxInterfaceNames = 24
)

func interfaceOf(address net.IP) (net.Interface, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return net.Interface{}, fmt.Errorf("listing interfaces: %w", err)
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return net.Interface{}, fmt.Errorf("listing the addresses of %s: %w", i.Name, err)
		}
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(address) {
				return i, nil
			}
		}
	}
	return net.Interface{}, tool.Fail(v1alpha1.OutcomeWrongNetwork, "no interface has the address %s", address)
}

func chosenInterface(name, podIP string) net.Interface {
	if name == "" {
		iface, _ := interfaceOf(net.ParseIP(podIP))
		return iface
	}
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return net.Interface{}
	}
	return *iface
}

// addressOn waits until the interface that the task names has an address that choose picks.
func (e *endpoint) addressOn(ctx context.Context, wanted string, choose func([]net.Addr) net.IP) (net.Interface, net.IP, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	for {
		iface, err := net.InterfaceByName(e.Task.Interface)
		if err != nil {
			return net.Interface{}, nil, tool.Fail(v1alpha1.OutcomeWrongNetwork,
				"there is no interface %s, only %s: was the network attached, or, with network type Host, is network.host.interface right?",
				e.Task.Interface, interfaceNames())
		}
		addresses, err := iface.Addrs()
		if err != nil {
			return net.Interface{}, nil, fmt.Errorf("listing the addresses of %s: %w", iface.Name, err)
		}
		if ip := choose(addresses); ip != nil {
			return *iface, ip, nil
		}
		select {
		case <-ctx.Done():
			return net.Interface{}, nil, tool.Fail(v1alpha1.OutcomeWrongNetwork, "interface %s has no %s after %s; it has %v", iface.Name, wanted, attachTimeout, addresses)
		case <-time.After(listenPoll):
		}
	}
}

func (e *endpoint) noCarrier(conjunction string) string {
	if e.iface.Name == "" || (host{root: e.Root}).carrier(e.iface.Name) != "0" {
		return ""
	}
	return fmt.Sprintf("%s the link of %s is down", conjunction, e.iface.Name)
}

func (e *endpoint) interfaceGone() bool { return vanished(e.iface) }

func vanished(iface net.Interface) bool {
	if iface.Index == 0 {
		return false
	}
	_, err := net.InterfaceByIndex(iface.Index)
	return err != nil
}

// untilGone's context ends with the interface: TCP connections stay open, tools may not notice.
func (e *endpoint) untilGone(ctx context.Context) (context.Context, context.CancelFunc, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		return nil, nil, fmt.Errorf("subscribing to messages about interfaces: %w", err)
	}
	iface := e.iface
	filter := deletionOf(iface.Index)
	if err := unix.SetsockoptSockFprog(s.GetFd(), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		s.Close()
		return nil, nil, fmt.Errorf("filtering messages about interfaces: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, s.Close)
	go func() {
		defer cancel()
		for !vanished(iface) {
			if _, _, err := s.Receive(); err != nil {
				return
			}
		}
	}()
	return ctx, cancel, nil
}

// deletionOf filters by netlink type and ifinfomsg's index: only a deletion wakes the agent.
func deletionOf(index int) []unix.SockFilter {
	kind := binary.NativeEndian.AppendUint16(nil, unix.RTM_DELLINK)
	which := binary.NativeEndian.AppendUint32(nil, uint32(index))
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(binary.BigEndian.Uint16(kind)), Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: unix.NLMSG_HDRLEN + 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: binary.BigEndian.Uint32(which), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
}

// carrier returns "1" if the link of an interface is up, and "0" if it is down.
func (h host) carrier(iface string) string {
	return h.read(filepath.Join("sys/class/net", iface, "carrier"))
}

func interfaceNames() string {
	interfaces, _ := net.Interfaces() // With an error, there are none.
	return cmp.Or(text.List(text.Of(interfaces, func(i net.Interface) string { return i.Name }), maxInterfaceNames, ", "), "none")
}

// preferred returns an interface's first IPv4 or global IPv6 address, as the controller does.
func preferred(addresses []net.Addr) net.IP {
	var six net.IP
	for _, a := range addresses {
		n, ok := a.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if n.IP.To4() != nil {
			return n.IP
		}
		if six == nil {
			six = n.IP
		}
	}
	return six
}

// towards returns the address from which a client sends: in the server's subnet, or the first.
func towards(server net.IP, addresses []net.Addr) net.IP {
	var first net.IP
	for _, a := range addresses {
		n, ok := a.(*net.IPNet)
		if !ok || (n.IP.To4() != nil) != (server.To4() != nil) {
			continue
		}
		if n.Contains(server) {
			return n.IP
		}
		if first == nil && n.IP.IsGlobalUnicast() {
			first = n.IP
		}
	}
	return first
}

// leavingBy returns the interface by which messages leave, which may not be the address's own.
func leavingBy(from, to net.IP) (net.Interface, error) {
	routes, err := netlink.RouteGetWithOptions(to, &netlink.RouteGetOptions{SrcAddr: from})
	if err != nil || len(routes) == 0 {
		return net.Interface{}, tool.Fail(v1alpha1.OutcomeWrongNetwork, "there is no route to %s: %v", to, err)
	}
	iface, err := net.InterfaceByIndex(routes[0].LinkIndex)
	if err != nil {
		return net.Interface{}, fmt.Errorf("reading the interface of the route to %s: %w", to, err)
	}
	return *iface, nil
}

func leavesBy(iface net.Interface, from, to net.IP) error {
	by, err := leavingBy(from, to)
	if err != nil {
		return err
	}
	return wrongWay(to, by, iface)
}

func wrongWay(to net.IP, by, asked net.Interface) error {
	if by.Index == asked.Index {
		return nil
	}
	return tool.Fail(v1alpha1.OutcomeWrongNetwork, "messages to %s would leave by %s, not by %s: do both ends have an address in one subnet there?", to, by.Name, asked.Name)
}

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

// traffic returns the connection's share of a path's counters. OutSegs has no retransmissions.
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
