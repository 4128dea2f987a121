package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// RunOn runs a command in the network and mount namespaces of a node, as its administrator does over ssh.
func RunOn(ctx context.Context, o Options, node string, cmd *exec.Cmd) error {
	c, n, err := existingNode(ctx, o, node)
	if err != nil {
		return err
	}
	return thread.Run(func() error {
		if err := enterNode(c.paths, n); err != nil {
			return err
		}
		return cmd.Run()
	})
}

// ConfigureKubelet sets fields in the configuration file of a node's kubelet, which reads the file when it starts. The CPUs that the node
// reserves stay. Up restores the file.
func ConfigureKubelet(ctx context.Context, o Options, node string, fields map[string]any) error {
	c, n, err := existingNode(ctx, o, node)
	if err != nil {
		return err
	}
	file := c.node(n, "kubelet.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the kubelet's configuration: %w", err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return fmt.Errorf("parsing %s: %w", file, err)
	}
	maps.Copy(config, fields)
	config["reservedSystemCPUs"] = cpuList(n.Reserved)
	if content, err = yaml.Marshal(config); err != nil {
		return fmt.Errorf("encoding the kubelet's configuration: %w", err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("writing the kubelet's configuration: %w", err)
	}
	return nil
}

// InstallKubelet gives a node the same kubelet with another version, such as v1.36.4, which has as many characters as the first one. The
// node's kubelet is of that version when it is restarted.
func InstallKubelet(ctx context.Context, o Options, node, version string) error {
	c, n, err := existingNode(ctx, o, node)
	if err != nil {
		return err
	}
	if len(version) != len(KubernetesVersion) {
		return fmt.Errorf("version %s is not as long as %s", version, KubernetesVersion)
	}
	original := filepath.Join(c.binaries, "kubelet")
	program, err := os.ReadFile(original)
	if err != nil {
		return fmt.Errorf("reading the kubelet: %w", err)
	}
	// A file that is executed cannot be written.
	if _, err := os.Stat(c.node(n, "cover", "kubelet")); err == nil {
		return errors.New("the node has another version already")
	}
	program = bytes.ReplaceAll(program, []byte(KubernetesVersion), []byte(version))
	if err := c.coverFile(n, original, string(program)); err != nil {
		return err
	}
	if err := os.Chmod(c.node(n, "cover", "kubelet"), 0o755); err != nil {
		return fmt.Errorf("making the kubelet executable: %w", err)
	}
	return nil
}

// Tag gives an image of both nodes another name.
func Tag(ctx context.Context, o Options, image, name string) error {
	c, err := existing(ctx, o)
	if err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := c.ctr(ctx, n, "images", "tag", "--force", image, name); err != nil {
			return err
		}
	}
	return nil
}
