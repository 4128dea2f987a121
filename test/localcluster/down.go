package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Down kills every process of the cluster and removes its cgroups, mounts, namespaces, links and state folder. It
// finds them on the machine, whatever was killed or lost before, and succeeds when there is nothing.
func Down(ctx context.Context, o Options) error {
	if err := requireRoot(); err != nil {
		return err
	}
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return down(ctx, paths{o.stateDir()})
}

func down(ctx context.Context, p paths) error {
	// Which CPUs the nodes had matters to nothing that is to be found.
	if err := killAll(ctx, ours(p, nodes([2][]int{}))); err != nil {
		return err
	}
	if err := errors.Join(removeCgroups(p), unmountUnder(p.state), removeNetwork()); err != nil {
		return err
	}
	if err := releaseNetnsDir(p); err != nil {
		return err
	}
	left, err := mountsUnder(p.state)
	if err != nil {
		return err
	}
	if len(left) > 0 { // Removing files now would remove them from what is mounted there.
		return fmt.Errorf("%s is still mounted", left[0])
	}
	if err := os.RemoveAll(p.state); err != nil {
		return fmt.Errorf("removing the state folder: %w", err)
	}
	return nil
}
