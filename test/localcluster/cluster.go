package localcluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/lab/machine"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
	"github.com/tailgate-dev/tailgate/test/localcluster/look"
)

// cluster describes the desired state of a cluster.
type cluster struct {
	paths
	options Options
	// root is the root of the checkout, for building the project's own commands.
	root string
	// binaries is the folder of the pinned commands.
	binaries string
	numa     [2][]int
	nodes    []node
	// lab is QEMU, if the nodes are guests, and components are the site's components on them.
	lab        machine.System
	components components
}

// newCluster checks the requirements on the machine and builds the pinned commands.
func newCluster(ctx context.Context, o Options) (*cluster, error) {
	c := &cluster{paths: o.paths(), options: o}
	var err error
	if c.root, err = images.RepositoryRoot(); err != nil {
		return nil, err
	}
	// A machine on which the cluster runs has what it needs, apart from what the cluster itself uses.
	if _, err := os.Stat(c.generationFile()); err != nil {
		if err := Look(ctx, o); err != nil {
			return nil, err
		}
	}
	if err := c.layOut(ctx); err != nil {
		return nil, err
	}
	c.binaries, err = Binaries(ctx, o.log())
	return c, err
}

// Look returns an error that lists everything that this machine lacks for the local cluster, before anything was changed. Then it
// installs missing packages where it can.
func Look(ctx context.Context, o Options) error {
	root, err := images.RepositoryRoot()
	if err != nil {
		return err
	}
	if err := look.Check(ctx, root); err != nil {
		return err
	}
	return look.Install(ctx, o.log(), root)
}

// layOut divides this machine's CPUs between the nodes, or finds QEMU and a kernel for the nodes of the lab.
func (c *cluster) layOut(ctx context.Context) (err error) {
	if c.options.Lab {
		if c.components, err = readComponents(os.Getenv(Components)); err != nil {
			return err
		}
		c.nodes = guestNodes(c.site, len(c.components.manifests) > 0)
		if c.lab, err = machine.Debian(ctx, c.options.log()); err != nil {
			return fmt.Errorf("the lab needs QEMU and a kernel for its nodes: %w", err)
		}
		return nil
	}
	online, err := onlineCPUs()
	if err != nil {
		return err
	}
	if c.numa, err = splitCPUs(online); err != nil {
		return err
	}
	c.nodes = c.site.nodes(c.numa)
	return nil
}

func requireRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("the local cluster needs root, for its namespaces and cgroups")
	}
	return nil
}

// processes lists all of the cluster's processes in the order in which they start.
func (c *cluster) processes() []process {
	list := []process{etcd(c.paths, c.binaries), apiServer(c.paths, c.binaries)}
	if c.options.Lab {
		list = append(list, controllerManager(c.paths, c.binaries), scheduler(c.paths, c.binaries))
		for _, n := range c.nodes {
			list = append(list, c.guest(n))
		}
		return list
	}
	for _, n := range c.nodes {
		list = append(list, containerd(c.paths, n, c.binaries))
	}
	list = append(list, controllerManager(c.paths, c.binaries), scheduler(c.paths, c.binaries))
	for _, n := range c.nodes {
		list = append(list, kubelet(c.paths, n, c.binaries), devicePlugin(c.paths, n), draDriver(c.paths, n))
	}
	return list
}

// process returns the process with a name.
func (c *cluster) process(name string) (process, error) {
	names := []string{}
	all := c.processes()
	for _, n := range c.nodes {
		all = append(all, fragilePlugin(c.paths, n))
	}
	for _, pr := range all {
		if pr.Name == name {
			return pr, nil
		}
		names = append(names, pr.Name)
	}
	return process{}, fmt.Errorf("no process %q, there are %s", name, strings.Join(names, ", "))
}

// writeState fills the state folder: certificates, configuration, the nodes' folders. The folder must be empty or absent,
// or hold a part of the same state.
func (c *cluster) writeState(ctx context.Context) error {
	for _, dir := range []string{"logs", "bin", "etcd", "ipam"} {
		if err := os.MkdirAll(c.join(dir), 0o755); err != nil {
			return fmt.Errorf("creating the state folder: %w", err)
		}
	}
	ids := identities(c.site, c.nodes)
	if err := cached.Once(ctx, c.join("pki"), func(tmp string) error { return writePKI(tmp, ids) }); err != nil {
		return err
	}
	for _, id := range ids {
		if id.Kubeconfig {
			if err := writeKubeconfig(c.paths, id); err != nil {
				return err
			}
		}
	}
	memory, err := totalMemoryKiB()
	if err != nil {
		return err
	}
	snapshotter := "native"
	if overlayWorks(c.state) {
		snapshotter = "overlayfs"
	}
	defaults, err := c.command(ctx, "ctr", "oci", "spec").Output()
	if err != nil {
		return fmt.Errorf("asking for containerd's default runtime specification: %w", err)
	}
	for _, n := range c.nodes {
		for _, dir := range []string{"run", "log", "kubelet", "cni", "ipam", "multinet", "volume-plugins"} {
			if err := os.MkdirAll(c.node(n, dir), 0o755); err != nil {
				return fmt.Errorf("creating the folders of %s: %w", n.Name, err)
			}
		}
		if !n.Guest {
			if err := c.writeSysfs(ctx, n, memory); err != nil {
				return err
			}
		}
		for file, generate := range c.configuration(n, snapshotter, defaults) {
			content, err := generate()
			if err != nil {
				return err
			}
			if err := os.WriteFile(c.node(n, file), content, 0o600); err != nil {
				return fmt.Errorf("writing the configuration of %s: %w", n.Name, err)
			}
		}
	}
	return nil
}

// writeSysfs writes the node's view of its machine. The nodes have these files mounted, so they must not be replaced.
func (c *cluster) writeSysfs(ctx context.Context, n node, memory uint64) error {
	return cached.Once(ctx, c.node(n, "sys"), func(tmp string) error {
		return errors.Join(
			numaTree(c.numa, memory).write(filepath.Join(tmp, "node")),
			pciTree(n.nics(), c.numa).write(filepath.Join(tmp, "pci")),
			os.WriteFile(filepath.Join(tmp, bootFile), newBoot(), 0o644))
	})
}

// configuration returns the generators of the configuration files in a node's folder, by path.
func (c *cluster) configuration(n node, snapshotter string, defaults []byte) map[string]func() ([]byte, error) {
	if n.Guest {
		snapshotter = "overlayfs" // whether this machine supports it or not
	}
	files := map[string]func() ([]byte, error){
		"containerd.toml":   func() ([]byte, error) { return containerdConfig(c.paths, n, c.binaries, snapshotter) },
		"base-spec.json":    func() ([]byte, error) { return baseSpec(c.paths, n, defaults) },
		"cni/10-pod.conf":   func() ([]byte, error) { return cniConfig(c.paths, n) },
		"deviceplugin.json": func() ([]byte, error) { return devicePluginConfig(n) },
	}
	if n.Guest {
		files["kubelet.yaml"] = func() ([]byte, error) { return kubeletConfig(c.paths, n, true) }
		if n.Components {
			delete(files, "cni/10-pod.conf")
			delete(files, "deviceplugin.json")
		}
		return files
	}
	files["fragile.json"] = func() ([]byte, error) { return fragileConfig(n) }
	files["dradriver.json"] = func() ([]byte, error) { return draDriverConfig(c.paths, n) }
	return files
}

// ownCommands are the commands from this checkout that run on the nodes.
var ownCommands = []string{"multinet", "sriov", "deviceplugin", "dradriver", "guestnode"}

// provideOwn builds the nodes' own commands, or links those of cluster 0. It kills a running device plugin or driver that differs
// from the command; the caller starts it again.
func (c *cluster) provideOwn(ctx context.Context) error {
	var err error
	if c.site == 0 || c.options.Lab {
		err = c.buildOwn(ctx)
	} else {
		err = linkCommands(c.paths, sitePaths(0))
		var noLinks *os.LinkError
		if errors.As(err, &noLinks) {
			err = c.buildOwn(ctx)
		}
	}
	if err != nil {
		return err
	}
	for _, name := range []string{"deviceplugin", "dradriver"} {
		built, err := os.Stat(c.bin(name))
		if err != nil {
			return fmt.Errorf("looking at what was built: %w", err)
		}
		err = killAll(ctx, func(f found) bool {
			if !c.marked(f) || f.Exe != name {
				return false
			}
			running, err := os.Stat(fmt.Sprintf("/proc/%d/exe", f.PID))
			return err == nil && !os.SameFile(running, built)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) buildOwn(ctx context.Context) error {
	args := []string{"build", "-trimpath", "-buildvcs=false", images.NoDebug, "-ldflags", "-s -w", "-o", c.bin("") + "/"}
	for _, name := range ownCommands {
		args = append(args, "./test/localcluster/cmd/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = c.root
	// Go does not relink a program that is up to date. With GOTMPDIR on the same file system, it renames a new program into place.
	cmd.Env = environment.Tool("GOTMPDIR=" + c.state)
	if output, err := environment.Run(cmd); err != nil {
		return fmt.Errorf("building the node's own commands: %w\n%s", err, tail(string(output), 20))
	}
	return nil
}

// linkCommands links the nodes' own commands of another cluster's paths, because Go would link the same programs again for each
// cluster. The links are hard links, so that they remain when the other cluster starts over.
func linkCommands(p, other paths) error {
	for _, name := range ownCommands {
		built, err := os.Stat(other.bin(name))
		if err != nil {
			return fmt.Errorf("linking the node's own commands, which cluster %d builds: %w", other.site, err)
		}
		if present, err := os.Stat(p.bin(name)); err == nil && os.SameFile(built, present) {
			continue
		}
		if err := errors.Join(os.RemoveAll(p.bin(name)), os.Link(other.bin(name), p.bin(name))); err != nil {
			return fmt.Errorf("linking the node's own commands: %w", err)
		}
	}
	return nil
}

// layoutVersion is part of the version of a cluster. Increment it when the code changes how it makes a cluster, and no file or
// command line shows that.
const layoutVersion = 2

// generation returns the boot ID of the machine, because no process survives a reboot, and a hash of everything that cannot be changed
// while the cluster runs, so that an Up after such a change starts a new cluster. The path of the user's cache is not part of it.
func (c *cluster) generation() (boot, version string, err error) {
	content, err := os.ReadFile(bootPath)
	if err != nil {
		return "", "", fmt.Errorf("reading the machine's boot: %w", err)
	}
	version, err = c.version()
	return strings.TrimSpace(string(content)), version, err
}

func (c *cluster) version() (string, error) {
	anywhere := *c
	anywhere.binaries, anywhere.lab, c = filepath.Base(c.binaries), machine.System(filepath.Base(string(c.lab))), &anywhere
	parts := []any{layoutVersion, c.numa, c.nodes, c.processes(), identities(c.site, c.nodes)}
	for _, n := range c.nodes {
		kubelet, err := kubeletConfig(c.paths, n, true)
		if err != nil {
			return "", err
		}
		parts = append(parts, pciTree(n.nics(), c.numa), kubelet)
		files := c.configuration(n, "", []byte(`{"mounts": []}`))
		for _, file := range slices.Sorted(maps.Keys(files)) {
			content, err := files[file]()
			if err != nil {
				return "", err
			}
			parts = append(parts, content)
		}
	}
	encoded, err := json.Marshal(parts)
	if err != nil {
		return "", fmt.Errorf("describing the cluster: %w", err)
	}
	sum := sha256.Sum256(encoded)
	return shortHash(sum[:]), nil
}

// createNamespaces creates all network and mount namespaces. None of them may exist.
func (c *cluster) createNamespaces() error {
	if err := prepareNetnsDir(c.paths); err != nil {
		return err
	}
	for _, name := range c.netnsNames() {
		if err := createNetns(name); err != nil {
			return err
		}
	}
	if err := ensureNamespaceDir(c.paths); err != nil {
		return err
	}
	var group errgroup.Group
	for _, n := range c.nodes {
		if n.Guest {
			continue
		}
		group.Go(func() error { return createMountNamespace(c.paths, n, []string{c.state, c.binaries}) })
	}
	return group.Wait()
}

// namespacesExist reports whether all namespaces exist.
func (c *cluster) namespacesExist() bool {
	for _, name := range c.netnsNames() {
		if !netnsExists(name) {
			return false
		}
	}
	for _, n := range c.nodes {
		if !n.Guest && !isMountOf(c.mountNamespace(n), unix.NSFS_MAGIC) {
			return false
		}
	}
	return true
}
