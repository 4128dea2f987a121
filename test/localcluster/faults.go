package localcluster

import (
	"context"
	"fmt"
	"os"
	"time"
)

// KillProcess kills a process of the cluster with SIGKILL: one of Etcd, APIServer, ControllerManager and Scheduler, or
// kubelet, containerd or deviceplugin of a node, such as "kubelet-node-a". Its children live on. It returns when the
// process is gone, and fails on a name that does not exist.
func KillProcess(ctx context.Context, o Options, name string) error {
	c, err := existing(ctx, o)
	if err != nil {
		return err
	}
	pr, err := c.process(name)
	if err != nil {
		return err
	}
	return killAll(ctx, c.runs(pr.Name, pr.Args[0]))
}

// StartProcess starts a process that was killed by KillProcess, and does nothing when it runs. It does not wait until
// the process is of use: Up does.
func StartProcess(ctx context.Context, o Options, name string) error {
	c, err := existing(ctx, o)
	if err != nil {
		return err
	}
	pr, err := c.process(name)
	if err != nil {
		return err
	}
	return c.ensure(pr)
}

// KillKubelet kills the kubelet of a node, "node-a" or "node-b", with SIGKILL.
func KillKubelet(ctx context.Context, o Options, node string) error {
	return KillProcess(ctx, o, nodeProcess("kubelet", node))
}

// StartKubelet starts the kubelet of a node again.
func StartKubelet(ctx context.Context, o Options, node string) error {
	return StartProcess(ctx, o, nodeProcess("kubelet", node))
}

// CutFabric cuts the cable between the cards of the two nodes for so long. What the PFs and VFs send meanwhile is lost;
// the links of their interfaces stay up, as behind a switch. The nodes' own network is another.
func CutFabric(d time.Duration) error {
	fabric, err := openNetns(fabricNetns)
	if err != nil {
		return err
	}
	defer fabric.close()
	bridge, err := fabric.LinkByName(fabricBridge)
	if err != nil {
		return fmt.Errorf("looking for the fabric: %w", err)
	}
	if err := fabric.LinkSetDown(bridge); err != nil {
		return fmt.Errorf("cutting the fabric: %w", err)
	}
	time.Sleep(d)
	if err := fabric.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("mending the fabric: %w", err)
	}
	return nil
}

// Load imports images into both nodes, from tarballs as docker or an OCI tool saves them. Their names are what the
// tarballs say.
func Load(ctx context.Context, o Options, tars ...string) error {
	c, err := existing(ctx, o)
	if err != nil {
		return err
	}
	return c.load(ctx, tars...)
}

// existing describes the cluster that is up.
func existing(ctx context.Context, o Options) (*cluster, error) {
	c, err := newCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(c.generationFile()); err != nil {
		return nil, fmt.Errorf("no local cluster is up with its state in %s", c.state)
	}
	return c, nil
}
