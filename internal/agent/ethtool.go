package agent

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtool needs no privilege. safchain/ethtool v0.7.0 keeps addresses that a moved stack breaks.
type ethtool struct {
	socket int
	iface  string
}

func openEthtool(iface string) (ethtool, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	return ethtool{socket, iface}, err
}

func (e ethtool) close() { _ = unix.Close(e.socket) }

// ask lets the kernel fill in a command, a struct of linux/ethtool.h, and reports success.
func (e ethtool) ask(command unsafe.Pointer) bool {
	request := struct { // ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: command}
	copy(request.name[:unix.IFNAMSIZ-1], e.iface)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	return errno == 0
}

// askWords sends a command of 32-bit numbers that begins with begin; nil without an answer.
func (e ethtool) askWords(size int, begin ...uint32) []uint32 {
	words := make([]uint32, size)
	copy(words, begin)
	if !e.ask(unsafe.Pointer(&words[0])) {
		return nil
	}
	return words
}

const (
	setStatistics   = 1
	setPrivateFlags = 2
	setFeatures     = 4
	nameLength      = 32   // bytes of each name
	maxNames        = 1024 // of a set: Linux has 64 features today
)

func (e ethtool) names(set uint32) []string {
	info := struct { // ethtool_sset_info
		command, _ uint32
		mask       uint64
		length     uint32
	}{command: unix.ETHTOOL_GSSET_INFO, mask: 1 << set}
	if !e.ask(unsafe.Pointer(&info)) || info.mask == 0 || info.length == 0 || info.length > maxNames {
		return nil
	}
	// ethtool_gstrings: the command, the set, the number of names, the names.
	buffer := e.askWords(int(3+info.length*nameLength/4), unix.ETHTOOL_GSTRINGS, set, info.length)
	if buffer == nil {
		return nil
	}
	n := min(buffer[2], info.length)
	return splitNames(unsafe.Slice((*byte)(unsafe.Pointer(&buffer[3])), info.length*nameLength)[:n*nameLength])
}

func splitNames(data []byte) (names []string) {
	for name := range slices.Chunk(data, nameLength) {
		name, _, _ = bytes.Cut(name, []byte{0})
		names = append(names, string(name))
	}
	return names
}

// numbers are commands that answer with numbers: how many of 32 bits, and which are facts.
var numbers = []struct {
	command uint32
	size    int
	facts   map[int]string
}{
	{unix.ETHTOOL_GCOALESCE, 23, map[int]string{
		1: "nic.coalesce.rx-usecs", 2: "nic.coalesce.rx-frames", 3: "nic.coalesce.rx-usecs-irq", 4: "nic.coalesce.rx-frames-irq",
		5: "nic.coalesce.tx-usecs", 6: "nic.coalesce.tx-frames", 7: "nic.coalesce.tx-usecs-irq", 8: "nic.coalesce.tx-frames-irq",
		10: "nic.coalesce.adaptive-rx", 11: "nic.coalesce.adaptive-tx",
	}},
	{unix.ETHTOOL_GRINGPARAM, 9, map[int]string{5: "nic.ring.rx", 8: "nic.ring.tx"}},
	{unix.ETHTOOL_GCHANNELS, 9, map[int]string{
		5: "nic.channels.rx", 6: "nic.channels.tx", 7: "nic.channels.other", 8: "nic.channels.combined",
	}},
	{unix.ETHTOOL_GPAUSEPARAM, 4, map[int]string{2: "nic.pause.rx", 3: "nic.pause.tx"}},
}

// features are the offloads that affect when a message is sent or delivered.
var features = []string{
	"rx-checksum", "rx-gro", "rx-gro-hw", "rx-gro-list", "rx-hashing", "rx-lro", "rx-ntuple-filter",
	"rx-udp-gro-forwarding", "tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-generic-segmentation", "tx-nocache-copy",
	"tx-scatter-gather", "tx-tcp-segmentation", "tx-udp-segmentation", "hw-tc-offload",
}

// fecModes are the names of the bits in the answer.
var fecModes = []string{"", "auto", "off", "rs", "baser", "llrs"}

func ethtoolFacts(f facts, iface string) {
	e, err := openEthtool(iface)
	if err != nil {
		return
	}
	defer e.close()
	for _, n := range numbers {
		if words := e.askWords(n.size, n.command); words != nil {
			for i, key := range n.facts {
				f.set(key, strconv.FormatUint(uint64(words[i]), 10))
			}
		}
	}
	if names := e.names(setFeatures); len(names) > 0 {
		blocks := (len(names) + 31) / 32
		if words := e.askWords(2+4*blocks, unix.ETHTOOL_GFEATURES, uint32(blocks)); words != nil {
			featureFacts(f, names, words[2:])
		}
	}
	if names := e.names(setPrivateFlags); len(names) > 0 {
		if words := e.askWords(2, unix.ETHTOOL_GPFLAGS); words != nil {
			f.set("nic.private-flags", bits(words[1], names))
		}
	}
	if words := e.askWords(4, unix.ETHTOOL_GFECPARAM); words != nil && words[1] > 1 {
		f.set("nic.fec", bits(words[1], fecModes))
	}
	if config, err := unix.IoctlGetHwTstamp(e.socket, iface); err == nil {
		f.set("nic.hwtstamp", fmt.Sprintf("tx %d, rx %d", config.Tx_type, config.Rx_filter))
	}
}

// featureFacts reads blocks for 32 features each: available, requested, active, never changed.
func featureFacts(f facts, names []string, blocks []uint32) {
	for i, name := range names {
		if active := i/32*4 + 2; active < len(blocks) && slices.Contains(features, name) {
			f.set("nic.feature."+name, map[bool]string{true: "on", false: "off"}[blocks[active]>>(i%32)&1 == 1])
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
	return cmp.Or(strings.Join(found, ","), none)
}

// variants are the firmware variants of Solarflare's receive datapath, by the driver's number.
var variants = map[string]string{
	"rx0": "full-feature", "rx1": "ultra-low-latency", "rx2": "packed-stream", "rx5": "rules-engine", "rx6": "dpdk",
}

// firmwareVariant returns the variant in a version such as "8.5.2.1000 rx1 tx1", or nothing.
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

// datapathPrefixes start the names of sfc's statistics: ctpio_ counts the X2's send path without
// DMA (ef10.c in Onload's driver/linux_net), exp_ the X4's Express datapath, beside Enterprise.
var datapathPrefixes = []string{"ctpio_", "exp_"}

func ofDatapath(name string) bool {
	return slices.ContainsFunc(datapathPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func datapath(iface string) map[string]int64 {
	all := map[string]int64{}
	// Older kernels write as many names as there are by then, whatever the buffer: only sfc's are constant.
	if driver, _, _ := driverInfo(iface); driver != "sfc" {
		return all
	}
	e, err := openEthtool(iface)
	if err != nil {
		return all
	}
	defer e.close()
	names := e.names(setStatistics)
	if !slices.ContainsFunc(names, ofDatapath) {
		return all
	}
	// ethtool_stats: command, number, 64 bits each. The driver may have more by now.
	words := e.askWords(2+2*maxNames, unix.ETHTOOL_GSTATS, uint32(len(names)))
	if words == nil || int(words[1]) != len(names) {
		return all
	}
	for i, name := range names {
		if ofDatapath(name) {
			all["nic."+name] = int64(uint64(words[2+2*i]) | uint64(words[3+2*i])<<32)
		}
	}
	return all
}
