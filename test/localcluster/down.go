package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Down kills every process of the cluster and removes its cgroups, mounts, namespaces, links and state folder. It
// finds them on the machine, whatever was killed or lost before, and succeeds when there is nothing to remove. Down of
// cluster 0 takes the other clusters down first, but not the lab.
func Down(ctx context.Context, o Options) error {
	if err := requireRoot(); err != nil {
		return err
	}
	last := o.site()
	if last == 0 {
		last = maxClusters - 1
	}
	for s := last; s >= o.site(); s-- {
		unlock, err := lock(ctx, s)
		if err != nil {
			return err
		}
		err = down(ctx, sitePaths(s))
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func down(ctx context.Context, p paths) error {
	if err := killAll(ctx, ours(p)); err != nil {
		return err
	}
	if err := errors.Join(removeCgroups(p), unmountUnder(p.state), removeNetwork(p.site)); err != nil {
		return err
	}
	if err := releaseNetnsDir(p); err != nil {
		return err
	}
	left, err := mountsUnder(p.state)
	if err != nil {
		return err
	}
	if len(left) > 0 { // Removing files now would remove them from the mounted file system.
		return fmt.Errorf("%s is still mounted", left[0])
	}
	if err := os.RemoveAll(p.state); err != nil {
		return fmt.Errorf("removing the state folder: %w", err)
	}
	return nil
}
