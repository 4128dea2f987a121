//go:build e2e

package devices

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/lab"
)

const agentPath = "/usr/local/bin/tailgate-agent"

// occupant is a container of a user on a VF, as it should be: on CPU 2, the NUMA node of the VF. The CPUs that all containers share are
// those of the tests. Its fields are the differences.
type occupant struct {
	cpus      string
	user      int
	args, env []string
	far       bool // the function is on NUMA node 0
	// change changes what the API server knows, and begin the machine, before the inspections. end undoes that.
	change func(*proof.WorkloadPod)
	begin  func(t *testing.T, cgroup string, a *attachment)
	// check must have the state for an agent beside the container and from the node; nodeState, if set, from the node.
	check            string
	state, nodeState v1alpha1.ProofState
}

// TestInspect inspects containers on real VFs and NUMA nodes, from an ephemeral container and from the node: the right one is Proved, and
// each sabotage is Failed or Unknown in the line that it concerns.
func TestInspect(t *testing.T) {
	const (
		proved, failed, unknown = v1alpha1.ProofProved, v1alpha1.ProofFailed, v1alpha1.ProofUnknown
		spin                    = "/usr/bin/sockperf server --nonblocked -i 127.0.0.1 -p 7000"
	)
	vfs := makeVFs(t)
	t.Cleanup(func() { removeVFs(t) })
	keepInterruptsAway(t)
	write := func(file, value string) func(*testing.T, string, *attachment) {
		return func(t *testing.T, cgroup string, _ *attachment) {
			if err := os.WriteFile(filepath.Join(cgroup, file), []byte(value), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, o := range map[string]occupant{
		"right":                    {},
		"shared CPU":               {cpus: "3", check: v1alpha1.ProofCPUsExclusive, state: failed},
		"more CPUs than requested": {cpus: "2-3", check: v1alpha1.ProofCPUsExclusive, state: failed},
		"CPUs of both nodes":       {cpus: "1-2", check: v1alpha1.ProofCPUsOnNUMANode, state: failed},
		"a device of another node": {far: true, check: v1alpha1.ProofNUMALocal, state: failed},
		"a CPU of another node":    {cpus: "0", check: v1alpha1.ProofNUMALocal, state: failed},
		"memory of another node":   {begin: write("cpuset.mems", "0"), check: proof.MemoryLocal, state: failed},
		"a quota that stops it":    {args: strings.Fields(spin), begin: write("cpu.max", "20000 100000"), check: v1alpha1.ProofCPUQuota, state: failed},
		"another user":             {user: 1001, check: proof.MemoryLocal, state: unknown, nodeState: proved},
		"root":                     {user: -1, check: proof.ThreadsOnCPUs, state: proved},
		"Onload that does nothing": {env: []string{"LD_PRELOAD=/opt/libonload.so"}, check: v1alpha1.ProofAcceleration, state: failed},
		"burstable":                {change: func(p *proof.WorkloadPod) { p.QOSClass = "Burstable" }, check: v1alpha1.ProofCPUsExclusive, state: unknown},
		"a small MTU":              {change: func(p *proof.WorkloadPod) { p.MTU = 9000 }, check: v1alpha1.ProofMTU, state: failed},
		"a PF that should be":      {change: func(p *proof.WorkloadPod) { p.Function = v1alpha1.NetworkPF }, check: v1alpha1.ProofFunction, state: failed},
		"another VF by network-status": {change: func(p *proof.WorkloadPod) {
			p.Networks[0].DeviceInfo = &foreign.DeviceInfo{Type: "pci", PCI: &foreign.PCIDevice{Address: vfs[1][1]}}
		}, check: v1alpha1.ProofDevice, state: failed},
		"another VF by the kubelet":     {change: func(p *proof.WorkloadPod) { p.Devices["intel.com/igb_vf"] = []string{vfs[1][1]} }, check: v1alpha1.ProofDevice, state: failed},
		"another VF by the environment": {env: []string{"PCIDEVICE_INTEL_COM_IGB_VF=" + vfs[1][1]}, check: v1alpha1.ProofDevice, state: failed},
		"a link that is down": {begin: func(t *testing.T, _ string, a *attachment) {
			pf := physical(t)[1]
			setUp(t, pf, false)
			t.Cleanup(func() { setUp(t, pf, true) })
			eventually(t, "the VF has no link", func() bool { return linkIs(a.space, false) })
		}, check: v1alpha1.ProofLink, state: failed},
		"interrupts on its CPU": {begin: func(t *testing.T, _ string, _ *attachment) { interruptsTo(t, "2") }, check: proof.Interrupts, state: unknown}, // none comes,
	} {
		t.Run(name, func(t *testing.T) {
			function := vfs[1][0]
			if o.far {
				function = vfs[0][0]
			}
			a := attach(t, network{v1alpha1.NetworkVF, 1500, four}, v1alpha1.RoleClient, function)
			for view, lines := range o.inspect(t, name, a, function) {
				want := o.state
				if view == "node" && o.nodeState != "" {
					want = o.nodeState
				}
				states := map[v1alpha1.ProofState]bool{}
				for _, l := range lines {
					t.Logf("%s: %-8s %-15s %s", view, l.State, l.Check, l.Found)
					if l.Check == o.check {
						states[l.State] = true
					}
					// Its core has another thread, which others may use.
					if o.check == "" && (l.State == failed || l.State == unknown) && l.Check != v1alpha1.ProofSMTSiblings {
						t.Errorf("%s: %s is %s: %s", view, l.Check, l.State, l.Found)
					}
				}
				if o.check != "" && (!states[want] || states[proved] && want != proved) {
					t.Errorf("%s: %s should be %s and is %v", view, o.check, want, states)
				}
			}
		})
	}
}

// inspect starts the container, and inspects it from both views.
func (o occupant) inspect(t *testing.T, name string, a *attachment, function string) map[string][]proof.WorkloadLine {
	t.Helper()
	pod := lab.Pod{Name: "occupant-" + strings.ReplaceAll(name, " ", "-"), Space: a.space, CPUs: "2", UID: 1000, Args: []string{agentPath, "hold"}}
	if o.cpus != "" {
		pod.CPUs = o.cpus
	}
	if o.args != nil {
		pod.Args = o.args
	}
	agentUser := uint32(1000)
	switch o.user {
	case 0:
	case -1:
		pod.UID, agentUser = 0, 0
	default:
		pod.UID = o.user
	}
	pod.Env = append([]string{"PCIDEVICE_INTEL_COM_IGB_VF=" + function}, o.env...)
	process, err := pod.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Kill()
		_, _ = process.Wait()
	})
	cgroup := "/sys/fs/cgroup/" + pod.Name
	eventually(t, "the program runs", func() bool {
		pids, err := process.PIDs()
		if err != nil || len(pids) == 0 {
			return false
		}
		program, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pids[0]))
		return err == nil && strings.HasPrefix(string(program), pod.Args[0]+"\x00")
	})
	if o.begin != nil {
		o.begin(t, cgroup, a)
	}
	known := proof.WorkloadPod{
		Seen:     result.Seen{QOSClass: "Guaranteed", Requests: map[string]string{"cpu": "1"}},
		Networks: []foreign.Status{a.status}, Devices: map[string][]string{"intel.com/igb_vf": {function}}, MTU: 1500, Function: v1alpha1.NetworkVF,
	}
	if o.change != nil {
		o.change(&known)
	}
	env := []string{plan.EnvContainer + "=" + pod.Name, plan.EnvInterface + "=" + pods.Interface, "PATH=" + os.Getenv("PATH")}
	all := map[string][]proof.WorkloadLine{}
	for view, run := range map[string]func() ([]byte, error){
		"beside": func() ([]byte, error) { return process.Beside(agentUser, []string{agentPath, "inspect"}, env) },
		"node": func() ([]byte, error) {
			cmd := exec.Command(agentPath, "inspect")
			cmd.Env = append(env, plan.EnvView+"="+plan.ViewNode)
			out, err := cmd.Output()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				err = fmt.Errorf("%w: %s", err, exit.Stderr)
			}
			return out, err
		},
	} {
		out, err := run()
		if err != nil {
			t.Fatalf("%s: %v", view, err)
		}
		for found, err := range result.Inspections(bytes.NewReader(out)) {
			if err != nil {
				t.Fatalf("%s: %v", view, err)
			}
			known.NodeBootID = found.Evidence.BootID
			all[view] = proof.Workload(known, *found.Workload)
		}
		if len(all[view]) == 0 {
			t.Fatalf("%s printed no inspection: %s", view, out)
		}
	}
	return all
}

// keepInterruptsAway directs the interrupts of all devices, and of those that are attached later, to the CPUs of the tests.
func keepInterruptsAway(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/proc/irq/default_smp_affinity", []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("/proc/irq/[0-9]*/smp_affinity_list")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		_ = os.WriteFile(file, []byte("1,3"), 0o644) // not those of a timer
	}
}

// interruptsTo directs the interrupts of the first NIC to a CPU until the test ends.
func interruptsTo(t *testing.T, cpu string) {
	t.Helper()
	files, err := filepath.Glob("/sys/bus/pci/drivers/igb/0000:*/msi_irqs/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no interrupts: %v", err)
	}
	path := "/proc/irq/" + filepath.Base(files[0]) + "/smp_affinity_list"
	before := read(t, path)
	if err := os.WriteFile(path, []byte(cpu), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
			t.Error(err)
		}
	})
}
