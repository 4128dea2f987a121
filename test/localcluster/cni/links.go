package cni

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// linkInfo is what the plugin wants to know of an interface.
type linkInfo struct {
	// Found is false if there is no such interface; that is not an error.
	Found bool
	// MTU is in bytes.
	MTU int
}

// linkReader looks at an interface in the network namespace at a path.
type linkReader func(netnsPath, name string) (linkInfo, error)

func readLink(netnsPath, name string) (linkInfo, error) {
	handle, err := netns.GetFromPath(netnsPath)
	if err != nil {
		return linkInfo{}, fmt.Errorf("opening network namespace %s: %w", netnsPath, err)
	}
	defer handle.Close() //nolint:errcheck // nothing was written through it
	nl, err := netlink.NewHandleAt(handle)
	if err != nil {
		return linkInfo{}, fmt.Errorf("entering network namespace %s: %w", netnsPath, err)
	}
	defer nl.Close()
	link, err := nl.LinkByName(name)
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) {
		return linkInfo{}, nil
	}
	if err != nil {
		return linkInfo{}, fmt.Errorf("reading interface %s in %s: %w", name, netnsPath, err)
	}
	return linkInfo{Found: true, MTU: link.Attrs().MTU}, nil
}
