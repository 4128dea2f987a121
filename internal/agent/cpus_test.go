package agent

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// twoSockets is a machine with two NUMA nodes of four cores each. The SMT siblings of CPUs 0 to 7 are 8 to 15, and the
// second node has CPUs 4 to 7 and 12 to 15.
func twoSockets() map[string]string {
	files := map[string]string{
		"sys/devices/system/node/node0/cpulist": "0-3,8-11\n",
		"sys/devices/system/node/node1/cpulist": "4-7,12-15\n",
		"sys/devices/system/cpu/isolated":       "\n",
	}
	for cpu := range 16 {
		files[fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu)] = fmt.Sprintf("%d,%d\n", cpu%8, cpu%8+8)
	}
	return files
}

func TestOrderOfCPUs(t *testing.T) {
	isolated := func(list string) map[string]string {
		return map[string]string{"sys/devices/system/cpu/isolated": list + "\n"}
	}
	slow := func(list string) map[string]string {
		return map[string]string{"sys/devices/cpu_atom/cpus": list + "\n"}
	}
	and := func(all ...map[string]string) map[string]string {
		both := map[string]string{}
		for _, files := range all {
			maps.Copy(both, files)
		}
		return both
	}
	cases := map[string]struct {
		// files replace files of twoSockets; with bare, there are no others.
		files map[string]string
		bare  bool
		cpus  []int
		// node is the NIC's NUMA node, and used the number of CPUs that the tool takes.
		node int32
		used int
		want []int
		// agent is the CPU on which the agent sleeps.
		agent int
	}{
		"one CPU for both": {cpus: []int{3}, node: 0, used: 1, want: []int{3}, agent: 3},
		"two cores":        {cpus: []int{1, 2}, node: 0, used: 1, want: []int{1, 2}, agent: 2},
		"a whole core":     {cpus: []int{2, 10}, node: 0, used: 1, want: []int{2, 10}, agent: 10},
		"two whole cores":  {cpus: []int{1, 2, 9, 10}, node: 0, used: 1, want: []int{1, 2, 10, 9}, agent: 10},
		"two whole cores, of which a tool takes two":      {cpus: []int{1, 2, 9, 10}, node: 0, used: 2, want: []int{1, 2, 10, 9}, agent: 10},
		"a core and a half, of which a tool takes two":    {cpus: []int{1, 2, 9}, node: 0, used: 2, want: []int{1, 2, 9}, agent: 9},
		"a tool that takes all":                           {cpus: []int{1, 2}, node: 0, used: 2, want: []int{1, 2}, agent: 2},
		"a tool that would take more":                     {cpus: []int{1}, node: 0, used: 2, want: []int{1}, agent: 1},
		"CPUs of both nodes and a NIC of the second":      {cpus: []int{1, 2, 5}, node: 1, used: 1, want: []int{5, 1, 2}, agent: 2},
		"no CPU on the NIC's node":                        {cpus: []int{1, 2}, node: 1, used: 1, want: []int{1, 2}, agent: 2},
		"a NIC on an unknown NUMA node":                   {cpus: []int{1, 5}, node: -1, used: 1, want: []int{1, 5}, agent: 5},
		"one of them is isolated":                         {files: isolated("2"), cpus: []int{1, 2, 3}, node: 0, used: 1, want: []int{2, 1, 3}, agent: 3},
		"the NIC's node comes before isolation":           {files: isolated("1-3"), cpus: []int{1, 5}, node: 1, used: 1, want: []int{5, 1}, agent: 1},
		"isolated CPUs of both nodes":                     {files: isolated("1-2,5-6"), cpus: []int{1, 4, 5, 6}, node: 1, used: 1, want: []int{5, 6, 4, 1}, agent: 1},
		"a sibling that is isolated is a sibling first":   {files: isolated("1,9"), cpus: []int{1, 2, 9}, node: 0, used: 1, want: []int{1, 2, 9}, agent: 2},
		"a machine without this information":              {bare: true, cpus: []int{4, 6, 7}, node: 0, used: 1, want: []int{4, 6, 7}, agent: 7},
		"an invalid list of isolated CPUs":                {files: isolated("(null)"), cpus: []int{1, 2}, node: 0, used: 1, want: []int{1, 2}, agent: 2},
		"the NIC's node comes before speed and isolation": {files: and(isolated("1"), slow("5")), cpus: []int{1, 5}, node: 1, used: 1, want: []int{5, 1}, agent: 1},
		"speed comes before isolation":                    {files: and(isolated("1"), slow("1")), cpus: []int{1, 2}, node: 0, used: 1, want: []int{2, 1}, agent: 1},
		"a far and slow CPU rather than a sibling":        {files: slow("5"), cpus: []int{1, 5, 9}, node: 0, used: 2, want: []int{1, 5, 9}, agent: 9},
		"a far and slow CPU rather than an isolated one":  {files: and(isolated("1,9"), slow("13")), cpus: []int{1, 9, 13}, node: 0, used: 1, want: []int{1, 13, 9}, agent: 13},
		"a CPU of which no node is known":                 {files: map[string]string{"sys/devices/system/node/node0/cpulist": "1-3,8-11\n"}, cpus: []int{0, 1}, node: 0, used: 1, want: []int{1, 0}, agent: 0},
		"a far CPU rather than a sibling for the second":  {cpus: []int{1, 5, 9}, node: 0, used: 2, want: []int{1, 5, 9}, agent: 9},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			files := twoSockets()
			if c.bare {
				files = nil
			}
			maps.Copy(files, c.files)
			h := fakeRoot(t, files)
			got := h.order(c.cpus, c.node)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			if agent := h.agentCPU(got, c.used); agent != c.agent {
				t.Errorf("the agent is on CPU %d, want %d", agent, c.agent)
			}
		})
	}
}

func TestCPUNUMANode(t *testing.T) {
	cases := map[string]struct {
		files map[string]string
		cpu   int
		want  int32
	}{
		"of the first node":          {files: server2, cpu: 5, want: 0},
		"of the second":              {files: server2, cpu: 2, want: 1},
		"a CPU that is nowhere":      {files: server2, cpu: 8, want: -1},
		"a machine without a list":   {cpu: 0, want: -1},
		"an invalid list":            {files: map[string]string{"sys/devices/system/node/node0/cpulist": "all\n"}, cpu: 0, want: -1},
		"a node with a large number": {files: map[string]string{"sys/devices/system/node/node12/cpulist": "0\n"}, cpu: 0, want: 12},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := fakeRoot(t, c.files).cpuNUMANode(c.cpu); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestAllowedNUMANodes(t *testing.T) {
	cases := map[string]struct {
		files map[string]string
		cpus  []int
		want  string
	}{
		"of one node":                        {files: twoSockets(), cpus: []int{4, 12, 7}, want: "1"},
		"of both":                            {files: twoSockets(), cpus: []int{4, 3}, want: "0-1"},
		"one of them is on an unknown":       {files: twoSockets(), cpus: []int{4, 16}},
		"a machine without this information": {cpus: []int{4}},
		"no CPU":                             {files: twoSockets()},
		"nodes that do not follow":           {files: map[string]string{"sys/devices/system/node/node0/cpulist": "0\n", "sys/devices/system/node/node2/cpulist": "1\n"}, cpus: []int{0, 1}, want: "0,2"},
		"a node of memory without CPUs":      {files: server2, cpus: []int{0, 2}, want: "0-1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := fakeRoot(t, c.files).allowedNUMANodes(c.cpus); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCPUsAllowed(t *testing.T) {
	cpus, list, err := fakeRoot(t, server2).cpusAllowed()
	if err != nil || list != "2-3" || !cmp.Equal(cpus, []int{2, 3}) {
		t.Errorf("got %v, %q, %v", cpus, list, err)
	}
	for name, files := range map[string]map[string]string{
		"no status": nil, "a status without CPUs": {"proc/self/status": "Name:\tagent\n"}, "no CPUs": {"proc/self/status": "Cpus_allowed_list:\t\n"},
	} {
		if cpus, _, err := fakeRoot(t, files).cpusAllowed(); err == nil {
			t.Errorf("%s: got %v, want an error", name, cpus)
		}
	}
}
