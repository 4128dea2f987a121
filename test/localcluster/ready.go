package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

// startControlPlane starts the control plane. It returns when the API server is ready and has the initial objects and the
// default service account.
func (c *cluster) startControlPlane(ctx context.Context, client *kubernetes.Clientset) error {
	all := []process{etcd(c.paths, c.binaries), apiServer(c.paths, c.binaries), controllerManager(c.paths, c.binaries), scheduler(c.paths, c.binaries)}
	for _, pr := range all[:2] {
		if err := c.ensure(pr); err != nil {
			return err
		}
	}
	err := c.await(ctx, "the API server", all[:2], c.reachable(func() error {
		_, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	}))
	if err != nil {
		return err
	}
	for _, pr := range all[2:] {
		if err := c.ensure(pr); err != nil {
			return err
		}
	}
	if err := c.apply(ctx, all[:2]); err != nil {
		return err
	}
	return c.await(ctx, "the default service account", all, func() error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// startRuntimes starts containerd on both nodes. It returns when both answer and have the sandbox image.
func (c *cluster) startRuntimes(ctx context.Context) error {
	for _, n := range c.nodes {
		if err := c.ensure(containerd(c.paths, n, c.binaries)); err != nil {
			return err
		}
	}
	if err := c.provideOwn(ctx); err != nil {
		return err
	}
	for _, n := range c.nodes {
		err := c.await(ctx, "containerd of "+n.Name, []process{containerd(c.paths, n, c.binaries)}, func() error { return c.ctr(ctx, n, "version") })
		if err != nil {
			return err
		}
	}
	pause, err := c.buildPause(ctx)
	if err != nil {
		return err
	}
	return c.load(ctx, nil, pause)
}

// buildPause builds the sandbox image.
func (c *cluster) buildPause(ctx context.Context) (tar string, err error) {
	pause, err := images.Build(ctx, images.Options{Root: c.root, OutDir: c.state, Log: c.options.log(), Arch: runtime.GOARCH}, "pause")
	if err != nil {
		return "", err
	}
	return pause[0].Path, nil
}

// configureKubelet writes the configuration of the node's kubelet. It kills a kubelet that runs with another configuration.
func (c *cluster) configureKubelet(ctx context.Context, n node, pinning bool) error {
	config, err := kubeletConfig(c.paths, n, pinning)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(c.node(n, "kubelet.yaml"))
	if err == nil && bytes.Equal(old, config) {
		return nil
	}
	k := kubelet(c.paths, n, c.binaries)
	if err := killAll(ctx, c.runs(k.Name, k.Args[0])); err != nil {
		return err
	}
	// A kubelet does not start with the checkpoint of a CPU manager with another policy.
	if err := os.RemoveAll(c.node(n, cpuCheckpoint...)); err != nil {
		return fmt.Errorf("removing the state of the CPU manager of %s: %w", n.Name, err)
	}
	if err := os.WriteFile(c.node(n, "kubelet.yaml"), config, 0o600); err != nil {
		return fmt.Errorf("writing the configuration of %s: %w", n.Name, err)
	}
	return nil
}

// startKubelets starts the kubelets and their plugins. It returns when the nodes are ready and offer all their devices.
func (c *cluster) startKubelets(ctx context.Context, client *kubernetes.Clientset, pinning bool, nodes ...node) error {
	for _, n := range nodes {
		if err := c.configureKubelet(ctx, n, pinning); err != nil {
			return err
		}
		k := kubelet(c.paths, n, c.binaries)
		running, err := c.running(k)
		if err == nil && !running {
			err = forgetHeartbeat(ctx, client, n)
		}
		if err != nil {
			return err
		}
		for _, pr := range []process{k, devicePlugin(c.paths, n), draDriver(c.paths, n)} {
			if err := c.ensure(pr); err != nil {
				return err
			}
		}
	}
	return c.awaitNodes(ctx, client, nodes)
}

// forgetHeartbeat removes the time of the last report of a kubelet that does not run any more. The first report of the next
// kubelet sets it. The times of the reports do not tell the two kubelets apart, because they have a resolution of a second.
func forgetHeartbeat(ctx context.Context, client *kubernetes.Clientset, n node) error {
	patch := []byte(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":null}]}}`)
	_, err := client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the last heartbeat of %s: %w", n.Name, err)
	}
	return nil
}

// awaitNodes waits until the nodes are ready and offer all their devices.
func (c *cluster) awaitNodes(ctx context.Context, client *kubernetes.Clientset, nodes []node) error {
	for _, n := range nodes {
		err := c.await(ctx, n.Name, slices.DeleteFunc(c.processes(), func(pr process) bool { return !pr.of(n) }), func() error {
			ready, err := nodeAnswers(ctx, client, n)
			if err == nil && !ready {
				err = errors.New("it is not ready, or does not offer all its devices yet")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// nodeAnswers reports whether the kubelet of the node answers and has reported the node as ready. The node's status alone is
// not enough, because a kubelet that was killed meanwhile may have reported it. The answer alone is not enough, because the
// first report of a new kubelet may say that the node is not ready.
func nodeAnswers(ctx context.Context, client *kubernetes.Clientset, n node) (bool, error) {
	if _, err := client.RESTClient().Get().AbsPath("/api/v1/nodes", n.Name, "proxy/healthz").DoRaw(ctx); err != nil {
		return false, fmt.Errorf("asking the kubelet: %w", err)
	}
	object, err := client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("reading the node: %w", err)
	}
	return nodeReady(object, n), nil
}

// nodeReady reports whether pods of every kind can be placed on the node.
func nodeReady(object *corev1.Node, n node) bool {
	for _, p := range n.pools() {
		quantity := object.Status.Allocatable[corev1.ResourceName(p.Resource)]
		if quantity.Value() != int64(len(p.Devices)) {
			return false
		}
	}
	for _, taint := range object.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return false // The controller manager removes it a moment after the node is ready.
		}
	}
	for _, condition := range object.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue && !condition.LastHeartbeatTime.IsZero()
		}
	}
	return false
}

// ctr runs containerd's command line client for a node, from the host.
func (c *cluster) ctr(ctx context.Context, n node, args ...string) error {
	args = append([]string{"--address=" + c.containerdSocket(n), "--namespace=k8s.io"}, args...)
	output, err := c.command(ctx, "ctr", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr on %s: %w: %s", n.Name, err, tail(string(output), 1))
	}
	return nil
}

// load imports images into both nodes. The flags are those of ctr images import; guests do not use them.
func (c *cluster) load(ctx context.Context, flags []string, tars ...string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		group.Go(func() error {
			for _, path := range tars {
				if n.Guest {
					if err := c.post(ctx, n, path); err != nil {
						return err
					}
					continue
				}
				if err := c.ctr(ctx, n, append(append([]string{"images", "import"}, flags...), path)...); err != nil {
					return fmt.Errorf("loading %s: %w", path, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// explain adds to an error where the logs are, and what to do against a known cause.
func (c *cluster) explain(err error) error {
	var e *ended
	if r := remedy(err.Error()); r != "" && !errors.As(err, &e) {
		err = fmt.Errorf("%w; %s", err, r)
	}
	return fmt.Errorf("%w; logs are in %s", err, c.join("logs"))
}
