package localcluster

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// maxCPUs is more than Linux can have.
const maxCPUs = 1 << 16

// onlineCPUs reads which CPUs the machine has.
func onlineCPUs() ([]int, error) {
	content, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("reading the list of CPUs: %w", err)
	}
	return parseCPUList(strings.TrimSpace(string(content)))
}

// splitCPUs shares the CPUs out to two NUMA nodes. It fails on fewer than two.
func splitCPUs(online []int) (numa [2][]int, err error) {
	if len(online) < 2 {
		return numa, errors.New("two CPU cores are needed, one for each end of a measurement, and this machine has one")
	}
	half := len(online) / 2
	return [2][]int{online[:half], online[half:]}, nil
}

// parseCPUList reads the kernel's list format, such as 0-3,8.
func parseCPUList(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			return nil, fmt.Errorf("parsing the CPU list %q: %w", list, err)
		}
		last := first
		if isRange {
			if last, err = strconv.Atoi(to); err != nil {
				return nil, fmt.Errorf("parsing the CPU list %q: %w", list, err)
			}
		}
		if last < first || last >= maxCPUs {
			return nil, fmt.Errorf("parsing the CPU list %q: %s is not a range of CPUs", list, part)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// cpuList is the plain form of the kernel's list format, such as 0,1,2.
func cpuList(cpus []int) string {
	words := make([]string, len(cpus))
	for i, cpu := range cpus {
		words[i] = strconv.Itoa(cpu)
	}
	return strings.Join(words, ",")
}

// cpuMap is the kernel's mask format: 32-bit groups in hexadecimal, the highest first.
func cpuMap(cpus []int) string {
	var groups []uint32
	for _, cpu := range cpus {
		for len(groups) <= cpu/32 {
			groups = append(groups, 0)
		}
		groups[cpu/32] |= 1 << (cpu % 32)
	}
	words := make([]string, 0, len(groups))
	for i := len(groups) - 1; i >= 0; i-- {
		words = append(words, fmt.Sprintf("%08x", groups[i]))
	}
	return strings.Join(words, ",")
}
