package result

import "fmt"

// Workload is what an agent found of another container of its pod, or of its own before the container's program runs. It says nothing of
// what it could not read.
type Workload struct {
	// PoolCPUs are the agent's own CPUs in the other container's pod: the kubelet gives it those that all containers share. Empty: the
	// agent was in the container itself.
	PoolCPUs string `json:"poolCPUs,omitempty"`
	// Processes are those of the container, at most MaxThreads; Threads are theirs, at most MaxThreads. Omitted counts the others.
	Processes []Process `json:"processes"`
	Threads   []Thread  `json:"threads"`
	Omitted   int       `json:"omitted,omitempty"`
	// Elsewhere are processes in the container's process namespace that are neither in its cgroup nor in the agent's.
	Elsewhere []string `json:"elsewhere,omitempty"`
	// Unread names what the kernel does not show to the agent: environment, cgroup.
	Unread []string `json:"unread,omitempty"`
	// Interfaces are the evidence with each interface of the pod, apart from lo. Its deltas are those of all CPUs of the container.
	Interfaces []Evidence `json:"interfaces"`
	// Directed lists the interrupts that may be delivered to its CPUs, by number and name.
	Directed []string `json:"directed,omitempty"`
	// Throttled is how often the container's cgroups used up their quota since they exist; -1: unknown.
	Throttled int64 `json:"throttled"`
	// Memory is the anonymous memory of the container by NUMA node, HugePages what it uses by size, such as 2Mi, both in bytes.
	Memory    map[string]int64 `json:"memory,omitempty"`
	HugePages map[string]int64 `json:"hugePages,omitempty"`
}

// MaxThreads bounds the threads of a workload.
const MaxThreads = 4096

// Process is a process of the container. Look is nil if its memory map and descriptors are hidden.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	Look *Look  `json:"look,omitempty"`
}

// Thread is a thread of a process.
type Thread struct {
	PID  int    `json:"pid"`
	TID  int    `json:"tid"`
	Name string `json:"name"`
	// CPUs and Mems are the CPUs and the NUMA nodes that it may use, Ran the CPUs on which it was seen.
	CPUs string `json:"cpus"`
	Mems string `json:"mems,omitempty"`
	Ran  string `json:"ran,omitempty"`
	// Migrations counts its changes of the CPU in the window, RunNS is how long it ran and DelayNS how long it waited for a CPU; -1:
	// unknown.
	Migrations int64 `json:"migrations"`
	RunNS      int64 `json:"runNS"`
	DelayNS    int64 `json:"delayNS"`
}

func (t Thread) String() string { return fmt.Sprintf("%s (%d)", t.Name, t.TID) }
