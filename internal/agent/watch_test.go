package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/result"
)

// counting returns a machine whose counters for CPU 2 of 0 to 3 stand at n; the counters of the other CPUs are far higher.
func counting(n int) map[string]string {
	s := strconv.Itoa(n)
	column := " 9000 9001 " + s + " 9003 "
	cpu := "sys/devices/system/cpu/cpu2/"
	return map[string]string{
		"sys/devices/system/cpu/possible":            "0-3\n",
		"sys/kernel/irq/24/per_cpu_count":            "9000,9001," + s + ",9003\n",
		"sys/kernel/irq/24/actions":                  "net1-0\n",
		"sys/kernel/irq/25/per_cpu_count":            "9000,9001,7,9003\n",
		"sys/kernel/irq/25/actions":                  "nvme0q1\n",
		"sys/kernel/irq/26/per_cpu_count":            "9000,9001\n",
		"proc/interrupts":                            "           CPU0       CPU1       CPU2       CPU3\n 24: " + column + " PCI-MSIX 0-edge net1-0\nLOC: " + column + "  Local timer interrupts\nERR:          " + s + "\nMIS:          0\n",
		"proc/softirqs":                              "                    CPU0       CPU1       CPU2       CPU3\n      NET_RX: " + column + "\n",
		"proc/stat":                                  "cpu  1 1 1 1 1 1 1 1 1 1\ncpu2 " + s + " 0 " + s + " 0 0 " + s + " " + s + " " + s + " 0 0\ncpu20 0 0 0 0 0 9 9 9 0 0\nintr 1 2 3\n",
		"proc/schedstat":                             "version 15\ntimestamp 4295\ncpu2 0 0 " + s + " 0 0 0 0 " + s + " 0\ndomain0 0f 0 0\n",
		"proc/net/snmp":                              "Ip: Forwarding DefaultTTL\nIp: 2 64\nTcp: RtoMin MaxConn RetransSegs\nTcp: 200 -1 " + s + "\nUdp: InDatagrams NoPorts\nUdp: " + s + " 0\n",
		"proc/net/netstat":                           "TcpExt: SyncookiesSent\nTcpExt: 7\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 1 " + s + " " + s + "\n",
		"proc/net/snmp6":                             "Ip6InReceives                   \t3\nIp6InOctets                     \t" + s + "\nUdp6OutDatagrams                \t" + s + "\n",
		"proc/self/cgroup":                           "0::/\n",
		"proc/self/mountinfo":                        "30 25 0:26 / /cg rw - cgroup2 cgroup2 rw\n",
		"cg/cpu.max":                                 "200000 100000\n",
		"cg/cpu.stat":                                "usage_usec 12\nnr_periods 1\nnr_throttled " + s + "\nthrottled_usec " + s + "\n",
		"cg/cpu.pressure":                            "some avg10=0.00 avg60=0.00 avg300=0.00 total=" + s + "\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=999\n",
		cpu + "cpuidle/state0/name":                  "C1\n",
		cpu + "cpuidle/state0/usage":                 s + "\n",
		cpu + "thermal_throttle/core_throttle_count": s + "\n",
		"sys/class/net/net1/carrier_changes":         "2\n",
		"sys/class/net/net1/statistics/rx_dropped":   s + "\n",
	}
}

// write replaces files below a root.
func write(t *testing.T, h host, files map[string]string) {
	t.Helper()
	for path, content := range files {
		// No reader sees a file that is half written.
		file := filepath.Join(h.root, path)
		if err := errors.Join(os.WriteFile(file+".new", []byte(content), 0o644), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWatchAddsUpWhatHappens(t *testing.T) {
	h := fakeRoot(t, counting(100))
	w := h.watch("net1", 2)
	began := time.Now()
	w.begin()
	write(t, h, counting(103))
	w.end()
	// Events between two tools belong to neither.
	write(t, h, counting(500))
	w.begin()
	write(t, h, counting(501))
	w.end()
	w.add("tool.run-delay-ns", 7)
	w.add("tool.run-delay-ns", unknown)
	got := w.deltas()
	if elapsed := got["elapsed-ms"]; elapsed < 0 || elapsed > time.Since(began).Milliseconds() {
		t.Errorf("%d ms went by of %s", elapsed, time.Since(began))
	}
	delete(got, "elapsed-ms")
	want := map[string]int64{
		"cgroup.pressure-us": 4, "cgroup.throttled": 4, "cgroup.throttled-us": 4, "cpu.cstate.C1": 4, "cpu.irq-ms": 40, "cpu.busy-ns": 0, "cpu.run-delay-ns": 4,
		"cpu.schedules": 4, "cpu.softirq-ms": 40, "cpu.steal-ms": 40, "cpu.threads-ms": 80, "cpu.thermal-throttles": 4, "interrupt.loc": 4, "ip.InOctets": 4, "ip.OutOctets": 4, "ip6.InOctets": 4,
		"irq": 4, "irq.24.net1-0": 4,
		"nic.carrier-changes": 0, "nic.rx-dropped": 4, "softirq.net_rx": 4, "tcp.RetransSegs": 4, "tool.run-delay-ns": 7, "udp.InDatagrams": 4, "udp.NoPorts": 0, "udp6.OutDatagrams": 4,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deltas (-want +got):\n%s", diff)
	}
}

// The carrier of a bond does not change when that of a port does.
func TestWatchCountsPortsOfABond(t *testing.T) {
	changes := "sys/class/net/%s/carrier_changes"
	h := fakeRoot(t, map[string]string{
		"sys/class/net/bond0/bonding/mode": "active-backup 1\n", "sys/class/net/br0/lower_ens1/x": "", "sys/class/net/br0/lower_ens2/x": "", fmt.Sprintf(changes, "br0"): "2\n",
		"sys/class/net/bond0/lower_ens1/x": "", "sys/class/net/bond0/lower_ens2/x": "",
		fmt.Sprintf(changes, "bond0"): "2\n", fmt.Sprintf(changes, "ens1"): "4\n", fmt.Sprintf(changes, "ens2"): "1\n",
	})
	bond, bridge := h.watch("bond0", 2), h.watch("br0", 2)
	bond.begin()
	bridge.begin()
	write(t, h, map[string]string{fmt.Sprintf(changes, "ens1"): "5\n"})
	bond.end()
	bridge.end()
	if got, others := bond.deltas()["nic.carrier-changes"], bridge.deltas()["nic.carrier-changes"]; got != 1 || others != 0 {
		t.Errorf("%d changes of the bond, %d of the bridge", got, others)
	}
}

// The events of the CPUs of a workload add up.
func TestWatchOfSeveralCPUs(t *testing.T) {
	cpus, got := []int{2, 3}, map[string]int64{}
	read, softirqs := scheduler(cpus, got), perCPU("softirq.", cpus, got)
	for _, l := range []string{"version 15", "cpu1 0 0 9 0 0 0 9 9 9", "cpu2 0 0 1 0 0 0 2 3 0", "cpu3 0 0 4 0 0 0 5 6 0"} {
		read([]byte(l))
	}
	for _, l := range []string{"cpu 9 9 9 9 9 9 9 9", "cpu2 1 2 3 9 9 1 1 1", "cpu3 1 1 1 9 9 2 2 2", "cpu23 9 9 9 9 9 9 9 9"} {
		cpuTimes([]byte(l), cpus, got)
	}
	for _, l := range []string{"CPU0 CPU2 CPU3", "RCU: 9 1 2"} {
		softirqs([]byte(l))
	}
	w := fakeRoot(t, map[string]string{"sys/devices/system/cpu/possible": "0-3\n", "sys/kernel/irq/24/per_cpu_count": "9,9,3,4\n"}).watch("lo", cpus...)
	w.interrupts(got)
	want := map[string]int64{
		"cpu.schedules": 5, "cpu.busy-ns": 7, "cpu.run-delay-ns": 9, "cpu.threads-ms": 90, "cpu.irq-ms": 30, "cpu.softirq-ms": 30, "cpu.steal-ms": 30, "softirq.rcu": 3, "irq.24": 7,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

// A kernel whose scheduler statistics are off counts no schedules, though it counts run delays.
func TestScheduleStatisticsAreOff(t *testing.T) {
	got := map[string]int64{}
	read := scheduler([]int{2}, got)
	for _, l := range []string{"version 15", "timestamp 4295", "cpu2 0 0 0 0 0 0 9 7 5"} {
		read([]byte(l))
	}
	if diff := cmp.Diff(map[string]int64{"cpu.busy-ns": 9, "cpu.run-delay-ns": 7}, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

func TestWatchOfCountersThatTellNothing(t *testing.T) {
	h := fakeRoot(t, counting(100))
	w := h.watch("net1", 2)
	w.begin()
	// Counters that were reset, are missing, are not a number, or are of an unknown version.
	write(t, h, counting(100))
	write(t, h, map[string]string{
		"sys/class/net/net1/statistics/rx_dropped": "3\n", "cg/cpu.stat": "", "cg/cpu.pressure": "some total=many\n",
		"proc/schedstat": "version 99\ncpu2 0 0 200 0 0 0 0 200 0\n", "sys/kernel/irq/24/per_cpu_count": "\n",
	})
	w.end()
	for _, name := range []string{"nic.rx-dropped", "cgroup.throttled", "cgroup.pressure-us", "cpu.run-delay-ns", "irq.24.net1-0"} {
		if n, ok := w.deltas()[name]; ok {
			t.Errorf("%s is %d", name, n)
		}
	}
}

func TestWatchKeepsTheMostFrequentInterrupts(t *testing.T) {
	w := fakeRoot(t, nil).watch("lo", 0)
	for i := range 100 {
		w.grown[irqPrefix+strconv.Itoa(i)] = int64(i)
	}
	got := w.deltas()
	if len(got) != maxInterrupts+1 || got["irq"] != 99*100/2 || got["irq.99."] != 99 || got["irq.84."] != 84 {
		t.Errorf("got %v", got)
	}
}

func TestThrottlingOfVersion1(t *testing.T) {
	all := map[string]int64{}
	for l := range strings.Lines("nr_periods 9\nnr_throttled 2\nthrottled_time 5000999\nnr_bursts 0\n") {
		throttling([]byte(l), "cgroup.throttled-us", all)
	}
	if diff := cmp.Diff(map[string]int64{"cgroup.throttled": 2, "cgroup.throttled-us": 5000}, all); diff != "" {
		t.Errorf("throttling (-want +got):\n%s", diff)
	}
}

func TestRunDelay(t *testing.T) {
	cases := map[string]struct {
		schedstat string
		want      int64
	}{
		"a process that ran":           {"1000 200 3", 200},
		"one that never waited":        {"1000 0 3", 0},
		"a kernel that does not count": {"0 0 0", -1},
		"a process that is not there":  {"", -1},
		"something else":               {"1 x 3", -1},
		"a line of another kind":       {"1 2 3 4", -1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := runDelay(c.schedstat); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// A tool that shares its CPU with another process waits for it, and the kernel reports how long.
func TestRunDelayOfATool(t *testing.T) {
	if runDelay(host{root: "/"}.read("proc/self/schedstat")) == unknown {
		t.Skip("this kernel does not count how long a thread waits for a CPU")
	}
	startTool(t, asTool("burn", "1m"))
	p := startTool(t, asTool("burn", "300ms"))
	if !p.wait(context.Background()) {
		t.Fatal("the tool did not end by itself")
	}
	if p.runDelay < (50 * time.Millisecond).Nanoseconds() {
		t.Errorf("a tool that used 300 ms of a CPU, which another used as well, waited %d ns for it", p.runDelay)
	}
}

// The kernel counts the datagrams over loopback.
func TestWatchOfThisMachine(t *testing.T) {
	receiver, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	sender, err := net.Dial("udp", receiver.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	w := host{root: "/"}.watch("lo", aCPU(t))
	w.begin()
	const datagrams = 100
	for range datagrams {
		if _, err := sender.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	w.end()
	got := w.deltas()
	for _, name := range []string{"nic.rx-packets", "nic.tx-packets", "udp.OutDatagrams"} {
		if got[name] < datagrams {
			t.Errorf("%s is %d after %d datagrams", name, got[name], datagrams)
		}
	}
}

// The driver of the NIC updates its statistics once a second: their growth counts from before the first process, and until a
// second after the last one.
func TestDatapath(t *testing.T) {
	w := host{root: "/"}.watch("lo", aCPU(t))
	if w.settle(); w.datapath != nil || len(w.deltas()) > 0 {
		t.Errorf("loopback has statistics of a datapath: %v", w.deltas())
	}
	at := time.Now()
	now := map[string]int64{"nic.ctpio_success": 100, "nic.ctpio_poison": 7, "nic.ctpio_erase": 9}
	w.datapath = func() map[string]int64 {
		// What the second process sent becomes visible only now.
		if time.Since(at) > time.Second {
			now["nic.ctpio_success"] = 350
		}
		return maps.Clone(now)
	}
	w.begin()
	w.end()
	now["nic.ctpio_success"], now["nic.ctpio_erase"] = 200, 2 // the last as after a reset of the NIC
	w.begin()
	w.end()
	at = time.Now()
	w.settle()
	got := w.deltas()
	maps.DeleteFunc(got, func(name string, _ int64) bool { return !strings.HasPrefix(name, "nic.ctpio") })
	if diff := cmp.Diff(map[string]int64{"nic.ctpio_success": 250, "nic.ctpio_poison": 0}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// BenchmarkCounters reads all counters once, as happens before and after each cell.
func BenchmarkCounters(b *testing.B) {
	w := host{root: "/"}.watch("lo", 0)
	b.ReportAllocs()
	for b.Loop() {
		w.counters()
	}
}

// BenchmarkGather gathers the evidence of an endpoint once.
func BenchmarkGather(b *testing.B) {
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		host{root: "/"}.gather(0, []int{0}, *loopback, nil)
	}
}

// FuzzCounters passes any input to everything that reads counters: no counter is negative, and all are documented.
func FuzzCounters(f *testing.F) {
	for _, content := range counting(3) {
		f.Add(content, 2)
	}
	f.Fuzz(func(t *testing.T, content string, cpu int) {
		all := map[string]int64{}
		readers := []func([]byte){perCPU("interrupt.", []int{cpu}, all), scheduler([]int{cpu}, all), protocols(all)}
		for l := range strings.Lines(content) {
			for _, read := range readers {
				read([]byte(l))
			}
			cpuTimes([]byte(l), []int{cpu}, all)
			throttling([]byte(l), "cgroup.throttled-us", all)
			pressure([]byte(l), all)
			runDelay(l)
		}
		for name, n := range all {
			if _, ok := result.FindDeltaKey(name); !ok || n < 0 {
				t.Errorf("%s is %d", name, n)
			}
		}
		if n, ok := nth([]byte(content), cpu&0xff); ok && n < 0 {
			t.Errorf("a count of %d", n)
		}
	})
}
