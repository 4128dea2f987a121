package localcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// cniFile is the path of the node's only CNI configuration, below the node's folder.
const cniFile = "cni/10-pod.conf"

// RemoveMultinet removes the meta-plugin that stands for Multus from a node: pods that start afterwards get only the default
// network, without any error.
func RemoveMultinet(ctx context.Context, o Options, node string) error {
	return setCNI(ctx, o, node, func(config []byte) ([]byte, error) {
		var meta struct {
			Delegate json.RawMessage `json:"delegate"`
		}
		if err := json.Unmarshal(config, &meta); err != nil {
			return nil, fmt.Errorf("reading the CNI configuration of %s: %w", node, err)
		}
		return meta.Delegate, nil
	})
}

// RestoreMultinet undoes RemoveMultinet.
func RestoreMultinet(ctx context.Context, o Options, node string) error {
	return setCNI(ctx, o, node, func(config []byte) ([]byte, error) { return config, nil })
}

// setCNI applies a change to the node's initial CNI configuration and writes the result. The node's containerd watches the folder.
func setCNI(ctx context.Context, o Options, name string, change func([]byte) ([]byte, error)) error {
	c, n, err := existingNode(ctx, o, name)
	if err != nil {
		return err
	}
	config, err := cniConfig(c.paths, n)
	if err != nil {
		return err
	}
	if config, err = change(config); err != nil {
		return err
	}
	if err := os.WriteFile(c.node(n, cniFile), config, 0o600); err != nil {
		return fmt.Errorf("writing the CNI configuration of %s: %w", name, err)
	}
	return nil
}
