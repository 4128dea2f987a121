package look

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func network(t *testing.T, cidr string) *net.IPNet {
	t.Helper()
	_, n, err := net.ParseCIDR(cidr)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConflicts(t *testing.T) {
	route := func(link int, table, kind int, cidr string) netlink.Route {
		return netlink.Route{LinkIndex: link, Table: table, Type: kind, Dst: network(t, cidr)}
	}
	rule := func(priority, table int, change func(*netlink.Rule)) netlink.Rule {
		r := netlink.NewRule()
		r.Priority, r.Table = priority, table
		if change != nil {
			change(r)
		}
		return *r
	}
	const vpn = 51820
	links := map[int]string{1: "lo", 2: "eth0", 3: "orb0", 4: "wg0", 5: "tailgate0"}
	usual := []netlink.Route{
		{LinkIndex: 2, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST},
		route(1, unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, "127.0.0.0/8"),
	}
	usualRules := []netlink.Rule{rule(0, unix.RT_TABLE_LOCAL, nil), rule(32766, unix.RT_TABLE_MAIN, nil), rule(32767, unix.RT_TABLE_DEFAULT, nil)}
	everything := route(4, vpn, unix.RTN_UNICAST, "0.0.0.0/0")
	for _, tt := range []struct {
		name   string
		routes []netlink.Route
		rules  []netlink.Rule
		want   string // a part of the only conflict; empty: none
	}{
		{name: "an ordinary host"},
		{name: "the cluster's own link", routes: []netlink.Route{route(5, unix.RT_TABLE_MAIN, unix.RTN_UNICAST, "198.19.0.0/24")}},
		{name: "a link with the whole range", routes: []netlink.Route{route(3, unix.RT_TABLE_MAIN, unix.RTN_UNICAST, "198.19.0.0/16")}, want: "a route to 198.19.0.0/16 through orb0"},
		{name: "the same subnet", routes: []netlink.Route{route(3, unix.RT_TABLE_MAIN, unix.RTN_UNICAST, "198.19.0.0/24")}, want: "198.19.0.0/24 through orb0"},
		{name: "the cluster's address", routes: []netlink.Route{route(1, unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, "198.19.0.1/32")}, want: "lo has the address 198.19.0.1"},
		{name: "a range for fake addresses of a proxy", routes: []netlink.Route{route(4, unix.RT_TABLE_MAIN, unix.RTN_UNICAST, "198.18.0.0/15")}, want: "198.18.0.0/15 through wg0"},
		{name: "another part of the range", routes: []netlink.Route{route(3, unix.RT_TABLE_MAIN, unix.RTN_UNICAST, "198.19.248.0/24")}},
		{name: "a default route in two halves", routes: []netlink.Route{route(4, unix.RT_TABLE_MAIN, unix.RTN_UNICAST, "128.0.0.0/1")}},
		{name: "reserved ranges are rejected", routes: []netlink.Route{route(0, unix.RT_TABLE_MAIN, unix.RTN_BLACKHOLE, "198.18.0.0/15")}},
		{name: "the subnet is rejected", routes: []netlink.Route{route(0, unix.RT_TABLE_MAIN, unix.RTN_UNREACHABLE, "198.19.0.0/24")}, want: "through no link"},
		{name: "a VPN whose rule precedes the main table", routes: []netlink.Route{everything}, rules: []netlink.Rule{rule(5209, vpn, nil)}, want: "rule 5209 sends its packets to table 51820"},
		{name: "a VPN that leaves the range out", routes: []netlink.Route{everything, route(0, vpn, unix.RTN_THROW, "198.18.0.0/15")}, rules: []netlink.Rule{rule(5209, vpn, nil)}},
		{name: "wg-quick", routes: []netlink.Route{everything}, rules: []netlink.Rule{
			rule(32764, unix.RT_TABLE_MAIN, func(r *netlink.Rule) { r.SuppressPrefixlen = 0 }),
			rule(32765, vpn, func(r *netlink.Rule) { r.Mark, r.Invert = vpn, true }),
		}},
		{name: "wg-quick without the rule for local networks", routes: []netlink.Route{everything}, rules: []netlink.Rule{
			rule(32765, vpn, func(r *netlink.Rule) { r.Mark, r.Invert = vpn, true }),
		}, want: "rule 32765"},
		{name: "a rule for marked packets", routes: []netlink.Route{everything}, rules: []netlink.Rule{rule(100, vpn, func(r *netlink.Rule) { r.Mark = 7 })}},
		{name: "a rule for another destination", routes: []netlink.Route{everything}, rules: []netlink.Rule{rule(100, vpn, func(r *netlink.Rule) { r.Dst = network(t, "10.0.0.0/8") })}},
		{name: "a rule for a source", routes: []netlink.Route{everything}, rules: []netlink.Rule{rule(100, vpn, func(r *netlink.Rule) { r.Src = network(t, "192.0.2.0/24") })}},
		{name: "a table without a route", rules: []netlink.Rule{rule(100, vpn, nil)}},
		{name: "a kill switch", rules: []netlink.Rule{rule(100, 0, func(r *netlink.Rule) { r.Type = unix.FR_ACT_PROHIBIT })}, want: "rule 100 rejects"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := state{links, append(tt.routes, usual...), append(tt.rules, usualRules...)}.conflicts()
			if tt.want == "" {
				if diff := cmp.Diff([]string(nil), got); diff != "" {
					t.Error(diff)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("got %q, want one with %q", got, tt.want)
			}
		})
	}
}
