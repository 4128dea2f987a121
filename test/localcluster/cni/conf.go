// Package cni is the local cluster's stand-in for Multus: a CNI plugin that attaches a pod to the default
// network and to the networks named in its annotation, and reports the result in another annotation. It
// behaves like Multus where the operator depends on it: the annotations, the order in which devices are
// assigned, the errors and the event of a missing network. It is never shipped.
//
// The package defines its own types for the annotations, so that an error in the operator's types is not
// repeated here.
//
// Its user in the API server needs: get on pods, on network-attachment-definitions.k8s.cni.cncf.io and on
// resourceclaims.resource.k8s.io, list on resourceslices.resource.k8s.io, patch on pods/status, create on events.
package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/types"
)

// Conf is the plugin's network configuration, as the runtime passes it on standard input.
type Conf struct {
	types.PluginConf
	// Kubeconfig is the path of the credentials for the API server.
	Kubeconfig string `json:"kubeconfig"`
	// PodResourcesSocket is the path of the kubelet's podresources socket.
	PodResourcesSocket string `json:"podResourcesSocket"`
	// StateDir is the folder in which the plugin records attachments until DEL.
	StateDir string `json:"stateDir"`
	// Delegate is the default network: the configuration of one plugin, or a list. If it has no name or version,
	// those of the outer configuration apply.
	Delegate json.RawMessage `json:"delegate"`
}

// LoadConf parses and checks a network configuration. The error names the first invalid field.
func LoadConf(data []byte) (*Conf, error) {
	var c Conf
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("parsing the network configuration: %w", err)
	}
	if c.Name == "" {
		return nil, errors.New("network configuration without a name")
	}
	for _, field := range []struct{ name, path string }{
		{"kubeconfig", c.Kubeconfig},
		{"podResourcesSocket", c.PodResourcesSocket},
		{"stateDir", c.StateDir},
	} {
		if !filepath.IsAbs(field.path) {
			return nil, fmt.Errorf("%s %q is not an absolute path", field.name, field.path)
		}
	}
	if len(c.Delegate) == 0 {
		return nil, errors.New("no delegate for the default network")
	}
	return &c, nil
}

// ConfList converts a network configuration, of a single plugin or a list, into a list. name and version are
// the defaults. A device id, if there is one, is added to every plugin, under the two names that plugins use.
func ConfList(raw []byte, name, version, deviceID string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // a VLAN or an MTU must not become a float
	var conf map[string]any
	if err := d.Decode(&conf); err != nil {
		return nil, fmt.Errorf("parsing the configuration of network %s: %w", name, err)
	}
	if conf == nil {
		return nil, fmt.Errorf("the configuration of network %s is not an object", name)
	}
	if _, ok := conf["name"]; !ok {
		conf["name"] = name
	}
	if _, ok := conf["cniVersion"]; !ok && version != "" {
		conf["cniVersion"] = version
	}
	if _, ok := conf["plugins"]; !ok {
		list := map[string]any{"name": conf["name"], "plugins": []any{conf}}
		if v, ok := conf["cniVersion"]; ok {
			list["cniVersion"] = v
		}
		conf = list
	}
	if deviceID != "" {
		plugins, _ := conf["plugins"].([]any)
		if len(plugins) == 0 {
			return nil, fmt.Errorf("the configuration of network %s has no plugins", name)
		}
		for i := range plugins {
			plugin, ok := plugins[i].(map[string]any)
			if !ok {
				return nil, fmt.Errorf("plugin %d of network %s is not an object", i+1, name)
			}
			plugin["deviceID"] = deviceID
			plugin["pciBusID"] = deviceID
		}
	}
	out, err := json.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration of network %s: %w", name, err)
	}
	return out, nil
}
