package result

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/utils/cpuset"
)

// cpuList is safe to parse: cpuset creates every CPU of a range. Linux supports 8192 CPUs today.
var cpuList = regexp.MustCompile(`^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$`)

// ParseCPUs reads a list of CPUs in the kernel's format, such as 1,3-5. An empty list is an error.
func ParseCPUs(list string) (cpuset.CPUSet, error) {
	list = strings.TrimSpace(list)
	if !cpuList.MatchString(list) {
		return cpuset.New(), fmt.Errorf("%.64q is no list of CPUs", list)
	}
	return cpuset.Parse(list)
}
