package result

import "fmt"

// Path is an agent's record of the path of a cell's messages, through the kernel or past it, and of the CPU, read before and after it.
type Path struct {
	Cell string `json:"cell"`
	// Grown is the growth of the counters below from before the tool's process started until after it ended, as far as it is known.
	Grown map[string]int64 `json:"grown,omitempty"`
	// Begun is what the agent saw of the process of the tool's server when it was ready, and Ended when its client had ended. Both are
	// nil at the client's end, and Ended if the tool's server had also ended.
	Begun *Look `json:"begun,omitempty"`
	Ended *Look `json:"ended,omitempty"`
	// Banner is the version that Onload's library printed on the tool's standard error.
	Banner string `json:"banner,omitempty"`
	// Said is why the tool could not use Onload, as Onload explains it on the tool's standard error.
	Said string `json:"said,omitempty"`
	// MHzBefore and MHzAfter are the frequencies of the measuring CPU just before and after the cell; 0 if unknown.
	MHzBefore int32 `json:"mhzBefore,omitempty"`
	MHzAfter  int32 `json:"mhzAfter,omitempty"`
}

// Frequency returns what is unusual about the CPU in the first such cell of an endpoint, compared with another result of the same role:
// the kernel slowed it because it was hot, or its frequency differed by more than 5 %. A virtual machine does not control the frequency,
// so that only throttling counts there.
func Frequency(first, d Document) string {
	for _, p := range d.Evidence.Paths {
		if n := p.Grown[PathThrottled]; n > 0 {
			return fmt.Sprintf("%s, %s: the kernel slowed the %s's CPU %d times because it was hot", d.Run, p.Cell, d.Role, n)
		}
	}
	const bare = "no"
	if first.Evidence.Facts["cpu.hypervisor"] != bare || d.Evidence.Facts["cpu.hypervisor"] != bare {
		return ""
	}
	for _, p := range d.Evidence.Paths {
		if apart(p.MHzBefore, p.MHzAfter) {
			return fmt.Sprintf("%s, %s: the %s's CPU ran at %d MHz before the cell and at %d MHz after it", d.Run, p.Cell, d.Role, p.MHzBefore, p.MHzAfter)
		}
		for _, q := range first.Evidence.Paths {
			if q.Cell == p.Cell && apart(q.MHzAfter, p.MHzAfter) {
				return fmt.Sprintf("%s: the %s's CPU ran at %d MHz after the cell in %s, and at %d MHz in %s", p.Cell, d.Role, q.MHzAfter, first.Run, p.MHzAfter, d.Run)
			}
		}
	}
	return ""
}

// apart reports whether two frequencies that are known differ by more than 5 %.
func apart(a, b int32) bool {
	low, high := int64(min(a, b)), int64(max(a, b))
	return low > 0 && 20*(high-low) > low
}

type Look struct {
	// Library is the path of Onload's library in the memory of the process.
	Library string `json:"library,omitempty"`
	// Sockets is the number of all its sockets, and Onload that of the Onload sockets that can carry the messages of the cell.
	Sockets int32 `json:"sockets"`
	Onload  int32 `json:"onload"`
}

// The counters of a Path. TCP and UDP counters are those of the kernel's stack in the endpoint's network namespace, for IPv4 and IPv6
// together, without the segments and bytes of the agents' own connection.
const (
	PathUDPIn  = "udp.in"
	PathUDPOut = "udp.out"
	PathTCPIn  = "tcp.in"
	PathTCPOut = "tcp.out"
	// PathTCPData and PathTCPAgain are the segments with data that were sent: for the first time, and again.
	PathTCPData  = "tcp.data-out"
	PathTCPAgain = "tcp.retransmitted"
	// PathIPIn and PathIPOut are bytes including all headers.
	PathIPIn  = "ip.in-bytes"
	PathIPOut = "ip.out-bytes"
	// PathNICIn and PathNICOut are packets of the interface, of any process.
	PathNICIn  = "nic.in"
	PathNICOut = "nic.out"
	// PathLocal is the number of packets that arrived over the loopback interface; absent if that is the measured interface.
	PathLocal = "lo.in"
	// PathThrottled is how often the kernel slowed the measuring CPU's core because it was hot.
	PathThrottled = "cpu.throttled"
	// PathStackIn and PathStackOut are events of the Onload stacks of the tool's server that still existed.
	PathStackIn  = "stack.in"
	PathStackOut = "stack.out"
	// PathSocketIn and PathSocketOut are the packets that the sockets of the tool's server exchanged through Onload's stack, and
	// PathSocketKernelIn and PathSocketKernelOut those through the kernel, according to Onload.
	PathSocketIn        = "socket.in"
	PathSocketOut       = "socket.out"
	PathSocketKernelIn  = "socket.kernel-in"
	PathSocketKernelOut = "socket.kernel-out"
)
