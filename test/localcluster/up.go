package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tailgate-dev/tailgate/test/cached"
)

// startTimeout limits a start once everything is built. It is several times the duration on two busy cores.
const startTimeout = 3 * time.Minute

// labStartTimeout is the same limit for the lab, whose emulated nodes have to boot.
const labStartTimeout = 15 * time.Minute

// Up starts the cluster, or its missing parts, and returns when both nodes are ready. A cluster that cannot be repaired
// is taken down and started again. Errors name the missing requirement, or the part that did not start.
func Up(ctx context.Context, o Options) error {
	c, err := newCluster(ctx, o)
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, c.site)
	if err != nil {
		return err
	}
	defer unlock()

	if _, err := os.Stat(sitePaths(0).generationFile()); err != nil && c.site != 0 && !o.Lab {
		return fmt.Errorf("starting cluster %d: that with number 0 comes first: %w", c.site, err)
	}
	generation, err := c.generation()
	if err != nil {
		return err
	}
	noted, err := os.ReadFile(c.generationFile())
	if err != nil || string(noted) != generation || !c.namespacesExist() {
		return c.startOver(ctx, generation)
	}
	err = c.startAll(ctx)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(o.log(), "starting a new cluster, because this one could not be repaired: %v\n", err)
		err = c.startOver(ctx, generation)
	}
	return err
}

// generationFile returns the path of the file with the generation of the running cluster.
func (p paths) generationFile() string { return p.join("generation") }

// startOver takes down the rest of a cluster and starts a new one.
func (c *cluster) startOver(ctx context.Context, generation string) error {
	if err := down(ctx, c.paths); err != nil {
		return fmt.Errorf("taking down what is left of a cluster: %w", err)
	}
	if err := c.writeState(ctx); err != nil {
		return err
	}
	if err := c.createNamespaces(); err != nil {
		return err
	}
	// Without this file, the next Up starts a new cluster instead of repairing this one.
	if err := os.WriteFile(c.generationFile(), []byte(generation), 0o644); err != nil {
		return fmt.Errorf("noting what was started: %w", err)
	}
	return c.startAll(ctx)
}

// startAll starts everything that does not run, and waits until the nodes are ready.
func (c *cluster) startAll(ctx context.Context) error {
	patience := startTimeout
	if c.options.Lab {
		patience = labStartTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("it did not become ready in time"))
	defer cancel()
	if err := ensureNetwork(c.site, c.nodes); err != nil {
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

// lock prevents two commands from changing the cluster at once. The lock file is in the cache, because nothing of the
// cluster may remain on the host after Down.
func lock(ctx context.Context, s site) (unlock func(), err error) {
	dir, err := cached.Dir()
	if err != nil {
		return nil, err
	}
	return cached.Lock(ctx, filepath.Join(dir, fmt.Sprintf("localcluster%d.lock", s)))
}
