package lab

import (
	"context"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

const (
	// kernel is the guest's: the last that Debian 12 has in its main archive, which does not change any more.
	kernel = "6.1.0-50-amd64"
	suite  = "bookworm"
	// newer has a QEMU that emulates network cards with virtual functions.
	newer = "bookworm-backports"
	// The packages are pinned by suite, and trusted by the suite's signature, not by a digest: the mirror keeps one version
	// of each package in a suite, and Debian's archive of older ones cannot be reached from everywhere. A digest would stop
	// the lab at the next update of QEMU. A cache that is filled stays as it is.
	mirror = "http://deb.debian.org/debian"
)

// missing is why there is no guest on this machine.
type missing struct{ error }

// debian is a folder with QEMU, its libraries and the guest's kernel, unpacked from Debian's packages.
func debian(ctx context.Context, log io.Writer) (string, error) {
	return cached.Folder("lab-"+kernel, func(tmp string) error {
		fmt.Fprintln(log, "fetching QEMU and a kernel for guests (once, 100 MB)")
		o := images.Options{Log: log}
		err := images.Mmdebstrap(ctx, o, "--variant=extract", "--format=directory", `--aptopt=APT::Default-Release "`+newer+`"`,
			"--include=qemu-system-x86,linux-image-"+kernel, suite, tmp, "deb "+mirror+" "+suite+" main", "deb "+mirror+" "+newer+" main")
		if err != nil {
			return fmt.Errorf("unpacking Debian's packages: %w", err)
		}
		return nil
	})
}

// modules adds kernel modules, and those that they depend on, to the guest's files. It returns their paths in the guest
// with their parameters, in the order in which they have to be loaded.
func modules(wanted []string, tree string, files map[string]string) ([]string, error) {
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
				return nil // part of the kernel, or a file of the caller, which is in the list itself
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

// depends are the modules that a module names as its dependencies.
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
