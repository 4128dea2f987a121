//go:build e2e

package devices

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/lab"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

// TestUnseen measures beside what a pod does not see by itself: threads of others on its CPU, addresses that are not on the interface by
// which the messages leave, and devices of both NUMA nodes below one interface.
func TestUnseen(t *testing.T) {
	t.Run("two processes spin on the measuring CPU", func(t *testing.T) {
		p := attachPair(t, network{v1alpha1.NetworkPF, 1500, four}, physical(t))
		for i := range 2 {
			spinner, err := lab.Pod{
				Name: fmt.Sprintf("spinner-%d", i), Space: p.ends[0].space, CPUs: "0", UID: 65532,
				Args: []string{"/usr/bin/sockperf", "server", "--nonblocked", "-i", "127.0.0.1", "-p", fmt.Sprint(7000 + i)},
			}.Start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := spinner.Kill(); err != nil {
					t.Error(err)
				}
				if out, err := spinner.Wait(); err == nil {
					t.Errorf("the spinner ended by itself: %s", out)
				}
			})
		}
		// This is no disturbance to repeat the run for.
		o := p.try(t, measurement{duration: 3 * time.Second})
		// Of the two thirds of the spinners, the proof leaves out the interrupts: a quarter of the time on a machine that others use.
		for role, least := range map[string]float64{v1alpha1.RoleClient: 25, v1alpha1.RoleServer: 0} {
			l := o.line(t, role, v1alpha1.ProofCPUsExclusive)
			part := regexp.MustCompile(`other threads ran on CPU \d for .* \((.*) %\)`).FindStringSubmatch(l.Found)
			if part == nil {
				t.Fatalf("%s: %s: no part of the time", role, l.Found)
			}
			if of, err := strconv.ParseFloat(part[1], 64); err != nil || of < least || l.State == v1alpha1.ProofProved && of > 1 {
				t.Errorf("%s: %s: %s; want at least %g %%", role, l.State, l.Found, least)
			}
		}
	})
	t.Run("the addresses are on lo", func(t *testing.T) {
		p := attachPair(t, network{v1alpha1.NetworkPF, 1500, four}, physical(t))
		p.kind = v1alpha1.NetworkHost
		onLoopback := [2]string{"10.99.0.1", "10.99.0.2"}
		for i, a := range p.ends {
			far := p.ends[1-i].status.IPs[0]
			if err := a.space.In(func() error { return route(onLoopback[i], onLoopback[1-i], far) }); err != nil {
				t.Fatal(err)
			}
		}
		for i, a := range p.ends {
			a.status.IPs = []string{onLoopback[i]}
		}
		o := p.measure(t, measurement{byRoute: true})
		for _, role := range roles {
			o.line(t, role, v1alpha1.ProofMTU)
			o.line(t, role, v1alpha1.ProofLink)
		}
		for i, e := range []result.Evidence{o.stored.Client.Evidence, o.stored.Server.Evidence} {
			if e.Interface != pods.Interface || e.MTU != 1500 || e.PCIAddress != p.ends[i].function {
				t.Errorf("%s: interface %s of device %q with an MTU of %d", roles[i], e.Interface, e.PCIAddress, e.MTU)
			}
		}
	})
	t.Run("a bond of both NUMA nodes", func(t *testing.T) {
		bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
		bond.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
		if err := netlink.LinkAdd(bond); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := netlink.LinkDel(bond); err != nil {
				t.Error(err)
			}
		})
		for _, pf := range physical(t) {
			setUp(t, pf, false)
			port, err := netlink.LinkByName(netdevice(pf))
			if err == nil {
				err = netlink.LinkSetMaster(port, bond)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := netlink.LinkSetUp(bond); err != nil {
			t.Fatal(err)
		}
		space, err := netpair.Of(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = space.Close() })
		e := inspect(t, space, "bond0").Evidence
		t.Logf("bond0: device %q by %q, NUMA node %d, %s %q", e.PCIAddress, e.PCISource, e.DeviceNUMANode, e.Facts["nic.function"], e.Facts["nic.port"])
		if e.Interface != "bond0" || e.PCIAddress != "" || e.DeviceNUMANode != -1 {
			t.Errorf("the inspected interface is %s of device %q on NUMA node %d", e.Interface, e.PCIAddress, e.DeviceNUMANode)
		}
	})
}

// route gives lo an address, and sends what is for another address by way of a third.
func route(address, to, via string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	own, err := netlink.ParseAddr(address + "/32")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	if err := netlink.AddrAdd(lo, own); err != nil {
		return err
	}
	far, err := netlink.ParseIPNet(to + "/32")
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{Dst: far, Gw: net.ParseIP(via), Src: net.ParseIP(address)})
}

// line returns a line of a run's proof, and logs it.
func (o *outcome) line(t *testing.T, role, check string) v1alpha1.ProofLine {
	t.Helper()
	if o.stored == nil {
		t.Fatalf("the run failed: %+v", o.words)
	}
	l := lab.Proof(o.spec, o.variant, *o.stored)[role+" "+check]
	t.Logf("%s %s: %s: %s", role, check, l.State, l.Found)
	return l
}

// inspect returns the report about the node, and an interface, that a pod makes for the doctor.
func inspect(t *testing.T, space *netpair.Namespace, iface string) result.Inspection {
	t.Helper()
	process, err := lab.Pod{
		Name: "inspector", Space: space, CPUs: cores[0], UID: 65532, Args: []string{"/usr/local/bin/tailgate-agent", "inspect"},
		Env: []string{plan.EnvNode + "=node", plan.EnvInterface + "=" + iface},
	}.Start()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.Wait()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := result.ReadInspection(strings.NewReader(string(out)))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return got
}
