package result

import "fmt"

// Path is an agent's record of the path of a cell's messages, before and after, and of the CPU.
type Path struct {
	Cell string `json:"cell"`
	// Grown is the growth of counters over the tool's process, as far as known.
	Grown map[string]int64 `json:"grown,omitempty"`
	// Begun is what the agent saw of the tool's server when it was ready, Ended when its client had
	// ended. Both are nil at the client's end, Ended also if the server had ended.
	Begun *Look `json:"begun,omitempty"`
	Ended *Look `json:"ended,omitempty"`
	// Banner is the version that Onload's library printed on the tool's standard error.
	Banner string `json:"banner,omitempty"`
	// Said is why the tool could not use Onload, by its standard error.
	Said string `json:"said,omitempty"`
	// MHzBefore and MHzAfter are of the measuring CPU around the cell; 0: unknown.
	MHzBefore int32 `json:"mhzBefore,omitempty"`
	MHzAfter  int32 `json:"mhzAfter,omitempty"`
}

// Frequency returns what is unusual about the CPU in a result's first such cell: it was throttled or, not
// in a virtual machine, its frequency differs from another's by more than 5 %.
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

func apart(a, b int32) bool {
	low, high := int64(min(a, b)), int64(max(a, b))
	return low > 0 && 20*(high-low) > low
}

type Look struct {
	// Library is the path of Onload's library in the memory of the process.
	Library string `json:"library,omitempty"`
	// Sockets counts all, Onload those of Onload that can carry the cell's messages.
	Sockets int32 `json:"sockets"`
	Onload  int32 `json:"onload"`
}

// The counters of a Path. Those of TCP and UDP are the kernel's in the endpoint's network
// namespace, IPv4 and IPv6 together, without the agents' own connection.
const (
	PathUDPIn  = "udp.in"
	PathUDPOut = "udp.out"
	PathTCPIn  = "tcp.in"
	PathTCPOut = "tcp.out"
	// PathTCPData and PathTCPAgain are segments with data, sent first and again.
	PathTCPData  = "tcp.data-out"
	PathTCPAgain = "tcp.retransmitted"
	// PathIPIn and PathIPOut are bytes including all headers.
	PathIPIn  = "ip.in-bytes"
	PathIPOut = "ip.out-bytes"
	// PathNICIn and PathNICOut are packets of the interface, of any process.
	PathNICIn  = "nic.in"
	PathNICOut = "nic.out"
	// PathDelivered counts arrived packets of all protocols, whether a socket read them or not,
	// PathDeliveredOther those of TCP and ICMP, and PathDeliveredAll those to groups or to all.
	PathDelivered      = "ip.delivered"
	PathDeliveredOther = "ip.delivered-other"
	PathDeliveredAll   = "ip.delivered-all"
	PathLocal          = "lo.in"         // arrivals by loopback; absent if it is measured
	PathThrottled      = "cpu.throttled" // times that the kernel slowed the hot measuring CPU
	// PathStackIn and PathStackOut are events of the server's remaining stacks.
	PathStackIn  = "stack.in"
	PathStackOut = "stack.out"
	// PathSocketIn and PathSocketOut are packets of the tool's server by Onload's stack,
	// PathSocketKernelIn and PathSocketKernelOut those by the kernel, as Onload says.
	PathSocketIn        = "socket.in"
	PathSocketOut       = "socket.out"
	PathSocketKernelIn  = "socket.kernel-in"
	PathSocketKernelOut = "socket.kernel-out"
)
