package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
)

// delegator runs the plugins behind an attachment.
type delegator struct {
	// path lists the folders of the plugins, as CNI_PATH does.
	path  string
	store store
	links linkFinder
}

func newDelegator(c *Conf, path string, links linkFinder) delegator {
	return delegator{path: path, store: store{c.StateDir}, links: links}
}

// lib returns the CNI library with its cache of results in the folder of a container.
func (d delegator) lib(containerID string) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(filepath.SplitList(d.path), d.store.containerDir(containerID), nil)
}

func runtimeConf(c containerState, a attachment) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: c.ContainerID, NetNS: c.NetNS, IfName: a.IfName, Args: c.Args, CapabilityArgs: a.Capabilities,
	}
}

// add attaches one network.
func (d delegator) add(ctx context.Context, c containerState, a attachment) (*current.Result, error) {
	list, err := libcni.NetworkConfFromBytes(a.Conf)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of network %s: %w", a.Network, err)
	}
	r, err := d.lib(c.ContainerID).AddNetworkList(ctx, list, runtimeConf(c, a))
	if err != nil {
		return nil, fmt.Errorf("error adding container to network %q: %w", list.Name, err)
	}
	result, err := current.NewResultFromResult(r)
	if err != nil {
		return nil, fmt.Errorf("reading the result of network %s: %w", a.Network, err)
	}
	return result, nil
}

// del detaches one network. It is no error if there is nothing to detach: DEL may be called twice, after a
// failed ADD, and after the network namespace was removed.
func (d delegator) del(ctx context.Context, c containerState, a attachment) error {
	list, err := libcni.NetworkConfFromBytes(a.Conf)
	if err != nil {
		return fmt.Errorf("reading the configuration of network %s: %w", a.Network, err)
	}
	if !isNetNS(c.NetNS) {
		// Without a namespace, some plugins do nothing at all: they do not even release the address.
		c.NetNS = ""
		if err := d.releaseAddresses(ctx, c, a, list); err != nil {
			return err
		}
	}
	if err := d.lib(c.ContainerID).DelNetworkList(ctx, list, runtimeConf(c, a)); err != nil {
		if c.NetNS != "" {
			if found, linkErr := d.links(c.NetNS, a.IfName); linkErr == nil && !found {
				return nil
			}
		}
		return fmt.Errorf("error deleting container from network %q: %w", list.Name, err)
	}
	return nil
}

// releaseAddresses calls the IPAM plugins of a network directly. They must tolerate a second call, too.
func (d delegator) releaseAddresses(ctx context.Context, c containerState, a attachment, list *libcni.NetworkConfigList) error {
	for _, plugin := range slices.Backward(list.Plugins) {
		ipam := plugin.Network.IPAM.Type
		if ipam == "" {
			continue
		}
		conf, err := libcni.InjectConf(plugin, map[string]any{"name": list.Name, "cniVersion": list.CNIVersion})
		if err != nil {
			return fmt.Errorf("preparing the release of addresses of network %s: %w", a.Network, err)
		}
		path, err := invoke.FindInPath(ipam, filepath.SplitList(d.path))
		if err != nil {
			return fmt.Errorf("releasing addresses of network %s: %w", a.Network, err)
		}
		err = invoke.ExecPluginWithoutResult(ctx, path, conf.Bytes, &invoke.Args{
			Command: "DEL", ContainerID: c.ContainerID, IfName: a.IfName, PluginArgs: c.Args, Path: d.path,
		}, nil)
		if err != nil {
			return fmt.Errorf("releasing addresses of network %s: %w", a.Network, err)
		}
	}
	return nil
}

// check asks the plugins whether the network is unchanged.
func (d delegator) check(ctx context.Context, c containerState, a attachment) error {
	list, err := libcni.NetworkConfFromBytes(a.Conf)
	if err != nil {
		return fmt.Errorf("reading the configuration of network %s: %w", a.Network, err)
	}
	if err := d.lib(c.ContainerID).CheckNetworkList(ctx, list, runtimeConf(c, a)); err != nil {
		return fmt.Errorf("checking network %q: %w", list.Name, err)
	}
	return nil
}

// defaultList returns the configuration of the default network.
func defaultList(c *Conf) (json.RawMessage, error) {
	return ConfList(c.Delegate, c.Name, c.CNIVersion, "")
}

// isNetNS reports whether path is a network namespace. Runtimes may pass the path of a removed namespace, or of
// the plain file that it leaves behind.
func isNetNS(path string) bool {
	return path != "" && ns.IsNSorErr(path) == nil
}
