package localcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

// Components names the environment variable with a folder of a site's own components, such as Multus, the SR-IOV network device
// plugin and sriov-cni. The lab then starts neither the project's device plugin nor its CNI plugins.
const Components = "LAB_COMPONENTS"

// Folders on a node for the CNI plugins and configurations of a site's components.
const (
	siteCNIBinaries = "/opt/cni/bin"
	siteCNIConfig   = "/etc/cni/net.d"
)

// components lists the files of a site's components.
type components struct {
	// images are tarballs for both nodes, manifests are files that are applied before the nodes are ready.
	images, manifests []string
}

// readComponents lists the files in a folder. An empty dir means that there are no components.
func readComponents(dir string) (components, error) {
	if dir == "" {
		return components{}, nil
	}
	c := components{}
	for pattern, list := range map[string]*[]string{"*.tar": &c.images, "*.yaml": &c.manifests} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return c, err
		}
		*list = found
	}
	if len(c.manifests) == 0 {
		return c, fmt.Errorf("%s names the folder %s, which has no manifests (*.yaml)", Components, dir)
	}
	return c, nil
}

// podNetwork returns the CNI configuration of the node's default network.
func podNetwork(p paths, n node) map[string]any {
	return map[string]any{
		"cniVersion": "1.0.0",
		"name":       "podnet",
		"type":       "bridge",
		"bridge":     "cni0",
		"isGateway":  true,
		"mtu":        mtu,
		"ipam": map[string]any{
			"type":    "host-local",
			"dataDir": p.node(n, "ipam"),
			"ranges":  [][]map[string]string{{{"subnet": n.PodCIDR, "gateway": n.PodGateway}}},
			"routes":  []map[string]string{{"dst": "0.0.0.0/0"}},
		},
	}
}

// metaPlugin returns the configuration of the CNI meta-plugin, without its default network.
func metaPlugin(p paths, stateDir string) map[string]any {
	return map[string]any{
		"cniVersion":         "1.0.0",
		"name":               "podnet",
		"type":               "multinet",
		"kubeconfig":         p.kubeconfig("multinet"),
		"podResourcesSocket": "/var/lib/kubelet/pod-resources/kubelet.sock",
		"stateDir":           stateDir,
	}
}

// WriteComponents writes a folder for the variable Components, with the project's own device plugin and CNI plugins.
func WriteComponents(ctx context.Context, o Options, dir string) error {
	root, err := images.RepositoryRoot()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := images.Build(ctx, images.Options{Root: root, OutDir: dir, Log: o.log(), Arch: runtime.GOARCH}, "labcomponents"); err != nil {
		return err
	}
	meta, err := json.Marshal(metaPlugin(o.paths(), "/var/lib/multinet"))
	if err != nil {
		return err
	}
	devices, err := devicePluginConfig(node{Guest: true})
	if err != nil {
		return err
	}
	var volumes, mounts []map[string]any
	for i, path := range []string{siteCNIBinaries, siteCNIConfig, kubeletPlugins, deviceInfos} {
		name := fmt.Sprintf("host-%d", i)
		volumes = append(volumes, map[string]any{"name": name, "hostPath": map[string]string{"path": path, "type": "DirectoryOrCreate"}})
		mounts = append(mounts, map[string]any{"name": name, "mountPath": path})
	}
	volumes = append(volumes, map[string]any{"name": "config", "configMap": map[string]string{"name": "labcomponents"}})
	mounts = append(mounts, map[string]any{"name": "config", "mountPath": "/config"})
	metadata := map[string]string{"name": "labcomponents", "namespace": "kube-system"}
	labels := map[string]string{"app": "labcomponents"}
	var documents []string
	for _, object := range []any{
		map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": map[string]string{"meta.json": string(meta), "devices.json": string(devices)}},
		map[string]any{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
				"hostNetwork": true, "volumes": volumes,
				// A gate taints the nodes that it holds, and they cannot be measured without devices.
				"tolerations": []map[string]string{{"operator": "Exists"}},
				"containers": []map[string]any{{
					"name": "labcomponents", "image": images.ComponentsRef, "imagePullPolicy": "Never", "args": []string{"/config/meta.json", "/config/devices.json"},
					"securityContext": map[string]any{"privileged": true, "runAsUser": 0}, "volumeMounts": mounts,
				}},
			}},
		}},
	} {
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		documents = append(documents, string(text))
	}
	return os.WriteFile(filepath.Join(dir, "components.yaml"), []byte(strings.Join(documents, "---\n")), 0o644)
}
