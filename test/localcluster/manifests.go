package localcluster

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed manifests/*.yaml
var manifestFiles embed.FS

// attachment is a network attachment of the default namespace.
type attachment struct {
	Name string
	// Resource is the resource that a pod must request for a device. Empty if the network needs no device.
	Resource string
	// Config is the configuration of the CNI plugin, without its IPAM.
	Config map[string]any
	// MTU is set by the tuning plugin afterwards, for plugins that do not set an MTU; 0: unchanged.
	MTU    int
	Subnet string
}

// attachments returns the networks that work. Tests create those that do not, such as a network of VFs far from the CPUs.
func attachments() []attachment {
	vf, pf := map[string]any{"type": "sriov"}, map[string]any{"type": "host-device"}
	macvlan := func(bytes int) map[string]any {
		return map[string]any{"type": "macvlan", "master": "ens1f0", "mode": "bridge", "mtu": bytes}
	}
	return []attachment{
		{Name: "sf-vf", Resource: ResourceVF, Config: vf, Subnet: "198.18.10.0/24"},
		{Name: "sf-pf", Resource: ResourcePF, Config: pf, Subnet: "198.18.12.0/24"},
		{Name: "macvlan", Config: macvlan(mtu), Subnet: "198.18.13.0/24"},
		{Name: "sf-vf-9000", Resource: ResourceVF, Config: vf, MTU: fabricMTU, Subnet: "198.18.14.0/24"},
		{Name: "macvlan-9000", Config: macvlan(fabricMTU), Subnet: "198.18.15.0/24"},
	}
}

// manifest returns the NetworkAttachmentDefinition. Both nodes allocate addresses in one folder, so that an address is
// unique in the whole cluster.
func (a attachment) manifest(p paths) ([]byte, error) {
	plugin := map[string]any{
		"ipam": map[string]any{
			"type":    "host-local",
			"dataDir": p.ipam(),
			"ranges":  [][]map[string]string{{{"subnet": a.Subnet}}},
		},
	}
	maps.Copy(plugin, a.Config)
	config := map[string]any{"cniVersion": "1.0.0", "name": a.Name}
	if a.MTU == 0 {
		maps.Copy(config, plugin)
	} else {
		// It saves the previous MTU in a file and restores it when the pod returns the device.
		config["plugins"] = []map[string]any{plugin, {"type": "tuning", "mtu": a.MTU, "dataDir": p.tuning()}}
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding network %s: %w", a.Name, err)
	}
	metadata := map[string]any{"name": a.Name, "namespace": "default"}
	if a.Resource != "" {
		metadata["annotations"] = map[string]string{"k8s.v1.cni.cncf.io/resourceName": a.Resource}
	}
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1",
		"kind":       "NetworkAttachmentDefinition",
		"metadata":   metadata,
		"spec":       map[string]string{"config": string(encoded)},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding network %s: %w", a.Name, err)
	}
	return content, nil
}

// manifests returns all initial objects of the cluster.
func manifests(p paths) (string, error) {
	var documents []string
	files, err := fs.Glob(manifestFiles, "manifests/*.yaml")
	if err != nil {
		return "", fmt.Errorf("listing manifests: %w", err)
	}
	for _, file := range files {
		content, err := manifestFiles.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading a manifest: %w", err)
		}
		documents = append(documents, string(content))
	}
	for _, a := range attachments() {
		content, err := a.manifest(p)
		if err != nil {
			return "", err
		}
		documents = append(documents, string(content))
	}
	return strings.Join(documents, "---\n"), nil
}

// apply sends the manifests to the API server until it accepts all of them: it serves the networks' kind only a moment
// after it has received the CustomResourceDefinition.
func (c *cluster) apply(ctx context.Context, servers []process) error {
	documents, err := manifests(c.paths)
	if err != nil {
		return err
	}
	for _, file := range c.components.manifests {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a manifest of the site's components: %w", err)
		}
		documents += "\n---\n" + string(content)
	}
	return c.await(ctx, "the API server to accept the cluster's manifests", servers, func() error {
		cmd := c.command(ctx, "kubectl", "--kubeconfig="+c.kubeconfig("admin"), "apply", "--server-side", "--force-conflicts", "--filename=-")
		cmd.Stdin = strings.NewReader(documents)
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, tail(string(output), 3))
		}
		return nil
	})
}
