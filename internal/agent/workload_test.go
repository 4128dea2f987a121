package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/result"
)

// beside is what an agent in an ephemeral container sees of a container on CPUs 2-3 of server2: its own CPUs are 0-1,4-7.
func beside(t *testing.T, change map[string]string) host {
	t.Helper()
	const id = "3ab0f1"
	files := maps.Clone(server2)
	maps.Copy(files, map[string]string{
		"proc/self/status":                      "Cpus_allowed_list:\t0-1,4-7\n",
		"proc/self/cgroup":                      "0::/\n",
		"proc/9/cgroup":                         "0::/\n",
		"proc/9/comm":                           "tailgate-agent\n",
		"proc/1/cgroup":                         "0::/../cri-containerd-" + id + ".scope\n",
		"proc/1/mountinfo":                      "36 35 0:30 /../cri-containerd-" + id + ".scope /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n",
		"proc/1/comm":                           "feed\n",
		"proc/1/environ":                        "PATH=/bin\x00EF_POLL_USEC=100\x00PCIDEVICE_AMD_COM_SF-VF=0000:65:02.3\x00",
		"proc/1/maps":                           "7f3a1c000000-7f3a1c021000 r-xp 00001000 08:01 4711 /usr/lib64/libonload.so\n",
		"proc/1/fd/3":                           "->onload:[udp:1:2]",
		"proc/1/fd/4":                           "->socket:[12]",
		"proc/1/task/1/status":                  "Name:\tfeed\nCpus_allowed_list:\t2-3\nMems_allowed_list:\t1\n",
		"proc/1/task/1/stat":                    "1 (a) b) S 0 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 1 1 1 1 1 1 1 1 1 0 0 0 1 0 0 0 17 2 0 0 0\n",
		"proc/1/task/1/sched":                   "feed (1, #threads: 2)\n---\nse.nr_migrations          :         7\n",
		"proc/1/task/1/schedstat":               "5000 10 3\n",
		"proc/1/task/5/status":                  "Name:\tworker\nCpus_allowed_list:\t3\nMems_allowed_list:\t1\n",
		"proc/1/task/5/stat":                    "5 (worker) S 0 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 1 1 1 1 1 1 1 1 1 0 0 0 1 0 0 0 17 3 0 0 0\n",
		"proc/1/root/sys/fs/cgroup/cpuset.cpus": "2-3\n",
		"proc/1/root/sys/fs/cgroup/cpuset.cpus.effective": "2-3\n",
		"proc/1/root/sys/fs/cgroup/cpu.max":               "200000 100000\n",
		"proc/1/root/sys/fs/cgroup/cpu.stat":              "usage_usec 1\nnr_throttled 4\nthrottled_usec 5\n",
		"proc/1/root/sys/fs/cgroup/memory.numa_stat":      "anon N0=4096 N1=8192\nfile N0=1 N1=2\n",
		"proc/1/root/sys/fs/cgroup/hugetlb.2MB.current":   "2097152\n",
		"proc/stat":                       "cpu 1 1 1 1 1 1 1 1 1 1\ncpu2 5 0 5 9 0 0 0 0 0 0\ncpu3 1 1 1 9 0 0 0 0 0 0\n",
		"sys/devices/system/cpu/possible": "0-7\n",
		"sys/kernel/irq/36/actions":       "virtio1-req.0\n",
		"sys/kernel/irq/36/per_cpu_count": "1,0,0,4,0,0,0,0\n",
		"proc/irq/36/smp_affinity_list":   "3\n",
		"proc/irq/37/smp_affinity_list":   "0-1\n",
	})
	for path, content := range change {
		if files[path] = content; content == "" {
			delete(files, path)
		}
	}
	window = 0
	return fakeRoot(t, files)
}

func workloadOf(t *testing.T, change map[string]string) result.Workload {
	t.Helper()
	i := Inspector{Node: "a", Root: beside(t, change).root}
	got, err := i.Workload("3ab0f1")
	if err != nil {
		t.Fatal(err)
	}
	return *got.Workload
}

func TestWorkload(t *testing.T) {
	w := workloadOf(t, nil)
	e := w.Interfaces[0]
	if w.PoolCPUs != "0-1,4-7" || e.CPUsAllowed != "2-3" || e.AllowedNUMANodes != "1" || e.CPUNUMANode != 1 || len(w.Unread) > 0 {
		t.Errorf("%+v", w)
	}
	for key, want := range map[string]string{"cgroup.cpus": "2-3", "cgroup.cpus-set": "2-3", "cgroup.cpu-max": "200000 100000", "env.EF_POLL_USEC": "100"} {
		if e.Facts[key] != want {
			t.Errorf("%s is %q, want %q", key, e.Facts[key], want)
		}
	}
	want := []result.Thread{
		{PID: 1, TID: 1, Name: "feed", CPUs: "2-3", Mems: "1", Ran: "2", DelayNS: 0},
		{PID: 1, TID: 5, Name: "worker", CPUs: "3", Mems: "1", Ran: "3", Migrations: -1, RunNS: -1, DelayNS: -1},
	}
	if diff := cmp.Diff(want, w.Threads); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int64{"0": 4096, "1": 8192}, w.Memory); diff != "" {
		t.Error(diff)
	}
	if l := w.Processes[0].Look; l == nil || l.Onload != 1 || l.Library == "" {
		t.Errorf("look %+v", l)
	}
	if w.Throttled != 4 || w.HugePages["2Mi"] != 2<<20 || e.Deltas["cpu.threads-ms"] != 0 || e.Deltas["irq"] != 0 || !slices.Equal(w.Directed, []string{"36 virtio1-req.0"}) {
		t.Errorf("%+v", w)
	}
}

// The kernel hides most of a process of another user, or of one with more capabilities.
func TestWorkloadOfAnotherUser(t *testing.T) {
	change := map[string]string{"proc/1/environ": "", "proc/1/maps": "", "proc/1/fd/3": "", "proc/1/fd/4": ""}
	for _, path := range beside(t, nil).glob("proc/1/root/sys/fs/cgroup/*") {
		change[path] = ""
	}
	w := workloadOf(t, change)
	if !slices.Equal(w.Unread, []string{"environment", "cgroup"}) || w.Throttled != -1 || w.Memory != nil || w.Processes[0].Look != nil {
		t.Errorf("%+v", w)
	}
	if e := w.Interfaces[0]; e.CPUsAllowed != "2-3" || e.Facts["cgroup.cpu-max"] != "" || len(e.AllocatedDevices) > 0 {
		t.Errorf("%+v", e)
	}
}

func TestWorkloadInOtherCgroups(t *testing.T) {
	w := workloadOf(t, map[string]string{"proc/7/cgroup": "0::/../moved\n", "proc/7/comm": "stray\n"})
	if !slices.Equal(w.Elsewhere, []string{"stray (7)"}) || len(w.Processes) != 1 {
		t.Errorf("%+v", w)
	}
	// A node shows the processes of all namespaces.
	w = workloadOf(t, map[string]string{
		"proc/1/ns/pid": "->pid:[4026531836]", "proc/7/cgroup": "0::/../moved\n", "proc/7/comm": "stray\n", "proc/7/ns/pid": "->pid:[4026531836]",
		// The kernel may hide the namespaces of processes of the node.
		"proc/1/status": "NSpid:\t120\t1\n", "proc/6/cgroup": "0::/../init.scope\n", "proc/6/comm": "init\n", "proc/6/status": "NSpid:\t6\n",
		"proc/8/cgroup": "0::/../other\n", "proc/8/comm": "other\n", "proc/8/ns/pid": "->pid:[4026531999]",
	})
	if !slices.Equal(w.Elsewhere, []string{"stray (7)"}) {
		t.Errorf("%+v", w.Elsewhere)
	}
}

// A runtime's monitor is not the container, although its cgroup has the ID, too.
func TestInCgroup(t *testing.T) {
	const id = "3ab0f1"
	for cgroups, want := range map[string]bool{
		"0::/kubepods.slice/pod7.slice/cri-containerd-3ab0f1.scope": true, "0::/kubepods.slice/crio-3ab0f1.scope/container": true,
		"12:cpuset:/kubepods/pod7/3ab0f1\n11:cpu:/kubepods/pod7/3ab0f1": true, "4:cpu:/kubepods-pod7.slice:cri-containerd:3ab0f1": true,
		"0::/kubepods.slice/crio-conmon-3ab0f1.scope": false, "0::/kubepods.slice/cri-containerd-13ab0f1.scope": false, "0::/3ab0f1x": false, "": false,
	} {
		if got := inCgroup(cgroups, id); got != want {
			t.Errorf("%q: %t", cgroups, got)
		}
	}
}

// The agent on a node sees the Onload stacks of all processes, and counts those of the container.
func TestWorkloadFromNode(t *testing.T) {
	const cgroup = "/kubepods.slice/pod7.slice/cri-containerd-3ab0f1.scope"
	i := Inspector{Node: "a", FromNode: true, Root: beside(t, map[string]string{
		"proc/self/mountinfo": "36 35 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "proc/1/cgroup": "0::" + cgroup + "\n",
		"sys/fs/cgroup" + cgroup + "/cpuset.cpus": "3\n", "sys/fs/cgroup" + cgroup + "/cpuset.cpus.effective": "3\n",
		"sys/fs/cgroup/kubepods.slice/pod7.slice/cpuset.cpus.effective": "0-7\n", "proc/1/root/etc/ld.so.preload": "/opt/libonload.so\n",
		"proc/driver/onload/stacks": "id: pid uid periodic_polls rx_evs tx_evs\n0: 1 1000 0 3 405 401\n1: 7 1000 0 3 1000 1000\n",
	}).root}
	got, err := i.Workload("3ab0f1")
	if err != nil {
		t.Fatal(err)
	}
	w := got.Workload
	if diff := cmp.Diff(map[string]int64{result.PathStackIn: 0, result.PathStackOut: 0}, w.StackEvents); diff != "" || !w.FromNode {
		t.Errorf("from the node: %t; %s", w.FromNode, diff)
	}
	// Files of the container, which it may have replaced, are not read.
	if e := w.Interfaces[0]; e.CPUsAllowed != "3" || e.Facts["cgroup.cpus-set"] != "3" || e.Facts["preload-file"] != "" {
		t.Errorf("CPUs %q, set to %q; preloads %q", e.CPUsAllowed, e.Facts["cgroup.cpus-set"], e.Facts["preload-file"])
	}
}

func TestWorkloadIsNotVisible(t *testing.T) {
	_, err := Inspector{Root: beside(t, nil).root}.Workload("another")
	if err == nil || !strings.Contains(err.Error(), "runc or crun") {
		t.Error(err)
	}
}

func TestMemoryByNodeOfVersion1(t *testing.T) {
	got := memoryByNode("total=3 N0=3\nfile=1 N0=1\nanon=2 N0=1 N1=1\nhierarchical_anon=2 N0=2\n", "1")
	if diff := cmp.Diff(map[string]int64{"0": 4096, "1": 4096}, got); diff != "" {
		t.Error(diff)
	}
}

func TestCompareThreads(t *testing.T) {
	threads := []result.Thread{
		{PID: 1, TID: 1, Ran: "3", Migrations: 9, RunNS: 50, DelayNS: 2},
		{PID: 1, TID: 2, Ran: "2", Migrations: 1, RunNS: 10, DelayNS: 0},
		{PID: 2, TID: 3, Ran: "2", Migrations: 1, RunNS: 10, DelayNS: 0},
	}
	busiest := compareThreads(threads, map[int]result.Thread{
		1: {PID: 1, TID: 1, Ran: "2", Migrations: 7, RunNS: 20, DelayNS: 2},
		3: {PID: 9, TID: 3, Ran: "2", Migrations: 1, RunNS: 10, DelayNS: 0},
	})
	want := []result.Thread{
		{PID: 1, TID: 1, Ran: "2-3", Migrations: 2, RunNS: 30, DelayNS: 0},
		{PID: 1, TID: 2, Ran: "2", Migrations: -1, RunNS: -1, DelayNS: -1}, // new
		{PID: 2, TID: 3, Ran: "2", Migrations: -1, RunNS: -1, DelayNS: -1}, // another process's, whose number was used again
	}
	if diff := cmp.Diff(want, threads); diff != "" || busiest.TID != 1 {
		t.Errorf("busiest %d; %s", busiest.TID, diff)
	}
}

// A watch repeats the inspection until its time is over, and ends before the agent's own memory is what the container lacks.
func TestWatch(t *testing.T) {
	memoryPoll = time.Millisecond
	const dir, dir1 = "proc/1/root/sys/fs/cgroup/", "proc/1/root/sys/fs/cgroup/memory/"
	room := map[string]string{dir + "memory.max": "67108864\n", dir + "memory.current": "50000000\n", dir + "memory.stat": "anon 1\ninactive_file 30000000\nactive_file 2\n"}
	with := func(path, content string) map[string]string {
		files := maps.Clone(room)
		files[path] = content
		return files
	}
	version1 := map[string]string{
		"proc/1/cgroup":                "5:memory:/../cri-containerd-3ab0f1.scope\n0::/../cri-containerd-3ab0f1.scope\n",
		"proc/1/mountinfo":             "36 35 0:30 /../cri-containerd-3ab0f1.scope /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
		dir1 + "memory.limit_in_bytes": "67108864\n", dir1 + "memory.usage_in_bytes": "60000000\n", dir1 + "memory.stat": "cache 2\ninactive_file 30000000\n",
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string // error; empty: the watch ends when its time is over
	}{
		"room":                         {files: room},
		"no limit":                     {files: with(dir+"memory.max", "max\n")},
		"used beyond the limit":        {files: with(dir+"memory.current", "99999999999\n"), want: "has only 0 MiB left under its memory limit: raise the limit"},
		"full":                         {files: with(dir+"memory.current", "70000000\n"), want: "has only 25 MiB left"},
		"files in use are not free":    {files: with(dir+"memory.stat", "inactive_file 1000\nactive_file 30000000\n"), want: "has only 16 MiB left"},
		"a hidden limit":               {files: with(dir+"memory.max", ""), want: "the memory of the container is hidden"},
		"a hidden use":                 {files: with(dir+"memory.current", ""), want: "is hidden"},
		"hidden statistics":            {files: with(dir+"memory.stat", ""), want: "is hidden"},
		"room, version 1":              {files: version1},
		"a process that is not there":  {files: map[string]string{"proc/1/cgroup": ""}, want: "no process of the container is visible"},
		"a limit that is not a number": {files: with(dir+"memory.max", "much\n"), want: "is hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				err := Inspector{Node: "a", Root: beside(t, c.files).root}.Watch(t.Context(), "3ab0f1", 30*time.Millisecond, 290*time.Millisecond, &log)
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Fatalf("got error %v, want %q", err, c.want)
				}
				var times []time.Time
				for i, err := range result.Inspections(&log) {
					if err != nil {
						t.Fatal(err)
					}
					times = append(times, i.Workload.Time)
				}
				if c.want != "" && len(times) > 0 {
					t.Errorf("it inspected the container at %v", times)
				}
				if c.want == "" && (len(times) != 10 || !slices.IsSortedFunc(times, time.Time.Compare)) {
					t.Errorf("it inspected the container at %v", times)
				}
			})
		})
	}
}

type noWriter struct{}

func (noWriter) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestWatchEnds(t *testing.T) {
	memoryPoll = time.Millisecond
	const dir = "proc/1/root/sys/fs/cgroup/"
	i := Inspector{Root: beside(t, map[string]string{dir + "memory.max": "max\n", dir + "memory.current": "1\n", dir + "memory.stat": "inactive_file 0\n"}).root}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as by SIGTERM
	if err := i.Watch(ctx, "3ab0f1", time.Hour, time.Hour, io.Discard); err != nil {
		t.Error(err)
	}
	if err := i.Watch(t.Context(), "3ab0f1", time.Hour, time.Hour, noWriter{}); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Error(err)
	}
	defer func(before int) { maxWatchLog = before }(maxWatchLog)
	maxWatchLog = 3000
	if err := i.Watch(t.Context(), "3ab0f1", 0, time.Hour, io.Discard); err == nil || !strings.Contains(err.Error(), "its log has") {
		t.Error(err)
	}
}
