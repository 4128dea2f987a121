package localcluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// TestCgoProgramsOfEachSystem gives a program that is linked with the C library another place in the cache on another system.
func TestCgoProgramsOfEachSystem(t *testing.T) {
	seen := map[string]string{}
	for name, files := range map[string]map[string]string{
		"Debian 12":           {"etc/os-release": "ID=debian\nVERSION_ID=\"12\"\n", "lib64/ld-linux-x86-64.so.2": ""},
		"Debian 13":           {"etc/os-release": "ID=debian\nVERSION_ID=\"13\"\n", "lib64/ld-linux-x86-64.so.2": ""},
		"Fedora, without etc": {"usr/lib/os-release": "ID=fedora\nVERSION_ID=43\n", "lib64/ld-linux-x86-64.so.2": ""},
		"glibc, no name":      {"lib64/ld-linux-x86-64.so.2": ""},
		"musl, no name":       {"lib/ld-musl-x86_64.so.1": ""},
	} {
		root := t.TempDir()
		for path, content := range files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		id := system(root)
		if other, ok := seen[id]; ok {
			t.Errorf("%s has the same %q as %s", name, id, other)
		}
		seen[id] = name
	}
}

func TestSplitCPUs(t *testing.T) {
	for _, tt := range []struct {
		name    string
		online  string
		want    [2][]int
		wantErr string
	}{
		{"two cores", "0-1", [2][]int{{0}, {1}}, ""},
		{"an odd number", "0-2", [2][]int{{0}, {1, 2}}, ""},
		{"holes", "0,2-4", [2][]int{{0, 2}, {3, 4}}, ""},
		{"one core", "0", [2][]int{}, "two CPU cores are needed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			online, err := result.ParseCPUs(tt.online)
			if err != nil {
				t.Fatal(err)
			}
			got, err := splitCPUs(online.List())
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("got error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCPUMap(t *testing.T) {
	for _, tt := range []struct {
		cpus []int
		want string
	}{
		{[]int{0}, "00000001"},
		{[]int{1, 3}, "0000000a"},
		{[]int{0, 33}, "00000002,00000001"},
	} {
		if got := cpuMap(tt.cpus); got != tt.want {
			t.Errorf("cpuMap(%v) = %s, want %s", tt.cpus, got, tt.want)
		}
	}
}

// TestNodesShareNoCPU checks a requirement of all measurements, for machines of several sizes.
func TestNodesShareNoCPU(t *testing.T) {
	for _, online := range []string{"0-1", "0-2", "0-7", "0,4-9"} {
		cpus, err := result.ParseCPUs(online)
		if err != nil {
			t.Fatal(err)
		}
		numa, err := splitCPUs(cpus.List())
		if err != nil {
			t.Fatal(err)
		}
		owner := map[int]string{}
		for _, n := range site(0).nodes(numa) {
			for _, cpu := range n.Exclusive {
				if owner[cpu] != "" {
					t.Errorf("on CPUs %s, both %s and %s give CPU %d to pods", online, owner[cpu], n.Name, cpu)
				}
				owner[cpu] = n.Name
			}
			if diff := cmp.Diff(numa[n.NearNUMA], n.Exclusive); diff != "" {
				t.Errorf("on CPUs %s, the exclusive CPUs of %s are not on the NUMA node of its VFs: %s", online, n.Name, diff)
			}
			if len(n.Reserved)+len(n.Exclusive) != cpus.Size() {
				t.Errorf("on CPUs %s, %s has %v and %v", online, n.Name, n.Reserved, n.Exclusive)
			}
		}
	}
}

// TestPoolsShareNoDevice checks that no device is in two pools, and that no pool offers a PF with VFs, which the SR-IOV device plugin
// never does.
func TestPoolsShareNoDevice(t *testing.T) {
	for _, n := range site(0).nodes([2][]int{{0}, {1}}) {
		owner := map[string]string{}
		for _, p := range n.pools() {
			if len(p.Devices) == 0 {
				t.Errorf("%s of %s has no devices", p.Resource, n.Name)
			}
			for _, d := range p.Devices {
				if owner[d.BDF] != "" {
					t.Errorf("%s of %s is in %s and %s", d.BDF, n.Name, owner[d.BDF], p.Resource)
				}
				owner[d.BDF] = p.Resource
				if len(d.VFs) > 0 {
					t.Errorf("%s has %s, a PF with VFs", p.Resource, d.Name)
				}
			}
		}
	}
}

// TestGeneratedFiles compares the generated files of a node on a four-core machine with testdata.
func TestGeneratedFiles(t *testing.T) {
	p := paths{state: "/state"}
	numa := [2][]int{{0, 1}, {2, 3}}
	n := site(0).nodes(numa)[1]
	show := func(t tree) func() ([]byte, error) {
		return func() ([]byte, error) { return json.MarshalIndent(t, "", "  ") }
	}
	for name, generate := range map[string]func() ([]byte, error){
		"kubelet.yaml":      func() ([]byte, error) { return kubeletConfig(p, n, true) },
		"containerd.toml":   func() ([]byte, error) { return containerdConfig(p, n, "/binaries", "overlayfs") },
		"base-spec.json":    func() ([]byte, error) { return baseSpec(p, n, []byte(`{"mounts": [{"destination": "/sys"}]}`)) },
		"cni.conf":          func() ([]byte, error) { return cniConfig(p, n) },
		"deviceplugin.json": func() ([]byte, error) { return devicePluginConfig(n) },
		"dradriver.json":    func() ([]byte, error) { return draDriverConfig(p, n) },
		"numa-tree.json":    show(numaTree(numa, 4096)),
		"pci-tree.json":     show(pciTree(n.nics(), numa)),
		"manifests.yaml": func() ([]byte, error) {
			documents, err := manifests(p)
			return []byte(documents), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := generate()
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name, string(got))
		})
	}
}

func TestTreeWrite(t *testing.T) {
	dir := t.TempDir()
	err := tree{"a/file": "1", "a/empty/": "", "b/link": linkTo + "../a/file"}.write(dir)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "b", "link"))
	if err != nil || string(content) != "1\n" {
		t.Errorf("through the link: %q, %v", content, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a", "empty")); err != nil || !info.IsDir() {
		t.Errorf("the empty folder: %v, %v", info, err)
	}
}

func TestFindHierarchies(t *testing.T) {
	for _, tt := range []struct {
		name, mountinfo string
		want            []hierarchy
	}{
		{
			"version 2", "29 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			[]hierarchy{{Dir: "/sys/fs/cgroup", Root: "/", V2: true}},
		},
		{
			"version 1 with joint controllers, and another view of them",
			"30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n" +
				"31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
				"32 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" +
				"33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
				"90 80 0:28 / /chroot/sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
			[]hierarchy{
				{Dir: "/sys/fs/cgroup/cpu,cpuacct", Root: "/"},
				{Dir: "/sys/fs/cgroup/cpuset", Root: "/", CPUSet: true},
				{Dir: "/sys/fs/cgroup/unified", Root: "/", V2: true},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, findHierarchies(parseMountInfo(tt.mountinfo))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseMountInfo(f *testing.F) {
	f.Add("29 24 0:26 / /a\\040b rw shared:4 - ext4 /dev/vda rw\n")
	f.Add(" - \n - a\n1 2 3 4 5 6 - 7 8 9")
	f.Fuzz(func(t *testing.T, content string) {
		for _, m := range parseMountInfo(content) {
			if m.Point == "" || m.FSType == "" {
				t.Errorf("an empty mount from %q", content)
			}
		}
	})
}

func TestMissingControllers(t *testing.T) {
	got := missingControllers("cpuset cpu io memory pids rdma\n", "memory pids\n")
	if diff := cmp.Diff([]string{"cpuset", "cpu", "io"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestControllersAreGivenBack simulates a version 2 hierarchy with plain files.
func TestControllersAreGivenBack(t *testing.T) {
	root, p := t.TempDir(), paths{state: t.TempDir()}
	control := filepath.Join(root, "cgroup.subtree_control")
	for path, content := range map[string]string{
		filepath.Join(root, "cgroup.controllers"): "cpu memory pids\n", control: "cpu memory\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := enableControllers(p, root); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(control); err != nil || string(got) != "+pids" {
		t.Errorf("wrote %q, %v, want only the missing controller", got, err)
	}
	if err := restoreControllers(p); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(control); err != nil || string(got) != "-pids" {
		t.Errorf("wrote %q, %v, want only what had been enabled to be disabled", got, err)
	}
	if err := restoreControllers(paths{state: t.TempDir()}); err != nil {
		t.Errorf("with nothing noted: %v", err)
	}
}

func TestInNodeCgroup(t *testing.T) {
	for content, want := range map[string]bool{
		"0::/tailgate-node-a/kubepods/pod1\n":           true,
		"3:cpuset:/tailgate-node-b/x\n0::/user.slice\n": true,
		"0::/user.slice/tailgate-node-a\n":              false,
		"":                                              false,
		// The tree of a container, seen from its machine's cgroup namespace, and another container's.
		"4:memory:/docker/0123/tailgate-node-a/kubepods/pod1\n": true,
		"4:memory:/docker/4567/tailgate-node-a/kubepods/pod1\n": false,
		"0::/../tailgate-node-a/kubepods/pod1\n":                true,
	} {
		if got := site(0).inNodeCgroup([]hierarchy{{Root: "/"}, {Root: "/docker/0123"}, {Root: "/.."}}, content); got != want {
			t.Errorf("%q: %v", content, got)
		}
	}
}

func TestFaultsTellWhatThereIs(t *testing.T) {
	for want, err := range map[string]error{
		"there are node-a and node-b":    SetMTU(Options{}, "node-z", ResourceVF, 1400),
		`no node has devices of "sf_vf"`: SetMTU(Options{}, "node-a", "sf_vf", 1400),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestWorkers: the cluster of the tutorials has the names of their pages.
func TestWorkers(t *testing.T) {
	nodes := Options{Workers: true}.site().nodes([2][]int{{0}, {1}})
	for i, name := range []string{"worker-1", "worker-2"} {
		if n := nodes[i]; n.Name != name || n.pools()[0].Resource != ResourceX2 || len(n.pools()[0].Devices) != maxVFs {
			t.Errorf("node %s has %+v", n.Name, n.pools()[0])
		}
	}
	if ip := nodes[1].IP; ip != "198.19.20.12" {
		t.Errorf("it has the address %s, which is not in look.Subnet", ip)
	}
	if err := SetMTU(Options{Workers: true}, "node-a", ResourceX2, 1400); err == nil || !strings.Contains(err.Error(), "there are worker-1 and worker-2") {
		t.Errorf("got %v", err)
	}
}

func TestExplanationOfUnknownProcess(t *testing.T) {
	c := &cluster{nodes: site(0).nodes([2][]int{{0}, {1}})}
	_, err := c.process("kubelet")
	if err == nil || !strings.Contains(err.Error(), "kubelet-node-a") {
		t.Errorf("got %v, want an error that lists the names", err)
	}
}

// TestLinkedCommands expects that a cluster keeps its commands when cluster 0 starts over, and has the new ones afterwards.
func TestLinkedCommands(t *testing.T) {
	zero, one := paths{t.TempDir(), 0}, paths{t.TempDir(), 1}
	if err := os.Mkdir(one.bin(""), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := linkCommands(one, zero); err == nil || !strings.Contains(err.Error(), "which cluster 0 builds") {
		t.Errorf("linking commands that are not built: %v", err)
	}
	for _, build := range []string{"first", "second"} {
		if err := os.Mkdir(zero.bin(""), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range ownCommands {
			if err := os.WriteFile(zero.bin(name), []byte(build), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := linkCommands(one, zero); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(zero.bin("")); err != nil {
			t.Fatal(err)
		}
		for _, name := range ownCommands {
			if got, err := os.ReadFile(one.bin(name)); string(got) != build {
				t.Errorf("%s: got %q (%v), want %q", name, got, err, build)
			}
		}
	}
}

func TestReadComponents(t *testing.T) {
	dir := t.TempDir()
	if _, err := readComponents(dir); err == nil || !strings.Contains(err.Error(), "no manifests") {
		t.Errorf("a folder without manifests: %v", err)
	}
	for _, name := range []string{"multus.tar", "b.yaml", "a.yaml", "README.md"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readComponents(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := components{images: []string{filepath.Join(dir, "multus.tar")}, manifests: []string{filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(components{})); diff != "" {
		t.Error(diff)
	}
}

// A running lab is repaired and not started over because time has passed.
func TestGuestsHaveNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{paths: Options{Lab: true}.paths(), options: Options{Lab: true}, lab: "/qemu"}
		c.nodes = guestNodes(c.site, false)
		before := c.processes()
		time.Sleep(time.Hour)
		if diff := cmp.Diff(before, c.processes()); diff != "" {
			t.Error(diff)
		}
	})
}
