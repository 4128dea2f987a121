// Command labcomponents is the first process of a DaemonSet that installs the local cluster's CNI and device plugins on the nodes of
// the lab, in the same way as a site's components: it installs the CNI plugins, makes the meta-plugin the first configuration, with
// the existing configuration as its default network, and becomes the device plugin.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// The folders of the node, as the DaemonSet mounts them.
const (
	binaries       = "/opt/cni/bin"
	configurations = "/etc/cni/net.d"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "labcomponents:", err)
		os.Exit(1)
	}
}

// run expects the paths of two configurations: of the meta-plugin, without its default network, and of the device plugin.
func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: labcomponents META-PLUGIN-CONFIGURATION DEVICE-PLUGIN-CONFIGURATION")
	}
	for _, name := range []string{"multinet", "sriov"} {
		content, err := os.ReadFile("/" + name)
		if err != nil {
			return err
		}
		if err := replace(filepath.Join(binaries, name), content, 0o755); err != nil {
			return err
		}
	}
	delegate, err := os.ReadFile(filepath.Join(configurations, "10-podnet.conf"))
	if err != nil {
		return err
	}
	var conf map[string]any
	text, err := os.ReadFile(args[0])
	if err == nil {
		err = json.Unmarshal(text, &conf)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", args[0], err)
	}
	conf["delegate"] = json.RawMessage(delegate)
	if text, err = json.Marshal(conf); err != nil {
		return err
	}
	if err := replace(filepath.Join(configurations, "00-multinet.conf"), text, 0o600); err != nil {
		return err
	}
	return syscall.Exec("/deviceplugin", []string{"deviceplugin", "-config", args[1]}, os.Environ())
}

// replace writes a file that may be in use.
func replace(path string, content []byte, mode os.FileMode) error {
	next := path + ".next"
	return errors.Join(os.WriteFile(next, content, mode), os.Rename(next, path))
}
