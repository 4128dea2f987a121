package doctor

import (
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/internal/foreign"
)

type problem struct{ found, remedy string }

type cniPlugin map[string]any

func (p cniPlugin) text(key string) string {
	text, _ := p[key].(string)
	return text
}

// problem returns the problem that keeps pods from getting the network, as far as its definition shows; nil if there is no problem.
func (n Network) problem() *problem {
	if n.Config == "" {
		return nil
	}
	plugins, err := foreign.Plugins[cniPlugin](n.Config)
	if err != nil {
		return &problem{err.Error(), "correct spec.config of the NetworkAttachmentDefinition"}
	}
	if len(plugins) == 0 {
		return &problem{"its list of plugins is empty", "give spec.config a plugin, such as sriov"}
	}
	for _, p := range plugins {
		kind := p.text("type")
		named := slices.ContainsFunc([]string{"device", "hwaddr", "kernelpath", "pciBusID", "deviceID"}, func(key string) bool { return p.text(key) != "" })
		switch {
		case kind == "":
			return &problem{"a plugin of its configuration has no type", "set its type, which is the name of the plugin's binary"}
		case (kind == "sriov" || kind == "host-device") && n.Resource == "" && !named:
			return &problem{fmt.Sprintf("plugin %s needs a device, and no annotation names a resource", kind),
				"give it the annotation " + foreign.AnnotationResourceName + ", with the resource of the device plugin"}
		}
	}
	return nil
}

// plugins returns the types of the plugins, and the settings of a plugin sriov that the driver of Solarflare's NICs cannot give a VF.
func (n Network) plugins() (types, refused []string) {
	all, _ := foreign.Plugins[cniPlugin](n.Config)
	for _, p := range all {
		types = append(types, p.text("type"))
		for _, key := range []string{"max_tx_rate", "min_tx_rate", "trust", "vlanQoS"} {
			if value := p[key]; p.text("type") == "sriov" && value != nil && value != "" && value != float64(0) && value != "off" {
				refused = append(refused, key)
			}
		}
	}
	return types, refused
}

// Attachable reports whether it is worth creating pods that request the network.
func (n Network) Attachable() bool { return n.Found && n.problem() == nil }
