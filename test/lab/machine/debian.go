// Package machine provides the parts of emulated machines: QEMU and kernels from Debian's packages, the kernels' modules, the
// initramfs, and the protocol of QEMU's monitor.
package machine

import (
	"context"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

const (
	// stable is the release of the first kernel: the last one in the main archive of Debian 12, which no longer changes.
	stable = "6.1.0-50-amd64"
	suite  = "bookworm"
	// newer is the suite with a QEMU that emulates network cards with virtual functions.
	newer = "bookworm-backports"
	// The packages are pinned by suite and verified by the suite's signature, not by a digest: the mirror keeps one version of
	// each package in a suite, and Debian's archive of older versions is not reachable from everywhere. With a digest, the lab
	// would fail after the next update of QEMU. An existing cache is not updated.
	mirror = "http://deb.debian.org/debian"
)

// Missing is the error that this machine cannot run a guest.
type Missing struct{ error }

// System is a folder with a kernel, commands and their libraries, unpacked from Debian's packages.
type System string

// Debian returns QEMU, mkfs.ext4, and the kernel of Debian's stable release.
func Debian(ctx context.Context, log io.Writer) (System, error) {
	return unpacked(ctx, log, "QEMU and a kernel for guests (once, 100 MB)", "qemu-system-x86", "linux-image-"+stable, "e2fsprogs")
}

// Newer returns only the kernel of Debian's backports.
func Newer(ctx context.Context, log io.Writer) (System, error) {
	return unpacked(ctx, log, "a second kernel for guests (once, 100 MB)", "linux-image-amd64")
}

func unpacked(ctx context.Context, log io.Writer, what string, packages ...string) (System, error) {
	if runtime.GOARCH != "amd64" {
		return "", Missing{fmt.Errorf("there is a guest for amd64, none for %s", runtime.GOARCH)}
	}
	dir, err := cached.Folder(ctx, "lab-"+strings.Join(packages, "+"), func(tmp string) error {
		fmt.Fprintln(log, "fetching", what)
		err := images.Mmdebstrap(ctx, images.Options{Log: log}, "--variant=extract", "--format=directory", `--aptopt=APT::Default-Release "`+newer+`"`,
			"--include="+strings.Join(packages, ","), suite, tmp, "deb "+mirror+" "+suite+" main", "deb "+mirror+" "+newer+" main")
		if err != nil {
			return fmt.Errorf("unpacking Debian's packages: %w", err)
		}
		// The modules of newer kernels are compressed.
		decompress := exec.CommandContext(ctx, "find", filepath.Join(tmp, "lib/modules"), "-name", "*.ko.xz", "-exec", "xz", "-d", "{}", "+")
		decompress.Env = environment.Tool()
		if out, err := decompress.CombinedOutput(); err != nil {
			return fmt.Errorf("decompressing the kernel's modules: %w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		return "", Missing{err}
	}
	return System(dir), nil
}

// Kernel returns the path of the kernel.
func (s System) Kernel() (string, error) {
	found, err := filepath.Glob(filepath.Join(string(s), "boot/vmlinuz-*"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%s has %d kernels, not one", s, len(found))
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// Modules returns the folder of the kernel's modules.
func (s System) Modules() string { return filepath.Join(string(s), "lib/modules") }

func (s System) in(path string) string { return filepath.Join(string(s), path) }

// command returns the command line of a program with its own libraries.
func (s System) command(path string, args ...string) []string {
	return append([]string{
		s.in("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"), "--library-path", s.in("usr/lib/x86_64-linux-gnu") + ":" + s.in("lib/x86_64-linux-gnu"), s.in(path),
	}, args...)
}

// KernelArguments are those of every guest. On a busy host, the kernel would find the TSC unstable and continue with another clock, so that
// two rounds would not run under equal conditions.
const KernelArguments = "console=ttyS0 panic=-1 mitigations=off tsc=reliable quiet"

// QEMU returns the command line of QEMU. Of the arguments for a machine, it has only those for the emulation.
func (s System) QEMU() []string {
	return s.command("usr/bin/qemu-system-x86_64", "-L", s.in("usr/share/qemu"), "-L", s.in("usr/share/seabios"),
		"-machine", "q35", "-accel", "tcg,thread=multi", "-nodefaults", "-no-reboot", "-display", "none")
}

// MakeExt4 creates a disk of a size with the files of a folder.
func (s System) MakeExt4(ctx context.Context, folder, disk, size string) error {
	args := s.command("sbin/mkfs.ext4", "-q", "-F", "-E", "nodiscard,root_owner=0:0", "-d", folder, disk, size)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = environment.Tool("MKE2FS_CONFIG=" + s.in("etc/mke2fs.conf"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("making %s with mkfs.ext4: %w: %s", disk, err, out)
	}
	return nil
}

// NUMA returns QEMU's arguments for two NUMA nodes, each a socket with half of the CPUs, two threads per core, and half of the
// memory. Among the CPU models that show threads to the guest, this one has the fewest features to emulate; features adds
// more.
func NUMA(cpus, memoryMiB int, features string) []string {
	args := []string{"-cpu", "Nehalem" + features, "-smp", fmt.Sprintf("%d,sockets=2,cores=%d,threads=2", cpus, cpus/4), "-m", fmt.Sprintf("%dM", memoryMiB)}
	for node := range 2 {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", node, memoryMiB/2),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=m%d", node, node*cpus/2, (node+1)*cpus/2-1, node),
			"-device", fmt.Sprintf("pxb-pcie,id=pcie.%d,bus_nr=%d,bus=pcie.0,numa_node=%d", node+1, 16*(node+1), node))
	}
	return args
}

// Card returns QEMU's arguments for the network card nicN with virtual functions on a NUMA node, connected to a hub.
func Card(n, node, hub int, mac string) []string {
	return []string{
		"-device", fmt.Sprintf("pcie-root-port,id=port%d,bus=pcie.%d,chassis=%d", n, node+1, n+1),
		"-netdev", fmt.Sprintf("hubport,id=n%d,hubid=%d", n, hub),
		"-device", fmt.Sprintf("igb,id=nic%d,bus=port%d,netdev=n%d,mac=%s,romfile=", n, n, n, mac),
	}
}

// Modules adds kernel modules and their dependencies to the guest's files. It returns their paths in the guest with their
// parameters, in load order.
func Modules(wanted []string, tree string, files map[string]string) ([]string, error) {
	known := map[string]string{}
	err := filepath.WalkDir(tree, func(file string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(file), ".ko"); ok {
			known[strings.ReplaceAll(name, "-", "_")] = file
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for the kernel's modules: %w", err)
	}
	var order []string
	seen := map[string]bool{}
	var add func(name, parameters string) error
	add = func(name, parameters string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		inGuest, file := name, files[name]
		if !path.IsAbs(name) {
			if file = known[name]; file == "" {
				return nil // built into the kernel, or a file of the caller, which has its own entry in the list
			}
			inGuest = "/lab/modules/" + name + ".ko"
			files[inGuest] = file
		}
		needed, err := depends(file)
		if err != nil {
			return fmt.Errorf("reading module %s: %w", name, err)
		}
		for _, n := range needed {
			if err := add(n, ""); err != nil {
				return err
			}
		}
		order = append(order, strings.TrimSpace(inGuest+" "+parameters))
		return nil
	}
	for _, w := range wanted {
		name, parameters, _ := strings.Cut(w, " ")
		if err := add(name, parameters); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// depends returns the dependencies that a module lists.
func depends(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	object, err := elf.NewFile(f)
	if err != nil {
		return nil, err
	}
	section := object.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s has no section .modinfo", file)
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
}
