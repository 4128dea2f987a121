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

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
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
	dir, err := withDigest(filepath.Join(root, overlay), built[0].ID.String())
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := Kubectl(ctx, kubeconfig, io.Discard, "apply", "--server-side", "--force-conflicts", "-k", dir); err != nil {
		return err
	}
	return Kubectl(ctx, kubeconfig, io.Discard, "-n", "tailgate-system", "rollout", "status", "deployment/manager", "--timeout="+patience)
}

// Client returns a client of a cluster for Kubernetes' own kinds and Tailgate's.
func Client(kubeconfig string) (client.WithWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
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

// withDigest writes a temporary kustomization of an overlay with the digest of the manager's image and returns its folder.
func withDigest(overlay, digest string) (string, error) {
	dir, err := os.MkdirTemp("", "tailgate-install-")
	if err != nil {
		return "", err
	}
	relative, err := filepath.Rel(dir, overlay)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, digestOverlay, relative, digest), 0o600)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// Kubectl runs kubectl with a kubeconfig and copies its output to out.
func Kubectl(ctx context.Context, kubeconfig string, out io.Writer, args ...string) error {
	dir, err := localcluster.Assets(ctx, io.Discard)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, filepath.Join(dir, "kubectl"), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	c.Stdout, c.Stderr = out, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("kubectl %v: %w", args, err)
	}
	return nil
}
