package look

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Subnet has the networks of all clusters' links on the host, each a /24, and their pods'.
const Subnet = "198.19.0.0/19"

// linkBits is the length of the prefix of a cluster's link.
const linkBits = 24

// shortest is the shortest prefix of a route that is meant for this range. Shorter ones are default routes, or halves of one, and the
// route of the cluster's own link precedes them.
const shortest = 12

// A state of the host's IPv4 network: what decides where packets to the cluster go.
type state struct {
	links  map[int]string
	routes []netlink.Route // of all tables, local addresses too
	rules  []netlink.Rule
}

// subnetConflicts describes what would take the cluster's packets, or would lose its own to the cluster.
func subnetConflicts() ([]string, error) {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	s := state{links: map[int]string{}}
	for _, l := range links {
		s.links[l.Attrs().Index] = l.Attrs().Name
	}
	all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	if s.routes, err = netlink.RouteListFiltered(unix.AF_INET, all, netlink.RT_FILTER_TABLE); err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	// A kernel without policy routing has no rules.
	if s.rules, err = netlink.RuleList(unix.AF_INET); err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("listing routing rules: %w", err)
	}
	return s.conflicts(), nil
}

func (s state) conflicts() []string {
	subnet := netip.MustParsePrefix(Subnet)
	var list []string
	for _, r := range s.routes {
		dst, ok := prefix(r)
		if !ok || !dst.Overlaps(subnet) || dst.Bits() < shortest || s.own(r) || r.Table != unix.RT_TABLE_MAIN && r.Table != unix.RT_TABLE_LOCAL {
			continue
		}
		switch {
		case r.Type == unix.RTN_LOCAL:
			list = append(list, fmt.Sprintf("%s has the address %s", s.link(r), dst.Addr()))
			continue
		case r.Table == unix.RT_TABLE_LOCAL:
			continue
		case (r.Type == unix.RTN_BLACKHOLE || r.Type == unix.RTN_UNREACHABLE || r.Type == unix.RTN_PROHIBIT) && dst.Bits() < linkBits:
			continue // The cluster's route precedes it, and nothing is behind it.
		}
		list = append(list, fmt.Sprintf("the host has a route to %s through %s", dst, s.link(r)))
	}
	if rule := s.before(subnet.Addr().Next()); rule != "" {
		list = append(list, rule)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// before describes the routing rule that takes packets to the address before the main table, where the cluster's route is; it is empty if
// there is none. A rule for certain sources, marks, users or links of arrival does not apply to the host's own packets.
func (s state) before(to netip.Addr) string {
	rules := slices.Clone(s.rules)
	slices.SortStableFunc(rules, func(a, b netlink.Rule) int { return cmp.Compare(a.Priority, b.Priority) })
	for _, r := range rules {
		selective := r.Src != nil || r.IifName != "" && r.IifName != "lo" || r.OifName != "" || r.Mark != 0 || r.UIDRange != nil || r.IPProto != 0 ||
			r.Dport != nil || r.Sport != nil || r.Tos != 0
		if selective != r.Invert || r.Dst != nil && !contains(r.Dst.String(), to) {
			continue
		}
		switch {
		case r.Table == unix.RT_TABLE_MAIN && r.SuppressPrefixlen < linkBits:
			return "" // also with suppress_prefixlength 0, which ignores only a default route
		case r.Table == unix.RT_TABLE_LOCAL:
		case r.Type == unix.FR_ACT_BLACKHOLE || r.Type == unix.FR_ACT_UNREACHABLE || r.Type == unix.FR_ACT_PROHIBIT:
			return fmt.Sprintf("the routing rule %d rejects its packets", r.Priority)
		default:
			var best netlink.Route
			longest := netip.Prefix{} // Its length is -1.
			for _, route := range s.routes {
				dst, ok := prefix(route)
				if route.Table == r.Table && ok && dst.Contains(to) && dst.Bits() > longest.Bits() {
					best, longest = route, dst
				}
			}
			// A route of the type throw leaves the packets to the next rule.
			if longest.Bits() >= 0 && best.Type != unix.RTN_THROW && longest.Bits() > r.SuppressPrefixlen {
				return fmt.Sprintf("the routing rule %d sends its packets to table %d, whose route to %s goes through %s, as a VPN does", r.Priority, r.Table, longest, s.link(best))
			}
		}
	}
	return ""
}

func contains(cidr string, a netip.Addr) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && p.Contains(a)
}

// prefix returns the destination of an IPv4 route; a default route may have none.
func prefix(r netlink.Route) (netip.Prefix, bool) {
	if r.Dst == nil {
		return netip.MustParsePrefix("0.0.0.0/0"), true
	}
	p, err := netip.ParsePrefix(r.Dst.String())
	return p, err == nil && p.Addr().Is4()
}

func (s state) own(r netlink.Route) bool { return strings.HasPrefix(s.links[r.LinkIndex], ownLinks) }

// link names the link of a route, or what the route does instead.
func (s state) link(r netlink.Route) string {
	if name := s.links[r.LinkIndex]; name != "" {
		return name
	}
	if len(r.MultiPath) > 0 {
		return "several links"
	}
	return "no link"
}
