package cni

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// linkFinder reports whether there is an interface of that name in the network namespace at a path.
type linkFinder func(netnsPath, name string) (bool, error)

func findLink(netnsPath, name string) (bool, error) {
	handle, err := netns.GetFromPath(netnsPath)
	if err != nil {
		return false, fmt.Errorf("opening network namespace %s: %w", netnsPath, err)
	}
	defer handle.Close()
	nl, err := netlink.NewHandleAt(handle)
	if err != nil {
		return false, fmt.Errorf("entering network namespace %s: %w", netnsPath, err)
	}
	defer nl.Close()
	_, err = nl.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for interface %s in %s: %w", name, netnsPath, err)
	}
	return true, nil
}
