package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/internal/result"
)

const maxInterrupts = 16

// watch adds up disturbances. Idle states are those of the first CPU.
type watch struct {
	host
	cpus  []int
	iface string
	ports []string // of a bond, whose own counter of its carrier's changes does not count theirs
	// places are the CPUs' indexes among possible ones, as files are ordered; nil: unknown.
	places  []int
	limited []string // cgroups that may have a quota; pressed has cpu.pressure
	pressed string
	// datapath reads the interface's statistics, if any; datapathBefore are the first values.
	datapath       func() map[string]int64
	datapathBefore map[string]int64
	buffer         []byte

	began  time.Time
	before map[string]int64
	grown  map[string]int64
}

func (h host) watch(iface string, cpus ...int) *watch {
	w := &watch{host: h, cpus: cpus, iface: iface, buffer: make([]byte, 64<<10), grown: map[string]int64{}}
	if possible, err := result.ParseCPUs(h.read("sys/devices/system/cpu/possible")); err == nil {
		for _, cpu := range cpus {
			w.places = append(w.places, slices.Index(possible.List(), cpu))
		}
	}
	limited, version := h.cgroups("cpu", "cpu.max", "cpu.cfs_quota_us")
	// Beside version 1, the processes of many containers are in one cgroup of version 2.
	if w.limited = limited; version != "1" {
		w.pressed, _ = h.cgroupDir("")
	}
	if bond := h.lower(iface); len(h.glob("sys/class/net/"+bond+"/bonding")) > 0 { // Ports of a bridge come and go with others' pods.
		w.ports = h.lowers(bond)
	}
	if len(datapath(iface)) > 0 {
		w.datapath = func() map[string]int64 { return datapath(iface) }
	}
	return w
}

func (w *watch) begin() {
	if w.datapath != nil && w.datapathBefore == nil {
		w.datapathBefore = w.datapath()
	}
	w.before, w.began = w.counters(), time.Now()
}

func (w *watch) end() map[string]int64 {
	elapsed := time.Since(w.began)
	grown := growth(w.before, w.counters())
	for name, n := range grown {
		w.grown[name] += n
	}
	w.grown["elapsed-ms"] += elapsed.Milliseconds()
	return grown
}

// growth returns the growth of counters. One that was missing before, or was reset, says nothing.
func growth(before, after map[string]int64) map[string]int64 {
	grown := map[string]int64{}
	for name, n := range after {
		if b, ok := before[name]; ok && n >= b {
			grown[name] = n - b
		}
	}
	return grown
}

// datapathPeriod exceeds a driver's STATS_PERIOD_MS_DEFAULT (efx_common.c): 1 s.
const datapathPeriod = 1100 * time.Millisecond

// settle waits until the statistics contain all that the last process caused, and adds them.
func (w *watch) settle() {
	if w.datapath == nil {
		return
	}
	time.Sleep(datapathPeriod)
	maps.Copy(w.grown, growth(w.datapathBefore, w.datapath()))
}

// add adds n to a counter; n is negative if it is unknown.
func (w *watch) add(name string, n int64) {
	if n >= 0 {
		w.grown[name] += n
	}
}

func (w *watch) deltas() map[string]int64 {
	all := map[string]int64{}
	var interrupts []string
	for name, n := range w.grown {
		if !strings.HasPrefix(name, irqPrefix) {
			all[name] = n
			continue
		}
		all["irq"] += n
		if n > 0 {
			interrupts = append(interrupts, name)
		}
	}
	slices.SortFunc(interrupts, func(a, b string) int {
		return cmp.Or(cmp.Compare(w.grown[b], w.grown[a]), cmp.Compare(a, b))
	})
	for _, name := range interrupts[:min(len(interrupts), maxInterrupts)] {
		number := strings.TrimPrefix(name, irqPrefix)
		all[line(name+"."+w.read("sys/kernel/irq/"+number+"/actions"), 64)] = w.grown[name]
	}
	return all
}

const irqPrefix = "irq."

const loopback = "lo"

func (w *watch) counters() map[string]int64 {
	all := map[string]int64{}
	in := place(w.cpus[0], w.iface)
	for name, path := range result.Counters {
		put(all, name, w.read(in.Replace(path)))
	}
	for _, port := range w.ports {
		put(all, "nic.carrier-changes", w.read(place(w.cpus[0], port).Replace(result.Counters["nic.carrier-changes"])))
	}
	for _, state := range w.idleStates(w.cpus[0]) {
		put(all, "cpu.cstate."+w.read(filepath.Join(state, "name")), w.read(filepath.Join(state, "usage")))
	}
	w.interrupts(all)
	w.scan("proc/interrupts", perCPU("interrupt.", w.cpus, all))
	w.scan("proc/softirqs", perCPU("softirq.", w.cpus, all))
	w.scan("proc/stat", func(l []byte) { cpuTimes(l, w.cpus, all) })
	w.scan("proc/schedstat", scheduler(w.cpus, all))
	w.scan("proc/net/snmp", protocols(all))
	w.scan("proc/net/netstat", protocols(all))
	w.scan("proc/net/snmp6", func(l []byte) { // a name and a value
		if fields := strings.Fields(string(l)); len(fields) == 2 && protocolCounters6[fields[0]] != "" {
			put(all, protocolCounters6[fields[0]], fields[1])
		}
	})
	w.scan("proc/net/dev", func(l []byte) { // the name of an interface, and the bytes and packets that it received
		if fields := strings.Fields(string(l)); len(fields) > 2 && fields[0] == loopback+":" && w.iface != loopback {
			put(all, "lo.rx-packets", fields[2])
		}
	})
	for _, dir := range w.limited {
		w.scan(filepath.Join(dir, "cpu.stat"), func(l []byte) { throttling(l, "cgroup.throttled-us", all) })
	}
	if len(w.limited) > 0 { // kernels since 6.7
		w.scan(filepath.Join(w.limited[0], "cpu.stat.local"), func(l []byte) { throttling(l, "cgroup.stopped-us", all) })
	}
	if w.pressed != "" {
		w.scan(filepath.Join(w.pressed, "cpu.pressure"), func(l []byte) { pressure(l, all) })
	}
	return all
}

// scan passes each line of a file to a function, valid until the next one: no garbage.
func (w *watch) scan(path string, line func([]byte)) {
	file, err := os.Open(filepath.Join(w.root, path))
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(w.buffer, 1<<20)
	for lines.Scan() {
		line(lines.Bytes())
	}
}

// interrupts counts the device interrupts of the CPUs, even if /proc/interrupts is hidden.
func (w *watch) interrupts(all map[string]int64) {
	folders, err := os.ReadDir(filepath.Join(w.root, "sys/kernel/irq"))
	if err != nil {
		return
	}
	for _, folder := range folders {
		counts := w.readInto("sys/kernel/irq/" + folder.Name() + "/per_cpu_count")
		for _, place := range w.places {
			if n, ok := nth(counts, place); ok {
				all[irqPrefix+folder.Name()] += n
			}
		}
	}
}

// readInto reads a short file into the watch's buffer; the content is valid until the next call.
func (w *watch) readInto(path string) []byte {
	fd, err := unix.Open(filepath.Join(w.root, path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := unix.Read(fd, w.buffer)
	if err != nil {
		return nil
	}
	return w.buffer[:n]
}

// nth returns the number at an index, from 0, in a list separated by commas.
func nth(list []byte, place int) (int64, bool) {
	if place < 0 {
		return 0, false
	}
	for range place {
		_, rest, ok := bytes.Cut(list, []byte{','})
		if !ok {
			return 0, false
		}
		list = rest
	}
	list, _, _ = bytes.Cut(list, []byte{','})
	n, err := strconv.ParseInt(string(bytes.TrimSpace(list)), 10, 64)
	return n, err == nil && n >= 0
}

func put(all map[string]int64, name, value string) {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
		all[name] += n
	}
}

// perCPU returns a reader of /proc/interrupts or /proc/softirqs, with a column for each CPU.
func perCPU(prefix string, cpus []int, all map[string]int64) func([]byte) {
	// own are the indexes of the columns of the CPUs; columns is -1 before the first line.
	own, columns := []int(nil), -1
	return func(l []byte) {
		l = bytes.TrimSpace(l)
		if columns < 0 {
			names := strings.Fields(string(l))
			for _, cpu := range cpus {
				if column := slices.Index(names, "CPU"+strconv.Itoa(cpu)); column >= 0 {
					own = append(own, column)
				}
			}
			columns = len(names)
			return
		}
		// Device interrupts have numbers, and are counted elsewhere.
		if len(l) == 0 || l[0] >= '0' && l[0] <= '9' {
			return
		}
		name, rest, ok := strings.Cut(string(l), ":")
		// A counter of the whole machine has only one column.
		if values := strings.Fields(rest); ok && name != "" && len(values) >= columns {
			for _, column := range own {
				put(all, prefix+strings.ToLower(name), values[column])
			}
		}
	}
}

// tick is the unit of /proc/stat, on every architecture that Go supports.
const tick = 10 // ms

// cpuTimes reads a CPU in /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
func cpuTimes(l []byte, cpus []int, all map[string]int64) {
	if !bytes.HasPrefix(l, []byte("cpu")) { // some lines are very long
		return
	}
	fields := strings.Fields(string(l))
	if len(fields) < 9 || !isOneOf(fields[0], cpus) {
		return
	}
	for i, name := range []string{"cpu.threads-ms", "cpu.threads-ms", "cpu.threads-ms", "", "", "cpu.irq-ms", "cpu.softirq-ms", "cpu.steal-ms"} {
		if n, err := strconv.ParseInt(fields[i+1], 10, 64); err == nil && n >= 0 && name != "" {
			all[name] += n * tick
		}
	}
}

func isOneOf(name string, cpus []int) bool {
	digits, found := strings.CutPrefix(name, "cpu")
	cpu, err := strconv.Atoi(digits)
	return found && err == nil && slices.Contains(cpus, cpu)
}

// scheduler reads a CPU in /proc/schedstat, whose versions 15 to 17 have the same fields.
func scheduler(cpus []int, all map[string]int64) func([]byte) {
	known := false
	return func(l []byte) {
		fields := strings.Fields(string(l))
		switch {
		case len(fields) == 2 && fields[0] == "version":
			known = fields[1] == "15" || fields[1] == "16" || fields[1] == "17"
		case known && len(fields) == 10 && isOneOf(fields[0], cpus):
			put(all, "cpu.busy-ns", fields[7])
			put(all, "cpu.run-delay-ns", fields[8])
			// The kernel counts cpu.schedules only if sysctl kernel.sched_schedstats is on.
			if fields[3] != "0" {
				put(all, "cpu.schedules", fields[3])
			}
		}
	}
}

// protocolCounters are those of /proc/net/snmp and netstat that show trouble, and traffic.
var protocolCounters = map[string][]string{
	"Icmp:":   {"InMsgs"},
	"Ip:":     {"FragCreates", "InDelivers", "ReasmOKs"},
	"IpExt:":  {"InBcastPkts", "InMcastPkts", "InOctets", "OutOctets"},
	"TcpExt:": {"TCPOrigDataSent"},
	"Tcp:":    {"AttemptFails", "InErrs", "InSegs", "OutSegs", "RetransSegs"},
	"Udp:":    {"InCsumErrors", "InDatagrams", "InErrors", "NoPorts", "OutDatagrams", "RcvbufErrors", "SndbufErrors"},
}

var protocolPrefixes = map[string]string{"IpExt:": "ip", "TcpExt:": "tcp"}

var protocolCounters6 = map[string]string{
	"Icmp6InMsgs": "icmp6.InMsgs", "Ip6InDelivers": "ip6.InDelivers",
	"Ip6InOctets": "ip6.InOctets", "Ip6OutOctets": "ip6.OutOctets", "Ip6ReasmOKs": "ip6.ReasmOKs", "Ip6FragCreates": "ip6.FragCreates",
	"Udp6InDatagrams": "udp6.InDatagrams", "Udp6OutDatagrams": "udp6.OutDatagrams",
}

// protocols reads /proc/net/snmp or netstat: a line of names and one of values for each protocol.
func protocols(all map[string]int64) func([]byte) {
	var names []string
	return func(l []byte) {
		fields := strings.Fields(string(l))
		if len(fields) == 0 {
			return
		}
		if len(names) != len(fields) || names[0] != fields[0] {
			names = fields
			return
		}
		prefix := cmp.Or(protocolPrefixes[fields[0]], strings.ToLower(strings.TrimSuffix(fields[0], ":")))
		for i, name := range names {
			if slices.Contains(protocolCounters[fields[0]], name) {
				put(all, prefix+"."+name, fields[i])
			}
		}
		names = nil
	}
}

// throttling adds a line of cpu.stat; time is the name of its counter of time.
func throttling(l []byte, time string, all map[string]int64) {
	name, value, _ := strings.Cut(strings.TrimSpace(string(l)), " ")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return
	}
	switch name {
	case "nr_throttled":
		all["cgroup.throttled"] += n
	case "throttled_usec":
		all[time] += n
	case "throttled_time": // ns
		all[time] += n / 1000
	}
}

// pressure reads cpu.pressure: some avg10=0.00 avg60=0.00 avg300=0.00 total=51
func pressure(l []byte, all map[string]int64) {
	if kind, total, ok := strings.Cut(string(l), " total="); ok && strings.HasPrefix(kind, "some ") {
		put(all, "cgroup.pressure-us", strings.TrimSpace(total))
	}
}

// awaitRunDelay waits for the end of a child without reaping it, and returns its run delay.
func awaitRunDelay(pid int) int64 {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return runDelay(host{root: "/"}.read(fmt.Sprintf("proc/%d/schedstat", pid)))
		}
		if !errors.Is(err, unix.EINTR) {
			return unknown
		}
	}
}

// runDelay returns the ns waiting in a schedstat: ns on the CPU, ns waiting, times; -1: unknown.
func runDelay(schedstat string) int64 {
	fields := strings.Fields(schedstat)
	// A kernel that does not count these reports a process that never ran.
	if len(fields) != 3 || fields[2] == "0" {
		return unknown
	}
	n, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || n < 0 {
		return unknown
	}
	return n
}
