// Package install installs Tailgate on the local cluster as a user would: images, CRDs, RBAC and the manager as a
// Deployment.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

// Overlay is the folder of the kustomization for the local cluster, relative to the root of the repository.
const Overlay = "test/localcluster/overlay"

// Build builds the images of Tailgate from the work tree. The working directory must be in the repository.
func Build(ctx context.Context, log io.Writer) ([]images.Image, error) {
	root, err := images.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	options, err := images.DefaultOptions(root, log)
	if err != nil {
		return nil, err
	}
	return images.Build(ctx, options, "manager", "bench")
}

// Install starts the cluster if it does not run, and installs Tailgate from the images that Build made. It returns when the
// manager is ready, and can run again after any failure. The working directory must be in the repository.
func Install(ctx context.Context, o localcluster.Options, built []images.Image) error {
	root, err := images.RepositoryRoot()
	if err != nil {
		return err
	}
	for _, image := range built {
		o.Images = append(o.Images, image.Path)
	}
	if err := localcluster.Up(ctx, o); err != nil {
		return fmt.Errorf("starting the local cluster: %w", err)
	}
	if err := localcluster.Load(ctx, o, o.Images...); err != nil {
		return fmt.Errorf("loading the images: %w", err)
	}
	kubeconfig := localcluster.Kubeconfig(o)
	overlay, patience := Overlay, "120s"
	if o.Lab {
		overlay, patience = Overlay+"-lab", "15m"
	}
	dir, remove, err := cached.Temporary(os.TempDir())
	if err != nil {
		return err
	}
	defer remove()
	if err := withDigest(dir, filepath.Join(root, overlay), built[0].ID.String()); err != nil {
		return err
	}
	if err := Kubectl(ctx, kubeconfig, io.Discard, "apply", "--server-side", "--force-conflicts", "-k", dir); err != nil {
		return err
	}
	err = Kubectl(ctx, kubeconfig, io.Discard, "-n", managerNamespace, "rollout", "status", "deployment/manager", "--timeout="+patience)
	if err != nil {
		return errors.Join(err, waiting(ctx, kubeconfig))
	}
	return nil
}

const managerNamespace = "tailgate-system"

// waiting returns what the manager's pods wait for, as an error.
func waiting(ctx context.Context, kubeconfig string) error {
	c, err := Client(kubeconfig)
	if err != nil {
		return err
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(managerNamespace)); err != nil {
		return fmt.Errorf("listing the manager's pods: %w", err)
	}
	var errs []error
	for _, p := range pods.Items {
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				errs = append(errs, fmt.Errorf("pod %s: %s: %s", p.Name, condition.Reason, condition.Message))
			}
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Waiting != nil {
				errs = append(errs, fmt.Errorf("pod %s: %s: %s", p.Name, s.State.Waiting.Reason, s.State.Waiting.Message))
			}
			if end := s.LastTerminationState.Terminated; end != nil {
				errs = append(errs, fmt.Errorf("pod %s: it ended before with exit code %d: %s", p.Name, end.ExitCode, end.Message))
			}
		}
	}
	return errors.Join(errs...)
}

// Client returns a client of a cluster for Kubernetes' own kinds and Tailgate's.
func Client(kubeconfig string) (client.WithWatch, error) {
	config, err := localcluster.RESTConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// digestOverlay annotates the manager's pods with the digest of their image. The tag never changes, so the digest causes a
// rollout of the Deployment when the image has changed.
const digestOverlay = `resources: [%q]
patches:
- target: {kind: Deployment, name: manager}
  patch: |-
    - {op: add, path: /spec/template/metadata/annotations/tailgate.dev~1image-digest, value: %q}
`

// withoutSfnettest tells the manager that the bench image of the local cluster has no sfnt tools.
const withoutSfnettest = "    - {op: add, path: /spec/template/spec/containers/0/args/-, value: \"--bench-tools=pinger,netperf,sockperf\"}\n"

// withDigest writes a kustomization of an overlay with the digest of the manager's image, and the tools of the bench image if these are
// not all, into a folder.
func withDigest(dir, overlay, digest string) error {
	// kustomize resolves symbolic links before it follows a relative path.
	realDir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		overlay, err = filepath.EvalSymlinks(overlay)
	}
	relative := ""
	if err == nil {
		relative, err = filepath.Rel(realDir, overlay)
	}
	if err == nil {
		text := fmt.Sprintf(digestOverlay, relative, digest)
		if os.Getenv("SFNETTEST_BIN") == "" {
			text += withoutSfnettest
		}
		err = os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)
	}
	return err
}

// Kubectl runs kubectl with a kubeconfig and copies its output to out.
func Kubectl(ctx context.Context, kubeconfig string, out io.Writer, args ...string) error {
	dir, err := localcluster.Assets(ctx, io.Discard)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, filepath.Join(dir, "kubectl"), args...)
	c.Env = localcluster.Environment(kubeconfig)
	c.Stdout, c.Stderr = out, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("kubectl %v: %w", args, err)
	}
	return nil
}
