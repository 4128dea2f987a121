//go:build e2e

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/localcluster/images"
	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// release ends what TestMain begins.
var release func()

// TestMain keeps other commands away from the machine's clusters. What is missing is installed and built before the tests, which compare
// the machine before and after, and whose time is limited. A helper is part of a test that runs, and which has done this.
func TestMain(m *testing.M) {
	var err error
	if os.Getenv(helper) != "" {
		os.Exit(m.Run())
	}
	ctx := context.Background()
	release, err = Use(ctx, os.Stderr, "make localcluster")
	if err == nil {
		err = Look(ctx, Options{Log: os.Stderr})
	}
	if err == nil {
		_, err = Binaries(ctx, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	release()
	os.Exit(code)
}

// TestMountNamespaceIsPinnedOnEachCPU pins new mount namespaces in a mount namespace that was made on each CPU, with the thread on each
// CPU. Without the attempts on other CPUs, Linux 6.18 refuses some of them.
func TestMountNamespaceIsPinnedOnEachCPU(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	on := func(cpu int) error {
		var one unix.CPUSet
		one.Set(cpu)
		return unix.SchedSetaffinity(0, &one)
	}
	refusedAtFirst := 0
	pinOnce := func(outer, inner int, onlyInner bool) error {
		dir := t.TempDir()
		requests, answers, done := make(chan int), make(chan error), make(chan error, 1)
		ready := make(chan error, 1)
		go func() { // the host's mount namespace
			done <- thread.Run(func() error {
				pin := filepath.Join(dir, "ns", "pin")
				err := errors.Join(on(outer), unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
					os.Mkdir(filepath.Join(dir, "ns"), 0o755), unix.Mount("none", filepath.Join(dir, "ns"), "tmpfs", 0, ""), os.WriteFile(pin, nil, 0o600))
				ready <- err
				if err != nil {
					return err
				}
				for tid := range requests {
					answers <- unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/mnt", tid), pin, "", unix.MS_BIND, "")
				}
				return nil
			})
		}()
		err := <-ready
		if err == nil {
			err = thread.Run(func() error {
				if err := on(inner); err != nil {
					return err
				}
				if !onlyInner {
					if err := unix.SchedSetaffinity(0, &all); err != nil {
						return err
					}
				}
				attempts := 0
				defer func() {
					if attempts > 1 {
						refusedAtFirst++
					}
				}()
				return newMountNamespace(func() error {
					attempts++
					requests <- unix.Gettid()
					return <-answers
				})
			})
		}
		close(requests)
		return errors.Join(err, <-done)
	}
	for round := range 8 {
		for outer := range runtime.NumCPU() {
			for inner := range runtime.NumCPU() {
				for _, only := range []bool{false, true} {
					if err := pinOnce(outer, inner, only); err != nil {
						t.Fatalf("round %d, namespaces of CPU %d and %d, only there: %v: %v", round, outer, inner, only, err)
					}
				}
			}
		}
	}
	t.Logf("%d of %d namespaces were refused at first", refusedAtFirst, 16*runtime.NumCPU()*runtime.NumCPU())
}

// inContainer runs a test of this program in what `docker run --privileged --cgroupns=private` gives it.
func inContainer(t *testing.T, test string) (string, error) {
	t.Helper()
	root, err := images.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	// The container sees the checkout, but not this machine's folder for temporary files.
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Join(root, "bin"), "test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "test"), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("cat /proc/self/cgroup; cd test/localcluster; %s=1 %q -test.run='^%s$' -test.count=1", helper, filepath.Join(dir, "test"), test)
	cmd := exec.CommandContext(t.Context(), "go", "run", "./test/container", "bash", "-euc", script)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestProcessesLeaveTheRootOfATree enables the controllers in a container, whose processes are in the root of its tree, and undoes it.
func TestProcessesLeaveTheRootOfATree(t *testing.T) {
	if os.Getenv(helper) != "" {
		p := paths{state: t.TempDir()}
		n := p.nodes([2][]int{{0}, {1}})[0]
		if err := ensureCgroups(p, n); err != nil {
			t.Fatal(err)
		}
		fmt.Println("during:", rootsOfTrees(t))
		if err := removeCgroups(p); err != nil {
			t.Fatal(err)
		}
		fmt.Println("after:", rootsOfTrees(t))
		return
	}
	out, err := inContainer(t, "TestProcessesLeaveTheRootOfATree")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
	var during, after string
	for line := range strings.Lines(out) {
		if text, ok := strings.CutPrefix(line, "during: "); ok {
			during = text
		}
		if text, ok := strings.CutPrefix(line, "after: "); ok {
			after = text
		}
	}
	if !strings.Contains(during, "processes false, controllers true") || strings.Contains(during, "processes true, controllers true") {
		t.Errorf("while a node exists, the trees' roots have %s", during)
	}
	if strings.Contains(after, "processes false") || strings.Contains(after, "controllers true") {
		t.Errorf("afterwards, the trees' roots have %s", after)
	}
}

func rootsOfTrees(t *testing.T) string {
	t.Helper()
	found, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, h := range found {
		if h.V2 {
			procs, err := os.ReadFile(filepath.Join(h.Dir, "cgroup.procs"))
			enabled, err2 := os.ReadFile(filepath.Join(h.Dir, "cgroup.subtree_control"))
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%s: processes %v, controllers %v", h.Dir, len(procs) > 0, len(strings.TrimSpace(string(enabled))) > 0))
		}
	}
	return strings.Join(all, "; ")
}

// runInContainer runs the test in a container and reports what failed there.
func runInContainer(t *testing.T, test string) (inside bool) {
	t.Helper()
	if os.Getenv(helper) != "" {
		return true
	}
	out, err := inContainer(t, test)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// TestUnreachable has an API server in the namespace of the control plane that this host cannot reach.
func TestUnreachable(t *testing.T) {
	if !runInContainer(t, "TestUnreachable") {
		return
	}
	c := &cluster{paths: paths{state: filepath.Join(t.TempDir(), "state")}, numa: [2][]int{{0}, {1}}}
	c.nodes = c.site.nodes(c.numa)
	if err := errors.Join(claimFolder(c.paths), prepareNetnsDir(c.paths)); err != nil {
		t.Fatal(err)
	}
	for _, name := range c.netnsNames() {
		if err := createNetns(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(ensureNetwork(c.site, c.nodes), c.checkRoute()); err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	err := thread.Run(func() (err error) {
		if err = enterNetns(c.controlPlaneNetns()); err == nil {
			listener, err = net.Listen("tcp", fmt.Sprintf("%s:%d", c.controlPlaneIP(), apiServerPort))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = server.Serve(listener) }()
	unreachableAfter = 300 * time.Millisecond
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	attempt := c.reachable(func() error {
		answer, err := client.Get("http://" + listener.Addr().String())
		if err != nil {
			return err
		}
		return answer.Body.Close()
	})
	began, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := poll(began, func() (bool, error) { return attempt() == nil, nil }); err != nil {
		t.Fatalf("before: %v", err)
	}
	_, host, err := net.ParseCIDR(c.controlPlaneIP() + "/32")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.RouteAdd(&netlink.Route{Dst: host, Type: unix.RTN_BLACKHOLE}); err != nil {
		t.Fatal(err)
	}
	if err := c.checkRoute(); err == nil || !strings.Contains(err.Error(), "no route to 198.19.0.1") {
		t.Errorf("the route: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = c.await(ctx, "the API server", nil, attempt)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "answers in its own network namespace, but this host cannot reach 198.19.0.1") {
		t.Errorf("the wait: %v", err)
	}
	if why := c.lost(err); why != "" {
		t.Errorf("the cluster is given up: %s", why)
	}
	if err := down(t.Context(), c.paths); err != nil {
		t.Error(err)
	}
}

// TestNodesInAContainer makes everything that the processes of a cluster need in a container, and removes it.
func TestNodesInAContainer(t *testing.T) {
	if !runInContainer(t, "TestNodesInAContainer") {
		return
	}
	before := observeMachine(t)
	for range 3 { // The number of the container's mount namespace is above or below those of the nodes.
		c, err := newCluster(t.Context(), Options{Log: t.Output()})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.prepare(t.Context(), "boot\nversion"); err != nil {
			t.Fatal(err)
		}
		for _, n := range c.nodes {
			if err := ensureCgroups(c.paths, n); err != nil {
				t.Fatal(err)
			}
			err := thread.Run(func() error {
				if err := enterNode(c.paths, n); err != nil {
					return err
				}
				if _, err := os.Stat("/sys/devices/system/node/node1"); err != nil {
					return err
				}
				_, err := os.Stat(filepath.Join(c.binaries, "kubelet"))
				return err
			})
			if err != nil {
				t.Errorf("%s: %v", n.Name, err)
			}
		}
		if !c.namespacesExist() {
			t.Error("namespaces are missing")
		}
		if err := unix.Unmount(c.mountNamespace(c.nodes[1]), unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		if why, err := c.repairNamespaces(); err != nil || why != "its namespaces and processes are gone" {
			t.Errorf("a cluster without processes has lost a namespace: %q, %v", why, err)
		}
		if err := Down(t.Context(), Options{Log: t.Output()}); err != nil {
			t.Fatal(err)
		}
	}
	// Only the files below the container's, and settings of the kernel, are also those of other programs of this machine.
	after := observeMachine(t)
	if diff := cmp.Diff(before, after, cmpopts.IgnoreFields(traces{}, "Files", "Sysctls")) + changes(before, after, false); diff != "" {
		t.Errorf("the container is not as it was (- before, + after):\n%s", diff)
	}
}

// TestRouteThroughAnotherLink has an address of the cluster's network on another link, as a VPN does.
func TestRouteThroughAnotherLink(t *testing.T) {
	err := thread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		s := site(0)
		if err := s.checkRoute(); err == nil || !strings.Contains(err.Error(), "no route to 198.19.0.1") {
			t.Errorf("a host without any route: %v", err)
		}
		for i, name := range []string{"vpn0", s.hostLink()} {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = name
			link := &netlink.Veth{LinkAttrs: attrs, PeerName: fmt.Sprintf("peer%d", i)}
			address, err := netlink.ParseAddr(fmt.Sprintf("198.19.0.%d/24", 5-3*i))
			if err != nil {
				return err
			}
			peer := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: link.PeerName}}
			if err := errors.Join(netlink.LinkAdd(link), netlink.LinkSetUp(link), netlink.LinkSetUp(peer), netlink.AddrAdd(link, address)); err != nil {
				return err
			}
		}
		if err := s.checkRoute(); err == nil || !strings.Contains(err.Error(), "through vpn0 and not through tailgate0") {
			t.Errorf("a VPN with the same addresses: %v", err)
		}
		vpn, err := netlink.LinkByName("vpn0")
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(vpn); err != nil {
			return err
		}
		if err := s.checkRoute(); err != nil {
			t.Errorf("without it: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFolderOnADisk mounts a disk of the user at the state folder, and one below it.
func TestFolderOnADisk(t *testing.T) {
	err := thread.Run(func() error {
		p := paths{state: filepath.Join(t.TempDir(), "state"), site: maxClusters - 1}
		extra := p.join("photos")
		if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), os.Mkdir(p.state, 0o755),
			unix.Mount("disk", p.state, "tmpfs", 0, ""), os.Mkdir(extra, 0o755), unix.Mount("disk", extra, "tmpfs", 0, ""), claimFolder(p), ensureNamespaceDir(p)); err != nil {
			return err
		}
		if err := errors.Join(unmountOwn(p), removeFolder(p)); err != nil {
			return err
		}
		if !isMountOf(p.state, unix.TMPFS_MAGIC) || !exists(extra) || exists(p.namespaces()) {
			t.Error("the user's disk is not as it was")
		}
		return errors.Join(unix.Unmount(extra, 0), unix.Unmount(p.state, 0))
	})
	if err != nil {
		t.Fatal(err)
	}
}
