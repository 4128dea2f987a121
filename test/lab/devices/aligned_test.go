//go:build e2e

package devices

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/test/lab"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

// enough is the number of rounds that a verdict by a limit needs.
const enough = 6

// TestAligned measures over the PFs as pods in the network of the host do, and over macvlan on the PFs. A VF of the PF, which is not
// attached, places the CPUs. The NUMA node is proved, and a limit decides. On the CPUs of the other NUMA node, nothing is concluded.
func TestAligned(t *testing.T) {
	vfs := makeVFs(t)
	near := measurement{allocated: [2]string{vfs[0][0], vfs[1][0]}}
	far := measurement{allocated: [2]string{vfs[1][0], vfs[0][0]}, cpus: [2]string{cores[1], cores[0]}}
	t.Run("macvlan", func(t *testing.T) {
		p := macvlans(t)
		near, far := near, far
		for i, pf := range physical(t) {
			near.parents[i] = netdevice(pf)
		}
		far.parents = near.parents
		p.aligned(t, near)
		p.aligned(t, far)
	})
	t.Run("the host's network", func(t *testing.T) {
		p := attachPair(t, network{v1alpha1.NetworkPF, 1500, four}, physical(t))
		p.kind = v1alpha1.NetworkHost
		p.judged(t, near, v1alpha1.VerdictPass, "")
		p.judged(t, far, v1alpha1.VerdictInconclusive, v1alpha1.WarningNUMAMismatch)
	})
	removeVFs(t)
}

// macvlans returns a pair of macvlan interfaces on the PFs. Each PF gets the name that systemd would give it, which has its place on
// the PCI bus: a pod sees no more of the interface below its own.
func macvlans(t *testing.T) *pair {
	t.Helper()
	p := &pair{network: network{kind: v1alpha1.NetworkNAD, subnet: four}}
	for i, pf := range physical(t) {
		var domain, bus, device, function int
		if _, err := fmt.Sscanf(pf, "%x:%x:%x.%x", &domain, &bus, &device, &function); err != nil {
			t.Fatal(err)
		}
		parent, err := netlink.LinkByName(netdevice(pf))
		if err != nil {
			t.Fatal(err)
		}
		setUp(t, pf, false)
		if err := netlink.LinkSetName(parent, fmt.Sprintf("enp%ds%df%d", bus, device, function)); err != nil {
			t.Fatal(err)
		}
		setUp(t, pf, true)
		above := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: pods.Interface, ParentIndex: parent.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE}
		space, err := netpair.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = space.Close() })
		if err := netlink.LinkAdd(above); err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf("192.168.40.%d", i+1)
		if err := space.Attach(netpair.Interface{Name: pods.Interface, Addresses: []string{address + "/24"}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, pf+" has a link", func() bool { return linkIs(space, true) })
		p.ends[i] = &attachment{function: pf, space: space}
		p.ends[i].status.Name, p.ends[i].status.Interface, p.ends[i].status.IPs = "perf/macvlan", pods.Interface, []string{address}
		if l, err := link(space); err == nil {
			p.ends[i].status.MAC = l.Attrs().HardwareAddr.String()
		}
	}
	return p
}

// aligned measures once, and checks the line of each end about the NUMA nodes of its CPUs, of the PF and of the borrowed device. All
// other lines are proved or noted: as one kernel simulates both nodes, also those of a run that a busy host disturbed.
func (p *pair) aligned(t *testing.T, m measurement) *outcome {
	t.Helper()
	o := p.try(t, m)
	if o.stored == nil {
		t.Fatalf("the run failed: %+v", o.words)
	}
	for name, l := range lab.Proof(o.spec, o.variant, *o.stored) {
		role, check, _ := strings.Cut(name, " ")
		if check != v1alpha1.ProofNUMALocal {
			if l.State != v1alpha1.ProofProved && l.State != v1alpha1.ProofNoted {
				t.Errorf("%s: %s: expected %q, found %q", name, l.State, l.Expected, l.Found)
			}
			continue
		}
		nic := 0
		if role == v1alpha1.RoleServer {
			nic = 1
		}
		cpus, want := nic, v1alpha1.ProofProved
		if m.cpus[nic] != "" {
			cpus, want = 1-nic, v1alpha1.ProofFailed
		}
		t.Logf("%s: %s: %s", name, l.State, l.Found)
		for _, part := range []string{
			fmt.Sprintf("CPU %d on NUMA node %d, net1", 2*cpus, cpus), fmt.Sprintf(" on %d; aligned with intel.com/igb_vf (%s) on %d", nic, m.allocated[nic], cpus),
		} {
			if l.State != want || !strings.Contains(l.Found, part) {
				t.Errorf("%s: %s, %q; want %s with %q", name, l.State, l.Found, want, part)
			}
		}
	}
	return o
}

// judged measures as many rounds as a verdict needs, and checks the outcome by a limit that any latency keeps.
func (p *pair) judged(t *testing.T, m measurement, want v1alpha1.VerdictOutcome, reason string) {
	t.Helper()
	var all []result.Stored
	var last *outcome
	for m.round = range enough {
		last = p.aligned(t, m)
		all = append(all, *last.stored)
	}
	c, err := rounds.Of(last.spec, all...)
	if err != nil {
		t.Fatal(err)
	}
	j, err := judge.Evaluate(v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricMean, Max: v1alpha1.Limit{Text: "10s"}}}}, judge.Results{Collection: c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	verdict := j.Status()
	t.Logf("%s: %s", verdict.Outcome, verdict.Message)
	if verdict.Outcome != want {
		t.Errorf("got %s: %s; want %s", verdict.Outcome, verdict.Message, want)
	}
	for _, r := range verdict.Rules {
		if reason != "" && r.Reason != reason {
			t.Errorf("rule %s: %s: %s; want %s", r.Rule, r.Reason, r.Message, reason)
		}
	}
}
