package capture

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// kernelFilter runs the filter of some traffic in the kernel, on a pair of sockets of this process.
type kernelFilter struct{ from, to int }

func newKernelFilter(t testing.TB, traffic Traffic) kernelFilter {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(pair[0])
		unix.Close(pair[1])
	})
	program := traffic.filter()
	if err := unix.SetsockoptSockFprog(pair[1], unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{
		Len: uint16(len(program)), Filter: &program[0],
	}); err != nil {
		t.Fatal(err)
	}
	return kernelFilter{pair[0], pair[1]}
}

// passes returns the part of a packet that the filter lets through; nil: nothing.
func (k kernelFilter) passes(t testing.TB, b []byte) []byte {
	t.Helper()
	if err := unix.Send(k.from, b, 0); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(b)+1)
	n, _, err := unix.Recvfrom(k.to, got, 0)
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return got[:n]
}

func traffics() map[string]Traffic {
	all := map[string]Traffic{}
	for _, protocol := range []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP, v1alpha1.ProtocolMulticast} {
		four, six := between(protocol, 64), between(protocol, 64)
		six.Server, six.Client = server6, client6
		all[string(protocol)+" over IPv4"], all[string(protocol)+" over IPv6"] = four, six
		four.ExceptPort, six.ExceptPort = 22047, 22047
		all[string(protocol)+" over IPv4 but a port"], all[string(protocol)+" over IPv6 but a port"] = four, six
	}
	return all
}

// TestFilter passes packets of all kinds to the kernel, and to the matcher, whose check is more exact.
func TestFilter(t *testing.T) {
	datagram, excepted := udp(40000, 22048, message(1, 300)), udp(40000, 22047, message(1, 300))
	backwards := udp(22047, 40000, message(1, 300))
	segment, exceptedSegment := tcp(40000, 22048, 1, tcpACK, message(1, 300)), tcp(40000, 22047, 1, tcpSYN, nil)
	addresses := map[string]map[string]netip.Addr{
		"4": {"client": clientAddr, "server": serverAddr, "another": netip.MustParseAddr("10.67.1.9"), "group": group},
		"6": {"client": client6, "server": server6, "another": server6.Next(), "group": netip.MustParseAddr("ff02::77")},
	}
	packets := map[string][]byte{"nothing": {0}, "ARP": {0, 1, 8, 0, 6, 4, 0, 1}}
	for _, from := range []string{"client", "server", "another"} {
		for _, to := range []string{"client", "server", "another", "group"} {
			for _, version := range []string{"4", "6"} {
				source, target := addresses[version][from], addresses[version][to]
				name := "IPv" + version + " from " + from + " to " + to
				packets[name+", UDP"] = ip(source, target, ipUDP, datagram)
				packets[name+", UDP to the excepted port"] = ip(source, target, ipUDP, excepted)
				packets[name+", UDP from the excepted port"] = ip(source, target, ipUDP, backwards)
				packets[name+", first part of UDP"] = cut(source, target, 1, datagram[:160], 0, true)
				packets[name+", other part of UDP"] = cut(source, target, 1, datagram[160:], 160, false)
				packets[name+", TCP"] = ip(source, target, ipTCP, segment)
				packets[name+", TCP to the excepted port"] = ip(source, target, ipTCP, exceptedSegment)
				packets[name+", ICMP"] = ip(source, target, 1, datagram)
			}
		}
	}
	for name, traffic := range traffics() {
		t.Run(name, func(t *testing.T) {
			k := newKernelFilter(t, traffic)
			passed := 0
			for name, b := range packets {
				got := k.passes(t, b)
				want := wanted(traffic, b)
				// The kernel compares no ports, and no protocol over IPv6, whose headers may have others between them.
				open := strings.Contains(name, "excepted port") || strings.HasPrefix(name, "IPv6")
				outside := strings.Contains(name, "another") || strings.Contains(name, "group") && traffic.Protocol != v1alpha1.ProtocolMulticast
				if got == nil && want || got != nil && !want && (!open || outside) {
					t.Errorf("%s: passed %t, want %t", name, got != nil, want)
				}
				if got != nil && !bytes.Equal(got, b[:min(len(b), snapLength)]) {
					t.Errorf("%s: %d of %d bytes passed", name, len(got), len(b))
				}
				if got != nil {
					passed++
				}
			}
			if passed == 0 {
				t.Error("no packet passed")
			}
		})
	}
}

// wanted reports whether a packet belongs to the traffic, in either direction.
func wanted(traffic Traffic, b []byte) bool {
	p, err := parse(b, len(b))
	if err != nil {
		return false
	}
	m := newMatcher(traffic, nil)
	in := m.wants(p)
	p.out = true
	return in || m.wants(p)
}

// FuzzFilter changes packets: the kernel must not reject a packet that the matcher wants.
func FuzzFilter(f *testing.F) {
	f.Add(uint16(0), ip(clientAddr, serverAddr, ipUDP, udp(1, 2, message(1, 64))))
	f.Add(uint16(1), ip(serverAddr, clientAddr, ipTCP, tcp(22048, 2, 3, tcpACK, message(1, 64))))
	f.Add(uint16(5), cut(server6, client6, 1, udp(1, 2, message(1, 64)), 0, true))
	f.Fuzz(func(t *testing.T, kind uint16, b []byte) {
		if len(b) == 0 || len(b) > 60000 {
			return
		}
		protocols := []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP, v1alpha1.ProtocolMulticast}
		traffic := between(protocols[kind%3], 64)
		if b[0]>>4 == 6 {
			traffic.Server, traffic.Client = server6, client6
		}
		traffic.ExceptPort = kind / 3
		passed := newKernelFilter(t, traffic).passes(t, b) != nil
		if wanted(traffic, b) && !passed {
			t.Errorf("%x does not pass", b)
		}
	})
}
