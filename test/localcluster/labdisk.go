package localcluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster/guestnode"
)

// writeDisks writes the missing disks of the guests, with images if this machine can unpack them.
func (c *cluster) writeDisks(ctx context.Context, tars []string) error {
	missing := slices.DeleteFunc(slices.Clone(c.nodes), func(n node) bool {
		_, err := os.Stat(c.node(n, "disk"))
		return err == nil
	})
	if len(missing) == 0 {
		return nil
	}
	store := ""
	if overlayWorks(c.state) {
		var err error
		if store, err = c.writeStore(ctx, tars); err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Dir(store))
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range missing {
		group.Go(func() error { return c.writeDisk(ctx, n, store, tars) })
	}
	return group.Wait()
}

// writeDisk writes the disk of a node, with the images of a store, if there is one. Files of this machine that nodes of the
// local cluster use have the same paths on the disk.
func (c *cluster) writeDisk(ctx context.Context, n node, store string, tars []string) error {
	root, err := os.MkdirTemp(c.state, "disk-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "root", "var/log/pods", "var/lib/kubelet", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("../run", filepath.Join(root, "var/run")); err != nil {
		return err
	}
	config, err := c.guestConfig(n)
	if err != nil {
		return err
	}
	for path, content := range map[string]string{
		guestnode.ConfigPath: string(config),
		"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\n", "/etc/group": "root:x:0:\n", "/etc/hosts": "127.0.0.1 localhost\n",
		"/etc/machine-id": fmt.Sprintf("%032x\n", n.Letter), "/etc/os-release": "ID=debian\nPRETTY_NAME=\"Lab\"\n",
	} {
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o600); err != nil {
			return err
		}
	}
	if err := c.reserveAddresses(root, n); err != nil {
		return err
	}
	programs, err := withLibraries(ctx, filepath.Join(c.binaries, "runc"), "/bin/mount", "/bin/umount", "/bin/sh")
	if err != nil {
		return err
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "kubelet"} {
		programs = append(programs, filepath.Join(c.binaries, name))
	}
	files := slices.Concat(programs, []string{c.kubeconfig(n.Name), c.kubeconfig("multinet")})
	plugins := filepath.Join(c.binaries, "cni", "*")
	if n.Components {
		if err := c.copyPlugins(root, n, plugins); err != nil {
			return err
		}
	} else {
		files = append(files, c.bin("multinet"), c.bin("sriov"), c.bin("deviceplugin"))
	}
	for file := range c.configuration(n, "", nil) {
		files = append(files, c.node(n, file))
	}
	for _, pattern := range []string{plugins, c.pki("*")} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	for _, file := range files {
		if err := copyTo(root, file); err != nil {
			return fmt.Errorf("copying the files of %s: %w", n.Name, err)
		}
	}
	if store != "" {
		if err := c.addStore(ctx, root, n, store, tars); err != nil {
			return err
		}
	}
	disk := c.node(n, "disk")
	tmp := c.join("disk-of-" + n.Name)
	if err := c.lab.MakeExt4(ctx, root, tmp, guestDisk); err != nil {
		return err
	}
	return os.Rename(tmp, disk)
}

// copyPlugins writes the CNI plugins and the configuration of the pods' network to the folders where a site's components
// look for them.
func (c *cluster) copyPlugins(root string, n node, plugins string) error {
	found, err := filepath.Glob(plugins)
	if err != nil {
		return err
	}
	for _, file := range found {
		if err := copyFile(file, filepath.Join(root, siteCNIBinaries, filepath.Base(file))); err != nil {
			return err
		}
	}
	text, err := json.Marshal(podNetwork(c.paths, n))
	if err != nil {
		return err
	}
	dir := filepath.Join(root, siteCNIConfig)
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "10-podnet.conf"), text, 0o600))
}

// copyTo copies a file, or the target of a link, to the same path below a folder.
func copyTo(root, file string) error { return copyFile(file, filepath.Join(root, file)) }

func copyFile(file, target string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, content, info.Mode().Perm()))
}

// reserveAddresses marks the other node's half of each secondary network as taken: host-local ensures only that an address
// is unique on its node, and these networks connect both nodes.
func (c *cluster) reserveAddresses(root string, n node) error {
	for _, a := range attachments() {
		dir := filepath.Join(root, c.ipam(), a.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		ip, _, err := net.ParseCIDR(a.Subnet)
		if err != nil {
			return err
		}
		first := map[string]byte{"a": 128, "b": 1}[n.Letter]
		for i := range byte(127) {
			ip.To4()[3] = first + i
			if err := os.WriteFile(filepath.Join(dir, ip.String()), []byte("the other node's\n"), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// withLibraries returns programs of this machine together with the libraries that they are linked with.
func withLibraries(ctx context.Context, programs ...string) ([]string, error) {
	ldd := exec.CommandContext(ctx, "ldd", programs...)
	ldd.Env = environment.Tool()
	out, err := ldd.Output()
	if err != nil {
		return nil, fmt.Errorf("looking for the libraries of %q: %w", programs, err)
	}
	for line := range strings.Lines(string(out)) {
		for _, field := range strings.Fields(line) {
			if filepath.IsAbs(field) && !strings.HasSuffix(field, ":") {
				programs = append(programs, field)
			}
		}
	}
	return programs, nil
}

// addStore copies a store of images to the root of the node's containerd.
func (c *cluster) addStore(ctx context.Context, root string, n node, store string, tars []string) error {
	target := filepath.Join(root, c.node(n, "containerd"))
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", "--archive", "--link", store, target).CombinedOutput(); err != nil {
		return fmt.Errorf("putting the images onto the disk of %s: %w: %s", n.Name, err, tail(string(out), 1))
	}
	for _, tar := range tars {
		_, digest, err := c.has(n, tar)
		if err != nil {
			return err
		}
		if err := c.noteLoaded(n, digest); err != nil {
			return err
		}
	}
	return nil
}

// storeConfig is the configuration of a containerd that only imports images and uses no path outside its folder.
const storeConfig = `version = 3
root = %[1]q
state = %[2]q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri"]

[grpc]
  address = %[3]q

[plugins."io.containerd.internal.v1.opt"]
  path = %[4]q
`

// writeStore imports images into a folder that can be the root of a guest's containerd. This machine needs seconds for the import,
// a guest needs minutes.
func (c *cluster) writeStore(ctx context.Context, tars []string) (store string, err error) {
	dir, err := os.MkdirTemp(c.state, "store-")
	if err != nil {
		return "", err
	}
	store = filepath.Join(dir, "root")
	socket, config, log := filepath.Join(dir, "socket"), filepath.Join(dir, "config.toml"), c.log("store")
	text := fmt.Sprintf(storeConfig, store, filepath.Join(dir, "state"), socket, filepath.Join(dir, "opt"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return "", err
	}
	output, err := os.Create(log)
	if err != nil {
		return "", err
	}
	defer output.Close()
	daemon := exec.Command(filepath.Join(c.binaries, "containerd"), "--config="+config)
	daemon.Env = c.environment(markState + "=" + c.state) // so that Down finds it
	daemon.Stdout, daemon.Stderr = output, output
	// Its own mount namespace hides the mounts of unpacking from other processes.
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: syscall.CLONE_NEWNS}
	if err := daemon.Start(); err != nil {
		return "", fmt.Errorf("starting a containerd to import images: %w", err)
	}
	defer func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		stuck := time.AfterFunc(30*time.Second, func() { _ = daemon.Process.Kill() })
		_ = daemon.Wait()
		stuck.Stop()
	}()
	ctr := func(args ...string) error {
		args = append([]string{"--address=" + socket, "--namespace=k8s.io"}, args...)
		out, err := c.command(ctx, "ctr", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ctr %v: %w: %s", args, err, tail(string(out), 1))
		}
		return nil
	}
	if err := poll(ctx, func() (bool, error) { return ctr("version") == nil, nil }); err != nil {
		return "", fmt.Errorf("waiting for the containerd that imports images, see %s: %w", log, err)
	}
	for _, tar := range tars {
		if err := ctr("images", "import", "--snapshotter=overlayfs", tar); err != nil {
			return "", err
		}
	}
	return store, nil
}

// loaded returns the path of the list of the images that a guest has.
func (c *cluster) loaded(n node) string { return c.node(n, "images") }

// has reports whether a guest has the image in a tarball. It also returns the digest of the tarball, which identifies the image.
func (c *cluster) has(n node, tar string) (bool, string, error) {
	content, err := os.ReadFile(tar)
	if err != nil {
		return false, "", fmt.Errorf("reading an image: %w", err)
	}
	digest := fmt.Sprintf("%x", sha256.Sum256(content))
	list, err := os.ReadFile(c.loaded(n))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, "", err
	}
	return slices.Contains(strings.Fields(string(list)), digest), digest, nil
}

// noteLoaded adds an image to the list of the images that a guest has.
func (c *cluster) noteLoaded(n node, digest string) error {
	f, err := os.OpenFile(c.loaded(n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, digest)
	return errors.Join(err, f.Close())
}
