package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// startTimeout limits a start once everything is built. It is several times the duration on two busy cores.
const startTimeout = 3 * time.Minute

// labStartTimeout is the same limit for the lab, whose emulated nodes have to boot.
const labStartTimeout = 15 * time.Minute

// Up starts the cluster, or its missing parts, and returns when both nodes are ready. A cluster that runs is kept, also if this host
// cannot reach it. Up starts a new one only if the data of the old one is not served any more, or if it is from another version of the
// project; it says so before and waits for Ctrl-C. Errors name the missing requirement, or the part that did not start.
func Up(ctx context.Context, o Options) error {
	c, err := newCluster(ctx, o)
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, o, c.site, "start of the local cluster")
	if err != nil {
		return err
	}
	defer unlock()
	c.useOwnCommands()

	if _, err := os.Stat(sitePaths(0).generationFile()); err != nil && c.site != 0 && !o.Lab {
		return fmt.Errorf("starting cluster %d: that with number 0 comes first: %w", c.site, err)
	}
	boot, version, err := c.generation()
	if err != nil {
		return err
	}
	noted, err := os.ReadFile(c.generationFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading which cluster runs: %w", err)
	}
	if err != nil { // No cluster has ever been complete.
		return c.startOver(ctx, boot+"\n"+version)
	}
	oldBoot, oldVersion, _ := strings.Cut(string(noted), "\n")
	why := ""
	switch {
	case oldVersion != version:
		why = "it is from another version of Tailgate, or this machine's CPUs have changed"
	case oldBoot != boot:
		why = "this machine has booted since it was started"
	case !c.namespacesExist():
		if why, err = c.repairNamespaces(); err != nil {
			return err
		}
	}
	if why == "" {
		if err = c.startAll(ctx); err == nil || ctx.Err() != nil {
			return err
		}
		if why = c.lost(err); why == "" {
			return fmt.Errorf("%w. The cluster is kept; `make %s-down` removes it", err, map[bool]string{false: "cluster", true: "lab"}[o.Lab])
		}
	}
	if err := warn(ctx, o, c.paths, why); err != nil {
		return err
	}
	return c.startOver(ctx, boot+"\n"+version)
}

// lost returns why the cluster's data is lost if the error of a start shows that, or nothing: etcd or the API server ended as soon
// as it was started, and not for a cause outside of the cluster, such as a kill for lack of memory.
func (c *cluster) lost(err error) string {
	var e *ended
	if !errors.As(err, &e) || !e.again || (e.name != Etcd && e.name != APIServer) || remedy(e.words) != "" {
		return ""
	}
	return fmt.Sprintf("it cannot be repaired, because %v", e)
}

// generationFile returns the path of the file with the generation of the running cluster: the boot and the version.
func (p paths) generationFile() string { return p.join("generation") }

// startOver takes down the rest of a cluster and starts a new one. If nothing could be started, nothing is left behind.
func (c *cluster) startOver(ctx context.Context, generation string) error {
	if err := down(ctx, c.paths); err != nil {
		return fmt.Errorf("taking down what is left of a cluster: %w", err)
	}
	if err := c.prepare(ctx, generation); err != nil {
		return errors.Join(err, down(context.WithoutCancel(ctx), c.paths))
	}
	return c.startAll(ctx)
}

// prepare makes everything that the processes need.
func (c *cluster) prepare(ctx context.Context, generation string) error {
	if err := claimFolder(c.paths); err != nil {
		return err
	}
	if err := errors.Join(noteOwner(c.paths), c.writeState(ctx)); err != nil {
		return err
	}
	if err := c.createNamespaces(); err != nil {
		return err
	}
	// Without the generation, the next Up starts a new cluster instead of repairing this one.
	err := errors.Join(os.WriteFile(c.commandsFile(), []byte(c.binaries), 0o644), os.WriteFile(c.generationFile(), []byte(generation), 0o644))
	if err != nil {
		return fmt.Errorf("noting what was started: %w", err)
	}
	return nil
}

// startAll starts everything that does not run, and waits until the nodes are ready.
func (c *cluster) startAll(ctx context.Context) error {
	patience := startTimeout
	if c.options.Lab {
		patience = labStartTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("it did not become ready in time"))
	defer cancel()
	if err := errors.Join(c.linkUserCommands(), ensureNetwork(c.site, c.nodes), c.checkRoute()); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if n.Guest {
			continue
		}
		if err := ensureCgroups(c.paths, n); err != nil {
			return err
		}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startControlPlane(groupCtx, client) })
	group.Go(func() error {
		if c.options.Lab {
			return c.startGuests(groupCtx)
		}
		return c.startRuntimes(groupCtx)
	})
	if err := group.Wait(); err != nil {
		return c.explain(err)
	}
	if c.options.Lab {
		err = c.awaitNodes(ctx, client, c.nodes)
	} else {
		err = c.startKubelets(ctx, client, true, c.nodes...)
	}
	if err != nil {
		return c.explain(err)
	}
	return nil
}
