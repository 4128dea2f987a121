package guestnode

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
)

// network names the cards, makes their VFs, and connects the node to the cluster.
func (c Config) network() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("starting the loopback: %w", err)
	}
	for _, card := range c.Cards {
		if err := card.prepare(); err != nil {
			return fmt.Errorf("preparing %s: %w", card.Name, err)
		}
	}
	link, err := named(c.Cluster, "eth0")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(c.Address)
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.AddrAdd(link, address), netlink.LinkSetUp(link)); err != nil {
		return fmt.Errorf("giving eth0 its address: %w", err)
	}
	for destination, gateway := range c.Routes {
		_, to, err := net.ParseCIDR(destination)
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(gateway), LinkIndex: link.Attrs().Index})
		}
		if err != nil {
			return fmt.Errorf("routing %s by %s: %w", destination, gateway, err)
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// prepare creates the card's VFs before its link comes up, because a VF has no link without the PF's.
func (c Card) prepare() error {
	link, err := named(c.MAC, c.Name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(link, c.MTU); err != nil || c.VFs == 0 {
		return err
	}
	device := filepath.Join("/sys/class/net", c.Name, "device")
	if err := os.WriteFile(filepath.Join(device, "sriov_numvfs"), []byte(strconv.Itoa(c.VFs)), 0o644); err != nil {
		return err
	}
	for i := range c.VFs {
		vf := fmt.Sprintf("virtfn%d", i)
		err := eventually(vf+" has a driver", func() bool {
			found, _ := filepath.Glob(filepath.Join(device, vf, "net/*"))
			return len(found) == 1
		})
		if err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// named gives the network device with a MAC address a name.
func named(mac, name string) (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		if link.Attrs().HardwareAddr.String() != mac {
			continue
		}
		// Another device may have the name, because the kernel names devices in any order.
		if other, err := netlink.LinkByName(name); err == nil && other.Attrs().Index != link.Attrs().Index {
			if err := netlink.LinkSetName(other, fmt.Sprintf("other%d", other.Attrs().Index)); err != nil {
				return nil, fmt.Errorf("renaming %s: %w", name, err)
			}
		}
		if err := netlink.LinkSetName(link, name); err != nil {
			return nil, fmt.Errorf("naming %s %s: %w", link.Attrs().Name, name, err)
		}
		return netlink.LinkByName(name)
	}
	return nil, fmt.Errorf("no network device has the address %s", mac)
}
