package localcluster

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/result"
)

// onlineCPUs returns the CPUs of the machine.
func onlineCPUs() ([]int, error) {
	content, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("reading the list of CPUs: %w", err)
	}
	cpus, err := result.ParseCPUs(string(content))
	return cpus.List(), err
}

// splitCPUs divides the CPUs between two NUMA nodes. Fewer than two CPUs are an error.
func splitCPUs(online []int) (numa [2][]int, err error) {
	if len(online) < 2 {
		return numa, errors.New("two CPU cores are needed, one for each end of a measurement, and this machine has one")
	}
	half := len(online) / 2
	return [2][]int{online[:half], online[half:]}, nil
}

// cpuList returns CPUs in the kernel's list format without ranges, such as 0,1,2.
func cpuList(cpus []int) string {
	words := make([]string, len(cpus))
	for i, cpu := range cpus {
		words[i] = strconv.Itoa(cpu)
	}
	return strings.Join(words, ",")
}

// cpuMap returns CPUs in the kernel's mask format: 32-bit groups in hexadecimal, the highest first.
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
