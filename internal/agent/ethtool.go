package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// features are the offloads that affect when a message is sent or delivered.
var features = []string{
	"rx-checksum", "rx-gro", "rx-gro-hw", "rx-gro-list", "rx-hashing", "rx-lro", "rx-ntuple-filter",
	"rx-udp-gro-forwarding", "tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-generic-segmentation", "tx-nocache-copy",
	"tx-scatter-gather", "tx-tcp-segmentation", "tx-udp-segmentation", "hw-tc-offload",
}

// fecModes are the names of the bits in the answer.
var fecModes = []string{"", "auto", "off", "rs", "baser", "llrs"}

// ethtoolFacts gathers what ethtool shows about an interface, by requests that need no privilege and that drivers may not support.
func ethtoolFacts(f facts, iface string) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return
	}
	defer tool.Close()
	numbers := map[string]uint32{}
	if c, err := tool.GetCoalesce(iface); err == nil {
		maps.Copy(numbers, map[string]uint32{
			"coalesce.rx-usecs": c.RxCoalesceUsecs, "coalesce.rx-frames": c.RxMaxCoalescedFrames,
			"coalesce.rx-usecs-irq": c.RxCoalesceUsecsIrq, "coalesce.rx-frames-irq": c.RxMaxCoalescedFramesIrq,
			"coalesce.tx-usecs": c.TxCoalesceUsecs, "coalesce.tx-frames": c.TxMaxCoalescedFrames,
			"coalesce.tx-usecs-irq": c.TxCoalesceUsecsIrq, "coalesce.tx-frames-irq": c.TxMaxCoalescedFramesIrq,
			"coalesce.adaptive-rx": c.UseAdaptiveRxCoalesce, "coalesce.adaptive-tx": c.UseAdaptiveTxCoalesce,
		})
	}
	if r, err := tool.GetRing(iface); err == nil {
		numbers["ring.rx"], numbers["ring.tx"] = r.RxPending, r.TxPending
	}
	if c, err := tool.GetChannels(iface); err == nil {
		numbers["channels.rx"], numbers["channels.tx"] = c.RxCount, c.TxCount
		numbers["channels.other"], numbers["channels.combined"] = c.OtherCount, c.CombinedCount
	}
	if p, err := tool.GetPause(iface); err == nil {
		numbers["pause.rx"], numbers["pause.tx"] = p.RxPause, p.TxPause
	}
	for key, n := range numbers {
		f.set("nic."+key, strconv.FormatUint(uint64(n), 10))
	}
	if all, err := tool.Features(iface); err == nil {
		featureFacts(f, all)
	}
	if flags, err := tool.PrivFlags(iface); err == nil && len(flags) > 0 {
		maps.DeleteFunc(flags, func(_ string, on bool) bool { return !on })
		f.set("nic.private-flags", list(slices.Sorted(maps.Keys(flags))))
	}
	socketFacts(f, iface)
}

// socketFacts gathers what the library does not ask for.
func socketFacts(f facts, iface string) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(socket) }()
	if config, err := unix.IoctlGetHwTstamp(socket, iface); err == nil {
		f.set("nic.hwtstamp", fmt.Sprintf("tx %d, rx %d", config.Tx_type, config.Rx_filter))
	}
	fec := struct{ command, active, configured, reserved uint32 }{command: unix.ETHTOOL_GFECPARAM} // ethtool_fecparam
	request := struct {                                                                            // ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&fec)}
	copy(request.name[:unix.IFNAMSIZ-1], iface)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno == 0 && fec.active > 1 {
		f.set("nic.fec", bits(fec.active, fecModes))
	}
}

func featureFacts(f facts, all map[string]bool) {
	for _, name := range features {
		if on, ok := all[name]; ok {
			f.set("nic.feature."+name, map[bool]string{true: "on", false: "off"}[on])
		}
	}
}

func bits(set uint32, names []string) string {
	var found []string
	for i, name := range names {
		if i < 32 && name != "" && set>>i&1 == 1 {
			found = append(found, name)
		}
	}
	return list(found)
}

func list(names []string) string { return cmp.Or(strings.Join(names, ","), none) }

// variants are the firmware variants of the receive datapath of Solarflare NICs, by the number that the driver reports.
var variants = map[string]string{
	"rx0": "full-feature", "rx1": "ultra-low-latency", "rx2": "packed-stream", "rx5": "rules-engine", "rx6": "dpdk",
}

// firmwareVariant returns the variant in a firmware version such as "8.5.2.1000 rx1 tx1"; empty for other drivers and numbers.
func firmwareVariant(driver, firmware string) string {
	if driver != "sfc" {
		return ""
	}
	for _, word := range strings.Fields(firmware) {
		if name, ok := variants[word]; ok {
			return name
		}
	}
	return ""
}

// datapathPrefixes start the names of the sfc driver's statistics about the path of the messages in the NIC: ctpio_success and so on
// count CTPIO, the send path of the X2 that bypasses DMA (ef10.c in src/driver/linux_net of Onload), exp_rx_packets and so on the Express
// datapath, which an X4 has beside the earlier one (Enterprise).
var datapathPrefixes = []string{"ctpio_", "exp_"}

func ofDatapath(name string) bool {
	return slices.ContainsFunc(datapathPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// datapath reads an interface's statistics of the datapath, by their names after nic.; empty if there are none.
func datapath(iface string) map[string]int64 {
	all := map[string]int64{}
	statistics, _ := ethtool.Stats(iface)
	for name, n := range statistics {
		if ofDatapath(name) {
			all["nic."+name] = int64(n)
		}
	}
	return all
}
