package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

var window = time.Second // in which the events of a workload are counted

const (
	// maxInspected bounds the processes that are looked at, workloadMemory the agent's heap, a part of the pod's.
	maxInspected   = 8
	workloadMemory = 8 << 20
)

// Workload inspects the container whose cgroup's name has this ID; empty: the agent's own. It reads
// no file that stops a process: neither smaps nor numa_maps.
func (i Inspector) Workload(container string) (result.Inspection, error) {
	debug.SetMemoryLimit(workloadMemory)
	h := host{root: i.Root, node: i.FromNode}
	_, pool, err := h.cpusAllowed()
	if err != nil {
		return result.Inspection{}, err
	}
	if i.FromNode && i.PodIP != "" && !hasAddress(i.PodIP) {
		return result.Inspection{}, fmt.Errorf("the network of its processes does not have the pod's address %s: inspect it without --from node", i.PodIP)
	}
	w := &result.Workload{Time: time.Now()}
	pids, elsewhere, err := h.processesOf(container)
	if err != nil {
		return result.Inspection{}, err
	}
	w.Elsewhere, w.FromNode = elsewhere, i.FromNode
	before := h.threads(pids, w)
	environ := i.Environ
	if container != "" {
		w.PoolCPUs, h.pid = pool, pids[0]
		environ = h.environ(w)
	}
	cpus, allowed := h.workloadCPUs(w)
	if len(cpus) == 0 {
		return result.Inspection{}, errors.New("the processes of the container ended")
	}
	looks := map[int]*result.Look{}
	for _, p := range w.Processes[:min(len(w.Processes), maxInspected)] {
		looks[p.PID] = h.lookAt(p.PID)
	}

	interfaces := i.interfaces()
	if len(interfaces) > result.MaxInterfaces {
		return result.Inspection{}, fmt.Errorf("it has %d interfaces, and at most %d are inspected: name one with --interface", len(interfaces), result.MaxInterfaces)
	}
	var watches []*watch
	for _, iface := range interfaces {
		watches = append(watches, h.watch(iface.Name, cpus...))
		watches[len(watches)-1].begin()
	}
	stackEvents := h.stacksOf(w)
	time.Sleep(window)
	for _, one := range watches {
		one.end()
	}
	w.StackEvents = growth(stackEvents, h.stacksOf(w))
	if pids, _, err = h.processesOf(container); err != nil {
		return result.Inspection{}, err
	}
	if container != "" && !slices.Contains(pids, h.pid) {
		return result.Inspection{}, errors.New("the first process of the container ended meanwhile: inspect it again")
	}
	h.threads(pids, w)
	for n, p := range w.Processes {
		w.Processes[n].Look = looks[p.PID]
	}
	measuring := cpus[0]
	busiest := compareThreads(w.Threads, before)
	if ran, err := result.ParseCPUs(busiest.Ran); err == nil && ran.Size() == 1 && slices.Contains(cpus, ran.List()[0]) {
		measuring = ran.List()[0]
	}
	w.Throttled = unknown
	if n, ok := watches[0].before["cgroup.throttled"]; ok {
		w.Throttled = n + watches[0].grown["cgroup.throttled"]
	}
	h.memoryOf(w)
	for _, irq := range h.directed(cpus...) {
		number := filepath.Base(irq)
		if actions := h.read("sys/kernel/irq/" + number + "/actions"); actions != "" && len(w.Directed) < maxInterrupts {
			w.Directed = append(w.Directed, line(number+" "+actions, maxKey))
		}
	}
	for n, iface := range interfaces {
		e := h.workloadEvidence(measuring, cpus, iface, environ)
		e.Node, e.Address, e.CPUsAllowed, e.AgentCPU, e.Deltas = i.Node, i.PodIP, allowed, unknown, watches[n].deltas()
		w.Interfaces = append(w.Interfaces, e)
	}
	return result.Inspection{Version: result.InspectionVersion, Evidence: w.Interfaces[0], Workload: w}, nil
}

var (
	memoryPoll  = time.Second // between two looks at the memory of a container that is watched
	maxWatchLog = 6 << 20     // bytes: a reader takes 8 MiB, a kubelet rotates at 10 MiB, and one inspection has at most 1.3 MiB
)

// Watch inspects a container as Workload again and again, and writes each inspection to the log. It
// ends before a container that fills its memory needs what the agent uses.
func (i Inspector) Watch(ctx context.Context, container string, every, length time.Duration, log io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	h := host{root: i.Root}
	pids, _, err := h.processesOf(container)
	if err != nil {
		return err
	}
	h.pid = pids[0]
	written, looks := 0, 0
	for next := time.Now(); ctx.Err() == nil; {
		switch left := h.memoryLeft(); {
		case left == unknown:
			return errors.New("the memory of the container is hidden, and a watch must not fill it: inspect it without --watch")
		case left < plan.EphemeralMemory:
			return fmt.Errorf("the watch ended, because the container has only %d MiB left under its memory limit: raise the limit", left>>20)
		case written > maxWatchLog:
			return fmt.Errorf("the watch ended, because its log has %d MiB: raise the interval", written>>20)
		case !time.Now().Before(next):
			next = time.Now().Add(every)
			found, err := i.Workload(container)
			if err != nil {
				return err
			}
			looks++
			found.Workload.Number = looks
			var record bytes.Buffer
			if err := found.Write(&record); err != nil {
				return err
			}
			written += record.Len()
			if _, err := record.WriteTo(log); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(memoryPoll):
		}
	}
	return nil
}

// memoryLeft returns how much of its memory limit the container may still use; -1: unknown. A
// kubelet, too, counts files that were not used lately as free.
func (h host) memoryLeft() int64 {
	dirs, _ := h.cgroups("memory", "memory.max", "memory.limit_in_bytes")
	if len(dirs) == 0 {
		return unknown
	}
	in := func(name string) string { return filepath.Join(dirs[0], name) }
	limit, used := h.either(in("memory.max"), in("memory.limit_in_bytes")), counter(h.either(in("memory.current"), in("memory.usage_in_bytes")))
	switch _, after, found := strings.Cut("\n"+h.read(in("memory.stat")), "\ninactive_file "); {
	case limit == "max":
		return math.MaxInt64
	case used < 0, counter(limit) < 0, !found:
		return unknown
	default:
		inactive, _, _ := strings.Cut(after, "\n")
		return max(0, counter(limit)-max(0, used-counter(inactive)))
	}
}

// workloadEvidence gathers an interface's evidence: even an only device must be tied by sysfs.
func (h host) workloadEvidence(measuring int, cpus []int, iface net.Interface, environ []string) result.Evidence {
	allocated, seen := allocatedDevices(environ), environ
	if _, _, source := h.device(iface.Name, allocated); source != result.PCIFromSysfs {
		seen = slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return len(allocatedDevices([]string{entry})) > 0 })
	}
	e := h.gather(measuring, cpus, iface, seen)
	e.AllocatedDevices = allocated
	f := facts(e.Facts)
	f.set("numa.memory-nodes", h.read("sys/devices/system/node/has_memory"))
	h.siblingsOf(cpus, &e, f)
	e.Facts = f.bounded(maxFacts)
	return e
}

// processesOf returns a container's processes, by the name of their cgroup (empty: the agent's
// own), and those in its process namespace, but in cgroups of neither.
func (h host) processesOf(container string) (pids []int, elsewhere []string, err error) {
	ownCgroup, others := h.read("proc/self/cgroup"), []string(nil)
	for _, dir := range h.glob("proc/[0-9]*") {
		cgroup := h.read(filepath.Join(dir, "cgroup"))
		pid, err := strconv.Atoi(filepath.Base(dir))
		switch {
		case err != nil, cgroup == "": // it ended
		case container != "" && inCgroup(cgroup, container), container == "" && cgroup == ownCgroup:
			pids = append(pids, pid)
		case container != "" && cgroup != ownCgroup:
			others = append(others, dir)
		}
	}
	if slices.Sort(pids); len(pids) == 0 {
		return nil, nil, errors.New("no process of the container is visible: its runtime gave the agent another process namespace, " +
			"or has a kernel of its own; use a runtime such as runc or crun")
	}
	namespace := func(dir string) (name string, depth int) { // the agent on a node sees those of all namespaces
		name, _ = os.Readlink(filepath.Join(h.root, dir, "ns/pid"))
		return name, len(strings.Fields(h.field(filepath.Join(dir, "status"), "NSpid")))
	}
	own, depth := namespace(fmt.Sprintf("proc/%d", pids[0]))
	for _, dir := range others {
		name, at := namespace(dir)
		inside := name == own || name == "" || own == ""
		comm := h.read(filepath.Join(dir, "comm")) // empty: it ended
		if outer := name == "" && at > 0 && at < depth; len(elsewhere) < maxInspected && inside && !outer && comm != "" {
			elsewhere = append(elsewhere, line(fmt.Sprintf("%s (%s)", comm, filepath.Base(dir)), maxKey))
		}
	}
	return pids, elsewhere, nil
}

// inCgroup returns whether the cgroups of a process are those of a container, whose ID is, with a
// runtime's prefix, the name of one of them: not of its monitor, as crio-conmon-ID.
func inCgroup(cgroups, container string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(cgroups, func(r rune) bool { return strings.ContainsRune("/:\n", r) }), func(name string) bool {
		name = strings.TrimSuffix(name, ".scope")
		return name == container || strings.HasSuffix(name, "-"+container) && !strings.Contains(name, "conmon")
	})
}

func hasAddress(podIP string) bool {
	addresses, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(addresses, func(a net.Addr) bool {
		ip, _, err := net.ParseCIDR(a.String())
		return err == nil && ip.Equal(net.ParseIP(podIP))
	})
}

// threads reads the processes and their threads into a workload, and returns the threads by number.
func (h host) threads(pids []int, w *result.Workload) map[int]result.Thread {
	all := map[int]result.Thread{}
	w.Processes, w.Threads, w.Omitted = nil, nil, 0
	for _, pid := range pids {
		dir := fmt.Sprintf("proc/%d", pid)
		if len(w.Processes) < result.MaxThreads {
			w.Processes = append(w.Processes, result.Process{PID: pid, Name: line(h.read(filepath.Join(dir, "comm")), maxKey)})
		}
		for _, task := range h.glob(dir + "/task/[0-9]*") {
			if len(w.Threads) == result.MaxThreads {
				w.Omitted++
				continue
			}
			status := filepath.Join(task, "status")
			t := result.Thread{
				PID: pid, Name: line(h.field(status, "Name"), maxKey), CPUs: h.field(status, "Cpus_allowed_list"),
				Mems: h.field(status, "Mems_allowed_list"),
			}
			// The name of the program is in parentheses and may have any characters.
			stat := h.read(filepath.Join(task, "stat"))
			const state, processor = 3, 39 // as counted in proc(5)
			if fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]); len(fields) > processor-state {
				t.Ran = fields[processor-state]
			}
			schedstat := h.read(filepath.Join(task, "schedstat"))
			ran, _, _ := strings.Cut(schedstat, " ")
			t.Migrations, t.RunNS, t.DelayNS = counter(h.field(filepath.Join(task, "sched"), "se.nr_migrations")), counter(ran), runDelay(schedstat)
			tid, err := strconv.Atoi(filepath.Base(task))
			switch t.TID = tid; {
			case err != nil, t.CPUs == "": // it ended
			default:
				w.Threads = append(w.Threads, t)
				all[tid] = t
			}
		}
	}
	return all
}

// counter returns a number that is not negative; -1: unknown.
func counter(text string) int64 {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return unknown
	}
	return int64(n)
}

// compareThreads replaces counters by growth, adds the CPUs seen, and returns the busiest thread.
func compareThreads(threads []result.Thread, before map[int]result.Thread) (busiest result.Thread) {
	since := func(now, then int64, seen bool) int64 {
		if !seen || now < 0 || then < 0 || now < then {
			return unknown
		}
		return now - then
	}
	busiest.RunNS = unknown
	for n := range threads {
		t := &threads[n]
		b, seen := before[t.TID]
		seen = seen && b.PID == t.PID
		t.Migrations, t.RunNS, t.DelayNS = since(t.Migrations, b.Migrations, seen), since(t.RunNS, b.RunNS, seen), since(t.DelayNS, b.DelayNS, seen)
		if cpus, err := result.ParseCPUs(t.Ran + "," + cmp.Or(b.Ran, t.Ran)); err == nil {
			t.Ran = cpus.String()
		}
		if t.RunNS > busiest.RunNS {
			busiest = *t
		}
	}
	return busiest
}

// workloadCPUs returns the CPUs of the cpuset, or else those that the threads may use.
func (h host) workloadCPUs(w *result.Workload) ([]int, string) {
	if dirs, _ := h.cgroups("cpuset", "cpuset.cpus.effective", "cpuset.effective_cpus"); len(dirs) > 0 {
		if cpus, err := result.ParseCPUs(h.effectiveCPUs(dirs[0])); err == nil {
			return cpus.List(), cpus.String()
		}
	}
	w.Unread = append(w.Unread, "cgroup")
	all := cpuset.New()
	for _, t := range w.Threads {
		if cpus, err := result.ParseCPUs(t.CPUs); err == nil {
			all = all.Union(cpus)
		}
	}
	return all.List(), all.String()
}

// environ returns the variables with which the container's first process was started.
func (h host) environ(w *result.Workload) []string {
	data, err := h.content(h.proc("environ"))
	if err != nil {
		w.Unread = append(w.Unread, "environment")
		return nil
	}
	return strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
}

func (h host) lookAt(pid int) *result.Look {
	tcp, udp := h.look(pid, v1alpha1.ProtocolTCP), h.look(pid, v1alpha1.ProtocolUDP)
	if tcp == nil || udp == nil {
		return nil
	}
	tcp.Onload = max(tcp.Onload, udp.Onload)
	return tcp
}

func (i Inspector) interfaces() []net.Interface {
	if i.Interface != "" {
		return []net.Interface{chosenInterface(i.Interface, "")}
	}
	all, err := net.Interfaces()
	all = slices.DeleteFunc(all, func(n net.Interface) bool { return n.Flags&net.FlagLoopback != 0 })
	if err != nil || len(all) == 0 {
		return []net.Interface{{}}
	}
	return all
}

// directed returns the folders of the interrupts that may be delivered to CPUs.
func (h host) directed(cpus ...int) []string {
	return slices.DeleteFunc(h.glob("proc/irq/[0-9]*"), func(irq string) bool {
		list, err := result.ParseCPUs(h.affinity(irq))
		return err != nil || list.Intersection(cpuset.New(cpus...)).IsEmpty()
	})
}

func (h host) memoryOf(w *result.Workload) {
	if dirs, version := h.cgroups("memory", "memory.numa_stat", "memory.numa_stat"); len(dirs) > 0 {
		w.Memory = memoryByNode(h.read(filepath.Join(dirs[0], "memory.numa_stat")), version)
	}
	w.HugePages = map[string]int64{}
	for size, name := range map[string]string{"2MB": "2Mi", "1GB": "1Gi"} {
		file2, file1 := "hugetlb."+size+".current", "hugetlb."+size+".usage_in_bytes"
		if dirs, _ := h.cgroups("hugetlb", file2, file1); len(dirs) > 0 {
			put(w.HugePages, name, h.either(filepath.Join(dirs[0], file2), filepath.Join(dirs[0], file1)))
		}
	}
}

// memoryByNode reads anonymous memory: "anon N0=4096" in bytes; in version 1, "anon=1 N0=1", pages.
func memoryByNode(stat, version string) map[string]int64 {
	page := int64(os.Getpagesize())
	all := map[string]int64{}
	for l := range strings.Lines(stat) {
		fields := strings.Fields(l)
		if len(fields) == 0 || fields[0] != "anon" && !strings.HasPrefix(fields[0], "anon=") {
			continue
		}
		for _, field := range fields[1:] {
			node, value, _ := strings.Cut(strings.TrimPrefix(field, "N"), "=")
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil
			}
			if version == "1" {
				n *= page
			}
			all[node] = n
		}
	}
	return all
}

// siblingsOf takes the siblings of a CPU whose core others may use, if there is one.
func (h host) siblingsOf(cpus []int, e *result.Evidence, f facts) {
	for _, cpu := range cpus {
		siblings, told := h.siblings(cpu), f["cpu.smt.sibling"]
		switch whose := sibling(cpu, siblings, cpus); {
		case told == "others":
			return
		case siblings == nil:
			maps.DeleteFunc(f, func(key, _ string) bool { return key == "cpu.smt.sibling" || key == "cpu.smt.active" })
			e.ThreadSiblings = ""
			return
		case whose != none && whose != told: // cores of one and of several threads
			f.set("cpu.smt.sibling", whose)
			e.ThreadSiblings = cpuset.New(siblings...).String()
		}
	}
}
