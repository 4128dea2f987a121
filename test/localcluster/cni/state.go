package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// attachment is one network of a container, with all data for DEL: at that time, the pod and the
// NetworkAttachmentDefinition may have been deleted.
type attachment struct {
	// Network is the name in the network-status annotation.
	Network string `json:"network"`
	IfName  string `json:"ifName"`
	// DeviceID is the PCI address of the device that was passed to the plugin, if any.
	DeviceID string `json:"deviceID,omitempty"`
	// Conf is the list of plugin configurations.
	Conf json.RawMessage `json:"conf"`
	// Capabilities are the runtime's arguments for plugins that declare them.
	Capabilities map[string]any `json:"capabilities,omitempty"`
}

// containerState holds the networks of one container, in the order of attachment.
type containerState struct {
	ContainerID string       `json:"containerID"`
	NetNS       string       `json:"netns"`
	Args        [][2]string  `json:"args,omitempty"`
	Attachments []attachment `json:"attachments"`
}

// store keeps a folder for each container. The folder holds the CNI library's cache, and a file that is written
// before a network is attached, so that the runtime's DEL also undoes the incomplete work of a killed plugin.
type store struct{ dir string }

func (s store) containerDir(containerID string) string { return filepath.Join(s.dir, containerID) }

func (s store) path(containerID string) string {
	return filepath.Join(s.containerDir(containerID), "attachments.json")
}

func (s store) save(c containerState) error {
	path := s.path(c.ContainerID)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the folder of the CNI state: %w", err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("writing the CNI state of container %s: %w", c.ContainerID, err)
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, text, 0o600); err != nil {
		return fmt.Errorf("writing the CNI state: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("replacing the CNI state: %w", err)
	}
	return nil
}

// load returns the state of a container, and whether there is any.
func (s store) load(containerID string) (containerState, bool, error) {
	text, err := os.ReadFile(s.path(containerID))
	if errors.Is(err, fs.ErrNotExist) {
		return containerState{}, false, nil
	}
	if err != nil {
		return containerState{}, false, fmt.Errorf("reading the CNI state: %w", err)
	}
	var c containerState
	if err := json.Unmarshal(text, &c); err != nil {
		return containerState{}, false, fmt.Errorf("parsing the CNI state of container %s: %w", containerID, err)
	}
	return c, true, nil
}

func (s store) remove(containerID string) error {
	if err := os.RemoveAll(s.containerDir(containerID)); err != nil {
		return fmt.Errorf("removing the CNI state: %w", err)
	}
	return nil
}

// containers lists the ids of all containers with state.
func (s store) containers() ([]string, error) {
	files, err := filepath.Glob(s.path("*"))
	if err != nil {
		return nil, fmt.Errorf("listing the CNI state: %w", err)
	}
	ids := make([]string, 0, len(files))
	for _, f := range files {
		ids = append(ids, filepath.Base(filepath.Dir(f)))
	}
	return ids, nil
}
