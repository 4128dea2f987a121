//go:build e2e

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/lab/machine"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

func observeMachine(t *testing.T) traces {
	t.Helper()
	var m traces
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, mount := range parseMountInfo(string(content)) {
		m.Mounts = append(m.Mounts, fmt.Sprint(mount))
	}
	m.Netns = names(t, netnsDir)
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		m.Links = append(m.Links, link.Attrs().Name)
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		m.Addresses = append(m.Addresses, address.IPNet.String())
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range routes {
		m.Routes = append(m.Routes, route.String())
	}
	found, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range found {
		err := filepath.WalkDir(h.Dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				m.Cgroups = append(m.Cgroups, path)
			}
			return nil // Cgroups of other programs come and go.
		})
		if err != nil {
			t.Fatal(err)
		}
		if h.V2 {
			enabled, err := os.ReadFile(filepath.Join(h.Dir, "cgroup.subtree_control"))
			if err != nil {
				t.Fatal(err)
			}
			m.Cgroups = append(m.Cgroups, h.Dir+" enables "+string(enabled))
		}
	}
	for _, args := range [][]string{{"iptables-save"}, {"ip6tables-save"}, {"nft", "list", "ruleset"}} {
		output, err := exec.Command(args[0], args[1:]...).Output()
		if err != nil {
			m.Rules = append(m.Rules, fmt.Sprintf("%s does not run here: %v", args[0], err))
			continue
		}
		for line := range strings.Lines(string(output)) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") { // Dates and counters.
				m.Rules = append(m.Rules, line)
			}
		}
	}
	for _, name := range []string{"ip_tables_names", "ip6_tables_names"} {
		tables, err := os.ReadFile("/proc/net/" + name)
		if err == nil { // Otherwise, the kernel has none.
			m.Rules = append(m.Rules, name+" "+string(tables))
		}
	}
	for _, dir := range []string{
		"/etc", "/opt", "/run", "/usr/libexec", "/usr/libexec/kubernetes", "/var/lib", "/var/log", "/var/lib/cni", "/run/containerd",
	} {
		for _, name := range names(t, dir) {
			m.Files = append(m.Files, filepath.Join(dir, name))
		}
	}
	for _, name := range []string{
		"net/ipv4/ip_forward", "net/ipv4/conf/all/rp_filter", "net/ipv4/conf/all/forwarding", "vm/overcommit_memory",
		"vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
		"net/netfilter/nf_conntrack_max",
	} {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err == nil {
			m.Sysctls = append(m.Sysctls, name+" = "+string(value))
		}
	}
	for _, lines := range []*[]string{
		&m.Mounts, &m.Netns, &m.Links, &m.Addresses, &m.Routes, &m.Cgroups, &m.Rules, &m.Files, &m.Sysctls,
	} {
		slices.Sort(*lines)
	}
	return m
}

// names lists a folder, which may be missing.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var list []string
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return list
}

// processesOfCluster does not search as Down does: it lists all processes that have the mark of a cluster, are in a cgroup of its nodes,
// or run a command that was built for it. API servers in the machine's own network namespace belong to other tests, which run at the
// same time; a container engine of the machine runs commands of its own.
func processesOfCluster(t *testing.T) []string {
	t.Helper()
	own, ok := inspect(os.Getpid())
	if !ok || own.NetNS == 0 {
		t.Fatal("this process cannot be inspected")
	}
	built, err := Binaries(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	processes, err := findProcesses(func(f found) bool {
		if f.State != "" || strings.Contains(f.Cgroup, site(0).cgroupPrefix()) {
			return true
		}
		exe := identify(fmt.Sprintf("/proc/%d/exe", f.PID))
		switch f.Exe {
		case "etcd", "kube-apiserver":
			return f.NetNS != own.NetNS && exe == identify(filepath.Join(built, f.Exe))
		case "kube-controller-manager", "kube-scheduler", "kubelet", "containerd", "containerd-shim-runc-v2", "runc":
			return exe == identify(filepath.Join(built, f.Exe))
		case "pause", "deviceplugin", "multinet", "sriov":
			return exe == fileID{} // Down deletes the files of these.
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range processes {
		list = append(list, f.Exe)
	}
	slices.Sort(list)
	return list
}

// startHolder starts a pod that holds a VF and a CPU, and waits until it runs.
func startHolder(ctx context.Context, t *testing.T, o Options) {
	t.Helper()
	c, err := existing(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	client, err := c.client()
	if err != nil {
		t.Fatal(err)
	}
	createPod(ctx, t, client, "holder", "sf-vf", ResourceVF)
	podInPhase(ctx, t, client, "holder", corev1.PodRunning)
}

func TestDownLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // Most of it is for building with an empty cache.
	defer cancel()
	o := Options{Log: t.Output()}
	if err := Down(ctx, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Down(context.Background(), o); err != nil {
			t.Error(err)
		}
	})
	before, processesBefore := observeMachine(t), processesOfCluster(t)

	if err := Up(ctx, o); err != nil {
		t.Fatal(err)
	}
	startHolder(ctx, t, o)
	// The ip command does this before it creates a namespace. It must not cover the cluster's namespaces.
	if err := unix.Mount("", filepath.Clean(netnsDir), "none", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		t.Errorf("the folder of network namespaces is no mount point of its own: %v", err)
	}
	for _, name := range []string{"kubelet-node-a", "containerd-node-a", "deviceplugin-node-b", APIServer} {
		if err := KillProcess(ctx, o, name); err != nil {
			t.Fatal(err)
		}
	}
	mine := ours(o.paths()) // A container engine of the machine has shims, too.
	shim := func(f found) bool { return f.Exe == "containerd-shim-runc-v2" && mine(f) }
	if err := killAll(ctx, shim); err != nil {
		t.Fatal(err)
	}
	if err := Down(ctx, o); err != nil {
		t.Fatal(err)
	}
	nothingIsLeft(ctx, t, before, processesBefore)
	if err := Down(ctx, o); err != nil {
		t.Errorf("a second Down: %v", err)
	}
}

// nothingIsLeft compares the machine and its processes with what was there before.
func nothingIsLeft(ctx context.Context, t *testing.T, before traces, processesBefore []string) {
	t.Helper()
	// Namespaces, and the links in them, end a moment after the last process in them.
	var after traces
	wait, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	err := poll(wait, func() (bool, error) {
		after = observeMachine(t)
		return changes(before, after, false) == "", nil
	})
	if err != nil {
		t.Errorf("the machine is not as it was (- before, + after):\n%s", changes(before, after, false))
	}
	if diff := cmp.Diff(processesBefore, processesOfCluster(t)); diff != "" {
		t.Errorf("processes (- before, + after):\n%s", diff)
	}
}

// interruptions are how commands end before their time: by Ctrl-C, by the end of a terminal, by a service manager, and by a kernel without
// memory.
var interruptions = []unix.Signal{unix.SIGINT, unix.SIGHUP, unix.SIGTERM, unix.SIGKILL}

// interrupt starts a command in a process group of its own, waits for a random part of a time, and sends a random signal to the group, or
// only to the command. It returns what it did.
func interrupt(t *testing.T, cmd *exec.Cmd, most time.Duration) string {
	t.Helper()
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	moment, signal := rand.N(most), interruptions[rand.N(len(interruptions))]
	select {
	case <-t.Context().Done():
	case <-time.After(moment):
	}
	target, to := cmd.Process.Pid, "the command"
	if rand.N(2) == 0 {
		target, to = -target, "its process group"
	}
	if err := unix.Kill(target, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatal(err)
	}
	err := cmd.Wait()
	return fmt.Sprintf("%s after %s to %s: %v", unix.SignalName(signal), moment.Round(time.Millisecond), to, err)
}

// TestInterrupted interrupts the start of a cluster, and its removal, at five random moments each: Down leaves nothing.
func TestInterrupted(t *testing.T) {
	o := Options{Log: t.Output()}
	if verb := os.Getenv(helper); verb != "" { // It ends without words of a test, which would be taken for those of the one that waits.
		ctx, stop := signal.NotifyContext(t.Context(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		err := map[string]func(context.Context, Options) error{"up": Up, "down": Down}[verb](ctx, Options{Log: os.Stderr})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := Down(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Down(context.Background(), o); err != nil {
			t.Error(err)
		}
	})
	before, processesBefore := observeMachine(t), processesOfCluster(t)
	for range 5 {
		for _, step := range []struct {
			verb string
			most time.Duration // that it takes on two cores
		}{{"up", 15 * time.Second}, {"down", 2 * time.Second}} {
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestInterrupted$")
			cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), helper+"="+step.verb), t.Output(), t.Output()
			t.Logf("%s: %s", step.verb, interrupt(t, cmd, step.most))
		}
		if err := Down(t.Context(), o); err != nil {
			t.Error(err)
		}
		nothingIsLeft(t.Context(), t, before, processesBefore)
	}
}

// TestInterruptedTargets does the same with the targets of the Makefile, and the command that their output names.
func TestInterruptedTargets(t *testing.T) {
	moments, err := strconv.Atoi(os.Getenv("INTERRUPTIONS"))
	if err != nil {
		t.Skip("it takes half an hour: see make interruptions")
	}
	// The targets take the machine's clusters for themselves.
	release()
	defer func() {
		var err error
		if release, err = Use(context.Background(), os.Stderr, "make interruptions"); err != nil {
			t.Error(err)
		}
	}()
	root, err := images.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	make := func(target string, out io.Writer) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "make", target)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = root, environment.Tool(), out, out
		cmd.WaitDelay = 5 * time.Second // What goes on without make has no reader.
		return cmd
	}
	const remove = "cluster-down"
	if err := make(remove, t.Output()).Run(); err != nil {
		t.Fatal(err)
	}
	before, processesBefore := observeMachine(t), processesOfCluster(t)
	for target, most := range map[string]time.Duration{"demo": 90 * time.Second, "demo-debian13": 3 * time.Minute, "demo-container": 3 * time.Minute} {
		t.Run(target, func(t *testing.T) {
			for range moments {
				t.Log(interrupt(t, make(target, t.Output()), most))
				if err := make(remove, t.Output()).Run(); err != nil {
					t.Error(err)
				}
				nothingIsLeft(t.Context(), t, before, processesBefore)
				if left := names(t, os.TempDir()); len(left) > 0 {
					t.Errorf("left in the folder for temporary files: %q", left)
				}
			}
		})
	}
}

// TestClusters runs two tests of a minute each in parallel, each with its own cluster.
func TestClusters(t *testing.T) {
	o := Options{Log: t.Output()}
	t.Cleanup(func() {
		if err := Down(context.Background(), o); err != nil {
			t.Error(err)
		}
	})
	if err := Up(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Run("pods", func(t *testing.T) {
		t.Parallel()
		testPods(t, Options{Log: t.Output()})
	})
	t.Run("repairs", func(t *testing.T) {
		t.Parallel()
		// Not cluster 0, because its Down also takes down the other one.
		testUpRepairs(t, Options{Log: t.Output(), Number: 1})
	})
}

// testUpRepairs kills parts of a running cluster, and expects Up to restore the same cluster.
func testUpRepairs(t *testing.T, o Options) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := Up(ctx, o); err != nil {
		t.Fatal(err)
	}
	c, err := existing(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, pr := range c.processes() {
		t.Run(pr.Name, func(t *testing.T) {
			if err := KillProcess(ctx, o, pr.Name); err != nil {
				t.Fatal(err)
			}
			if err := Up(ctx, o); err != nil {
				t.Fatal(err)
			}
			if err := Status(ctx, o, t.Output()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a guest that does not boot", func(t *testing.T) { testBoot(ctx, t, *c) })
	t.Run("a VF", func(t *testing.T) {
		nw, err := openNetwork(c.site, c.nodes)
		if err != nil {
			t.Fatal(err)
		}
		defer nw.close()
		vf, err := nw.nodes["node-b"].LinkByName("ens1f0v2")
		if err != nil {
			t.Fatal(err)
		}
		if err := nw.nodes["node-b"].LinkDel(vf); err != nil {
			t.Fatal(err)
		}
		if err := Up(ctx, o); err != nil {
			t.Fatal(err)
		}
		if _, err := nw.nodes["node-b"].LinkByName("ens1f0v2"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a network namespace", func(t *testing.T) {
		if err := exec.Command("umount", netnsDir+c.nodes[1].netns()).Run(); err != nil {
			t.Fatal(err)
		}
		if err := Up(ctx, o); err != nil {
			t.Fatal(err)
		}
		if err := Status(ctx, o, t.Output()); err != nil {
			t.Error(err)
		}
	})
}

// testBoot starts three commands: the first answers after its second start, the second never answers, and the third ends.
func testBoot(ctx context.Context, t *testing.T, c cluster) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, made := reserved.Addr().String(), 0
	silent := func() process {
		made++
		return process{Name: "silent", Args: []string{sleep, "600"}}
	}
	if err := reserved.Close(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		if err := killAll(context.Background(), c.runs(silent().Name, sleep)); err != nil {
			t.Error(err)
		}
	}
	defer end()

	var again []string
	c.options.Log = writerFunc(func(text []byte) (int, error) {
		again = append(again, string(text))
		return len(text), nil
	})
	if err := c.boot(ctx, silent, address, time.Second); !errors.Is(err, machine.ErrNoBoot) {
		t.Errorf("a command that never answers: %v", err)
	}
	if len(again) != machine.MaxBoots-1 || made != machine.MaxBoots {
		t.Errorf("a command that never answers was made %d times, and started again: %q", made, again)
	}
	end()
	ending := func() process { return process{Name: "ending", Args: []string{sleep, "0.1"}} }
	if err := c.boot(ctx, ending, address, time.Minute); !errors.Is(err, machine.ErrNoBoot) {
		t.Errorf("a command that ends: %v", err)
	}

	var listener net.Listener
	c.options.Log = writerFunc(func(text []byte) (n int, err error) {
		listener, err = net.Listen("tcp", address)
		return len(text), err
	})
	if err := c.boot(ctx, silent, address, time.Second); err != nil {
		t.Errorf("a command that answers after its second start: %v", err)
	}
	if listener == nil {
		t.Fatal("the command was not started again")
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }
