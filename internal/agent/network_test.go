package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

// addresses returns the addresses of an interface.
func addresses(t *testing.T, list ...string) []net.Addr {
	t.Helper()
	var all []net.Addr
	for _, s := range list {
		ip, subnet, err := net.ParseCIDR(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &net.IPNet{IP: ip, Mask: subnet.Mask})
	}
	return all
}

func TestChoiceOfAnAddress(t *testing.T) {
	cases := map[string]struct {
		addresses []string
		// server is the address of a client's server; empty: the choice is the server's.
		server string
		want   string
	}{
		"the server's, of one":                       {addresses: []string{"192.0.2.2/24"}, want: "192.0.2.2"},
		"the server's, of two families":              {addresses: []string{"fd00::2/64", "192.0.2.2/24", "198.51.100.2/24"}, want: "192.0.2.2"},
		"the server's, without IPv4":                 {addresses: []string{"fe80::2/64", "fd00::2/64", "fd01::2/64"}, want: "fd00::2"},
		"the server's, of those of the link":         {addresses: []string{"fe80::2/64", "169.254.1.2/16"}},
		"the server's, without one":                  {},
		"the client's, in the server's subnet":       {addresses: []string{"192.0.2.2/24", "198.51.100.2/24"}, server: "198.51.100.9", want: "198.51.100.2"},
		"the client's, behind a router":              {addresses: []string{"fd00::2/64", "192.0.2.2/24", "198.51.100.2/24"}, server: "203.0.113.9", want: "192.0.2.2"},
		"the client's, of IPv6":                      {addresses: []string{"192.0.2.2/24", "fe80::2/64", "fd00::2/64"}, server: "fd07::9", want: "fd00::2"},
		"the client's, of the wrong family":          {addresses: []string{"192.0.2.2/24"}, server: "fd07::9"},
		"the client's, of the wrong family, in IPv4": {addresses: []string{"fd00::2/64"}, server: "192.0.2.9"},
		"the client's, of one that only it knows":    {addresses: []string{"169.254.1.2/16"}, server: "192.0.2.9"},
		"the client's, without one":                  {server: "192.0.2.9"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got net.IP
			if c.server == "" {
				got = preferred(addresses(t, c.addresses...))
			} else {
				got = towards(net.ParseIP(c.server), addresses(t, c.addresses...))
			}
			if want := net.ParseIP(c.want); !got.Equal(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestLeavesBy(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	loopback := net.IPv4(127, 0, 0, 1)
	for name, from := range map[string]net.IP{"bound": net.IPv4(127, 0, 0, 9), "not bound": nil} {
		if err := leavesBy(*lo, from, loopback); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantOutcome(t, leavesBy(net.Interface{Name: "net1", Index: lo.Index + 1000}, from, loopback), v1alpha1.OutcomeWrongNetwork, "leave by lo, not by net1")
	}
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		if err := leavesBy(*lo, net.IPv6loopback, net.IPv6loopback); err != nil {
			t.Error(err)
		}
	}
	// No interface has this address here.
	wantOutcome(t, leavesBy(*lo, net.IPv4(192, 0, 2, 77), loopback), v1alpha1.OutcomeWrongNetwork, "no route to 127.0.0.1")
}

// The address of a node may be on lo, or on a dummy interface, as for nodes that announce it by BGP: messages leave by a NIC.
func TestLeavingBy(t *testing.T) {
	hosts := newHosts(t)
	on := func(name, address string) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(link), netlink.AddrAdd(link, &netlink.Addr{IPNet: cidr(t, address)}))
	}
	if err := hosts.Client.In(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "dummy0"
		// A kernel without the module dummy has lo alone.
		if err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: attrs}); err == nil {
			if err := on("dummy0", "203.0.113.185/32"); err != nil {
				return err
			}
		}
		if err := on(loopback, "203.0.113.184/32"); err != nil {
			return err
		}
		for _, from := range []string{"192.0.2.1", "203.0.113.184", "203.0.113.185"} {
			if _, err := interfaceOf(net.ParseIP(from)); err != nil {
				continue
			}
			iface, err := leavingBy(net.ParseIP(from), net.ParseIP("192.0.2.2"))
			if err != nil || iface.Name != "enp1" {
				t.Errorf("from %s by %s, %v", from, iface.Name, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestInterfaceWithoutAnAddress(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := &endpoint{Agent: &Agent{Task: plan.Task{Interface: "lo"}}}
	_, _, err := e.addressOn(ctx, "address", func([]net.Addr) net.IP { return nil })
	wantOutcome(t, err, v1alpha1.OutcomeWrongNetwork, "lo has no address", "127.0.0.1/8")
}

// endless, in the environment of a hostAgent, selects a tool that never ends by itself, and deadlines of an hour.
const endless = "TAILGATE_TEST_ENDLESS"

// hostAgent runs one end of TestNamedInterface, in its own network namespace. Its tool binds itself to the last argument,
// if there is one.
func hostAgent(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	role, dir, iface, server, own := args[0], args[1], args[2], args[3], args[4]
	count, limit := samples, time.Minute
	if os.Getenv(endless) != "" {
		count, limit = math.MaxInt, time.Hour
	}
	pinging := fakeTool{client: asTool("ping", net.JoinHostPort(server, fmt.Sprint(plan.ToolPort)), fmt.Sprint(count), "raw", own), deadline: limit}
	pinging.client.Routed = own == ""
	a := &Agent{
		Task: plan.Task{
			Run: "x-r1", Attempt: 1, Role: role, Tool: v1alpha1.ToolSockperf, Interface: iface,
			Cells:    []tool.Cell{{Name: "tcp-1", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 1}}},
			Deadline: limit, ServerAddress: server,
		},
		Key: "key", Scratch: dir, Log: os.Stdout, Root: "/", TerminationLog: filepath.Join(dir, "termination-log"),
		Tools: tool.NewRegistry(pinging),
	}
	if task := os.Getenv(realTask); task != "" {
		a.Task, a.Tools = plan.Task{}, all.Registry()
		if err := json.Unmarshal([]byte(task), &a.Task); err != nil {
			return err
		}
		a.Task.Role, a.Task.Interface, a.Task.ServerAddress = role, iface, server
	}
	return a.Run(ctx)
}

// newHosts makes two hosts with three cables between them. Only the client's side has the second cable's subnet, but the
// server knows the route back over the first. The third has the same address at both ends.
func newHosts(t *testing.T) *netpair.Pair {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making network namespaces takes root")
	}
	hosts, err := netpair.New(
		netpair.Interface{Name: "enp1", Addresses: []string{"192.0.2.1/24"}},
		netpair.Interface{Name: "enp2", Addresses: []string{"192.0.2.2/24"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hosts.Close(); err != nil {
			t.Error(err)
		}
	})
	twin := netpair.Interface{Name: "twin", Addresses: []string{"203.0.113.1/24"}}
	if err := errors.Join(
		hosts.Join(netpair.Interface{Name: "spare", Addresses: []string{"198.51.100.1/24"}}, netpair.Interface{Name: "spare"}),
		hosts.Join(twin, twin),
		hosts.Server.In(func() error { return netlink.RouteAdd(route(t, "198.51.100.0/24", "enp2")) }),
	); err != nil {
		t.Fatal(err)
	}
	return hosts
}

// route returns a route without a gateway, through an interface of the thread's network namespace.
func route(t *testing.T, subnet, iface string) *netlink.Route {
	t.Helper()
	link, err := netlink.LinkByName(iface)
	if err != nil {
		t.Fatal(err)
	}
	return &netlink.Route{Dst: cidr(t, subnet), LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK}
}

func cidr(t *testing.T, subnet string) *net.IPNet {
	t.Helper()
	n, err := netlink.ParseIPNet(subnet)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// end is an agent that runs in a namespace.
type end struct {
	cmd *exec.Cmd
	log *strings.Builder
	dir string
}

func startEnd(t *testing.T, namespace *netpair.Namespace, role, iface, server, own string) end {
	t.Helper()
	e := end{log: &strings.Builder{}, dir: t.TempDir()}
	e.cmd = exec.Command(os.Args[0], role, e.dir, iface, server, own)
	e.cmd.Env = append(os.Environ(), helperVariable+"=host-agent")
	e.cmd.Stdout = e.log
	if err := namespace.Start(e.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.cmd.Process.Signal(syscall.SIGTERM) })
	return e
}

// awaitListening waits until a process listens on a port in the agent's namespace.
func (e end) awaitListening(t *testing.T, port int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		table, err := os.Open(fmt.Sprintf("/proc/%d/net/tcp", e.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		listening, err := hasListener(table, v1alpha1.ProtocolTCP, port)
		table.Close()
		if err != nil {
			t.Fatal(err)
		}
		if listening {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing listens on port %d", port)
		}
	}
}

// ending waits for the end of the agent and returns what it left behind.
func (e end) ending(t *testing.T) ending {
	t.Helper()
	_ = e.cmd.Wait()
	data, err := os.ReadFile(filepath.Join(e.dir, "termination-log"))
	if err != nil {
		t.Fatal(err)
	}
	termination, err := result.ParseTermination(string(data))
	if err != nil {
		t.Fatal(err)
	}
	return ending{log: e.log.String(), termination: termination}
}

// As on a host's network, each end has several interfaces, and the task names the one to measure.
func TestNamedInterface(t *testing.T) {
	hosts := newHosts(t)
	measure := func(t *testing.T, iface, own string) (server, client ending) {
		s := startEnd(t, hosts.Server, v1alpha1.RoleServer, "enp2", "", "")
		client = startEnd(t, hosts.Client, v1alpha1.RoleClient, iface, "192.0.2.2", own).ending(t)
		return s.ending(t), client
	}
	t.Run("the right one", func(t *testing.T) {
		s, c := measure(t, "enp1", "")
		server, client := document(t, s), document(t, c)
		if address, err := result.ParseListen(strings.NewReader(s.log)); err != nil || address.String() != "192.0.2.2" {
			t.Errorf("the log tells %s, %v:\n%s", address, err, s.log)
		}
		for want, e := range map[string]result.Evidence{"enp1 192.0.2.1": client.Evidence, "enp2 192.0.2.2": server.Evidence} {
			if got := e.Interface + " " + e.Address; got != want || len(e.MAC) != 17 {
				t.Errorf("measured over %s %s, want %s", got, e.MAC, want)
			}
		}
	})
	t.Run("one that leads elsewhere", func(t *testing.T) {
		s, c := measure(t, "spare", "198.51.100.1")
		if c.termination.Reason != v1alpha1.OutcomeWrongNetwork || !strings.Contains(c.termination.Message, "to 192.0.2.2 would leave by enp1, not by spare") {
			t.Errorf("the client ended with %+v", c.termination)
		}
		if s.termination.Reason != v1alpha1.OutcomePeerUnreachable {
			t.Errorf("the server ended with %+v", s.termination)
		}
	})
	t.Run("one that does not exist", func(t *testing.T) {
		e := startEnd(t, hosts.Server, v1alpha1.RoleServer, "enp7", "", "").ending(t)
		if e.termination.Reason != v1alpha1.OutcomeWrongNetwork || !strings.Contains(e.termination.Message, "no interface enp7, only lo, ") ||
			!strings.Contains(e.termination.Message, "enp2") {
			t.Errorf("the server ended with %+v", e.termination)
		}
	})
	t.Run("one with the same address at both ends", func(t *testing.T) {
		s := startEnd(t, hosts.Server, v1alpha1.RoleServer, "twin", "", "")
		c := startEnd(t, hosts.Client, v1alpha1.RoleClient, "twin", "203.0.113.1", "").ending(t)
		if c.termination.Reason != v1alpha1.OutcomeWrongNetwork || !strings.Contains(c.termination.Message, "twin of both ends has the address 203.0.113.1") {
			t.Errorf("the client ended with %+v", c.termination)
		}
		// The client never connects.
		s.awaitListening(t, plan.ControlPort)
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if e := s.ending(t); e.termination.Reason != v1alpha1.OutcomePodLost {
			t.Errorf("the server ended with %+v", e.termination)
		}
	})
	// Traffic that is bound to the address takes the right route, all other traffic the other.
	if err := hosts.Client.In(func() error {
		const table = 100
		rule := netlink.NewRule()
		rule.Src, rule.Table = cidr(t, "192.0.2.1/32"), table
		right := route(t, "192.0.2.0/24", "enp1")
		right.Table = table
		return errors.Join(netlink.RuleAdd(rule), netlink.RouteAdd(right), netlink.RouteAdd(route(t, "192.0.2.2/32", "spare")))
	}); err != nil {
		t.Fatal(err)
	}
	t.Run("one to which only a rule for its address leads, and a tool that binds", func(t *testing.T) {
		_, c := measure(t, "enp1", "192.0.2.1")
		document(t, c)
	})
	t.Run("one to which only a rule for its address leads, and a tool that does not", func(t *testing.T) {
		_, c := measure(t, "enp1", "")
		if c.termination.Reason != v1alpha1.OutcomeWrongNetwork || !strings.Contains(c.termination.Message, "leave by spare, not by enp1") {
			t.Errorf("the client ended with %+v", c.termination)
		}
	})
}

// The kernel refuses to bind to an IPv6 address while the link is down, and for a second after it came up.
func TestAddressOfALinkThatIsDown(t *testing.T) {
	hosts := newHosts(t)
	if err := hosts.Join(netpair.Interface{Name: "six"}, netpair.Interface{Name: "six"}); err != nil {
		t.Fatal(err)
	}
	set := func(n *netpair.Namespace, address string, change func(netlink.Link) error) {
		t.Helper()
		if err := n.In(func() error {
			link, err := netlink.LinkByName("six")
			if err != nil {
				return err
			}
			if address == "" {
				return change(link)
			}
			return errors.Join(netlink.AddrAdd(link, &netlink.Addr{IPNet: cidr(t, address)}), change(link))
		}); err != nil {
			t.Fatal(err)
		}
	}
	set(hosts.Client, "", netlink.LinkSetDown)
	set(hosts.Server, "fd00::2/64", netlink.LinkSetUp)
	s := startEnd(t, hosts.Server, v1alpha1.RoleServer, "six", "", "")
	c := startEnd(t, hosts.Client, v1alpha1.RoleClient, "six", "fd00::2", "fd00::1")
	set(hosts.Client, "fd00::1/64", netlink.LinkSetUp)
	server, client := document(t, s.ending(t)), document(t, c.ending(t))
	if server.Evidence.Address != "fd00::2" || client.Evidence.Address != "fd00::1" {
		t.Errorf("measured from %s to %s", client.Evidence.Address, server.Evidence.Address)
	}
}

// The tools and the agents' connection do not notice that the interface was deleted, and would wait for their deadlines.
func TestInterfaceDisappears(t *testing.T) {
	hosts := newHosts(t)
	t.Setenv(endless, "1")
	s := startEnd(t, hosts.Server, v1alpha1.RoleServer, "enp2", "", "")
	c := startEnd(t, hosts.Client, v1alpha1.RoleClient, "enp1", "192.0.2.2", "")
	s.awaitListening(t, plan.ToolPort)
	if err := hosts.Client.In(func() error {
		link, err := netlink.LinkByName("enp1")
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	}); err != nil {
		t.Fatal(err)
	}
	for iface, e := range map[string]end{"enp1": c, "enp2": s} {
		timer := time.AfterFunc(patience, func() { _ = e.cmd.Process.Kill() })
		if got := e.ending(t).termination; got.Reason != v1alpha1.OutcomeInterfaceLost || !strings.Contains(got.Message, "interface "+iface+" disappeared during the run") {
			t.Errorf("the end with %s ended with %+v", iface, got)
		}
		timer.Stop()
	}
}

// fourTool cannot use IPv6.
type fourTool struct{ fakeTool }

func (fourTool) Limits() tool.Base { return tool.Base{IPv4Only: true} }

func TestToolThatCannotUseTheAddress(t *testing.T) {
	restore(t)
	e := run(t.Context(), t, v1alpha1.RoleServer, fourTool{}, func(a *Agent) { a.PodIP = "::1" })
	wantOutcome(t, e.err, v1alpha1.OutcomeWrongNetwork, "IPv4 addresses only", "lo has ::1")
}

func TestInterfaceIsGone(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		iface net.Interface
		want  bool
	}{
		"there":         {*lo, false},
		"gone":          {net.Interface{Name: "net1", Index: lo.Index + 1000}, true},
		"not known yet": {net.Interface{}, false},
	} {
		if got := (&endpoint{iface: c.iface}).interfaceGone(); got != c.want {
			t.Errorf("%s: gone is %t", name, got)
		}
	}
}
