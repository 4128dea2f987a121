package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Down kills every process of the cluster and removes its cgroups, mounts, namespaces, links and state folder. It
// finds them on the machine, whatever was killed or lost before, and succeeds when there is nothing to remove. Down of
// cluster 0 takes the other clusters down first, but not the lab. Before it removes the running cluster of another user or checkout, it
// says so and waits for Ctrl-C.
func Down(ctx context.Context, o Options) error {
	if err := requireRoot(); err != nil {
		return err
	}
	sites := []site{o.site()}
	if o.site() == 0 {
		sites = []site{workersSite}
		for s := site(maxClusters - 1); s >= 0; s-- {
			sites = append(sites, s)
		}
	}
	for _, s := range sites {
		unlock, err := lock(ctx, o, s, "removal of the local cluster")
		if err != nil {
			return err
		}
		p := sitePaths(s)
		if s == o.site() {
			err = warnOwner(ctx, o, p)
		}
		if err == nil {
			err = down(ctx, p)
		}
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// warnOwner warns if the cluster serves its data and another user or checkout started it.
func warnOwner(ctx context.Context, o Options, p paths) error {
	if _, own := owner(p); own || !exists(p.generationFile()) { // No cluster was complete.
		return nil
	}
	serving, err := findProcesses(func(f found) bool { return p.marked(f) && f.Process == APIServer })
	if err != nil || len(serving) == 0 {
		return err
	}
	return warn(ctx, o, p, "this command requests it")
}

// elsewhere returns an error if the cluster's link on this host belongs to a cluster that runs with its state in another root file
// system, such as a chroot. It would be taken for the rest of this one.
func elsewhere(p paths) error {
	link, err := netlink.LinkByName(p.hostLink())
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", p.hostLink(), err)
	}
	others, err := findProcesses(func(f found) bool { return f.State == p.state && f.Process == APIServer && !p.marked(f) })
	if err != nil {
		return err
	}
	for _, f := range others {
		ns, err := netns.GetFromPid(f.PID)
		if err != nil {
			continue // It has ended.
		}
		h := netnsHandle{ns: ns}
		if h.Handle, err = netlink.NewHandleAt(ns); err != nil {
			closeFD(int(ns))
			continue
		}
		far, err := h.LinkByName("host")
		h.close()
		if err == nil && far.Attrs().ParentIndex == link.Attrs().Index && link.Attrs().ParentIndex == far.Attrs().Index {
			return fmt.Errorf("a local cluster whose %s is in another root file system uses this host's network: "+
				"`make cluster-down` removes it there (nsenter --target %d --mount --root --wd)", p.state, f.PID)
		}
	}
	return nil
}

// RemoveIn ends the processes of another root file system, whose environment has a variable or which have it as their root, and
// removes it with what clusters in it left on this machine. No process has mounted anything in it but in its own mount namespace.
func RemoveIn(ctx context.Context, root, variable string) error {
	id := identify(root)
	err := killAll(ctx, func(f found) bool {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", f.PID))
		return err == nil && (identify(fmt.Sprintf("/proc/%d/root", f.PID)) == id || slices.Contains(strings.Split(string(environ), "\x00"), variable))
	})
	if err != nil {
		return err
	}
	for s := range site(maxClusters) {
		p := sitePaths(s)
		p.state = filepath.Join(root, p.state)
		if !exists(p.state) {
			continue
		}
		if err := errors.Join(removeCgroups(p), removeNetwork(s)); err != nil {
			return err
		}
	}
	if mounted, err := mountsUnder(root); err != nil || len(mounted) > 0 {
		return errors.Join(err, fmt.Errorf("there are mounts in %s: %q", root, mounted))
	}
	return os.RemoveAll(root)
}

func down(ctx context.Context, p paths) error {
	if err := elsewhere(p); err != nil {
		return err
	}
	if err := killAll(ctx, ours(p)); err != nil {
		return err
	}
	if err := errors.Join(removeCgroups(p), unmountOwn(p), removeNetwork(p.site)); err != nil {
		return err
	}
	if err := releaseNetnsDir(p); err != nil {
		return err
	}
	left, err := ownMounts(p)
	if err != nil {
		return err
	}
	if len(left) > 0 { // Removing files now would remove them from the mounted file system.
		return fmt.Errorf("%s is still mounted", left[0])
	}
	if err := removeFolder(p); err != nil {
		return fmt.Errorf("removing the state folder: %w", err)
	}
	return nil
}
