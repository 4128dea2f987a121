package result

// Path is an agent's record of the path of one cell's messages: through the kernel, or past it. Everything is read before and
// after the cell, never during it.
type Path struct {
	// Cell is the name of the cell.
	Cell string `json:"cell"`
	// Grown is the growth of the counters below from before the tool's process started until after it ended. A counter that
	// could not be read is absent.
	Grown map[string]int64 `json:"grown,omitempty"`
	// Begun is the agent's observation of the process of the tool's server when it was ready, and Ended when its client had
	// ended. Both are nil at the client's end, whose tool starts and ends by itself, and Ended is nil if the tool's server had
	// also ended.
	Begun *Look `json:"begun,omitempty"`
	Ended *Look `json:"ended,omitempty"`
	// Banner is the version that Onload's library printed on the tool's standard error; empty if it printed no version.
	Banner string `json:"banner,omitempty"`
	// Said is why the tool could not use Onload, as Onload explains it on the tool's standard error; empty if it does not.
	Said string `json:"said,omitempty"`
}

// Look is an agent's observation of a process.
type Look struct {
	// Library is the path of Onload's library in the memory of the process; empty if it is not there.
	Library string `json:"library,omitempty"`
	// Sockets is the number of all its sockets, and Onload the number of its Onload sockets that can carry the messages of the
	// cell.
	Sockets int32 `json:"sockets"`
	Onload  int32 `json:"onload"`
}

// The counters of a Path. The TCP and UDP counters are those of the endpoint's network namespace, for IPv4 and IPv6 together,
// and count what the kernel's stack carried. They exclude the segments and bytes of the agents' own connection.
const (
	PathUDPIn  = "udp.in"
	PathUDPOut = "udp.out"
	PathTCPIn  = "tcp.in"
	PathTCPOut = "tcp.out"
	// PathTCPData and PathTCPAgain are the segments with data that were sent: for the first time, and again. The first excludes, like
	// PathTCPOut, those of the agents' own connection.
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
	// PathStackIn and PathStackOut are events of the Onload stacks of the tool's server that still existed.
	PathStackIn  = "stack.in"
	PathStackOut = "stack.out"
	// PathSocketIn and PathSocketOut are the packets that the sockets of the tool's server exchanged through Onload's stack, and
	// PathSocketKernelIn and PathSocketKernelOut those through the kernel on behalf of these sockets, according to Onload.
	PathSocketIn        = "socket.in"
	PathSocketOut       = "socket.out"
	PathSocketKernelIn  = "socket.kernel-in"
	PathSocketKernelOut = "socket.kernel-out"
)
