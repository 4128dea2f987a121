package localcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/tailgate-dev/tailgate/test/lab/machine"
	"github.com/tailgate-dev/tailgate/test/localcluster/guestnode"
	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// Kernels of the lab's nodes, for Reboot. The nodes start with KernelStable.
const (
	KernelStable = "stable"
	KernelNewer  = "newer"
)

const (
	// guestMemoryMiB is the memory of a node of the lab.
	guestMemoryMiB = 2048
	// guestVFs is the number of VFs of its first card.
	guestVFs = 2
	// guestDisk is the size of its disk, which is a sparse file.
	guestDisk = "8G"
)

// guestModules lists the kernel modules that a node of the lab loads.
var guestModules = []string{
	"virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "crc32c_generic", "ext4", "overlay", "bridge", "veth", "macvlan", "button", "evdev", "igb", "igbvf",
}

// guestNodes returns the nodes of the lab: guests with two NUMA nodes, each with one core of two threads. The kubelet of the
// second node allocates only whole cores.
func guestNodes(s site, components bool) []node {
	list := s.nodes([2][]int{{0, 1}, {2, 3}})
	for i := range list {
		list[i].Guest, list[i].WholeCores, list[i].Components = true, i == 1, components
	}
	return list
}

// guestMAC returns the MAC address of the node's card for the cluster.
func (n node) guestMAC() string { return fmt.Sprintf("02:00:00:%x:00:00", n.Letter) }

// guestAddress returns the TCP address of the first process of a node's guest.
func (n node) guestAddress() string { return net.JoinHostPort(n.IP, fmt.Sprint(guestnode.Port)) }

// guest returns the process of a node's machine: QEMU. One wire connects the cards of both nodes; the first node listens on it.
// The arguments are part of the cluster's generation, so they do not contain the time; bootNode adds the clock.
func (c *cluster) guest(n node) process {
	args := append(c.lab.QEMU(), "-serial", "stdio", "-qmp", "unix:"+c.node(n, "qmp")+",server=on,wait=off",
		"-kernel", c.node(n, "kernel"), "-initrd", c.node(n, "initrd"),
		"-append", machine.KernelArguments+" rdinit="+guestnode.InitPath,
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,file="+c.node(n, "disk"), "-device", "virtio-blk-pci,drive=disk,bus=pcie.0",
		"-device", "virtio-rng-pci,bus=pcie.0",
		"-netdev", "tap,id=cluster,script=no,downscript=no,ifname="+n.Name,
		"-device", "virtio-net-pci,id=cluster,netdev=cluster,bus=pcie.0,romfile=,mac="+n.guestMAC(),
		"-netdev", "hubport,id=hub,hubid=0,netdev=wire")
	if n.Letter == "a" {
		args = append(args, "-netdev", "stream,id=wire,server=on,addr.type=unix,addr.path="+c.join("wire"))
	} else {
		args = append(args, "-netdev", "stream,id=wire,server=off,reconnect-ms=500,addr.type=unix,addr.path="+c.join("wire"))
	}
	// With these features, QEMU emulates checksums and encryption with single instructions of the host.
	args = append(args, machine.NUMA(4, guestMemoryMiB, ",+aes,+pclmulqdq,+sha-ni")...)
	for i, card := range n.nics() {
		args = append(args, machine.Card(i, card.NUMA, 0, card.MAC)...)
	}
	return process{Name: nodeProcess("guest", n.Name), Args: args}
}

// guestConfig returns the configuration of the first process of a node's guest.
func (c *cluster) guestConfig(n node) ([]byte, error) {
	config := guestnode.Config{
		Name: n.Name, Cluster: n.guestMAC(), Address: fmt.Sprintf("%s/%d", n.IP, prefixLength), Routes: map[string]string{"0.0.0.0/0": n.site.controlPlaneIP()},
		Processes: map[string][]string{},
		Env:       []string{"PATH=" + c.binaries + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
		Import:    []string{filepath.Join(c.binaries, "ctr"), "--namespace=k8s.io", "images", "import", "-"},
	}
	for _, other := range c.nodes {
		if other.Name != n.Name {
			config.Routes[other.PodCIDR] = other.IP
		}
	}
	for _, card := range n.nics() {
		config.Cards = append(config.Cards, guestnode.Card{Name: card.Name, MAC: card.MAC, MTU: card.MTU, VFs: len(card.VFs)})
	}
	processes := []process{containerd(c.paths, n, c.binaries), kubelet(c.paths, n, c.binaries)}
	if !n.Components {
		processes = append(processes, devicePlugin(c.paths, n))
	}
	for _, pr := range processes {
		config.Processes[strings.TrimSuffix(pr.Name, "-"+n.Name)] = pr.Args
	}
	return json.Marshal(config)
}

// writeKernels writes an initramfs for each kernel and selects the kernel that each node boots.
func (c *cluster) writeKernels(ctx context.Context) error {
	newer, err := machine.Newer(ctx, c.options.log())
	if err != nil {
		return err
	}
	for name, system := range map[string]machine.System{KernelStable: c.lab, KernelNewer: newer} {
		kernel, err := system.Kernel()
		if err != nil {
			return err
		}
		dir := c.join("kernels", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		_ = os.Remove(filepath.Join(dir, "kernel"))
		if err := os.Symlink(kernel, filepath.Join(dir, "kernel")); err != nil {
			return err
		}
		if err := writeInitramfs(filepath.Join(dir, "initrd"), c.bin("guestnode"), system); err != nil {
			return fmt.Errorf("making the initramfs of the %s kernel: %w", name, err)
		}
	}
	for _, n := range c.nodes {
		if err := c.setKernel(n, KernelStable); err != nil {
			return err
		}
	}
	return nil
}

func writeInitramfs(path, initProgram string, system machine.System) error {
	files := map[string]string{guestnode.InitPath: initProgram}
	modules, err := machine.Modules(guestModules, system.Modules(), files)
	if err != nil {
		return err
	}
	text, err := json.Marshal(modules)
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	archive := machine.NewCPIO(out)
	for inGuest, source := range files {
		if err := archive.Copy(inGuest, source); err != nil {
			return err
		}
	}
	return errors.Join(archive.File(guestnode.ModulesPath, 0o644, text), archive.Close())
}

// setKernel selects the kernel for the next boot of a node.
func (c *cluster) setKernel(n node, name string) error {
	for _, file := range []string{"kernel", "initrd"} {
		if err := os.Remove(c.node(n, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(c.join("kernels", name, file), c.node(n, file)); err != nil {
			return fmt.Errorf("choosing the kernel of %s: %w", n.Name, err)
		}
	}
	return nil
}

// ensureTap creates the host's end of a node's network card for the cluster and attaches it to the bridge.
func ensureTap(h netnsHandle, bridge netlink.Link, n node) error {
	_, err := h.LinkByName(n.Name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		err = thread.Run(func() error { // because the kernel creates it in the namespace of the thread
			if err := enterNetns(n.site.controlPlaneNetns()); err != nil {
				return err
			}
			attrs := netlink.NewLinkAttrs()
			attrs.Name = n.Name
			return netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP})
		})
	}
	if err == nil {
		err = plugIn(h, n.Name, bridge)
	}
	if err != nil {
		return fmt.Errorf("making the network card of %s: %w", n.Name, err)
	}
	return nil
}

// bootNode starts the guest of a node unless it runs, and waits until its first process answers.
func (c *cluster) bootNode(ctx context.Context, n node) error {
	return c.boot(ctx, func() process {
		// The clock that a kernel reads at boot has a resolution of a second, and there is no time server: without an offset for each node,
		// kernels that boot in the same second would look like one kernel.
		clock := time.Now().UTC().Add(time.Duration(n.Letter[0]-'a') * 5 * time.Second)
		pr := c.guest(n)
		pr.Args = append(pr.Args, "-rtc", "base="+clock.Format("2006-01-02T15:04:05"))
		return pr
	}, n.guestAddress(), machine.IdleLimit)
}

// boot starts a guest unless it runs, and waits until it answers at a TCP address. If the guest does not boot, boot starts it again with
// a new command line, because the command line contains the start time, which becomes the guest's clock.
func (c *cluster) boot(ctx context.Context, guest func() process, address string, idleLimit time.Duration) error {
	return machine.Boot(c.options.log(), func() error {
		pr := guest()
		if err := c.ensure(pr); err != nil {
			return err
		}
		runs := c.runs(pr.Name, pr.Args[0])
		runningPID := func() (int, error) {
			found, err := findProcesses(runs)
			if err != nil {
				return 0, err
			}
			if len(found) == 0 {
				return 0, fmt.Errorf("%w: it has ended", machine.ErrNoBoot)
			}
			return found[0].PID, nil
		}
		pid, err := runningPID()
		if err != nil {
			return fmt.Errorf("starting %s: %w", pr.Name, err)
		}
		booting, booted := machine.Booting(ctx, pid, idleLimit)
		defer booted()
		err = poll(booting, func() (bool, error) {
			connection, dialErr := (&net.Dialer{Timeout: time.Second}).DialContext(booting, "tcp", address)
			if dialErr == nil {
				return true, connection.Close()
			}
			_, err := runningPID()
			return false, err
		})
		if errors.Is(err, machine.ErrNoBoot) {
			err = errors.Join(err, killAll(ctx, runs))
		}
		if err != nil {
			return fmt.Errorf("waiting until %s answers at %s: %w", pr.Name, address, err)
		}
		return nil
	})
}

// startGuests starts both guests and loads the images: the sandbox image, and those of the components and the options.
func (c *cluster) startGuests(ctx context.Context) error {
	if err := c.provideOwn(ctx); err != nil {
		return err
	}
	pause, err := c.buildPause(ctx)
	if err != nil {
		return err
	}
	tars := slices.Concat([]string{pause}, c.components.images, c.options.Images)
	if _, err := os.Stat(c.join("kernels")); err != nil {
		if err := c.writeKernels(ctx); err != nil {
			return err
		}
	}
	if err := c.writeDisks(ctx, tars); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		group.Go(func() error { return c.bootNode(groupCtx, n) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.load(ctx, nil, tars...)
}

// post sends an image to a guest, unless the guest has it. It retries, because the guest's containerd may still be starting.
func (c *cluster) post(ctx context.Context, n node, tar string) error {
	has, digest, err := c.has(n, tar)
	if err != nil || has {
		return err
	}
	url := fmt.Sprintf("http://%s/images", n.guestAddress())
	var last error
	err = poll(ctx, func() (bool, error) {
		last = post(ctx, url, tar)
		running, err := c.running(c.guest(n))
		if err == nil && !running {
			err = errors.New("the guest has ended")
		}
		return last == nil, err
	})
	if err != nil {
		return fmt.Errorf("loading %s into %s: %w: %w", tar, n.Name, err, last)
	}
	return c.noteLoaded(n, digest)
}

func post(ctx context.Context, url, tar string) error {
	f, err := os.Open(tar)
	if err != nil {
		return err
	}
	defer f.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, f)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return err
}

// Monitor executes a command of QEMU's monitor on the machine of a node of the lab.
func Monitor(ctx context.Context, o Options, name, command string, arguments map[string]any) error {
	c, n, err := existingNode(ctx, o, name)
	if err != nil {
		return err
	}
	line, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "unix", c.node(n, "qmp"))
	if err != nil {
		return err
	}
	defer line.Close()
	if err := line.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	var args any
	if arguments != nil {
		args = arguments
	}
	if err := machine.QMP(line, command, args); err != nil {
		return fmt.Errorf("the monitor of %s: %w", name, err)
	}
	return nil
}

// Reboot presses the power button of a node of the lab, waits until it is off, and switches it on with a kernel. It returns
// when the first process of the guest answers. It does not wait until the node is ready.
func Reboot(ctx context.Context, o Options, name, kernel string) error {
	c, n, err := existingNode(ctx, o, name)
	if err != nil {
		return err
	}
	if err := Monitor(ctx, o, name, "system_powerdown", nil); err != nil {
		return err
	}
	off, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err = poll(off, func() (bool, error) {
		running, err := c.running(c.guest(n))
		return !running, err
	})
	if err != nil {
		return fmt.Errorf("waiting until %s is off: %w", name, err)
	}
	if err := c.setKernel(n, kernel); err != nil {
		return err
	}
	return c.bootNode(ctx, n)
}

// PowerOn switches a node of the lab on. Like Reboot, it returns when the first process of the guest answers.
func PowerOn(ctx context.Context, o Options, name string) error {
	c, n, err := existingNode(ctx, o, name)
	if err != nil {
		return err
	}
	return c.bootNode(ctx, n)
}
